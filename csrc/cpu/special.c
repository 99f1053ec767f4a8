// SPDX-License-Identifier: MIT
#include "cpu/special.h"

#include <math.h>

#define CNN_SPECIAL(name) double name
#include "cpu/special_body.h"
