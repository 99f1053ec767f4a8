// SPDX-License-Identifier: MIT
//
// What driver.cpp and nvrtc.cpp agree on: an image is this word, the flavour, the number of bytes,
// a newline, and the shared object itself.
#ifndef SIM_MODULE_H
#define SIM_MODULE_H

#include "include/sim_module.h"

#define SIM_IMAGE "CUSIM1"

namespace sim {
struct Function { // what a CUfunction points to
  const SimEntry *entry;
};
} // namespace sim

#endif
