// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Copies vectors to a device and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/view/array_view.hpp>

namespace tessera_test {

template <class T>
tessera::buffer<T> to_device(tessera::cuda const& exec, std::vector<T> const& values) {
  tessera::buffer<T> copy(exec, static_cast<std::int64_t>(values.size()));
  exec.copy(values, copy);
  return copy;
}

/// A copy of elements on the device; waits for it.
template <class T>
std::vector<T> to_host(tessera::cuda const& exec, T const* data, std::int64_t count) {
  std::vector<T> copy(static_cast<std::size_t>(count));
  exec.copy(tessera::array_view<T const>(data, count), copy);
  exec.wait();
  return copy;
}
template <class T>
std::vector<T> to_host(tessera::cuda const& exec, tessera::buffer<T> const& values) {
  std::vector<T> copy(static_cast<std::size_t>(values.size()));
  exec.copy(values, copy);
  exec.wait();
  return copy;
}

}  // namespace tessera_test
