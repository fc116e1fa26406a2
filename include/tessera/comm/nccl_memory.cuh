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
/// Where all ranks of the communicator reach each other's memory, nccl::use() of it lets the programs of each rank
/// store into the memory of all (PeerCommunicator). reaches_peers() says whether they do. A page of flags lies behind
/// it.
///
/// Needs NCCL 2.27, for the policy and for stores 2.28. The constructor is called by all ranks of the communicator and
/// waits for them; it throws device_error with NCCL's text. The memory is given back, which waits for the device,
/// before the communicator is destroyed, by all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <nccl.h>
#include <vector>

#include <tessera/comm/detail/peer_flags.cuh>
#include <tessera/comm/nccl.cuh>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/view/array_view.hpp>

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 27, 0)
#error "tessera/comm/nccl_memory.cuh needs NCCL 2.27, which registers windows"
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 0)
/// The address of a window of another rank. <nccl_device.h> has it, and a namespace nccl besides, which would take the
/// name's place after "using namespace".
extern "C" ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, std::size_t offset, int peer, void** found);
#endif

namespace tessera {
inline namespace v0 {

namespace detail {

/// Whether memory of a device is at an address.
inline bool is_on_device(void const* address) {
  cudaPointerAttributes found{};
  cudaError_t const result = cudaPointerGetAttributes(&found, address);
  static_cast<void>(cudaGetLastError());
  return result == cudaSuccess && found.type == cudaMemoryTypeDevice;
}

/// The address at which this rank's device sees the memory of a rank's window; null where it does not. What is found is
/// believed only once a word of the other rank was read there.
inline std::byte* find_peer([[maybe_unused]] ncclWindow_t window, [[maybe_unused]] int rank) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 0)
  void* found = nullptr;
  return ncclGetPeerDevicePointer(window, 0, rank, &found) == ncclSuccess ? static_cast<std::byte*>(found) : nullptr;
#elif NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
  // NCCL 2.28 tells programs alone, from the first words of a window in the device's memory: the GPUs' memory lies
  // `stride` times 4 GiB apart. Where GPUs do not reach each other it gives a number of its own in place of a window.
  struct window_words {
    void* of_host;
    std::byte* first;
    std::int32_t group_rank;
    std::int32_t rank;
    std::uint32_t stride;
  } words{};
  if (!is_on_device(window)) {
    return nullptr;
  }
  check_cuda(cudaMemcpy(&words, window, sizeof words, cudaMemcpyDeviceToHost), "nccl_memory", "cudaMemcpy");
  return words.first + (std::int64_t{words.group_rank} + rank - words.rank) * (std::int64_t{words.stride} << 32);
#else
  return nullptr;
#endif
}

}  // namespace detail

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
    detail::check_nccl(ncclCommCount(comm_, &ranks_), "nccl_memory", "ncclCommCount");
    std::int64_t const page = align_up(bytes, std::int64_t{NCCL_WIN_REQUIRED_ALIGNMENT});
    std::int64_t const whole =
        align_up(page + detail::peer_flags::bytes(ranks_), std::int64_t{NCCL_WIN_REQUIRED_ALIGNMENT});
    detail::check_nccl(ncclMemAlloc(&data_, static_cast<std::size_t>(whole)), "nccl_memory", "ncclMemAlloc");
    try {
      peers_.own = view();
      peers_.flags = {reinterpret_cast<std::uint64_t*>(view().data + page), page};
      fill_page();
      detail::check_nccl(
          ncclCommWindowRegister(comm_, data_, static_cast<std::size_t>(whole), &window_, NCCL_WIN_COLL_SYMMETRIC),
          "nccl_memory", "ncclCommWindowRegister");
      find_peers();
    } catch (...) {
      give_back();
      throw;
    }
  }
  nccl_memory(nccl_memory const&) = delete;
  nccl_memory& operator=(nccl_memory const&) = delete;
  ~nccl_memory() {
    if (data_ != nullptr) {
      detail::device_guard const guard(device_);
      static_cast<void>(cudaDeviceSynchronize());  // no stream may still use what is given back
      give_back();
    }
  }

  /// The memory, at a multiple of 4096 bytes.
  [[nodiscard]] array_view<std::byte> view() const { return {static_cast<std::byte*>(data_), bytes_}; }
  /// Whether NCCL made a window of it, which it does where all GPUs reach each other's memory.
  [[nodiscard]] bool is_window() const { return window_ != nullptr; }
  /// Whether programs of each rank can store into the memory of all others.
  [[nodiscard]] bool reaches_peers() const { return !peers_.of_ranks.empty(); }
  /// Not for users: what nccl::use() takes.
  [[nodiscard]] detail::peer_memory const& peers() const { return peers_; }

 private:
  /// Before the window is registered, which waits for all ranks, and so before another rank reads or stores there.
  void fill_page() const {
    std::vector<std::uint64_t> page(static_cast<std::size_t>(detail::peer_flags::words_for(ranks_)));
    int rank = 0;
    detail::check_nccl(ncclCommUserRank(comm_, &rank), "nccl_memory", "ncclCommUserRank");
    page.back() = detail::peer_flags::sign_of(rank);
    copy(page.data(), peers_.flags.words, std::ssize(page));
  }
  /// Finds where the ranks' memory is, if this rank reaches that of all.
  void find_peers() {
    std::vector<std::uint64_t> addresses;
    std::vector<std::byte*> found;
    for (int rank = 0; rank < ranks_; ++rank) {
      std::byte* const first = detail::find_peer(window_, rank);
      std::byte* const sign = first + peers_.flags.place + detail::peer_flags::bytes(ranks_) - sizeof(std::uint64_t);
      std::uint64_t read = 0;
      if (first == nullptr || !detail::is_on_device(sign)) {
        return;
      }
      copy(reinterpret_cast<std::uint64_t const*>(sign), &read, 1);
      if (read != detail::peer_flags::sign_of(rank)) {
        return;
      }
      found.push_back(first);
      addresses.push_back(reinterpret_cast<std::uintptr_t>(first));
    }
    copy(addresses.data(), peers_.flags.addresses(ranks_), ranks_);
    peers_.of_ranks = found;
  }
  static void copy(std::uint64_t const* from, std::uint64_t* to, std::int64_t words) {
    check_cuda(cudaMemcpy(to, from, static_cast<std::size_t>(words) * sizeof(*to), cudaMemcpyDefault), "nccl_memory",
               "cudaMemcpy");
    check_cuda(cudaDeviceSynchronize(), "nccl_memory", "cudaDeviceSynchronize");
  }
  void give_back() {
    if (window_ != nullptr) {
      static_cast<void>(ncclCommWindowDeregister(comm_, window_));
    }
    static_cast<void>(ncclMemFree(data_));
  }

  ncclComm_t comm_;
  detail::peer_memory peers_;
  ncclWindow_t window_ = nullptr;
  void* data_ = nullptr;
  std::int64_t bytes_;
  int device_ = 0;
  int ranks_ = 0;
};

}  // namespace v0
}  // namespace tessera
