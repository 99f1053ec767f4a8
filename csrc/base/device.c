// SPDX-License-Identifier: MIT
#include "base/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool cnn_device_parse(const char *name, cnn_device *device) {
  device->index = 0;
  if (strcmp(name, "cpu") == 0) return device->type = CNN_CPU, true;
  if (strcmp(name, "meta") == 0) return device->type = CNN_META, true;
  if (strncmp(name, "cuda", 4) != 0) return false;
  device->type = CNN_CUDA;
  if (name[4] == '\0') return true;
  if (name[4] != ':' || name[5] < '0' || name[5] > '9') return false;
  char *end;
  long index = strtol(name + 5, &end, 10);
  if (*end != '\0' || index >= CNN_MAX_DEVICES) return false;
  device->index = (uint8_t)index;
  return true;
}

const char *cnn_device_name(cnn_device device) {
  static const char *const cuda[CNN_MAX_DEVICES] = {"cuda:0",  "cuda:1",  "cuda:2",  "cuda:3",
                                                    "cuda:4",  "cuda:5",  "cuda:6",  "cuda:7",
                                                    "cuda:8",  "cuda:9",  "cuda:10", "cuda:11",
                                                    "cuda:12", "cuda:13", "cuda:14", "cuda:15"};
  if (device.type == CNN_CPU) return "cpu";
  if (device.type == CNN_META) return "meta";
  return cuda[device.index % CNN_MAX_DEVICES];
}
