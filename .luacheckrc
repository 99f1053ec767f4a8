-- SPDX-License-Identifier: MIT
-- The library runs on every Lua, so all their globals are known; the specs run it on each.
std = "max"
max_line_length = 120
exclude_files = { "build" }
-- not (x <= y) is meant where NaN must fail; a method inside a method has a self of its own.
ignore = { "581", "43./self" }
files["spec"] = { std = "max+busted" }
-- Written by a program: every case names all that it could use.
files["spec/golden"] = { max_line_length = false, unused_args = false, ignore = { "211" } }
-- Written by tools/docs.lua for editors: functions without bodies.
files["lua/cnn/types.lua"] = { max_line_length = false, unused_args = false, ignore = { "241" } }
files["spec/format_cases.lua"] = { max_line_length = false }
