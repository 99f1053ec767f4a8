// SPDX-License-Identifier: MIT
// How the plugin's library engines (blaslt.h, dnn.h) answer: they never print and never raise.
#ifndef CNN_CUDA_ANSWER_H
#define CNN_CUDA_ANSWER_H

#include <stdio.h>

// A refusal is a normal answer: nothing was queued, and the caller's own kernel takes over. A
// failure is an error to raise; nothing was queued either, unless the library itself broke down
// while it queued.
typedef enum cuda_answer { CUDA_OK, CUDA_REFUSED, CUDA_FAILED } cuda_answer;

// Why, in one line without the op's name; untouched where the answer is CUDA_OK.
typedef struct cuda_message {
  char text[256];
} cuda_message;

static inline cuda_answer cuda_refuse(cuda_message *why, const char *text) {
  snprintf(why->text, sizeof why->text, "%s", text);
  return CUDA_REFUSED;
}

static inline cuda_answer cuda_failed(cuda_message *why, const char *text) {
  snprintf(why->text, sizeof why->text, "%s", text);
  return CUDA_FAILED;
}

#endif
