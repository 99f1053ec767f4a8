-- A tensor is a handle on a buffer: shape, strides, dtype, device over bytes. A view shares the bytes, a
-- copy has its own.
--   luajit examples/fundamentals/handles.lua [--device cpu]
local cnn = require "cnn"
local device = arg[1] == "--device" and arg[2] or "cpu"

local before = cnn.memory_allocated(device)
local x = cnn.zeros(256, 256, { device = device })
print(("x: shape %s, strides %s, %s, %s, %d bytes"):format(tostring(x.shape), tostring(x:stride()), x.dtype,
  x.device, x.nbytes))
print("allocated by x: " .. cnn.memory_allocated(device) - before)

local view = x[{ { 1, 128 } }]
local copy = view:clone()
print("view has x's data pointer: " .. tostring(view:data_ptr() == x:data_ptr()))
print("copy has x's data pointer: " .. tostring(copy:data_ptr() == x:data_ptr()))
print("allocated with view and copy: " .. cnn.memory_allocated(device) - before)

view:fill_(7)
print(("after view:fill_(7): x[1][1] = %g, copy[1][1] = %g"):format(x:get(1, 1), copy:get(1, 1)))

local same = x
print("same == x: " .. tostring(same == x) .. ", view == x: " .. tostring(view == x))

x:free()
print("x freed, allocated: " .. cnn.memory_allocated(device) - before .. " (the view keeps the buffer)")
view:free()
print("view freed, allocated: " .. cnn.memory_allocated(device) - before .. " (the copy)")
copy:free()
print("all freed, allocated: " .. cnn.memory_allocated(device) - before)
