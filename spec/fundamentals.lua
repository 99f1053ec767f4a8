-- SPDX-License-Identifier: MIT
-- What the scripts of examples/fundamentals print.
local fundamentals = {}

-- Lines that must be there, in this order; a line that begins with % is a Lua pattern for the rest.
fundamentals.expected = {
  parameters = {
    "0.weight (8, 4)", "0.bias (8,)", "2.weight (2, 8)", "2.bias (2,)", "parameters: 58",
    "requires_grad: true, leaf: true", "bytes: 128 = 32 x 4",
  },
  collapse = { "the same: true", "with tanh between the layers, the same: false" },
  loss_and_steps = {
    "MSE by hand equals the library's: true", "cross-entropy by hand equals the library's: true",
    "%too high, 2.1 .*diverges", "%right, 0.3 .*converges", "%too low, 0.01 .*crawls",
    "%steps; h: too high, r: right, l: too low",
  },
  optimizer_rules = {
    "%^SGD  .*equal: true", "%^SGD with momentum .*equal: true", "%^RMSprop .*equal: true", "%^Adam  .*equal: true",
    "%^AdamW .*equal: true",
  },
  handles = {
    "x: shape (256, 256), strides (256, 1), float32, cpu, 262144 bytes", "allocated by x: 262144",
    "view has x's data pointer: true", "copy has x's data pointer: false",
    "allocated with view and copy: 393216", "after view:fill_(7): x[1][1] = 7, copy[1][1] = 0",
    "same == x: true, view == x: false", "x freed, allocated: 393216 (the view keeps the buffer)",
    "view freed, allocated: 131072 (the copy)", "all freed, allocated: 0",
  },
  strides = {
    "(3, 1) true", "(1, 3) false", "(2, 1) true", "transposed, same bytes: true",
    "made contiguous, same bytes: false", "x[{ {}, {2, 3} }]: shape (2, 2), strides (3, 1), offset 1",
    "expanded: shape (4, 3), strides (0, 1), bytes of storage: 12",
  },
  layouts = {
    "rows (1,), columns (2048,)", "%column takes [%d.]+ times row", "strided (2048, 2), contiguous (1024, 1)",
    "NCHW (100352, 3136, 56, 1), channels_last (100352, 1, 1792, 32)", "%3x3 convolution: .* times NCHW",
    "same values: true", "a result keeps its input's layout: true",
  },
  devices = {
    "mixing: add: x is on cpu but y is on meta: move one, e.g. y:to(\"cpu\")",
    "a new model's parameters and buffers: on cpu", "moved: on cpu, same parameter objects: true",
    "the optimizer made before the move lowers the loss: true", "on meta: (100000, 100000), bytes taken: 0",
    "the model on meta: (16, 1)",
  },
  sharing = {
    "tied: 40 parameters, one tensor: true", "gradient = embedding's part + output's part: true",
    "siamese branches, gradients add up: true", "two heads: (5, 1) and (5, 2), parameters 59",
    "encoder and decoder: 40 parameters, tied after moving and loading: true",
  },
  linear_is_matmul = {
    "%^Y .*equal: true", "%^dX .*equal: true", "%^dW .*equal: true", "%^db .*equal: true",
  },
  modes = {
    "dropout, training: largest value 1.3333 = 1 / (1 - 0.25)", "share kept: 0.75, mean: 1.00",
    "dropout, evaluation: identity true", "batch norm, training: mean 0.00, variance 1.00",
    "running mean after one batch of mean 5: 0.5 = 0.9 * 0 + 0.1 * 5",
    "evaluation uses the running statistics: 5 becomes 0.0", "batches seen: 101",
  },
  micro_training = {
    "at the start             gradients 0.0, optimizer state 0.0 (in parameters' bytes)",
    "after inference          gradients 0.0, optimizer state 0.0 (in parameters' bytes)",
    "after one training step  gradients 1.0, optimizer state 2.0 (in parameters' bytes)",
    "training saw the loss that inference saw: true", "loss went down: true", "steps counted: 2",
    "after zero_grad          gradients 0.0, optimizer state 2.0 (in parameters' bytes)",
    "after reset_state        gradients 0.0, optimizer state 0.0 (in parameters' bytes)",
    "steps counted after the state was dropped: 1",
  },
  liveness = {
    "  4096  x = cnn.ones(1024)", "%^ +4096  alias = x; x = nil; collect%(%)", "%^ +4096  alias = nil  %-%- garbage",
    "     0  collect()", "%^ +0  a = .*a:free%(%)  %-%- at once", "%^ +64  s = cnn.scope.*only the result is left",
    "     0  s:free()", "%^ +12288  h = w %* 2; y = h:square", "%^ +12288  h = nil; collect",
    "%saved by SquareBackward0 behind .*y", "%^ +8192  value = y:detach", "%^ +4096  value = nil",
    "%^ +8256  loss = ", "%^ +8256  loss:backward", "%^ +4160  w.grad = nil", "%^ +8192  z = cnn.no_grad",
    "%^ +0  z:free%(%); w:free%(%)  %-%- all freed", "%1000 temporaries .*true",
  },
  memory_growth = {
    "batch  inference   training", "%^ +64 +%d+ +%d+",
    "%inference = 11048 %+ B x 432, off by at most 0 bytes; the parameters: 11048 bytes",
    "%^training = max%(.*off by at most 0 bytes",
    "fixed at the end: parameters, gradients and a loss of 4 bytes: true",
  },
  kept_graphs = {
    "%= loss +9856 +98560 197120", "%loss:detach%(%) +64 +640 +1280", "%loss:item%(%) +0 +0 +0",
    "%8192 bytes, activations %(32, 64%), made at kept_graphs.lua:%d+",
  },
  estimate = {
    "bytes taken by the predictions: 0", "%^training  .*at the peak  .*most", "%^parameters  .*241.04 KiB",
    "%^optimizer state .*482.08 KiB", "the parts add up to the peak: true", "%^training: .*equal: true",
    "%^inference: .*equal: true",
  },
  adamw_bytes = {
    "adamw, float32               16 bytes per parameter", "adamw, mixed                 16 bytes per parameter",
    "created                   4.0 bytes per parameter, as computed: true",
    "after the first backward  8.0 bytes per parameter, as computed: true",
    "after the first step     16.0 bytes per parameter, as computed: true",
    "after zero_grad          12.0 bytes per parameter, as computed: true",
    "after another backward   16.0 bytes per parameter, as computed: true",
    "float16 weights           2.0 bytes per parameter, as computed: true",
    "with master weights       6.0 bytes per parameter, as computed: true",
    "after a mixed step       16.0 bytes per parameter, as computed: true",
  },
  seven_billion = {
    "parameters: 7.00 billion", "to train with AdamW: 112 GB of weights, gradients and state",
    "to serve in float16: 14 GB of weights", "bytes taken: 0", "in under a second: true",
  },
  inference_memory = {
    "under no_grad  3400704 bytes = weights + input + 2 activations: true",
    "with a graph   4973568 bytes = weights + input + 50 activations: true",
    "predicted: 3400704 bytes, with 2 activations",
  },
  checkpointing = {
    "layers  segments  peak (activations)  2 sqrt(n)  layers run",
    "%^    64         1  .* 6%d.%d .* 64  ####", "%^    64         8  .* 1%d.%d .* 120  ####",
    "  within 2.5 sqrt(n): true, layers run again: 56 of 64",
    "  within 2.5 sqrt(n): true, layers run again: 132 of 144",
  },
  offload = {
    "%^kept  .*holds 16.0 activations before backward, peak .* ms",
    "%^parked  .*holds  1.0 activations before backward, peak .* ms", "same gradients: true",
    "less than a third of the peak: true",
  },
  release = {
    "a tensor of 64 MiB     allocated  64 MiB, reserved  64 MiB",
    "dropped                allocated  64 MiB, reserved  64 MiB",
    "collected              allocated   0 MiB, reserved  64 MiB",
    "cache emptied          allocated   0 MiB, reserved   0 MiB",
    "made and freed         allocated   0 MiB, reserved  64 MiB",
    "cache emptied          allocated   0 MiB, reserved   0 MiB",
    "the device has room: true",
  },
  fragmentation = {
    "one segment of 32 MiB: free 16 MiB, largest piece 4 MiB, 16 MiB refused: true",
    "cnn, the same limit: 16 MiB given: true", "reserved within the limit: true",
  },
  sharing_a_gpu = {
    "critic,  1024 rows: trained",
    "%critic, %d+ rows: out of memory on cpu in pool \"critic\": .*limit 16.0 MiB, room for",
    "critic,  1024 rows: trained", "critic trains on, with fewer rows: true",
    "actor's losses are those of a run alone: true", "%^alone .*in use now 0.25 MiB, refused: nothing",
    "%^actor .*in use now 0.25 MiB, refused: nothing", "%^critic .*in use now 0.25 MiB, refused: yes",
    "on the device in all: 795648 bytes",
  },
  -- Where there are no GPUs; else spec/cuda_examples_spec.lua.
  kernels = { "%^needs a GPU, or its simulator: cuda.simulate: the CUDA plugin can't be loaded: " },
  tiled_gemm = { "%^needs a GPU, or its simulator: cuda.simulate: the CUDA plugin can't be loaded: " },
  graph = {
    "      TanhBackward0 saves 60 bytes", "        MatmulBackward0 saves 80 bytes", "  saved in all: 140 bytes",
    "with h:detach(): the graph ends there", "  saved in all: 60 bytes",
    "under no_grad: nothing is recorded", "  no graph", "after backward the saved tensors are gone: 0 kept",
  },
}

-- Fails unless the text has these lines.
function fundamentals.check(text, lines)
  local at = 1
  for _, line in ipairs(lines) do
    local _, last
    if line:sub(1, 1) == "%" then
      local pattern = line:sub(2):gsub("%.%*", "[^\n]*"):gsub("^%^", "\n")
      _, last = ("\n" .. text):find(pattern, at)
      if last then last = last - 1 end
    else
      _, last = ("\n" .. text .. "\n"):find("\n" .. line .. "\n", at, true)
      if last then last = last - 2 end
    end
    if not last then error(("the line %q is missing (or out of order) in:\n%s"):format(line, text), 2) end
    at = last + 1
  end
end

return fundamentals
