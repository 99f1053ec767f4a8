-- How a shape lies over flat memory: one stride per dim, in elements.
--   luajit examples/fundamentals/strides.lua [--device cpu]
local cnn = require "cnn"
local device = arg[1] == "--device" and arg[2] or "cpu"

local x = cnn.arange(1, 7, { device = device }):reshape(2, 3)
local t = x:t()
local c = t:contiguous()
for _, v in ipairs { x, t, c } do
  print(tostring(v:stride()) .. " " .. tostring(v:is_contiguous()))
end
print("transposed, same bytes: " .. tostring(t:shares_storage(x)))
print("made contiguous, same bytes: " .. tostring(c:shares_storage(x)))

-- Element (i, j) is at offset + (i - 1) * stride 1 + (j - 1) * stride 2.
local view = x[{ {}, { 2, 3 } }]
print(("x[{ {}, {2, 3} }]: shape %s, strides %s, offset %d"):format(
  tostring(view.shape), tostring(view:stride()), view:storage_offset()))
-- A dim of size 1 grows without a copy: stride 0.
local row = cnn.ones(1, 3, { device = device }):expand(4, 3)
print(("expanded: shape %s, strides %s, bytes of storage: 12"):format(tostring(row.shape), tostring(row:stride())))
