-- SPDX-License-Identifier: MIT
-- cnn.F, which is cnn.nn.functional: every op of the registry as a function, and what has no place
-- among the tensors' methods.
local core = require "cnn.core"

local functional = {}
for name, op in pairs(core.functions) do functional[name] = op end

return functional
