-- SPDX-License-Identifier: MIT
-- How tensors print: the texts in spec/format_cases.lua are PyTorch's own.
local cnn = require "cnn"
local helper = require "spec.helper"

describe("tostring", function()
  after_each(function() cnn.set_printoptions { profile = "default" } end)

  local function build(case)
    local shape, dtype, elements, extra = case[1], case[2], case[3], case[6]
    local x
    if #shape == 0 then
      x = cnn.tensor(elements[1], dtype)
    elseif #elements == 0 then
      x = cnn.zeros(shape, { dtype = dtype })
    else
      x = cnn.tensor(elements, dtype):reshape(shape)
    end
    if extra then x = x:detach():requires_grad_() end
    return extra == "add" and x + 1 or x
  end

  it("gives PyTorch's text", function()
    for i, case in ipairs(dofile("spec/format_cases.lua")) do
      cnn.set_printoptions { profile = "default" }
      cnn.set_printoptions(case[5])
      local got = tostring(build(case))
      if got ~= case[4] then
        error(("case %d, %s: got\n%s\nexpected\n%s"):format(i, case[2], got, case[4]))
      end
    end
  end)

  it("is the same for every layout", function()
    local x = cnn.arange(1, 25):reshape(2, 3, 4)
    local text = tostring(x)
    assert.equal(text, tostring(x:permute(3, 1, 2):contiguous():permute(2, 3, 1)))
    assert.equal(text, tostring(cnn.stack({ x, x }, -1):select(-1, 2)))
    local large = cnn.arange(1, 4001):reshape(40, 100)
    assert.equal(tostring(large), tostring(large:t():contiguous():t()))
    assert.equal("tensor([7., 7., 7.])", tostring(cnn.tensor(7):expand(3)))
  end)

  it("shows large and small integers exactly", function()
    local x = cnn.tensor({ 2 ^ 53, -2 ^ 53 }, "int64")
    assert.equal("tensor([ 9007199254740993, -9007199254740993])", tostring(x + cnn.tensor({ 1, -1 }, "int64")))
    assert.equal("tensor([  0, 255], dtype=uint8)", tostring(cnn.tensor({ 0, 255 }, "uint8")))
  end)

  it("shows what is not the default", function()
    assert.equal("tensor(..., device='meta', size=(2, 3))", tostring(cnn.zeros(2, 3, { device = "meta" })))
    assert.equal("tensor(..., device='meta', size=(2,), dtype=int64)",
      tostring(cnn.zeros(2, { device = "meta", dtype = "int64" })))
    assert.equal("tensor(..., device='meta', size=(), requires_grad=True)",
      tostring(cnn.tensor(1, { device = "meta", requires_grad = true })))
    cnn.set_default_dtype("float64")
    assert.equal("tensor([1.])", tostring(cnn.tensor({ 1 }, "float64")))
    assert.equal("tensor([1.], dtype=float32)", tostring(cnn.tensor({ 1 }, "float32")))
    cnn.set_default_dtype("float32")
    cnn.set_default_device("meta")
    assert.equal("tensor([1.], device='cpu')", tostring(cnn.tensor({ 1 }, { device = "cpu" })))
    cnn.set_default_device("cpu")
    local x = cnn.tensor({ 1, 2 }, { requires_grad = true })
    assert.equal("tensor([1., 2.], requires_grad=True)", tostring(x))
    assert.equal("tensor([2., 4.], grad_fn=<MulBackward0>)", tostring(x * 2))
    assert.equal("tensor([1., 2.])", tostring(x:detach()))
  end)

  it("prints a parameter as one", function()
    local p = cnn.nn.Parameter(cnn.tensor({ 1.5 }))
    assert.equal("Parameter containing:\ntensor([1.5000], requires_grad=True)", tostring(p))
  end)

  it("prints a freed tensor as such", function()
    local x = cnn.tensor({ 1 })
    x:free()
    assert.equal("tensor(freed)", tostring(x))
  end)

  it("keeps nothing alive and records nothing", function()
    local x = cnn.zeros(50, 50)
    local before = cnn.memory_allocated()
    local text = tostring(x)
    assert.equal(before, cnn.memory_allocated())
    x:free()
    assert.is_true(cnn.memory_allocated() <= before - 10000)
    assert.truthy(text:find("...", 1, true))
    local y = cnn.ones(3, { requires_grad = true })
    local z = y * 2
    tostring(z)
    z:sum():backward()
    helper.elements(y.grad, { 2, 2, 2 })
  end)

  it("prints half types and works in inference mode", function()
    assert.equal("tensor([1.5000, 0.1000], dtype=float16)", tostring(cnn.tensor({ 1.5, 0.1 }, "float16")))
    assert.equal("tensor([1., 2.])", cnn.inference_mode(function() return tostring(cnn.tensor({ 1, 2 })) end))
  end)
end)

describe("set_printoptions", function()
  after_each(function() cnn.set_printoptions { profile = "default" } end)

  it("sets what is given", function()
    cnn.set_printoptions { precision = 2 }
    assert.equal("tensor([1.50])", tostring(cnn.tensor({ 1.5 })))
    cnn.set_printoptions { sci_mode = true }
    assert.equal("tensor([1.50e+00])", tostring(cnn.tensor({ 1.5 })))
    assert.equal(2, cnn.get_printoptions().precision)
    cnn.set_printoptions {}
    assert.equal("tensor([1.50])", tostring(cnn.tensor({ 1.5 })))
    cnn.set_printoptions { profile = "full" }
    assert.is_nil(tostring(cnn.zeros(2000)):find("...", 1, true))
  end)

  it("names what is wrong", function()
    helper.raises("unknown option \"precison\": did you mean \"precision\"?", cnn.set_printoptions, { precison = 2 })
    helper.raises("precision: expected a number, got the string \"2\"", cnn.set_printoptions, { precision = "2" })
    helper.raises("edgeitems must be at least 0", cnn.set_printoptions, { edgeitems = -1 })
    helper.raises("profile is \"default\", \"short\" or \"full\"", cnn.set_printoptions, { profile = "long" })
  end)
end)
