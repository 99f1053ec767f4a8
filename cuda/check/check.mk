# SPDX-License-Identifier: MIT
#
# Checks of the library engines (blaslt.c, dnn.c), part of the Makefile, after cuda/sim/sim.mk.
#
#   make test-engines       on the simulator's stand-ins, in its three flavours: against plain loops,
#                           and misuse
#   make check-cudnn-plans  on the real libraries, without a GPU: cuDNN builds a plan for every graph
#                           that dnn_graph.c makes, for the devices in cuda/check/profiles; it and
#                           cuBLASLt take every descriptor that blaslt.c makes; and the stand-in's
#                           answers to misuse are cuDNN's. Under a minute on two cores
#   make check-nvrtc        the real NVRTC compiles every program that the specs and the examples make,
#                           for sm_80 to sm_120, while they run on the simulator
#   make check-cuda         what of cuda-check, check-nvrtc and check-cudnn-plans this machine has the
#                           tools for; says what it leaves out

CHECK_OUT := $(BUILD)/check
CHECK_I := -Icsrc -Icuda -Ispec/c -Icuda/sim/include -isystem $(CUDA_HOME)/include
CHECK_C := -std=c11 -D_GNU_SOURCE $(CHECK_I) $(WARN)

# ---- On the simulator

ENGINE_SRC := csrc/base/dtype.c cuda/blaslt.c cuda/dnn.c cuda/dnn_disk.c cuda/dnn_graph.c
ENGINE_TESTS := cuda/sim/test/cublaslt_test.c cuda/sim/test/cudnn_test.c \
  cuda/sim/test/cudnn_graph_test.c cuda/check/statuses.c
ifneq (,$(SIM_FOUND))
define engine_flavour
$(SIM_OUT)/$1/engines/%.o: %.c cuda/check/check.mk
	@mkdir -p $$(@D)
	$$(call say,SIM,$$< ($1))$(SIM_CC) $(CHECK_C) $(SIM_CFLAGS_$1) -pthread -MMD -MP -c $$< -o $$@
$(foreach t,$(ENGINE_TESTS),
$(SIM_OUT)/$1/engines/$(basename $(notdir $t)): $(SIM_OUT)/$1/engines/$(t:.c=.o) \
  $(ENGINE_SRC:%.c=$(SIM_OUT)/$1/engines/%.o) $(SIM_LIB_$1)
	$$(call say,LD,$$@)$(SIM_CXX) $(SIM_LINK_$1) -o $$@ $$^ -ldl -pthread -lm
ENGINE_PROGRAMS += $(SIM_OUT)/$1/engines/$(basename $(notdir $t))
)
-include $(patsubst %.c,$(SIM_OUT)/$1/engines/%.d,$(ENGINE_SRC) $(ENGINE_TESTS))
endef
$(foreach f,$(SIM_FLAVOURS),$(eval $(call engine_flavour,$f)))

test-engines:
	@$(MAKE) $(SUB) $(ENGINE_PROGRAMS)
	@for p in $(ENGINE_PROGRAMS); do for s in eager random; do \
	  printf '%s %s: ' $$p $$s; SIM_STREAMS=$$s $$p || exit 1; done; done
else
test-engines:
	@echo 'The CUDA simulator needs clang++ and the headers of the CUDA toolkit (CUDA_HOME)'; exit 1
endif

# ---- On the real libraries. A stub of libcuda is on the path only where there is no driver.

CUDA_LIB := $(firstword $(wildcard $(CUDA_HOME)/lib64 $(CUDA_HOME)/lib))
CUDA_STUB := $(wildcard $(CUDA_LIB)/stubs/libcuda.so)
CUDNN_FOUND := $(and $(CUDA_STUB),$(wildcard $(CUDA_LIB)/libcudnn.so),$(wildcard $(CUDA_HOME)/include/cudnn_graph.h))
ifneq (,$(CUDNN_FOUND))
CHECK_PATH := LD_LIBRARY_PATH=$(if $(shell ldconfig -p 2>/dev/null | grep libcuda.so.1),,$(CHECK_OUT):)$(CUDA_LIB):$$LD_LIBRARY_PATH

$(CHECK_OUT)/libcuda.so.1: cuda/check/fakecuda.sh $(CUDA_STUB)
	@mkdir -p $(@D)
	@cuda/check/fakecuda.sh $(CUDA_STUB) >$(@D)/fakecuda.c
	$(call say,LD,$@)$(CC) -w -shared -fPIC $(@D)/fakecuda.c -o $@
CHECK_PLANS := cuda/check/plans.c cuda/dnn_graph.c csrc/base/dtype.c
CHECK_DESCRIPTORS := cuda/check/descriptors.c csrc/base/dtype.c
$(CHECK_OUT)/plans: $(CHECK_PLANS)
$(CHECK_OUT)/statuses: cuda/check/statuses.c
$(CHECK_OUT)/descriptors: $(CHECK_DESCRIPTORS) cuda/blaslt.c
$(CHECK_OUT)/plans $(CHECK_OUT)/statuses $(CHECK_OUT)/descriptors: cuda/check/check.mk $(wildcard cuda/*.h)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CHECK_C) -O1 $(filter-out cuda/blaslt.c,$(filter %.c,$^)) -o $@ -L$(CUDA_LIB) \
	  -lcudnn $(if $(filter %descriptors,$@),-lcublasLt -lcudart_static -lrt -ldl) -pthread -lm

check-cudnn-plans:
	@$(MAKE) $(SUB) $(CHECK_OUT)/plans $(CHECK_OUT)/statuses $(CHECK_OUT)/descriptors \
	  $(CHECK_OUT)/libcuda.so.1
	@$(CHECK_PATH) $(CHECK_OUT)/statuses
	@$(CHECK_PATH) $(CHECK_OUT)/descriptors
	@ls cuda/check/profiles/*.json | $(CHECK_PATH) xargs -P $(shell nproc 2>/dev/null || echo 2) -n 1 \
	  $(CHECK_OUT)/plans
else
check-cudnn-plans:
	@echo 'cuDNN and the CUDA toolkit (CUDA_HOME) are needed, a GPU is not'; exit 1
endif

NVRTC_FOUND := $(and $(SIM_FOUND),$(firstword $(wildcard $(CUDA_LIB)/libnvrtc.so $(CUDA_LIB)/libnvrtc.so.*)))
NVRTC_EXAMPLES := $(shell grep -rl __global__ examples)
check-nvrtc:
ifneq (,$(NVRTC_FOUND))
	@$(MAKE) $(SUB) modules cuda-sim-plugin
	@mkdir -p $(CHECK_OUT) && rm -f $(CHECK_OUT)/nvrtc
	@export CNN_CUDA_PLUGIN=$(abspath $(SIM_OUT)/plain/cnn_cuda_sim.so) \
	  SIM_REAL_NVRTC=$(NVRTC_FOUND) SIM_REAL_NVRTC_LOG=$(abspath $(CHECK_OUT))/nvrtc; \
	  $(TESTS) --out $(OUT) --lua $(LUA) --match '^cuda_[sek]' specs && \
	  eval "$$($(MAKE) -s env)" && \
	  for f in $(NVRTC_EXAMPLES); do $(LUA) $$f >$(CHECK_OUT)/example || { cat $(CHECK_OUT)/example; exit 1; }; done
	@for a in 80 86 89 90 100 120; do grep -q "^sm_$$a [1-9]" $(CHECK_OUT)/nvrtc || \
	  { echo "no program was compiled for sm_$$a"; exit 1; }; done
	@echo "NVRTC: $$(grep -c ' [1-9][0-9]* bytes' $(CHECK_OUT)/nvrtc) images, $$(grep -c ' 0 bytes' $(CHECK_OUT)/nvrtc) refused"
else
	@echo 'NVRTC and what the simulator needs (clang++, the CUDA toolkit) are missing'; exit 1
endif

check-cuda:
	$(if $(NVCC),@$(MAKE) $(SUB) cuda-check,@echo 'left out: what nvcc and ptxas say (there is no nvcc)')
	$(if $(NVRTC_FOUND),@$(MAKE) $(SUB) check-nvrtc,@echo 'left out: what NVRTC says (it, or clang++, is missing)')
	$(if $(CUDNN_FOUND),@$(MAKE) $(SUB) check-cudnn-plans,@echo 'left out: what cuDNN and cuBLASLt say (they are missing)')
.PHONY: test-engines check-cudnn-plans check-nvrtc check-cuda
