// SPDX-License-Identifier: MIT
// Files for lua/cnn/io.lua: lists of names, tensors and texts to and from a file. Which table they
// make is the Lua side's business.
#include "lua/state.h"

#include <string.h>

#include "io/idx.h"
#include "io/npy.h"
#include "io/npz.h"
#include "io/safetensors.h"

// What a file holds waits in a box while Lua objects are made of it.
typedef struct archive_box {
  cnn_box box; // object: &archive while it holds anything
  cnn_archive archive;
} archive_box;

static int archive_gc(lua_State *L) {
  cnn_box *box = cnn_to_box(L, 1, CNN_BOX_ARCHIVE);
  if (box && box->object) cnn_archive_free(box->object);
  if (box) box->object = NULL;
  return 0;
}

static cnn_archive *push_archive(lua_State *L, cnn_lua *S) {
  archive_box *holder = cnn_newud(L, sizeof *holder, 0);
  memset(holder, 0, sizeof *holder);
  holder->box.magic = (uintptr_t)&cnn_box_magic[CNN_BOX_ARCHIVE];
  cnn_push_metatable(L, S, CNN_BOX_ARCHIVE);
  lua_setmetatable(L, -2);
  holder->box.object = &holder->archive;
  return &holder->archive;
}

// A string without zero bytes, which C would take for its end.
static const char *check_text(lua_State *L, cnn_lua *S, int i, const char *function,
                              const char *what) {
  char got[64];
  size_t n;
  const char *text = lua_type(L, i) == LUA_TSTRING ? lua_tolstring(L, i, &n) : NULL;
  if (!text)
    cnn_error(L, S, "%s: expected %s (a string), got %s", function, what,
              cnn_describe(L, i, got, sizeof got));
  if (strlen(text) != n) cnn_error(L, S, "%s: %s has a zero byte in it", function, what);
  return text;
}

// ---------------------------------------------------------------------------------------------
// Loading

typedef enum file_kind { SAFETENSORS, NPY, NPZ } file_kind;
static const char *const kind_names[] = {"safetensors", "npy", "npz"};

static file_kind kind_of(const cnn_mapping *m) {
  size_t n = strlen(CNN_NPY_MAGIC);
  if (m->bytes >= n && memcmp(m->data, CNN_NPY_MAGIC, n) == 0) return NPY;
  if (m->bytes >= 4 && (memcmp(m->data, "PK\3\4", 4) == 0 || memcmp(m->data, "PK\5\6", 4) == 0))
    return NPZ;
  return SAFETENSORS;
}

// A Python pickle, as torch.save wrote it before version 1.6.
static bool is_pickle(const cnn_mapping *m) {
  return m->bytes > 2 && (unsigned char)m->data[0] == 0x80 && m->data[1] > 1 && m->data[1] < 6;
}

static cnn_status load_file(cnn_context *ctx, const char *path, bool copy, cnn_archive *a,
                            file_kind *kind) {
  cnn_mapping *m;
  cnn_tensor *t = NULL;
  CNN_TRY(cnn_file_map(ctx, path, &m));
  cnn_status status;
  *kind = kind_of(m);
  if (*kind == NPZ) {
    status = cnn_npz_load(ctx, path, m, copy, a);
  } else if (*kind == NPY) {
    status = cnn_npy_load(ctx, path, m, copy, &t);
    if (status == CNN_OK) status = cnn_archive_add(ctx, a, "", t);
    cnn_unref(t);
  } else if (is_pickle(m)) {
    status = cnn_file_fail(ctx, path,
                           "a Python pickle, which may run code when it is read: save it in Python "
                           "with safetensors.torch.save_file instead");
  } else {
    status = cnn_safetensors_load(ctx, path, m, copy, a);
  }
  cnn_unref(m);
  return status;
}

static cnn_status load(cnn_lua *S, const char *path, bool copy, cnn_archive *a, file_kind *kind) {
  const char *outer = S->ctx.op;
  S->ctx.op = "load";
  cnn_status status = load_file(&S->ctx, path, copy, a, kind);
  S->ctx.op = outer;
  return status;
}

// io_load(path, copy): the kind of file; a list of names, a list of tensors, a table of texts.
static int l_load(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  const char *path = check_text(L, S, 1, "load", "a file's name");
  bool copy = lua_toboolean(L, 2);
  file_kind kind = SAFETENSORS;
  cnn_status status;
  cnn_pace(L, S);
  cnn_archive *a = push_archive(L, S);
  CNN_WITH_ROOM(L, S, status, load(S, path, copy, a, &kind));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  lua_pushstring(L, kind_names[kind]);
  lua_createtable(L, (int)a->n, 0);
  lua_createtable(L, (int)a->n, 0);
  lua_createtable(L, 0, (int)a->n_texts);
  for (int64_t i = 0; i < a->n; i++) {
    lua_pushstring(L, a->entries[i].name);
    lua_rawseti(L, -4, (int)i + 1);
    cnn_box *box = cnn_push_tensor_box(L, S, lua_upvalueindex(2));
    box->object = cnn_ref(a->entries[i].tensor);
    lua_rawseti(L, -3, (int)i + 1);
  }
  for (int64_t i = 0; i < a->n_texts; i++) {
    lua_pushstring(L, a->texts[i].value);
    lua_setfield(L, -2, a->texts[i].key);
  }
  cnn_archive_free(a);
  return 4;
}

// ---------------------------------------------------------------------------------------------
// Saving

static cnn_status save(cnn_lua *S, const char *path, file_kind kind, const cnn_archive *a) {
  const char *outer = S->ctx.op;
  S->ctx.op = "save";
  cnn_status status;
  if (kind == NPZ)
    status = cnn_npz_save(&S->ctx, path, a);
  else if (kind == SAFETENSORS)
    status = cnn_safetensors_save(&S->ctx, path, a);
  else
    status = cnn_npy_save(&S->ctx, path, a->entries[0].tensor);
  S->ctx.op = outer;
  return status;
}

// io_save(path, kind, names, tensors, texts)
static int l_save(lua_State *L) {
  cnn_lua *S = cnn_state(L);
  const char *path = check_text(L, S, 1, "save", "a file's name");
  const char *wanted = luaL_checkstring(L, 2);
  file_kind kind = SAFETENSORS;
  cnn_status status = CNN_OK;
  for (int k = 0; k < 3; k++)
    if (strcmp(wanted, kind_names[k]) == 0) kind = (file_kind)k;
  for (int i = 3; i <= 5; i++) luaL_checktype(L, i, LUA_TTABLE);
  int n = (int)cnn_rawlen(L, 3);
  cnn_archive *a = push_archive(L, S);
  for (int i = 1; i <= n && status == CNN_OK; i++) {
    lua_rawgeti(L, 3, i);
    lua_rawgeti(L, 4, i);
    const char *name = check_text(L, S, -2, "save", "a tensor's name");
    cnn_tensor *t = cnn_check_tensor(L, S, -1, "save", "a tensor to save");
    CNN_WITH_ROOM(L, S, status, cnn_archive_add(&S->ctx, a, name, t));
    lua_pop(L, 2);
  }
  lua_pushnil(L);
  while (status == CNN_OK && lua_next(L, 5)) {
    const char *key = check_text(L, S, -2, "save", "a key of the metadata");
    const char *text = check_text(L, S, -1, "save", "metadata");
    CNN_WITH_ROOM(L, S, status, cnn_archive_add_text(&S->ctx, a, key, text));
    lua_pop(L, 1);
  }
  if (status == CNN_OK && kind == NPY && a->n != 1)
    return cnn_error(L, S, "save: an npy file holds one tensor");
  if (status == CNN_OK) CNN_WITH_ROOM(L, S, status, save(S, path, kind, a));
  cnn_archive_free(a);
  if (status != CNN_OK) return cnn_raise(L, S, status);
  return 0;
}

// is_utf8(text): whether it is valid UTF-8 without zero bytes.
static int l_is_utf8(lua_State *L) {
  size_t n;
  const char *text = luaL_checklstring(L, 1, &n);
  lua_pushboolean(L, cnn_utf8_valid(text, n));
  return 1;
}

// ---------------------------------------------------------------------------------------------
// Data files

static cnn_status read_idx(cnn_context *ctx, const char *path, cnn_mapping *m, cnn_tensor **out) {
  return cnn_idx_load(ctx, path, m, out);
}

static cnn_status read_bytes(cnn_context *ctx, const char *path, cnn_mapping *m, cnn_tensor **out) {
  cnn_meta meta;
  int64_t n = (int64_t)m->bytes;
  cnn_device cpu = {CNN_CPU, 0};
  (void)path;
  cnn_meta_set(&meta, CNN_U8, cpu, 1, &n);
  return cnn_mapping_tensor(ctx, m, 0, &meta, false, out);
}

typedef cnn_status (*reader)(cnn_context *ctx, const char *path, cnn_mapping *m, cnn_tensor **out);

static cnn_status read_mapped(cnn_lua *S, const char *name, const char *path, reader read,
                              cnn_tensor **out) {
  cnn_mapping *m;
  const char *outer = S->ctx.op;
  uint8_t kind = S->ctx.kind;
  S->ctx.op = name;
  S->ctx.kind = CNN_KIND_DATA;
  cnn_status status = cnn_file_map(&S->ctx, path, &m);
  if (status == CNN_OK) {
    status = read(&S->ctx, path, m, out);
    cnn_unref(m);
  }
  S->ctx.op = outer;
  S->ctx.kind = kind;
  return status;
}

static int read_one(lua_State *L, const char *name, reader read) {
  cnn_lua *S = cnn_state(L);
  const char *path = check_text(L, S, 1, name, "a file's name");
  cnn_status status;
  cnn_tensor *t;
  cnn_pace(L, S);
  cnn_box *box = cnn_push_tensor_box(L, S, lua_upvalueindex(2));
  CNN_WITH_ROOM(L, S, status, read_mapped(S, name, path, read, &t));
  if (status != CNN_OK) return cnn_raise(L, S, status);
  box->object = t;
  return 1;
}

// read_idx(path): the elements of an IDX file, packed by gzip or not.
static int l_read_idx(lua_State *L) {
  return read_one(L, "read_idx", read_idx);
}

// read_bytes(path): a file's bytes as uint8, mapped.
static int l_read_bytes(lua_State *L) {
  return read_one(L, "read_bytes", read_bytes);
}

void cnn_open_io(lua_State *L, cnn_lua *S) {
  static const cnn_function functions[] = {{"io_load", l_load},          {"io_save", l_save},
                                           {"is_utf8", l_is_utf8},       {"read_idx", l_read_idx},
                                           {"read_bytes", l_read_bytes}, {NULL, NULL}};
  cnn_push_metatable(L, S, CNN_BOX_ARCHIVE);
  lua_pushcfunction(L, archive_gc);
  lua_setfield(L, -2, "__gc");
  lua_pop(L, 1);
  cnn_set_functions(L, S, functions);
}
