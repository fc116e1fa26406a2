// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `nccl_memory`: memory that NCCL has registered as a symmetric window of a user's ncclComm_t, so that its collectives
/// reach it without copies of their own.
///
///     tessera::nccl_memory const memory(comm, plan.bytes());                   // on all ranks, with one size
///     tessera::workspace const space(plan, memory.view());
///
/// On a communicator whose ncclConfig_t has CTAPolicy = NCCL_CTA_POLICY_ZERO, NCCL's all_gather of such memory is done
/// by copy engines, in no thread block, where GPUs reach each other's memory. Measured on two H200 over NVLink: 64 MiB
/// of each in 191 us where a rank's part lies in its place already, by NCCL's programs from other memory in 280 us.
/// Source and target must both lie in such memory then, in one that has the same size on all ranks and at the same
/// places in it.
///
/// Needs NCCL 2.27, for the policy 2.28. The constructor is called by all ranks of the communicator and waits for them;
/// it throws device_error with NCCL's text. The memory is given back, which waits for the device, before the
/// communicator is destroyed, by all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nccl.h>

#include <tessera/comm/nccl.cuh>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/view/array_view.hpp>

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 27, 0)
#error "tessera/comm/nccl_memory.cuh needs NCCL 2.27, which registers windows"
#endif

namespace tessera {
inline namespace v0 {

class nccl_memory {
 public:
  /// Allocates `bytes` bytes on the communicator's device and registers them.
  nccl_memory(ncclComm_t comm, std::int64_t bytes) : comm_(comm), bytes_(bytes) {
    check<value_error>(comm != nullptr, "nccl_memory: the ncclComm_t is null");
    check<shape_error>(bytes >= 0, "nccl_memory: ", bytes, " bytes are asked for but must be at least ", 0);
    if (bytes == 0) {
      return;
    }
    detail::check_nccl(ncclCommCuDevice(comm_, &device_), "nccl_memory", "ncclCommCuDevice");
    detail::device_guard const guard(device_);
    std::int64_t const whole = align_up(bytes, std::int64_t{NCCL_WIN_REQUIRED_ALIGNMENT});
    detail::check_nccl(ncclMemAlloc(&data_, static_cast<std::size_t>(whole)), "nccl_memory", "ncclMemAlloc");
    ncclResult_t const found =
        ncclCommWindowRegister(comm_, data_, static_cast<std::size_t>(whole), &window_, NCCL_WIN_COLL_SYMMETRIC);
    if (found != ncclSuccess) {
      static_cast<void>(ncclMemFree(data_));
      detail::check_nccl(found, "nccl_memory", "ncclCommWindowRegister");
    }
  }
  nccl_memory(nccl_memory const&) = delete;
  nccl_memory& operator=(nccl_memory const&) = delete;
  ~nccl_memory() {
    if (data_ != nullptr) {
      detail::device_guard const guard(device_);
      static_cast<void>(cudaDeviceSynchronize());  // no stream may still use what is given back
      if (window_ != nullptr) {
        static_cast<void>(ncclCommWindowDeregister(comm_, window_));
      }
      static_cast<void>(ncclMemFree(data_));
    }
  }

  /// The memory, at a multiple of 4096 bytes.
  [[nodiscard]] array_view<std::byte> view() const { return {static_cast<std::byte*>(data_), bytes_}; }
  /// Whether NCCL made a window of it, which it does where all GPUs reach each other's memory.
  [[nodiscard]] bool is_window() const { return window_ != nullptr; }

 private:
  ncclComm_t comm_;
  ncclWindow_t window_ = nullptr;
  void* data_ = nullptr;
  std::int64_t bytes_;
  int device_ = 0;
};

}  // namespace v0
}  // namespace tessera
