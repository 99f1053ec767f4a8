// SPDX-License-Identifier: MIT
#include "engine/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static const struct {
  const char *word; // in specs
  const char *text; // in messages
} types[CNN_T_COUNT] = {
    [CNN_T_TENSOR] = {"tensor", "a tensor"},
    [CNN_T_OPERAND] = {"operand", "a tensor or a number"},
    [CNN_T_INDEX] = {"index", "an integer tensor of positions"},
    [CNN_T_MASK] = {"mask", "a bool tensor"},
    [CNN_T_OTHER] = {"other", "a tensor"},
    [CNN_T_TENSORS] = {"tensors", "a list of tensors"},
    [CNN_T_INDICES] = {"indices", "a list of index tensors"},
    [CNN_T_NUMBER] = {"number", "a number"},
    [CNN_T_VALUE] = {"value", "a number or a boolean"},
    [CNN_T_INT] = {"int", "an integer"},
    [CNN_T_BOOL] = {"bool", "a boolean"},
    [CNN_T_STRING] = {"string", "a string"},
    [CNN_T_DTYPE] = {"dtype", "a dtype name"},
    [CNN_T_DEVICE] = {"device", "a device name"},
    [CNN_T_INTS] = {"ints", "an integer or a list of integers"},
    [CNN_T_PAIR] = {"pair", "an integer or a list of two"},
    [CNN_T_PADDING] = {"padding", "an integer, a list of integers, \"same\" or \"valid\""},
    [CNN_T_DIM] = {"dim", "a dim (1 is the first, -1 the last)"},
    [CNN_T_DIMS] = {"dims", "a dim or a list of dims"},
    [CNN_T_DIM_OR_TENSOR] = {"dim_or_tensor", "a dim or a tensor"},
    [CNN_T_AXES] = {"axes", "a number of dims or two lists of dims"},
    [CNN_T_POS] = {"pos", "a position (1 is the first, -1 the last)"},
    [CNN_T_LABEL] = {"label", "a label (1 is the first)"},
    [CNN_T_SHAPE] = {"shape", "a shape"},
    [CNN_T_ENUM] = {"", "a word"},
};

const char *cnn_type_name(cnn_type type) {
  return types[type].text;
}

// ---------------------------------------------------------------------------------------------
// Spec strings

bool cnn_param_word(const cnn_param *p, int i, char *text, size_t size) {
  const char *at = p->words;
  for (;; i--) {
    size_t n = strcspn(at, "|=?!* ");
    if (i == 0) {
      snprintf(text, size, "%.*s", (int)n, at);
      return true;
    }
    if (at[n] != '|') return false;
    at += n + 1;
  }
}

static const char *parse_default(cnn_param *p, const char *text, size_t n) {
  char word[48], choice[24];
  if (n >= sizeof word) return "a default is too long";
  memcpy(word, text, n);
  word[n] = '\0';
  char *end;
  p->has_default = true;
  switch (p->type) {
  case CNN_T_ENUM:
    for (int i = 0; cnn_param_word(p, i, choice, sizeof choice); i++) {
      if (strcmp(choice, word) != 0) continue;
      p->value = CNN_A_I(i);
      return NULL;
    }
    return "a default is none of the words";
  case CNN_T_BOOL:
    p->value = CNN_A_I(strcmp(word, "true") == 0);
    return p->value.i || strcmp(word, "false") == 0 ? NULL : "a default is no boolean";
  case CNN_T_OPERAND:
  case CNN_T_NUMBER:
  case CNN_T_VALUE:
    p->value = CNN_A_N(strtod(word, &end));
    // An integral default is an integer: it must not promote integer tensors.
    if (strspn(word, "-0123456789") == n) p->value = CNN_A_I(strtoll(word, &end, 10));
    break;
  case CNN_T_PAIR:
    p->ints[0] = p->ints[1] = strtoll(word, &end, 10);
    p->value = CNN_A_INTS(2, p->ints);
    break;
  case CNN_T_INTS:
  case CNN_T_PADDING:
  case CNN_T_DIMS:
    p->ints[0] = strtoll(word, &end, 10);
    p->value = CNN_A_INTS(1, p->ints);
    break;
  default: p->value = CNN_A_I(strtoll(word, &end, 10)); break;
  }
  return *end == '\0' ? NULL : "a default is no number";
}

static const char *parse(cnn_param *params, int *count, const char *text) {
  while (*text) {
    while (*text == ' ') text++;
    if (!*text) break;
    size_t length = strcspn(text, " "), name = strcspn(text, ":");
    if (*count == CNN_MAX_ARGS) return "too many arguments";
    cnn_param *p = &params[(*count)++];
    memset(p, 0, sizeof *p);
    if (name >= length || name >= sizeof p->name) return "an argument has no name or a long one";
    memcpy(p->name, text, name);
    const char *type = text + name + 1;
    size_t n = strcspn(type, "?!*= ");
    p->type = CNN_T_COUNT;
    if (memchr(type, '|', n)) p->type = CNN_T_ENUM, p->words = type;
    for (int t = 0; t < CNN_T_ENUM && p->type == CNN_T_COUNT; t++)
      if (strlen(types[t].word) == n && memcmp(types[t].word, type, n) == 0) p->type = (uint8_t)t;
    if (p->type == CNN_T_COUNT) return "an argument has an unknown type";
    for (const char *at = type + n; at < text + length; at++) {
      if (*at == '?')
        p->optional = true;
      else if (*at == '!')
        p->changed = true;
      else if (*at == '*')
        p->variadic = true;
      else if (*at == '=') {
        const char *wrong = parse_default(p, at + 1, (size_t)(text + length - at - 1));
        if (wrong) return wrong;
        break;
      }
    }
    text += length;
  }
  return NULL;
}

const char *cnn_spec_parse(cnn_spec *spec, const char *text) {
  cnn_param params[CNN_MAX_ARGS];
  spec->n = 0;
  const char *wrong = parse(params, &spec->n, text);
  if (wrong) return wrong;
  spec->params = cnn_malloc((size_t)spec->n * sizeof *params + 1);
  if (!spec->params) return "out of memory";
  for (int i = 0; i < spec->n; i++) {
    spec->params[i] = params[i];
    // A list's default points into its own parameter.
    if (params[i].value.kind == CNN_INTS) spec->params[i].value.ints = spec->params[i].ints;
  }
  return NULL;
}

// ---------------------------------------------------------------------------------------------
// The table

static cnn_op_entry *entries;
static int entry_count;
static cnn_engine_ops engine_ops_table;
static const cnn_backend *backends[CNN_DEVICE_TYPES];

static bool is_input(cnn_type type) {
  return type <= CNN_T_OTHER;
}
static bool is_list(cnn_type type) {
  return type == CNN_T_TENSORS || type == CNN_T_INDICES;
}

static int find_input(const cnn_op_entry *e, const char *name, size_t n) {
  for (int i = 0; i < e->spec.n; i++) {
    const cnn_param *p = &e->spec.params[i];
    if (strlen(p->name) == n && memcmp(p->name, name, n) == 0) return e->input_of[i];
  }
  return -1;
}

static int find_result(const cnn_op_entry *e, const char *name, size_t n) {
  const char *at = e->op->results ? e->op->results : "out";
  for (int i = 0; *at; i++) {
    size_t length = strcspn(at, " ");
    if (length == n && memcmp(at, name, n) == 0) return i;
    at += length;
    while (*at == ' ') at++;
  }
  return -1;
}

// "x w if x, y": groups end at a comma; a group's names are saved when the input after `if` (any
// input, without it) needs a gradient.
static const char *parse_saves(cnn_op_entry *e) {
  const char *at = e->op->saves;
  while (at && *at) {
    const char *end = at + strcspn(at, ",");
    uint32_t when = UINT32_MAX;
    const char *condition = strstr(at, " if ");
    if (condition && condition < end) {
      const char *name = condition + 4;
      int k = find_input(e, name, (size_t)(end - name));
      if (k < 0) return "saves: unknown input after `if`";
      when = 1u << k;
    } else {
      condition = end;
    }
    while (at < condition) {
      size_t n = strcspn(at, " ,");
      int in = find_input(e, at, n), out = find_result(e, at, n);
      if (in >= 0)
        e->save_in[in] |= when;
      else if (out >= 0)
        e->save_out[out] |= when;
      else if (n > 0)
        return "saves: unknown name";
      at += n;
      while (*at == ' ') at++;
    }
    at = *end ? end + 1 : end;
    while (*at == ' ') at++;
  }
  return NULL;
}

static const char *install(cnn_op_entry *e, const cnn_op *op) {
  e->op = op;
  const char *wrong = cnn_spec_parse(&e->spec, op->args);
  if (wrong) return wrong;
  int inputs = 0;
  for (int i = 0; i < e->spec.n; i++) {
    cnn_type type = (cnn_type)e->spec.params[i].type;
    e->input_of[i] = -1;
    if (is_list(type)) e->has_list = true;
    if (is_input(type) || is_list(type)) {
      e->arg_of[inputs] = (uint8_t)i;
      e->role[inputs] = e->spec.params[i].type;
      e->input_of[i] = (int8_t)inputs++;
    }
    if (e->spec.params[i].changed) e->changes = true;
  }
  e->n_tensors = (uint8_t)inputs;
  e->n_results = 1;
  for (const char *at = op->results; at && *at; at++)
    if (*at == ' ') e->n_results++;
  if (e->n_results > CNN_MAX_RESULTS) return "too many results";
  if (!op->infer && !op->composite && !op->choose) return "neither infer, composite nor choose";
  return parse_saves(e);
}

const char *cnn_registry_install(const cnn_op *const *ops, int count,
                                 const cnn_engine_ops *engine_ops) {
  static char message[160];
  cnn_op_entry *table = cnn_calloc((size_t)count * sizeof *table);
  if (!table) return "out of memory for the op table";
  for (int i = 0; i < count; i++) {
    const char *wrong = install(&table[i], ops[i]);
    if (!wrong) continue;
    snprintf(message, sizeof message, "op %s: %s", ops[i]->name, wrong);
    cnn_free(table);
    return message;
  }
  engine_ops_table = *engine_ops;
  entry_count = count;
  entries = table;
  return NULL;
}

void cnn_backend_install(cnn_device_type type, const cnn_backend *backend) {
  backends[type] = backend;
}

int cnn_op_count(void) {
  return entry_count;
}

const cnn_op_entry *cnn_op_at(int id) {
  return &entries[id];
}

int cnn_op_find(const char *name) {
  for (int i = 0; i < entry_count; i++)
    if (strcmp(entries[i].op->name, name) == 0) return i;
  return -1;
}

const cnn_engine_ops *cnn_ops_of_engine(void) {
  return &engine_ops_table;
}

const cnn_backend *cnn_backend_of(cnn_device_type type) {
  return backends[type];
}
