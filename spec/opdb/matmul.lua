-- SPDX-License-Identifier: MIT
-- Matrix products (csrc/ops/matmul.c).
local assert = require "luassert"
local cnn = require "cnn"
local db = require "spec.opdb"
local T, S, with, nd = db.T, db.S, db.with, db.nd
local unpack = table.unpack or unpack -- luacheck: ignore

local int64 = { dtype = "int64" }
-- where one tensor is int64 and another is not
local differ = "convert one, e.g. "
-- Sums of hundreds of products cancel, and their roundings don't.
local long, long_floats = { tol = 4 }, { tol = 4, only = "float" }

-- The matrices in an array's last two dims, transposed where t holds.
local function turned(x, t)
  return t and x:transpose(-1, -2) or x
end

-- x summed to a shape that broadcasts to its own.
local function sum_to(x, shape)
  local shift, dims = #x.shape - #shape, {}
  for d, size in ipairs(x.shape) do
    if d <= shift or shape[d - shift] == 1 and size ~= 1 then dims[#dims + 1] = d end
  end
  return (#dims > 0 and x:sum(dims) or x):reshape(shape)
end

local function linear(x, w, b)
  local y = nd.matmul(x, #w.shape == 2 and w:transpose(1, 2) or w)
  return b and y + b or y
end

-- beta * input + alpha * (x y); with beta 0 not even NaN counts.
local function add_product(input, x, y, beta, alpha)
  beta, alpha = beta or 1, alpha or 1
  local p = nd.matmul(x, y) * alpha
  return beta == 0 and p or input * beta + p
end

local function bilinear(x1, x2, w, b)
  local rank = #x1.shape
  local shape, in1, in2 = { unpack(x1.shape) }, w.shape[2], w.shape[3]
  shape[rank] = w.shape[1]
  return nd.build(shape, function(...)
    local at = { ... }
    local o, total = at[rank], b and b(at[rank]) or 0
    for i = 1, in1 do
      for j = 1, in2 do
        at[rank] = i
        local left = x1:at(at)
        at[rank] = j
        total = total + left * w(o, i, j) * x2:at(at)
      end
    end
    return total
  end)
end

local columns, rows = "x has 3 columns", "y has 4 rows"

-- Products of given ranks: x of nx dims, y of ny.
local function ranked(x, y, samples, nx, ny)
  return {
    dtypes = "real", refuses = "x is bool",
    samples = samples, ref = nd.matmul,
    errors = {
      { S(T { 2, 2, 2, 2 }, T(y)), ("x must have %d dim%s, not 4 (2, 2, 2, 2)"):format(nx, nx == 1 and "" or "s") },
      { S(T(x), T {}), ("y must have %d dim%s, not 0 (): use matmul for others"):format(ny, ny == 1 and "" or "s") },
      { S(T(x), T(y, int64)), differ },
    },
  }
end

return {
  matmul = {
    plugin = true, dtypes = "real", refuses = "x is bool: convert it first",
    samples = {
      S(T { 3, 4 }, T { 4, 5 }), S(T { 1, 7 }, T { 7, 1 }), S(T { 5 }, T { 5 }), S(T { 4 }, T { 4, 3 }),
      S(T { 3, 4 }, T { 4 }), S(T { 2, 3, 4 }, T { 2, 4, 5 }), S(T { 2, 3, 4 }, T { 4, 5 }),
      S(T { 3, 4 }, T { 2, 4, 5 }),
      S(T { 2, 1, 3, 4 }, T { 3, 4, 2 }), S(T { 1, 3, 4 }, T { 3, 4, 2 }), S(T { 2, 3, 2, 3 }, T { 2, 1, 3, 2 }),
      S(T { 4 }, T { 2, 3, 4, 2 }), S(T { 2, 3, 2, 4 }, T { 4 }), S(T { 1, 1 }, T { 1, 1 }), S(T { 2, 3, 4 }, T { 4 }),
      S(T { 0, 4 }, T { 4, 3 }), S(T { 3, 0 }, T { 0, 4 }), S(T { 3, 4 }, T { 4, 0 }), S(T { 0, 2, 3 }, T { 3, 4 }),
      S(T { 2, 0, 3 }, T { 2, 3, 2 }), S(T { 0 }, T { 0 }), S(T { 0 }, T { 0, 3 }), S(T { 2, 3, 0 }, T { 2, 0, 2 }),
      S(T { 2, 1, 2, 3 }, T { 1, 0, 3, 2 }),
      -- past the kernels' blocks, with what is left over
      S(T({ 17, 9 }, { ints = { -2, 2 } }), T({ 9, 33 }, { ints = { -2, 2 } })),
      with(S(T { 7, 70 }, T { 70, 19 }), long_floats), with(S(T { 70 }, T { 70, 35 }), long_floats),
      with(S(T { 35, 70 }, T { 70 }), long_floats), with(S(T { 1, 130 }, T { 130, 40 }), long_floats),
      with(S(T { 70 }, T { 70 }), long_floats),
    },
    ref = nd.matmul,
    errors = {
      { S(T { 2, 3 }, T { 4, 5 }), columns }, { S(T { 2, 3 }, T { 4, 5 }), rows },
      { S(T { 3 }, T { 4 }), columns }, { S(T { 2, 2, 3 }, T { 4 }), "(2, 2, 3) but y has 4 rows (4,)" },
      { S(T {}, T { 2 }), "x has 0 dims: matmul takes at least 1, use * or mul" }, { S(T { 2 }, T {}), "y has 0 dims" },
      { S(T { 2, 3, 4 }, T { 3, 4, 5 }),
        "the dims before the last two of x (2, 3, 4) and y (3, 4, 5) don't broadcast" },
      { S(T { 2, 3 }, T({ 3, 2 }, int64)), differ }, { S(T { 2, 3 }, 2), "expected a tensor" },
    },
    large = {
      with(S(T { 130, 150 }, T { 150, 140 }), long), S(T { 40, 30, 20 }, T { 40, 20, 30 }),
      with(S(T { 300, 400 }, T { 400 }), long), with(S(T { 205, 210 }, T { 210, 200 }), long),
    },
    check = function(_, run)
      run("lets integers wrap around", function()
        local function square(v, n, dtype)
          return tonumber(cnn.full({ 1, n }, v,
            { dtype = dtype }):matmul(cnn.full({ n, 1 }, v, { dtype = dtype })):item())
        end
        assert.equal(16, square(100, 1, "int8")) -- 10000 mod 256
        assert.equal(32, square(100, 2, "int8"))
        assert.equal(144, square(20, 1, "uint8")) -- 400 mod 256
        assert.equal(24464, square(300, 1, "int16")) -- 90000 mod 65536
        assert.equal(1410065408, square(100000, 1, "int32"))
      end)
      run("lets NaN and infinities through", function()
        local x = cnn.tensor { { 0, 0 / 0 }, { math.huge, 1 }, { 1, 1 } }
        local y = x:matmul(cnn.tensor { { 1, 0 }, { 0, 1 } }):totable()
        assert.is_true(y[1][1] ~= y[1][1] and y[1][2] ~= y[1][2])
        assert.is_true(y[2][1] == math.huge and y[2][2] ~= y[2][2])
        assert.same({ 1, 1 }, y[3])
      end)
    end,
  },
  matmul_to = {
    plugin = true, dtypes = "real",
    samples = {
      S(T { 3, 4 }, T { 4, 5 }, { 3, 5 }, false, false), S(T { 4, 3 }, T { 4, 5 }, { 3, 5 }, true, false),
      S(T { 3, 4 }, T { 5, 4 }, { 3, 5 }, false, true), S(T { 4, 3 }, T { 5, 4 }, { 3, 5 }, true, true),
      S(T { 2, 3, 4 }, T { 2, 4, 5 }, { 3, 5 }, false, false),
      S(T { 2, 4, 3 }, T { 2, 4, 5 }, { 1, 3, 5 }, true, false),
      S(T { 2, 3, 4 }, T { 5, 4 }, { 2, 3, 5 }, false, true),
      S(T { 2, 1, 3, 4 }, T { 3, 4, 2 }, { 2, 1, 3, 2 }, false, false),
      S(T { 2, 1, 3, 4 }, T { 3, 4, 2 }, { 3, 3, 2 }, false, false),
      S(T { 2, 3, 4, 2 }, T { 2, 3, 4, 2 }, { 2, 2 }, true, false),
      S(T { 2, 3, 2, 4 }, T { 1, 3, 5, 4 }, { 1, 3, 2, 5 }, false, true),
      S(T { 3, 0 }, T { 0, 4 }, { 3, 4 }, false, false),
      S(T { 0, 3, 4 }, T { 0, 4, 5 }, { 3, 5 }, false, false), S(T { 0, 4 }, T { 4, 3 }, { 0, 3 }, false, false),
      S(T { 4, 3 }, T { 2, 5, 4 }, { 1, 3, 5 }, true, true),
      with(S(T { 3, 40, 7 }, T { 3, 40, 9 }, { 7, 9 }, true, false), long_floats),
    },
    ref = function(x, y, shape, tx, ty) return sum_to(nd.matmul(turned(x, tx), turned(y, ty)), shape) end,
    large = { with(S(T { 40, 64, 30 }, T { 40, 64, 50 }, { 30, 50 }, true, false), { tol = 8 }),
      with(S(T { 210, 205 }, T { 200, 210 }, { 205, 200 }, true, true), long) },
  },
  mm = ranked({ 3, 4 }, { 4, 5 }, { S(T { 3, 4 }, T { 4, 5 }), S(T { 0, 4 }, T { 4, 5 }), S(T { 3, 0 }, T { 0, 2 }) },
    2, 2),
  mv = ranked({ 3, 4 }, { 4 }, { S(T { 3, 4 }, T { 4 }), S(T { 0, 4 }, T { 4 }), S(T { 3, 0 }, T { 0 }) }, 2, 1),
  dot = ranked({ 4 }, { 4 }, { S(T { 4 }, T { 4 }), S(T { 0 }, T { 0 }), S(T { 1 }, T { 1 }) }, 1, 1),
  bmm = (function()
    local entry = ranked({ 2, 3, 4 }, { 2, 4, 5 }, {
      S(T { 2, 3, 4 }, T { 2, 4, 5 }), S(T { 1, 2, 3 }, T { 1, 3, 2 }), S(T { 0, 2, 3 }, T { 0, 3, 2 }),
      S(T { 2, 3, 0 }, T { 2, 0, 4 }), S(T { 5, 1, 3 }, T { 5, 3, 1 }),
    }, 3, 3)
    entry.errors[#entry.errors + 1] = {
      S(T { 2, 3, 4 }, T { 1, 4, 5 }),
      "x (2, 3, 4) and y (1, 4, 5) must hold equally many matrices; use matmul to broadcast",
    }
    entry.errors[#entry.errors + 1] = { S(T { 2, 2, 3 }, T { 2, 4, 5 }), columns }
    return entry
  end)(),
  outer = {
    dtypes = "all",
    samples = { S(T { 3 }, T { 4 }), S(T { 1 }, T { 1 }), S(T { 0 }, T { 3 }), S(T { 3 }, T { 0 }),
      S(T { 33 }, T { 5 }) },
    ref = function(x, y) return nd.build({ x.shape[1], y.shape[1] }, function(i, j) return x(i) * y(j) end) end,
    errors = {
      { S(T { 2, 2 }, T { 2 }), "x must have 1 dim, not 2 (2, 2)" },
      { S(T { 2 }, T {}), "y must have 1 dim, not 0 ()" },
    },
    large = S(T { 300 }, T { 257 }),
  },
  addmm = {
    plugin = true, dtypes = "real", refuses = "input is bool: convert it first",
    samples = {
      S(T { 3, 5 }, T { 3, 4 }, T { 4, 5 }), S(T { 5 }, T { 3, 4 }, T { 4, 5 }), S(T { 3, 1 }, T { 3, 4 }, T { 4, 5 }),
      S(T {}, T { 3, 4 }, T { 4, 5 }), S(T { 3, 5 }, T { 3, 4 }, T { 4, 5 }, 2, -3),
      S(T { 5 }, T { 3, 4 }, T { 4, 5 }, 0, 2),
      S(T { 3, 5 }, T { 3, 4 }, T { 4, 5 }, 1, 0), S(T { 3, 5 }, T { 3, 0 }, T { 0, 5 }, 2),
      S(T { 5 }, T { 0, 4 }, T { 4, 5 }),
      S(T { 1, 1 }, T { 1, 1 }, T { 1, 1 }), S(T { 3, 5 }, T { 3, 4 }, T { 4, 5 }, { beta = 2, alpha = 3 }),
      with(S(T { 3, 5 }, T { 3, 4 }, T { 4, 5 }, 0.5, -1.25), { only = "float" }),
      with(S(T { 19 }, T { 9, 70 }, T { 70, 19 }, 0.5, 2), long_floats),
    },
    ref = function(input, x, y, beta, alpha)
      if type(beta) == "table" then beta, alpha = beta.beta, beta.alpha end
      return add_product(input, x, y, beta, alpha)
    end,
    errors = {
      { S(T { 2, 2 }, T { 2, 3 }, T { 4, 2 }),
        "mat1 has 3 columns (2, 3) but mat2 has 4 rows (4, 2): they must be equal" },
      { S(T { 2, 2 }, T { 2 }, T { 2, 2 }), "mat1 (2,) and mat2 (2, 2) must be matrices" },
      { S(T { 2, 2 }, T { 2, 2 }, T { 1, 2, 2 }), "mat2 (1, 2, 2) must be matrices" },
      { S(T { 3 }, T { 2, 2 }, T { 2, 2 }), "input (3,) does not broadcast to the product's shape, (2, 2)" },
      { S(T { 1, 2, 2 }, T { 2, 2 }, T { 2, 2 }), "input (1, 2, 2) does not broadcast" },
      { S(T({ 2 }, int64), T({ 2, 2 }, int64), T({ 2, 2 }, int64), 0.5), "input is int64 but beta is 0.5" },
      { S(T({ 2 }, int64), T({ 2, 2 }, int64), T({ 2, 2 }, int64), 1, 0.5), "input is int64 but alpha is 0.5" },
      { S(T({ 2 }, int64), T { 2, 2 }, T { 2, 2 }), differ },
    },
    large = with(S(T { 200 }, T { 205, 210 }, T { 210, 200 }, 0.5, 2), long),
    check = function(_, run)
      run("looks at no value of the input with beta 0", function()
        local bad = cnn.full({ 2 }, 0 / 0)
        local y = cnn.addmm(bad, cnn.ones(2, 3), cnn.ones(3, 2), 0)
        assert.same({ { 3, 3 }, { 3, 3 } }, y:totable())
        assert.same({ { 0, 0 } }, cnn.addmm(bad, cnn.ones(1, 0), cnn.ones(0, 2), 0):totable())
      end)
    end,
  },
  baddbmm = {
    plugin = true, dtypes = "real", refuses = "input is bool: convert it first",
    samples = {
      S(T { 2, 3, 5 }, T { 2, 3, 4 }, T { 2, 4, 5 }), S(T { 5 }, T { 2, 3, 4 }, T { 2, 4, 5 }),
      S(T { 2, 1, 5 }, T { 2, 3, 4 }, T { 2, 4, 5 }, 2, -3), S(T {}, T { 2, 3, 4 }, T { 2, 4, 5 }),
      S(T { 3, 1 }, T { 2, 3, 4 }, T { 2, 4, 5 }, 0), S(T { 3, 5 }, T { 0, 3, 4 }, T { 0, 4, 5 }),
      S(T { 2, 3, 5 }, T { 2, 3, 0 }, T { 2, 0, 5 }, 3),
      with(S(T { 5 }, T { 2, 3, 4 }, T { 2, 4, 5 }, 0.5, 1.5), { only = "float" }),
    },
    ref = add_product,
    errors = {
      { S(T { 2 }, T { 1, 2, 3 }, T { 1, 4, 2 }), "batch1 has 3 columns (1, 2, 3) but batch2 has 4 rows (1, 4, 2)" },
      { S(T { 2 }, T { 2, 2, 3 }, T { 1, 3, 2 }),
        "batch1 (2, 2, 3) and batch2 (1, 3, 2) must be equally many matrices" },
      { S(T { 2 }, T { 2, 2 }, T { 2, 2 }), "must be equally many matrices (3 dims)" },
      { S(T { 3, 2, 2 }, T { 1, 2, 2 }, T { 1, 2, 2 }),
        "input (3, 2, 2) does not broadcast to the product's shape, (1, 2, 2)" },
      { S(T({ 2 }, int64), T({ 1, 2, 2 }, int64), T({ 1, 2, 2 }, int64), 1, 0.5),
        "alpha is 0.5: convert the tensors first" },
      { S(T { 2 }, T { 1, 2, 2 }, T({ 1, 2, 2 }, int64)), differ },
    },
    large = S(T { 40, 1, 30 }, T { 40, 35, 20 }, T { 40, 20, 30 }, 0.5, 2),
  },
  linear = {
    plugin = true, dtypes = "real", refuses = "is bool: convert it first",
    samples = {
      S(T { 3, 4 }, T { 5, 4 }, T { 5 }), S(T { 3, 4 }, T { 5, 4 }), S(T { 4 }, T { 5, 4 }, T { 5 }),
      S(T { 4 }, T { 5, 4 }),
      S(T { 2, 3, 4 }, T { 5, 4 }, T { 5 }), S(T { 2, 1, 3, 4 }, T { 2, 4 }), S(T { 0, 4 }, T { 5, 4 }, T { 5 }),
      S(T { 3, 0 }, T { 5, 0 }, T { 5 }), S(T { 3, 4 }, T { 0, 4 }, T { 0 }), S(T { 3, 4 }, T { 1, 4 }, T { 1 }),
      S(T { 3, 4 }, T { 4 }), S(T { 3, 4 }, T { 4 }, T {}), S(T { 4 }, T { 4 }), S(T { 2, 3, 4 }, T { 4 }, T {}),
      S(T { 2, 0, 4 }, T { 3, 4 }, T { 3 }),
      with(S(T { 9, 70 }, T { 19, 70 }, T { 19 }), long_floats),
      with(S(T { 130 }, T { 40, 130 }, T { 40 }), long_floats),
    },
    ref = linear,
    errors = {
      { S(T { 3, 4 }, T { 2, 5, 4 }), "weight must be (out, in), not (2, 5, 4)" },
      { S(T { 3, 4 }, T {}), "weight must be (out, in)" },
      { S(T { 3, 4 }, T { 5, 3 }), "input (3, 4) must end with 3 features, which weight (5, 3) expects" },
      { S(T {}, T { 5, 3 }), "input () must end with 3 features" },
      { S(T { 3, 4 }, T { 5, 4 }, T { 4 }), "bias must be (5,) for weight (5, 4), not (4,)" },
      { S(T { 3, 4 }, T { 5, 4 }, T { 1, 5 }), "bias must be (5,)" },
      { S(T { 3, 4 }, T { 5, 4 }, T {}), "bias must be (5,)" },
      { S(T { 3, 4 }, T({ 5, 4 }, int64)), differ }, { S(T { 3, 4 }, T { 3 }), "x has 4 columns" },
    },
    large = { with(S(T { 205, 210 }, T { 200, 210 }, T { 200 }), long), S(T { 10, 20, 33 }, T { 65, 33 }, T { 65 }) },
  },
  linear_backward_weight = {
    plugin = true, dtypes = "float",
    samples = {
      S(T { 3, 5 }, T { 3, 4 }, { 5, 4 }, true), S(T { 3, 5 }, T { 3, 4 }, { 5, 4 }, false),
      S(T { 2, 3, 5 }, T { 2, 3, 4 }, { 5, 4 }, true), S(T { 2, 1, 3, 2 }, T { 2, 1, 3, 4 }, { 2, 4 }, true),
      S(T { 1, 1 }, T { 1, 1 }, { 1, 1 }, true), S(T { 0, 5 }, T { 0, 4 }, { 5, 4 }, true),
      S(T { 3, 0 }, T { 3, 4 }, { 0, 4 }, true), S(T { 3, 5 }, T { 3, 0 }, { 5, 0 }, true),
      with(S(T { 70, 9 }, T { 70, 19 }, { 9, 19 }, true), long),
    },
    ref = function(dy, x, shape, bias)
      local dw = sum_to(nd.matmul(turned(dy, true), x), shape)
      if bias then return dw, sum_to(dy, { shape[1] }) end
      return dw
    end,
    large = with(S(T { 210, 205 }, T { 210, 200 }, { 205, 200 }, true), { tol = 8 }),
  },
  linear_vector = {
    dtypes = "real", refuses = "is bool",
    samples = { S(T { 3, 4 }, T { 4 }), S(T { 3, 4 }, T { 4 }, T {}), S(T { 4 }, T { 4 }, T {}),
      S(T { 2, 0, 4 }, T { 4 }, T {}) },
    ref = linear,
    errors = { { S(T { 3, 4 }, T { 3 }), "x has 4 columns (3, 4) but y has 3 rows (3,)" } },
  },
  bilinear = {
    dtypes = "real", refuses = "is bool",
    samples = {
      S(T { 3, 4 }, T { 3, 2 }, T { 5, 4, 2 }, T { 5 }), S(T { 3, 4 }, T { 3, 2 }, T { 5, 4, 2 }),
      S(T { 4 }, T { 2 }, T { 3, 4, 2 }, T { 3 }), S(T { 2, 3, 4 }, T { 2, 3, 2 }, T { 1, 4, 2 }, T { 1 }),
      S(T { 0, 4 }, T { 0, 2 }, T { 3, 4, 2 }, T { 3 }), S(T { 2, 1 }, T { 2, 1 }, T { 2, 1, 1 }),
    },
    ref = bilinear,
    errors = {
      { S(T { 3, 4 }, T { 2, 2 }, T { 5, 4, 2 }), "input1 (3, 4) and input2 (2, 2) must be (..., in1) and (..., in2)" },
      { S(T { 3, 4 }, T { 3, 2 }, T { 5, 2, 4 }), "for a weight (out, in1, in2), which is (5, 2, 4)" },
      { S(T { 3, 4 }, T { 3, 2 }, T { 4, 2 }), "which is (4, 2)" }, { S(T {}, T {}, T { 1, 1, 1 }), "input1 ()" },
      { S(T { 3, 4 }, T { 2 }, T { 5, 4, 2 }), "input2 (2,)" },
      { S(T { 3, 4 }, T { 3, 2 }, T({ 5, 4, 2 }, int64)), differ },
      { S(T { 3, 4 }, T { 3, 2 }, T { 5, 4, 2 }, T { 4 }), "don't broadcast" },
    },
  },
}
