-- SPDX-License-Identifier: MIT
-- What `require "cnn"` gives.
local core = require "cnn.core"
local cnn = {}
for name, value in pairs(core) do cnn[name] = value end
cnn.core = core
function cnn.tensor(values, options)
  options = options or {}
  local t = core._tensor(values, options.dtype, options.device)
  if options.requires_grad then t.requires_grad = true end
  return t
end
return cnn
