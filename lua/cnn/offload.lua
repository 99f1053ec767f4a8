-- SPDX-License-Identifier: MIT
-- cnn.save_on_cpu: what the graph saves for backward lies elsewhere until it is needed.
local core = require "cnn.core"
local options = require "cnn.options"

local offload = {}

-- cnn.save_on_cpu(fn, {file =}, ...): fn(...), whose results are given back. Tensors that the graph saves
-- meanwhile are moved to the CPU; those of the CPU into a temporary file, which backward reads. `file` names
-- a folder for it, or the file itself, which must not be there yet; else it is made in $TMPDIR or /tmp. It
-- has no name while it is used, and is gone with the graph. Gradients are the same to the bit. Leaves
-- (parameters, data) stay where they are, as does what is smaller than a page of 4 KiB.
function offload.save_on_cpu(fn, opts, ...)
  options.expect_callable("save_on_cpu", "argument 1 (fn)", fn)
  if opts ~= nil and not (options.is_options(opts) or options.is_empty(opts)) then
    core.fail("save_on_cpu: argument 2: expected a table of options, {file = path}, or nil, got "
      .. core.describe(opts))
  end
  opts = opts or {}
  options.check("save_on_cpu", opts, { "file" })
  options.expect("save_on_cpu", "file", opts.file, "string")
  return core._save_on_cpu(opts.file, fn, ...)
end

return offload
