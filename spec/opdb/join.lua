-- SPDX-License-Identifier: MIT
-- Tensors joined into one: csrc/ops/join.c.
local db = require "spec.opdb"
local words = require "spec.op_samples"
local nd, T, S, L, with = db.nd, db.T, db.S, db.L, db.with

-- PyTorch's old rule: an empty vector fits with anything, and adds nothing.
local function cat(arrays, dim)
  local list = {}
  for _, x in ipairs(arrays) do
    if not (#x.shape == 1 and x.shape[1] == 0) then list[#list + 1] = x end
  end
  if #list == 0 then return arrays[1] end
  return nd.cat(list, list[1]:dim(dim or 1))
end

local function lifted(x, shape_of)
  return x:reshape(shape_of(x.shape))
end

local function each(arrays, fn)
  local list = {}
  for i, x in ipairs(arrays) do list[i] = fn(x) end
  return list
end

-- Of the dtype under test and int64.
local function with_int64(dtype)
  return words.is_float[dtype] and dtype or "int64"
end

local function mixed(...)
  return with(S(...), { out = with_int64 })
end

local function cat_entry()
  local many = {}
  for i = 1, 40 do many[i] = T { 1 + i % 2, 2 } end
  return {
    dtypes = "all", ref = cat,
    samples = {
      S(L { T { 2, 3 }, T { 1, 3 } }), S(L { T { 2, 3 }, T { 2, 1 }, T { 2, 2 } }, 2), S(L { T { 2, 3 } }, -1),
      S(L { T { 2, 3, 2 }, T { 2, 1, 2 } }, 2),
      S(L { T { 0, 3 }, T { 2, 3 } }), S(L { T { 0 }, T { 2, 3 } }, 2), S(L { T { 2, 3 }, T { 0 } }, 2),
      S(L { T { 0 }, T { 0 } }), S(L { T { 3 }, T { 4 } }),
      S(L { T { 2, 0 }, T { 2, 0 } }), S(L { T { 2, 2, 2, 3 }, T { 2, 2, 1, 3 } }, 3), S(L(many)),
      mixed(L { T { 2, 3 }, T({ 1, 3 }, { dtype = "int64" }) }),
        mixed(L { T({ 2, 1 }, { dtype = "int64" }), T { 2, 3 } }, 2),
    },
    errors = {
      { S(L {}), "the list of tensors is empty" },
      { S(L { T {}, T {} }), "tensor 1 has 0 dims: use stack to join single numbers" },
      { S(L { T { 0 }, T {} }), "tensor 2 has 0 dims: use stack to join single numbers" },
      { S(L { T { 2, 3 }, T { 2, 2 } }),
        "tensor 1 has shape (2, 3) and tensor 2 (2, 2): sizes must agree in every dim but dim 1" },
      { S(L { T { 2, 3 }, T { 3 } }, 2),
        "tensor 1 has shape (2, 3) and tensor 2 (3,): sizes must agree in every dim but dim 2" },
      { S(L { T { 2, 3 }, T {} }, 2), "tensor 1 has shape (2, 3) and tensor 2 (): sizes must agree" },
      { S(L { T { 2, 3 } }, 3), "dim 3 is out of range for a tensor with 2 dims (1..2)" },
      { S(L { T { 2, 3 } }, -3), "dim -3 is out of range for a tensor with 2 dims (-2..-1)" },
      { S(T { 2, 3 }, 1), "argument 1 (tensors): expected" },
      { S({ 1, 2 }), "tensors[1] must be a tensor, not" },
    },
    lengths = function(n)
      return S(L { T { 2, n }, T { 2, 3 } }, 2), S(L { T { n, 3 }, T { 2, 3 } }), S(L { T { 2, n }, T { 1, n } })
    end,
    long = { 300, 1100, 9001 },
    large = { S(L { T { 300, 100 }, T { 300, 157 } }, 2), S(L { T { 100, 257 }, T { 200, 257 } }),
      S(L { T { 70000 }, T { 5 } }) },
  }
end

return {
  cat = cat_entry(), concat = cat_entry(),
  stack = {
    dtypes = "all",
    ref = function(arrays, dim)
      local rank = #arrays[1].shape + 1
      dim = dim or 1
      dim = dim < 0 and dim + rank + 1 or dim
      return nd.cat(each(arrays, function(x)
        return lifted(x, function(shape)
          local larger = {}
          for d = 1, rank do larger[d] = d < dim and shape[d] or d == dim and 1 or shape[d - 1] end
          return larger
        end)
      end), dim)
    end,
    samples = {
      S(L { T { 2, 3 }, T { 2, 3 } }), S(L { T { 2, 3 }, T { 2, 3 }, T { 2, 3 } }, 2),
      S(L { T { 2, 3 }, T { 2, 3 } }, 3), S(L { T { 2, 3 } }, -1),
      S(L { T {}, T {}, T {} }), S(L { T { 0, 3 }, T { 0, 3 } }, 2), S(L { T { 2, 3, 2, 2 }, T { 2, 3, 2, 2 } }, -2),
      S(L { T { 3 }, T { 3 } }, -2),
      mixed(L { T { 2, 3 }, T({ 2, 3 }, { dtype = "int64" }) }),
    },
    errors = {
      { S(L {}), "the list of tensors is empty" },
      { S(L { T { 2 }, T { 3 } }), "tensor 1 has shape (2,) and tensor 2 (3,): stack needs equal shapes" },
      { S(L { T { 2 }, T { 2 } }, 3), "dim 3 is out of range for a tensor with 2 dims (1..2)" },
      { S(L { T { 2 }, T { 2 } }, -3), "dim -3 is out of range for a tensor with 2 dims (-2..-1)" },
      { S(L { T { 1, 1, 1, 1, 1, 1, 1, 1 } }), "a tensor has at most 8 dims" },
    },
    lengths = function(n) return S(L { T { n }, T { n } }), S(L { T { n }, T { n } }, 2),
      S(L { T { 2, n }, T { 2, n } }, 2) end,
    long = { 300, 1100, 9001 },
    large = { S(L { T { 300, 257 }, T { 300, 257 } }), S(L { T { 300, 257 }, T { 300, 257 } }, 3) },
  },
  hstack = {
    dtypes = "all",
    ref = function(arrays)
      local list = each(arrays, function(x) return #x.shape == 0 and x:reshape { 1 } or x end)
      return cat(list, #list[1].shape > 1 and 2 or 1)
    end,
    samples = {
      S(L { T { 2, 3 }, T { 2, 1 } }), S(L { T { 3 }, T { 2 } }), S(L { T {}, T {} }), S(L { T {}, T { 2 } }),
      S(L { T { 2, 3, 2 }, T { 2, 1, 2 } }),
      S(L { T { 0, 3 }, T { 0, 2 } }), mixed(L { T { 2, 3 }, T({ 2, 1 }, { dtype = "int64" }) }),
    },
    errors = {
      { S(L { T { 2, 3 }, T { 1, 3 } }), "sizes must agree in every dim but dim 2" },
      { S(L {}), "the list of tensors is empty" },
    },
  },
  vstack = {
    dtypes = "all",
    ref = function(arrays)
      return cat(each(arrays, function(x)
        return #x.shape == 0 and x:reshape { 1, 1 } or #x.shape == 1 and x:reshape { 1, x.shape[1] } or x
      end), 1)
    end,
    samples = {
      S(L { T { 2, 3 }, T { 1, 3 } }), S(L { T { 3 }, T { 3 } }), S(L { T { 3 }, T { 2, 3 } }), S(L { T {}, T {} }),
      S(L { T { 2, 3, 2 }, T { 1, 3, 2 } }),
      S(L { T { 0, 3 }, T { 2, 3 } }), mixed(L { T { 2, 3 }, T({ 3 }, { dtype = "int64" }) }),
    },
    errors = {
      { S(L { T { 2, 3 }, T { 2 } }), "sizes must agree in every dim but dim 1" },
      { S(L {}), "the list of tensors is empty" },
    },
  },
  meshgrid = {
    dtypes = "all", dense = false,
    ref = function(arrays, indexing)
      local shape = {}
      for i, x in ipairs(arrays) do shape[i] = #x.list end
      local swap = indexing == "xy" and #shape > 1
      if swap then shape[1], shape[2] = shape[2], shape[1] end
      local grids = {}
      for i, x in ipairs(arrays) do
        local d = swap and i <= 2 and 3 - i or i
        grids[i] = nd.build(shape, function(...) return x.list[(select(d, ...))] end)
      end
      return grids
    end,
    samples = {
      S(L { T { 2 }, T { 3 } }), S(L { T { 2 }, T { 3 } }, "xy"), S(L { T { 2 }, T { 3 }, T { 4 } }, "ij"),
      S(L { T { 2 }, T { 3 }, T { 4 } }, "xy"),
      S(L { T { 3 } }), S(L { T { 3 } }, "xy"), S(L { T {}, T { 2 } }), S(L { T { 0 }, T { 2 } }),
    },
    errors = {
      { S(L {}), "1 to 8 tensors are allowed, not 0" },
      { S(L { T { 2 }, T { 2, 2 } }), "tensor 2 has 2 dims, at most 1 is allowed" },
      { S(L { T { 2 } }, "yx"), "argument 2 (indexing): expected" },
      { S(L { T {}, T {}, T {}, T {}, T {}, T {}, T {}, T {}, T {} }), "1 to 8 tensors are allowed, not 9" },
    },
  },
}
