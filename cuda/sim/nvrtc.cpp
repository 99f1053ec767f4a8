// SPDX-License-Identifier: MIT
//
// Stands in for NVRTC: writes the source to a file, has the simulator's compiler make a shared
// object of it, and hands that out as "PTX" and as "cubin". Compiler's messages name the program
// and its lines, as NVRTC's do. Kernels call the checker (check.cpp) in every flavour: these are
// the kernels of users. It accepts what clang accepts as C++ with the simulator's headers, which is
// a little more than NVRTC does (the C library is there): SIM_REAL_NVRTC has the real one compile
// too (nvrtc_real.cpp).
#include <dirent.h>
#include <nvrtc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <fstream>
#include <regex>
#include <sstream>
#include "core.h"
#include "module.h"

#ifndef SIM_CXX // how kernels are compiled in this build; from sim.mk
#define SIM_CXX  "clang++ -std=c++17 -O2 -fPIC -fvisibility=hidden"
#define SIM_LINK "clang++"
#endif

struct _nvrtcProgram {
  std::string source, name, log, image;
  std::vector<std::pair<std::string, std::string>> headers; // name, text
  std::vector<std::string> expressions;
  std::vector<std::string> lowered;
  bool cubin = true; // false: compiled for an architecture that is none of a GPU's (compute_90)
};

namespace {

std::string quote(const std::string &s) {
  std::string r = "'";
  for (char c : s) r += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return r + "'";
}

void write_file(const std::string &path, const std::string &text) {
  for (size_t i = path.find('/', 1); i != std::string::npos; i = path.find('/', i + 1)) {
    const std::string folder = path.substr(0, i);
    if (access(folder.c_str(), F_OK)) {
      const std::string command = "mkdir -p " + quote(folder);
      if (system(command.c_str())) return;
    }
  }
  std::ofstream(path) << text;
}

std::string read_file(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

// The source without comments, so that names in them count for nothing.
std::string without_comments(const std::string &s) {
  return std::regex_replace(s, std::regex("//[^\n]*|/\\*([^*]|\\*+[^*/])*\\*+/"), " ");
}

// Kernels with C linkage: the only ones whose name in the image is their own.
std::vector<std::string> c_kernels(const std::string &source) {
  std::vector<std::string> r;
  const std::string s = without_comments(source);
  const bool block = std::regex_search(s, std::regex("extern\\s*\"C\"\\s*\\{"));
  const std::regex kernel(std::string(block ? "" : "extern\\s*\"C\"\\s+") +
                          "__global__\\s+(?:__launch_bounds__\\s*\\([^)]*\\)\\s*)?void\\s+"
                          "(?:__launch_bounds__\\s*\\([^)]*\\)\\s*)?(\\w+)\\s*\\(");
  for (std::sregex_iterator i(s.begin(), s.end(), kernel), end; i != end; ++i) {
    const std::string name = (*i)[1];
    if (std::find(r.begin(), r.end(), name) == r.end()) r.push_back(name);
  }
  return r;
}

// `extern __shared__ T x[];` is dynamic shared memory, and no C++: it becomes a pointer, on the
// same line. Outside of functions the pointer is found at each use.
std::string with_dynamic_shared(const std::string &source) {
  static const std::regex extern_shared(
      "extern\\s+__shared__\\s+(?:(?:__align__|alignas)\\s*\\([^)]*\\)\\s*)?"
      "([\\w:\\s]*[\\w:])\\s+(\\w+)\\s*\\[\\s*\\]\\s*;");
  std::string r;
  auto from = source.begin();
  for (std::sregex_iterator i(from, source.end(), extern_shared), end; i != end; ++i) {
    const auto at = (*i)[0].first, behind = (*i)[0].second;
    const std::string type = (*i)[1], name = (*i)[2];
    int depth = 0;
    for (char c : without_comments({source.begin(), at})) depth += (c == '{') - (c == '}');
    r.append(from, at);
    r += depth > 0 ? type + " *" + name + " = static_cast<" + type + " *>(sim_dynamic_shared());"
                   : "static const SimDynamicShared<" + type + "> " + name + ";";
    r.append(static_cast<size_t>(std::count(at, behind, '\n')), '\n');
    from = behind;
  }
  r.append(from, source.end());
  return r;
}

std::string in_quotes(const std::string &s) {
  std::string r = "\"";
  for (char c : s) r += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return r + "\"";
}

std::string frame(const _nvrtcProgram &p) {
  std::string text = "#include <sim_module.h>\n#line 1 " + in_quotes(p.name) + "\n" +
                     with_dynamic_shared(p.source) +
                     "\n#line 1 \"sim\"\nstatic const SimEntry sim_entries[] = {\n";
  for (const std::string &k : c_kernels(p.source))
    text += "SIM_MODULE_ENTRY(\"" + k + "\", \"" + k + "\", " + k + "),\n";
  for (size_t i = 0; i < p.expressions.size(); i++)
    text += "SIM_MODULE_ENTRY(\"" + p.lowered[i] + "\", " + in_quotes(p.expressions[i]) + ", " +
            p.expressions[i] + "),\n";
  return text + "{nullptr, nullptr, nullptr}};\n"
                "extern \"C\" __attribute__((visibility(\"default\")))\n"
                "const SimEntry *sim_module_open(const SimApi *api) {\n"
                "  const SimEntry *all = sim_entries;\n"
                "  sim_last_shared<0>();\n  sim_use(api);\n  return all;\n}\n";
}

// What is the user's of NVRTC's options; the others tell of GPUs.
std::string options_of(int n, const char *const *options) {
  std::string r;
  for (int i = 0; i < n; i++) {
    std::string o = options[i];
    const bool alone = o == "-I" || o == "-D" || o == "-U" || o == "-include" || o == "-arch" ||
                       o == "--gpu-architecture" || o == "--std" || o == "-std";
    if (alone && i + 1 < n) o += std::string(o.size() > 2 ? "=" : "") + options[++i];
    for (const char *prefix : {"--include-path=", "--define-macro=", "--undefine-macro="})
      if (!o.compare(0, strlen(prefix), prefix))
        o = std::string(prefix[2] == 'i'   ? "-I"
                        : prefix[2] == 'd' ? "-D"
                                           : "-U") +
            o.substr(strlen(prefix));
    if (!o.compare(0, 2, "-I") || !o.compare(0, 2, "-D") || !o.compare(0, 2, "-U"))
      r += " " + quote(o);
  }
  return r;
}

} // namespace

using namespace sim;

extern "C" {

const char *nvrtcGetErrorString(nvrtcResult r) {
  switch (r) {
  case NVRTC_SUCCESS: return "NVRTC_SUCCESS";
  case NVRTC_ERROR_OUT_OF_MEMORY: return "NVRTC_ERROR_OUT_OF_MEMORY";
  case NVRTC_ERROR_INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
  case NVRTC_ERROR_INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
  case NVRTC_ERROR_INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
  case NVRTC_ERROR_COMPILATION: return "NVRTC_ERROR_COMPILATION";
  case NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION:
    return "NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION";
  case NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION:
    return "NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION";
  case NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID: return "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID";
  default: return "NVRTC_ERROR_INTERNAL_ERROR";
  }
}
nvrtcResult nvrtcVersion(int *major, int *minor) {
  *major = CUDART_VERSION / 1000;
  *minor = CUDART_VERSION % 1000 / 10;
  return NVRTC_SUCCESS;
}
static const std::vector<int> &architectures() {
  static std::vector<int> known;
  if (!known.empty()) return known;
  const char *newest = getenv("SIM_NVRTC");
  for (int a : {75, 80, 86, 89, 90, 100, 120})
    if (!newest || a <= atoi(newest)) known.push_back(a);
  return known;
}
nvrtcResult nvrtcGetNumSupportedArchs(int *n) {
  return *n = static_cast<int>(architectures().size()), NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetSupportedArchs(int *out) {
  std::copy(architectures().begin(), architectures().end(), out);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCreateProgram(nvrtcProgram *out, const char *source, const char *name, int n,
                               const char *const *headers, const char *const *names) {
  if (!out || !source || n < 0) return NVRTC_ERROR_INVALID_INPUT;
  nvrtcProgram p = new _nvrtcProgram;
  p->source = source;
  p->name = name && *name ? name : "default_program";
  for (int i = 0; i < n; i++) p->headers.push_back({names[i], headers[i]});
  *out = p;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram *p) {
  if (!p || !*p) return NVRTC_ERROR_INVALID_PROGRAM;
  delete *p;
  *p = nullptr;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcAddNameExpression(nvrtcProgram p, const char *expression) {
  if (!p || !expression) return NVRTC_ERROR_INVALID_PROGRAM;
  if (!p->image.empty()) return NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION;
  std::string e = expression;
  if (e[0] == '&') e = e.substr(1);
  p->expressions.push_back(e);
  p->lowered.push_back("_Zsim_expression_" + std::to_string(p->expressions.size()));
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetLoweredName(nvrtcProgram p, const char *expression, const char **out) {
  if (!p || !expression || !out) return NVRTC_ERROR_INVALID_PROGRAM;
  if (p->image.empty()) return NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION;
  const std::string e = expression[0] == '&' ? expression + 1 : expression;
  for (size_t i = 0; i < p->expressions.size(); i++)
    if (p->expressions[i] == e) return *out = p->lowered[i].c_str(), NVRTC_SUCCESS;
  return NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram p, int n, const char *const *options) {
  if (!p) return NVRTC_ERROR_INVALID_PROGRAM;
  p->cubin = true;
  for (int i = 0; i < n; i++) {
    const std::string o = options[i];
    if (o.compare(0, 19, "--gpu-architecture=")) continue;
    const int arch = atoi(o.c_str() + o.find('_') + 1);
    const auto &known = architectures();
    if (std::find(known.begin(), known.end(), arch) == known.end()) {
      p->log = "nvrtc: error: invalid value for --gpu-architecture (-arch)\n";
      return NVRTC_ERROR_INVALID_OPTION;
    }
    p->cubin = o.find("=compute_") == std::string::npos;
  }
  p->log.clear();
  const nvrtcResult real = real_nvrtc(p->source, p->name, p->expressions, n, options, &p->log);
  if (real != NVRTC_SUCCESS) return real;
  const char *tmp = getenv("TMPDIR");
  std::string folder = std::string(tmp ? tmp : "/tmp") + "/simXXXXXX";
  if (!mkdtemp(folder.data())) return NVRTC_ERROR_INTERNAL_ERROR;
  // The C library's assert ends the process.
  write_file(folder + "/include/assert.h", "#undef assert\n#define assert SIM_ASSERT\n");
  for (auto &[name, text] : p->headers) write_file(folder + "/include/" + name, text);
  const std::string source = folder + "/program.cpp", object = folder + "/program.o";
  write_file(source, frame(*p));
  const char *own = getenv("SIM_CXX");
  const std::string cxx = own ? own : SIM_CXX, so = folder + "/program.so";
  std::string command =
      cxx + " -DSIM_MODULE -I" + quote(folder + "/include") + options_of(n, options) +
      " -fno-delete-null-pointer-checks -fdebug-compilation-dir=. -Wno-unknown-pragmas -x c++ -c " +
      quote(source) + " -o " + quote(object) + " 2>&1";
  command += " && objcopy --redefine-sym memcpy=sim_memcpy --redefine-sym memmove=sim_memmove "
             "--redefine-sym memset=sim_memset " +
             quote(object) + " 2>&1";
  command += " && " SIM_LINK " -shared " + quote(object) + " -o " + quote(so) + " 2>&1";
  int status = -1;
  if (FILE *f = popen(command.c_str(), "r")) {
    char line[1000];
    while (fgets(line, sizeof line, f)) p->log += line;
    status = pclose(f);
  }
  if (!status) {
    const std::string bytes = read_file(so);
    p->image = std::string(SIM_IMAGE) + " " + sim_flavour() + " " + std::to_string(bytes.size()) +
               "\n" + bytes;
  }
  const std::string clean = "rm -rf " + quote(folder);
  if (system(clean.c_str())) status = -1;
  return status ? NVRTC_ERROR_COMPILATION : NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram p, size_t *n) {
  if (!p || !n) return NVRTC_ERROR_INVALID_PROGRAM;
  return *n = p->log.size() + 1, NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram p, char *out) {
  if (!p || !out) return NVRTC_ERROR_INVALID_PROGRAM;
  memcpy(out, p->log.c_str(), p->log.size() + 1);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetPTXSize(nvrtcProgram p, size_t *n) {
  if (!p || !n || p->image.empty()) return NVRTC_ERROR_INVALID_PROGRAM;
  return *n = p->image.size() + 1, NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetPTX(nvrtcProgram p, char *out) {
  if (!p || !out || p->image.empty()) return NVRTC_ERROR_INVALID_PROGRAM;
  memcpy(out, p->image.data(), p->image.size());
  out[p->image.size()] = 0;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram p, size_t *n) {
  if (!p || !n || p->image.empty()) return NVRTC_ERROR_INVALID_PROGRAM;
  return *n = p->cubin ? p->image.size() : 0, NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram p, char *out) {
  if (!p || !out || p->image.empty() || !p->cubin) return NVRTC_ERROR_INVALID_PROGRAM;
  memcpy(out, p->image.data(), p->image.size());
  return NVRTC_SUCCESS;
}

} // extern "C"
