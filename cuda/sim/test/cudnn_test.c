// SPDX-License-Identifier: MIT
// Convolutions on the simulator: the engine (dnn.h) against plain loops in double, its caches, and
// misuse, which must be refused or reported.
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dnn.h"
#include "dnn_disk.h"
#include "library.h"

static cuda_dnn *dnn;
static cudaStream_t stream;

typedef struct shape {
  int64_t n, c, k, groups;
  int64_t in, kernel, stride, dilation, before, after; // in[i] is in + i, the rest alike
} shape;

static const shape shapes[] = {
    {2, 3, 4, 1, 6, 3, 1, 1, 1, 1}, // 3 x 3
    {2, 3, 4, 1, 5, 1, 1, 1, 0, 0}, // pointwise
    {1, 4, 6, 2, 7, 3, 2, 1, 1, 1}, // groups and stride
    {2, 3, 6, 3, 6, 3, 1, 1, 1, 1}, // depthwise with a multiplier
    {1, 2, 3, 1, 8, 3, 1, 2, 2, 2}, // dilation
    {1, 2, 3, 1, 9, 2, 3, 2, 0, 1}, // all of it, with a rest
    {2, 2, 2, 1, 5, 4, 1, 1, 1, 2}, // asymmetric padding
    {1, 1, 1, 1, 3, 3, 1, 1, 0, 0}, // one place (in the first dimension)
    {1, 2, 2, 1, 3, 2, 2, 1, 3, 4}, // more padding than kernel
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef struct problem {
  cuda_conv c;
  array x, w, b, y;
} problem;

static int64_t places(const int64_t *sizes, int spatial) {
  int64_t n = 1;
  for (int i = 0; i < spatial; i++) n *= sizes[i];
  return n;
}

static problem make(cuda_conv_kind kind, cnn_dtype dtype, int spatial, const shape *s, int layout,
                    int64_t offset) {
  problem p = {.c = {.kind = kind,
                     .dtype = dtype,
                     .x_last = layout & 1,
                     .w_last = layout & 2,
                     .y_last = layout & 4,
                     .spatial = spatial,
                     .n = s->n,
                     .c = s->c,
                     .k = s->k,
                     .groups = s->groups}};
  cuda_conv *c = &p.c;
  for (int i = 0; i < spatial; i++) {
    c->in[i] = s->in + i;
    c->kernel[i] = s->kernel, c->stride[i] = s->stride, c->dilation[i] = s->dilation;
    c->pad_before[i] = s->before, c->pad_after[i] = s->after;
    c->out[i] =
        (c->in[i] + s->before + s->after - s->dilation * (s->kernel - 1) - 1) / s->stride + 1;
  }
  int64_t xn = s->n * s->c * places(c->in, spatial);
  int64_t wn = s->k * (s->c / s->groups) * places(c->kernel, spatial);
  int64_t yn = s->n * s->k * places(c->out, spatial);
  bool f = kind == CUDA_CONV_FORWARD, x = kind == CUDA_CONV_BACKWARD_INPUT;
  p.x = x ? array_new(dtype, xn, offset) : array_random(dtype, xn, offset);
  p.w = f || x ? array_random(dtype, wn, offset) : array_new(dtype, wn, offset);
  p.y = f ? array_new(dtype, yn, offset) : array_random(dtype, yn, offset);
  p.b = array_random(dtype, s->k, offset);
  c->x = p.x.p, c->w = p.w.p, c->y = p.y.p, c->b = p.b.p;
  return p;
}

static void drop(problem *p) {
  array_free(&p->x), array_free(&p->w), array_free(&p->y), array_free(&p->b);
}

// The element (a, b, place) of a dense tensor of b_count channels.
static int64_t at(bool last, int64_t a, int64_t b, int64_t place, int64_t b_count, int64_t count) {
  return last ? (a * count + place) * b_count + b : (a * b_count + b) * count + place;
}

static cuda_answer run(cuda_dnn *engine, const cuda_conv *c, cuda_message *why) {
  size_t bytes = 0;
  void *workspace = NULL;
  cuda_answer answer = cuda_conv_workspace(engine, c, &bytes, why);
  if (answer != CUDA_OK) return answer;
  if (bytes) cudaMalloc(&workspace, bytes);
  answer = cuda_conv_run(engine, c, workspace, bytes, stream, why);
  cudaStreamSynchronize(stream);
  if (workspace) cudaFree(workspace);
  return answer;
}

// Adds up all products of x, w and y into `sum` (like the array that is computed), and their sizes.
static void loops(const problem *p, double *sum, double *size) {
  const cuda_conv *c = &p->c;
  int sp = c->spatial;
  int64_t cg = c->c / c->groups, kg = c->k / c->groups;
  int64_t ins = places(c->in, sp), taps = places(c->kernel, sp), outs = places(c->out, sp);
  for (int64_t n = 0; n < c->n; n++)
    for (int64_t k = 0; k < c->k; k++)
      for (int64_t o = 0; o < outs; o++)
        for (int64_t t = 0; t < taps; t++) {
          int64_t place = 0, oo = o, tt = t, step = 1;
          bool inside = true;
          for (int i = sp - 1; i >= 0; i--) {
            int64_t x = oo % c->out[i] * c->stride[i] + tt % c->kernel[i] * c->dilation[i] -
                        c->pad_before[i];
            inside &= x >= 0 && x < c->in[i];
            place += x * step;
            step *= c->in[i];
            oo /= c->out[i], tt /= c->kernel[i];
          }
          if (!inside) continue;
          for (int64_t g = 0; g < cg; g++) {
            int64_t xi = at(c->x_last, n, k / kg * cg + g, place, c->c, ins);
            int64_t wi = at(c->w_last, k, g, t, cg, taps), yi = at(c->y_last, n, k, o, c->k, outs);
            double v;
            int64_t to;
            if (c->kind == CUDA_CONV_FORWARD)
              v = p->x.v[xi] * p->w.v[wi], to = yi;
            else if (c->kind == CUDA_CONV_BACKWARD_INPUT)
              v = p->y.v[yi] * p->w.v[wi], to = xi;
            else
              v = p->y.v[yi] * p->x.v[xi], to = wi;
            sum[to] += v, size[to] += fabs(v);
          }
        }
}

static double worst; // relative to what was summed up

static bool right(cuda_dnn *engine, problem *p) {
  const cuda_conv *c = &p->c;
  array *out = c->kind == CUDA_CONV_FORWARD          ? &p->y
               : c->kind == CUDA_CONV_BACKWARD_INPUT ? &p->x
                                                     : &p->w;
  cuda_message why = {{0}};
  long faults = sim_faults();
  bool good = true;
  double *sum = calloc((size_t)out->count, sizeof *sum);
  double *size = calloc((size_t)out->count, sizeof *size);
  cuda_answer answer = run(engine, c, &why);
  if (answer != CUDA_OK) {
    printf("  answer %d: %s\n", answer, why.text);
    good = false;
    goto done;
  }
  loops(p, sum, size);
  array_read(out);
  worst = 0;
  for (int64_t i = 0; i < out->count; i++) {
    double v = sum[i];
    if (c->bias) {
      int64_t outs = places(c->out, c->spatial);
      double b = p->b.v[c->y_last ? i % c->k : i / outs % c->k];
      v += b, size[i] += fabs(b);
    }
    if (c->relu) v = v > 0 ? v : 0;
    worst = fmax(worst, fabs(out->v[i] - v) / (size[i] + 1e-30));
    if (good && !c->tf32 && !near(c->dtype, out->v[i], v, size[i])) {
      printf("  [%d] is %.9g, not %.9g\n", (int)i, out->v[i], v);
      good = false;
    }
  }
done:
  if (sim_faults() != faults) {
    printf("  reported: %s\n", sim_last_report());
    good = false;
  }
  if (!good)
    printf("  kind %d %s spatial %d layout %d%d%d groups %d\n", c->kind, cnn_dtype_name(c->dtype),
           c->spatial, c->x_last, c->w_last, c->y_last, (int)c->groups);
  free(sum), free(size);
  return good;
}

static const cnn_dtype dtypes[] = {CNN_F32, CNN_F64, CNN_F16, CNN_BF16};

static void all(void) {
  for (int kind = CUDA_CONV_FORWARD; kind <= CUDA_CONV_BACKWARD_WEIGHT; kind++)
    for (int d = 0; d < 4; d++)
      for (int spatial = 1; spatial <= 3; spatial++)
        for (int s = 0; s < SHAPES; s++)
          for (int layout = 0; layout < 8; layout++) {
            if (d && layout != 0 && layout != 5 && layout != 7) continue; // mixtures in float32
            problem p =
                make((cuda_conv_kind)kind, dtypes[d], spatial, &shapes[s], layout, layout % 2);
            CHECK(right(dnn, &p));
            p.c.deterministic = true;
            CHECK(s > 1 || right(dnn, &p));
            p.c.bias = kind == CUDA_CONV_FORWARD;
            CHECK(right(dnn, &p));
            p.c.relu = p.c.bias;
            CHECK(s > 2 || right(dnn, &p));
            drop(&p);
          }
}

// float32 is float32 unless TF32 is allowed.
static void tf32(void) {
  for (int kind = CUDA_CONV_FORWARD; kind <= CUDA_CONV_BACKWARD_WEIGHT; kind++) {
    problem p = make((cuda_conv_kind)kind, CNN_F32, 2, &shapes[0], 0, 0);
    CHECK(right(dnn, &p) && worst < 1e-6);
    p.c.tf32 = true;
    CHECK(right(dnn, &p) && worst > 1e-6 && worst < 1e-2);
    drop(&p);
  }
}

// What is deterministic takes another engine than the one that says it isn't.
static void deterministic(void) {
  problem p = make(CUDA_CONV_BACKWARD_WEIGHT, CNN_F16, 2, &shapes[0], 0, 0);
  cuda_message why = {{0}};
  size_t any = 0, same = 0;
  CHECK(cuda_conv_workspace(dnn, &p.c, &any, &why) == CUDA_OK);
  p.c.deterministic = true;
  CHECK(cuda_conv_workspace(dnn, &p.c, &same, &why) == CUDA_OK);
  CHECK(any != same);
  drop(&p);
}

static cuda_answer answer_of(const cuda_conv *c) {
  cuda_message why = {{0}};
  cuda_answer answer = run(dnn, c, &why);
  if (answer != CUDA_OK && !*why.text) return (cuda_answer)-1; // a refusal without a reason
  return answer;
}

static void misuse(void) {
  problem p = make(CUDA_CONV_FORWARD, CNN_F32, 2, &shapes[0], 0, 0);
  cuda_message why = {{0}};
  long faults = sim_faults();
  size_t bytes = 0;
  cuda_conv c = p.c;
  CHECK(cuda_conv_workspace(dnn, &c, &bytes, &why) == CUDA_OK && bytes > 0);
  CHECK(cuda_conv_run(dnn, &c, NULL, 0, stream, &why) == CUDA_FAILED);
  CHECK(strstr(why.text, "workspace") != NULL);
  c.dtype = CNN_I32;
  CHECK(answer_of(&c) == CUDA_REFUSED);
  c = p.c, c.n = 0;
  CHECK(answer_of(&c) == CUDA_REFUSED);
  c = p.c, c.relu = true;
  CHECK(answer_of(&c) == CUDA_REFUSED);
  c = p.c, c.n = (int64_t)1 << 30;
  CHECK(answer_of(&c) == CUDA_REFUSED);
  c = p.c, c.n = INT64_MAX;
  CHECK(answer_of(&c) == CUDA_REFUSED);
  c = p.c, c.spatial = 4;
  CHECK(answer_of(&c) == CUDA_FAILED);
  c = p.c, c.groups = 2;
  CHECK(answer_of(&c) == CUDA_FAILED);
  c = p.c, c.out[1]++;
  CHECK(answer_of(&c) == CUDA_FAILED);
  c = p.c, c.stride[0] = 0;
  CHECK(answer_of(&c) == CUDA_FAILED);
  c = p.c, c.pad_before[0] = -1;
  CHECK(answer_of(&c) == CUDA_FAILED);
  c = p.c, c.kind = CUDA_CONV_BACKWARD_INPUT, c.bias = true;
  CHECK(answer_of(&c) == CUDA_FAILED);
  c = p.c, c.y = NULL;
  CHECK(answer_of(&c) == CUDA_FAILED);
  c = p.c, c.bias = true, c.b = NULL;
  CHECK(answer_of(&c) == CUDA_FAILED);
  CHECK(sim_faults() == faults);
  // What only a simulator can say.
  sim_set_quiet(1);
  float host[4096] = {0};
  c = p.c, c.x = host;
  CHECK(answer_of(&c) == CUDA_FAILED && sim_faults() > faults);
  faults = sim_faults();
  c = p.c, c.y = c.x;
  CHECK(answer_of(&c) == CUDA_FAILED && sim_faults() > faults);
  faults = sim_faults();
  c = p.c, c.n = 3; // an image more than there is
  CHECK(answer_of(&c) == CUDA_FAILED && sim_faults() > faults);
  sim_set_quiet(0);
  sim_clear_faults();
  CHECK(right(dnn, &p));
  drop(&p);
}

static void many_shapes(void) {
  problem p = make(CUDA_CONV_FORWARD, CNN_F32, 1, &shapes[1], 0, 0);
  cuda_message why = {{0}};
  size_t bytes;
  int good = 0;
  for (int i = 1; i <= 3 * CUDA_DNN_KEPT; i++) {
    cuda_conv c = p.c;
    c.n = i;
    good += cuda_conv_workspace(dnn, &c, &bytes, &why) == CUDA_OK;
  }
  CHECK(good == 3 * CUDA_DNN_KEPT);
  CHECK(right(dnn, &p));
  drop(&p);
}

// ---- Captured work: its plan stays though many others come

static void captured(void) {
  problem p = make(CUDA_CONV_FORWARD, CNN_F32, 2, &shapes[0], 7, 0);
  cuda_message why = {{0}};
  cudaGraph_t graph = NULL;
  cudaGraphExec_t ready = NULL;
  void *workspace = NULL;
  size_t bytes = 0;
  CHECK(right(dnn, &p));
  CHECK(cuda_conv_workspace(dnn, &p.c, &bytes, &why) == CUDA_OK);
  cudaMalloc(&workspace, bytes);
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  CHECK(cuda_conv_run(dnn, &p.c, workspace, bytes, stream, &why) == CUDA_OK);
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  CHECK(cudaGraphInstantiate(&ready, graph, 0) == cudaSuccess);
  many_shapes();
  array before = p.y;
  before.v = calloc((size_t)p.y.count, sizeof *before.v);
  array_read(&before);
  for (int64_t i = 0; i < p.x.count; i++) p.x.v[i] *= 2; // the graph reads what is there now
  array_write(&p.x);
  CHECK(cudaGraphLaunch(ready, stream) == cudaSuccess);
  cudaStreamSynchronize(stream);
  array_read(&p.y);
  bool good = true;
  for (int64_t i = 0; i < p.y.count; i++) good &= p.y.v[i] == 2 * before.v[i];
  CHECK(good);
  free(before.v);
  cudaGraphExecDestroy(ready);
  cudaGraphDestroy(graph);
  cudaFree(workspace);
  drop(&p);
}

// ---- Plans on disk

// The files of a folder: how many, and the path and inode of the last.
static int files(const char *folder, char *path, size_t size, ino_t *inode) {
  DIR *d = opendir(folder);
  int n = 0;
  for (struct dirent *e; d && (e = readdir(d));) {
    struct stat s;
    if (e->d_name[0] == '.') continue;
    snprintf(path, size, "%s/%s", folder, e->d_name);
    if (stat(path, &s) == 0) *inode = s.st_ino;
    n++;
  }
  if (d) closedir(d);
  return n;
}

static bool run_with(const char *folder, problem *p) {
  cuda_message why = {{0}};
  cuda_dnn *engine = NULL;
  bool good = cuda_dnn_create(&engine, folder, &why) == CUDA_OK && right(engine, p);
  cuda_dnn_destroy(engine);
  return good;
}

static void damage(const char *path, long at, int how) {
  FILE *f = fopen(path, "r+b");
  if (!f) return;
  if (how < 0) {
    CHECK(ftruncate(fileno(f), at) == 0);
  } else {
    fseek(f, at, SEEK_SET);
    fputc(how, f);
  }
  fclose(f);
}

static void disk(void) {
  char base[] = "/tmp/cnn_cudnn_test_XXXXXX", folder[256], path[512];
  ino_t first = 0, now = 0;
  CHECK(mkdtemp(base) != NULL);
  snprintf(folder, sizeof folder, "%s/a/b", base);
  problem p = make(CUDA_CONV_FORWARD, CNN_F32, 2, &shapes[0], 0, 0);
  CHECK(run_with(folder, &p));
  CHECK(files(folder, path, sizeof path, &first) == 1);
  // Read again, not written again: a build would replace the file.
  CHECK(run_with(folder, &p));
  CHECK(files(folder, path, sizeof path, &now) == 1 && now == first);
  // Damaged in the header, in the key, in the text; cut short; empty: built and written anew.
  const long places_[] = {0, 9, 17, 33, 60, 400, 700};
  for (int i = 0; i < 7; i++) {
    damage(path, places_[i], '#');
    CHECK(run_with(folder, &p));
    CHECK(files(folder, path, sizeof path, &now) == 1 && now != first);
    first = now;
  }
  for (int i = 0; i < 7; i++) {
    damage(path, places_[i], -1);
    CHECK(run_with(folder, &p));
    CHECK(files(folder, path, sizeof path, &now) == 1 && now != first);
    first = now;
  }
  // Another plan's text, whole but not the one that was written: the engine's number is changed.
  char bytes[4096] = {0};
  FILE *f = fopen(path, "rb");
  size_t size = f ? fread(bytes, 1, sizeof bytes, f) : 0;
  if (f) fclose(f);
  char *text = memmem(bytes, size, "plan\": \"", 8);
  CHECK(text != NULL);
  if (text) damage(path, text + 8 - bytes, text[8] == '1' ? '2' : '1');
  CHECK(run_with(folder, &p));
  CHECK(files(folder, path, sizeof path, &now) == 1 && now != first);
  // A folder that can't be made, and none at all.
  CHECK(run_with("/proc/no/such/folder", &p));
  CHECK(run_with("", &p));
  unlink(path);
  CHECK(run_with(NULL, &p));
  char command[64];
  snprintf(command, sizeof command, "rm -rf '%s'", base);
  CHECK(system(command) == 0);
  drop(&p);
}

// The user's folder, by the environment.
static bool folder_is(const char *cache, const char *xdg, const char *home, const char *expected) {
  const char *names[] = {"CNN_CACHE_DIR", "XDG_CACHE_HOME", "HOME"}, *values[] = {cache, xdg, home};
  char *before[3];
  for (int i = 0; i < 3; i++) {
    before[i] = getenv(names[i]) ? strdup(getenv(names[i])) : NULL;
    values[i] ? setenv(names[i], values[i], 1) : unsetenv(names[i]);
  }
  char *folder = dnn_disk_folder(NULL);
  bool good = expected ? folder && strcmp(folder, expected) == 0 : !folder;
  free(folder);
  for (int i = 0; i < 3; i++) {
    before[i] ? setenv(names[i], before[i], 1) : unsetenv(names[i]);
    free(before[i]);
  }
  return good;
}

static void folders(void) {
  CHECK(folder_is("here", "/x", "/h", "here/cudnn"));
  CHECK(folder_is("", "/x", "/h", NULL));
  CHECK(folder_is(NULL, "/x", "/h", "/x/cnn/cudnn"));
  CHECK(folder_is(NULL, "relative", "/h", "/h/.cache/cnn/cudnn"));
  CHECK(folder_is(NULL, NULL, "/h", "/h/.cache/cnn/cudnn"));
  CHECK(folder_is(NULL, NULL, "relative", NULL));
  CHECK(folder_is(NULL, NULL, NULL, NULL));
}

int main(void) {
  cuda_message why = {{0}};
  cudaStreamCreate(&stream);
  if (cuda_dnn_create(&dnn, "", &why) != CUDA_OK) {
    printf("%s\n0 passed, 1 failed\n", why.text);
    return 1;
  }
  all();
  tf32();
  deterministic();
  misuse();
  many_shapes();
  captured();
  disk();
  folders();
  CHECK(sim_faults() == 0);
  cuda_dnn_destroy(dnn);
  cudaStreamDestroy(stream);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
