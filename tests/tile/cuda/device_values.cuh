// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A few values on the device, for tests of small device functions.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "support/cuda.hpp"

namespace tessera_test {

template <class T>
class device_values {
 public:
  /// Zeros.
  explicit device_values(std::size_t count) : count_(count) {
    cuda_ok(cudaMalloc(&data_, count * sizeof(T)));
    cuda_ok(cudaMemset(data_, 0, count * sizeof(T)));
  }
  explicit device_values(std::vector<T> const& values) : device_values(values.size()) {
    cuda_ok(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  device_values(device_values const&) = delete;
  device_values& operator=(device_values const&) = delete;
  ~device_values() { static_cast<void>(cudaFree(data_)); }

  [[nodiscard]] T* data() const { return static_cast<T*>(data_); }
  [[nodiscard]] std::vector<T> download() const {
    cuda_ok(cudaGetLastError());
    cuda_ok(cudaDeviceSynchronize());
    std::vector<T> values(count_);
    cuda_ok(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  void* data_ = nullptr;
  std::size_t count_;
};

}  // namespace tessera_test
