// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What the programs in C share: blocks of memory, bf16, random numbers, tensors, and an end where a call fails. With
/// PROGRAM_USES_CUDA they run on a GPU; tensors then lie in host memory that it reads, so that loops see them, too.
#ifndef PROGRAM_H
#define PROGRAM_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tessera_c.h"

#if defined(PROGRAM_USES_CUDA)
#include <cuda_runtime_api.h>

/// Ends the program where a call of the runtime fails; without a GPU it has been skipped.
static inline void need_cuda(cudaError_t result) {
  if (result == cudaErrorNoDevice || result == cudaErrorInsufficientDriver) {
    printf("[tessera:skipped] there is no GPU\n");
    exit(0);
  }
  if (result != cudaSuccess) {
    fprintf(stderr, "%s\n", cudaGetErrorString(result));
    exit(1);
  }
}
#endif

/// Ends the program where a call fails.
static inline void need(tessera_status status) {
  if (status != TESSERA_SUCCESS) {
    fprintf(stderr, "%s: %s\n", tessera_status_name(status), tessera_last_error());
    exit(1);
  }
}

/// A block of zeros in host memory, for the rest of the program, that begins at a multiple of 256 bytes.
static inline tessera_memory host_block_of(size_t bytes) {
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

/// The same where the executor runs.
static inline tessera_memory block_of(size_t bytes) {
#if defined(PROGRAM_USES_CUDA)
  tessera_memory block = {NULL, bytes};
  need_cuda(cudaMalloc(&block.data, bytes + 1));
  need_cuda(cudaMemset(block.data, 0, bytes + 1));
  need_cuda(cudaDeviceSynchronize());
  return block;
#else
  return host_block_of(bytes);
#endif
}

/// The same in host memory that the executor's device reads and writes.
static inline tessera_memory shared_block_of(size_t bytes) {
#if defined(PROGRAM_USES_CUDA)
  tessera_memory block = {NULL, bytes};
  need_cuda(cudaMallocHost(&block.data, bytes + 1));
  memset(block.data, 0, bytes + 1);
  return block;
#else
  return host_block_of(bytes);
#endif
}

/// A stream of the executor's device, for the rest of the program; null where it has none.
static inline void* new_stream(void) {
#if defined(PROGRAM_USES_CUDA)
  cudaStream_t stream;
  need_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
#else
  return NULL;
#endif
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
  tensor.data = shared_block_of((size_t)stride * bytes_of_type(type)).data;
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

/// An open executor, of so many threads of the CPU (0: all) or, with PROGRAM_USES_CUDA, of a stream.
static inline tessera_executor open_executor(int32_t threads) {
  tessera_executor executor = TESSERA_EXECUTOR_INIT;
  size_t bytes = 0;
#if defined(PROGRAM_USES_CUDA)
  executor.device = TESSERA_CUDA;
#endif
  executor.threads = threads;
  executor.stream = new_stream();
  need(tessera_executor_bytes(&executor, &bytes));
  need(tessera_executor_open(&executor, host_block_of(bytes)));
  return executor;
}

#endif
