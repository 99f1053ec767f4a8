-- SPDX-License-Identifier: MIT
-- Mathematical functions in plain Lua that Lua has not, to 1e-13: for the references of spec/opdb.
-- Formulas: Abramowitz and Stegun, Handbook of Mathematical Functions, chapters 6 and 7.
local functions = {}
local exp, log, sqrt, abs, floor, pi = math.exp, math.log, math.sqrt, math.abs, math.floor, math.pi
local HUGE, NAN = math.huge, 0 / 0

function functions.sinh(x)
  if abs(x) < 0.5 then -- exp(x) - exp(-x) cancels
    local term, total = x, x
    for n = 1, 10 do
      term = term * x * x / (2 * n * (2 * n + 1))
      total = total + term
    end
    return total
  end
  return (exp(x) - exp(-x)) / 2
end

function functions.cosh(x) return (exp(x) + exp(-x)) / 2 end

function functions.tanh(x)
  if abs(x) > 20 then return x > 0 and 1 or -1 end
  return functions.sinh(x) / functions.cosh(x)
end

function functions.expm1(x)
  if abs(x) < 0.5 then return 2 * exp(x / 2) * functions.sinh(x / 2) end
  return exp(x) - 1
end

-- Kahan's correction of log for what 1 + x loses.
function functions.log1p(x)
  local u = 1 + x
  if u == 1 then return x end
  if abs(x) == HUGE or u <= 0 then return log(u) end
  return log(u) * x / (u - 1)
end

function functions.asinh(x)
  local a = abs(x)
  if a == HUGE then return x end
  local y = functions.log1p(a + a * a / (1 + sqrt(a * a + 1)))
  return x < 0 and -y or y
end

function functions.acosh(x) return log(x + sqrt(x * x - 1)) end

function functions.atanh(x)
  if abs(x) == 1 then return x * HUGE end
  return functions.log1p(2 * x / (1 - x)) / 2
end

-- 7.1.6: all terms have one sign.
function functions.erf(x)
  if x ~= x then return x end
  if abs(x) > 6.5 then return x > 0 and 1 or -1 end
  local term, total, n = x, x, 0
  repeat
    n = n + 1
    term = term * 2 * x * x / (2 * n + 1)
    total = total + term
  until abs(term) <= 1e-17 * abs(total)
  return 2 / sqrt(pi) * exp(-x * x) * total
end

-- 7.1.14, a continued fraction, where 1 - erf(x) cancels.
function functions.erfc(x)
  if x ~= x or x < 1 then return 1 - functions.erf(x) end
  if x > 27 then return 0 end
  local t = 0
  for k = 200, 1, -1 do t = k / 2 / (x + t) end
  return exp(-x * x) / sqrt(pi) / (x + t)
end

function functions.erfinv(y)
  if abs(y) == 1 then return y * HUGE end
  if not (abs(y) < 1) then return NAN end
  local lo, hi = -6.5, 6.5
  for _ = 1, 30 do
    local middle = (lo + hi) / 2
    if functions.erf(middle) < y then lo = middle else hi = middle end
  end
  local x = (lo + hi) / 2
  for _ = 1, 3 do x = x - (functions.erf(x) - y) * sqrt(pi) / 2 * exp(x * x) end
  return x
end

-- Stirling's series (6.1.41) from 12 on; below by the recurrence; reflected (6.1.17) for x < 0.
function functions.lgamma(x)
  if x ~= x then return x end
  if abs(x) == HUGE or x <= 0 and x == floor(x) then return HUGE end
  if x < 0 then return log(pi / abs(math.sin(pi * x))) - functions.lgamma(1 - x) end
  local product = 1
  while x < 12 do
    product = product * x
    x = x + 1
  end
  local r = 1 / x
  local q = r * r
  local series = r * (1 / 12 - q * (1 / 360 - q * (1 / 1260 - q * (1 / 1680 - q * (1 / 1188 - q * 691 / 360360)))))
  return (x - 0.5) * log(x) - x + 0.5 * log(2 * pi) + series - log(product)
end

-- 6.3.18 with 6.3.5 and 6.3.7.
function functions.digamma(x)
  if x ~= x or x == HUGE then return x end
  if x == 0 then return 1 / x == HUGE and -HUGE or HUGE end
  if x == -HUGE or x < 0 and x == floor(x) then return NAN end
  if x < 0 then return functions.digamma(1 - x) - pi / math.tan(pi * x) end
  local total = 0
  while x < 12 do
    total = total - 1 / x
    x = x + 1
  end
  local q = 1 / (x * x)
  return total + log(x) - 0.5 / x
    - q * (1 / 12 - q * (1 / 120 - q * (1 / 252 - q * (1 / 240 - q * (1 / 132 - q * 691 / 32760)))))
end

-- 6.4.12 with 6.4.6 and 6.4.7.
function functions.trigamma(x)
  if x < 0 then
    local s = math.sin(pi * x)
    return pi * pi / (s * s) - functions.trigamma(1 - x)
  end
  local total = 0
  while x < 12 do
    total = total + 1 / (x * x)
    x = x + 1
  end
  local q = 1 / (x * x)
  return total + 0.5 * q
    + (1 + q * (1 / 6 - q * (1 / 30 - q * (1 / 42 - q * (1 / 30 - q * (5 / 66 - q * 691 / 2730)))))) / x
end

function functions.sigmoid(x) return 1 / (1 + exp(-x)) end

-- log(1 + e^x)
function functions.softplus(x)
  if x ~= x then return x end
  if x > 0 then return x + functions.log1p(exp(-x)) end
  return functions.log1p(exp(x))
end

-- To the nearest integer, halves to even.
function functions.round(x)
  if x ~= x or abs(x) == HUGE then return x end
  local low = floor(x)
  local rest = x - low
  if rest > 0.5 or rest == 0.5 and low % 2 == 1 then return low + 1 end
  return low
end

function functions.trunc(x)
  if x ~= x or abs(x) == HUGE then return x end
  return x < 0 and math.ceil(x) or floor(x)
end

function functions.floor(x)
  if x ~= x or abs(x) == HUGE then return x end
  return floor(x)
end

function functions.ceil(x)
  if x ~= x or abs(x) == HUGE then return x end
  return math.ceil(x)
end

return functions
