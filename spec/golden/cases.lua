-- SPDX-License-Identifier: MIT
-- Which golden cases must pass: whole files, or the cases whose names match one of the patterns. Two kinds
-- are left out, with the reason: `not_on_device`, patterns that compute nothing on a GPU; `not_half`, a
-- pattern of cases that no half type can hold.
return {
  { file = "unary" },
  { file = "activation" },
  { file = "binary" },
  { file = "reduce", not_half = { "^logsumexp far$", "the gradient is e^(x - result), the result 1001.3 ± 0.25" } },
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
  {
    file = "train", match = { "^mlp", "^convolutions", "^tied", " lr$" },
    not_on_device = { [" lr$"] = "schedules of learning rates are numbers" },
    not_half = { "^mlp", "AdamW's second moments are squares of small gradients: 0 in float16" },
  },
}
