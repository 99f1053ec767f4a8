-- Two matrix products in CUDA, C = A B. The naive one loads a row of A and a column of B for each element of C:
-- 2 M N K loads. The tiled one brings tiles of T x T into shared memory, and each element of a tile serves T
-- threads: M N K (1/T + 1/T) loads. The simulator counts them.
--   luajit examples/fundamentals/tiled_gemm.lua [--device cuda]
local cnn = require "cnn"
local ok, why = pcall(function() return cnn.cuda.is_available() or cnn.cuda.simulate() end)
if not ok then return print("needs a GPU, or its simulator: " .. why:gsub("^.-: ", "", 1)) end
local M, N, K, T = 48, 32, 64, 16

local source = ([[
  #define T %d
  __global__ void naive(const float *A, const float *B, float *C, int N, int K) {
    int row = blockIdx.y * T + threadIdx.y, column = blockIdx.x * T + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < K; k++) sum += A[row * K + k] * B[k * N + column];
    C[row * N + column] = sum;
  }
  __global__ void tiled(const float *A, const float *B, float *C, int N, int K) {
    __shared__ float a[T][T], b[T][T];
    int row = blockIdx.y * T + threadIdx.y, column = blockIdx.x * T + threadIdx.x;
    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += T) {
      a[threadIdx.y][threadIdx.x] = A[row * K + k0 + threadIdx.x]; // each thread brings one element of each tile
      b[threadIdx.y][threadIdx.x] = B[(k0 + threadIdx.y) * N + column];
      __syncthreads(); // the tiles are whole
      for (int k = 0; k < T; k++) sum += a[threadIdx.y][k] * b[k][threadIdx.x];
      __syncthreads(); // nobody needs them any more
    }
    C[row * N + column] = sum;
  }]]):format(T)

cnn.manual_seed(1)
local A, B = cnn.randn(M, K, { device = "cuda" }), cnn.randn(K, N, { device = "cuda" })
local loads = { naive = 2 * M * N * K, tiled = M * N * K * (1 / T + 1 / T) }
for _, name in ipairs { "naive", "tiled" } do
  local kernel, C = cnn.cuda.kernel(source, name), cnn.zeros(M, N, { device = "cuda" })
  local counts = cnn.count_launches(kernel, { grid = { N / T, M / T }, block = { T, T } }, A, B, C, N, K)
  local seen = counts.by_kernel and counts.by_kernel[name] -- a GPU does not count
  print(("%s: %d loads by the formula, %s measured, equal: %s"):format(name, loads[name],
    seen and seen.loads or "not", seen and tostring(seen.loads == loads[name]) or "-"))
  if seen then print(("  shared memory: %d loads, %d stores, %d barriers"):format(seen.shared_loads,
    seen.shared_stores, seen.barriers)) end
  print("  equals A:matmul(B): " .. tostring((C - A:matmul(B)):abs():max():item() < 1e-4))
end
