-- SPDX-License-Identifier: MIT
-- Where bin/cnn starts Lua for everything but scripts.
local status = require("cnn.repl").main(...)
io.flush()
os.exit(status)
