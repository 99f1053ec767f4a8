// SPDX-License-Identifier: MIT
#include "cases.h"
const Case host_cases[] = {{nullptr, nullptr}};
