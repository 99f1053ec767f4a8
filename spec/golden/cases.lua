-- SPDX-License-Identifier: MIT
-- Which golden cases must pass: whole files, or the cases whose names match one of the patterns.
return {
  { file = "unary" },
  { file = "activation" },
  { file = "binary" },
  { file = "reduce" },
  { file = "matmul" },
  { file = "shape" },
  { file = "norm", match = { "^layer_norm", "^batch_norm" } },
  { file = "loss", match = { "^mse", "^bce logits", "^nll", "^cross_entropy" } },
  { file = "pool", match = { "^max_pool2d", "^avg_pool2d", "^adaptive_%a+_pool2d" } },
  { file = "conv", match = { "^conv2d" } },
  {
    file = "index",
    match = { "^index_select", "^gather", "^embedding", "^mask", "^nonzero", "^tensor index", "^take_along" },
  },
  { file = "optim", match = { "^sgd", "^adam", "^rmsprop" } },
  { file = "train", match = { "^mlp", "^convolutions", "^tied", " lr$" } },
}
