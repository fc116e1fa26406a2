// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `nccl`: the Communicator of a user's ncclComm_t, which it does not own, on the streams of `tessera::cuda` executors.
///
///     tessera::nccl ranks(comm);                                               // link with -lnccl
///     ranks.all_reduce(exec, sums, tessera::rank_reduction::sum, array_view<float>(sums));
///
/// Needs <nccl.h>, which nothing else of the library includes. Calls enqueue and never wait for the stream, and can be
/// captured in CUDA graphs; the constructor asks NCCL three questions. Lists lie in the device's memory and stay until
/// the stream has done the call. The order of additions is NCCL's. Sizes of other ranks are not compared: where ranks
/// disagree, NCCL may wait for ever. An executor of another device throws value_error, an error of NCCL device_error,
/// with the function's name and NCCL's text. Of a communicator that does not block, ncclInProgress is no error: ask
/// ncclCommGetAsyncError, or check_now(), before the next call. On a dry executor nothing is enqueued.
///
/// With use() of an nccl_memory (comm/nccl_memory.cuh) it is a PeerCommunicator: share() and meet() enqueue one small
/// program, which stores into a flag of each other rank and waits for their stores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nccl.h>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/detail/peer_flags.cuh>
#include <tessera/comm/detail/rank_elements.hpp>
#include <tessera/concepts/comm/communicator.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/cuda_memory.cuh>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

inline void check_nccl(ncclResult_t result, char const* function, char const* call) {
  if (result != ncclSuccess && result != ncclInProgress) {
    throw device_error(join(function, ": ", call, ": ", ncclGetErrorString(result)), static_cast<int>(result));
  }
}

/// NCCL's name of a type that ranks reduce.
template <class T>
constexpr ncclDataType_t nccl_type() {
  static_assert(is_reduced_by_ranks<T>, "tessera: ranks reduce no elements of this type");
  if constexpr (std::is_same_v<T, float>) {
    return ncclFloat32;
  } else if constexpr (std::is_same_v<T, double>) {
    return ncclFloat64;
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return ncclInt32;
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    return ncclInt64;
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return ncclBfloat16;
  } else {
    return ncclFloat16;
  }
}

inline ncclRedOp_t nccl_reduction(rank_reduction reduction) {
  if (reduction == rank_reduction::sum) {
    return ncclSum;
  }
  return reduction == rank_reduction::maximum ? ncclMax : ncclMin;
}

}  // namespace detail

class nccl {
 public:
  /// NCCL chooses the order of additions.
  static constexpr bool reduces_in_rank_order = false;

  /// The communicator must live longer than this.
  explicit nccl(ncclComm_t comm) : comm_(comm) {
    check<value_error>(comm != nullptr, "nccl: the ncclComm_t is null");
    detail::check_nccl(ncclCommCount(comm_, &size_), "nccl", "ncclCommCount");
    detail::check_nccl(ncclCommUserRank(comm_, &rank_), "nccl", "ncclCommUserRank");
    detail::check_nccl(ncclCommCuDevice(comm_, &device_), "nccl", "ncclCommCuDevice");
  }

  /// This rank's number, from 0.
  [[nodiscard]] int rank() const { return rank_; }
  /// How many ranks there are.
  [[nodiscard]] int size() const { return size_; }

  /// Throws device_error for an error that a call which had returned already met since.
  void check_now() const {
    ncclResult_t found = ncclSuccess;
    detail::check_nccl(ncclCommGetAsyncError(comm_, &found), "nccl.check_now", "ncclCommGetAsyncError");
    detail::check_nccl(found, "nccl.check_now", "an earlier call");
  }

  /// Reduces the lists of all ranks, of one size, to every rank's target, which may be its source.
  template <class Architectures, class T>
  void all_reduce(basic_cuda<Architectures> const& exec, array_view<std::type_identity_t<T> const> source,
                  rank_reduction reduction, array_view<T> target) {
    constexpr char const* function = "nccl.all_reduce";
    detail::check_reduction(function, reduction);
    check_lists(function, source, target, exec.options.is_dry);
    detail::check_same_size(function, source, target);
    enqueue(function, "ncclAllReduce", exec, [&](cudaStream_t stream) {
      return ncclAllReduce(source.data, target.data, static_cast<std::size_t>(source.size()), detail::nccl_type<T>(),
                           detail::nccl_reduction(reduction), comm_, stream);
    });
  }

  /// Puts the lists of all ranks, of one size, behind each other in every rank's target.
  template <class Architectures, class T>
  void all_gather(basic_cuda<Architectures> const& exec, array_view<std::type_identity_t<T> const> source,
                  array_view<T> target) {
    constexpr char const* function = "nccl.all_gather";
    check_lists(function, source, target, exec.options.is_dry);
    detail::check_parts(function, source, "source", target, size_);
    enqueue(function, "ncclAllGather", exec, [&](cudaStream_t stream) {
      auto const bytes = static_cast<std::size_t>(source.size()) * sizeof(T);
      return ncclAllGather(source.data, target.data, bytes, ncclUint8, comm_, stream);
    });
  }

  /// Reduces the lists of all ranks, of one size, and gives each rank its part.
  template <class Architectures, class T>
  void reduce_scatter(basic_cuda<Architectures> const& exec, array_view<std::type_identity_t<T> const> source,
                      rank_reduction reduction, array_view<T> target) {
    constexpr char const* function = "nccl.reduce_scatter";
    detail::check_reduction(function, reduction);
    check_lists(function, source, target, exec.options.is_dry);
    detail::check_parts(function, target, "target", source, size_);
    enqueue(function, "ncclReduceScatter", exec, [&](cudaStream_t stream) {
      return ncclReduceScatter(source.data, target.data, static_cast<std::size_t>(target.size()),
                               detail::nccl_type<T>(), detail::nccl_reduction(reduction), comm_, stream);
    });
  }

  /// Lets share() find this memory, an nccl_memory of the same ncclComm_t, which must live longer than this. All ranks
  /// are given the same one.
  template <class Memory>
  void use(Memory const& memory) {
    peers_ = &memory.peers();
  }
  /// Where the memory of each rank is, for programs and copies of this rank's device: a part of what use() was given,
  /// at the same place on all ranks.
  template <class Architectures>
  [[nodiscard]] std::vector<std::byte*> share(basic_cuda<Architectures> const& exec, array_view<std::byte> own) {
    constexpr char const* function = "nccl.share";
    bool const is_dry = exec.options.is_dry;
    detail::check_communicated(function, "memory", own, is_dry);
    if (size_ == 1 || is_dry) {
      return std::vector<std::byte*>(static_cast<std::size_t>(size_), own.data);
    }
    check<value_error>(peers_ != nullptr, function, ": there is no memory of ", size_,
                       " ranks: give use() the nccl_memory first");
    std::int64_t const first = peers_->place_of(function, own);
    check<value_error>(!peers_->of_ranks.empty(), function, ": not all of ", size_,
                       " ranks reach each other's memory, or NCCL is older than 2.28: it is ", NCCL_VERSION_CODE);
    std::vector<std::byte*> all;
    for (std::byte* const memory : peers_->of_ranks) {
      all.push_back(memory + first);
    }
    run_meeting(exec);
    return all;
  }
  /// Enqueues waiting for all ranks, after share().
  template <class Architectures>
  void meet(basic_cuda<Architectures> const& exec) {
    if (size_ > 1) {
      check<value_error>(peers_ != nullptr || exec.options.is_dry, "nccl.meet: none of ", size_,
                         " ranks' memory is known: give use() the nccl_memory first");
      run_meeting(exec);
    }
  }

  /// Enqueues sending a list.
  template <class Architectures, class T>
  void send(basic_cuda<Architectures> const& exec, array_view<T> source, int to) {
    detail::check_peer("nccl.send", to, rank_, size_, depth_ > 0);
    detail::check_communicated("nccl.send", "source", source, exec.options.is_dry);
    enqueue("nccl.send", "ncclSend", exec, [&](cudaStream_t stream) {
      auto const bytes = static_cast<std::size_t>(source.size()) * sizeof(T);
      return ncclSend(source.data, bytes, ncclUint8, to, comm_, stream);
    });
  }

  /// Enqueues receiving a list.
  template <class Architectures, class T>
  void receive(basic_cuda<Architectures> const& exec, int from, array_view<T> target) {
    static_assert(!std::is_const_v<T>, "tessera: a list that is received is written");
    detail::check_peer("nccl.receive", from, rank_, size_, depth_ > 0);
    detail::check_communicated("nccl.receive", "target", target, exec.options.is_dry);
    enqueue("nccl.receive", "ncclRecv", exec, [&](cudaStream_t stream) {
      auto const bytes = static_cast<std::size_t>(target.size()) * sizeof(T);
      return ncclRecv(target.data, bytes, ncclUint8, from, comm_, stream);
    });
  }

  /// Calls the function between ncclGroupStart and ncclGroupEnd. Where it throws, the group ends as well, with what was
  /// in it: NCCL takes nothing back.
  template <class Function>
  void grouped(Function&& function) {
    detail::check_nccl(ncclGroupStart(), "nccl.grouped", "ncclGroupStart");
    ++depth_;
    try {
      std::forward<Function>(function)();
    } catch (...) {
      --depth_;
      static_cast<void>(ncclGroupEnd());
      throw;
    }
    --depth_;
    detail::check_nccl(ncclGroupEnd(), "nccl.grouped", "ncclGroupEnd");
  }

 private:
  template <class Source, class Target>
  static void check_lists(char const* function, Source const& source, Target const& target, bool is_dry) {
    detail::check_communicated(function, "source", source, is_dry);
    detail::check_communicated(function, "target", target, is_dry);
  }

  template <class Exec>
  void check_device(char const* function, Exec const& exec) const {
    check<value_error>(exec.state->device() == device_, function, ": the executor is of device ", exec.state->device(),
                       " but the ncclComm_t of device ", device_);
  }
  template <class Exec>
  void run_meeting(Exec const& exec) const {
    if (!exec.options.is_dry) {
      check_device("nccl.meet", exec);
    }
    exec.run(detail::meet_peers{peers_ != nullptr ? peers_->flags : detail::peer_flags{}, rank_, size_}, 1);
  }
  template <class Exec, class Call>
  void enqueue(char const* function, char const* name, Exec const& exec, Call const& call) const {
    if (exec.options.is_dry) {
      return;
    }
    check_device(function, exec);
    detail::device_guard const guard(device_);
    detail::check_nccl(call(exec.stream), function, name);
  }

  ncclComm_t comm_;
  detail::peer_memory const* peers_ = nullptr;
  int size_ = 0;
  int rank_ = 0;
  int device_ = 0;
  int depth_ = 0;
};

}  // namespace v0
}  // namespace tessera
