-- SPDX-License-Identifier: MIT
-- Philox4x32-10 in plain Lua (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3",
-- SC 2011): what the references of random ops draw from.
local philox = {}

-- Of two bytes, a * 256 + b.
local xor_of_bytes = {}
for a = 0, 255 do
  for b = 0, 255 do
    local bits, weight, x, y = 0, 1, a, b
    while x > 0 or y > 0 do
      if x % 2 ~= y % 2 then bits = bits + weight end
      x, y, weight = math.floor(x / 2), math.floor(y / 2), weight * 2
    end
    xor_of_bytes[a * 256 + b] = bits
  end
end

local function xor(a, b)
  local word, weight = 0, 1
  for _ = 1, 4 do
    word = word + weight * xor_of_bytes[a % 256 * 256 + b % 256]
    a, b, weight = math.floor(a / 256), math.floor(b / 256), weight * 256
  end
  return word
end

local WORD = 2 ^ 32

-- High and low word of a product of words, which doubles hold in halves.
local function multiply(a, b)
  local low, high = a % 65536 * b, math.floor(a / 65536) * b
  local rest = high % 65536 * 65536 + low
  return math.floor(high / 65536) + math.floor(rest / WORD), rest % WORD
end

-- The four words of a counter, from 0 on, under a seed below 2^53.
function philox.words(seed, counter)
  local c0, c1, c2, c3 = counter % WORD, math.floor(counter / WORD), 0, 0
  local k0, k1 = seed % WORD, math.floor(seed / WORD)
  for _ = 1, 10 do
    local high0, low0 = multiply(0xD2511F53, c0)
    local high2, low2 = multiply(0xCD9E8D57, c2)
    c0, c1, c2, c3 = xor(xor(high2, c1), k0), low2, xor(xor(high0, c3), k1), low0
    k0, k1 = (k0 + 0x9E3779B9) % WORD, (k1 + 0xBB67AE85) % WORD
  end
  return c0, c1, c2, c3
end

-- A number in [0, 1) of 53 bits, from two words.
function philox.unit(high, low)
  return (high * 2 ^ 21 + math.floor(low / 2 ^ 11)) * 2 ^ -53
end

-- An integer from 0 to range - 1, in proportion to 64 bits; range is below 2^20.
function philox.below(high, low, range)
  return math.floor((high * range + math.floor(low * range / WORD)) / WORD)
end

return philox
