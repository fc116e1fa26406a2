// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Executors behind tessera_executor. A source of this library is compiled as C++, for the CPU alone, or by nvcc, for
/// both.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/memory.hpp>
#include <tessera/exec/workspace.hpp>

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/exec/cuda.cuh>
#endif

#include "errors.hpp"
#include "tessera_c.h"

namespace tessera_c {

/// The begin of every object in memory of the caller's. The mark is of its type, and is gone once it is closed.
struct object_head {
  std::uint64_t mark;
  std::int32_t device;
};

/// Throws unless an object has its mark. `functions`: what the names of those that open and close it begin with.
inline void check_mark(object_head const& head, std::uint64_t mark, char const* object, char const* functions) {
  require(head.mark == mark, TESSERA_VALUE_ERROR, "the ", object, " is none that ", functions, "_open() has set and ",
          functions, "_close() not closed");
}

/// Memory of executors: callers give all memory.
struct no_memory {
  [[noreturn]] static void* allocate(std::size_t bytes, std::size_t, tessera::stream_handle) {
    throw tessera::value_error(tessera::join("a call asks for ", bytes, " bytes but callers give all memory"));
  }
  static void deallocate(void*, std::size_t, std::size_t, tessera::stream_handle) noexcept {}
};

constexpr std::uint64_t executor_mark = 0x726f747563657865;

template <class Exec>
struct executor_object {
  object_head head;
  Exec exec;
};

/// The executor of an open tessera_executor, whose stream or threads are those of the call.
template <class Exec>
Exec const& executor_in(tessera_executor const& from) {
  return static_cast<executor_object<Exec> const*>(from.state)->exec;
}

inline char const* device_name(std::int32_t device) {
  return device == TESSERA_CPU ? "the CPU" : device == TESSERA_CUDA ? "CUDA" : "an unknown device";
}

/// Throws for a device that there is none of here, or a stream or threads that it has not.
inline void check_executor(tessera_executor const& given) {
#if defined(TESSERA_COMPILES_CUDA)
  constexpr bool has_cuda = true;
#else
  constexpr bool has_cuda = false;
#endif
  require(given.device == TESSERA_CPU || given.device == TESSERA_CUDA, TESSERA_VALUE_ERROR, "the executor's device is ",
          given.device, " but must be ", TESSERA_CPU, " (the CPU) or ", TESSERA_CUDA, " (CUDA)");
  require(given.device == TESSERA_CPU || has_cuda, TESSERA_NOT_BUILT, "the executor's device is ", TESSERA_CUDA,
          " (CUDA) but this library was built for ", TESSERA_CPU, " (the CPU) alone");
  require(given.threads >= 0, TESSERA_VALUE_ERROR, "the executor has ", given.threads,
          " threads but must have 0 or more");
  require(given.device == TESSERA_CUDA || given.stream == nullptr, TESSERA_VALUE_ERROR,
          "the executor's device is the CPU, which has no streams, but its stream is not null");
}

/// Throws where an object was opened for another device than the executor's.
inline void check_device(object_head const& head, tessera_executor const& given, char const* object) {
  require(head.device == given.device, TESSERA_VALUE_ERROR, "the executor's device is ", device_name(given.device),
          " but ", object, " was opened for ", device_name(head.device));
}

/// The executor of the caller's, checked and open.
inline tessera_executor open_executor(tessera_executor const* executor) {
  tessera_executor const given = known_part(executor, "executor");
  check_executor(given);
  require(given.state != nullptr, TESSERA_NULL_POINTER,
          "the executor's state is null but tessera_executor_open() must have set it");
  auto const& head = *static_cast<object_head const*>(given.state);
  check_mark(head, executor_mark, "executor's state", "tessera_executor");
  check_device(head, given, "it");
  return given;
}

/// Calls use(exec) with the executor.
template <class Use>
void with_executor(tessera_executor const* executor, Use const& use) {
  tessera_executor const given = open_executor(executor);
  if (given.device == TESSERA_CPU) {
    tessera::cpu exec = executor_in<tessera::cpu>(given);
    exec.threads = given.threads;
    return use(exec);
  }
#if defined(TESSERA_COMPILES_CUDA)
  tessera::cuda exec = executor_in<tessera::cuda>(given);
  exec.stream = static_cast<cudaStream_t>(given.stream);
  return use(exec);
#endif
}

/// Throws unless a cache is open. Cache: has a head, its mark, and `functions` as in check_mark().
template <class Cache>
void check_open(Cache const* cache) {
  require_given(cache, "cache");
  check_mark(cache->head, Cache::mark, "cache", Cache::functions);
}

/// Calls use(exec) with the executor, for whose device an open cache must have been opened.
template <class Cache, class Use>
void with_executor_of(Cache const* cache, tessera_executor const* executor, Use const& use) {
  check_open(cache);
  check_device(cache->head, open_executor(executor), "the cache");
  with_executor(executor, use);
}

/// Throws where calls of an executor are being captured, for calls that wait.
template <class Exec>
void refuse_capture(Exec const&) {}
#if defined(TESSERA_COMPILES_CUDA)
inline void refuse_capture(tessera::cuda const& exec) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  tessera::check_cuda(cudaStreamIsCapturing(exec.stream, &capture), "executor", "cudaStreamIsCapturing");
  require(capture == cudaStreamCaptureStatusNone, TESSERA_VALUE_ERROR,
          "the stream is being captured, but this call waits for it");
}
#endif

/// Sets a number of bytes for the caller.
inline void set_bytes(std::size_t* bytes, std::int64_t value, char const* name = "bytes") {
  require_given(bytes, name);
  *bytes = static_cast<std::size_t>(value);
}

/// Where an object of so many bytes lies in host memory of the caller's, which need not be aligned.
template <class Object>
void* place_in(tessera_memory memory, char const* name) {
  require_given(memory.data, name);
  constexpr std::size_t needed = sizeof(Object) + alignof(Object);
  require(memory.bytes >= needed, TESSERA_SHAPE_ERROR, "the ", name, " has ", memory.bytes, " bytes but needs ",
          needed);
  auto const address = reinterpret_cast<std::uintptr_t>(memory.data);
  return static_cast<std::byte*>(memory.data) + (alignof(Object) - address % alignof(Object)) % alignof(Object);
}
template <class Object>
constexpr std::int64_t bytes_of_object = static_cast<std::int64_t>(sizeof(Object) + alignof(Object));

}  // namespace tessera_c
