# SPDX-License-Identifier: MIT
#
# The CUDA simulator, in three flavours: build/sim/{plain,asan,check}/libcusim.a. Included by the
# Makefile; does nothing where clang++ or the CUDA toolkit's headers are missing.
#
#   make sim          the libraries
#   make test-sim     the simulator's own tests: every correct kernel passes in every flavour, order
#                     and stream schedule without a report, every planted bug is caught
#
# For who links a program or plugin with it, F being a flavour:
#   $(SIM_CC), $(SIM_CXX)    the compilers; $(SIM_CFLAGS_F) for host code in C and C++
#   $(call sim_kernel,F,x.cu,x.o)   compiles kernels
#   $(SIM_LIB_F)             the library, instead of -lcudart -lcuda -lnvrtc -lcublasLt -lcudnn
#   $(SIM_LINK_F)            flags of the final link, by $(SIM_CXX)
# In a shared object keep all symbols local but one's own and, for tests, sim_*.

SIM_CXX ?= $(firstword $(foreach c,clang++-14 clang++ clang++-15 clang++-16,$(shell command -v $c 2>/dev/null)))
SIM_CC ?= $(subst clang++,clang,$(SIM_CXX))
CUDA_HOME ?= $(firstword $(patsubst %/bin/nvcc,%,$(shell command -v nvcc 2>/dev/null)) \
  $(patsubst %/include/cuda_runtime.h,%,$(wildcard /usr/local/cuda/include/cuda_runtime.h)))
SIM_FOUND := $(if $(SIM_CXX),$(wildcard $(CUDA_HOME)/include/cuda_runtime.h))

ifneq (,$(SIM_FOUND))
SIM_FLAVOURS := plain asan check
SIM_OUT := $(BUILD)/sim
SIM_DIR := cuda/sim
SIM_INCLUDE := -I$(CURDIR)/$(SIM_DIR)/include -isystem $(CUDA_HOME)/include
SIM_WARN := -Wall -Wextra -Wshadow -Wno-unknown-warning-option

SIM_SANITIZE_asan := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
SIM_CFLAGS_plain := -O2 -g1
SIM_CFLAGS_asan := -O1 -g $(SIM_SANITIZE_asan)
SIM_CFLAGS_check := -O2 -g1
# No vector code in checked kernels: a thread's loads are counted as written.
SIM_KFLAGS_plain := -O2 -g1
# ASan sees what null, object-size and pointer-overflow look for, the checker what alignment does.
# Its checks are calls: half the code, which compiles faster than it runs slower.
SIM_KFLAGS_asan := -O1 -g1 $(SIM_SANITIZE_asan) \
  -fno-sanitize=vptr,null,object-size,pointer-overflow,alignment \
  -mllvm -asan-instrumentation-with-call-threshold=0
SIM_KFLAGS_check := -O1 -g1 -DSIM_CHECK -fno-vectorize -fno-slp-vectorize \
  -fsanitize=thread,alignment,signed-integer-overflow,integer-divide-by-zero,shift-exponent \
  -mllvm -tsan-instrument-func-entry-exit=0 -mllvm -tsan-instrument-read-before-write
SIM_LINK_asan := $(SIM_SANITIZE_asan)
# A plugin is loaded by a program without the sanitizer, which has its runtime preloaded.
SIM_SHARED_asan := -shared-libasan
SIM_COMMON := -fPIC -fvisibility=hidden -ffp-contract=off -pthread $(SIM_INCLUDE)
SIM_KERNEL = $(SIM_CXX) -std=c++17 $(SIM_COMMON) $(SIM_KFLAGS_$1)
SIM_REDEFINE := --redefine-sym memcpy=sim_memcpy --redefine-sym memmove=sim_memmove \
  --redefine-sym memset=sim_memset

# $(call sim_kernel,flavour,source,object)
sim_kernel = $(call SIM_KERNEL,$1) $(SIM_WARN) -MMD -MP -x c++ -c $2 -o $3 \
  $(if $(filter check,$1),&& objcopy $(SIM_REDEFINE) $3)

SIM_SRC := $(wildcard $(SIM_DIR)/*.cpp)
SIM_TEST_SRC := cases host main

define sim_flavour
SIM_LIB_$1 := $(SIM_OUT)/$1/libcusim.a
SIM_OBJ_$1 := $(patsubst $(SIM_DIR)/%.cpp,$(SIM_OUT)/$1/%.o,$(SIM_SRC))

# The simulator itself is not sanitized: it touches red zones on purpose. It only must know of it.
# What is compiled at run time is checked in every flavour.
$(SIM_OUT)/$1/%.o: $(SIM_DIR)/%.cpp $(SIM_DIR)/sim.mk
	@mkdir -p $$(@D)
	$$(call say,SIM,$$< ($1))$(SIM_CXX) -std=c++17 -O2 -g1 $(SIM_COMMON) $(SIM_WARN) \
	  $(if $(filter check,$1),-DSIM_CHECK) $(if $(filter asan,$1),-DSIM_ASAN) \
	  -DSIM_CXX='"$(subst ",\",$(call SIM_KERNEL,check))"' -DSIM_LINK='"$(SIM_CXX)"' -MMD -MP -c $$< -o $$@

$(SIM_OUT)/$1/libcusim.a: $$(SIM_OBJ_$1)
	@rm -f $$@
	$$(call say,AR,$$@)$(AR) rcs $$@ $$^

$(SIM_OUT)/$1/test/%.o: $(SIM_DIR)/test/%.cpp $(SIM_DIR)/sim.mk
	@mkdir -p $$(@D)
	$$(call say,SIM,$$< ($1))$(SIM_CXX) -std=c++17 $(SIM_CFLAGS_$1) $(SIM_COMMON) $(SIM_WARN) \
	  -MMD -MP -c $$< -o $$@
$(SIM_OUT)/$1/test/kernels.o: $(SIM_DIR)/test/kernels.cu $(SIM_DIR)/sim.mk
	@mkdir -p $$(@D)
	$$(call say,SIM,$$< ($1))$$(call sim_kernel,$1,$$<,$$@)
$(SIM_OUT)/$1/test/test: $(patsubst %,$(SIM_OUT)/$1/test/%.o,$(SIM_TEST_SRC) kernels) $(SIM_OUT)/$1/libcusim.a
	$$(call say,LD,$$@)$(SIM_CXX) $(SIM_LINK_$1) -o $$@ $$^ -ldl -pthread -lm

-include $$(SIM_OBJ_$1:.o=.d) $(wildcard $(SIM_OUT)/$1/test/*.d)
endef
$(foreach f,$(SIM_FLAVOURS),$(eval $(call sim_flavour,$f)))

SIM_LIBS := $(foreach f,$(SIM_FLAVOURS),$(SIM_LIB_$f))
SIM_TESTS := $(foreach f,$(SIM_FLAVOURS),$(SIM_OUT)/$f/test/test)

sim: $(SIM_LIBS)

test-sim:
	@$(MAKE) $(SUB) $(SIM_TESTS)
	@$(SIM_OUT)/plain/test/test all $(SIM_DIR)/test/mutations.txt $(SIM_TESTS)
else
sim test-sim:
	@echo 'The CUDA simulator needs clang++ and the headers of the CUDA toolkit (CUDA_HOME)'; exit 1
endif
.PHONY: sim test-sim
