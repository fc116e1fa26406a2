// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What the programs in C share: blocks of memory, bf16, random numbers, tensors, and an end where a call fails.
#ifndef PROGRAM_H
#define PROGRAM_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tessera_c.h"

/// Ends the program where a call fails.
static inline void need(tessera_status status) {
  if (status != TESSERA_SUCCESS) {
    fprintf(stderr, "%s: %s\n", tessera_status_name(status), tessera_last_error());
    exit(1);
  }
}

/// A block of zeros that begins at a multiple of 256 bytes, for the rest of the program.
static inline tessera_memory block_of(size_t bytes) {
  tessera_memory block;
  unsigned char* const raw = (unsigned char*)calloc(1, bytes + 256);
  if (raw == NULL) {
    fprintf(stderr, "there are no %zu bytes\n", bytes);
    exit(1);
  }
  block.data = raw + (256 - (uintptr_t)raw % 256) % 256;
  block.bytes = bytes;
  return block;
}

static inline size_t bytes_of_type(int32_t type) {
  return type == TESSERA_F32 || type == TESSERA_I32 ? 4 : type == TESSERA_I64 ? 8 : 2;
}

/// A tensor of zeros, with the elements of the last dimension next to each other.
static inline tessera_tensor tensor_of(int32_t type, int32_t rank, int64_t a, int64_t b, int64_t c, int64_t d) {
  tessera_tensor tensor = {NULL, 0, 0, {0, 0, 0, 0}, {0, 0, 0, 0}};
  int64_t const extents[4] = {a, b, c, d};
  int64_t stride = 1;
  int32_t i = 0;
  tensor.type = type;
  tensor.rank = rank;
  for (i = rank - 1; i >= 0; --i) {
    tensor.extents[i] = extents[i];
    tensor.strides[i] = stride;
    stride *= extents[i];
  }
  tensor.data = block_of((size_t)stride * bytes_of_type(type)).data;
  return tensor;
}

static inline float from_bf16(uint16_t bits) {
  uint32_t const word = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &word, sizeof(value));
  return value;
}
static inline uint16_t to_bf16(float value) {
  uint32_t word;
  memcpy(&word, &value, sizeof(word));
  return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);  // to the nearest, of two the even one; no NaNs here
}

/// Random numbers, the same in each run: about normal, with a standard deviation of 1.
static inline double random_number(void) {
  static uint64_t state = 88172645463325252ULL;
  double sum = 0;
  int i = 0;
  for (i = 0; i < 12; ++i) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    sum += (double)(state >> 11) / 9007199254740992.0;
  }
  return sum - 6;
}

static inline int64_t count_of(tessera_tensor const* tensor) {
  int64_t count = 1;
  int32_t i = 0;
  for (i = 0; i < tensor->rank; ++i) {
    count *= tensor->extents[i];
  }
  return count;
}
static inline void fill_bf16(tessera_tensor const* tensor, double scale) {
  int64_t i = 0;
  for (i = 0; i < count_of(tensor); ++i) {
    ((uint16_t*)tensor->data)[i] = to_bf16((float)(scale * random_number()));
  }
}

/// An open executor of the CPU.
static inline tessera_executor cpu_executor(int32_t threads) {
  tessera_executor executor = TESSERA_EXECUTOR_INIT;
  size_t bytes = 0;
  executor.threads = threads;
  need(tessera_executor_bytes(&executor, &bytes));
  need(tessera_executor_open(&executor, block_of(bytes)));
  return executor;
}

#endif
