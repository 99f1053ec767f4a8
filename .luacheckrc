-- SPDX-License-Identifier: MIT
<<<<<<< HEAD
-- The library runs on every Lua, so all their globals are known; the specs run it on each.
std = "max"
max_line_length = 120
-- not (x <= y) is meant where NaN must fail; a method inside a method has a self of its own.
ignore = { "581", "432/self" }
files["spec"] = { std = "max+busted" }
=======
std = "luajit+lua51"
max_line_length = 110
exclude_files = { "build" }
files["spec/**/*_spec.lua"] = { std = "+busted" }
-- Written by a program: every case names all that it could use.
files["spec/golden"] = { max_line_length = false, unused_args = false, ignore = { "211" } }
>>>>>>> 87dd7a4 (Build, set-up, test runner)
