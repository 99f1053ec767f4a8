-- SPDX-License-Identifier: MIT
-- Where bin/cnn starts Lua for everything but scripts.
local status = require("cnn.repl").main(...)
io.flush()
if status ~= 0 then os.exit(status, true) end
