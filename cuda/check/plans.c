// SPDX-License-Identifier: MIT
// The gate of dnn.c without a GPU: has the real cuDNN build a plan for every graph that
// dnn_graph.c makes, for a device that a profile describes (cuDNN 9.8 and later plan for a
// DEVICEPROP descriptor given as JSON). It proves that the graphs are well-formed and that the
// library has an engine for them, workspace included; it says nothing about numbers or speed.
//
//   plans [-v] [-a] PROFILE.json ...
//
// For each profile it walks the table below; a combination that no plan can be built for is an
// error. -v prints every combination with its workspace, -a walks on with all of the windows for
// every dtype and layout (minutes).
//
// Runtime-compiled engines load libcuda.so.1; where there is no driver, fakecuda.c stands in.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dnn_graph.h"

static int passed, failed, slow; // slow: plans with compiled kernels, read back
static bool verbose, thorough;

// ---- What is planned

typedef struct shape {
  const char *name;
  int64_t n, c, k, groups;
  int64_t in, kernel, stride, dilation, before, after; // alike in every dimension
} shape;

static const shape shapes[] = {
    {"3x3", 4, 32, 64, 1, 16, 3, 1, 1, 1, 1},
    {"1x1", 4, 32, 64, 1, 16, 1, 1, 1, 0, 0},
    {"stride 2", 4, 32, 64, 1, 16, 3, 2, 1, 1, 1},
    {"stride 3, rest 1", 2, 8, 8, 1, 17, 4, 3, 1, 1, 1},
    {"dilation 2", 4, 32, 64, 1, 16, 3, 1, 2, 2, 2},
    {"groups 4", 4, 32, 64, 4, 16, 3, 1, 1, 1, 1},
    {"depthwise", 4, 32, 32, 32, 16, 3, 1, 1, 1, 1},
    {"depthwise, stride 2", 4, 32, 64, 32, 16, 5, 2, 1, 2, 2},
    {"asymmetric padding", 4, 16, 16, 1, 16, 4, 1, 1, 1, 2},
    {"one channel", 8, 1, 32, 1, 28, 3, 1, 1, 1, 1},
    {"odd channels", 3, 3, 5, 1, 13, 3, 1, 1, 1, 1},
    {"7x7 stride 2 from images", 2, 3, 64, 1, 64, 7, 2, 1, 3, 3},
    {"no padding, one place", 4, 16, 10, 1, 5, 5, 1, 1, 0, 0},
    {"padding beyond the kernel", 2, 8, 8, 1, 9, 2, 1, 1, 3, 3},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static const char *const kind_names[] = {"forward", "backward input", "backward weight"};

typedef struct layout {
  const char *name;
  bool x, w, y;
} layout;

static const layout layouts[] = {
    {"nchw", false, false, false},
    {"nhwc", true, true, true},
    {"nhwc, plain weights", true, false, true},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static void describe(const cuda_conv *c, const shape *s, const layout *l, char *text, size_t size) {
  snprintf(text, size, "%s %s%s %dd %s, %s%s%s%s%s", kind_names[c->kind], cnn_dtype_name(c->dtype),
           c->tf32 ? " tf32" : "", c->spatial, l->name, s->name, c->bias ? " + bias" : "",
           c->relu ? " + relu" : "", c->deterministic ? ", deterministic" : "",
           (uintptr_t)c->x % 16 ? ", unaligned" : "");
}

// A plan's text gives the same plan, and half of it none (dnn.c keeps it on disk).
static void round_trip(const dnn_target *target, const char *name, const dnn_plan *plan) {
  cuda_message why = {{0}};
  dnn_plan again = {NULL, 0};
  char *text = dnn_plan_text(plan);
  cuda_answer answer = text ? dnn_plan_load(target, text, &again, &why) : CUDA_REFUSED;
  if (answer != CUDA_OK || again.workspace != plan->workspace) {
    failed++;
    printf("FAIL %s: as text: %s\n", name, text ? why.text : "none");
  }
  if (verbose && text) printf("     %zu bytes of text\n", strlen(text));
  dnn_plan_free(&again);
  free(text);
}

static void try_one(const dnn_target *target, int sm, const cuda_conv *c, const shape *s,
                    const layout *l) {
  char text[200];
  cuda_message why = {{0}};
  dnn_key key;
  dnn_plan plan = {NULL, 0};
  struct timespec t0, t1;
  clock_gettime(CLOCK_MONOTONIC, &t0);
  cuda_answer answer = dnn_key_make(c, &key, &why);
  if (answer == CUDA_OK) answer = dnn_plan_build(target, &key, &plan, &why);
  clock_gettime(CLOCK_MONOTONIC, &t1);
  double ms = (double)(t1.tv_sec - t0.tv_sec) * 1e3 + (double)(t1.tv_nsec - t0.tv_nsec) * 1e-6;
  describe(c, s, l, text, sizeof text);
  bool good = answer == CUDA_OK;
  passed += good, failed += !good;
  if (verbose || !good) {
    printf("%s sm_%d %s: %s (%zu bytes, %.1f ms)\n", good ? "ok  " : "FAIL", sm, text,
           good ? "planned" : why.text, plan.workspace, ms);
  }
  if (good && (ms < 100 || slow++ < 3)) round_trip(target, text, &plan);
  dnn_plan_free(&plan);
}

static cuda_conv conv(cuda_conv_kind kind, cnn_dtype dtype, int spatial, const shape *s,
                      const layout *l) {
  cuda_conv c = {.kind = kind,
                 .dtype = dtype,
                 .x_last = l->x,
                 .w_last = l->w,
                 .y_last = l->y,
                 .spatial = spatial,
                 .n = s->n,
                 .c = s->c,
                 .k = s->k,
                 .groups = s->groups};
  for (int i = 0; i < spatial; i++) {
    c.in[i] = s->in, c.kernel[i] = s->kernel, c.stride[i] = s->stride;
    c.dilation[i] = s->dilation, c.pad_before[i] = s->before, c.pad_after[i] = s->after;
    c.out[i] = (s->in + s->before + s->after - s->dilation * (s->kernel - 1) - 1) / s->stride + 1;
  }
  return c;
}

// ---- Walking

static void walk(const dnn_target *target, int sm) {
  static const cnn_dtype dtypes[] = {CNN_F32, CNN_F16, CNN_BF16, CNN_F64};
  for (int kind = CUDA_CONV_FORWARD; kind <= CUDA_CONV_BACKWARD_WEIGHT; kind++)
    for (int d = 0; d < 4; d++)
      for (int spatial = 1; spatial <= CUDA_CONV_SPATIAL; spatial++)
        for (int li = 0; li < LAYOUTS; li++)
          for (int si = 0; si < SHAPES; si++) {
            // In 1 and 3 dimensions a few windows do: the rest is the same code.
            if (!thorough && spatial != 2 && si > 2 && si != 5) continue;
            cuda_conv c = conv((cuda_conv_kind)kind, dtypes[d], spatial, &shapes[si], &layouts[li]);
            try_one(target, sm, &c, &shapes[si], &layouts[li]);
            if (!thorough && (spatial != 2 || si > 2)) continue; // variations of three windows
            if (kind == CUDA_CONV_FORWARD) {
              cuda_conv f = c;
              f.bias = true;
              try_one(target, sm, &f, &shapes[si], &layouts[li]);
              f.deterministic = true; // what conv.c asks for
              try_one(target, sm, &f, &shapes[si], &layouts[li]);
              f.deterministic = false;
              f.relu = true;
              try_one(target, sm, &f, &shapes[si], &layouts[li]);
            }
            if (c.dtype == CNN_F32) {
              cuda_conv t = c;
              t.tf32 = true;
              try_one(target, sm, &t, &shapes[si], &layouts[li]);
            }
            cuda_conv r = c;
            r.deterministic = true;
            try_one(target, sm, &r, &shapes[si], &layouts[li]);
            cuda_conv u = c; // views that begin anywhere
            u.x = u.w = u.y = (const void *)cnn_dtype_size(c.dtype);
            try_one(target, sm, &u, &shapes[si], &layouts[li]);
          }
}

// The gate itself must be able to fail: a graph whose sizes contradict each other has no plan.
static void walk_wrong(const dnn_target *target, int sm) {
  for (int kind = CUDA_CONV_FORWARD; kind <= CUDA_CONV_BACKWARD_WEIGHT; kind++) {
    cuda_conv c = conv((cuda_conv_kind)kind, CNN_F32, 2, &shapes[0], &layouts[0]);
    cuda_message why = {{0}};
    dnn_plan plan = {NULL, 0};
    dnn_key key;
    dnn_key_make(&c, &key, &why);
    key.out[1]++;
    if (dnn_plan_build(target, &key, &plan, &why) == CUDA_OK) {
      failed++;
      printf("FAIL sm_%d %s: a wrong graph is planned\n", sm, kind_names[kind]);
    } else {
      passed++;
    }
    dnn_plan_free(&plan);
  }
}

static char *read_all(const char *path) {
  FILE *f = fopen(path, "rb");
  char *text = f ? calloc(1, 1 << 16) : NULL;
  if (text && !fread(text, 1, (1 << 16) - 1, f)) {
    free(text);
    text = NULL;
  }
  if (f) fclose(f);
  return text;
}

static bool check(const char *path) {
  cuda_message why = {{0}};
  dnn_target target = {NULL, NULL};
  char *text = read_all(path);
  const char *at = text ? strstr(text, "\"deviceVer\"") : NULL;
  at = at ? strchr(at, ':') : NULL;
  if (!at) {
    printf("FAIL %s: not a profile\n", path);
    free(text);
    return false;
  }
  int sm = atoi(at + 1) / 10;
  cudnnStatus_t s =
      cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &target.device);
  if (s == CUDNN_STATUS_SUCCESS) {
    s = cudnnBackendSetAttribute(target.device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                 CUDNN_TYPE_CHAR, (int64_t)strlen(text), text);
  }
  if (s == CUDNN_STATUS_SUCCESS) s = cudnnBackendFinalize(target.device);
  if (s == CUDNN_STATUS_SUCCESS) {
    walk_wrong(&target, sm);
    walk(&target, sm);
  } else {
    dnn_say(&why, path, s);
    printf("FAIL %s\n", why.text);
  }
  if (target.device) cudnnBackendDestroyDescriptor(target.device);
  free(text);
  return s == CUDNN_STATUS_SUCCESS;
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "-v") == 0) {
      verbose = true;
    } else if (strcmp(argv[i], "-a") == 0) {
      thorough = true;
    } else if (!check(argv[i])) {
      failed++;
    }
  }
  printf("cuDNN %zu: %d passed, %d failed\n", cudnnGetVersion(), passed, failed);
  return failed || !passed;
}
