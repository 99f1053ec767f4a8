# SPDX-License-Identifier: MIT
#
# The CUDA plugin, part of the Makefile:
#
# make            builds build/release/cnn_cuda.so too where nvcc is found: for the GPUs that are here, or
#                 for "80 90" and by PTX for what came after; what CUDA_ARCHS named once is kept to.
#                 CUDA=0 leaves it out
# make cuda       for all of "80 86 89 90 100 120", and PTX
# make cuda-sim   build/release/cnn_cuda_sim.so: the same sources on the simulator (cuda/sim)
# make test-cuda-sim  the specs of CUDA, all ops and the golden values on the simulator, in some of its
#                 configurations; make test-cuda-sim-full: in all
# make cuda-check what the kernels take of a GPU (registers, shared memory, spills), and what is left
#                 to write

CUDA_HOME ?= $(firstword $(wildcard /usr/local/cuda /opt/cuda) /usr/local/cuda)
NVCC ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard $(CUDA_HOME)/bin/nvcc))
CUDA ?= 1
# Whether "make" builds the plugin; the plugin where it has been built: it is installed then.
CUDA_WANTED := $(if $(filter 0,$(CUDA)),,$(if $(filter release,$(MODE)),$(NVCC)))
CUDA_BUILT = $(if $(filter 0,$(CUDA)),,$(shell ls $(OUT)/cnn_cuda.so 2>/dev/null))
CUDA_ALL := 80 86 89 90 100 120
# What was asked for last, else what is here. (Asked once, by who needs it.)
CUDA_HERE = $(sort $(subst .,,$(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | grep '^[0-9.]*$$')))
ifeq (undefined,$(origin CUDA_ARCHS))
CUDA_ARCHS = $(eval CUDA_ARCHS := $(or $(shell cat $(OUT)/obj/cuda/archs 2>/dev/null),$(CUDA_HERE),80 90))$(CUDA_ARCHS)
endif

CUDA_C := $(wildcard cuda/*.c)
CUDA_CU := $(wildcard cuda/*.cu)
# What the plugin has of the core: files without state.
CUDA_CORE := base/dtype base/shape base/status base/device engine/call engine/fault engine/product engine/parts \
  engine/window
CUDA_OBJ := $(CUDA_C:cuda/%.c=$(OUT)/obj/cuda/%.o) $(CUDA_CORE:%=$(OUT)/obj/cuda/core/%.o)
CUDA_KERNELS := $(CUDA_CU:cuda/%.cu=$(OUT)/obj/cuda/%.cu.o)

CUDA_LAST = $(lastword $(CUDA_ARCHS))
CUDA_GENCODE = $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$a,code=sm_$a) \
  -gencode arch=compute_$(CUDA_LAST),code=compute_$(CUDA_LAST)
# 186: one text serves all types, x < 0 is no news for uint8.
NVCC_FLAGS = -std=c++17 -O3 -Icsrc -Icuda -Xcompiler -fPIC,-fvisibility=hidden,-O2 \
  --expt-relaxed-constexpr -diag-suppress 186 --compress-mode=size -Xptxas -v $(CUDA_GENCODE)
CUDA_FLAGS = $(FLAGS) -Icuda -isystem $(CUDA_HOME)/include -fvisibility=hidden
$(eval $(call stamp,$(OUT)/obj/cuda/archs,$$(CUDA_ARCHS)))
$(eval $(call stamp,$(OUT)/obj/cuda/nvcc_flags,$$(NVCC) $$(NVCC_FLAGS)))
$(eval $(call stamp,$(OUT)/obj/cuda/list,$$(CUDA_OBJ) $$(CUDA_KERNELS)))

$(OUT)/obj/cuda/%.o: cuda/%.c $(OUT)/obj/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CUDA_FLAGS) -MMD -MP -c $< -o $@
$(OUT)/obj/cuda/core/%.o: csrc/%.c $(OUT)/obj/flags
	@mkdir -p $(@D)
	$(call say,CC,$< (cuda))$(CC) $(FLAGS) -fvisibility=hidden -MMD -MP -c $< -o $@
# The compiler's report on each kernel is kept for cuda-check.
$(OUT)/obj/cuda/%.cu.o: cuda/%.cu $(OUT)/obj/cuda/nvcc_flags $(OUT)/obj/cuda/archs
	@mkdir -p $(@D)
	$(call say,NVCC,$<)$(NVCC) $(NVCC_FLAGS) -MMD -MP -c $< -o $@ 2>$@.ptxas || { cat $@.ptxas; exit 1; }
	@grep -v 'ptxas info\|bytes stack frame\|^$$' $@.ptxas || :
$(OUT)/obj/cuda.map: EXPORT = cnn_driver_open
CUDA_LIBS := -L$(CUDA_HOME)/lib64 -lcudart_static -lrt -ldl -lpthread -lm
$(OUT)/cnn_cuda.so: $(CUDA_OBJ) $(CUDA_KERNELS) $(OUT)/obj/cuda.map $(OUT)/obj/link $(OUT)/obj/cuda/list
	$(call say,LD,$@)$(CC) $(SHARED) -Wl,-z,defs -Wl,--version-script=$(OUT)/obj/cuda.map -o $@ \
	  $(CUDA_OBJ) $(CUDA_KERNELS) $(CUDA_LIBS) -lstdc++

cuda:
	$(if $(NVCC),,$(error No nvcc found: set NVCC or CUDA_HOME))
	@$(MAKE) $(SUB) cuda-plugin CUDA_ARCHS='$(if $(filter command line,$(origin CUDA_ARCHS)),$(CUDA_ARCHS),$(CUDA_ALL))'
cuda-plugin: modules $(LUA_DIR)/cnn_cuda.so

# What ptxas says of each kernel. That no symbol is left open is the linker's to see (-z defs); that it
# loads where there is no GPU, and says so, is a spec's.
cuda-check:
	@$(MAKE) $(SUB) cuda-plugin
	@$(LUA) tools/ptxas.lua cuda $(CUDA_KERNELS:=.ptxas)
	@CNN_CUDA_BUILT=1 $(TESTS) --out $(OUT) --lua $(LUA) --match cuda_plugin_spec specs

# ---- On the simulator. The host objects are the same, compiled by clang; kernels are C++.

ifneq (,$(SIM_FOUND))
# (cuDNN's stand-in may be missing: then own kernels compute.)
CUDA_SIM_C := $(filter-out cuda/late.c $(if $(wildcard $(SIM_DIR)/cudnn*.cpp),,cuda/dnn%.c),$(CUDA_C))
define cuda_sim
CUDA_SIM_OBJ_$1 := $(CUDA_SIM_C:cuda/%.c=$(SIM_OUT)/$1/cuda/%.o) $(CUDA_CORE:%=$(SIM_OUT)/$1/cuda/core/%.o)
CUDA_SIM_KERNELS_$1 := $(CUDA_CU:cuda/%.cu=$(SIM_OUT)/$1/cuda/%.cu.o)
$(SIM_OUT)/$1/cuda/%.o: cuda/%.c
	@mkdir -p $$(@D)
	$$(call say,SIM,$$< ($1))$(SIM_CC) -std=c11 -D_GNU_SOURCE $(SIM_CFLAGS_$1) $(SIM_COMMON) -Icsrc -Icuda \
	  $(SIM_WARN) -MMD -MP -c $$< -o $$@
$(SIM_OUT)/$1/cuda/core/%.o: csrc/%.c
	@mkdir -p $$(@D)
	$$(call say,SIM,$$< ($1))$(SIM_CC) -std=c11 -D_GNU_SOURCE $(SIM_CFLAGS_$1) $(SIM_COMMON) -Icsrc \
	  $(SIM_WARN) -MMD -MP -c $$< -o $$@
$(SIM_OUT)/$1/cuda/%.cu.o: cuda/%.cu
	@mkdir -p $$(@D)
	$$(call say,SIM,$$< ($1))$$(call sim_kernel,$1,$$< -Icsrc -Icuda $(CUDA_SIM_QUIET),$$@)
$(SIM_OUT)/$1/cnn_cuda_sim.so: $$(CUDA_SIM_OBJ_$1) $$(CUDA_SIM_KERNELS_$1) $(SIM_OUT)/$1/libcusim.a \
    $(OUT)/obj/cuda_sim.map
	$$(call say,LD,$$@)$(SIM_CXX) $(SIM_LINK_$1) $(SIM_SHARED_$1) -shared -Wl,-z,nodelete \
	  -Wl,-u,nvrtcCreateProgram -Wl,--version-script=$(OUT)/obj/cuda_sim.map \
	  -o $$@ $$(CUDA_SIM_OBJ_$1) $$(CUDA_SIM_KERNELS_$1) $(SIM_OUT)/$1/libcusim.a -ldl -pthread -lm
-include $$(CUDA_SIM_OBJ_$1:.o=.d) $$(CUDA_SIM_KERNELS_$1:.o=.d)
endef
# One text serves all types; kernels of other families are not used here.
CUDA_SIM_QUIET := -Wno-tautological-compare -Wno-unused-function -Wno-sign-compare -Wno-unused-parameter
$(OUT)/obj/cuda_sim.map: EXPORT = cnn_driver_open; sim_*
$(foreach f,$(SIM_FLAVOURS),$(eval $(call cuda_sim,$f)))

$(LUA_DIR)/cnn_cuda_sim.so: $(SIM_OUT)/plain/cnn_cuda_sim.so
	@mkdir -p $(@D)
	@ln -sf ../../../../sim/plain/$(<F) $@ && touch -h $@

cuda-sim:
	@$(MAKE) $(SUB) modules cuda-sim-plugin
cuda-sim-plugin: $(LUA_DIR)/cnn_cuda_sim.so

# The configurations of tools/cuda_matrix.lua.
test-cuda-sim test-cuda-sim-full:
	$(setup) build demo test
	@$(MAKE) $(SUB) modules $(foreach f,$(SIM_FLAVOURS),$(SIM_OUT)/$f/cnn_cuda_sim.so)
	@$(TESTS) --out $(OUT) --lua $(LUA) --sim $(SIM_OUT) $(@:test-%=%)
else
cuda-sim cuda-sim-plugin test-cuda-sim test-cuda-sim-full:
	@echo 'The CUDA simulator needs clang++ and the headers of the CUDA toolkit (CUDA_HOME)'; exit 1
endif

.PHONY: cuda cuda-plugin cuda-check cuda-sim cuda-sim-plugin test-cuda-sim test-cuda-sim-full
-include $(CUDA_OBJ:.o=.d) $(CUDA_KERNELS:.o=.d)
