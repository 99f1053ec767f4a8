# SPDX-License-Identifier: MIT
#
# make            builds for LuaJIT (LUA=lua5.1, lua5.3 or lua5.4 choose another) into build/release, and
#                 the plugin for GPUs where nvcc is found (CUDA=0: without)
# make demo       sets up, builds, trains examples/fashion_mnist.lua
# make test       sets up, builds, runs the C tests, the specs on LuaJIT and the golden values
# make test-all   the specs on LuaJIT and on PUC Lua 5.1, 5.3 and 5.4
# make asan       C tests and specs on a build with AddressSanitizer and UBSan; make tsan: C tests
# make lint       luacheck, clang-format, and builds by gcc and clang with warnings as errors
# make docs       writes what is generated from the registry: docs/ops.md, docs/layers.md, lua/cnn/types.lua
# make check-generated  fails where that is not up to date, or docs/adding-an-op.md not true
# make embed      builds and runs examples/embed/main.c, a host in C
# make install    PREFIX=/usr/local, DESTDIR= for packagers
# make rock       packs this tree's last commit into a source rock, by luarocks
# make packaging  proves install, luarocks and the source rock in temporary folders
# make cuda       builds the plugin for all GPUs (docs/cuda.md); make test-cuda-sim: tests it without one
# make check-cuda holds it against CUDA's compilers and libraries; cuda/check.sh: on a GPU
# make env        prints what lets scripts run from the tree: eval "$(make -s env)"
# make clean
#
# V=1 shows whole commands. CFLAGS and LDFLAGS are added to the project's own. MODE=asan or tsan
# builds into build/asan or build/tsan. PLUGINS= builds without plugins.

LUA ?= luajit
MODE ?= release
BUILD ?= build
PREFIX ?= /usr/local
PKG_CONFIG ?= pkg-config
INSTALL ?= install
STRIP ?= strip
LUAROCKS ?= luarocks

OUT := $(BUILD)/$(MODE)
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:

# ---- Lua -------------------------------------------------------------------------------------

# The version whose binary interface counts. LuaJIT's is 5.1's: one module serves both.
ABI := $(strip $(if $(filter %luajit,$(LUA)),5.1,$(foreach v,5.1 5.3 5.4,\
  $(if $(or $(findstring lua$v,$(LUA)),$(findstring lua-$v,$(LUA)),\
  $(findstring lua$(subst .,,$v),$(LUA))),$v))))
ifeq (,$(ABI))
ABI := $(shell $(LUA) -e 'io.write(_VERSION:match("%d.%d"))' 2>/dev/null)
endif
ifeq (,$(filter 5.1 5.3 5.4,$(ABI)))
$(error LUA=$(LUA): use luajit, lua5.1, lua5.3 or lua5.4)
endif

# Where its headers are: asked of pkg-config by all the names in use, else looked for.
PC_5.1 := luajit lua5.1 lua-5.1 lua51
PC_5.3 := lua5.3 lua-5.3 lua53
PC_5.4 := lua5.4 lua-5.4 lua54
ifeq (,$(LUA_INCDIR))
LUA_INCDIR := $(shell \
  for name in $(PC_$(ABI)); do $(PKG_CONFIG) --variable=includedir $$name 2>/dev/null; done | \
  while read -r d; do [ -f "$$d/lua.h" ] && echo "$$d" && break; done)
endif
ifeq (,$(LUA_INCDIR))
LUA_INCDIR := $(patsubst %/lua.h,%,$(firstword $(wildcard $(foreach p,/usr/include /usr/local/include,\
  $(if $(filter 5.1,$(ABI)),$p/luajit-2.1/lua.h) $p/lua$(ABI)/lua.h $p/lua-$(ABI)/lua.h))))
endif

# ---- Compiling -------------------------------------------------------------------------------

# (clang's pass-failed tells of loops that did not become vector code: a measurement, no warning.)
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
  -Wno-pass-failed -Wno-unknown-warning-option
# Warnings are errors where the compilers are known (make lint). Elsewhere a guess of the compiler's
# that depends on its version is no news to those who only build.
ifdef WERROR
WARN += -Werror
else
WARN += -Wno-maybe-uninitialized
endif
# -O3 without traps and errno lets loops become vector code; -ffast-math never.
MATH := -fno-math-errno -fno-trapping-math
OPT_release := -O3 -g1 -DNDEBUG $(MATH)
OPT_asan := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined \
  -fno-sanitize-recover=undefined $(MATH)
OPT_tsan := -O1 -g -fsanitize=thread $(MATH)
ifeq (,$(OPT_$(MODE)))
$(error MODE=$(MODE): use release, asan or tsan)
endif
# Packagers' flags come last, but for luarocks: its default is -O2, which would switch -O3 off.
FLAGS := $(ROCK_CFLAGS) -std=c11 -D_GNU_SOURCE -Icsrc -fPIC -fno-semantic-interposition \
  -fopenmp-simd -pthread $(OPT_$(MODE)) $(WARN) $(CFLAGS)
LINK := -pthread $(filter -fsanitize%,$(OPT_$(MODE))) $(LDFLAGS)
# Modules stay mapped: worker threads may still run when a host closes them.
SHARED := $(LINK) -shared -Wl,-z,nodelete

CORE_SRC := $(wildcard $(foreach d,base memory tensor engine ops cpu nn optim io,csrc/$d/*.c)) csrc/cnn.c
LUA_SRC := $(wildcard csrc/lua/*.c)
CORE_OBJ := $(CORE_SRC:csrc/%.c=$(OUT)/obj/%.o)
LUA_OBJ := $(LUA_SRC:csrc/%.c=$(OUT)/obj/$(ABI)/%.o)

# Plugins: each brings in a library that the core does without. One whose sources or headers are
# missing is left out.
HEADERS_dnnl := dnnl/compat.h
LIBS_dnnl := -ldnnl -lgomp -lpthread
HEADERS_codec := zlib.h cjson/cJSON.h
LIBS_codec := -lz -lcjson
PLUGINS ?= dnnl codec
PLUGINS_FOUND := $(foreach p,$(PLUGINS),$(if $(wildcard csrc/$p/*.c),\
  $(shell $(CC) -E -Icsrc $(HEADERS_$p:%=-include %) -x c /dev/null >/dev/null 2>&1 && echo $p)))
PLUGIN_SRC = $(wildcard csrc/$1/*.c)
PLUGIN_OBJ = $(patsubst csrc/%.c,$(OUT)/obj/%.o,$(call PLUGIN_SRC,$1))

LUA_DIR := $(OUT)/lua/$(ABI)/cnn
PLUGIN_SO := $(PLUGINS_FOUND:%=$(OUT)/cnn_%.so)
PLUGIN_LINKS := $(PLUGINS_FOUND:%=$(LUA_DIR)/cnn_%.so)

ifdef V
say =
else
say = @printf '%-4s %s\n' '$1' '$2';
endif

# all of them in parallel, unless the caller said how many
PARALLEL = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc 2>/dev/null || echo 2))
SUB = --no-print-directory $(PARALLEL)

all:
	@$(MAKE) $(SUB) modules
	@$(if $(filter-out $(PLUGINS_FOUND),$(PLUGINS)),echo 'note: built without $(filter-out \
	  $(PLUGINS_FOUND),$(PLUGINS)): its headers are missing ("make test" installs them)',:)
	@$(if $(CUDA_WANTED),$(if $(CUDA_BUILT),:,echo 'note: nvcc is here: the plugin for GPUs comes next, in \
	  some minutes (CUDA=0 leaves it out)'),:)
	@$(if $(CUDA_WANTED),$(MAKE) $(SUB) cuda-plugin || { echo 'The plugin for GPUs does not compile: CUDA=0 \
	  leaves it out'; exit 1; },:)

modules: $(LUA_DIR)/core.so $(OUT)/libcnn.so $(OUT)/libcnn.a $(PLUGIN_LINKS)

# A file that changes only when its text does; what depends on it follows flags and lists.
quote = '$(subst ','\'',$1)'
define stamp
$1: FORCE
	@mkdir -p $$(@D)
	@printf '%s\n' $$(call quote,$2) | cmp -s - $$@ || printf '%s\n' $$(call quote,$2) >$$@
endef
CC_VERSION := $(shell $(CC) --version 2>/dev/null | head -n 1)
$(eval $(call stamp,$(OUT)/obj/flags,$$(CC_VERSION) $$(CC) $$(FLAGS)))
$(eval $(call stamp,$(OUT)/obj/link,$$(CC_VERSION) $$(CC) $$(SHARED)))
$(eval $(call stamp,$(OUT)/obj/core_list,$$(CORE_OBJ)))
$(eval $(call stamp,$(OUT)/obj/$(ABI)/list,$$(LUA_OBJ)))
$(eval $(call stamp,$(OUT)/obj/$(ABI)/headers,$$(LUA_INCDIR)))

$(OUT)/obj/%.o: csrc/%.c $(OUT)/obj/flags
	@mkdir -p $(@D)
	$(if $(CC_VERSION),,$(error No C compiler "$(CC)" found; "make test" installs what is missing))
	$(call say,CC,$<)$(CC) $(FLAGS) -MMD -MP -c $< -o $@

$(OUT)/obj/$(ABI)/%.o: csrc/%.c $(OUT)/obj/flags $(OUT)/obj/$(ABI)/headers
	@mkdir -p $(@D)
	$(if $(LUA_INCDIR),,$(error No headers of Lua $(ABI) found. Set LUA_INCDIR, or install \
	  $(if $(filter 5.1,$(ABI)),libluajit-5.1-dev,liblua$(ABI)-dev) (Debian, Ubuntu)))
	$(call say,CC,$< ($(ABI)))$(CC) $(FLAGS) -I$(LUA_INCDIR) -MMD -MP -c $< -o $@

# What is exported is said here, so that one set of objects serves both libraries.
$(OUT)/obj/%.map: $(OUT)/obj/flags
	@printf '{ global: $(EXPORT); local: *; };\n' >$@
$(OUT)/obj/core.map: EXPORT = luaopen_cnn_core
$(OUT)/obj/libcnn.map: EXPORT = cnn_*

# Only what Lua provides may stay undefined: that libcnn.so links with -z defs shows it.
$(LUA_DIR)/core.so: $(CORE_OBJ) $(LUA_OBJ) $(OUT)/obj/core.map $(OUT)/obj/link \
    $(OUT)/obj/core_list $(OUT)/obj/$(ABI)/list
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(SHARED) -Wl,--version-script=$(OUT)/obj/core.map -o $@ \
	  $(CORE_OBJ) $(LUA_OBJ) -lm

$(OUT)/libcnn.so: $(CORE_OBJ) $(OUT)/obj/libcnn.map $(OUT)/obj/link $(OUT)/obj/core_list
	$(call say,LD,$@)$(CC) $(SHARED) -Wl,-z,defs -Wl,-Bsymbolic \
	  -Wl,--version-script=$(OUT)/obj/libcnn.map -Wl,-soname,libcnn.so -o $@ $(CORE_OBJ) -lm

$(OUT)/libcnn.a: $(CORE_OBJ) $(OUT)/obj/core_list
	@rm -f $@
	$(call say,AR,$@)$(AR) rcs $@ $(CORE_OBJ)

define plugin
$(eval $(call stamp,$(OUT)/obj/$1_list,$$(call PLUGIN_OBJ,$1)))
$(call PLUGIN_OBJ,$1): FLAGS += -fvisibility=hidden
$(OUT)/cnn_$1.so: $(call PLUGIN_OBJ,$1) $(OUT)/obj/link $(OUT)/obj/$1_list
	$$(call say,LD,$$@)$(CC) $(SHARED) -Wl,-z,defs -o $$@ $(call PLUGIN_OBJ,$1) $(LIBS_$1)
endef
$(foreach p,$(PLUGINS_FOUND),$(eval $(call plugin,$p)))

# A plugin is looked for beside the module.
$(LUA_DIR)/cnn_%.so: $(OUT)/cnn_%.so
	@mkdir -p $(@D)
	@ln -sf ../../../$(<F) $@ && touch -h $@

-include cuda/sim/sim.mk
include cuda/cuda.mk
include cuda/check/check.mk

# ---- Programs in C: tests, benchmarks, the example of a host -----------------------------------

$(OUT)/bin/%: %.c $(OUT)/libcnn.a
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(FLAGS) -UNDEBUG -MMD -MP $< $(OUT)/libcnn.a $(LINK) $(LIBS) -ldl -lm -o $@
# Benchmarks compare with oneDNN itself.
$(OUT)/bin/bench/%: LIBS = -Wl,--as-needed $(LIBS_dnnl)

C_TESTS := $(patsubst %.c,$(OUT)/bin/%,$(wildcard spec/c/*_test.c examples/embed/main.c))
c-tests: $(C_TESTS)
bench-c: $(patsubst %.c,$(OUT)/bin/%,$(wildcard bench/c/*.c))

embed:
	@$(MAKE) $(SUB) $(OUT)/bin/examples/embed/main
	@$(OUT)/bin/examples/embed/main

# ---- Running from the tree, testing ------------------------------------------------------------

env:
	@echo 'export LUA_PATH="$(CURDIR)/lua/?.lua;$(CURDIR)/lua/?/init.lua;;"'
	@echo 'export LUA_CPATH="$(abspath $(OUT))/lua/$(ABI)/?.so;;"'

setup = @MAKE='$(MAKE)' CC='$(CC)' tools/setup.sh
LUAS ?= luajit lua5.1 lua5.3 lua5.4
TESTS = luajit tools/test.lua

demo:
	$(setup) build demo
	@$(MAKE) $(SUB) modules
	@eval "$$($(MAKE) -s env)"; $(LUA) examples/fashion_mnist.lua

test:
	$(setup) build demo test
	@$(MAKE) $(SUB) modules c-tests
	@$(TESTS) --out $(OUT) --lua $(LUA) c specs golden

test-all:
	$(setup) build demo test lua
	@$(MAKE) $(SUB) c-tests
	@$(foreach l,$(LUAS),$(MAKE) $(SUB) modules LUA=$l &&) :
	@$(TESTS) --out $(OUT) --lua '$(LUAS)' c specs golden

asan:
	$(setup) build demo test
	@$(MAKE) $(SUB) modules c-tests MODE=asan
	@$(TESTS) --out $(BUILD)/asan --lua $(LUA) --sanitize asan c specs golden

# TSan can't see into OpenMP, so not into the oneDNN plugin.
tsan:
	$(setup) build
	@$(MAKE) $(SUB) modules c-tests MODE=tsan PLUGINS=codec
	@$(TESTS) --out $(BUILD)/tsan --sanitize tsan c

# The compilers' warnings come with optimisation: these are whole builds.
lint:
	$(setup) build lint
	@luacheck -q .
	@clang-format --dry-run -Werror $(sort $(shell find csrc spec bench examples -name '*.[ch]') $(wildcard cuda/*.[ch] cuda/*.cu cuda/*.cuh cuda/check/*.[ch]))
	@$(foreach cc,gcc clang,$(MAKE) $(SUB) modules c-tests bench-c WERROR=1 CC=$(cc) BUILD=$(BUILD)/lint/$(cc) &&) :

# ---- What is generated -------------------------------------------------------------------------

docs:
	@$(MAKE) $(SUB) modules
	@CNN_OUT=$(OUT) $(LUA) tools/docs.lua

check-generated:
	$(setup) build test
	@$(MAKE) $(SUB) modules
	@CNN_OUT=$(OUT) $(LUA) tools/docs.lua --check
	@MAKE='$(MAKE)' $(LUA) tools/adding_an_op.lua $(OUT)

# ---- Installing ------------------------------------------------------------------------------

INST_BINDIR ?= $(PREFIX)/bin
INST_LUADIR ?= $(PREFIX)/share/lua/$(ABI)
INST_LIBDIR ?= $(PREFIX)/lib/lua/$(ABI)
LUA_FILES := $(patsubst lua/%,%,$(shell find lua -name '*.lua'))

install: all
	$(INSTALL) -d $(DESTDIR)$(INST_BINDIR) $(DESTDIR)$(INST_LIBDIR)/cnn \
	  $(sort $(dir $(LUA_FILES:%=$(DESTDIR)$(INST_LUADIR)/%)))
	$(foreach f,$(LUA_FILES),$(INSTALL) -m 644 lua/$f $(DESTDIR)$(INST_LUADIR)/$f &&) :
	$(INSTALL) -m 755 $(LUA_DIR)/core.so $(PLUGIN_SO) $(CUDA_BUILT) $(DESTDIR)$(INST_LIBDIR)/cnn
	$(STRIP) -g $(addprefix $(DESTDIR)$(INST_LIBDIR)/cnn/,core.so $(notdir $(PLUGIN_SO) $(CUDA_BUILT)))
	$(INSTALL) -m 755 bin/cnn $(DESTDIR)$(INST_BINDIR)/cnn

uninstall:
	rm -rf $(DESTDIR)$(INST_LUADIR)/cnn $(DESTDIR)$(INST_LIBDIR)/cnn
	rm -f $(DESTDIR)$(INST_BINDIR)/cnn

# A rockspec must name its source by an absolute address: this tree's is written in here.
rock:
	@mkdir -p $(BUILD)/rock
	@sed 's|url = ".*"|url = "git+file://$(CURDIR)"|' cnn-scm-1.rockspec >$(BUILD)/rock/cnn-scm-1.rockspec
	@$(LUAROCKS) pack $(BUILD)/rock/cnn-scm-1.rockspec

packaging:
	$(setup) build lua packaging
	@tools/packaging.sh

clean:
	rm -rf $(BUILD)

print-%:
	@echo $(call quote,$($*))

FORCE:
.PHONY: all modules c-tests bench-c embed env demo test test-all asan tsan lint \
  docs check-generated install uninstall rock packaging clean FORCE
-include $(patsubst csrc/%.c,$(OUT)/obj/%.d,$(CORE_SRC) $(foreach p,$(PLUGINS_FOUND),$(call PLUGIN_SRC,$p)))
-include $(LUA_OBJ:.o=.d) $(wildcard $(OUT)/bin/*/*/*.d)
