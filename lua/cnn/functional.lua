-- SPDX-License-Identifier: MIT
-- cnn.F, which is cnn.nn.functional: every op of the registry as a function, and what has no place
-- among the tensors' methods.
local core = require "cnn.core"

local functional = {}
for name, op in pairs(core.functions) do functional[name] = op end

-- Two ops of PyTorch's have one name: x:unfold gives windows of a tensor, F.unfold columns of images.
functional.unfold, functional.fold = core.functions.im2col, core.functions.col2im

return functional
