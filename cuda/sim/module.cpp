// SPDX-License-Identifier: MIT
//
// What the simulator reads in the files of loaded objects: which shared variables a kernel owns,
// and the places in the source that addresses come from.
//
// Kernels lie in section .sim_kernel and shared variables in .sim_shared (sim_device.h). A static
// local is named after its function, so the symbol table tells whose it is. A stripped object has
// no such table: then all its shared variables count as every kernel's.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "core.h"

namespace sim {

struct Object {
  std::string path;
  uintptr_t base = 0;
  Range shared = {0, 0};
  std::map<std::string, std::vector<Range>> owned; // by the prefix of a kernel's variables
  std::vector<Range> common;                       // of functions that are no kernels
  std::map<uintptr_t, std::string> kernels;        // prefix by address
};
static std::map<uintptr_t, Object> &objects = *new std::map<uintptr_t, Object>; // by base
struct KernelShared {
  std::vector<Range> ranges;
  size_t bytes;
  Range section;
};
static std::map<const void *, KernelShared> &by_kernel = *new std::map<const void *, KernelShared>;

struct Segment {
  uintptr_t start, end, base;
  std::string path;
};
static std::vector<Segment> &segments = *new std::vector<Segment>;

static int add_segments(struct dl_phdr_info *i, size_t, void *) {
  for (int k = 0; k < i->dlpi_phnum; k++) {
    const auto &h = i->dlpi_phdr[k];
    if (h.p_type != PT_LOAD) continue;
    const uintptr_t start = i->dlpi_addr + h.p_vaddr;
    segments.push_back({start, start + h.p_memsz, i->dlpi_addr,
                        i->dlpi_name && *i->dlpi_name ? i->dlpi_name : "/proc/self/exe"});
  }
  return 0;
}

static const Segment *segment_of(const void *p) {
  const uintptr_t a = reinterpret_cast<uintptr_t>(p);
  for (int again = 0; again < 2; again++) {
    for (const Segment &s : segments)
      if (a >= s.start && a < s.end) return &s;
    segments.clear(); // objects may have been loaded
    dl_iterate_phdr(add_segments, nullptr);
  }
  return nullptr;
}

bool in_module(const void *p) {
  return segment_of(p) != nullptr;
}

// "_ZZ" + the function's encoding + "E" begins the names of its static locals.
static std::string prefix_of(const char *kernel) {
  if (!strncmp(kernel, "_Z", 2)) return std::string("_ZZ") + (kernel + 2) + "E";
  return "_ZZ" + std::to_string(strlen(kernel)) + kernel + "E";
}

template <class T> static const T *at(const char *file, size_t bytes, size_t offset, size_t n = 1) {
  return offset <= bytes && n <= (bytes - offset) / sizeof(T)
             ? reinterpret_cast<const T *>(file + offset)
             : nullptr;
}

static void read_symbols(Object &o, const char *file, size_t bytes) {
  const auto *e = at<ElfW(Ehdr)>(file, bytes, 0);
  if (!e || memcmp(e->e_ident, ELFMAG, SELFMAG)) return;
  const auto *sections = at<ElfW(Shdr)>(file, bytes, e->e_shoff, e->e_shnum);
  if (!sections || e->e_shstrndx >= e->e_shnum) return;
  const char *names = file + sections[e->e_shstrndx].sh_offset;
  size_t shared = 0, code = 0;
  for (size_t i = 0; i < e->e_shnum; i++) {
    const char *name = names + sections[i].sh_name;
    if (!strcmp(name, ".sim_shared")) shared = i;
    if (!strcmp(name, ".sim_kernel")) code = i;
  }
  if (shared) o.shared = {o.base + sections[shared].sh_addr, sections[shared].sh_size};
  bool found = false;
  std::vector<std::pair<std::string, Range>> variables;
  for (size_t i = 0; i < e->e_shnum; i++) {
    if (sections[i].sh_type != SHT_SYMTAB || sections[i].sh_link >= e->e_shnum) continue;
    found = true;
    const char *strings = file + sections[sections[i].sh_link].sh_offset;
    const size_t n = sections[i].sh_size / sizeof(ElfW(Sym));
    const auto *symbols = at<ElfW(Sym)>(file, bytes, sections[i].sh_offset, n);
    for (size_t k = 0; symbols && k < n; k++) {
      const auto &s = symbols[k];
      const unsigned type = s.st_info & 0xf;
      const char *name = strings + s.st_name;
      if (code && s.st_shndx == code && type == STT_FUNC)
        o.kernels[o.base + s.st_value] = prefix_of(name);
      const bool pad = strstr(name, "sim_shared_pad"); // sim_module.h
      if (shared && s.st_shndx == shared && type == STT_OBJECT && !pad)
        variables.push_back({name, {o.base + s.st_value, s.st_size}});
    }
  }
  if (!found) {
    if (o.shared.bytes) o.common.push_back(o.shared);
    return;
  }
  for (auto &[name, range] : variables) {
    const std::string *owner = nullptr;
    for (auto &[address, prefix] : o.kernels)
      if (!name.compare(0, prefix.size(), prefix)) owner = &prefix;
    if (owner)
      o.owned[*owner].push_back(range);
    else
      o.common.push_back(range);
  }
}

static Object *object_of(const void *p) {
  const Segment *s = segment_of(p);
  if (!s) return nullptr;
  Object &o = objects[s->base];
  if (o.path == s->path) return &o;
  o = Object();
  o.path = s->path;
  o.base = s->base;
  const int fd = open(s->path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat st;
  if (fd >= 0 && !fstat(fd, &st) && st.st_size > 0) {
    const size_t n = static_cast<size_t>(st.st_size);
    void *file = mmap(nullptr, n, PROT_READ, MAP_PRIVATE, fd, 0);
    if (file != MAP_FAILED) {
      read_symbols(o, static_cast<const char *>(file), n);
      munmap(file, n);
    }
  }
  if (fd >= 0) close(fd);
  return &o;
}

static const KernelShared &shared_info(const void *kernel) {
  auto it = by_kernel.find(kernel);
  if (it != by_kernel.end()) return it->second;
  KernelShared r = {{}, 0, {0, 0}};
  if (Object *o = object_of(kernel)) {
    r.section = o->shared;
    r.ranges = o->common;
    auto k = o->kernels.find(reinterpret_cast<uintptr_t>(kernel));
    if (k != o->kernels.end()) {
      auto v = o->owned.find(k->second);
      if (v != o->owned.end())
        for (const Range &range : v->second) {
          r.ranges.push_back(range);
          r.bytes += range.bytes;
        }
    }
  }
  return by_kernel[kernel] = r;
}

const std::vector<Range> &shared_of(const void *kernel) {
  return shared_info(kernel).ranges;
}
size_t shared_bytes_of(const void *kernel) {
  return shared_info(kernel).bytes;
}
Range shared_section_of(const void *kernel) {
  return shared_info(kernel).section;
}
void forget_objects() { // one was unloaded: its addresses may serve again
  by_kernel.clear();
  objects.clear();
  segments.clear();
}

std::string place_of(void *pc) {
  static std::map<void *, std::string> places;
  auto it = places.find(pc);
  if (it != places.end()) return it->second;
  const Segment *s = segment_of(pc);
  if (!s) return places[pc] = "?";
  // a return address: the call lies before it
  const unsigned long offset = reinterpret_cast<uintptr_t>(pc) - 1 - s->base;
  std::string path = s->path;
  if (path == "/proc/self/exe") {
    char self[4096];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n > 0) path.assign(self, static_cast<size_t>(n));
  }
  char out[600] = "", command[5000];
  const char *own = getenv("SIM_SYMBOLIZER");
  for (const char *tool : {own ? own : "llvm-symbolizer", "llvm-symbolizer-14", "addr2line"}) {
    const bool gnu = strstr(tool, "addr2line") != nullptr;
    snprintf(command, sizeof command,
             gnu ? "%s -s -e '%s' 0x%lx 2>/dev/null"
                 : "%s --functions=none --obj='%s' 0x%lx 2>/dev/null",
             tool, path.c_str(), offset);
    FILE *f = popen(command, "r");
    const bool ok = f && fgets(out, sizeof out, f) && *out && *out != '?' && *out != '\n';
    if (f) pclose(f);
    if (ok) break;
    *out = 0;
  }
  out[strcspn(out, "\n")] = 0;
  if (char *colon = strrchr(out, ':')) { // file:line:column
    char *first = strchr(out, ':');
    if (first != colon) *colon = 0;
  }
  if (!*out) snprintf(out, sizeof out, "%s+0x%lx", path.c_str(), offset);
  const char *place = out;
  while (!strncmp(place, "./", 2)) place += 2;
  return places[pc] = place;
}

} // namespace sim
