# SPDX-License-Identifier: MIT
#
# The CUDA plugin, part of the Makefile:
#
# make cuda       build/release/cnn_cuda.so for CUDA_ARCHS, all of them: "80 86 89 90 100 120" and PTX
# make cuda-sim   build/release/cnn_cuda_sim.so: the same sources on the simulator (cuda/sim)
# make test-cuda-sim  the specs of CUDA and of the ops on the simulator
# make cuda-check what the kernels take of a GPU (registers, shared memory, spills), and what is left
#                 to write

CUDA_HOME ?= $(firstword $(wildcard /usr/local/cuda /opt/cuda) /usr/local/cuda)
NVCC ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard $(CUDA_HOME)/bin/nvcc))
CUDA_ALL := 80 86 89 90 100 120
# What was asked for last, else what compiles fastest.
CUDA_ARCHS ?= $(or $(shell cat $(OUT)/obj/cuda/archs 2>/dev/null),90)

CUDA_C := $(wildcard cuda/*.c)
CUDA_CU := $(wildcard cuda/*.cu)
# What the plugin has of the core: files without state.
CUDA_CORE := base/dtype base/shape base/status base/device engine/call engine/product
CUDA_OBJ := $(CUDA_C:cuda/%.c=$(OUT)/obj/cuda/%.o) $(CUDA_CORE:%=$(OUT)/obj/cuda/core/%.o)
CUDA_KERNELS := $(CUDA_CU:cuda/%.cu=$(OUT)/obj/cuda/%.cu.o)
CUDA_SIM_KERNELS := $(CUDA_CU:cuda/%.cu=$(OUT)/obj/cuda/sim/%.cu.o)

CUDA_LAST := $(lastword $(CUDA_ARCHS))
CUDA_GENCODE := $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$a,code=sm_$a) \
  -gencode arch=compute_$(CUDA_LAST),code=compute_$(CUDA_LAST)
# 186: one text serves all types, x < 0 is no news for uint8.
NVCC_FLAGS := -std=c++17 -O3 -Icsrc -Icuda -Xcompiler -fPIC,-fvisibility=hidden,-O2 \
  --expt-relaxed-constexpr -diag-suppress 186 -Xptxas -v,-warn-spills $(CUDA_GENCODE)
CUDA_FLAGS = $(FLAGS) -Icuda -isystem $(CUDA_HOME)/include -fvisibility=hidden
SIM_CXX ?= clang++
SIM_FLAGS := -std=c++17 -O1 -g1 -Icsrc -Icuda -Icuda/sim/include -isystem $(CUDA_HOME)/include -fPIC \
  -fvisibility=hidden -pthread -Wall -Wno-unused-function -Wno-tautological-compare \
  -Wno-unknown-attributes -ffp-contract=off

$(eval $(call stamp,$(OUT)/obj/cuda/archs,$$(CUDA_ARCHS)))
$(eval $(call stamp,$(OUT)/obj/cuda/nvcc_flags,$$(NVCC) $$(NVCC_FLAGS)))
$(eval $(call stamp,$(OUT)/obj/cuda/sim_flags,$$(SIM_CXX) $$(SIM_FLAGS)))
$(eval $(call stamp,$(OUT)/obj/cuda/list,$$(CUDA_OBJ) $$(CUDA_KERNELS)))

$(OUT)/obj/cuda/%.o: cuda/%.c $(OUT)/obj/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CUDA_FLAGS) -MMD -MP -c $< -o $@
$(OUT)/obj/cuda/core/%.o: csrc/%.c $(OUT)/obj/flags
	@mkdir -p $(@D)
	$(call say,CC,$< (cuda))$(CC) $(FLAGS) -fvisibility=hidden -MMD -MP -c $< -o $@
# The compiler's report on each kernel is kept for cuda-check.
$(OUT)/obj/cuda/%.cu.o: cuda/%.cu $(OUT)/obj/cuda/nvcc_flags
	@mkdir -p $(@D)
	$(call say,NVCC,$<)$(NVCC) $(NVCC_FLAGS) -MMD -MP -c $< -o $@ 2>$@.ptxas || { cat $@.ptxas; exit 1; }
	@grep -v 'ptxas info\|bytes stack frame\|^$$' $@.ptxas || :
$(OUT)/obj/cuda/sim/%.cu.o: cuda/%.cu $(OUT)/obj/cuda/sim_flags
	@mkdir -p $(@D)
	$(call say,SIM,$<)$(SIM_CXX) $(SIM_FLAGS) -MMD -MP -x c++ -c $< -o $@

$(OUT)/obj/cuda.map: EXPORT = cnn_driver_open
CUDA_LIBS := -L$(CUDA_HOME)/lib64 -lcudart_static -lcublasLt -lcudnn -lrt -ldl -lpthread -lm
$(OUT)/cnn_cuda.so: $(CUDA_OBJ) $(CUDA_KERNELS) $(OUT)/obj/cuda.map $(OUT)/obj/link $(OUT)/obj/cuda/list
	$(call say,LD,$@)$(CC) $(SHARED) -Wl,-z,defs -Wl,--version-script=$(OUT)/obj/cuda.map -o $@ \
	  $(CUDA_OBJ) $(CUDA_KERNELS) $(CUDA_LIBS) -lstdc++

cuda:
	$(if $(NVCC),,$(error No nvcc found: set NVCC or CUDA_HOME))
	@$(MAKE) $(SUB) cuda-plugin CUDA_ARCHS='$(if $(filter command line,$(origin CUDA_ARCHS)),$(CUDA_ARCHS),$(CUDA_ALL))'
cuda-plugin: modules $(LUA_DIR)/cnn_cuda.so

.PHONY: cuda cuda-plugin
-include $(CUDA_OBJ:.o=.d) $(CUDA_KERNELS:.o=.d) $(CUDA_SIM_KERNELS:.o=.d)
