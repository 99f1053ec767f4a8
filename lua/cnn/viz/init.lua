-- SPDX-License-Identifier: MIT
-- cnn.viz: pictures as text (SVG, DOT), made without other libraries.
--
--   cnn.viz.graph(loss, {names = model}):save("graph.svg")
--   cnn.viz.plot({ {name = "train", y = losses} }, {title = "Loss", log = "y"}):save("loss.svg")
--   cnn.viz.memory(cnn.memory_snapshot()):save("memory.html")
local viz = {}

viz.graph = require("cnn.viz.graph").graph
viz.memory = require("cnn.viz.memory").memory
viz.plot = require("cnn.viz.plot").plot

return viz
