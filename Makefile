# SPDX-License-Identifier: MIT
# make            builds the module for LuaJIT (LUA=lua5.1, lua5.3, lua5.4 choose another)
# make demo       sets up, builds, trains examples/fashion_mnist.lua
# make test       sets up, builds, runs the specs on LuaJIT; test-all repeats on PUC 5.1, 5.3, 5.4
# make asan       runs the specs on an ASan + UBSan build
# make lint       luacheck, clang-format, warnings as errors
# make install    PREFIX=/usr/local
# make env        prints the settings by which scripts run from the tree: eval "$(make -s env)"

LUA ?= luajit
BUILD ?= build
MODE ?= release
PREFIX ?= /usr/local
CC ?= gcc
PKG_CONFIG ?= pkg-config

# LuaJIT loads what is built against the 5.1 headers, which serve both.
ifneq (,$(filter luajit% lua5.1 lua51 lua-5.1,$(LUA)))
ABI := 5.1
else ifneq (,$(findstring 5.3,$(LUA)))
ABI := 5.3
else ifneq (,$(findstring 5.4,$(LUA)))
ABI := 5.4
else
$(error LUA=$(LUA): use luajit, lua5.1, lua5.3 or lua5.4)
endif

LUA_INCDIR ?= $(firstword $(wildcard /usr/include/lua$(ABI) /usr/local/include/lua$(ABI)) \
  $(patsubst -I%,%,$(filter -I%,$(shell $(PKG_CONFIG) --cflags lua$(ABI) 2>/dev/null))))

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Werror
# -O3 with no traps and no errno vectorises; never -ffast-math. initial-exec: thread-local state is
# a few words.
BASE := -std=c11 -D_GNU_SOURCE -Icsrc -fPIC -fvisibility=hidden -fopenmp-simd -pthread
OPT_release := -O3 -fno-math-errno -fno-trapping-math -g1 -DNDEBUG
OPT_asan := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined \
  -fno-math-errno -fno-trapping-math
OPT_tsan := -O1 -g -fsanitize=thread -fno-math-errno -fno-trapping-math
LINK_asan := -fsanitize=address,undefined
LINK_tsan := -fsanitize=thread
CFLAGS ?=
# What every translation unit gets, in this order; a packager's CFLAGS come last.
FLAGS := $(BASE) $(OPT_$(MODE)) $(WARN) $(CFLAGS)
# The module must stay mapped: worker threads may still run when the host closes it.
SHARED := -shared -pthread -Wl,-z,nodelete -Wl,--no-undefined $(LINK_$(MODE))

OUT := $(BUILD)/$(MODE)
MODULE := $(OUT)/lua/$(ABI)/cnn

CORE_SRC := $(wildcard csrc/base/*.c csrc/memory/*.c csrc/tensor/*.c csrc/engine/*.c csrc/ops/*.c \
  csrc/cpu/*.c csrc/nn/*.c csrc/optim/*.c csrc/io/*.c csrc/cnn.c)
LUA_SRC := $(wildcard csrc/lua/*.c)
CORE_OBJ := $(CORE_SRC:csrc/%.c=$(OUT)/obj/%.o)
LUA_OBJ := $(LUA_SRC:csrc/%.c=$(OUT)/obj/$(ABI)/%.o)

all: $(MODULE)/core.so

$(OUT)/obj/%.o: csrc/%.c Makefile
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -MMD -MP -c $< -o $@

$(OUT)/obj/$(ABI)/%.o: csrc/%.c Makefile
	@mkdir -p $(@D)
	$(CC) $(FLAGS) -I$(LUA_INCDIR) -MMD -MP -c $< -o $@

$(MODULE)/core.so: $(CORE_OBJ) $(LUA_OBJ)
	@mkdir -p $(@D)
	$(CC) $(filter-out -Wl$(comma)--no-undefined,$(SHARED)) -o $@ $^ -lm

comma := ,

clean:
	rm -rf $(BUILD)

env:
	@echo 'export LUA_PATH="$(CURDIR)/lua/?.lua;$(CURDIR)/lua/?/init.lua;;"'
	@echo 'export LUA_CPATH="$(CURDIR)/$(OUT)/lua/$(ABI)/?.so;;"'

.PHONY: all clean env
-include $(CORE_OBJ:.o=.d) $(LUA_OBJ:.o=.d)
