#!/bin/sh
# SPDX-License-Identifier: MIT
# Writes C for a libcuda.so.1 without a device: usage fakecuda.sh .../stubs/libcuda.so > fakecuda.c
#
# cuDNN's runtime-compiled engines refuse to plan where libcuda can't be opened. They compile, load
# what they compiled and ask for its kernels: those calls succeed here and give addresses that
# nobody may follow. All others answer that there is no device (100).
nm -D --defined-only "$1" | awk '$2 ~ /^[TW]$/ { print $3 }' | sort -u | awk '
  BEGIN {
    print "static long nothing[64];"
    print "int cuDriverGetVersion(int *v) { *v = 13000; return 0; }"
  }
  /^cuDriverGetVersion$/ { next }
  /^cu(LibraryLoadData|LibraryGetKernel|KernelGetFunction|ModuleLoadData|ModuleLoadDataEx|ModuleGetFunction)$/ {
    printf "int %s(void **out) { if (out) *out = nothing; return 0; }\n", $1
    next
  }
  /^cu(LibraryUnload|ModuleUnload|KernelSetAttribute|FuncSetAttribute)$/ {
    printf "int %s(void) { return 0; }\n", $1
    next
  }
  { printf "int %s(void) { return 100; }\n", $1 }'
