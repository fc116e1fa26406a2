// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `cuda_warp` and `cuda_block<N>`: groups whose lanes are the threads of a warp or of a whole thread block.
///
/// Names and results are those of `serial_group`, to the last bit: `tile/per_lane.hpp` documents the order of sums.
/// All threads of a group call each collective together.
///
/// Their architecture is that for which nvcc compiles: sm_80 and sm_90a have different types by these names, so that
/// what is made of one is another function than what is made of the other. Code for the host sees sm_80's, and says
/// `cuda_block_on<N, architecture::sm_90a>` where it means another. Do not name them in the type of a program or in the
/// signature of a kernel, which must be the same for the host and for every architecture.
///
/// All programs reach a device through this header, so it refuses architectures older than sm_80.
#pragma once

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "tessera needs sm_80 or later: compile with -arch=sm_80, 86, 89, 90a ..., or set CMAKE_CUDA_ARCHITECTURES so"
#endif

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/status.hpp>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/per_lane.hpp>

namespace tessera {
inline namespace v0 {

/// The one lane that this thread plays: a loop over it runs once.
struct own_lane_iterator {
  int lane;      ///< the lane's number in its group
  bool visited;  ///< whether the loop has visited the lane
  __device__ __forceinline__ int operator*() const { return lane; }
  __device__ __forceinline__ own_lane_iterator& operator++() {
    visited = true;
    return *this;
  }
  __device__ __forceinline__ bool operator!=(own_lane_iterator other) const { return visited != other.visited; }
};

namespace detail {

/// What this pass of the compiler is for; sm_80 where it is the host, which runs none of it.
#if !defined(__CUDA_ARCH__)
constexpr architecture compiled_architecture = architecture::sm_80;
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__CUDA_ARCH_SPECIFIC__)
constexpr architecture compiled_architecture = architecture_numbered(__CUDA_ARCH__, true);
#else
constexpr architecture compiled_architecture = architecture_numbered(__CUDA_ARCH__);
#endif

template <class T, class Move>
__device__ __forceinline__ T move_words(T const& value, Move move) {
  static_assert(std::is_trivially_copyable_v<T>, "tessera: lanes exchange trivially copyable values");
  constexpr int words = (static_cast<int>(sizeof(T)) + 3) / 4;
  unsigned buffer[words]{};
  memcpy(buffer, &value, sizeof(T));
#pragma unroll
  for (int i = 0; i < words; ++i) {
    buffer[i] = move(buffer[i]);
  }
  T moved;
  memcpy(&moved, buffer, sizeof(T));
  return moved;
}

struct across {
  int mask;
  __device__ __forceinline__ unsigned operator()(unsigned word) const {
    return __shfl_xor_sync(whole_warp, word, mask);
  }
};
struct from_below {
  int distance;
  __device__ __forceinline__ unsigned operator()(unsigned word) const {
    return __shfl_up_sync(whole_warp, word, static_cast<unsigned>(distance));
  }
};
struct from_lane {
  int lane;
  __device__ __forceinline__ unsigned operator()(unsigned word) const { return __shfl_sync(whole_warp, word, lane); }
};

template <class T>
inline constexpr bool has_warp_instruction = std::is_integral_v<T> && sizeof(T) == 4;

/// The butterfly: every lane ends with the same bits, because the lower lane's value is always the first operand.
template <class T, class Combine>
__device__ __forceinline__ T warp_reduce(int lane, T value, Combine combine) {
#pragma unroll
  for (int distance = lanes_in_a_warp / 2; distance > 0; distance /= 2) {
    T const other = move_words(value, across{distance});
    value = (lane & distance) != 0 ? combine(other, value) : combine(value, other);
  }
  return value;
}
template <class T>
__device__ __forceinline__ T warp_reduce(int, T value, plus combine) {
  if constexpr (has_warp_instruction<T>) {
    return static_cast<T>(__reduce_add_sync(whole_warp, static_cast<unsigned>(value)));
  } else {
#pragma unroll
    for (int distance = lanes_in_a_warp / 2; distance > 0; distance /= 2) {
      value = combine(value, move_words(value, across{distance}));
    }
    return value;
  }
}

/// The sum of the lanes up to and including this one.
template <class T>
__device__ __forceinline__ T warp_inclusive_sum(int lane, T value) {
#pragma unroll
  for (int distance = 1; distance < lanes_in_a_warp; distance *= 2) {
    T const below = move_words(value, from_below{distance});
    if (lane >= distance) {
      value = static_cast<T>(value + below);
    }
  }
  return value;
}

/// Keeps the detail as keep_detail_on_host() does. Lanes of a warp that want the lock get it one after the other.
__device__ inline void keep_detail_on_device(status_word* word, unsigned long long mine, status_detail detail) {
  constexpr unsigned long long open = status_word::nothing_failed;
  auto* const lock = reinterpret_cast<unsigned long long*>(&word->lock);
  auto* const detail_of = reinterpret_cast<unsigned long long volatile*>(&word->detail_of);
  while (mine < *detail_of) {
    if (atomicCAS(lock, open, 0ULL) == open) {
      __threadfence();
      if (mine < *detail_of) {
        word->detail = detail;
        *detail_of = mine;
      }
      __threadfence();
      atomicExch(lock, open);
    }
  }
}

__device__ __forceinline__ void report_on_device(status_word* word, status_code code, std::int64_t position,
                                                 status_detail detail) {
  if (word == nullptr) {
    return;
  }
  static_assert(sizeof(unsigned long long) == sizeof(word->bits));
  if (detail.is_known()) {
    keep_detail_on_device(word, status_word::pack(code, position), detail);
  }
  atomicMin(reinterpret_cast<unsigned long long*>(&word->bits),
            static_cast<unsigned long long>(status_word::pack(code, position)));
}

template <class T>
__device__ __forceinline__ T atomic_add_on_device(T& target, T value) {
  static_assert(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                "tessera: atomic_add takes integers of 32 or 64 bits");
  using word = std::conditional_t<sizeof(T) == 4, unsigned, unsigned long long>;
  return static_cast<T>(atomicAdd(reinterpret_cast<word*>(&target), static_cast<word>(value)));
}

}  // namespace detail

/// The group of one warp of an architecture; several of them may share a thread block without knowing of each other.
template <architecture Compiled>
struct cuda_warp_on {
  static constexpr int size = lanes_in_a_warp;
  static constexpr tessera::architecture architecture = Compiled;
  static constexpr int lanes_here = 1;
  [[nodiscard]] static TESSERA_FN constexpr int slot(int) { return 0; }

  int lane;  ///< the thread's number in the warp

  __device__ __forceinline__ cuda_warp_on() : lane(static_cast<int>(threadIdx.x) % size) {}
  [[nodiscard]] __device__ __forceinline__ own_lane_iterator begin() const { return {lane, false}; }
  [[nodiscard]] __device__ __forceinline__ own_lane_iterator end() const { return {lane, true}; }
  /// What lanes of the warp wrote before this call, all of them see after it.
  __device__ __forceinline__ void sync() const { __syncwarp(); }
  template <class T>
  __device__ __forceinline__ T atomic_add(T& target, std::type_identity_t<T> value) const {
    return detail::atomic_add_on_device(target, value);
  }
  __device__ __forceinline__ void report(status_word* word, status_code code, std::int64_t position,
                                         status_detail detail = {}) const {
    detail::report_on_device(word, code, position, detail);
  }
};

/// The group of a warp where this code is compiled.
using cuda_warp = cuda_warp_on<detail::compiled_architecture>;

/// The group of a whole thread block of an architecture. Its collectives exchange values through `exchange`, shared
/// memory that the launch provides.
template <int Lanes, architecture Compiled>
struct cuda_block_on {
  static_assert(Lanes > lanes_in_a_warp && Lanes <= 1024 && Lanes % lanes_in_a_warp == 0,
                "tessera: a block group has 64, 96, ... 1024 lanes");
  static constexpr int size = Lanes;
  static constexpr tessera::architecture architecture = Compiled;
  static constexpr int lanes_here = 1;
  static constexpr int warps = Lanes / lanes_in_a_warp;  ///< warps of the block
  static constexpr int exchange_bytes_a_warp = 32;       ///< bytes of `exchange` for each warp
  [[nodiscard]] static TESSERA_FN constexpr int slot(int) { return 0; }

  int lane;        ///< the thread's number in the block
  void* exchange;  ///< shared memory of exchange_bytes_a_warp for each warp

  /// Makes the group; `shared` is the memory for `exchange`.
  __device__ __forceinline__ explicit cuda_block_on(void* shared)
      : lane(static_cast<int>(threadIdx.x)), exchange(shared) {}
  [[nodiscard]] __device__ __forceinline__ own_lane_iterator begin() const { return {lane, false}; }
  [[nodiscard]] __device__ __forceinline__ own_lane_iterator end() const { return {lane, true}; }
  /// What lanes of the block wrote before this call, all of them see after it.
  __device__ __forceinline__ void sync() const { __syncthreads(); }
  template <class T>
  __device__ __forceinline__ T atomic_add(T& target, std::type_identity_t<T> value) const {
    return detail::atomic_add_on_device(target, value);
  }
  __device__ __forceinline__ void report(status_word* word, status_code code, std::int64_t position,
                                         status_detail detail = {}) const {
    detail::report_on_device(word, code, position, detail);
  }

  /// One value from each warp, written by its first lane; valid for all lanes until `exchange` is used again.
  template <class T>
  __device__ __forceinline__ T const* exchanged(T const& value) const {
    static_assert(sizeof(T) <= exchange_bytes_a_warp, "tessera: a block group combines values of at most 32 bytes");
    __syncthreads();
    if (lane % lanes_in_a_warp == 0) {
      static_cast<T*>(exchange)[lane / lanes_in_a_warp] = value;
    }
    __syncthreads();
    return static_cast<T const*>(exchange);
  }
};

/// The group of a thread block where this code is compiled.
template <int Lanes>
using cuda_block = cuda_block_on<Lanes, detail::compiled_architecture>;

template <class T, class Combine>
[[nodiscard]] __device__ __forceinline__ T reduce(cuda_warp const& group, per_lane<T, cuda_warp> const& values,
                                                  Combine combine) {
  return detail::warp_reduce(group.lane, values.values[0], combine);
}
template <int Lanes, class T, class Combine>
[[nodiscard]] __device__ __forceinline__ T reduce(cuda_block<Lanes> const& group,
                                                  per_lane<T, cuda_block<Lanes>> const& values, Combine combine) {
  T const mine = detail::warp_reduce(group.lane % lanes_in_a_warp, values.values[0], combine);
  T const* const parts = group.exchanged(mine);
  T total = parts[0];
  for (int warp = 1; warp < group.warps; ++warp) {
    total = combine(total, parts[warp]);
  }
  return total;
}

template <class T>
__device__ __forceinline__ T exclusive_sum(cuda_warp const& group, per_lane<T, cuda_warp>& values) {
  static_assert(std::is_integral_v<T>, "tessera: exclusive_sum takes integers, whose sums have no order");
  T const mine = values.values[0];
  T const upto = detail::warp_inclusive_sum(group.lane, mine);
  values.values[0] = static_cast<T>(upto - mine);
  return detail::move_words(upto, detail::from_lane{lanes_in_a_warp - 1});
}
template <int Lanes, class T>
__device__ __forceinline__ T exclusive_sum(cuda_block<Lanes> const& group, per_lane<T, cuda_block<Lanes>>& values) {
  static_assert(std::is_integral_v<T>, "tessera: exclusive_sum takes integers, whose sums have no order");
  T const mine = values.values[0];
  T const upto = detail::warp_inclusive_sum(group.lane % lanes_in_a_warp, mine);
  T const* const parts = group.exchanged(detail::move_words(upto, detail::from_lane{lanes_in_a_warp - 1}));
  T below{};
  T total{};
  for (int warp = 0; warp < group.warps; ++warp) {
    if (warp == group.lane / lanes_in_a_warp) {
      below = total;
    }
    total = static_cast<T>(total + parts[warp]);
  }
  values.values[0] = static_cast<T>(below + upto - mine);
  return total;
}

template <class T>
[[nodiscard]] __device__ __forceinline__ T broadcast(cuda_warp const&, per_lane<T, cuda_warp> const& values,
                                                     int source) {
  return detail::move_words(values.values[0], detail::from_lane{source});
}
template <int Lanes, class T>
[[nodiscard]] __device__ __forceinline__ T broadcast(cuda_block<Lanes> const& group,
                                                     per_lane<T, cuda_block<Lanes>> const& values, int source) {
  int const in_warp = source % lanes_in_a_warp;
  return group.exchanged(detail::move_words(values.values[0], detail::from_lane{in_warp}))[source / lanes_in_a_warp];
}

[[nodiscard]] __device__ __forceinline__ bool any(cuda_warp const&, per_lane<bool, cuda_warp> const& votes) {
  return __any_sync(detail::whole_warp, votes.values[0]) != 0;
}
[[nodiscard]] __device__ __forceinline__ bool all(cuda_warp const&, per_lane<bool, cuda_warp> const& votes) {
  return __all_sync(detail::whole_warp, votes.values[0]) != 0;
}
template <int Lanes>
[[nodiscard]] __device__ __forceinline__ bool any(cuda_block<Lanes> const&,
                                                  per_lane<bool, cuda_block<Lanes>> const& votes) {
  return __syncthreads_or(votes.values[0]) != 0;
}
template <int Lanes>
[[nodiscard]] __device__ __forceinline__ bool all(cuda_block<Lanes> const&,
                                                  per_lane<bool, cuda_block<Lanes>> const& votes) {
  return __syncthreads_and(votes.values[0]) != 0;
}
[[nodiscard]] __device__ __forceinline__ std::uint32_t ballot(cuda_warp const&,
                                                              per_lane<bool, cuda_warp> const& votes) {
  return __ballot_sync(detail::whole_warp, votes.values[0]);
}
[[nodiscard]] __device__ __forceinline__ int count_below(cuda_warp const&, std::uint32_t mask, int lane) {
  return __popc(mask & ((1u << lane) - 1u));
}

/// A group whose lanes are threads, each of which plays its own.
template <class G>
concept CudaLanes = requires(G const& g) {
  requires std::is_same_v<decltype(g.begin()), own_lane_iterator>;
};

/// A cuda_warp or a cuda_block.
template <class G>
concept CudaGroup = std::is_same_v<G, cuda_warp> || requires(G const& g) {
  g.exchange;
  g.warps;
};

template <CudaGroup G, class T>
[[nodiscard]] __device__ __forceinline__ T sum(G const& group, per_lane<T, G> const& values) {
  return reduce(group, values, detail::plus{});
}
template <CudaGroup G, class T>
[[nodiscard]] __device__ __forceinline__ T maximum(G const& group, per_lane<T, G> const& values) {
  if constexpr (std::is_same_v<G, cuda_warp> && detail::has_warp_instruction<T>) {
    return __reduce_max_sync(detail::whole_warp, values.values[0]);
  } else {
    return reduce(group, values, detail::larger{});
  }
}
template <CudaGroup G, class T>
[[nodiscard]] __device__ __forceinline__ T minimum(G const& group, per_lane<T, G> const& values) {
  if constexpr (std::is_same_v<G, cuda_warp> && detail::has_warp_instruction<T>) {
    return __reduce_min_sync(detail::whole_warp, values.values[0]);
  } else {
    return reduce(group, values, detail::smaller{});
  }
}

}  // namespace v0
}  // namespace tessera
