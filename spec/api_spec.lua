-- SPDX-License-Identifier: MIT
-- What require "cnn" gives: making tensors, moving and converting them, rows, shapes, settings, help.
local cnn = require "cnn"
local helper = require "spec.helper"

describe("cnn.tensor", function()
  it("reads numbers, lists and booleans", function()
    local x = cnn.tensor({ { 1, 2, 3 }, { 4, 5, 6 } })
    assert.is_true(x:has_shape(2, 3))
    assert.equal("float32", x.dtype)
    assert.same({ { 1, 2, 3 }, { 4, 5, 6 } }, x:totable())
    assert.equal(0, cnn.tensor(2.5).ndim)
    assert.equal(2.5, cnn.tensor(2.5):item())
    assert.equal("bool", cnn.tensor({ true, false }).dtype)
    assert.is_true(cnn.tensor({}):has_shape(0))
    assert.is_true(cnn.tensor({ {}, {} }):has_shape(2, 0))
  end)

  it("takes options by position, in a table, and beside the values", function()
    for _, x in ipairs {
      cnn.tensor({ 1, 2 }, "int64"), cnn.tensor({ 1, 2 }, { dtype = "int64" }), cnn.tensor { 1, 2, dtype = "int64" },
      cnn.tensor({ 1, 2 }, { dtype = cnn.int64 }),
    } do
      assert.equal("int64", x.dtype)
      assert.same({ 1, 2 }, x:totable())
    end
    local x = cnn.tensor({ 1 }, { requires_grad = true })
    assert.is_true(x.requires_grad)
    assert.equal("meta", cnn.tensor({ 1 }, nil, "meta").device)
    assert.is_true(cnn.tensor({ 1 }, "float64", "cpu", true).requires_grad)
    assert.equal("float32", cnn.tensor({ 1 }, {}).dtype)
  end)

  it("copies a tensor, without its history", function()
    local x = cnn.tensor({ 1, 2 }, { requires_grad = true })
    local y = cnn.tensor(x * 2)
    assert.is_false(y.requires_grad)
    local z = cnn.tensor(x, { dtype = "float64", requires_grad = true })
    assert.equal("float64", z.dtype)
    assert.is_true(z.is_leaf and z.requires_grad)
    local copy = cnn.tensor(x)
    copy:set(1, 9)
    assert.same({ 1, 2 }, x:totable())
  end)

  it("counts a number as float on every Lua, whatever its value", function()
    assert.equal("float32", cnn.tensor({ 1, 2, 3 }).dtype)
    cnn.set_default_dtype("float64")
    assert.equal("float64", cnn.tensor({ 1 }).dtype)
    assert.equal("float64", cnn.tensor(1.5).dtype)
    cnn.set_default_dtype(cnn.float32)
    assert.equal("float32", cnn.get_default_dtype())
  end)

  it("rejects what is no tensor", function()
    helper.raises("expected numbers, booleans or nested lists of them", cnn.tensor, "1")
    helper.raises("expected numbers, booleans or nested lists of them", cnn.tensor, { "1" })
    helper.raises("2 and 1 elements", cnn.tensor, { { 1, 2 }, { 3 } })
    helper.raises("mixed", cnn.tensor, { 1, true })
    helper.raises("unknown option \"dtyp\": did you mean \"dtype\"?", cnn.tensor, { 1 }, { dtyp = "int64" })
    helper.raises("unknown option \"dtyp\": did you mean \"dtype\"?", cnn.tensor, { 1, dtyp = "int64" })
    helper.raises("requires_grad: expected true or false, got the number 1", cnn.tensor, { 1 }, { requires_grad = 1 })
    helper.raises("only floats can", cnn.tensor, { 1 }, { dtype = "int64", requires_grad = true })
    helper.raises("unknown dtype \"float\"", cnn.tensor, { 1 }, "float")
    helper.raises("at most 3 optional arguments", cnn.tensor, { 1 }, "float32", "cpu", true, 5)
    helper.raises("given twice", cnn.tensor, { 1 }, "float32", { dtype = "float64" })
  end)

  it("gives up cleanly in the middle of a large list", function()
    local list = {}
    for i = 1, 1000 do list[i] = i end
    list[1000] = "x"
    helper.raises("found the string \"x\"", cnn.tensor, list)
  end)
end)

describe("conversions", function()
  local x = { 1.5, -2.5, 3 }

  it("go by every form of to", function()
    local a = cnn.tensor(x)
    local like = cnn.tensor({ 0 }, "float16")
    for _, y in ipairs {
      a:to("float16"), a:to { dtype = "float16" }, a:to("cpu", "float16"), a:to("float16", "cpu"), a:to(like),
      a:to("float16", { non_blocking = true }), a:to(like, true), a:to("float16", false, true), a:half(),
      a:type_as(like),
      a:to { device = "cpu", dtype = "float16", copy = true },
    } do
      assert.equal("float16", y.dtype)
      assert.same(x, y:totable())
    end
    local names = {
      float = "float32", double = "float64", half = "float16", bfloat16 = "bfloat16", long = "int64", int = "int32",
      short = "int16", char = "int8", byte = "uint8", bool = "bool",
    }
    for method, dtype in pairs(names) do
      local a01 = cnn.tensor { 1, 0 }
      assert.equal(dtype, a01[method](a01).dtype)
    end
  end)

  it("give the tensor itself when nothing changes, unless a copy is asked for", function()
    local a = cnn.tensor(x)
    assert.is_true(a:to("float32") == a)
    assert.is_true(a:to("cpu") == a)
    assert.is_true(a:cpu() == a)
    assert.is_true(a:to(a) == a)
    assert.is_true(a:to() == a)
    assert.is_true(a:to {} == a)
    assert.is_false(a:to { copy = true } == a)
    assert.is_false(a:to("float32", { copy = true }):shares_storage(a))
  end)

  it("know meta and the memory format", function()
    assert.equal("meta", cnn.tensor(x):to("meta").device)
    local image = cnn.zeros(1, 2, 3, 4)
    local y = image:to { memory_format = "channels_last" }
    assert.same({ 24, 1, 8, 2 }, { y:stride(1), y:stride(2), y:stride(3), y:stride(4) })
    assert.is_true(y:is_contiguous("channels_last"))
    helper.raises("memory_format is", function() image:to { memory_format = "nhwc" } end)
  end)

  it("are differentiable", function()
    local a = cnn.tensor(x, { requires_grad = true })
    a:double():half():float():sum():backward()
    helper.elements(a.grad, { 1, 1, 1 })
    assert.equal("float32", a.grad.dtype)
  end)

  it("name what is wrong", function()
    local a = cnn.tensor(x)
    helper.raises("to: \"flot16\" is neither a dtype nor a device: did you mean \"float16\"?", a.to, a, "flot16")
    helper.raises("unknown device", a.to, a, "cuda1")
    helper.raises("device \"cuda\" is not available", a.cuda, a)
    helper.raises("device \"cuda:1\" is not available", a.cuda, a, 1)
    helper.raises("to: argument 2: expected a dtype, a device, a tensor", a.to, a, 5)
    helper.raises("unknown option \"device_\"", a.to, a, { device_ = "cpu" })
    helper.raises("type_as: argument 2: expected a tensor, got the string", a.type_as, a, "float16")
  end)
end)

describe("shapes", function()
  it("print, join and compare", function()
    assert.equal("(2, 3)", tostring(cnn.zeros(2, 3).shape))
    assert.equal("(8,)", tostring(cnn.zeros(8).shape))
    assert.equal("()", tostring(cnn.tensor(1).shape))
    assert.equal("shape (2, 3)!", "shape " .. cnn.zeros(2, 3).shape .. "!")
    assert.equal("(1,)(2,)", cnn.zeros(1).shape .. cnn.zeros(2).shape)
    assert.is_true(cnn.zeros(2, 3).shape == cnn.ones(2, 3).shape)
    assert.is_true(cnn.zeros(2, 3):size() == cnn.ones(2, 3).shape)
    assert.is_false(cnn.zeros(2, 3).shape == cnn.ones(3, 2).shape)
    assert.is_false(cnn.zeros(2).shape == cnn.ones(2, 1).shape)
    assert.equal("(3, 1)", tostring(cnn.zeros(2, 3):stride()))
  end)

  it("are plain lists", function()
    local shape, sum = cnn.zeros(2, 3, 4).shape, 0
    for _, n in ipairs(shape) do sum = sum + n end
    assert.equal(9, sum)
    assert.equal(3, #shape)
    assert.is_true(cnn.ones(shape).shape == shape)
  end)

  it("are asked for by has_shape on every Lua", function()
    local x = cnn.zeros(2, 3)
    assert.is_true(x:has_shape(2, 3))
    assert.is_true(x:has_shape { 2, 3 })
    assert.is_true(x:has_shape(x.shape))
    assert.is_false(x:has_shape(3, 2))
    assert.is_false(x:has_shape(2))
    assert.is_true(cnn.tensor(1):has_shape())
    assert.equal(3, x:size(-1))
  end)
end)

describe("rows", function()
  it("come one by one, or all at once", function()
    local x, seen = cnn.tensor({ { 1, 2 }, { 3, 4 }, { 5, 6 } }), {}
    for i, row in x:iter() do seen[i] = row:totable() end
    assert.same({ { 1, 2 }, { 3, 4 }, { 5, 6 } }, seen)
    local a, b, c, d = x:unpack()
    assert.same({ 3, 4 }, b:totable())
    assert.same({ 5, 6 }, c:totable())
    assert.is_nil(d)
    assert.is_true(a:shares_storage(x))
    assert.equal(3, #x)
    helper.raises("no length", function() cnn.tensor(1):iter() end)
    helper.raises("201 rows are too many", function() cnn.zeros(201):unpack() end)
  end)

  it("are differentiable", function()
    local x = cnn.tensor({ 1, 2, 3 }, { requires_grad = true })
    local total = 0
    for i, v in x:iter() do total = total + v * i end
    total:backward()
    helper.elements(x.grad, { 1, 2, 3 })
  end)
end)

describe("hooks", function()
  it("see and replace a gradient, until they are removed", function()
    local x, seen = cnn.tensor({ 1, 2 }, { requires_grad = true }), {}
    local hook = x:register_hook(function(g) seen[#seen + 1] = g:totable() return g * 10 end)
    local y = x * 3
    local inner = y:register_hook(function(g) seen[#seen + 1] = "inner" return nil, g end)
    y:sum():backward()
    assert.same({ "inner", { 3, 3 } }, seen)
    helper.elements(x.grad, { 30, 30 })
    hook:remove()
    hook:remove()
    inner:remove()
    x.grad = nil
    cnn.sum(x * 3):backward()
    helper.elements(x.grad, { 3, 3 })
    assert.equal(2, #seen)
  end)

  it("may remove themselves", function()
    local x, hook, calls = cnn.tensor({ 1 }, { requires_grad = true }), nil, 0
    hook = x:register_hook(function() calls = calls + 1 hook:remove() end)
    for _ = 1, 2 do (x * 1):sum():backward() end
    assert.equal(1, calls)
  end)

  it("take callables and nothing else", function()
    local x = cnn.tensor({ 1 }, { requires_grad = true })
    x:register_hook(setmetatable({}, { __call = function(_, g) return g * 2 end }))
    x:sum():backward()
    helper.elements(x.grad, { 2 })
    helper.raises("register_hook: argument 2 (fn): expected a function (or a module), got the number 3",
      x.register_hook, x, 3)
    helper.raises("does not require a gradient", function()
      cnn.tensor({ 1 }):register_hook(function() end)
    end)
    local y = cnn.tensor({ 1, 2 }, { requires_grad = true })
    y:register_hook(function(g) return g:sum() end)
    helper.raises("a hook returned shape () for a gradient of shape (2,)", function() (y * 2):sum():backward() end)
    assert.is_nil(y.grad)
    local z = cnn.tensor({ 1, 2 }, { requires_grad = true })
    z:register_hook(function() return 5 end)
    helper.raises("a hook must return tensors or nil, not the number 5", function() (z * 2):sum():backward() end)
  end)
end)

describe("the module", function()
  it("has constants, a version, and its parts", function()
    for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8",
      "bool" } do
      assert.equal(dtype, cnn[dtype])
    end
    assert.truthy(cnn.version:match("^%d+%.%d+%.%d+$"))
    assert.equal(cnn.relu, cnn.F.relu)
    assert.equal(cnn.F, cnn.nn.functional)
    assert.is_nil(cnn.no_such_thing)
    assert.is_true(cnn.is_tensor(cnn.tensor(1)))
    for _, v in ipairs { 1, "x", {}, print } do assert.is_false(cnn.is_tensor(v)) end
    assert.is_false(cnn.is_tensor(nil))
  end)

  it("offers no internal function", function()
    for _, name in ipairs { "attach", "tie", "scope_enter", "methods", "fail", "relu_backward" } do
      assert.is_nil(cnn[name])
    end
  end)

  it("gives functions and methods alike", function()
    local x = cnn.tensor({ -1, 2 })
    assert.same(x:relu():totable(), cnn.relu(x):totable())
    assert.same(x:sum { dim = 1, keepdim = true }:totable(), cnn.sum(x, 1, true):totable())
    assert.is_true(cnn.relu_(x) == x)
    assert.same({ 0, 2 }, x:totable())
  end)

  it("is loaded in little time", function()
    local started = os.clock()
    package.loaded["cnn"] = nil
    local again = require "cnn"
    assert.is_true(os.clock() - started < 0.05)
    package.loaded["cnn"] = cnn
    assert.equal(again.relu, cnn.relu)
  end)

  it("seeds the generator", function()
    assert.equal(0, select("#", cnn.manual_seed(7)))
    local a = cnn.rand(4)
    local state = cnn.get_rng_state()
    local b = cnn.rand(4)
    cnn.manual_seed(7)
    assert.same(a:totable(), cnn.rand(4):totable())
    cnn.set_rng_state(state)
    assert.same(b:totable(), cnn.rand(4):totable())
    helper.raises("manual_seed: expected an integer", cnn.manual_seed, 1.5)
    helper.raises("what get_rng_state gave", cnn.set_rng_state, {})
  end)

  it("has settings that stay when a new one is wrong", function()
    helper.raises("int64 is no float dtype", cnn.set_default_dtype, "int64")
    helper.raises("unknown dtype \"flot32\": did you mean \"float32\"?", cnn.set_default_dtype, "flot32")
    helper.raises("unknown device", cnn.set_default_device, "gpu")
    helper.raises("not available", cnn.set_default_device, "cuda")
    helper.raises("from 0 (the default) to 1024", cnn.set_num_threads, -1)
    assert.equal("float32", cnn.get_default_dtype())
    assert.equal("cpu", cnn.get_default_device())
    cnn.set_default_device("meta")
    assert.equal("meta", cnn.zeros(2).device)
    cnn.set_default_device("cpu")
  end)
end)

describe("cnn.cuda", function()
  it("says why it is not there", function()
    local available, why = cnn.cuda.is_available()
    if available then return end
    assert.is_false(available)
    assert.truthy(#why > 10, why)
    assert.equal(0, cnn.cuda.device_count())
    helper.raises("not available", cnn.cuda.max_memory_allocated)
    helper.raises("not available", cnn.cuda.memory_allocated, 0)
    helper.raises("cuda.get_device_name: device \"cuda\" is not available", cnn.cuda.get_device_name)
    helper.raises("expected a GPU's number or name", cnn.cuda.memory_allocated, "cpu")
  end)
end)

describe("memory", function()
  it("is counted", function()
    local before = cnn.memory_allocated()
    local x = cnn.zeros(1000)
    assert.is_true(cnn.memory_allocated() - before >= 4000)
    assert.is_true(cnn.max_memory_allocated() >= cnn.memory_allocated())
    assert.is_true(cnn.memory_reserved() >= cnn.memory_allocated())
    x:free()
    assert.equal(before, cnn.memory_allocated())
    cnn.reset_peak_memory_stats()
    assert.equal(cnn.memory_allocated(), cnn.max_memory_allocated())
    assert.equal(cnn.memory_allocated(), cnn.memory_stats().allocated_bytes.current)
    assert.is_true(cnn.empty_cache() >= 0)
    assert.equal(0, cnn.memory_allocated("meta"))
  end)

  it("has a text to read", function()
    local x = cnn.zeros(1000)
    local text = cnn.memory_summary()
    for _, word in ipairs { "cpu", "limit", "allocated", "reserved", "peak" } do
      assert.truthy(text:find(word, 1, true))
    end
    x:free()
  end)

  it("can be capped", function()
    local usual = cnn.memory_stats().limit
    local free, total = cnn.mem_get_info()
    assert.is_true(free > 0 and total >= free)
    cnn.set_memory_fraction(0.5)
    assert.is_true(math.abs(cnn.memory_stats().limit / total - 0.5) < 0.01)
    cnn.set_memory_limit(32 * 2 ^ 20)
    helper.raises("out of memory", cnn.zeros, 64 * 2 ^ 20)
    assert.is_true(cnn.zeros(10):has_shape(10))
    cnn.set_memory_limit()
    assert.is_true(cnn.memory_stats().limit > usual / 2)
    helper.raises("from 0 to 1", cnn.set_memory_fraction, 2)
    helper.raises("expected a number of bytes", cnn.set_memory_limit, "1")
    assert.equal(0, select("#", cnn.synchronize()))
    helper.raises("unknown device", cnn.synchronize, "gpu")
  end)
end)

describe("help", function()
  local help = require "cnn.help"

  it("shows an op's arguments, defaults and forms", function()
    local text = help.text("softplus")
    for _, part in ipairs { "cnn.softplus(x, {beta = 1, threshold = 20})", "x:softplus(", "x:softplus_(", "in place",
      "threshold", "a number (default 20)" } do
      assert.truthy(text:find(part, 1, true))
    end
    assert.equal(text, help.text(cnn.softplus))
    assert.equal(text, help.text("cnn.softplus"))
    assert.equal(text, help.text("softplus_"))
    assert.truthy(help.text("max"):find("gives values, indices", 1, true))
    assert.truthy(help.text("nn.Linear"):find("nn.Linear(in_features, out_features, {bias = true", 1, true))
    assert.truthy(help.text("scope"):find("frees every tensor", 1, true))
  end)

  it("has an overview of everything", function()
    local text = help.text()
    for _, op in ipairs(cnn.ops()) do
      assert.truthy(text:find(op.name, 1, true))
      assert.truthy(#help.text(op.name) > 20)
    end
  end)

  it("names functions that exist", function()
    for name in help.text():gmatch("\n  ([%a_]+) +%l") do assert.is_not_nil(cnn[name]) end
  end)

  it("suggests a name", function()
    helper.raises("nothing is called \"reluu\": did you mean \"relu\"?", cnn.help, "reluu")
    helper.raises("there are", cnn.help, "sigm")
    helper.raises("expected a name", cnn.help, {})
  end)

  it("lists the ops", function()
    local names = {}
    for _, op in ipairs(cnn.ops()) do
      assert.is_false(op.internal)
      assert.is_nil(names[op.name])
      names[op.name] = op
    end
    assert.is_true(names.relu.in_place)
    assert.is_true(names.view.view)
    assert.is_true(#cnn.ops { internal = true } > #cnn.ops())
    helper.raises("unknown option \"intern\"", cnn.ops, { intern = true })
  end)
end)
