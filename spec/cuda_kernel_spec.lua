-- SPDX-License-Identifier: MIT
-- Kernels of one's own, counts of launches, and what the simulator says of mistakes in kernels. Runs where
-- there is a GPU, or on the simulator: make test-cuda-sim.
local cnn = require "cnn"
local helper = require "spec.helper"
local cuda = cnn.cuda

if not cuda.is_available() then
  describe("kernels of one's own", function()
    it("can't be tried here: there is no GPU", function()
      helper.raises("cuda.kernel: ", cuda.kernel, "__global__ void f() {}", "f")
    end)
  end)
  return
end

local function gpu(...) return cnn.ones(..., { device = "cuda" }) end

local function same(a, b) return a:eq(b):all():item() end

local AXPY = [[
  extern "C" __global__ void axpy(float a, const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
  }]]

describe("kernels of one's own", function()
  local axpy = cuda.kernel(AXPY, "axpy")
  local x, y = gpu(3), gpu(3)
  local where = { grid = 1, block = 32 }

  it("compile and run", function()
    local from, to = cnn.arange(100):to("cuda"), gpu(100)
    axpy({ grid = 1, block = 128 }, 2, from, to, 100)
    assert.is_true(same(to:cpu(), cnn.arange(100) * 2 + 1))
    axpy({ grid = { 4, 1, 1 }, block = { 32 } }, 1, from, to, 100)
    assert.is_true(same(to:cpu(), cnn.arange(100) * 3 + 1))
    assert.equal("cnn.cuda.kernel(axpy)", tostring(axpy))
  end)

  it("may be templates, take what C++ writes, and options", function()
    local k = cuda.kernel([[
      // __global__ void fill(int wrong)
      template <class T, int N>
      __global__ void __launch_bounds__(64) fill(T *__restrict__ x, float const *y, double by, bool odd,
                                                 const long long n, unsigned m) {
        extern __shared__ __align__(16) float s[];
        int i = threadIdx.x; /* one block */
        s[i] = y[0];
        __syncthreads();
        if (i < n && (i & 1) == odd) x[i] = T(s[(i + 1) % blockDim.x] * by + (N + m) + ADD);
      }]], "fill<int, 7>", { options = { "-DADD=1000" } })
    local z = cnn.zeros(5, { device = "cuda", dtype = "int32" })
    k({ grid = 1, block = 8, shared = 8 * 4 }, z, x, 2.5, 1, 5, 2 ^ 32 - 7)
    helper.elements(z, { 0, 1002, 0, 1002, 0 })
    assert.equal("cnn.cuda.kernel(fill<int, 7>)", tostring(k))
  end)

  it("may ask for more than 48 KiB of shared memory", function()
    local k = cuda.kernel([[
      extern __shared__ float s[];
      __global__ void turn(float *x, int n) {
        for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = x[i];
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = s[n - 1 - i];
      }]], "turn")
    local z = cnn.arange(20000):to("cuda")
    k({ grid = 1, block = 64, shared = 80000 }, z, 20000)
    assert.is_true(same(z:cpu(), cnn.arange(20000):flip(1)))
    helper.raises("turn: shared: 4000000 bytes, and 0 of the kernel's own __shared__ variables: a block has at most ",
      k, { grid = 1, block = 64, shared = 4000000 }, z, 20000)
  end)

  it("move the version of what they write", function()
    local w = cnn.ones(4, { device = "cuda", requires_grad = true })
    local h = w * 2
    local loss = h:square():sum()
    axpy(where, 1, w:detach(), h:detach(), 4)
    helper.raises("changed", loss.backward, loss)
  end)

  it("check where they run", function()
    helper.raises("axpy: argument 1: expected {grid =, block =, shared =}, got the number 1", axpy, 1, 2, x, y, 3)
    helper.raises("axpy: unknown option \"gird\"", axpy, { gird = 1, block = 1 }, 2, x, y, 3)
    helper.raises("axpy: grid must be a number or a list of up to three, got nil", axpy, { block = 1 }, 2, x, y, 3)
    helper.raises("axpy: grid must be numbers from 1 on, got the number 0", axpy, { grid = 0, block = 1 }, 2, x, y, 3)
    helper.raises("block must be numbers from 1 on, got the number 1.5", axpy, { grid = 1, block = { 1, 1.5 } }, 2, x,
      y, 3)
    helper.raises("axpy: shared must be a number of bytes, got the number -1", axpy,
      { grid = 1, block = 1, shared = -1 }, 2, x, y, 3)
    helper.raises("axpy: grid: 70000 blocks in dim 2: it must be 1 to 65535", axpy,
      { grid = { 1, 70000 }, block = 1 }, 2, x, y, 3)
    helper.raises("axpy: block: 4096 threads in dim 1: it must be 1 to 1024", axpy, { grid = 1, block = 4096 }, 2, x, y,
      3)
    helper.raises("axpy: block: 32 x 64 x 1 = 2048 threads: the device has blocks of at most 1024", axpy,
      { grid = 1, block = { 32, 64 } }, 2, x, y, 3)
  end)

  it("may stand beside host code that runs as it is loaded", function()
    if not cuda.is_simulated() or os.getenv "SIM_REAL_NVRTC" then return end -- NVRTC takes none
    local k = cuda.kernel([[
      #include <iostream>
      #include <vector>
      static std::vector<int> v(5, 3);
      static int sum = v[0] + v[4];
      __global__ void f(int *x) { *x = sum; }]], "f")
    local z = cnn.zeros(1, { device = "cuda", dtype = "int32" })
    k({ grid = 1, block = 1 }, z)
    assert.equal(6, z:item())
  end)

  it("take small integers, and have printf", function()
    local k = cuda.kernel([[
      __global__ void f(int *x, unsigned char a, short b = 3) {
        if (a == 0) printf("%d\n", b);
        *x = a + b;
      }]], "f")
    local z = cnn.zeros(1, { device = "cuda", dtype = "int32" })
    k({ grid = 1, block = 1 }, z, 255, -5)
    assert.equal(250, z:item())
    helper.raises("argument 2 (unsigned char a): expected an integer of that type, got the number 256", k,
      { grid = 1, block = 1 }, z, 256, 0)
    helper.raises("f: grid must be a number or a list of up to three, got a table", k,
      { grid = { 1, 1, 1, 1 }, block = 1 }, z, 1, 0)
  end)

  it("check their arguments", function()
    helper.raises("axpy: it takes 4 arguments, got 1", axpy, where, 2)
    helper.raises("axpy: argument 1 (float a): expected a number, got a tensor", axpy, where, x, x, y, 3)
    helper.raises("axpy: argument 2 (const float *x): expected a tensor, got the number 1", axpy, where, 2, 1, y, 3)
    helper.raises("axpy: argument 2 (const float *x) is on cpu, the kernel on cuda:0: move it, x:to(\"cuda:0\")", axpy,
      where, 2, cnn.ones(3), y, 3)
    helper.raises("axpy: argument 3 (float *y) is float64: convert it, y:to(\"float32\")", axpy, where, 2, x,
      y:double(), 3)
    helper.raises("axpy: argument 3 (float *y) is not contiguous: use y:contiguous()", axpy, where, 2, x,
      gpu { 3, 3 }:t(), 3)
    for _, n in ipairs { 1.5, 2 ^ 31, 0 / 0, math.huge } do
      helper.raises("axpy: argument 4 (int n): expected an integer of that type, got the number", axpy, where, 2, x, y,
        n)
    end
    axpy(where, 2, x, y, 3)
    assert.equal(9, y:sum():item())
  end)

  it("say what their source lacks", function()
    local lines = helper.raises("cuda.kernel: the kernel does not compile:", cuda.kernel, [[
      __global__ void f(float *x) {
        *x = nothing;
      }]], "f")
    assert.truthy(lines:find("kernel.cu[:(]2") and lines:find("nothing", 1, true), lines)
    helper.raises("the source has no kernel \"g\" (__global__ void g(...))", cuda.kernel,
      "__global__ void f(float *x) {}", "g")
    helper.raises("f: parameter 1 is \"struct s x\"", cuda.kernel, "__global__ void f(struct s x) {}", "f")
    helper.raises("argument 1: expected a string, got nil", cuda.kernel, nil, "axpy")
    helper.raises("argument 2: expected a string, got the number 1", cuda.kernel, AXPY, 1)
    helper.raises("options must be a list of strings, got the string \"-DN=1\"", cuda.kernel, AXPY, "axpy",
      { options = "-DN=1" })
    helper.raises("option 2: expected a string, got the number 2", cuda.kernel, AXPY, "axpy",
      { options = { "-DN=1", 2 } })
    local many = {}
    for i = 1, 33 do many[i] = "-DN" .. i .. "=1" end
    helper.raises("more than 32 options", cuda.kernel, AXPY, "axpy", { options = many })
  end)
end)

-- ---------------------------------------------------------------------------------------------

describe("count_launches", function()
  local x = gpu { 4, 8 }

  it("counts kernels, bytes and waiting, by op", function()
    local c, y = cnn.count_launches(function() return (x * 2 + 1):sum() end)
    assert.equal(3, c.kernels)
    assert.equal(1, c.by_op.mul.kernels)
    assert.equal(0, c.to_host + c.to_device + c.within + c.syncs)
    assert.equal(128, c.by_op.mul.read)
    assert.equal(128, c.by_op.mul.written)
    assert.equal(3 * 128, c.read)
    assert.equal(2 * 128 + 4, c.written)
    c = cnn.count_launches(function() return y:item() end)
    assert.equal(4, c.to_host)
    assert.equal(1, c.syncs)
    assert.equal(0, c.kernels + c.read + c.written)
    c = cnn.count_launches(function() return cnn.ones(10):to("cuda") end)
    assert.equal(40, c.to_device)
  end)

  it("counts broadcast elements once, and what is changed in place", function()
    local c = cnn.count_launches(function() return x + gpu { 1 }:expand(4, 8) end)
    assert.equal(128 + 4, c.by_op.add.read)
    c = cnn.count_launches(function() x:mul_(1):zero_():copy_(gpu { 8 }) end)
    assert.equal(128, c.by_op.mul.written)
    assert.equal(128, c.by_op.zero_.written)
    assert.equal(32 + 128, c.by_op.copy_.read)
    assert.equal(128, c.by_op.copy_.written)
  end)

  it("counts layers, convolutions and their gradients", function()
    local layer = cnn.nn.Linear(8, 3):to("cuda")
    local c = cnn.count_launches(function() layer(x):sum():backward() end)
    assert.equal(1, c.by_op.linear.kernels)
    assert.equal(128 + 4 * (24 + 3), c.by_op.linear.read)
    assert.equal(4 * 12, c.by_op.linear.written)
    assert.is_true(c.kernels >= 4)
    local conv = cnn.nn.Conv2d(1, 2, 3):to("cuda")
    c = cnn.count_launches(function() return conv(gpu { 1, 1, 4, 8 }) end)
    assert.is_true(c.by_op.conv2d.kernels >= 1)
    assert.equal(4 * 2 * 2 * 6, c.by_op.conv2d.written)
  end)

  it("counts one launch of an optimizer for many parameters", function()
    local parameters = {}
    for i = 1, 10 do
      parameters[i] = cnn.nn.Parameter(gpu { 6 })
      parameters[i].grad = gpu { 6 }
    end
    local opt = cnn.optim.AdamW(parameters)
    opt:step() -- makes its state
    local c = cnn.count_launches(function() opt:step() end)
    assert.equal(1, c.kernels)
    assert.equal(10 * 24 * 4, c.read) -- parameters, gradients, two averages
    assert.equal(10 * 24 * 3, c.written)
  end)

  it("may be nested, and fails as what it runs does", function()
    local inner
    local outer, a, b = cnn.count_launches(function(n)
      local y = x + n
      inner = cnn.count_launches(function() return y * 2 end)
      helper.raises("oops", cnn.count_launches, function()
        x:neg()
        error "oops"
      end)
      return "a", "b"
    end, 1)
    assert.equal(1, inner.kernels)
    assert.equal(3, outer.kernels)
    assert.same({ "a", "b" }, { a, b })
    assert.is_nil(inner.by_op.add)
    helper.raises("argument 1 (fn)", cnn.count_launches, 1)
    local co = coroutine.wrap(function()
      return cnn.count_launches(function()
        coroutine.yield()
        return x + 1
      end)
    end)
    co()
    assert.equal(1, co().kernels)
  end)

  it("counts waiting for each op, if asked for", function()
    local before = cuda.set_sync(true)
    local c = cnn.count_launches(function() return gpu { 3 } + 1 end)
    assert.equal(2, c.syncs)
    assert.is_true(cuda.set_sync(before))
  end)

  it("counts kernels of one's own", function()
    local axpy, y = cuda.kernel(AXPY, "axpy"), cnn.zeros(100, { device = "cuda" })
    local c = cnn.count_launches(function()
      axpy({ grid = 2, block = 64 }, 2, y, y, 100)
      y:sum()
    end)
    assert.same({ 1, 800, 400 }, { c.by_op[""].kernels, c.by_op[""].read, c.by_op[""].written })
    if not cuda.is_simulated() then
      assert.is_nil(c.by_kernel)
      return
    end
    local k = c.by_kernel.axpy
    assert.same({ 1, 2, 128, 0 }, { k.launches, k.blocks, k.threads, k.barriers })
    assert.same({ 200, 100, 800, 400 }, { k.loads, k.stores, k.load_bytes, k.store_bytes })
    assert.same({ 0, 0, 0 }, { k.shared_loads, k.shared_stores, k.atomics })
    assert.is_nil(cnn.count_launches(function() end).by_kernel.axpy)
  end)
end)

-- ---------------------------------------------------------------------------------------------

if not cuda.is_simulated() then return end

-- Threads run in their order, and at once: else another fault may be the first to be seen, at the next wait.
local in_order = (os.getenv "SIM_ORDER" or "forward") == "forward" and (os.getenv "SIM_STREAMS" or "eager") == "eager"

-- A mistake, and words of the message. The kernel's first line is 2.
local mistakes = {
  { "a read past the end", "out of bounds: read of 4 bytes at kernel.cu:3; just past the end of argument 1, "
    .. "which has 256 bytes", [[
    int i = threadIdx.x;
    y[i] = x[i + 1];]] },
  { "a write far past the end", "out of bounds: write of 4 bytes at kernel.cu:2; 4000 bytes past the end of "
    .. "argument 2", [[
    y[64 + 1000] = 1;]] },
  { "a read before the start", "out of bounds: read of 4 bytes at kernel.cu:2; 4 bytes before the start of "
    .. "argument 1", [[
    y[threadIdx.x] = x[(int)threadIdx.x - 1];]] },
  { "an address of nothing", "illegal address: write of 4 bytes at kernel.cu:2", [[
    *(float *)threadIdx.x = 1;]] },
  { "an index past a shared array", "of shared memory: read of 4 bytes at kernel.cu:4", [[
    __shared__ float s[16];
    if (threadIdx.x < 16) s[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x == 0) y[0] = s[x[0] > 0 ? 16 : 0];]] },
  { "an index before a shared array", "of shared memory: write of 4 bytes at kernel.cu:3", [[
    __shared__ float s[16], t[16];
    (threadIdx.x ? s : t)[(int)x[0] - 2] = x[0];]] },
  { "an index past a shared array of a template", "of shared memory: read of 4 bytes at kernel.cu:4", [[
    __shared__ float s[16];
    if (threadIdx.x < 16) s[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x == 0) y[0] = s[x[0] > 0 ? 16 : 0];]], template = true },
  { "more dynamic shared memory than was asked for", "of shared memory: write of 4 bytes at kernel.cu:3", [[
    extern __shared__ float s[];
    s[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = s[threadIdx.x];]] },
  { "shared memory that nobody wrote", "read of 4 bytes of shared memory that nothing was written to, at "
    .. "kernel.cu:5", [[
    __shared__ float s[64];
    if (threadIdx.x > 0) s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];]] },
  { "a missing __syncthreads", "race: read of 4 bytes of shared memory at kernel.cu:4; thread 31 wrote at "
    .. "kernel.cu:3", [[
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = s[63 - threadIdx.x];]] },
  { "threads that write one place", "race: write of 4 bytes of global memory at kernel.cu:2; thread 0 wrote at "
    .. "kernel.cu:2", [[
    y[0] = x[threadIdx.x];]] },
  { "blocks that add without an atomic", "thread 0 of block (0,0,0) wrote at kernel.cu:2", [[
    if (threadIdx.x == 0) y[0] += 1;]] },
  { "a barrier in both branches", "divergent barrier", [[
    if (threadIdx.x < 32) __syncthreads();
    else __syncthreads();]] },
  { "lanes that are waited for and never come", "deadlock", [[
    if (threadIdx.x % 2) y[threadIdx.x] = __shfl_sync(0xffffffff, 1.0f, 0);
    else __syncthreads();]] },
  { "a misaligned vector", "misaligned", [[
    *(float4 *)(y + 1) = make_float4(1, 2, 3, 4);]] },
  { "a division by zero", "division by zero or overflow at kernel.cu:2", [[
    y[threadIdx.x] = 64 / (int)threadIdx.x;]] },
  { "an integer that overflows", "integer overflow in a product at kernel.cu:2", [[
    y[threadIdx.x] = (int)blockDim.x * 100000000;]] },
  { "waiting for another block", "endless waiting: read of 4 bytes at kernel.cu:3", [[
    if (blockIdx.x == 1) y[0] = 1;
    else if (threadIdx.x == 0) while (*(volatile float *)y == 0) {}]] },
  { "an assertion", "assertion failed: threadIdx.x < 10 at kernel.cu:2", [[
    assert(threadIdx.x < 10);]] },
  { "an assertion of the C library's", "assertion failed: threadIdx.x < 10 at kernel.cu:3", [[
    assert(threadIdx.x < 10);]], before = "#include <cassert>\n", no_nvrtc = true },
  { "NULL", "illegal address: write of 4 bytes at kernel.cu:3; NULL", [[
    float *nothing = 0;
    *nothing = x[0];]] },
  { "recursion without end", "more than 512 KiB of local memory at kernel.cu:1", [[
    y[0] = down(x, 1 << 20);]], before = "__device__ float down(const float *x, int n) {"
    .. "float a[64]; for (int i = 0; i < 64; i++) a[i] = x[i] + n; "
    .. "return n > 0 ? a[n % 64] + down(a, n - 1) : a[0]; }" },
}

describe("the simulator", function()
  for _, mistake in ipairs(mistakes) do
    local what, words, body = mistake[1], mistake[2], mistake[3]
    it("tells " .. what, function()
      if mistake.no_nvrtc and os.getenv "SIM_REAL_NVRTC" then return end
      local k = cuda.kernel((mistake.before or "") .. (mistake.template and "template <int>" or "") ..
        " __global__ void wrong(const float *x, float *y) {\n" .. body .. "\n}",
        mistake.template and "wrong<1>" or "wrong")
      local x, y = gpu(64), cnn.zeros(64, { device = "cuda" })
      local message = helper.raises(in_order and words or "", function()
        k({ grid = 2, block = 64, shared = 16 }, x, y)
        cnn.synchronize "cuda"
      end)
      assert.truthy(message:find("^[^\n]*: wrong[<1>]*, block %(%d,0,0%), thread %(%d+,0,0%): "), message)
      if in_order then assert.truthy(message:find("\n  kernel.cu:%d+: %S"), message) end
      assert.equal(64, x:sum():item()) -- the device goes on
    end)
  end

  it("ends a kernel at a fault: nothing beside its arguments is written", function()
    local k = cuda.kernel("__global__ void wrong(float *y) { y[threadIdx.x] = 5; }", "wrong")
    local all = cnn.zeros(8, { device = "cuda" })
    helper.raises("past the end of argument 1, which has 16 bytes", function()
      k({ grid = 1, block = 8 }, all:narrow(1, 1, 4))
      cnn.synchronize "cuda"
    end)
    helper.elements(all:narrow(1, 5, 4), { 0, 0, 0, 0 })
    if in_order then helper.elements(all:narrow(1, 1, 4), { 5, 5, 5, 5 }) end
  end)

  it("finds no fault in kernels that are right", function()
    local k = cuda.kernel([[
      __global__ void sum(const float *x, float *y, int n) {
        __shared__ float parts[2];
        float s = 0;
        for (int i = threadIdx.x; i < n; i += blockDim.x) s += x[i];
        for (int d = 16; d > 0; d /= 2) s += __shfl_down_sync(0xffffffff, s, d);
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = s;
        __syncthreads();
        if (threadIdx.x == 0) atomicAdd(y, parts[0] + parts[1]);
      }]], "sum")
    local y = cnn.zeros({ 1 }, { device = "cuda" })
    local c = cnn.count_launches(k, { grid = 3, block = 64 }, gpu(1000), y, 1000)
    assert.equal(3000, y:item())
    assert.same({ 3000, 3, 3 }, { c.by_kernel.sum.loads, c.by_kernel.sum.atomics, c.by_kernel.sum.barriers })
  end)

  it("tells faults of queued kernels at the next wait", function()
    local text = helper.run([[
      local cnn = require "cnn"
      local k = cnn.cuda.kernel("__global__ void wrong(float *y) { y[threadIdx.x + 1] = 5; }", "wrong")
      local y = cnn.zeros(8, { device = "cuda" })
      print((pcall(k, { grid = 1, block = 8 }, y)))
      print(pcall(y.cpu, y))
      print(y:sum():item())
    ]], ("CNN_CUDA_PLUGIN=%s SIM_STREAMS=lazy SIM_ORDER=forward"):format(os.getenv "CNN_CUDA_PLUGIN" or ""))
    assert.truthy(text:find("^true\nfalse\t[^\n]*wrong, block %(0,0,0%), thread %(7,0,0%): out of bounds[^\n]*\n35\n$"),
      text)
  end)

  it("reports at the end the faults that nobody was told", function()
    local text = helper.run([[
      local cnn = require "cnn"
      local k = cnn.cuda.kernel("__global__ void wrong(float *y) { y[threadIdx.x + 1] = 5; }", "wrong")
      k({ grid = 1, block = 8 }, cnn.zeros(8, { device = "cuda" })) -- runs when the kernel is unloaded
      os.exit(5, true)
    ]], ("CNN_CUDA_PLUGIN=%s SIM_STREAMS=lazy SIM_EXIT=9 sh -c '\"$@\"; echo status $?' sh"):format(
      os.getenv "CNN_CUDA_PLUGIN" or ""))
    assert.truthy(text:find "sim: wrong, block .*status 9\n$", text)
  end)
end)
