---@meta cnn
-- SPDX-License-Identifier: MIT
-- Written by tools/docs.lua from the registry (make docs). Editors read it; nothing requires it.

---@alias cnn.dtype "float32"|"float64"|"float16"|"bfloat16"|"int64"|"int32"|"int16"|"int8"|"uint8"|"bool"
---@alias cnn.device string "cpu", "meta"
---@alias cnn.shape integer[] prints as (2, 3), joins with ..

---@class cnn.Tensor
---@field shape cnn.shape
---@field ndim integer
---@field dtype cnn.dtype
---@field device cnn.device
---@field requires_grad boolean may be set
---@field grad cnn.Tensor? may be set to nil
---@field grad_fn cnn.Node?
---@field is_leaf boolean
---@field nbytes integer
---@field data cnn.Tensor the same bytes, without history
---@field T cnn.Tensor its dims in reverse
---@field [integer] cnn.Tensor
---@field [table] cnn.Tensor
---@field [cnn.Tensor] cnn.Tensor
---@operator add(cnn.Tensor|number): cnn.Tensor
---@operator sub(cnn.Tensor|number): cnn.Tensor
---@operator mul(cnn.Tensor|number): cnn.Tensor
---@operator div(cnn.Tensor|number): cnn.Tensor
---@operator mod(cnn.Tensor|number): cnn.Tensor
---@operator pow(cnn.Tensor|number): cnn.Tensor
---@operator unm: cnn.Tensor
---@operator len: integer
local Tensor = {}

---@class cnn.Node
---@field name string

---@class cnn.Module
---@field training boolean
---@field [any] any
---@overload fun(...: any): ...
local Module = {}

---@class cnn.Optimizer
---@field param_groups table[]
---@field state table
local Optimizer = {}

---@class cnn.nn
---@field Module cnn.Module
---@field functional cnn
local nn = {}

---@class cnn.optim
---@field Optimizer cnn.Optimizer
---@field lr_scheduler table
local optim = {}

---@class cnn.cuda
local cuda = {}

---@class cnn.data
local data = {}

---@class cnn
---@field F cnn
---@field nn cnn.nn
---@field optim cnn.optim
---@field data cnn.data
---@field viz table
---@field cuda cnn.cuda
---@field version string
---@field newaxis any
local cnn = {}
cnn.float32 = "float32"
cnn.float64 = "float64"
cnn.float16 = "float16"
cnn.bfloat16 = "bfloat16"
cnn.int64 = "int64"
cnn.int32 = "int32"
cnn.int16 = "int16"
cnn.int8 = "int8"
cnn.uint8 = "uint8"
cnn.bool = "bool"

---Absolute value |x|.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.abs(x) end

---Absolute value |x|.
---@return cnn.Tensor
function Tensor:abs() end

---Absolute value |x|.
---In place.
---@return cnn.Tensor
function Tensor:abs_() end

---Inverse cosine in radians.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.acos(x) end

---Inverse cosine in radians.
---@return cnn.Tensor
function Tensor:acos() end

---Inverse cosine in radians.
---In place.
---@return cnn.Tensor
function Tensor:acos_() end

---Inverse hyperbolic cosine.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.acosh(x) end

---Inverse hyperbolic cosine.
---@return cnn.Tensor
function Tensor:acosh() end

---Inverse hyperbolic cosine.
---In place.
---@return cnn.Tensor
function Tensor:acosh_() end

---Mean of windows that divide 1 spatial dims into output_size parts, which overlap where the size is no multiple: part
---i of m covers floor(i * size / m) to ceil((i + 1) * size / m).
---@param input cnn.Tensor
---@param output_size integer|integer[]
---@return cnn.Tensor
function cnn.adaptive_avg_pool1d(input, output_size) end

---Mean of windows that divide 1 spatial dims into output_size parts, which overlap where the size is no multiple: part
---i of m covers floor(i * size / m) to ceil((i + 1) * size / m).
---@param output_size integer|integer[]
---@return cnn.Tensor
function Tensor:adaptive_avg_pool1d(output_size) end

---Mean of windows that divide 2 spatial dims into output_size parts, which overlap where the size is no multiple: part
---i of m covers floor(i * size / m) to ceil((i + 1) * size / m).
---@param input cnn.Tensor
---@param output_size integer|integer[]
---@return cnn.Tensor
function cnn.adaptive_avg_pool2d(input, output_size) end

---Mean of windows that divide 2 spatial dims into output_size parts, which overlap where the size is no multiple: part
---i of m covers floor(i * size / m) to ceil((i + 1) * size / m).
---@param output_size integer|integer[]
---@return cnn.Tensor
function Tensor:adaptive_avg_pool2d(output_size) end

---Mean of windows that divide 3 spatial dims into output_size parts, which overlap where the size is no multiple: part
---i of m covers floor(i * size / m) to ceil((i + 1) * size / m).
---@param input cnn.Tensor
---@param output_size integer|integer[]
---@return cnn.Tensor
function cnn.adaptive_avg_pool3d(input, output_size) end

---Mean of windows that divide 3 spatial dims into output_size parts, which overlap where the size is no multiple: part
---i of m covers floor(i * size / m) to ceil((i + 1) * size / m).
---@param output_size integer|integer[]
---@return cnn.Tensor
function Tensor:adaptive_avg_pool3d(output_size) end

---Maximum of windows that divide 1 spatial dims into output_size parts, which overlap where the size is no multiple.
---return_indices: also where they are.
---@param input cnn.Tensor
---@param output_size integer|integer[]
---@param return_indices? boolean default false
---@return cnn.Tensor, cnn.Tensor
---@overload fun(input: cnn.Tensor, output_size: integer|integer[], options: {return_indices?: boolean}): cnn.Tensor, cnn.Tensor
function cnn.adaptive_max_pool1d(input, output_size, return_indices) end

---Maximum of windows that divide 1 spatial dims into output_size parts, which overlap where the size is no multiple.
---return_indices: also where they are.
---@param output_size integer|integer[]
---@param return_indices? boolean default false
---@return cnn.Tensor, cnn.Tensor
---@overload fun(self: cnn.Tensor, output_size: integer|integer[], options: {return_indices?: boolean}): cnn.Tensor, cnn.Tensor
function Tensor:adaptive_max_pool1d(output_size, return_indices) end

---Maximum of windows that divide 2 spatial dims into output_size parts, which overlap where the size is no multiple.
---return_indices: also where they are.
---@param input cnn.Tensor
---@param output_size integer|integer[]
---@param return_indices? boolean default false
---@return cnn.Tensor, cnn.Tensor
---@overload fun(input: cnn.Tensor, output_size: integer|integer[], options: {return_indices?: boolean}): cnn.Tensor, cnn.Tensor
function cnn.adaptive_max_pool2d(input, output_size, return_indices) end

---Maximum of windows that divide 2 spatial dims into output_size parts, which overlap where the size is no multiple.
---return_indices: also where they are.
---@param output_size integer|integer[]
---@param return_indices? boolean default false
---@return cnn.Tensor, cnn.Tensor
---@overload fun(self: cnn.Tensor, output_size: integer|integer[], options: {return_indices?: boolean}): cnn.Tensor, cnn.Tensor
function Tensor:adaptive_max_pool2d(output_size, return_indices) end

---Maximum of windows that divide 3 spatial dims into output_size parts, which overlap where the size is no multiple.
---return_indices: also where they are.
---@param input cnn.Tensor
---@param output_size integer|integer[]
---@param return_indices? boolean default false
---@return cnn.Tensor, cnn.Tensor
---@overload fun(input: cnn.Tensor, output_size: integer|integer[], options: {return_indices?: boolean}): cnn.Tensor, cnn.Tensor
function cnn.adaptive_max_pool3d(input, output_size, return_indices) end

---Maximum of windows that divide 3 spatial dims into output_size parts, which overlap where the size is no multiple.
---return_indices: also where they are.
---@param output_size integer|integer[]
---@param return_indices? boolean default false
---@return cnn.Tensor, cnn.Tensor
---@overload fun(self: cnn.Tensor, output_size: integer|integer[], options: {return_indices?: boolean}): cnn.Tensor, cnn.Tensor
function Tensor:adaptive_max_pool3d(output_size, return_indices) end

---Sum x + alpha * y.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@param alpha? number default 1
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor|number, y: cnn.Tensor|number, options: {alpha?: number}): cnn.Tensor
function cnn.add(x, y, alpha) end

---Sum x + alpha * y.
---@param y cnn.Tensor|number
---@param alpha? number default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, y: cnn.Tensor|number, options: {alpha?: number}): cnn.Tensor
function Tensor:add(y, alpha) end

---Sum x + alpha * y.
---In place.
---@param y cnn.Tensor|number
---@param alpha? number default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, y: cnn.Tensor|number, options: {alpha?: number}): cnn.Tensor
function Tensor:add_(y, alpha) end

---x + value * tensor1 / tensor2.
---@param x cnn.Tensor
---@param tensor1 cnn.Tensor
---@param tensor2 cnn.Tensor
---@param value? number default 1
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, tensor1: cnn.Tensor, tensor2: cnn.Tensor, options: {value?: number}): cnn.Tensor
function cnn.addcdiv(x, tensor1, tensor2, value) end

---x + value * tensor1 / tensor2.
---@param tensor1 cnn.Tensor
---@param tensor2 cnn.Tensor
---@param value? number default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, tensor1: cnn.Tensor, tensor2: cnn.Tensor, options: {value?: number}): cnn.Tensor
function Tensor:addcdiv(tensor1, tensor2, value) end

---x + value * tensor1 / tensor2.
---In place.
---@param tensor1 cnn.Tensor
---@param tensor2 cnn.Tensor
---@param value? number default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, tensor1: cnn.Tensor, tensor2: cnn.Tensor, options: {value?: number}): cnn.Tensor
function Tensor:addcdiv_(tensor1, tensor2, value) end

---x + value * tensor1 * tensor2.
---@param x cnn.Tensor
---@param tensor1 cnn.Tensor
---@param tensor2 cnn.Tensor
---@param value? number default 1
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, tensor1: cnn.Tensor, tensor2: cnn.Tensor, options: {value?: number}): cnn.Tensor
function cnn.addcmul(x, tensor1, tensor2, value) end

---x + value * tensor1 * tensor2.
---@param tensor1 cnn.Tensor
---@param tensor2 cnn.Tensor
---@param value? number default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, tensor1: cnn.Tensor, tensor2: cnn.Tensor, options: {value?: number}): cnn.Tensor
function Tensor:addcmul(tensor1, tensor2, value) end

---x + value * tensor1 * tensor2.
---In place.
---@param tensor1 cnn.Tensor
---@param tensor2 cnn.Tensor
---@param value? number default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, tensor1: cnn.Tensor, tensor2: cnn.Tensor, options: {value?: number}): cnn.Tensor
function Tensor:addcmul_(tensor1, tensor2, value) end

---beta * input + alpha * (mat1 mat2): (n, k) and (k, m) and an input that broadcasts to (n, m). With beta = 0 the
---input's values don't matter, not even NaN.
---@param input cnn.Tensor
---@param mat1 cnn.Tensor
---@param mat2 cnn.Tensor
---@param beta? number default 1
---@param alpha? number default 1
---@return cnn.Tensor
---@overload fun(input: cnn.Tensor, mat1: cnn.Tensor, mat2: cnn.Tensor, options: {beta?: number, alpha?: number}): cnn.Tensor
function cnn.addmm(input, mat1, mat2, beta, alpha) end

---beta * input + alpha * (mat1 mat2): (n, k) and (k, m) and an input that broadcasts to (n, m). With beta = 0 the
---input's values don't matter, not even NaN.
---@param mat1 cnn.Tensor
---@param mat2 cnn.Tensor
---@param beta? number default 1
---@param alpha? number default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, mat1: cnn.Tensor, mat2: cnn.Tensor, options: {beta?: number, alpha?: number}): cnn.Tensor
function Tensor:addmm(mat1, mat2, beta, alpha) end

---Whether all elements are true (not 0), of the tensor or over the given dims; of nothing it is true.
---@param x cnn.Tensor
---@param dim? integer|integer[]
---@param keepdim? boolean default false
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {dim?: integer|integer[], keepdim?: boolean}): cnn.Tensor
function cnn.all(x, dim, keepdim) end

---Whether all elements are true (not 0), of the tensor or over the given dims; of nothing it is true.
---@param dim? integer|integer[]
---@param keepdim? boolean default false
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {dim?: integer|integer[], keepdim?: boolean}): cnn.Tensor
function Tensor:all(dim, keepdim) end

---The largest element of all, or over the given dims. Equal ones share the gradient.
---@param x cnn.Tensor
---@param dim? integer|integer[]
---@param keepdim? boolean default false
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {dim?: integer|integer[], keepdim?: boolean}): cnn.Tensor
function cnn.amax(x, dim, keepdim) end

---The largest element of all, or over the given dims. Equal ones share the gradient.
---@param dim? integer|integer[]
---@param keepdim? boolean default false
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {dim?: integer|integer[], keepdim?: boolean}): cnn.Tensor
function Tensor:amax(dim, keepdim) end

---The smallest element of all, or over the given dims. Equal ones share the gradient.
---@param x cnn.Tensor
---@param dim? integer|integer[]
---@param keepdim? boolean default false
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {dim?: integer|integer[], keepdim?: boolean}): cnn.Tensor
function cnn.amin(x, dim, keepdim) end

---The smallest element of all, or over the given dims. Equal ones share the gradient.
---@param dim? integer|integer[]
---@param keepdim? boolean default false
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {dim?: integer|integer[], keepdim?: boolean}): cnn.Tensor
function Tensor:amin(dim, keepdim) end

---Whether any element is true (not 0), of the tensor or over the given dims; of nothing it is false.
---@param x cnn.Tensor
---@param dim? integer|integer[]
---@param keepdim? boolean default false
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {dim?: integer|integer[], keepdim?: boolean}): cnn.Tensor
function cnn.any(x, dim, keepdim) end

---Whether any element is true (not 0), of the tensor or over the given dims; of nothing it is false.
---@param dim? integer|integer[]
---@param keepdim? boolean default false
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {dim?: integer|integer[], keepdim?: boolean}): cnn.Tensor
function Tensor:any(dim, keepdim) end

---The numbers from start to stop, step apart, stop excluded: ceil((stop - start) / step) of them. arange(n) counts from
---0 to n - 1. The default float dtype, unless a dtype is given.
---@param start? number
---@param stop? number
---@param step? number default 1
---@param dtype? cnn.dtype
---@param device? cnn.device
---@param requires_grad? boolean default false
---@return cnn.Tensor
---@overload fun(options: {start?: number, stop?: number, step?: number, dtype?: cnn.dtype, device?: cnn.device, requires_grad?: boolean}): cnn.Tensor
function cnn.arange(start, stop, step, dtype, device, requires_grad) end

---Position of the largest element along a dim, or among all elements in row-major order, as int64; the first one of
---equals.
---@param x cnn.Tensor
---@param dim? integer
---@param keepdim? boolean default false
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {dim?: integer, keepdim?: boolean}): cnn.Tensor
function cnn.argmax(x, dim, keepdim) end

---Position of the largest element along a dim, or among all elements in row-major order, as int64; the first one of
---equals.
---@param dim? integer
---@param keepdim? boolean default false
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {dim?: integer, keepdim?: boolean}): cnn.Tensor
function Tensor:argmax(dim, keepdim) end

---Position of the smallest element along a dim, or among all elements in row-major order, as int64; the first one of
---equals.
---@param x cnn.Tensor
---@param dim? integer
---@param keepdim? boolean default false
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {dim?: integer, keepdim?: boolean}): cnn.Tensor
function cnn.argmin(x, dim, keepdim) end

---Position of the smallest element along a dim, or among all elements in row-major order, as int64; the first one of
---equals.
---@param dim? integer
---@param keepdim? boolean default false
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {dim?: integer, keepdim?: boolean}): cnn.Tensor
function Tensor:argmin(dim, keepdim) end

---Inverse sine in radians.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.asin(x) end

---Inverse sine in radians.
---@return cnn.Tensor
function Tensor:asin() end

---Inverse sine in radians.
---In place.
---@return cnn.Tensor
function Tensor:asin_() end

---Inverse hyperbolic sine.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.asinh(x) end

---Inverse hyperbolic sine.
---@return cnn.Tensor
function Tensor:asinh() end

---Inverse hyperbolic sine.
---In place.
---@return cnn.Tensor
function Tensor:asinh_() end

---Inverse tangent in radians.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.atan(x) end

---Inverse tangent in radians.
---@return cnn.Tensor
function Tensor:atan() end

---Inverse tangent in radians.
---In place.
---@return cnn.Tensor
function Tensor:atan_() end

---Angle of the point (y, x) in radians, in (-pi, pi].
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.atan2(x, y) end

---Angle of the point (y, x) in radians, in (-pi, pi].
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:atan2(y) end

---Angle of the point (y, x) in radians, in (-pi, pi].
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:atan2_(y) end

---Inverse hyperbolic tangent.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.atanh(x) end

---Inverse hyperbolic tangent.
---@return cnn.Tensor
function Tensor:atanh() end

---Inverse hyperbolic tangent.
---In place.
---@return cnn.Tensor
function Tensor:atanh_() end

---Mean of each window over 1 spatial dims.
---input (N, C, L) or (C, L). stride is kernel_size by default; padding is at most half the kernel and counts as zeros,
---or not at all without count_include_pad; with ceil_mode a last window may hang over the end if it begins inside.
---divisor_override replaces the count.
---@param input cnn.Tensor
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param ceil_mode? boolean default false
---@param count_include_pad? boolean default true
---@param divisor_override? integer
---@return cnn.Tensor
---@overload fun(input: cnn.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], ceil_mode?: boolean, count_include_pad?: boolean, divisor_override?: integer}): cnn.Tensor
function cnn.avg_pool1d(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override) end

---Mean of each window over 1 spatial dims.
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param ceil_mode? boolean default false
---@param count_include_pad? boolean default true
---@param divisor_override? integer
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], ceil_mode?: boolean, count_include_pad?: boolean, divisor_override?: integer}): cnn.Tensor
function Tensor:avg_pool1d(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override) end

---Mean of each window over 2 spatial dims.
---input (N, C, H, W) or (C, H, W). stride is kernel_size by default; padding is at most half the kernel and counts as
---zeros, or not at all without count_include_pad; with ceil_mode a last window may hang over the end if it begins
---inside. divisor_override replaces the count.
---@param input cnn.Tensor
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param ceil_mode? boolean default false
---@param count_include_pad? boolean default true
---@param divisor_override? integer
---@return cnn.Tensor
---@overload fun(input: cnn.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], ceil_mode?: boolean, count_include_pad?: boolean, divisor_override?: integer}): cnn.Tensor
function cnn.avg_pool2d(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override) end

---Mean of each window over 2 spatial dims.
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param ceil_mode? boolean default false
---@param count_include_pad? boolean default true
---@param divisor_override? integer
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], ceil_mode?: boolean, count_include_pad?: boolean, divisor_override?: integer}): cnn.Tensor
function Tensor:avg_pool2d(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override) end

---Mean of each window over 3 spatial dims.
---input (N, C, D, H, W) or (C, D, H, W). stride is kernel_size by default; padding is at most half the kernel and
---counts as zeros, or not at all without count_include_pad; with ceil_mode a last window may hang over the end if it
---begins inside. divisor_override replaces the count.
---@param input cnn.Tensor
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param ceil_mode? boolean default false
---@param count_include_pad? boolean default true
---@param divisor_override? integer
---@return cnn.Tensor
---@overload fun(input: cnn.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], ceil_mode?: boolean, count_include_pad?: boolean, divisor_override?: integer}): cnn.Tensor
function cnn.avg_pool3d(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override) end

---Mean of each window over 3 spatial dims.
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param ceil_mode? boolean default false
---@param count_include_pad? boolean default true
---@param divisor_override? integer
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], ceil_mode?: boolean, count_include_pad?: boolean, divisor_override?: integer}): cnn.Tensor
function Tensor:avg_pool3d(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override) end

---beta * input + alpha * (batch1 batch2), matrix by matrix: (b, n, k) and (b, k, m) and an input that broadcasts to (b,
---n, m). With beta = 0 the input's values don't matter.
---@param input cnn.Tensor
---@param batch1 cnn.Tensor
---@param batch2 cnn.Tensor
---@param beta? number default 1
---@param alpha? number default 1
---@return cnn.Tensor
---@overload fun(input: cnn.Tensor, batch1: cnn.Tensor, batch2: cnn.Tensor, options: {beta?: number, alpha?: number}): cnn.Tensor
function cnn.baddbmm(input, batch1, batch2, beta, alpha) end

---beta * input + alpha * (batch1 batch2), matrix by matrix: (b, n, k) and (b, k, m) and an input that broadcasts to (b,
---n, m). With beta = 0 the input's values don't matter.
---@param batch1 cnn.Tensor
---@param batch2 cnn.Tensor
---@param beta? number default 1
---@param alpha? number default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, batch1: cnn.Tensor, batch2: cnn.Tensor, options: {beta?: number, alpha?: number}): cnn.Tensor
function Tensor:baddbmm(batch1, batch2, beta, alpha) end

---Normalises each channel: (x - mean) / sqrt(var + eps) * weight + bias, for x (N, C), (N, C, L), (N, C, H, W) and all
---other arguments (C). In training, mean and var are the batch's, and the running ones become (1 - momentum) * running
---+ momentum * batch's (var divided by n - 1); one value per channel is an error, and an empty batch changes nothing.
---Else mean and var are the running ones.
---@param x cnn.Tensor
---@param running_mean? cnn.Tensor
---@param running_var? cnn.Tensor
---@param weight? cnn.Tensor
---@param bias? cnn.Tensor
---@param training? boolean default false
---@param momentum? number default 0.1
---@param eps? number default 1e-05
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {running_mean?: cnn.Tensor, running_var?: cnn.Tensor, weight?: cnn.Tensor, bias?: cnn.Tensor, training?: boolean, momentum?: number, eps?: number}): cnn.Tensor
function cnn.batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps) end

---Normalises each channel: (x - mean) / sqrt(var + eps) * weight + bias, for x (N, C), (N, C, L), (N, C, H, W) and all
---other arguments (C). In training, mean and var are the batch's, and the running ones become (1 - momentum) * running
---+ momentum * batch's (var divided by n - 1); one value per channel is an error, and an empty batch changes nothing.
---Else mean and var are the running ones.
---@param running_mean? cnn.Tensor
---@param running_var? cnn.Tensor
---@param weight? cnn.Tensor
---@param bias? cnn.Tensor
---@param training? boolean default false
---@param momentum? number default 0.1
---@param eps? number default 1e-05
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {running_mean?: cnn.Tensor, running_var?: cnn.Tensor, weight?: cnn.Tensor, bias?: cnn.Tensor, training?: boolean, momentum?: number, eps?: number}): cnn.Tensor
function Tensor:batch_norm(running_mean, running_var, weight, bias, training, momentum, eps) end

---1 with the probability that x's element is, else 0.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.bernoulli(x) end

---1 with the probability that x's element is, else 0.
---@return cnn.Tensor
function Tensor:bernoulli() end

---Fills x with 1 with probability p, else 0.
---@param x cnn.Tensor
---@param p? number default 0.5
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {p?: number}): cnn.Tensor
function cnn.bernoulli_(x, p) end

---Fills x with 1 with probability p, else 0.
---@param p? number default 0.5
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {p?: number}): cnn.Tensor
function Tensor:bernoulli_(p) end

---Bilinear form: y[..., o] = input1[...] weight[o] input2[...] + bias[o].
---input1 (..., in1), input2 (..., in2), weight (out, in1, in2), bias (out) give (..., out).
---@param input1 cnn.Tensor
---@param input2 cnn.Tensor
---@param weight cnn.Tensor
---@param bias? cnn.Tensor
---@return cnn.Tensor
---@overload fun(input1: cnn.Tensor, input2: cnn.Tensor, weight: cnn.Tensor, options: {bias?: cnn.Tensor}): cnn.Tensor
function cnn.bilinear(input1, input2, weight, bias) end

---Bilinear form: y[..., o] = input1[...] weight[o] input2[...] + bias[o].
---@param input2 cnn.Tensor
---@param weight cnn.Tensor
---@param bias? cnn.Tensor
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, input2: cnn.Tensor, weight: cnn.Tensor, options: {bias?: cnn.Tensor}): cnn.Tensor
function Tensor:bilinear(input2, weight, bias) end

----weight (target log(input) + (1 - target) log(1 - input)) for probabilities in [0, 1]. Logarithms are at least -100.
---Shapes are equal, weight broadcasts to them; the result is the mean, the sum, or each element's loss.
---@param input cnn.Tensor
---@param target cnn.Tensor
---@param weight? cnn.Tensor
---@param reduction? "none"|"mean"|"sum" default "mean"
---@return cnn.Tensor
---@overload fun(input: cnn.Tensor, target: cnn.Tensor, options: {weight?: cnn.Tensor, reduction?: "none"|"mean"|"sum"}): cnn.Tensor
function cnn.binary_cross_entropy(input, target, weight, reduction) end

----weight (target log(input) + (1 - target) log(1 - input)) for probabilities in [0, 1]. Logarithms are at least -100.
---Shapes are equal, weight broadcasts to them; the result is the mean, the sum, or each element's loss.
---@param target cnn.Tensor
---@param weight? cnn.Tensor
---@param reduction? "none"|"mean"|"sum" default "mean"
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, target: cnn.Tensor, options: {weight?: cnn.Tensor, reduction?: "none"|"mean"|"sum"}): cnn.Tensor
function Tensor:binary_cross_entropy(target, weight, reduction) end

---binary_cross_entropy of sigmoid(input), right for logits of any size; the term of target is multiplied by pos_weight,
---which broadcasts to the input.
---@param input cnn.Tensor
---@param target cnn.Tensor
---@param weight? cnn.Tensor
---@param reduction? "none"|"mean"|"sum" default "mean"
---@param pos_weight? cnn.Tensor
---@return cnn.Tensor
---@overload fun(input: cnn.Tensor, target: cnn.Tensor, options: {weight?: cnn.Tensor, reduction?: "none"|"mean"|"sum", pos_weight?: cnn.Tensor}): cnn.Tensor
function cnn.binary_cross_entropy_with_logits(input, target, weight, reduction, pos_weight) end

---binary_cross_entropy of sigmoid(input), right for logits of any size; the term of target is multiplied by pos_weight,
---which broadcasts to the input.
---@param target cnn.Tensor
---@param weight? cnn.Tensor
---@param reduction? "none"|"mean"|"sum" default "mean"
---@param pos_weight? cnn.Tensor
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, target: cnn.Tensor, options: {weight?: cnn.Tensor, reduction?: "none"|"mean"|"sum", pos_weight?: cnn.Tensor}): cnn.Tensor
function Tensor:binary_cross_entropy_with_logits(target, weight, reduction, pos_weight) end

---Bitwise and; of bools, logical and.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.bitwise_and(x, y) end

---Bitwise and; of bools, logical and.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:bitwise_and(y) end

---Bitwise and; of bools, logical and.
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:bitwise_and_(y) end

---Bitwise or; of bools, logical or.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.bitwise_or(x, y) end

---Bitwise or; of bools, logical or.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:bitwise_or(y) end

---Bitwise or; of bools, logical or.
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:bitwise_or_(y) end

---Bitwise exclusive or.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.bitwise_xor(x, y) end

---Bitwise exclusive or.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:bitwise_xor(y) end

---Bitwise exclusive or.
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:bitwise_xor_(y) end

---Products of matrices, pair by pair: (b, n, k) and (b, k, m) give (b, n, m).
---@param x cnn.Tensor
---@param y cnn.Tensor
---@return cnn.Tensor
function cnn.bmm(x, y) end

---Products of matrices, pair by pair: (b, n, k) and (b, k, m) give (b, n, m).
---@param y cnn.Tensor
---@return cnn.Tensor
function Tensor:bmm(y) end

---Another name of expand.
---@param x cnn.Tensor
---@param shape integer[]
---@return cnn.Tensor
---@overload fun(...: any): cnn.Tensor
function cnn.broadcast_to(x, shape) end

---Another name of expand.
---@param shape integer[]
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, ...: any): cnn.Tensor
function Tensor:broadcast_to(shape) end

---The tensors one after the other along a dim; the other sizes must agree.
---@param tensors cnn.Tensor[]
---@param dim? integer default 1
---@return cnn.Tensor
---@overload fun(tensors: cnn.Tensor[], options: {dim?: integer}): cnn.Tensor
function cnn.cat(tensors, dim) end

---Smallest integer >= x.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.ceil(x) end

---Smallest integer >= x.
---@return cnn.Tensor
function Tensor:ceil() end

---Smallest integer >= x.
---In place.
---@return cnn.Tensor
function Tensor:ceil_() end

---Continuously differentiable ELU: x for x > 0, alpha (e^(x / alpha) - 1) otherwise.
---@param x cnn.Tensor
---@param alpha? number default 1
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {alpha?: number}): cnn.Tensor
function cnn.celu(x, alpha) end

---Continuously differentiable ELU: x for x > 0, alpha (e^(x / alpha) - 1) otherwise.
---@param alpha? number default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {alpha?: number}): cnn.Tensor
function Tensor:celu(alpha) end

---Continuously differentiable ELU: x for x > 0, alpha (e^(x / alpha) - 1) otherwise.
---In place.
---@param alpha? number default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {alpha?: number}): cnn.Tensor
function Tensor:celu_(alpha) end

---A list of views that cut a dim into `chunks` pieces of equal size; the last one may be shorter, and where the size
---doesn't divide there may be fewer.
---@param x cnn.Tensor
---@param chunks integer
---@param dim? integer default 1
---@return cnn.Tensor[]
---@overload fun(x: cnn.Tensor, chunks: integer, options: {dim?: integer}): cnn.Tensor[]
function cnn.chunk(x, chunks, dim) end

---A list of views that cut a dim into `chunks` pieces of equal size; the last one may be shorter, and where the size
---doesn't divide there may be fewer.
---@param chunks integer
---@param dim? integer default 1
---@return cnn.Tensor[]
---@overload fun(self: cnn.Tensor, chunks: integer, options: {dim?: integer}): cnn.Tensor[]
function Tensor:chunk(chunks, dim) end

---x clamped to [min, max]: numbers, or tensors that broadcast with x. NaN stays NaN.
---@param x cnn.Tensor
---@param min? cnn.Tensor|number
---@param max? cnn.Tensor|number
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {min?: cnn.Tensor|number, max?: cnn.Tensor|number}): cnn.Tensor
function cnn.clamp(x, min, max) end

---x clamped to [min, max]: numbers, or tensors that broadcast with x. NaN stays NaN.
---@param min? cnn.Tensor|number
---@param max? cnn.Tensor|number
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {min?: cnn.Tensor|number, max?: cnn.Tensor|number}): cnn.Tensor
function Tensor:clamp(min, max) end

---x clamped to [min, max]: numbers, or tensors that broadcast with x. NaN stays NaN.
---In place.
---@param min? cnn.Tensor|number
---@param max? cnn.Tensor|number
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {min?: cnn.Tensor|number, max?: cnn.Tensor|number}): cnn.Tensor
function Tensor:clamp_(min, max) end

---x clamped to [min, max].
---@param x cnn.Tensor
---@param min? number default -math.huge
---@param max? number default math.huge
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {min?: number, max?: number}): cnn.Tensor
function cnn.clamp_scalar(x, min, max) end

---x clamped to [min, max].
---@param min? number default -math.huge
---@param max? number default math.huge
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {min?: number, max?: number}): cnn.Tensor
function Tensor:clamp_scalar(min, max) end

---x clamped to [min, max].
---In place.
---@param min? number default -math.huge
---@param max? number default math.huge
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {min?: number, max?: number}): cnn.Tensor
function Tensor:clamp_scalar_(min, max) end

---A copy of x with its own bytes. Gradients flow through.
---@param x cnn.Tensor
---@param memory_format? "preserve"|"contiguous"|"channels_last" default "preserve"
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {memory_format?: "preserve"|"contiguous"|"channels_last"}): cnn.Tensor
function cnn.clone(x, memory_format) end

---A copy of x with its own bytes. Gradients flow through.
---@param memory_format? "preserve"|"contiguous"|"channels_last" default "preserve"
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {memory_format?: "preserve"|"contiguous"|"channels_last"}): cnn.Tensor
function Tensor:clone(memory_format) end

---Another name of cat.
---@param tensors cnn.Tensor[]
---@param dim? integer default 1
---@return cnn.Tensor
---@overload fun(tensors: cnn.Tensor[], options: {dim?: integer}): cnn.Tensor
function cnn.concat(tensors, dim) end

---x itself when it is contiguous (row-major) or, on demand, channels-last; else a copy that is.
---@param x cnn.Tensor
---@param memory_format? "contiguous"|"channels_last" default "contiguous"
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {memory_format?: "contiguous"|"channels_last"}): cnn.Tensor
function cnn.contiguous(x, memory_format) end

---x itself when it is contiguous (row-major) or, on demand, channels-last; else a copy that is.
---@param memory_format? "contiguous"|"channels_last" default "contiguous"
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {memory_format?: "contiguous"|"channels_last"}): cnn.Tensor
function Tensor:contiguous(memory_format) end

---1-d convolution.
---input (N, C, L) or (C, L), weight (K, C / groups, R), bias (K) give (N, K, L') or (K, L'). A sum over the channels of
---a group and the places under the kernel, for each output channel; the kernel is not flipped. groups splits the
---channels: group i of the input makes group i of the output. padding: zeros around the input, one size for all dims,
---one per dim, or one before and one after each dim; "same" keeps the size (stride 1), "valid" is none. A size becomes
---(size + padding - dilation * (kernel - 1) - 1) / stride + 1, rounded down.
---@param input cnn.Tensor
---@param weight cnn.Tensor
---@param bias? cnn.Tensor
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[]|"same"|"valid" default 0
---@param dilation? integer|integer[] default 1
---@param groups? integer default 1
---@return cnn.Tensor
---@overload fun(input: cnn.Tensor, weight: cnn.Tensor, options: {bias?: cnn.Tensor, stride?: integer|integer[], padding?: integer|integer[]|"same"|"valid", dilation?: integer|integer[], groups?: integer}): cnn.Tensor
function cnn.conv1d(input, weight, bias, stride, padding, dilation, groups) end

---1-d convolution.
---@param weight cnn.Tensor
---@param bias? cnn.Tensor
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[]|"same"|"valid" default 0
---@param dilation? integer|integer[] default 1
---@param groups? integer default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, weight: cnn.Tensor, options: {bias?: cnn.Tensor, stride?: integer|integer[], padding?: integer|integer[]|"same"|"valid", dilation?: integer|integer[], groups?: integer}): cnn.Tensor
function Tensor:conv1d(weight, bias, stride, padding, dilation, groups) end

---2-d convolution.
---input (N, C, H, W) or (C, H, W), weight (K, C / groups, R, S), bias (K) give (N, K, H', W') or (K, H', W'). A sum
---over the channels of a group and the places under the kernel, for each output channel; the kernel is not flipped.
---groups splits the channels: group i of the input makes group i of the output. padding: zeros around the input, one
---size for all dims, one per dim, or one before and one after each dim; "same" keeps the size (stride 1), "valid" is
---none. A size becomes (size + padding - dilation * (kernel - 1) - 1) / stride + 1, rounded down.
---@param input cnn.Tensor
---@param weight cnn.Tensor
---@param bias? cnn.Tensor
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[]|"same"|"valid" default 0
---@param dilation? integer|integer[] default 1
---@param groups? integer default 1
---@return cnn.Tensor
---@overload fun(input: cnn.Tensor, weight: cnn.Tensor, options: {bias?: cnn.Tensor, stride?: integer|integer[], padding?: integer|integer[]|"same"|"valid", dilation?: integer|integer[], groups?: integer}): cnn.Tensor
function cnn.conv2d(input, weight, bias, stride, padding, dilation, groups) end

---2-d convolution.
---@param weight cnn.Tensor
---@param bias? cnn.Tensor
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[]|"same"|"valid" default 0
---@param dilation? integer|integer[] default 1
---@param groups? integer default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, weight: cnn.Tensor, options: {bias?: cnn.Tensor, stride?: integer|integer[], padding?: integer|integer[]|"same"|"valid", dilation?: integer|integer[], groups?: integer}): cnn.Tensor
function Tensor:conv2d(weight, bias, stride, padding, dilation, groups) end

---3-d convolution.
---input (N, C, D, H, W) or without N, weight (K, C / groups, Q, R, S), bias (K) give (N, K, D', H', W'). A sum over the
---channels of a group and the places under the kernel, for each output channel; the kernel is not flipped. groups
---splits the channels: group i of the input makes group i of the output. padding: zeros around the input, one size for
---all dims, one per dim, or one before and one after each dim; "same" keeps the size (stride 1), "valid" is none. A
---size becomes (size + padding - dilation * (kernel - 1) - 1) / stride + 1, rounded down.
---@param input cnn.Tensor
---@param weight cnn.Tensor
---@param bias? cnn.Tensor
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[]|"same"|"valid" default 0
---@param dilation? integer|integer[] default 1
---@param groups? integer default 1
---@return cnn.Tensor
---@overload fun(input: cnn.Tensor, weight: cnn.Tensor, options: {bias?: cnn.Tensor, stride?: integer|integer[], padding?: integer|integer[]|"same"|"valid", dilation?: integer|integer[], groups?: integer}): cnn.Tensor
function cnn.conv3d(input, weight, bias, stride, padding, dilation, groups) end

---3-d convolution.
---@param weight cnn.Tensor
---@param bias? cnn.Tensor
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[]|"same"|"valid" default 0
---@param dilation? integer|integer[] default 1
---@param groups? integer default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, weight: cnn.Tensor, options: {bias?: cnn.Tensor, stride?: integer|integer[], padding?: integer|integer[]|"same"|"valid", dilation?: integer|integer[], groups?: integer}): cnn.Tensor
function Tensor:conv3d(weight, bias, stride, padding, dilation, groups) end

---1-d transposed convolution.
---input (N, C, L) or (C, L), weight (C, K / groups, R), bias (K) give (N, K, L'). The gradient of a convolution by its
---input, used as a layer: places of the input scatter the kernel. A size becomes (size - 1) * stride - 2 * padding +
---dilation * (kernel - 1) + output_padding + 1.
---@param input cnn.Tensor
---@param weight cnn.Tensor
---@param bias? cnn.Tensor
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[] default 0
---@param output_padding? integer|integer[] default 0
---@param groups? integer default 1
---@param dilation? integer|integer[] default 1
---@return cnn.Tensor
---@overload fun(input: cnn.Tensor, weight: cnn.Tensor, options: {bias?: cnn.Tensor, stride?: integer|integer[], padding?: integer|integer[], output_padding?: integer|integer[], groups?: integer, dilation?: integer|integer[]}): cnn.Tensor
function cnn.conv_transpose1d(input, weight, bias, stride, padding, output_padding, groups, dilation) end

---1-d transposed convolution.
---@param weight cnn.Tensor
---@param bias? cnn.Tensor
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[] default 0
---@param output_padding? integer|integer[] default 0
---@param groups? integer default 1
---@param dilation? integer|integer[] default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, weight: cnn.Tensor, options: {bias?: cnn.Tensor, stride?: integer|integer[], padding?: integer|integer[], output_padding?: integer|integer[], groups?: integer, dilation?: integer|integer[]}): cnn.Tensor
function Tensor:conv_transpose1d(weight, bias, stride, padding, output_padding, groups, dilation) end

---2-d transposed convolution.
---input (N, C, H, W) or (C, H, W), weight (C, K / groups, R, S), bias (K) give (N, K, H', W'). The gradient of a
---convolution by its input, used as a layer: places of the input scatter the kernel. A size becomes (size - 1) * stride
---- 2 * padding + dilation * (kernel - 1) + output_padding + 1.
---@param input cnn.Tensor
---@param weight cnn.Tensor
---@param bias? cnn.Tensor
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[] default 0
---@param output_padding? integer|integer[] default 0
---@param groups? integer default 1
---@param dilation? integer|integer[] default 1
---@return cnn.Tensor
---@overload fun(input: cnn.Tensor, weight: cnn.Tensor, options: {bias?: cnn.Tensor, stride?: integer|integer[], padding?: integer|integer[], output_padding?: integer|integer[], groups?: integer, dilation?: integer|integer[]}): cnn.Tensor
function cnn.conv_transpose2d(input, weight, bias, stride, padding, output_padding, groups, dilation) end

---2-d transposed convolution.
---@param weight cnn.Tensor
---@param bias? cnn.Tensor
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[] default 0
---@param output_padding? integer|integer[] default 0
---@param groups? integer default 1
---@param dilation? integer|integer[] default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, weight: cnn.Tensor, options: {bias?: cnn.Tensor, stride?: integer|integer[], padding?: integer|integer[], output_padding?: integer|integer[], groups?: integer, dilation?: integer|integer[]}): cnn.Tensor
function Tensor:conv_transpose2d(weight, bias, stride, padding, output_padding, groups, dilation) end

---3-d transposed convolution.
---input (N, C, D, H, W) or without N, weight (C, K / groups, Q, R, S), bias (K) give (N, K, D', H', W'). The gradient
---of a convolution by its input, used as a layer: places of the input scatter the kernel. A size becomes (size - 1) *
---stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1.
---@param input cnn.Tensor
---@param weight cnn.Tensor
---@param bias? cnn.Tensor
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[] default 0
---@param output_padding? integer|integer[] default 0
---@param groups? integer default 1
---@param dilation? integer|integer[] default 1
---@return cnn.Tensor
---@overload fun(input: cnn.Tensor, weight: cnn.Tensor, options: {bias?: cnn.Tensor, stride?: integer|integer[], padding?: integer|integer[], output_padding?: integer|integer[], groups?: integer, dilation?: integer|integer[]}): cnn.Tensor
function cnn.conv_transpose3d(input, weight, bias, stride, padding, output_padding, groups, dilation) end

---3-d transposed convolution.
---@param weight cnn.Tensor
---@param bias? cnn.Tensor
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[] default 0
---@param output_padding? integer|integer[] default 0
---@param groups? integer default 1
---@param dilation? integer|integer[] default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, weight: cnn.Tensor, options: {bias?: cnn.Tensor, stride?: integer|integer[], padding?: integer|integer[], output_padding?: integer|integer[], groups?: integer, dilation?: integer|integer[]}): cnn.Tensor
function Tensor:conv_transpose3d(weight, bias, stride, padding, output_padding, groups, dilation) end

---Copies src, which must broadcast to x's shape, into x, converting dtype and device. non_blocking lets a copy between
---pinned memory and a GPU go on behind the call.
---@param x cnn.Tensor
---@param src cnn.Tensor
---@param non_blocking? boolean default false
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, src: cnn.Tensor, options: {non_blocking?: boolean}): cnn.Tensor
function cnn.copy_(x, src, non_blocking) end

---Copies src, which must broadcast to x's shape, into x, converting dtype and device. non_blocking lets a copy between
---pinned memory and a GPU go on behind the call.
---@param src cnn.Tensor
---@param non_blocking? boolean default false
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, src: cnn.Tensor, options: {non_blocking?: boolean}): cnn.Tensor
function Tensor:copy_(src, non_blocking) end

---|x| with the sign of y.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.copysign(x, y) end

---|x| with the sign of y.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:copysign(y) end

---|x| with the sign of y.
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:copysign_(y) end

---Cosine, x in radians.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.cos(x) end

---Cosine, x in radians.
---@return cnn.Tensor
function Tensor:cos() end

---Cosine, x in radians.
---In place.
---@return cnn.Tensor
function Tensor:cos_() end

---Hyperbolic cosine.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.cosh(x) end

---Hyperbolic cosine.
---@return cnn.Tensor
function Tensor:cosh() end

---Hyperbolic cosine.
---In place.
---@return cnn.Tensor
function Tensor:cosh_() end

---The number of elements that are not 0, of the tensor or over the given dims, as int64.
---@param x cnn.Tensor
---@param dim? integer|integer[]
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {dim?: integer|integer[]}): cnn.Tensor
function cnn.count_nonzero(x, dim) end

---The number of elements that are not 0, of the tensor or over the given dims, as int64.
---@param dim? integer|integer[]
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {dim?: integer|integer[]}): cnn.Tensor
function Tensor:count_nonzero(dim) end

----log(softmax(input)) at the target's class. input is (N, C), (N, C, d1, ...) or (C). target holds labels from 1 to C,
---of any integer dtype and input's shape without C; or class probabilities, floats of input's shape. weight (C)
---multiplies the loss of each class; rows with the label ignore_index count nothing. "mean" divides by the weights of
---the rows that count (by the number of rows, for probabilities), and is 0 if all are ignored. With label_smoothing e,
---the target is 1 - e parts itself and e parts uniform.
---@param input cnn.Tensor
---@param target cnn.Tensor
---@param weight? cnn.Tensor
---@param ignore_index? integer
---@param reduction? "none"|"mean"|"sum" default "mean"
---@param label_smoothing? number default 0
---@return cnn.Tensor
---@overload fun(input: cnn.Tensor, target: cnn.Tensor, options: {weight?: cnn.Tensor, ignore_index?: integer, reduction?: "none"|"mean"|"sum", label_smoothing?: number}): cnn.Tensor
function cnn.cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing) end

----log(softmax(input)) at the target's class. input is (N, C), (N, C, d1, ...) or (C). target holds labels from 1 to C,
---of any integer dtype and input's shape without C; or class probabilities, floats of input's shape. weight (C)
---multiplies the loss of each class; rows with the label ignore_index count nothing. "mean" divides by the weights of
---the rows that count (by the number of rows, for probabilities), and is 0 if all are ignored. With label_smoothing e,
---the target is 1 - e parts itself and e parts uniform.
---@param target cnn.Tensor
---@param weight? cnn.Tensor
---@param ignore_index? integer
---@param reduction? "none"|"mean"|"sum" default "mean"
---@param label_smoothing? number default 0
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, target: cnn.Tensor, options: {weight?: cnn.Tensor, ignore_index?: integer, reduction?: "none"|"mean"|"sum", label_smoothing?: number}): cnn.Tensor
function Tensor:cross_entropy(target, weight, ignore_index, reduction, label_smoothing) end

---The largest element so far along a dim, and its position, the last one of equals. From a NaN on it is NaN.
---@param x cnn.Tensor
---@param dim integer
---@return cnn.Tensor, cnn.Tensor
function cnn.cummax(x, dim) end

---The largest element so far along a dim, and its position, the last one of equals. From a NaN on it is NaN.
---@param dim integer
---@return cnn.Tensor, cnn.Tensor
function Tensor:cummax(dim) end

---The smallest element so far along a dim, and its position, the last one of equals. From a NaN on it is NaN.
---@param x cnn.Tensor
---@param dim integer
---@return cnn.Tensor, cnn.Tensor
function cnn.cummin(x, dim) end

---The smallest element so far along a dim, and its position, the last one of equals. From a NaN on it is NaN.
---@param dim integer
---@return cnn.Tensor, cnn.Tensor
function Tensor:cummin(dim) end

---Running products along a dim: y_i = x_1 * ... * x_i. Integers and bools give int64. Gradients are right at zeros too.
---@param x cnn.Tensor
---@param dim integer
---@param dtype? cnn.dtype
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, dim: integer, options: {dtype?: cnn.dtype}): cnn.Tensor
function cnn.cumprod(x, dim, dtype) end

---Running products along a dim: y_i = x_1 * ... * x_i. Integers and bools give int64. Gradients are right at zeros too.
---@param dim integer
---@param dtype? cnn.dtype
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, dim: integer, options: {dtype?: cnn.dtype}): cnn.Tensor
function Tensor:cumprod(dim, dtype) end

---Running sums along a dim: y_i = x_1 + ... + x_i. Integers and bools give int64.
---@param x cnn.Tensor
---@param dim integer
---@param dtype? cnn.dtype
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, dim: integer, options: {dtype?: cnn.dtype}): cnn.Tensor
function cnn.cumsum(x, dim, dtype) end

---Running sums along a dim: y_i = x_1 + ... + x_i. Integers and bools give int64.
---@param dim integer
---@param dtype? cnn.dtype
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, dim: integer, options: {dtype?: cnn.dtype}): cnn.Tensor
function Tensor:cumsum(dim, dtype) end

---The matrix with a vector on its diagonal; of a matrix, a copy of its diagonal.
---@param x cnn.Tensor
---@param diagonal? integer default 0
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {diagonal?: integer}): cnn.Tensor
function cnn.diag(x, diagonal) end

---The matrix with a vector on its diagonal; of a matrix, a copy of its diagonal.
---@param diagonal? integer default 0
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {diagonal?: integer}): cnn.Tensor
function Tensor:diag(diagonal) end

---Zero matrices, in dims dim1 and dim2 of the result, with x's last dim on a diagonal.
---@param x cnn.Tensor
---@param offset? integer default 0
---@param dim1? integer default -2
---@param dim2? integer default -1
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {offset?: integer, dim1?: integer, dim2?: integer}): cnn.Tensor
function cnn.diag_embed(x, offset, dim1, dim2) end

---Zero matrices, in dims dim1 and dim2 of the result, with x's last dim on a diagonal.
---@param offset? integer default 0
---@param dim1? integer default -2
---@param dim2? integer default -1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {offset?: integer, dim1?: integer, dim2?: integer}): cnn.Tensor
function Tensor:diag_embed(offset, dim1, dim2) end

---The diagonal of the matrices in dims dim1 and dim2, as a new last dim; offset > 0 is above the main diagonal, < 0
---below. A view.
---@param x cnn.Tensor
---@param offset? integer default 0
---@param dim1? integer default 1
---@param dim2? integer default 2
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {offset?: integer, dim1?: integer, dim2?: integer}): cnn.Tensor
function cnn.diagonal(x, offset, dim1, dim2) end

---The diagonal of the matrices in dims dim1 and dim2, as a new last dim; offset > 0 is above the main diagonal, < 0
---below. A view.
---@param offset? integer default 0
---@param dim1? integer default 1
---@param dim2? integer default 2
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {offset?: integer, dim1?: integer, dim2?: integer}): cnn.Tensor
function Tensor:diagonal(offset, dim1, dim2) end

---Differences x_{i+1} - x_i of neighbours along a dim, n times over, of x with the given tensors joined before and
---behind; of bools, whether they differ.
---@param x cnn.Tensor
---@param n? integer default 1
---@param dim? integer default -1
---@param prepend? cnn.Tensor
---@param append? cnn.Tensor
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {n?: integer, dim?: integer, prepend?: cnn.Tensor, append?: cnn.Tensor}): cnn.Tensor
function cnn.diff(x, n, dim, prepend, append) end

---Differences x_{i+1} - x_i of neighbours along a dim, n times over, of x with the given tensors joined before and
---behind; of bools, whether they differ.
---@param n? integer default 1
---@param dim? integer default -1
---@param prepend? cnn.Tensor
---@param append? cnn.Tensor
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {n?: integer, dim?: integer, prepend?: cnn.Tensor, append?: cnn.Tensor}): cnn.Tensor
function Tensor:diff(n, dim, prepend, append) end

---Derivative of the logarithm of the gamma function.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.digamma(x) end

---Derivative of the logarithm of the gamma function.
---@return cnn.Tensor
function Tensor:digamma() end

---Derivative of the logarithm of the gamma function.
---In place.
---@return cnn.Tensor
function Tensor:digamma_() end

---Quotient x / y: of floats, or rounded down ("floor") or towards zero ("trunc").
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@param rounding_mode? "none"|"floor"|"trunc" default "none"
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor|number, y: cnn.Tensor|number, options: {rounding_mode?: "none"|"floor"|"trunc"}): cnn.Tensor
function cnn.div(x, y, rounding_mode) end

---Quotient x / y: of floats, or rounded down ("floor") or towards zero ("trunc").
---@param y cnn.Tensor|number
---@param rounding_mode? "none"|"floor"|"trunc" default "none"
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, y: cnn.Tensor|number, options: {rounding_mode?: "none"|"floor"|"trunc"}): cnn.Tensor
function Tensor:div(y, rounding_mode) end

---Quotient x / y: of floats, or rounded down ("floor") or towards zero ("trunc").
---In place.
---@param y cnn.Tensor|number
---@param rounding_mode? "none"|"floor"|"trunc" default "none"
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, y: cnn.Tensor|number, options: {rounding_mode?: "none"|"floor"|"trunc"}): cnn.Tensor
function Tensor:div_(y, rounding_mode) end

---Inner product of two vectors of one length: a scalar.
---@param x cnn.Tensor
---@param y cnn.Tensor
---@return cnn.Tensor
function cnn.dot(x, y) end

---Inner product of two vectors of one length: a scalar.
---@param y cnn.Tensor
---@return cnn.Tensor
function Tensor:dot(y) end

---In training, each element is 0 with probability p, else x / (1 - p). Otherwise x itself.
---@param x cnn.Tensor
---@param p? number default 0.5
---@param training? boolean default true
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {p?: number, training?: boolean}): cnn.Tensor
function cnn.dropout(x, p, training) end

---In training, each element is 0 with probability p, else x / (1 - p). Otherwise x itself.
---@param p? number default 0.5
---@param training? boolean default true
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {p?: number, training?: boolean}): cnn.Tensor
function Tensor:dropout(p, training) end

---In training, each element is 0 with probability p, else x / (1 - p). Otherwise x itself.
---In place.
---@param p? number default 0.5
---@param training? boolean default true
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {p?: number, training?: boolean}): cnn.Tensor
function Tensor:dropout_(p, training) end

---Sum of products by subscripts: einsum("ij,jk->ik", x, y) is the matrix product.
---Each letter names a dim; letters that are not after `->` are summed over; a letter twice in one operand takes the
---diagonal; `...` stands for the dims that are not named, which broadcast. Without `->` the result has the letters that
---occur once, in alphabetical order. Operands are contracted from left to right.
---@param equation string
---@param operands cnn.Tensor[]
---@return cnn.Tensor
---@overload fun(...: any): cnn.Tensor
function cnn.einsum(equation, operands) end

---Exponential linear unit: x for x > 0, alpha (e^x - 1) otherwise.
---@param x cnn.Tensor
---@param alpha? number default 1
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {alpha?: number}): cnn.Tensor
function cnn.elu(x, alpha) end

---Exponential linear unit: x for x > 0, alpha (e^x - 1) otherwise.
---@param alpha? number default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {alpha?: number}): cnn.Tensor
function Tensor:elu(alpha) end

---Exponential linear unit: x for x > 0, alpha (e^x - 1) otherwise.
---In place.
---@param alpha? number default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {alpha?: number}): cnn.Tensor
function Tensor:elu_(alpha) end

---Rows of weight (num_embeddings, embedding_dim) by ids from 1 on: (...) gives (..., embedding_dim). The row
---padding_idx gets no gradient.
---@param input cnn.Tensor
---@param weight cnn.Tensor
---@param padding_idx? integer
---@return cnn.Tensor
---@overload fun(input: cnn.Tensor, weight: cnn.Tensor, options: {padding_idx?: integer}): cnn.Tensor
function cnn.embedding(input, weight, padding_idx) end

---A tensor of that shape whose elements are not set.
---@param shape integer[]
---@param dtype? cnn.dtype
---@param device? cnn.device
---@param requires_grad? boolean default false
---@param memory_format? "contiguous"|"channels_last" default "contiguous"
---@return cnn.Tensor
---@overload fun(...: any): cnn.Tensor
---@overload fun(shape: integer[], options: {dtype?: cnn.dtype, device?: cnn.device, requires_grad?: boolean, memory_format?: "contiguous"|"channels_last"}): cnn.Tensor
function cnn.empty(shape, dtype, device, requires_grad, memory_format) end

---A tensor of x's shape, dtype, device and stride order whose elements are not set.
---@param x cnn.Tensor
---@param dtype? cnn.dtype
---@param device? cnn.device
---@param requires_grad? boolean default false
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {dtype?: cnn.dtype, device?: cnn.device, requires_grad?: boolean}): cnn.Tensor
function cnn.empty_like(x, dtype, device, requires_grad) end

---Whether x equals y, element by element.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.eq(x, y) end

---Whether x equals y, element by element.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:eq(y) end

---Whether x equals y, element by element.
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:eq_(y) end

---Error function.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.erf(x) end

---Error function.
---@return cnn.Tensor
function Tensor:erf() end

---Error function.
---In place.
---@return cnn.Tensor
function Tensor:erf_() end

---Complementary error function 1 - erf(x).
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.erfc(x) end

---Complementary error function 1 - erf(x).
---@return cnn.Tensor
function Tensor:erfc() end

---Complementary error function 1 - erf(x).
---In place.
---@return cnn.Tensor
function Tensor:erfc_() end

---Inverse of the error function.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.erfinv(x) end

---Inverse of the error function.
---@return cnn.Tensor
function Tensor:erfinv() end

---Inverse of the error function.
---In place.
---@return cnn.Tensor
function Tensor:erfinv_() end

---Exponential e^x.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.exp(x) end

---Exponential e^x.
---@return cnn.Tensor
function Tensor:exp() end

---Exponential e^x.
---In place.
---@return cnn.Tensor
function Tensor:exp_() end

---Power 2^x.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.exp2(x) end

---Power 2^x.
---@return cnn.Tensor
function Tensor:exp2() end

---Power 2^x.
---In place.
---@return cnn.Tensor
function Tensor:exp2_() end

---x with dims of size 1 repeated to the given sizes, without a copy; -1 keeps a size.
---@param x cnn.Tensor
---@param shape integer[]
---@return cnn.Tensor
---@overload fun(...: any): cnn.Tensor
function cnn.expand(x, shape) end

---x with dims of size 1 repeated to the given sizes, without a copy; -1 keeps a size.
---@param shape integer[]
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, ...: any): cnn.Tensor
function Tensor:expand(shape) end

---x expanded to the shape of `other`.
---@param x cnn.Tensor
---@param other cnn.Tensor
---@return cnn.Tensor
function cnn.expand_as(x, other) end

---x expanded to the shape of `other`.
---@param other cnn.Tensor
---@return cnn.Tensor
function Tensor:expand_as(other) end

---e^x - 1, exact also near x = 0.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.expm1(x) end

---e^x - 1, exact also near x = 0.
---@return cnn.Tensor
function Tensor:expm1() end

---e^x - 1, exact also near x = 0.
---In place.
---@return cnn.Tensor
function Tensor:expm1_() end

---Fills x with numbers drawn from the exponential distribution, lambd * e^(-lambd * x).
---@param x cnn.Tensor
---@param lambd? number default 1
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {lambd?: number}): cnn.Tensor
function cnn.exponential_(x, lambd) end

---Fills x with numbers drawn from the exponential distribution, lambd * e^(-lambd * x).
---@param lambd? number default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {lambd?: number}): cnn.Tensor
function Tensor:exponential_(lambd) end

---The n x m matrix (n x n without m) with 1 on the diagonal and 0 elsewhere.
---@param n integer
---@param m? integer
---@param dtype? cnn.dtype
---@param device? cnn.device
---@param requires_grad? boolean default false
---@return cnn.Tensor
---@overload fun(n: integer, options: {m?: integer, dtype?: cnn.dtype, device?: cnn.device, requires_grad?: boolean}): cnn.Tensor
function cnn.eye(n, m, dtype, device, requires_grad) end

---Sets every element of x to `value`.
---@param x cnn.Tensor
---@param value number|boolean
---@return cnn.Tensor
function cnn.fill_(x, value) end

---Sets every element of x to `value`.
---@param value number|boolean
---@return cnn.Tensor
function Tensor:fill_(value) end

---x with the dims from start_dim to end_dim joined into one: a view where that is possible, else a copy; x itself when
---there is nothing to join.
---@param x cnn.Tensor
---@param start_dim? integer default 1
---@param end_dim? integer default -1
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {start_dim?: integer, end_dim?: integer}): cnn.Tensor
function cnn.flatten(x, start_dim, end_dim) end

---x with the dims from start_dim to end_dim joined into one: a view where that is possible, else a copy; x itself when
---there is nothing to join.
---@param start_dim? integer default 1
---@param end_dim? integer default -1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {start_dim?: integer, end_dim?: integer}): cnn.Tensor
function Tensor:flatten(start_dim, end_dim) end

---x with the order of elements reversed along the given dims.
---@param x cnn.Tensor
---@param dims integer|integer[]
---@return cnn.Tensor
---@overload fun(...: any): cnn.Tensor
function cnn.flip(x, dims) end

---x with the order of elements reversed along the given dims.
---@param dims integer|integer[]
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, ...: any): cnn.Tensor
function Tensor:flip(dims) end

---Largest integer <= x.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.floor(x) end

---Largest integer <= x.
---@return cnn.Tensor
function Tensor:floor() end

---Largest integer <= x.
---In place.
---@return cnn.Tensor
function Tensor:floor_() end

---Quotient rounded down. An integer divided by 0 gives 0.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.floor_divide(x, y) end

---Quotient rounded down. An integer divided by 0 gives 0.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:floor_divide(y) end

---Quotient rounded down. An integer divided by 0 gives 0.
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:floor_divide_(y) end

---Remainder with the sign of x (as C's fmod). An integer modulo 0 gives 0.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.fmod(x, y) end

---Remainder with the sign of x (as C's fmod). An integer modulo 0 gives 0.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:fmod(y) end

---Remainder with the sign of x (as C's fmod). An integer modulo 0 gives 0.
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:fmod_(y) end

---Fractional part x - trunc(x).
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.frac(x) end

---Fractional part x - trunc(x).
---@return cnn.Tensor
function Tensor:frac() end

---Fractional part x - trunc(x).
---In place.
---@return cnn.Tensor
function Tensor:frac_() end

---A tensor of that shape with every element `value`. A boolean gives a bool tensor.
---@param shape integer[]
---@param value number|boolean
---@param dtype? cnn.dtype
---@param device? cnn.device
---@param requires_grad? boolean default false
---@return cnn.Tensor
---@overload fun(shape: integer[], value: number|boolean, options: {dtype?: cnn.dtype, device?: cnn.device, requires_grad?: boolean}): cnn.Tensor
function cnn.full(shape, value, dtype, device, requires_grad) end

---A tensor of x's shape, dtype, device and stride order with every element `value`.
---@param x cnn.Tensor
---@param value number|boolean
---@param dtype? cnn.dtype
---@param device? cnn.device
---@param requires_grad? boolean default false
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, value: number|boolean, options: {dtype?: cnn.dtype, device?: cnn.device, requires_grad?: boolean}): cnn.Tensor
function cnn.full_like(x, value, dtype, device, requires_grad) end

---Elements of x along a dim: with dim = 1, y[{i, j}] = x[{index[{i, j}], j}]. The result has index's shape.
---@param x cnn.Tensor
---@param dim integer
---@param index cnn.Tensor
---@return cnn.Tensor
function cnn.gather(x, dim, index) end

---Elements of x along a dim: with dim = 1, y[{i, j}] = x[{index[{i, j}], j}]. The result has index's shape.
---@param dim integer
---@param index cnn.Tensor
---@return cnn.Tensor
function Tensor:gather(dim, index) end

---Whether x >= y, element by element.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.ge(x, y) end

---Whether x >= y, element by element.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:ge(y) end

---Whether x >= y, element by element.
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:ge_(y) end

---Gaussian error linear unit x * Phi(x), Phi the normal distribution function; with approximate = "tanh", its tanh
---approximation.
---@param x cnn.Tensor
---@param approximate? "none"|"tanh" default "none"
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {approximate?: "none"|"tanh"}): cnn.Tensor
function cnn.gelu(x, approximate) end

---Gaussian error linear unit x * Phi(x), Phi the normal distribution function; with approximate = "tanh", its tanh
---approximation.
---@param approximate? "none"|"tanh" default "none"
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {approximate?: "none"|"tanh"}): cnn.Tensor
function Tensor:gelu(approximate) end

---Gaussian error linear unit x * Phi(x), Phi the normal distribution function; with approximate = "tanh", its tanh
---approximation.
---In place.
---@param approximate? "none"|"tanh" default "none"
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {approximate?: "none"|"tanh"}): cnn.Tensor
function Tensor:gelu_(approximate) end

---Gaussian error linear unit x * Phi(x), Phi the normal distribution function.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.gelu_erf(x) end

---Gaussian error linear unit x * Phi(x), Phi the normal distribution function.
---@return cnn.Tensor
function Tensor:gelu_erf() end

---Gaussian error linear unit x * Phi(x), Phi the normal distribution function.
---In place.
---@return cnn.Tensor
function Tensor:gelu_erf_() end

---The tanh approximation of the Gaussian error linear unit.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.gelu_tanh(x) end

---The tanh approximation of the Gaussian error linear unit.
---@return cnn.Tensor
function Tensor:gelu_tanh() end

---The tanh approximation of the Gaussian error linear unit.
---In place.
---@return cnn.Tensor
function Tensor:gelu_tanh_() end

---Gated linear unit a * sigmoid(b), where a and b are x's halves along a dim.
---@param x cnn.Tensor
---@param dim? integer default -1
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {dim?: integer}): cnn.Tensor
function cnn.glu(x, dim) end

---Gated linear unit a * sigmoid(b), where a and b are x's halves along a dim.
---@param dim? integer default -1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {dim?: integer}): cnn.Tensor
function Tensor:glu(dim) end

---Whether x > y, element by element.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.gt(x, y) end

---Whether x > y, element by element.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:gt(y) end

---Whether x > y, element by element.
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:gt_(y) end

---x, or 0 within [-lambd, lambd].
---@param x cnn.Tensor
---@param lambd? number default 0.5
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {lambd?: number}): cnn.Tensor
function cnn.hardshrink(x, lambd) end

---x, or 0 within [-lambd, lambd].
---@param lambd? number default 0.5
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {lambd?: number}): cnn.Tensor
function Tensor:hardshrink(lambd) end

---x, or 0 within [-lambd, lambd].
---In place.
---@param lambd? number default 0.5
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {lambd?: number}): cnn.Tensor
function Tensor:hardshrink_(lambd) end

---min(max(x / 6 + 1/2, 0), 1).
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.hardsigmoid(x) end

---min(max(x / 6 + 1/2, 0), 1).
---@return cnn.Tensor
function Tensor:hardsigmoid() end

---min(max(x / 6 + 1/2, 0), 1).
---In place.
---@return cnn.Tensor
function Tensor:hardsigmoid_() end

---x * min(max(x + 3, 0), 6) / 6.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.hardswish(x) end

---x * min(max(x + 3, 0), 6) / 6.
---@return cnn.Tensor
function Tensor:hardswish() end

---x * min(max(x + 3, 0), 6) / 6.
---In place.
---@return cnn.Tensor
function Tensor:hardswish_() end

---x clamped to [min_val, max_val].
---@param x cnn.Tensor
---@param min_val? number default -1
---@param max_val? number default 1
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {min_val?: number, max_val?: number}): cnn.Tensor
function cnn.hardtanh(x, min_val, max_val) end

---x clamped to [min_val, max_val].
---@param min_val? number default -1
---@param max_val? number default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {min_val?: number, max_val?: number}): cnn.Tensor
function Tensor:hardtanh(min_val, max_val) end

---x clamped to [min_val, max_val].
---In place.
---@param min_val? number default -1
---@param max_val? number default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {min_val?: number, max_val?: number}): cnn.Tensor
function Tensor:hardtanh_(min_val, max_val) end

---The tensors side by side: along the second dim, vectors along the first.
---@param tensors cnn.Tensor[]
---@return cnn.Tensor
function cnn.hstack(tensors) end

---With d = |input - target|: d^2 / 2 where d <= delta, else delta (d - delta / 2). Shapes are equal; the result is the
---mean, the sum, or each element's loss.
---@param input cnn.Tensor
---@param target cnn.Tensor
---@param reduction? "none"|"mean"|"sum" default "mean"
---@param delta? number default 1
---@return cnn.Tensor
---@overload fun(input: cnn.Tensor, target: cnn.Tensor, options: {reduction?: "none"|"mean"|"sum", delta?: number}): cnn.Tensor
function cnn.huber_loss(input, target, reduction, delta) end

---With d = |input - target|: d^2 / 2 where d <= delta, else delta (d - delta / 2). Shapes are equal; the result is the
---mean, the sum, or each element's loss.
---@param target cnn.Tensor
---@param reduction? "none"|"mean"|"sum" default "mean"
---@param delta? number default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, target: cnn.Tensor, options: {reduction?: "none"|"mean"|"sum", delta?: number}): cnn.Tensor
function Tensor:huber_loss(target, reduction, delta) end

---sqrt(x * x + y * y), without overflow.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.hypot(x, y) end

---sqrt(x * x + y * y), without overflow.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:hypot(y) end

---sqrt(x * x + y * y), without overflow.
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:hypot_(y) end

---x with alpha times the slices of src added at a list of positions in a dim. Slices for one position add.
---@param x cnn.Tensor
---@param dim integer
---@param index cnn.Tensor
---@param src cnn.Tensor
---@param alpha? number default 1
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, dim: integer, index: cnn.Tensor, src: cnn.Tensor, options: {alpha?: number}): cnn.Tensor
function cnn.index_add(x, dim, index, src, alpha) end

---x with alpha times the slices of src added at a list of positions in a dim. Slices for one position add.
---@param dim integer
---@param index cnn.Tensor
---@param src cnn.Tensor
---@param alpha? number default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, dim: integer, index: cnn.Tensor, src: cnn.Tensor, options: {alpha?: number}): cnn.Tensor
function Tensor:index_add(dim, index, src, alpha) end

---x with alpha times the slices of src added at a list of positions in a dim. Slices for one position add.
---In place.
---@param dim integer
---@param index cnn.Tensor
---@param src cnn.Tensor
---@param alpha? number default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, dim: integer, index: cnn.Tensor, src: cnn.Tensor, options: {alpha?: number}): cnn.Tensor
function Tensor:index_add_(dim, index, src, alpha) end

---x with the slices of src put at a list of positions in a dim. Of slices for one position, the last one stays.
---@param x cnn.Tensor
---@param dim integer
---@param index cnn.Tensor
---@param src cnn.Tensor
---@return cnn.Tensor
function cnn.index_copy(x, dim, index, src) end

---x with the slices of src put at a list of positions in a dim. Of slices for one position, the last one stays.
---@param dim integer
---@param index cnn.Tensor
---@param src cnn.Tensor
---@return cnn.Tensor
function Tensor:index_copy(dim, index, src) end

---x with the slices of src put at a list of positions in a dim. Of slices for one position, the last one stays.
---In place.
---@param dim integer
---@param index cnn.Tensor
---@param src cnn.Tensor
---@return cnn.Tensor
function Tensor:index_copy_(dim, index, src) end

---x with the slices at a list of positions in a dim set to a value.
---@param x cnn.Tensor
---@param dim integer
---@param index cnn.Tensor
---@param value cnn.Tensor|number
---@return cnn.Tensor
function cnn.index_fill(x, dim, index, value) end

---x with the slices at a list of positions in a dim set to a value.
---@param dim integer
---@param index cnn.Tensor
---@param value cnn.Tensor|number
---@return cnn.Tensor
function Tensor:index_fill(dim, index, value) end

---x with the slices at a list of positions in a dim set to a value.
---In place.
---@param dim integer
---@param index cnn.Tensor
---@param value cnn.Tensor|number
---@return cnn.Tensor
function Tensor:index_fill_(dim, index, value) end

---The slices of x at a list of positions in a dim.
---@param x cnn.Tensor
---@param dim integer
---@param index cnn.Tensor
---@return cnn.Tensor
function cnn.index_select(x, dim, index) end

---The slices of x at a list of positions in a dim.
---@param dim integer
---@param index cnn.Tensor
---@return cnn.Tensor
function Tensor:index_select(dim, index) end

---Whether x is neither infinite nor NaN.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.isfinite(x) end

---Whether x is neither infinite nor NaN.
---@return cnn.Tensor
function Tensor:isfinite() end

---Whether x is +inf or -inf.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.isinf(x) end

---Whether x is +inf or -inf.
---@return cnn.Tensor
function Tensor:isinf() end

---Whether x is NaN.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.isnan(x) end

---Whether x is NaN.
---@return cnn.Tensor
function Tensor:isnan() end

---Absolute error |input - target|. Shapes are equal; the result is the mean, the sum, or each element's loss.
---@param input cnn.Tensor
---@param target cnn.Tensor
---@param reduction? "none"|"mean"|"sum" default "mean"
---@return cnn.Tensor
---@overload fun(input: cnn.Tensor, target: cnn.Tensor, options: {reduction?: "none"|"mean"|"sum"}): cnn.Tensor
function cnn.l1_loss(input, target, reduction) end

---Absolute error |input - target|. Shapes are equal; the result is the mean, the sum, or each element's loss.
---@param target cnn.Tensor
---@param reduction? "none"|"mean"|"sum" default "mean"
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, target: cnn.Tensor, options: {reduction?: "none"|"mean"|"sum"}): cnn.Tensor
function Tensor:l1_loss(target, reduction) end

---Normalises over the last dims: (x - mean) / sqrt(var + eps) * weight + bias. normalized_shape gives the sizes of
---those dims, which weight and bias have too; mean and var (divided by the number of elements) are taken over them.
---@param x cnn.Tensor
---@param normalized_shape integer[]
---@param weight? cnn.Tensor
---@param bias? cnn.Tensor
---@param eps? number default 1e-05
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, normalized_shape: integer[], options: {weight?: cnn.Tensor, bias?: cnn.Tensor, eps?: number}): cnn.Tensor
function cnn.layer_norm(x, normalized_shape, weight, bias, eps) end

---Normalises over the last dims: (x - mean) / sqrt(var + eps) * weight + bias. normalized_shape gives the sizes of
---those dims, which weight and bias have too; mean and var (divided by the number of elements) are taken over them.
---@param normalized_shape integer[]
---@param weight? cnn.Tensor
---@param bias? cnn.Tensor
---@param eps? number default 1e-05
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, normalized_shape: integer[], options: {weight?: cnn.Tensor, bias?: cnn.Tensor, eps?: number}): cnn.Tensor
function Tensor:layer_norm(normalized_shape, weight, bias, eps) end

---Whether x <= y, element by element.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.le(x, y) end

---Whether x <= y, element by element.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:le(y) end

---Whether x <= y, element by element.
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:le_(y) end

---x for x > 0, negative_slope * x otherwise.
---@param x cnn.Tensor
---@param negative_slope? number default 0.01
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {negative_slope?: number}): cnn.Tensor
function cnn.leaky_relu(x, negative_slope) end

---x for x > 0, negative_slope * x otherwise.
---@param negative_slope? number default 0.01
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {negative_slope?: number}): cnn.Tensor
function Tensor:leaky_relu(negative_slope) end

---x for x > 0, negative_slope * x otherwise.
---In place.
---@param negative_slope? number default 0.01
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {negative_slope?: number}): cnn.Tensor
function Tensor:leaky_relu_(negative_slope) end

---Linear interpolation x + weight * (end - x).
---@param x cnn.Tensor
---@param end_ cnn.Tensor
---@param weight cnn.Tensor|number
---@return cnn.Tensor
function cnn.lerp(x, end_, weight) end

---Linear interpolation x + weight * (end - x).
---@param end_ cnn.Tensor
---@param weight cnn.Tensor|number
---@return cnn.Tensor
function Tensor:lerp(end_, weight) end

---Linear interpolation x + weight * (end - x).
---In place.
---@param end_ cnn.Tensor
---@param weight cnn.Tensor|number
---@return cnn.Tensor
function Tensor:lerp_(end_, weight) end

---Logarithm of the absolute value of the gamma function.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.lgamma(x) end

---Logarithm of the absolute value of the gamma function.
---@return cnn.Tensor
function Tensor:lgamma() end

---Logarithm of the absolute value of the gamma function.
---In place.
---@return cnn.Tensor
function Tensor:lgamma_() end

---input weight^T + bias: the features of the last dim, mapped.
---input (..., in), weight (out, in), bias (out) give (..., out); a weight (in) gives (...).
---@param input cnn.Tensor
---@param weight cnn.Tensor
---@param bias? cnn.Tensor
---@return cnn.Tensor
---@overload fun(input: cnn.Tensor, weight: cnn.Tensor, options: {bias?: cnn.Tensor}): cnn.Tensor
function cnn.linear(input, weight, bias) end

---input weight^T + bias: the features of the last dim, mapped.
---@param weight cnn.Tensor
---@param bias? cnn.Tensor
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, weight: cnn.Tensor, options: {bias?: cnn.Tensor}): cnn.Tensor
function Tensor:linear(weight, bias) end

---`steps` numbers, evenly spaced from start to stop, both included.
---@param start number
---@param stop number
---@param steps integer
---@param dtype? cnn.dtype
---@param device? cnn.device
---@param requires_grad? boolean default false
---@return cnn.Tensor
---@overload fun(start: number, stop: number, steps: integer, options: {dtype?: cnn.dtype, device?: cnn.device, requires_grad?: boolean}): cnn.Tensor
function cnn.linspace(start, stop, steps, dtype, device, requires_grad) end

---Natural logarithm.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.log(x) end

---Natural logarithm.
---@return cnn.Tensor
function Tensor:log() end

---Natural logarithm.
---In place.
---@return cnn.Tensor
function Tensor:log_() end

---Logarithm to base 10.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.log10(x) end

---Logarithm to base 10.
---@return cnn.Tensor
function Tensor:log10() end

---Logarithm to base 10.
---In place.
---@return cnn.Tensor
function Tensor:log10_() end

---log(1 + x), exact also near x = 0.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.log1p(x) end

---log(1 + x), exact also near x = 0.
---@return cnn.Tensor
function Tensor:log1p() end

---log(1 + x), exact also near x = 0.
---In place.
---@return cnn.Tensor
function Tensor:log1p_() end

---Logarithm to base 2.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.log2(x) end

---Logarithm to base 2.
---@return cnn.Tensor
function Tensor:log2() end

---Logarithm to base 2.
---In place.
---@return cnn.Tensor
function Tensor:log2_() end

---Logarithm of the softmax along a dim, x - log(sum(e^x)), exact also where the softmax is close to 0.
---@param x cnn.Tensor
---@param dim integer
---@param dtype? cnn.dtype
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, dim: integer, options: {dtype?: cnn.dtype}): cnn.Tensor
function cnn.log_softmax(x, dim, dtype) end

---Logarithm of the softmax along a dim, x - log(sum(e^x)), exact also where the softmax is close to 0.
---@param dim integer
---@param dtype? cnn.dtype
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, dim: integer, options: {dtype?: cnn.dtype}): cnn.Tensor
function Tensor:log_softmax(dim, dtype) end

---log(e^x + e^y), without overflow.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.logaddexp(x, y) end

---log(e^x + e^y), without overflow.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:logaddexp(y) end

---log(e^x + e^y), without overflow.
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:logaddexp_(y) end

---Whether both are not 0.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.logical_and(x, y) end

---Whether both are not 0.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:logical_and(y) end

---Whether both are not 0.
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:logical_and_(y) end

---Whether x is 0 (false).
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.logical_not(x) end

---Whether x is 0 (false).
---@return cnn.Tensor
function Tensor:logical_not() end

---Whether either is not 0.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.logical_or(x, y) end

---Whether either is not 0.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:logical_or(y) end

---Whether either is not 0.
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:logical_or_(y) end

---Whether exactly one is not 0.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.logical_xor(x, y) end

---Whether exactly one is not 0.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:logical_xor(y) end

---Whether exactly one is not 0.
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:logical_xor_(y) end

---Logit log(x / (1 - x)), with x clamped to [eps, 1 - eps] when eps is not negative.
---@param x cnn.Tensor
---@param eps? number default -1
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {eps?: number}): cnn.Tensor
function cnn.logit(x, eps) end

---Logit log(x / (1 - x)), with x clamped to [eps, 1 - eps] when eps is not negative.
---@param eps? number default -1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {eps?: number}): cnn.Tensor
function Tensor:logit(eps) end

---Logit log(x / (1 - x)), with x clamped to [eps, 1 - eps] when eps is not negative.
---In place.
---@param eps? number default -1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {eps?: number}): cnn.Tensor
function Tensor:logit_(eps) end

---Logarithm of the logistic function.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.logsigmoid(x) end

---Logarithm of the logistic function.
---@return cnn.Tensor
function Tensor:logsigmoid() end

---Logarithm of the logistic function.
---In place.
---@return cnn.Tensor
function Tensor:logsigmoid_() end

---`steps` powers of base, with exponents evenly spaced from start to stop.
---@param start number
---@param stop number
---@param steps integer
---@param base? number default 10
---@param dtype? cnn.dtype
---@param device? cnn.device
---@param requires_grad? boolean default false
---@return cnn.Tensor
---@overload fun(start: number, stop: number, steps: integer, options: {base?: number, dtype?: cnn.dtype, device?: cnn.device, requires_grad?: boolean}): cnn.Tensor
function cnn.logspace(start, stop, steps, base, dtype, device, requires_grad) end

---log of the sum of e^x over all elements, or over the given dims, without overflow.
---@param x cnn.Tensor
---@param dim? integer|integer[]
---@param keepdim? boolean default false
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {dim?: integer|integer[], keepdim?: boolean}): cnn.Tensor
function cnn.logsumexp(x, dim, keepdim) end

---log of the sum of e^x over all elements, or over the given dims, without overflow.
---@param dim? integer|integer[]
---@param keepdim? boolean default false
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {dim?: integer|integer[], keepdim?: boolean}): cnn.Tensor
function Tensor:logsumexp(dim, keepdim) end

---Whether x < y, element by element.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.lt(x, y) end

---Whether x < y, element by element.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:lt(y) end

---Whether x < y, element by element.
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:lt_(y) end

---value where the mask is true, else x.
---@param x cnn.Tensor
---@param mask cnn.Tensor
---@param value cnn.Tensor|number
---@return cnn.Tensor
function cnn.masked_fill(x, mask, value) end

---value where the mask is true, else x.
---@param mask cnn.Tensor
---@param value cnn.Tensor|number
---@return cnn.Tensor
function Tensor:masked_fill(mask, value) end

---value where the mask is true, else x.
---In place.
---@param mask cnn.Tensor
---@param value cnn.Tensor|number
---@return cnn.Tensor
function Tensor:masked_fill_(mask, value) end

---The elements of x where mask is true, in row-major order, as one dim; the two broadcast. Its size depends on the
---values, so it raises on meta.
---@param x cnn.Tensor
---@param mask cnn.Tensor
---@return cnn.Tensor
function cnn.masked_select(x, mask) end

---The elements of x where mask is true, in row-major order, as one dim; the two broadcast. Its size depends on the
---values, so it raises on meta.
---@param mask cnn.Tensor
---@return cnn.Tensor
function Tensor:masked_select(mask) end

---Matrix product x y.
---Matrices (n, k) and (k, m) give (n, m). A vector is a row on the left and a column on the right, and its dim is left
---out of the result: (k) and (k) give a scalar. Dims before the last two are batch dims and broadcast: (b, 1, n, k) and
---(c, k, m) give (b, c, n, m). Both have the same dtype, integers wrap around.
---@param x cnn.Tensor
---@param y cnn.Tensor
---@return cnn.Tensor
function cnn.matmul(x, y) end

---Matrix product x y.
---@param y cnn.Tensor
---@return cnn.Tensor
function Tensor:matmul(y) end

---The largest element (one result, equal ones share the gradient); with a dim, the largest elements along it and their
---positions (two results; the first of equals has the gradient); with another tensor, the larger of each two elements
---(see maximum).
---@param x cnn.Tensor
---@param dim? integer|cnn.Tensor
---@param keepdim? boolean default false
---@return cnn.Tensor, cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {dim?: integer|cnn.Tensor, keepdim?: boolean}): cnn.Tensor, cnn.Tensor
function cnn.max(x, dim, keepdim) end

---The largest element (one result, equal ones share the gradient); with a dim, the largest elements along it and their
---positions (two results; the first of equals has the gradient); with another tensor, the larger of each two elements
---(see maximum).
---@param dim? integer|cnn.Tensor
---@param keepdim? boolean default false
---@return cnn.Tensor, cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {dim?: integer|cnn.Tensor, keepdim?: boolean}): cnn.Tensor, cnn.Tensor
function Tensor:max(dim, keepdim) end

---Maximum of each window over 1 spatial dims.
---input (N, C, L) or (C, L). stride is kernel_size by default; padding, at most half the kernel, never wins; with
---ceil_mode a last window may hang over the end if it begins inside. NaN wins. return_indices: also where the maxima
---are, int64 positions within a plane. Integers stay integers.
---@param input cnn.Tensor
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param dilation? integer|integer[] default 1
---@param ceil_mode? boolean default false
---@param return_indices? boolean default false
---@return cnn.Tensor, cnn.Tensor
---@overload fun(input: cnn.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], dilation?: integer|integer[], ceil_mode?: boolean, return_indices?: boolean}): cnn.Tensor, cnn.Tensor
function cnn.max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices) end

---Maximum of each window over 1 spatial dims.
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param dilation? integer|integer[] default 1
---@param ceil_mode? boolean default false
---@param return_indices? boolean default false
---@return cnn.Tensor, cnn.Tensor
---@overload fun(self: cnn.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], dilation?: integer|integer[], ceil_mode?: boolean, return_indices?: boolean}): cnn.Tensor, cnn.Tensor
function Tensor:max_pool1d(kernel_size, stride, padding, dilation, ceil_mode, return_indices) end

---Maximum of each window over 2 spatial dims.
---input (N, C, H, W) or (C, H, W). stride is kernel_size by default; padding, at most half the kernel, never wins; with
---ceil_mode a last window may hang over the end if it begins inside. NaN wins. return_indices: also where the maxima
---are, int64 positions within a plane. Integers stay integers.
---@param input cnn.Tensor
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param dilation? integer|integer[] default 1
---@param ceil_mode? boolean default false
---@param return_indices? boolean default false
---@return cnn.Tensor, cnn.Tensor
---@overload fun(input: cnn.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], dilation?: integer|integer[], ceil_mode?: boolean, return_indices?: boolean}): cnn.Tensor, cnn.Tensor
function cnn.max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices) end

---Maximum of each window over 2 spatial dims.
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param dilation? integer|integer[] default 1
---@param ceil_mode? boolean default false
---@param return_indices? boolean default false
---@return cnn.Tensor, cnn.Tensor
---@overload fun(self: cnn.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], dilation?: integer|integer[], ceil_mode?: boolean, return_indices?: boolean}): cnn.Tensor, cnn.Tensor
function Tensor:max_pool2d(kernel_size, stride, padding, dilation, ceil_mode, return_indices) end

---Maximum of each window over 3 spatial dims.
---input (N, C, D, H, W) or (C, D, H, W). stride is kernel_size by default; padding, at most half the kernel, never
---wins; with ceil_mode a last window may hang over the end if it begins inside. NaN wins. return_indices: also where
---the maxima are, int64 positions within a plane. Integers stay integers.
---@param input cnn.Tensor
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param dilation? integer|integer[] default 1
---@param ceil_mode? boolean default false
---@param return_indices? boolean default false
---@return cnn.Tensor, cnn.Tensor
---@overload fun(input: cnn.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], dilation?: integer|integer[], ceil_mode?: boolean, return_indices?: boolean}): cnn.Tensor, cnn.Tensor
function cnn.max_pool3d(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices) end

---Maximum of each window over 3 spatial dims.
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param dilation? integer|integer[] default 1
---@param ceil_mode? boolean default false
---@param return_indices? boolean default false
---@return cnn.Tensor, cnn.Tensor
---@overload fun(self: cnn.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], dilation?: integer|integer[], ceil_mode?: boolean, return_indices?: boolean}): cnn.Tensor, cnn.Tensor
function Tensor:max_pool3d(kernel_size, stride, padding, dilation, ceil_mode, return_indices) end

---The larger of x and y; NaN if either is. Equal values share the gradient.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.maximum(x, y) end

---The larger of x and y; NaN if either is. Equal values share the gradient.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:maximum(y) end

---The larger of x and y; NaN if either is. Equal values share the gradient.
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:maximum_(y) end

---Mean of all elements, or over the given dims; of nothing it is NaN. Integers need a float dtype.
---@param x cnn.Tensor
---@param dim? integer|integer[]
---@param keepdim? boolean default false
---@param dtype? cnn.dtype
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {dim?: integer|integer[], keepdim?: boolean, dtype?: cnn.dtype}): cnn.Tensor
function cnn.mean(x, dim, keepdim, dtype) end

---Mean of all elements, or over the given dims; of nothing it is NaN. Integers need a float dtype.
---@param dim? integer|integer[]
---@param keepdim? boolean default false
---@param dtype? cnn.dtype
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {dim?: integer|integer[], keepdim?: boolean, dtype?: cnn.dtype}): cnn.Tensor
function Tensor:mean(dim, keepdim, dtype) end

---The median, the lower one of two (one result); with a dim, the medians along it and their positions (two results).
---NaN if any element is; of no floats it is NaN too.
---@param x cnn.Tensor
---@param dim? integer
---@param keepdim? boolean default false
---@return cnn.Tensor, cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {dim?: integer, keepdim?: boolean}): cnn.Tensor, cnn.Tensor
function cnn.median(x, dim, keepdim) end

---The median, the lower one of two (one result); with a dim, the medians along it and their positions (two results).
---NaN if any element is; of no floats it is NaN too.
---@param dim? integer
---@param keepdim? boolean default false
---@return cnn.Tensor, cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {dim?: integer, keepdim?: boolean}): cnn.Tensor, cnn.Tensor
function Tensor:median(dim, keepdim) end

---A list of grids, one per vector: grid k holds vector k's value at every point. With indexing "xy" the first two dims
---are exchanged.
---@param tensors cnn.Tensor[]
---@param indexing? "ij"|"xy" default "ij"
---@return cnn.Tensor[]
---@overload fun(tensors: cnn.Tensor[], options: {indexing?: "ij"|"xy"}): cnn.Tensor[]
function cnn.meshgrid(tensors, indexing) end

---The smallest element (one result, equal ones share the gradient); with a dim, the smallest elements along it and
---their positions (two results; the first of equals has the gradient); with another tensor, the smaller of each two
---elements (see minimum).
---@param x cnn.Tensor
---@param dim? integer|cnn.Tensor
---@param keepdim? boolean default false
---@return cnn.Tensor, cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {dim?: integer|cnn.Tensor, keepdim?: boolean}): cnn.Tensor, cnn.Tensor
function cnn.min(x, dim, keepdim) end

---The smallest element (one result, equal ones share the gradient); with a dim, the smallest elements along it and
---their positions (two results; the first of equals has the gradient); with another tensor, the smaller of each two
---elements (see minimum).
---@param dim? integer|cnn.Tensor
---@param keepdim? boolean default false
---@return cnn.Tensor, cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {dim?: integer|cnn.Tensor, keepdim?: boolean}): cnn.Tensor, cnn.Tensor
function Tensor:min(dim, keepdim) end

---The smaller of x and y; NaN if either is. Equal values share the gradient.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.minimum(x, y) end

---The smaller of x and y; NaN if either is. Equal values share the gradient.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:minimum(y) end

---The smaller of x and y; NaN if either is. Equal values share the gradient.
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:minimum_(y) end

---x * tanh(softplus(x)).
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.mish(x) end

---x * tanh(softplus(x)).
---@return cnn.Tensor
function Tensor:mish() end

---x * tanh(softplus(x)).
---In place.
---@return cnn.Tensor
function Tensor:mish_() end

---Product of two matrices: (n, k) and (k, m) give (n, m).
---@param x cnn.Tensor
---@param y cnn.Tensor
---@return cnn.Tensor
function cnn.mm(x, y) end

---Product of two matrices: (n, k) and (k, m) give (n, m).
---@param y cnn.Tensor
---@return cnn.Tensor
function Tensor:mm(y) end

---Another name of movedim.
---@param x cnn.Tensor
---@param source integer|integer[]
---@param destination integer|integer[]
---@return cnn.Tensor
function cnn.moveaxis(x, source, destination) end

---Another name of movedim.
---@param source integer|integer[]
---@param destination integer|integer[]
---@return cnn.Tensor
function Tensor:moveaxis(source, destination) end

---x with the dims `source` at the places `destination`, the others in their order. A view.
---@param x cnn.Tensor
---@param source integer|integer[]
---@param destination integer|integer[]
---@return cnn.Tensor
function cnn.movedim(x, source, destination) end

---x with the dims `source` at the places `destination`, the others in their order. A view.
---@param source integer|integer[]
---@param destination integer|integer[]
---@return cnn.Tensor
function Tensor:movedim(source, destination) end

---Squared error (input - target)^2. Shapes are equal; the result is the mean, the sum, or each element's loss.
---@param input cnn.Tensor
---@param target cnn.Tensor
---@param reduction? "none"|"mean"|"sum" default "mean"
---@return cnn.Tensor
---@overload fun(input: cnn.Tensor, target: cnn.Tensor, options: {reduction?: "none"|"mean"|"sum"}): cnn.Tensor
function cnn.mse_loss(input, target, reduction) end

---Squared error (input - target)^2. Shapes are equal; the result is the mean, the sum, or each element's loss.
---@param target cnn.Tensor
---@param reduction? "none"|"mean"|"sum" default "mean"
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, target: cnn.Tensor, options: {reduction?: "none"|"mean"|"sum"}): cnn.Tensor
function Tensor:mse_loss(target, reduction) end

---Product x * y.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.mul(x, y) end

---Product x * y.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:mul(y) end

---Product x * y.
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:mul_(y) end

---Positions drawn from each row of x with probabilities in proportion to its elements, which must be >= 0 and finite. A
---position of probability 0 is never drawn. Without replacement no position is drawn twice.
---@param x cnn.Tensor
---@param num_samples integer
---@param replacement? boolean default false
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, num_samples: integer, options: {replacement?: boolean}): cnn.Tensor
function cnn.multinomial(x, num_samples, replacement) end

---Positions drawn from each row of x with probabilities in proportion to its elements, which must be >= 0 and finite. A
---position of probability 0 is never drawn. Without replacement no position is drawn twice.
---@param num_samples integer
---@param replacement? boolean default false
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, num_samples: integer, options: {replacement?: boolean}): cnn.Tensor
function Tensor:multinomial(num_samples, replacement) end

---Product of a matrix and a vector: (n, k) and (k) give (n).
---@param x cnn.Tensor
---@param y cnn.Tensor
---@return cnn.Tensor
function cnn.mv(x, y) end

---Product of a matrix and a vector: (n, k) and (k) give (n).
---@param y cnn.Tensor
---@return cnn.Tensor
function Tensor:mv(y) end

---Replaces NaN, +inf and -inf; without numbers for them, infinities become the dtype's largest and lowest finite
---values.
---@param x cnn.Tensor
---@param nan? number default 0
---@param posinf? number default math.huge
---@param neginf? number default -math.huge
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {nan?: number, posinf?: number, neginf?: number}): cnn.Tensor
function cnn.nan_to_num(x, nan, posinf, neginf) end

---Replaces NaN, +inf and -inf; without numbers for them, infinities become the dtype's largest and lowest finite
---values.
---@param nan? number default 0
---@param posinf? number default math.huge
---@param neginf? number default -math.huge
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {nan?: number, posinf?: number, neginf?: number}): cnn.Tensor
function Tensor:nan_to_num(nan, posinf, neginf) end

---Replaces NaN, +inf and -inf; without numbers for them, infinities become the dtype's largest and lowest finite
---values.
---In place.
---@param nan? number default 0
---@param posinf? number default math.huge
---@param neginf? number default -math.huge
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {nan?: number, posinf?: number, neginf?: number}): cnn.Tensor
function Tensor:nan_to_num_(nan, posinf, neginf) end

---`length` positions of a dim from `start` on: a view.
---@param x cnn.Tensor
---@param dim integer
---@param start integer
---@param length integer
---@return cnn.Tensor
function cnn.narrow(x, dim, start, length) end

---`length` positions of a dim from `start` on: a view.
---@param dim integer
---@param start integer
---@param length integer
---@return cnn.Tensor
function Tensor:narrow(dim, start, length) end

---Whether x differs from y, element by element.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.ne(x, y) end

---Whether x differs from y, element by element.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:ne(y) end

---Whether x differs from y, element by element.
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:ne_(y) end

---Negation -x.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.neg(x) end

---Negation -x.
---@return cnn.Tensor
function Tensor:neg() end

---Negation -x.
---In place.
---@return cnn.Tensor
function Tensor:neg_() end

----input at the target's class: the negative log likelihood, where input holds logarithms of probabilities
---(log_softmax). Arguments as in cross_entropy.
---@param input cnn.Tensor
---@param target cnn.Tensor
---@param weight? cnn.Tensor
---@param ignore_index? integer
---@param reduction? "none"|"mean"|"sum" default "mean"
---@return cnn.Tensor
---@overload fun(input: cnn.Tensor, target: cnn.Tensor, options: {weight?: cnn.Tensor, ignore_index?: integer, reduction?: "none"|"mean"|"sum"}): cnn.Tensor
function cnn.nll_loss(input, target, weight, ignore_index, reduction) end

----input at the target's class: the negative log likelihood, where input holds logarithms of probabilities
---(log_softmax). Arguments as in cross_entropy.
---@param target cnn.Tensor
---@param weight? cnn.Tensor
---@param ignore_index? integer
---@param reduction? "none"|"mean"|"sum" default "mean"
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, target: cnn.Tensor, options: {weight?: cnn.Tensor, ignore_index?: integer, reduction?: "none"|"mean"|"sum"}): cnn.Tensor
function Tensor:nll_loss(target, weight, ignore_index, reduction) end

---The positions of x's elements that are not 0: an int64 tensor (n, x.ndim), in row-major order. Its size depends on
---the values, so it raises on meta.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.nonzero(x) end

---The positions of x's elements that are not 0: an int64 tensor (n, x.ndim), in row-major order. Its size depends on
---the values, so it raises on meta.
---@return cnn.Tensor
function Tensor:nonzero() end

---The p-norm (sum of |x|^p)^(1/p) of all elements, or over the given dims. p = math.huge: the largest |x|; -math.huge:
---the smallest; 0: the number of elements that are not 0. Where the norm is 0, so is its gradient.
---@param x cnn.Tensor
---@param p? number default 2
---@param dim? integer|integer[]
---@param keepdim? boolean default false
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {p?: number, dim?: integer|integer[], keepdim?: boolean}): cnn.Tensor
function cnn.norm(x, p, dim, keepdim) end

---The p-norm (sum of |x|^p)^(1/p) of all elements, or over the given dims. p = math.huge: the largest |x|; -math.huge:
---the smallest; 0: the number of elements that are not 0. Where the norm is 0, so is its gradient.
---@param p? number default 2
---@param dim? integer|integer[]
---@param keepdim? boolean default false
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {p?: number, dim?: integer|integer[], keepdim?: boolean}): cnn.Tensor
function Tensor:norm(p, dim, keepdim) end

---Fills x with numbers drawn from the normal distribution with that mean and deviation.
---@param x cnn.Tensor
---@param mean? number default 0
---@param std? number default 1
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {mean?: number, std?: number}): cnn.Tensor
function cnn.normal_(x, mean, std) end

---Fills x with numbers drawn from the normal distribution with that mean and deviation.
---@param mean? number default 0
---@param std? number default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {mean?: number, std?: number}): cnn.Tensor
function Tensor:normal_(mean, std) end

---x divided by its p-norm over the given dims (dim 2, when left out), or by eps where the norm is smaller.
---@param x cnn.Tensor
---@param p? number default 2
---@param dim? integer|integer[] default 2
---@param eps? number default 1e-12
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {p?: number, dim?: integer|integer[], eps?: number}): cnn.Tensor
function cnn.normalize(x, p, dim, eps) end

---int64 vectors of size num_classes with a 1 at x's label (from 1 on) and 0 elsewhere; without num_classes, as many as
---the largest label.
---@param x cnn.Tensor
---@param num_classes? integer default -1
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {num_classes?: integer}): cnn.Tensor
function cnn.one_hot(x, num_classes) end

---A tensor of that shape, all 1.
---@param shape integer[]
---@param dtype? cnn.dtype
---@param device? cnn.device
---@param requires_grad? boolean default false
---@return cnn.Tensor
---@overload fun(...: any): cnn.Tensor
---@overload fun(shape: integer[], options: {dtype?: cnn.dtype, device?: cnn.device, requires_grad?: boolean}): cnn.Tensor
function cnn.ones(shape, dtype, device, requires_grad) end

---A tensor of x's shape, dtype, device and stride order, all 1.
---@param x cnn.Tensor
---@param dtype? cnn.dtype
---@param device? cnn.device
---@param requires_grad? boolean default false
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {dtype?: cnn.dtype, device?: cnn.device, requires_grad?: boolean}): cnn.Tensor
function cnn.ones_like(x, dtype, device, requires_grad) end

---Outer product of two vectors: (n) and (m) give (n, m), x[i] * y[j].
---@param x cnn.Tensor
---@param y cnn.Tensor
---@return cnn.Tensor
function cnn.outer(x, y) end

---Outer product of two vectors: (n) and (m) give (n, m), x[i] * y[j].
---@param y cnn.Tensor
---@return cnn.Tensor
function Tensor:outer(y) end

---x with elements added before and after its dims, or cut off where a pad is negative. `pad` holds two numbers per dim,
---from the last dim on. The new elements are `value`, or x's own: mirrored at the border (reflect), the border's
---(replicate), or those from the other end (circular).
---@param x cnn.Tensor
---@param pad integer|integer[]
---@param mode? "constant"|"reflect"|"replicate"|"circular" default "constant"
---@param value? number|boolean default 0
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, pad: integer|integer[], options: {mode?: "constant"|"reflect"|"replicate"|"circular", value?: number|boolean}): cnn.Tensor
function cnn.pad(x, pad, mode, value) end

---x with its dims in another order: result dim i is x's dim dims[i]. A view.
---@param x cnn.Tensor
---@param dims integer|integer[]
---@return cnn.Tensor
---@overload fun(...: any): cnn.Tensor
function cnn.permute(x, dims) end

---x with its dims in another order: result dim i is x's dim dims[i]. A view.
---@param dims integer|integer[]
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, ...: any): cnn.Tensor
function Tensor:permute(dims) end

---Power x^y. An integer raised to a negative integer gives 0, but for 1 and -1.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.pow(x, y) end

---Power x^y. An integer raised to a negative integer gives 0, but for 1 and -1.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:pow(y) end

---Power x^y. An integer raised to a negative integer gives 0, but for 1 and -1.
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:pow_(y) end

---Rectified linear unit with learned slopes: x for x > 0, weight * x otherwise. weight has one element, or one for each
---channel (dim 2 of x).
---@param x cnn.Tensor
---@param weight cnn.Tensor
---@return cnn.Tensor
function cnn.prelu(x, weight) end

---Rectified linear unit with learned slopes: x for x > 0, weight * x otherwise. weight has one element, or one for each
---channel (dim 2 of x).
---@param weight cnn.Tensor
---@return cnn.Tensor
function Tensor:prelu(weight) end

---Product of all elements, or over the given dims; of nothing it is 1. Integers and bools give int64. Gradients are
---right at zeros too.
---@param x cnn.Tensor
---@param dim? integer|integer[]
---@param keepdim? boolean default false
---@param dtype? cnn.dtype
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {dim?: integer|integer[], keepdim?: boolean, dtype?: cnn.dtype}): cnn.Tensor
function cnn.prod(x, dim, keepdim, dtype) end

---Product of all elements, or over the given dims; of nothing it is 1. Integers and bools give int64. Gradients are
---right at zeros too.
---@param dim? integer|integer[]
---@param keepdim? boolean default false
---@param dtype? cnn.dtype
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {dim?: integer|integer[], keepdim?: boolean, dtype?: cnn.dtype}): cnn.Tensor
function Tensor:prod(dim, keepdim, dtype) end

---Numbers drawn uniformly from [0, 1).
---@param shape integer[]
---@param dtype? cnn.dtype
---@param device? cnn.device
---@param requires_grad? boolean default false
---@return cnn.Tensor
---@overload fun(...: any): cnn.Tensor
---@overload fun(shape: integer[], options: {dtype?: cnn.dtype, device?: cnn.device, requires_grad?: boolean}): cnn.Tensor
function cnn.rand(shape, dtype, device, requires_grad) end

---A tensor like x with numbers drawn uniformly from [0, 1).
---@param x cnn.Tensor
---@param dtype? cnn.dtype
---@param device? cnn.device
---@param requires_grad? boolean default false
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {dtype?: cnn.dtype, device?: cnn.device, requires_grad?: boolean}): cnn.Tensor
function cnn.rand_like(x, dtype, device, requires_grad) end

---Integers (int64, unless a dtype is given) drawn uniformly from low to high - 1. randint(high, shape) draws from 0 on.
---The dtype must hold all of them.
---@param low integer
---@param high integer|integer[]
---@param shape? integer[]
---@param dtype? cnn.dtype
---@param device? cnn.device
---@param requires_grad? boolean default false
---@return cnn.Tensor
---@overload fun(...: any): cnn.Tensor
---@overload fun(low: integer, high: integer|integer[], options: {shape?: integer[], dtype?: cnn.dtype, device?: cnn.device, requires_grad?: boolean}): cnn.Tensor
function cnn.randint(low, high, shape, dtype, device, requires_grad) end

---A tensor like x with integers drawn uniformly from low to high - 1; randint_like(x, high) draws from 0 on.
---@param x cnn.Tensor
---@param low integer
---@param high? integer
---@param dtype? cnn.dtype
---@param device? cnn.device
---@param requires_grad? boolean default false
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, low: integer, options: {high?: integer, dtype?: cnn.dtype, device?: cnn.device, requires_grad?: boolean}): cnn.Tensor
function cnn.randint_like(x, low, high, dtype, device, requires_grad) end

---Numbers drawn from the normal distribution with mean 0 and deviation 1.
---@param shape integer[]
---@param dtype? cnn.dtype
---@param device? cnn.device
---@param requires_grad? boolean default false
---@return cnn.Tensor
---@overload fun(...: any): cnn.Tensor
---@overload fun(shape: integer[], options: {dtype?: cnn.dtype, device?: cnn.device, requires_grad?: boolean}): cnn.Tensor
function cnn.randn(shape, dtype, device, requires_grad) end

---A tensor like x with numbers drawn from the normal distribution with mean 0 and deviation 1.
---@param x cnn.Tensor
---@param dtype? cnn.dtype
---@param device? cnn.device
---@param requires_grad? boolean default false
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {dtype?: cnn.dtype, device?: cnn.device, requires_grad?: boolean}): cnn.Tensor
function cnn.randn_like(x, dtype, device, requires_grad) end

---The numbers 1 to n (int64, unless a dtype is given, which must hold them) in random order.
---@param n integer
---@param dtype? cnn.dtype
---@param device? cnn.device
---@param requires_grad? boolean default false
---@return cnn.Tensor
---@overload fun(n: integer, options: {dtype?: cnn.dtype, device?: cnn.device, requires_grad?: boolean}): cnn.Tensor
function cnn.randperm(n, dtype, device, requires_grad) end

---Another name of flatten.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.ravel(x) end

---Another name of flatten.
---@return cnn.Tensor
function Tensor:ravel() end

---Reciprocal 1 / x.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.reciprocal(x) end

---Reciprocal 1 / x.
---@return cnn.Tensor
function Tensor:reciprocal() end

---Reciprocal 1 / x.
---In place.
---@return cnn.Tensor
function Tensor:reciprocal_() end

---Rectified linear unit max(x, 0).
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.relu(x) end

---Rectified linear unit max(x, 0).
---@return cnn.Tensor
function Tensor:relu() end

---Rectified linear unit max(x, 0).
---In place.
---@return cnn.Tensor
function Tensor:relu_() end

---min(max(x, 0), 6).
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.relu6(x) end

---min(max(x, 0), 6).
---@return cnn.Tensor
function Tensor:relu6() end

---min(max(x, 0), 6).
---In place.
---@return cnn.Tensor
function Tensor:relu6_() end

---Remainder with the sign of y (as Lua's %). An integer modulo 0 gives 0.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.remainder(x, y) end

---Remainder with the sign of y (as Lua's %). An integer modulo 0 gives 0.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:remainder(y) end

---Remainder with the sign of y (as Lua's %). An integer modulo 0 gives 0.
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:remainder_(y) end

---x with each element repeated along a dim, or each slice i repeats[i] times. Without a dim, x is flattened first.
---@param x cnn.Tensor
---@param repeats cnn.Tensor|number
---@param dim? integer
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, repeats: cnn.Tensor|number, options: {dim?: integer}): cnn.Tensor
function cnn.repeat_interleave(x, repeats, dim) end

---x with each element repeated along a dim, or each slice i repeats[i] times. Without a dim, x is flattened first.
---@param repeats cnn.Tensor|number
---@param dim? integer
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, repeats: cnn.Tensor|number, options: {dim?: integer}): cnn.Tensor
function Tensor:repeat_interleave(repeats, dim) end

---The same elements in another shape: a view where that is possible, else a copy; -1 stands for what is left.
---@param x cnn.Tensor
---@param shape integer[]
---@return cnn.Tensor
---@overload fun(...: any): cnn.Tensor
function cnn.reshape(x, shape) end

---The same elements in another shape: a view where that is possible, else a copy; -1 stands for what is left.
---@param shape integer[]
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, ...: any): cnn.Tensor
function Tensor:reshape(shape) end

---x in the shape of `other`: a view where that is possible.
---@param x cnn.Tensor
---@param other cnn.Tensor
---@return cnn.Tensor
function cnn.reshape_as(x, other) end

---x in the shape of `other`: a view where that is possible.
---@param other cnn.Tensor
---@return cnn.Tensor
function Tensor:reshape_as(other) end

---x shifted along the given dims: what leaves at the end comes in at the start. Without dims, x is shifted as one row
---of elements.
---@param x cnn.Tensor
---@param shifts integer|integer[]
---@param dims? integer|integer[]
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, shifts: integer|integer[], options: {dims?: integer|integer[]}): cnn.Tensor
function cnn.roll(x, shifts, dims) end

---x shifted along the given dims: what leaves at the end comes in at the start. Without dims, x is shifted as one row
---of elements.
---@param shifts integer|integer[]
---@param dims? integer|integer[]
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, shifts: integer|integer[], options: {dims?: integer|integer[]}): cnn.Tensor
function Tensor:roll(shifts, dims) end

---Nearest integer, halves to even.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.round(x) end

---Nearest integer, halves to even.
---@return cnn.Tensor
function Tensor:round() end

---Nearest integer, halves to even.
---In place.
---@return cnn.Tensor
function Tensor:round_() end

---Reciprocal square root 1 / sqrt(x).
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.rsqrt(x) end

---Reciprocal square root 1 / sqrt(x).
---@return cnn.Tensor
function Tensor:rsqrt() end

---Reciprocal square root 1 / sqrt(x).
---In place.
---@return cnn.Tensor
function Tensor:rsqrt_() end

---x with elements of src (or one number) put along a dim: with dim = 1, x[{index[{i, j}], j}] = src[{i, j}]. Of
---elements for one place, the last one stays (the gradient takes it that no place occurs twice).
---@param x cnn.Tensor
---@param dim integer
---@param index cnn.Tensor
---@param src cnn.Tensor|number
---@return cnn.Tensor
function cnn.scatter(x, dim, index, src) end

---x with elements of src (or one number) put along a dim: with dim = 1, x[{index[{i, j}], j}] = src[{i, j}]. Of
---elements for one place, the last one stays (the gradient takes it that no place occurs twice).
---@param dim integer
---@param index cnn.Tensor
---@param src cnn.Tensor|number
---@return cnn.Tensor
function Tensor:scatter(dim, index, src) end

---x with elements of src (or one number) put along a dim: with dim = 1, x[{index[{i, j}], j}] = src[{i, j}]. Of
---elements for one place, the last one stays (the gradient takes it that no place occurs twice).
---In place.
---@param dim integer
---@param index cnn.Tensor
---@param src cnn.Tensor|number
---@return cnn.Tensor
function Tensor:scatter_(dim, index, src) end

---x with elements of src added along a dim: with dim = 1, x[{index[{i, j}], j}] += src[{i, j}].
---@param x cnn.Tensor
---@param dim integer
---@param index cnn.Tensor
---@param src cnn.Tensor
---@return cnn.Tensor
function cnn.scatter_add(x, dim, index, src) end

---x with elements of src added along a dim: with dim = 1, x[{index[{i, j}], j}] += src[{i, j}].
---@param dim integer
---@param index cnn.Tensor
---@param src cnn.Tensor
---@return cnn.Tensor
function Tensor:scatter_add(dim, index, src) end

---x with elements of src added along a dim: with dim = 1, x[{index[{i, j}], j}] += src[{i, j}].
---In place.
---@param dim integer
---@param index cnn.Tensor
---@param src cnn.Tensor
---@return cnn.Tensor
function Tensor:scatter_add_(dim, index, src) end

---The slice at one position of a dim: a view with one dim less.
---@param x cnn.Tensor
---@param dim integer
---@param index integer
---@return cnn.Tensor
function cnn.select(x, dim, index) end

---The slice at one position of a dim: a view with one dim less.
---@param dim integer
---@param index integer
---@return cnn.Tensor
function Tensor:select(dim, index) end

---Scaled exponential linear unit (Klambauer et al., 2017).
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.selu(x) end

---Scaled exponential linear unit (Klambauer et al., 2017).
---@return cnn.Tensor
function Tensor:selu() end

---Scaled exponential linear unit (Klambauer et al., 2017).
---In place.
---@return cnn.Tensor
function Tensor:selu_() end

---Logistic function 1 / (1 + e^-x).
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.sigmoid(x) end

---Logistic function 1 / (1 + e^-x).
---@return cnn.Tensor
function Tensor:sigmoid() end

---Logistic function 1 / (1 + e^-x).
---In place.
---@return cnn.Tensor
function Tensor:sigmoid_() end

---Sign: -1, 0 or 1; NaN stays NaN.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.sign(x) end

---Sign: -1, 0 or 1; NaN stays NaN.
---@return cnn.Tensor
function Tensor:sign() end

---Sign: -1, 0 or 1; NaN stays NaN.
---In place.
---@return cnn.Tensor
function Tensor:sign_() end

---Sigmoid linear unit (swish) x * sigmoid(x).
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.silu(x) end

---Sigmoid linear unit (swish) x * sigmoid(x).
---@return cnn.Tensor
function Tensor:silu() end

---Sigmoid linear unit (swish) x * sigmoid(x).
---In place.
---@return cnn.Tensor
function Tensor:silu_() end

---Sine, x in radians.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.sin(x) end

---Sine, x in radians.
---@return cnn.Tensor
function Tensor:sin() end

---Sine, x in radians.
---In place.
---@return cnn.Tensor
function Tensor:sin_() end

---Normalized sinc sin(pi x) / (pi x); 1 at 0.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.sinc(x) end

---Normalized sinc sin(pi x) / (pi x); 1 at 0.
---@return cnn.Tensor
function Tensor:sinc() end

---Normalized sinc sin(pi x) / (pi x); 1 at 0.
---In place.
---@return cnn.Tensor
function Tensor:sinc_() end

---Hyperbolic sine.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.sinh(x) end

---Hyperbolic sine.
---@return cnn.Tensor
function Tensor:sinh() end

---Hyperbolic sine.
---In place.
---@return cnn.Tensor
function Tensor:sinh_() end

---With d = |input - target|: d^2 / (2 beta) where d < beta, else d - beta / 2. Shapes are equal; the result is the
---mean, the sum, or each element's loss.
---@param input cnn.Tensor
---@param target cnn.Tensor
---@param reduction? "none"|"mean"|"sum" default "mean"
---@param beta? number default 1
---@return cnn.Tensor
---@overload fun(input: cnn.Tensor, target: cnn.Tensor, options: {reduction?: "none"|"mean"|"sum", beta?: number}): cnn.Tensor
function cnn.smooth_l1_loss(input, target, reduction, beta) end

---With d = |input - target|: d^2 / (2 beta) where d < beta, else d - beta / 2. Shapes are equal; the result is the
---mean, the sum, or each element's loss.
---@param target cnn.Tensor
---@param reduction? "none"|"mean"|"sum" default "mean"
---@param beta? number default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, target: cnn.Tensor, options: {reduction?: "none"|"mean"|"sum", beta?: number}): cnn.Tensor
function Tensor:smooth_l1_loss(target, reduction, beta) end

---e^x over its sum along a dim: positive numbers that sum to 1.
---@param x cnn.Tensor
---@param dim integer
---@param dtype? cnn.dtype
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, dim: integer, options: {dtype?: cnn.dtype}): cnn.Tensor
function cnn.softmax(x, dim, dtype) end

---e^x over its sum along a dim: positive numbers that sum to 1.
---@param dim integer
---@param dtype? cnn.dtype
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, dim: integer, options: {dtype?: cnn.dtype}): cnn.Tensor
function Tensor:softmax(dim, dtype) end

---Softmax of -x along a dim.
---@param x cnn.Tensor
---@param dim integer
---@param dtype? cnn.dtype
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, dim: integer, options: {dtype?: cnn.dtype}): cnn.Tensor
function cnn.softmin(x, dim, dtype) end

---Softmax of -x along a dim.
---@param dim integer
---@param dtype? cnn.dtype
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, dim: integer, options: {dtype?: cnn.dtype}): cnn.Tensor
function Tensor:softmin(dim, dtype) end

---log(1 + e^(beta x)) / beta; x itself where beta x > threshold.
---@param x cnn.Tensor
---@param beta? number default 1
---@param threshold? number default 20
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {beta?: number, threshold?: number}): cnn.Tensor
function cnn.softplus(x, beta, threshold) end

---log(1 + e^(beta x)) / beta; x itself where beta x > threshold.
---@param beta? number default 1
---@param threshold? number default 20
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {beta?: number, threshold?: number}): cnn.Tensor
function Tensor:softplus(beta, threshold) end

---log(1 + e^(beta x)) / beta; x itself where beta x > threshold.
---In place.
---@param beta? number default 1
---@param threshold? number default 20
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {beta?: number, threshold?: number}): cnn.Tensor
function Tensor:softplus_(beta, threshold) end

---x - lambd, x + lambd or, within [-lambd, lambd], 0.
---@param x cnn.Tensor
---@param lambd? number default 0.5
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {lambd?: number}): cnn.Tensor
function cnn.softshrink(x, lambd) end

---x - lambd, x + lambd or, within [-lambd, lambd], 0.
---@param lambd? number default 0.5
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {lambd?: number}): cnn.Tensor
function Tensor:softshrink(lambd) end

---x - lambd, x + lambd or, within [-lambd, lambd], 0.
---In place.
---@param lambd? number default 0.5
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {lambd?: number}): cnn.Tensor
function Tensor:softshrink_(lambd) end

---x / (1 + |x|).
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.softsign(x) end

---x / (1 + |x|).
---@return cnn.Tensor
function Tensor:softsign() end

---x / (1 + |x|).
---In place.
---@return cnn.Tensor
function Tensor:softsign_() end

---A list of views that cut a dim into pieces of `size` (the last one may be shorter), or of the sizes in a list.
---@param x cnn.Tensor
---@param size integer|integer[]
---@param dim? integer default 1
---@return cnn.Tensor[]
---@overload fun(x: cnn.Tensor, size: integer|integer[], options: {dim?: integer}): cnn.Tensor[]
function cnn.split(x, size, dim) end

---A list of views that cut a dim into pieces of `size` (the last one may be shorter), or of the sizes in a list.
---@param size integer|integer[]
---@param dim? integer default 1
---@return cnn.Tensor[]
---@overload fun(self: cnn.Tensor, size: integer|integer[], options: {dim?: integer}): cnn.Tensor[]
function Tensor:split(size, dim) end

---Square root.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.sqrt(x) end

---Square root.
---@return cnn.Tensor
function Tensor:sqrt() end

---Square root.
---In place.
---@return cnn.Tensor
function Tensor:sqrt_() end

---Square x * x.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.square(x) end

---Square x * x.
---@return cnn.Tensor
function Tensor:square() end

---Square x * x.
---In place.
---@return cnn.Tensor
function Tensor:square_() end

---x without its dims of size 1, or without those of `dim` that have size 1. A view.
---@param x cnn.Tensor
---@param dim? integer|integer[]
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {dim?: integer|integer[]}): cnn.Tensor
function cnn.squeeze(x, dim) end

---x without its dims of size 1, or without those of `dim` that have size 1. A view.
---@param dim? integer|integer[]
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {dim?: integer|integer[]}): cnn.Tensor
function Tensor:squeeze(dim) end

---Tensors of one shape along a new dim.
---@param tensors cnn.Tensor[]
---@param dim? integer default 1
---@return cnn.Tensor
---@overload fun(tensors: cnn.Tensor[], options: {dim?: integer}): cnn.Tensor
function cnn.stack(tensors, dim) end

---Standard deviation: the square root of the variance (see var). Where it is 0, so is its gradient.
---@param x cnn.Tensor
---@param dim? integer|integer[]
---@param unbiased? boolean
---@param keepdim? boolean default false
---@param correction? number
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {dim?: integer|integer[], unbiased?: boolean, keepdim?: boolean, correction?: number}): cnn.Tensor
function cnn.std(x, dim, unbiased, keepdim, correction) end

---Standard deviation: the square root of the variance (see var). Where it is 0, so is its gradient.
---@param dim? integer|integer[]
---@param unbiased? boolean
---@param keepdim? boolean default false
---@param correction? number
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {dim?: integer|integer[], unbiased?: boolean, keepdim?: boolean, correction?: number}): cnn.Tensor
function Tensor:std(dim, unbiased, keepdim, correction) end

---Difference x - alpha * y.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@param alpha? number default 1
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor|number, y: cnn.Tensor|number, options: {alpha?: number}): cnn.Tensor
function cnn.sub(x, y, alpha) end

---Difference x - alpha * y.
---@param y cnn.Tensor|number
---@param alpha? number default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, y: cnn.Tensor|number, options: {alpha?: number}): cnn.Tensor
function Tensor:sub(y, alpha) end

---Difference x - alpha * y.
---In place.
---@param y cnn.Tensor|number
---@param alpha? number default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, y: cnn.Tensor|number, options: {alpha?: number}): cnn.Tensor
function Tensor:sub_(y, alpha) end

---Sum over all elements, or over the given dims. Integers and bools give int64; dtype sets the result's and what is
---added in.
---@param x cnn.Tensor
---@param dim? integer|integer[]
---@param keepdim? boolean default false
---@param dtype? cnn.dtype
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {dim?: integer|integer[], keepdim?: boolean, dtype?: cnn.dtype}): cnn.Tensor
function cnn.sum(x, dim, keepdim, dtype) end

---Sum over all elements, or over the given dims. Integers and bools give int64; dtype sets the result's and what is
---added in.
---@param dim? integer|integer[]
---@param keepdim? boolean default false
---@param dtype? cnn.dtype
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {dim?: integer|integer[], keepdim?: boolean, dtype?: cnn.dtype}): cnn.Tensor
function Tensor:sum(dim, keepdim, dtype) end

---Another name of transpose.
---@param x cnn.Tensor
---@param dim0 integer
---@param dim1 integer
---@return cnn.Tensor
function cnn.swapaxes(x, dim0, dim1) end

---Another name of transpose.
---@param dim0 integer
---@param dim1 integer
---@return cnn.Tensor
function Tensor:swapaxes(dim0, dim1) end

---Another name of transpose.
---@param x cnn.Tensor
---@param dim0 integer
---@param dim1 integer
---@return cnn.Tensor
function cnn.swapdims(x, dim0, dim1) end

---Another name of transpose.
---@param dim0 integer
---@param dim1 integer
---@return cnn.Tensor
function Tensor:swapdims(dim0, dim1) end

---The transpose of a matrix: a view. A tensor with fewer dims is given back as it is.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.t(x) end

---The transpose of a matrix: a view. A tensor with fewer dims is given back as it is.
---@return cnn.Tensor
function Tensor:t() end

---The elements of x at positions in its row-major order, in index's shape.
---@param x cnn.Tensor
---@param index cnn.Tensor
---@return cnn.Tensor
function cnn.take(x, index) end

---The elements of x at positions in its row-major order, in index's shape.
---@param index cnn.Tensor
---@return cnn.Tensor
function Tensor:take(index) end

---gather, with x and index broadcast to each other in every dim but `dim`: the companion of argmax and argsort. Without
---a dim, both are taken as rows.
---@param x cnn.Tensor
---@param index cnn.Tensor
---@param dim? integer
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, index: cnn.Tensor, options: {dim?: integer}): cnn.Tensor
function cnn.take_along_dim(x, index, dim) end

---gather, with x and index broadcast to each other in every dim but `dim`: the companion of argmax and argsort. Without
---a dim, both are taken as rows.
---@param index cnn.Tensor
---@param dim? integer
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, index: cnn.Tensor, options: {dim?: integer}): cnn.Tensor
function Tensor:take_along_dim(index, dim) end

---Tangent, x in radians.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.tan(x) end

---Tangent, x in radians.
---@return cnn.Tensor
function Tensor:tan() end

---Tangent, x in radians.
---In place.
---@return cnn.Tensor
function Tensor:tan_() end

---Hyperbolic tangent.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.tanh(x) end

---Hyperbolic tangent.
---@return cnn.Tensor
function Tensor:tanh() end

---Hyperbolic tangent.
---In place.
---@return cnn.Tensor
function Tensor:tanh_() end

---x - tanh(x).
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.tanhshrink(x) end

---x - tanh(x).
---@return cnn.Tensor
function Tensor:tanhshrink() end

---x - tanh(x).
---In place.
---@return cnn.Tensor
function Tensor:tanhshrink_() end

---Sum of products over pairs of dims: dims = {{2, 3}, {1, 2}} pairs x's dim 2 with y's dim 1 and x's 3 with y's 2; a
---number n pairs x's last n dims with y's first n. The result has x's other dims, then y's.
---@param x cnn.Tensor
---@param y cnn.Tensor
---@param dims? integer|integer[][] default 2
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, y: cnn.Tensor, options: {dims?: integer|integer[][]}): cnn.Tensor
function cnn.tensordot(x, y, dims) end

---Sum of products over pairs of dims: dims = {{2, 3}, {1, 2}} pairs x's dim 2 with y's dim 1 and x's 3 with y's 2; a
---number n pairs x's last n dims with y's first n. The result has x's other dims, then y's.
---@param y cnn.Tensor
---@param dims? integer|integer[][] default 2
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, y: cnn.Tensor, options: {dims?: integer|integer[][]}): cnn.Tensor
function Tensor:tensordot(y, dims) end

---x where x > threshold, else value.
---@param x cnn.Tensor
---@param threshold number
---@param value number
---@return cnn.Tensor
function cnn.threshold(x, threshold, value) end

---x where x > threshold, else value.
---@param threshold number
---@param value number
---@return cnn.Tensor
function Tensor:threshold(threshold, value) end

---x where x > threshold, else value.
---In place.
---@param threshold number
---@param value number
---@return cnn.Tensor
function Tensor:threshold_(threshold, value) end

---x repeated times[i] times along each dim i; more entries than dims add leading dims. Always a copy. (PyTorch's
---repeat, which is a reserved word in Lua.)
---@param x cnn.Tensor
---@param times integer[]
---@return cnn.Tensor
---@overload fun(...: any): cnn.Tensor
function cnn.tile(x, times) end

---x repeated times[i] times along each dim i; more entries than dims add leading dims. Always a copy. (PyTorch's
---repeat, which is a reserved word in Lua.)
---@param times integer[]
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, ...: any): cnn.Tensor
function Tensor:tile(times) end

---x with two dims exchanged. A view.
---@param x cnn.Tensor
---@param dim0 integer
---@param dim1 integer
---@return cnn.Tensor
function cnn.transpose(x, dim0, dim1) end

---x with two dims exchanged. A view.
---@param dim0 integer
---@param dim1 integer
---@return cnn.Tensor
function Tensor:transpose(dim0, dim1) end

---The lower triangles of x's matrices (its last two dims), the rest 0: element (i, j) is kept where j - i <= diagonal.
---@param x cnn.Tensor
---@param diagonal? integer default 0
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {diagonal?: integer}): cnn.Tensor
function cnn.tril(x, diagonal) end

---The lower triangles of x's matrices (its last two dims), the rest 0: element (i, j) is kept where j - i <= diagonal.
---@param diagonal? integer default 0
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {diagonal?: integer}): cnn.Tensor
function Tensor:tril(diagonal) end

---The lower triangles of x's matrices (its last two dims), the rest 0: element (i, j) is kept where j - i <= diagonal.
---In place.
---@param diagonal? integer default 0
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {diagonal?: integer}): cnn.Tensor
function Tensor:tril_(diagonal) end

---The upper triangles of x's matrices (its last two dims), the rest 0: element (i, j) is kept where j - i >= diagonal.
---@param x cnn.Tensor
---@param diagonal? integer default 0
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {diagonal?: integer}): cnn.Tensor
function cnn.triu(x, diagonal) end

---The upper triangles of x's matrices (its last two dims), the rest 0: element (i, j) is kept where j - i >= diagonal.
---@param diagonal? integer default 0
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {diagonal?: integer}): cnn.Tensor
function Tensor:triu(diagonal) end

---The upper triangles of x's matrices (its last two dims), the rest 0: element (i, j) is kept where j - i >= diagonal.
---In place.
---@param diagonal? integer default 0
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {diagonal?: integer}): cnn.Tensor
function Tensor:triu_(diagonal) end

---Integer part, towards zero.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.trunc(x) end

---Integer part, towards zero.
---@return cnn.Tensor
function Tensor:trunc() end

---Integer part, towards zero.
---In place.
---@return cnn.Tensor
function Tensor:trunc_() end

---Quotient rounded towards zero. An integer divided by 0 gives 0.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.trunc_divide(x, y) end

---Quotient rounded towards zero. An integer divided by 0 gives 0.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:trunc_divide(y) end

---Quotient rounded towards zero. An integer divided by 0 gives 0.
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:trunc_divide_(y) end

---A list of the slices along a dim, views with one dim less.
---@param x cnn.Tensor
---@param dim? integer default 1
---@return cnn.Tensor[]
---@overload fun(x: cnn.Tensor, options: {dim?: integer}): cnn.Tensor[]
function cnn.unbind(x, dim) end

---A list of the slices along a dim, views with one dim less.
---@param dim? integer default 1
---@return cnn.Tensor[]
---@overload fun(self: cnn.Tensor, options: {dim?: integer}): cnn.Tensor[]
function Tensor:unbind(dim) end

---x with one dim split into dims of the given sizes; -1 stands for what is left. A view.
---@param x cnn.Tensor
---@param dim integer
---@param sizes integer[]
---@return cnn.Tensor
function cnn.unflatten(x, dim, sizes) end

---x with one dim split into dims of the given sizes; -1 stands for what is left. A view.
---@param dim integer
---@param sizes integer[]
---@return cnn.Tensor
function Tensor:unflatten(dim, sizes) end

---Windows of `size` positions along a dim, `step` apart: dim counts the windows, and a new last dim the positions in
---one. A view.
---@param x cnn.Tensor
---@param dim integer
---@param size integer
---@param step? integer default 1
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, dim: integer, size: integer, options: {step?: integer}): cnn.Tensor
function cnn.unfold(x, dim, size, step) end

---Windows of `size` positions along a dim, `step` apart: dim counts the windows, and a new last dim the positions in
---one. A view.
---@param dim integer
---@param size integer
---@param step? integer default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, dim: integer, size: integer, options: {step?: integer}): cnn.Tensor
function Tensor:unfold(dim, size, step) end

---Fills x with numbers drawn uniformly from [low, high).
---@param x cnn.Tensor
---@param low? number default 0
---@param high? number default 1
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {low?: number, high?: number}): cnn.Tensor
function cnn.uniform_(x, low, high) end

---Fills x with numbers drawn uniformly from [low, high).
---@param low? number default 0
---@param high? number default 1
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {low?: number, high?: number}): cnn.Tensor
function Tensor:uniform_(low, high) end

---x with a dim of size 1 inserted at `dim`. A view.
---@param x cnn.Tensor
---@param dim integer
---@return cnn.Tensor
function cnn.unsqueeze(x, dim) end

---x with a dim of size 1 inserted at `dim`. A view.
---@param dim integer
---@return cnn.Tensor
function Tensor:unsqueeze(dim) end

---Variance of all elements, or over the given dims: the sum of squared deviations from the mean, divided by n -
---correction. correction is 1; unbiased = false makes it 0.
---@param x cnn.Tensor
---@param dim? integer|integer[]
---@param unbiased? boolean
---@param keepdim? boolean default false
---@param correction? number
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {dim?: integer|integer[], unbiased?: boolean, keepdim?: boolean, correction?: number}): cnn.Tensor
function cnn.var(x, dim, unbiased, keepdim, correction) end

---Variance of all elements, or over the given dims: the sum of squared deviations from the mean, divided by n -
---correction. correction is 1; unbiased = false makes it 0.
---@param dim? integer|integer[]
---@param unbiased? boolean
---@param keepdim? boolean default false
---@param correction? number
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {dim?: integer|integer[], unbiased?: boolean, keepdim?: boolean, correction?: number}): cnn.Tensor
function Tensor:var(dim, unbiased, keepdim, correction) end

---Variance (see var) and mean of all elements, or over the given dims.
---@param x cnn.Tensor
---@param dim? integer|integer[]
---@param unbiased? boolean
---@param keepdim? boolean default false
---@param correction? number
---@return cnn.Tensor, cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {dim?: integer|integer[], unbiased?: boolean, keepdim?: boolean, correction?: number}): cnn.Tensor, cnn.Tensor
function cnn.var_mean(x, dim, unbiased, keepdim, correction) end

---Variance (see var) and mean of all elements, or over the given dims.
---@param dim? integer|integer[]
---@param unbiased? boolean
---@param keepdim? boolean default false
---@param correction? number
---@return cnn.Tensor, cnn.Tensor
---@overload fun(self: cnn.Tensor, options: {dim?: integer|integer[], unbiased?: boolean, keepdim?: boolean, correction?: number}): cnn.Tensor, cnn.Tensor
function Tensor:var_mean(dim, unbiased, keepdim, correction) end

---The same elements in another shape, without a copy; -1 stands for what is left.
---@param x cnn.Tensor
---@param shape integer[]
---@return cnn.Tensor
---@overload fun(...: any): cnn.Tensor
function cnn.view(x, shape) end

---The same elements in another shape, without a copy; -1 stands for what is left.
---@param shape integer[]
---@return cnn.Tensor
---@overload fun(self: cnn.Tensor, ...: any): cnn.Tensor
function Tensor:view(shape) end

---x seen in the shape of `other`.
---@param x cnn.Tensor
---@param other cnn.Tensor
---@return cnn.Tensor
function cnn.view_as(x, other) end

---x seen in the shape of `other`.
---@param other cnn.Tensor
---@return cnn.Tensor
function Tensor:view_as(other) end

---The tensors below each other: along the first dim, vectors as rows.
---@param tensors cnn.Tensor[]
---@return cnn.Tensor
function cnn.vstack(tensors) end

---x where the condition is true, else y.
---@param condition cnn.Tensor
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.where(condition, x, y) end

---x where the condition is true, else y.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:where(x, y) end

---x * log(y), 0 where x is 0.
---@param x cnn.Tensor|number
---@param y cnn.Tensor|number
---@return cnn.Tensor
function cnn.xlogy(x, y) end

---x * log(y), 0 where x is 0.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:xlogy(y) end

---x * log(y), 0 where x is 0.
---In place.
---@param y cnn.Tensor|number
---@return cnn.Tensor
function Tensor:xlogy_(y) end

---Sets every element of x to 0.
---@param x cnn.Tensor
---@return cnn.Tensor
function cnn.zero_(x) end

---Sets every element of x to 0.
---@return cnn.Tensor
function Tensor:zero_() end

---A tensor of that shape, all 0.
---@param shape integer[]
---@param dtype? cnn.dtype
---@param device? cnn.device
---@param requires_grad? boolean default false
---@return cnn.Tensor
---@overload fun(...: any): cnn.Tensor
---@overload fun(shape: integer[], options: {dtype?: cnn.dtype, device?: cnn.device, requires_grad?: boolean}): cnn.Tensor
function cnn.zeros(shape, dtype, device, requires_grad) end

---A tensor of x's shape, dtype, device and stride order, all 0.
---@param x cnn.Tensor
---@param dtype? cnn.dtype
---@param device? cnn.device
---@param requires_grad? boolean default false
---@return cnn.Tensor
---@overload fun(x: cnn.Tensor, options: {dtype?: cnn.dtype, device?: cnn.device, requires_grad?: boolean}): cnn.Tensor
function cnn.zeros_like(x, dtype, device, requires_grad) end

function Tensor:backward(...) end

---@return cnn.Tensor
function Tensor:bfloat16(...) end

---@return cnn.Tensor
function Tensor:bool(...) end

---@return cnn.Tensor
function Tensor:byte(...) end

---@return cnn.Tensor
function Tensor:char(...) end

---@return cnn.Tensor
function Tensor:cpu(...) end

---@return cnn.Tensor
function Tensor:cuda(...) end

---@return integer
function Tensor:data_ptr(...) end

---@return cnn.Tensor
function Tensor:detach(...) end

---@return integer
function Tensor:dim(...) end

---@return cnn.Tensor
function Tensor:double(...) end

---@return integer
function Tensor:element_size(...) end

---@return cnn.Tensor
function Tensor:float(...) end

function Tensor:free(...) end

---@return number
function Tensor:get(...) end

---@return cnn.Tensor
function Tensor:half(...) end

---@return boolean
function Tensor:has_shape(...) end

---@return cnn.Tensor
function Tensor:int(...) end

---@return boolean
function Tensor:is_contiguous(...) end

---@return boolean
function Tensor:is_floating_point(...) end

---@return cnn.Tensor
function Tensor:is_pinned(...) end

---@return number|boolean
function Tensor:item(...) end

---@return fun(): integer, cnn.Tensor
function Tensor:iter(...) end

---@return cnn.Tensor
function Tensor:long(...) end

---@return integer
function Tensor:numel(...) end

---@return cnn.Tensor
function Tensor:pin_memory(...) end

---@return cnn.Tensor
function Tensor:record_stream(...) end

---@return table
function Tensor:register_hook(...) end

---@return cnn.Tensor
function Tensor:requires_grad_(...) end

function Tensor:set(...) end

---@return boolean
function Tensor:shares_storage(...) end

---@return cnn.Tensor
function Tensor:short(...) end

---@return any
function Tensor:size(...) end

---@return integer
function Tensor:storage_offset(...) end

---@return any
function Tensor:stride(...) end

---@return cnn.Tensor
function Tensor:to(...) end

---@return any
function Tensor:totable(...) end

---@return cnn.Tensor
function Tensor:type_as(...) end

---@return cnn.Tensor ...
function Tensor:unpack(...) end

---@return integer
function Tensor:version(...) end

---@return cnn.Module
function Module:add_module(...) end

---@return cnn.Module
function Module:append(...) end

---@return cnn.Module
function Module:apply(...) end

---@return cnn.Module
function Module:bfloat16(...) end

---@return cnn.Tensor[]
function Module:buffers(...) end

---@return cnn.Module[]
function Module:children(...) end

---@return cnn.Module
function Module:cpu(...) end

---@return cnn.Module
function Module:cuda(...) end

---@return cnn.Module
function Module:double(...) end

---@return cnn.Module
function Module:eval(...) end

---@return any
function Module:extend(...) end

---@return cnn.Module
function Module:extend_list(...) end

---@return string
function Module:extra_repr(...) end

---@return cnn.Module
function Module:float(...) end

---@return any
function Module:forward(...) end

---@return cnn.Module
function Module:get_submodule(...) end

---@return cnn.Module
function Module:half(...) end

---@return fun(): integer, cnn.Module
function Module:iter(...) end

---@return any
function Module:load_state_dict(...) end

---@return cnn.Module[]
function Module:modules(...) end

---@return fun(): string, cnn.Tensor
function Module:named_buffers(...) end

---@return fun(): string, cnn.Module
function Module:named_children(...) end

---@return fun(): string, cnn.Module
function Module:named_modules(...) end

---@return fun(): string, cnn.Tensor
function Module:named_parameters(...) end

---@return integer
function Module:num_parameters(...) end

---@return cnn.Tensor[]
function Module:parameters(...) end

---@return cnn.Module
function Module:register_buffer(...) end

---@return table
function Module:register_forward_hook(...) end

---@return table
function Module:register_forward_pre_hook(...) end

---@return cnn.Module
function Module:register_module(...) end

---@return cnn.Module
function Module:register_parameter(...) end

---@return cnn.Module
function Module:requires_grad_(...) end

---@return table<string, cnn.Tensor>
function Module:state_dict(...) end

---@return any
function Module:summary(...) end

---@return cnn.Module
function Module:to(...) end

---@return cnn.Module
function Module:train(...) end

---@return cnn.Module
function Module:zero_grad(...) end

---@return cnn.Optimizer
function Optimizer:add_param_group(...) end

---@return cnn.Optimizer
function Optimizer:attach(...) end

---@return any
function Optimizer:extend(...) end

---@return cnn.Optimizer
function Optimizer:load_state_dict(...) end

---@return cnn.Optimizer
function Optimizer:reset_state(...) end

---@return table
function Optimizer:state_dict(...) end

---@return any
function Optimizer:step(...) end

---@return cnn.Optimizer
function Optimizer:zero_grad(...) end

---Mean pooling to a given output size.
---@param output_size integer|integer[]
---@return cnn.Module
function nn.AdaptiveAvgPool2d(output_size) end

---Max pooling to a given output size.
---@param output_size integer|integer[]
---@return cnn.Module
function nn.AdaptiveMaxPool2d(output_size) end

---The mean of each window.
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param ceil_mode? boolean default false
---@param count_include_pad? boolean default true
---@param divisor_override? integer
---@return cnn.Module
---@overload fun(kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], ceil_mode?: boolean, count_include_pad?: boolean, divisor_override?: integer}): cnn.Module
function nn.AvgPool2d(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override) end

---Binary cross entropy of probabilities.
---@param weight? cnn.Tensor
---@param reduction? "none"|"mean"|"sum" default "mean"
---@return cnn.Module
---@overload fun(options: {weight?: cnn.Tensor, reduction?: "none"|"mean"|"sum"}): cnn.Module
function nn.BCELoss(weight, reduction) end

---Binary cross entropy of logits.
---@param weight? cnn.Tensor
---@param reduction? "none"|"mean"|"sum" default "mean"
---@param pos_weight? cnn.Tensor
---@return cnn.Module
---@overload fun(options: {weight?: cnn.Tensor, reduction?: "none"|"mean"|"sum", pos_weight?: cnn.Tensor}): cnn.Module
function nn.BCEWithLogitsLoss(weight, reduction, pos_weight) end

---Batch normalisation over (N, C) or (N, C, L).
---@param num_features integer
---@param eps? number default 1e-05
---@param momentum? number default 0.1
---@param affine? boolean default true
---@param track_running_stats? boolean default true
---@param device? cnn.device
---@param dtype? cnn.dtype
---@return cnn.Module
---@overload fun(num_features: integer, options: {eps?: number, momentum?: number, affine?: boolean, track_running_stats?: boolean, device?: cnn.device, dtype?: cnn.dtype}): cnn.Module
function nn.BatchNorm1d(num_features, eps, momentum, affine, track_running_stats, device, dtype) end

---Batch normalisation over (N, C, H, W).
---@param num_features integer
---@param eps? number default 1e-05
---@param momentum? number default 0.1
---@param affine? boolean default true
---@param track_running_stats? boolean default true
---@param device? cnn.device
---@param dtype? cnn.dtype
---@return cnn.Module
---@overload fun(num_features: integer, options: {eps?: number, momentum?: number, affine?: boolean, track_running_stats?: boolean, device?: cnn.device, dtype?: cnn.dtype}): cnn.Module
function nn.BatchNorm2d(num_features, eps, momentum, affine, track_running_stats, device, dtype) end

---Continuously differentiable exponential linear unit.
---@param alpha? number default 1
---@return cnn.Module
---@overload fun(options: {alpha?: number}): cnn.Module
function nn.CELU(alpha) end

---2-d convolution: (N, in_channels, H, W) to (N, out_channels, H', W').
---@param in_channels integer
---@param out_channels integer
---@param kernel_size integer|integer[]
---@param stride? integer|integer[] default 1
---@param padding? integer|integer[]|"same"|"valid" default 0
---@param dilation? integer|integer[] default 1
---@param groups? integer default 1
---@param bias? boolean default true
---@param padding_mode? "zeros"|"reflect"|"replicate"|"circular" default "zeros"
---@param device? cnn.device
---@param dtype? cnn.dtype
---@return cnn.Module
---@overload fun(in_channels: integer, out_channels: integer, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[]|"same"|"valid", dilation?: integer|integer[], groups?: integer, bias?: boolean, padding_mode?: "zeros"|"reflect"|"replicate"|"circular", device?: cnn.device, dtype?: cnn.dtype}): cnn.Module
function nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype) end

---Cross entropy of logits with labels from 1, or class probabilities.
---@param weight? cnn.Tensor
---@param ignore_index? integer
---@param reduction? "none"|"mean"|"sum" default "mean"
---@param label_smoothing? number default 0
---@return cnn.Module
---@overload fun(options: {weight?: cnn.Tensor, ignore_index?: integer, reduction?: "none"|"mean"|"sum", label_smoothing?: number}): cnn.Module
function nn.CrossEntropyLoss(weight, ignore_index, reduction, label_smoothing) end

---In training, zeroes elements with probability p and scales the others by 1 / (1 - p).
---@param p? number default 0.5
---@return cnn.Module
---@overload fun(options: {p?: number}): cnn.Module
function nn.Dropout(p) end

---Exponential linear unit.
---@param alpha? number default 1
---@return cnn.Module
---@overload fun(options: {alpha?: number}): cnn.Module
function nn.ELU(alpha) end

---A table of vectors looked up by ids from 1: (...) to (..., embedding_dim).
---@param num_embeddings integer
---@param embedding_dim integer
---@param padding_idx? integer
---@param device? cnn.device
---@param dtype? cnn.dtype
---@return cnn.Module
---@overload fun(num_embeddings: integer, embedding_dim: integer, options: {padding_idx?: integer, device?: cnn.device, dtype?: cnn.dtype}): cnn.Module
function nn.Embedding(num_embeddings, embedding_dim, padding_idx, device, dtype) end

---Joins the dims from start_dim (2 by default) to end_dim (the last) into one.
---@param start_dim? integer default 2
---@param end_dim? integer default -1
---@return cnn.Module
---@overload fun(options: {start_dim?: integer, end_dim?: integer}): cnn.Module
function nn.Flatten(start_dim, end_dim) end

---Gaussian error linear unit.
---@param approximate? "none"|"tanh" default "none"
---@return cnn.Module
---@overload fun(options: {approximate?: "none"|"tanh"}): cnn.Module
function nn.GELU(approximate) end

---a * sigmoid(b), a and b the halves of a dim.
---@param dim? integer default -1
---@return cnn.Module
---@overload fun(options: {dim?: integer}): cnn.Module
function nn.GLU(dim) end

---Hard thresholding.
---@param lambd? number default 0.5
---@return cnn.Module
---@overload fun(options: {lambd?: number}): cnn.Module
function nn.Hardshrink(lambd) end

---min(max(x / 6 + 1/2, 0), 1).
---@return cnn.Module
function nn.Hardsigmoid(...) end

---x * min(max(x + 3, 0), 6) / 6.
---@return cnn.Module
function nn.Hardswish(...) end

---x clamped to [min_val, max_val].
---@param min_val? number default -1
---@param max_val? number default 1
---@return cnn.Module
---@overload fun(options: {min_val?: number, max_val?: number}): cnn.Module
function nn.Hardtanh(min_val, max_val) end

---Squared below delta, linear above, times delta.
---@param reduction? "none"|"mean"|"sum" default "mean"
---@param delta? number default 1
---@return cnn.Module
---@overload fun(options: {reduction?: "none"|"mean"|"sum", delta?: number}): cnn.Module
function nn.HuberLoss(reduction, delta) end

---Gives its input back.
---@return cnn.Module
function nn.Identity(...) end

---Mean absolute error.
---@param reduction? "none"|"mean"|"sum" default "mean"
---@return cnn.Module
---@overload fun(options: {reduction?: "none"|"mean"|"sum"}): cnn.Module
function nn.L1Loss(reduction) end

---Normalises over the last dims, given by their sizes.
---@param normalized_shape integer[]
---@param eps? number default 1e-05
---@param elementwise_affine? boolean default true
---@param bias? boolean default true
---@param device? cnn.device
---@param dtype? cnn.dtype
---@return cnn.Module
---@overload fun(normalized_shape: integer[], options: {eps?: number, elementwise_affine?: boolean, bias?: boolean, device?: cnn.device, dtype?: cnn.dtype}): cnn.Module
function nn.LayerNorm(normalized_shape, eps, elementwise_affine, bias, device, dtype) end

---x for x > 0, negative_slope * x otherwise.
---@param negative_slope? number default 0.01
---@return cnn.Module
---@overload fun(options: {negative_slope?: number}): cnn.Module
function nn.LeakyReLU(negative_slope) end

---y = x W^T + b on the last dim: (..., in_features) to (..., out_features).
---@param in_features integer
---@param out_features integer
---@param bias? boolean default true
---@param device? cnn.device
---@param dtype? cnn.dtype
---@return cnn.Module
---@overload fun(in_features: integer, out_features: integer, options: {bias?: boolean, device?: cnn.device, dtype?: cnn.dtype}): cnn.Module
function nn.Linear(in_features, out_features, bias, device, dtype) end

---log(sigmoid(x)).
---@return cnn.Module
function nn.LogSigmoid(...) end

---Logarithm of softmax along a dim.
---@param dim integer
---@return cnn.Module
function nn.LogSoftmax(dim) end

---Mean squared error.
---@param reduction? "none"|"mean"|"sum" default "mean"
---@return cnn.Module
---@overload fun(options: {reduction?: "none"|"mean"|"sum"}): cnn.Module
function nn.MSELoss(reduction) end

---The largest element of each window.
---@param kernel_size integer|integer[]
---@param stride? integer|integer[]
---@param padding? integer|integer[] default 0
---@param dilation? integer|integer[] default 1
---@param ceil_mode? boolean default false
---@return cnn.Module
---@overload fun(kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], dilation?: integer|integer[], ceil_mode?: boolean}): cnn.Module
function nn.MaxPool2d(kernel_size, stride, padding, dilation, ceil_mode) end

---x * tanh(softplus(x)).
---@return cnn.Module
function nn.Mish(...) end

---Modules by name: ModuleDict{enc = a}. No forward.
---@return cnn.Module
function nn.ModuleDict(...) end

---A list of modules: ModuleList{a, b}. No forward.
---@return cnn.Module
function nn.ModuleList(...) end

---Negative log likelihood of labels from 1.
---@param weight? cnn.Tensor
---@param ignore_index? integer
---@param reduction? "none"|"mean"|"sum" default "mean"
---@return cnn.Module
---@overload fun(options: {weight?: cnn.Tensor, ignore_index?: integer, reduction?: "none"|"mean"|"sum"}): cnn.Module
function nn.NLLLoss(weight, ignore_index, reduction) end

---Leaky ReLU with learned slopes.
---@param num_parameters? integer default 1
---@param init? number default 0.25
---@param device? cnn.device
---@param dtype? cnn.dtype
---@return cnn.Module
---@overload fun(options: {num_parameters?: integer, init?: number, device?: cnn.device, dtype?: cnn.dtype}): cnn.Module
function nn.PReLU(num_parameters, init, device, dtype) end

---max(x, 0).
---@return cnn.Module
function nn.ReLU(...) end

---min(max(x, 0), 6).
---@return cnn.Module
function nn.ReLU6(...) end

---Scaled exponential linear unit.
---@return cnn.Module
function nn.SELU(...) end

---Modules applied one after the other: Sequential(a, b, c), or Sequential{{"name", a}, ...}.
---@return cnn.Module
function nn.Sequential(...) end

---x * sigmoid(x).
---@return cnn.Module
function nn.SiLU(...) end

---1 / (1 + e^-x).
---@return cnn.Module
function nn.Sigmoid(...) end

---Squared below beta, linear above.
---@param reduction? "none"|"mean"|"sum" default "mean"
---@param beta? number default 1
---@return cnn.Module
---@overload fun(options: {reduction?: "none"|"mean"|"sum", beta?: number}): cnn.Module
function nn.SmoothL1Loss(reduction, beta) end

---Softmax along a dim.
---@param dim integer
---@return cnn.Module
function nn.Softmax(dim) end

---Softmax of -x along a dim.
---@param dim integer
---@return cnn.Module
function nn.Softmin(dim) end

---log(1 + e^(beta x)) / beta.
---@param beta? number default 1
---@param threshold? number default 20
---@return cnn.Module
---@overload fun(options: {beta?: number, threshold?: number}): cnn.Module
function nn.Softplus(beta, threshold) end

---Soft thresholding.
---@param lambd? number default 0.5
---@return cnn.Module
---@overload fun(options: {lambd?: number}): cnn.Module
function nn.Softshrink(lambd) end

---x / (1 + |x|).
---@return cnn.Module
function nn.Softsign(...) end

---Hyperbolic tangent.
---@return cnn.Module
function nn.Tanh(...) end

---x - tanh(x).
---@return cnn.Module
function nn.Tanhshrink(...) end

---x where x > threshold, else value.
---@param threshold number
---@param value number
---@return cnn.Module
function nn.Threshold(threshold, value) end

---Splits a dim into several.
---@param dim integer
---@param sizes integer[]
---@return cnn.Module
function nn.Unflatten(dim, sizes) end

---@param t cnn.Tensor
---@return cnn.Tensor
function nn.Parameter(t, ...) end

---@param parameters cnn.Tensor[]|table[]
---@param options? table
---@return cnn.Optimizer
function optim.Adagrad(parameters, options) end

---@param parameters cnn.Tensor[]|table[]
---@param options? table
---@return cnn.Optimizer
function optim.Adam(parameters, options) end

---@param parameters cnn.Tensor[]|table[]
---@param options? table
---@return cnn.Optimizer
function optim.AdamW(parameters, options) end

---@param parameters cnn.Tensor[]|table[]
---@param options? table
---@return cnn.Optimizer
function optim.RMSprop(parameters, options) end

---@param parameters cnn.Tensor[]|table[]
---@param options? table
---@return cnn.Optimizer
function optim.SGD(parameters, options) end

---a tensor of nested lists, a number, or a copy of a tensor
---@param values any
---@param options? any
---@return any ...
function cnn.tensor(values, options) end

---whether a value is a tensor
---@param value any
---@return any ...
function cnn.is_tensor(value) end

---starts the random generator anew
---@param n any
---@return any ...
function cnn.manual_seed(n) end

---the generator's state, for set_rng_state
---@return any ...
function cnn.get_rng_state() end

---puts the generator where it was
---@param state any
---@return any ...
function cnn.set_rng_state(state) end

---the float dtype that numbers become
---@param dtype any
---@return any ...
function cnn.set_default_dtype(dtype) end

---where new tensors are made
---@param device any
---@return any ...
function cnn.set_default_device(device) end

---gradients of outputs by inputs
---@param outputs any
---@param inputs any
---@param options? any
---@return any ...
function cnn.grad(outputs, inputs, options) end

---calls fn(...) without recording
---@param fn any
---@param ... any
---@return any ...
function cnn.no_grad(fn, ...) end

---calls fn(...) with recording on
---@param fn any
---@param ... any
---@return any ...
function cnn.enable_grad(fn, ...) end

---no_grad whose results may never enter a graph
---@param fn any
---@param ... any
---@return any ...
function cnn.inference_mode(fn, ...) end

---turns recording on or off
---@param on any
---@return any ...
function cnn.set_grad_enabled(on) end

---whether ops are recorded
---@return any ...
function cnn.is_grad_enabled() end

---an operation with its gradient, written in Lua
---@param options? any
---@return any ...
function cnn.Function(options) end

---calls fn(...) and keeps no activations: backward runs it again
---@param fn any
---@param ... any
---@return any ...
function cnn.checkpoint(fn, ...) end

---a Sequential under checkpoints, in segments
---@param model any
---@param segments any
---@param x any
---@return any ...
function cnn.checkpoint_sequential(model, segments, x) end

---gradients against difference quotients
---@param fn any
---@param inputs any
---@param options? any
---@return any ...
function cnn.gradcheck(fn, inputs, options) end

---finds the op whose gradient is NaN, and the line of its forward
---@param fn any
---@param ... any
---@return any ...
function cnn.detect_anomaly(fn, ...) end

---calls fn(...), then frees every tensor made inside but those returned
---@param fn any
---@param ... any
---@return any ...
function cnn.scope(fn, ...) end

---takes tensors out of the scope they were made in
---@param ... any
---@return any ...
function cnn.keep(...) end

---calls fn(...); what the graph saves waits on the CPU, or in a file
---@param fn any
---@param options? any
---@param ... any
---@return any ...
function cnn.save_on_cpu(fn, options, ...) end

---bytes in use
---@param dev any
---@return any ...
function cnn.memory_allocated(dev) end

---the most bytes that were in use
---@param dev any
---@return any ...
function cnn.max_memory_allocated(dev) end

---peaks count from now
---@param dev any
---@return any ...
function cnn.reset_peak_memory_stats(dev) end

---bytes taken from the device, cache included
---@param dev any
---@return any ...
function cnn.memory_reserved(dev) end

---all counters
---@param dev any
---@return any ...
function cnn.memory_stats(dev) end

---all counters, as a text to read
---@param dev any
---@return any ...
function cnn.memory_summary(dev) end

---the peak that a model will have, by what it is for, before it runs
---@param model any
---@param options? any
---@return any ...
function cnn.estimate(model, options) end

---the largest batch that fits into limit bytes, and its estimate
---@param model any
---@param limit any
---@param options? any
---@return any ...
function cnn.max_batch(model, limit, options) end

---the peaks of real runs, and the line through them
---@param model any
---@param options? any
---@return any ...
function cnn.measure_memory(model, options) end

---what training holds for each parameter, as a table
---@param optimizer any
---@param precision any
---@return any ...
function cnn.bytes_per_parameter(optimizer, precision) end

---what lives, the largest first, and what holds it; prints as a table
---@param options? any
---@return any ...
function cnn.live(options) end

---what fn(...) left behind, with the lines that made it
---@param fn any
---@param ... any
---@return any ...
function cnn.leaks(fn, ...) end

---writes down who allocates and frees
---@param on any
---@param options? any
---@return any ...
function cnn.record_memory(on, options) end

---segments, blocks and events; as a page to look at
---@param options? any
---@return any ...
function cnn.memory_snapshot(options) end

---free and total bytes of the device
---@param dev any
---@return any ...
function cnn.mem_get_info(dev) end

---gives cached blocks back to the device; the bytes given back
---@param dev any
---@return any ...
function cnn.empty_cache(dev) end

---caps a device; without bytes: the default again
---@param bytes any
---@param dev any
---@return any ...
function cnn.set_memory_limit(bytes, dev) end

---caps a device at a share of its memory
---@param fraction any
---@param dev any
---@return any ...
function cnn.set_memory_fraction(fraction, dev) end

---a pool of its own on a device: pool:stats(), pool:limit(bytes)
---@param options? any
---@return any ...
function cnn.pool(options) end

---calls fn(...); what is allocated inside comes from the pool
---@param pool any
---@param fn any
---@param ... any
---@return any ...
function cnn.with_pool(pool, fn, ...) end

---new memory is NaN, and writes out of a tensor's bytes are found
---@param on any
---@return any ...
function cnn.memory_debug(on) end

---how the collector is paced; gives settings and counts
---@param options? any
---@return any ...
function cnn.gc(options) end

---waits for the device
---@param dev any
---@return any ...
function cnn.synchronize(dev) end

---whether a GPU can be used; if not, also why
---@return any ...
function cuda.is_available() end

---GPUs are computed on the CPU from now on: to learn, and to find faults
---@return any ...
function cuda.simulate() end

---how many there are
---@return any ...
function cuda.device_count() end

---name, memory, processors ... of one
---@param dev any
---@return any ...
function cuda.get_device_properties(dev) end

---which one "cuda" means
---@param dev any
---@return any ...
function cuda.set_device(dev) end

---waits for every op, so that errors name the line that made them
---@param on any
---@return any ...
function cuda.set_sync(on) end

---work that goes on beside other work: cnn.cuda.stream(s, fn)
---@param options? any
---@return any ...
function cuda.Stream(options) end

---a CUDA kernel of your own: k({grid =, block =}, x, y, n)
---@param source any
---@param name any
---@param options? any
---@return any ...
function cuda.kernel(source, name, options) end

---what fn launched and moved on GPUs: kernels, read, written, syncs, by_op ...
---@param fn any
---@param ... any
---@return any ...
function cnn.count_launches(fn, ...) end

---tables of tensors, numbers, strings, booleans to a file
---@param path any
---@param value any
---@param options? any
---@return any ...
function cnn.save(path, value, options) end

---what save wrote, or another program; then the file's metadata
---@param path any
---@param options? any
---@return any ...
function cnn.load(path, options) end

---batches: for i, x, y in loader:iter() do
---@param ds any
---@param options? any
---@return any ...
function data.DataLoader(ds, options) end

---sample i is x[i], y[i], ...
---@param x any
---@param y any
---@param ... any
---@return any ...
function data.TensorDataset(x, y, ...) end

---the samples at these positions
---@param ds any
---@param indices any
---@return any ...
function data.Subset(ds, indices) end

---a list of subsets, by sizes or shares
---@param ds any
---@param parts any
---@param options? any
---@return any ...
function data.random_split(ds, parts, options) end

---(x * scale - mean) / std, of a tensor or batch by batch
---@param x any
---@param options? any
---@return any ...
function data.normalize(x, options) end

---images (N, 1, 28, 28) and labels 1..10; also data.mnist
---@param options? any
---@return any ...
function data.fashion_mnist(options) end

---images (N, 3, 32, 32) and labels 1..10
---@param options? any
---@return any ...
function data.cifar10(options) end

---the tensor in an IDX file, packed by gzip or not
---@param path any
---@return any ...
function data.read_idx(path) end

---a file's bytes as a uint8 tensor
---@param path any
---@return any ...
function data.read_bytes(path) end

---threads for large work; 0: as many as there are cores
---@param n any
---@return any ...
function cnn.set_num_threads(n) end

---how tensors print
---@param options? any
---@return any ...
function cnn.set_printoptions(options) end

---this; of one name: all about it
---@param name any
---@return any ...
function cnn.help(name) end

---a list of all ops with their arguments and docs
---@param options? any
---@return any ...
function cnn.ops(options) end

return cnn
