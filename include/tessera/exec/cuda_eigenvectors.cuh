// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `cuda_eigenvectors`: eigenvalues and eigenvectors of a symmetric matrix in double by cuSOLVER (Xsyevd). No other
/// header but algorithm/subspace/subspace_by_solver.cuh includes this one. Sources that include it must link cuSOLVER:
/// target_link_libraries(... tessera::cuda CUDA::cusolver).
///
///     cuda_eigenvectors solver(exec, 1024);                       // a handle; memory of the host
///     buffer<std::byte> work(exec, solver.device_bytes());
///     solver.run(exec, {matrix, {1024, 1024}}, values, work, info);      // enqueues; may wait inside of cuSOLVER
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cusolverDn.h>
#include <memory>
#include <type_traits>
#include <vector>

#include <tessera/core/check.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

class cuda_eigenvectors {
 public:
  /// A solver for matrices of size x size; asks cuSOLVER for the size of its workspace. Throws device_error.
  template <class Architectures>
  cuda_eigenvectors(basic_cuda<Architectures> const& exec, std::int64_t size) : size_(size) {
    detail::device_guard const guard(exec.state->device());
    cusolverDnHandle_t handle = nullptr;
    check_solver(cusolverDnCreate(&handle), "cusolverDnCreate");
    handle_.reset(handle);
    cusolverDnParams_t params = nullptr;
    check_solver(cusolverDnCreateParams(&params), "cusolverDnCreateParams");
    params_.reset(params);
    std::size_t on_device = 0;
    std::size_t on_host = 0;
    check_solver(
        cusolverDnXsyevd_bufferSize(handle, params, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, size, CUDA_R_64F,
                                    nullptr, size, CUDA_R_64F, nullptr, CUDA_R_64F, &on_device, &on_host),
        "cusolverDnXsyevd_bufferSize");
    device_bytes_ = static_cast<std::int64_t>(on_device);
    host_.resize(on_host);
  }

  /// Bytes of workspace on the device.
  [[nodiscard]] std::int64_t device_bytes() const { return device_bytes_; }

  /// Overwrites the matrix, whose rows lie one after the other, by eigenvectors as rows, in order of rising
  /// eigenvalues. info: 0 if they were found.
  template <class Architectures>
  void run(basic_cuda<Architectures> const& exec, matrix_view<double> matrix, array_view<double> values,
           array_view<std::byte> work, array_view<std::int32_t> info) {
    check<shape_error>(matrix.extent(0) == size_ && matrix.extent(1) == size_, "cuda_eigenvectors.run: the matrix has ",
                       matrix.extent(0), " x ", matrix.extent(1), " elements but ", size_, " x ", size_,
                       " was planned");
    check<shape_error>(work.size() >= device_bytes_, "cuda_eigenvectors.run: there are ", work.size(),
                       " bytes of workspace but ", device_bytes_, " are needed");
    detail::device_guard const guard(exec.state->device());
    check_solver(cusolverDnSetStream(handle_.get(), exec.stream), "cusolverDnSetStream");
    check_solver(cusolverDnXsyevd(handle_.get(), params_.get(), CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, size_,
                                  CUDA_R_64F, matrix.data, size_, CUDA_R_64F, values.data, CUDA_R_64F, work.data,
                                  static_cast<std::size_t>(device_bytes_), host_.data(), host_.size(), info.data),
                 "cusolverDnXsyevd");
  }

 private:
  static void check_solver(cusolverStatus_t status, char const* what) {
    if (status != CUSOLVER_STATUS_SUCCESS) {
      throw device_error(join("cuda_eigenvectors: ", what, " gave status ", static_cast<int>(status)),
                         static_cast<int>(cudaErrorUnknown));
    }
  }
  struct destroy {
    void operator()(cusolverDnHandle_t handle) const { static_cast<void>(cusolverDnDestroy(handle)); }
    void operator()(cusolverDnParams_t params) const { static_cast<void>(cusolverDnDestroyParams(params)); }
  };

  std::int64_t size_;
  std::int64_t device_bytes_ = 0;
  std::unique_ptr<std::remove_pointer_t<cusolverDnHandle_t>, destroy> handle_;
  std::unique_ptr<std::remove_pointer_t<cusolverDnParams_t>, destroy> params_;
  std::vector<std::byte> host_;
};

}  // namespace v0
}  // namespace tessera
