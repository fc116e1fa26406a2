// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Communicators of NCCL for tests, one for each of the first devices, and threads that run with them. Needs NCCL 2.28.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <exception>
#include <nccl.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/cuda.hpp"

namespace tessera_test {

inline void nccl_ok(ncclResult_t result) {
  if (result != ncclSuccess) {
    throw std::runtime_error(std::string("NCCL: ") + ncclGetErrorString(result));
  }
}

/// Communicators of the first devices, which end with it. Without thread blocks copy engines send where they can.
class nccl_communicators {
 public:
  explicit nccl_communicators(int devices, bool has_thread_blocks = true) : comms_(static_cast<std::size_t>(devices)) {
    ncclUniqueId id{};
    nccl_ok(ncclGetUniqueId(&id));
    nccl_ok(ncclGroupStart());
    for (int rank = 0; rank < devices; ++rank) {
      cuda_ok(cudaSetDevice(rank));
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.CTAPolicy = has_thread_blocks ? NCCL_CTA_POLICY_DEFAULT : NCCL_CTA_POLICY_ZERO;
      nccl_ok(ncclCommInitRankConfig(&comms_[static_cast<std::size_t>(rank)], devices, id, rank, &config));
    }
    nccl_ok(ncclGroupEnd());
    cuda_ok(cudaSetDevice(0));
  }
  nccl_communicators(nccl_communicators const&) = delete;
  nccl_communicators& operator=(nccl_communicators const&) = delete;
  ~nccl_communicators() {
    for (ncclComm_t comm : comms_) {
      static_cast<void>(ncclCommDestroy(comm));
    }
  }
  [[nodiscard]] ncclComm_t operator[](int rank) const { return comms_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<ncclComm_t> comms_;
};

/// A stream of the current device, which ends with it.
struct own_stream {
  cudaStream_t stream = nullptr;

  own_stream() { cuda_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  own_stream(own_stream const&) = delete;
  own_stream& operator=(own_stream const&) = delete;
  ~own_stream() { static_cast<void>(cudaStreamDestroy(stream)); }
};

/// Calls run(comm, rank) in a thread for each of the first devices, which is current there. Gives what each has thrown,
/// or "".
template <class Run>
std::vector<std::string> on_nccl_ranks(nccl_communicators const& comms, int count, Run const& run) {
  std::vector<std::string> thrown(static_cast<std::size_t>(count));
  std::vector<std::thread> workers;
  for (int rank = 0; rank < count; ++rank) {
    workers.emplace_back([&, rank] {
      try {
        cuda_ok(cudaSetDevice(rank));
        run(comms[rank], rank);
      } catch (std::exception const& error) {
        thrown[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
  return thrown;
}
/// The same with communicators for this call alone, whose making takes a second.
template <class Run>
std::vector<std::string> on_nccl_ranks(int count, Run const& run, bool has_thread_blocks = true) {
  return on_nccl_ranks(nccl_communicators(count, has_thread_blocks), count, run);
}

inline int device_count() {
  int count = 0;
  cuda_ok(cudaGetDeviceCount(&count));
  return count;
}

}  // namespace tessera_test
