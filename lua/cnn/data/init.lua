-- SPDX-License-Identifier: MIT
-- Data sets and batches: cnn.data.
local data = {}
for _, part in ipairs { "dataset", "loader", "files" } do
  for name, value in pairs(require("cnn.data." .. part)) do data[name] = value end
end
return data
