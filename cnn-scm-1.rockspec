-- SPDX-License-Identifier: MIT
rockspec_format = "3.0"
package = "cnn"
version = "scm-1"

-- `luarocks make` builds the tree it stands in and fetches nothing. To pack a source rock luarocks
-- wants an absolute address: `make rock` writes the tree's own in here.
source = {
  url = "git+file://.",
}

description = {
  summary = "Deep learning for Lua",
  detailed = [[
Tensors, automatic differentiation, modules and optimizers, computed by a core in C. Loads in
milliseconds and weighs a few megabytes.]],
  license = "MIT",
}

supported_platforms = { "linux" }

dependencies = {
  "lua >= 5.1, < 5.5", -- LuaJIT counts as 5.1; there is no build for 5.2
}

external_dependencies = {
  ZLIB = { header = "zlib.h" },
  CJSON = { header = "cjson/cJSON.h" },
  -- oneDNN (2.6 or newer) is used where oneapi/dnnl/dnnl.h is found, and done without where not.
}

build = {
  type = "make",
  build_variables = {
    LUA = "$(LUA)",
    LUA_INCDIR = "$(LUA_INCDIR)",
    ROCK_CFLAGS = "$(CFLAGS)",
    CC = "$(CC)",
    BUILD = "build/luarocks",
  },
  install_variables = {
    LUA = "$(LUA)",
    LUA_INCDIR = "$(LUA_INCDIR)",
    ROCK_CFLAGS = "$(CFLAGS)",
    CC = "$(CC)",
    BUILD = "build/luarocks",
    INST_BINDIR = "$(BINDIR)",
    INST_LUADIR = "$(LUADIR)",
    INST_LIBDIR = "$(LIBDIR)",
  },
}
