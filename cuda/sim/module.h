// SPDX-License-Identifier: MIT
//
// What driver.cpp and nvrtc.cpp agree on: an image is this word, the flavour, the number of bytes,
// a newline, and the shared object itself.
#ifndef SIM_MODULE_H
#define SIM_MODULE_H

#include <nvrtc.h>
#include <string>
#include <vector>
#include "include/sim_module.h"

#define SIM_IMAGE "CUSIM1"

namespace sim {
struct Function { // what a CUfunction points to
  const SimEntry *entry;
};

// What the real NVRTC says of a program, where one is asked for; its words in *log, if it fails.
nvrtcResult real_nvrtc(const std::string &source, const std::string &name,
                       const std::vector<std::string> &expressions, int n,
                       const char *const *options, std::string *log);
} // namespace sim

#endif
