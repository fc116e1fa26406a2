// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `largest_keys`: top_k (tile/top_k.hpp) for a list of keys in shared memory and a whole block. It finds the same
/// indices, ties included.
///
///     key_indices<1024> const own(group.lane, count);
///     std::uint32_t largest = 0;
///     for (int i = own.first; i < own.end; i += 32) {
///       scratch.keys[i] = key_of(i);
///       largest = max(largest, scratch.keys[i]);
///     }
///     auto const taken = largest_keys(group, scratch.keys, count, 256, largest, scratch.found, write);
///
/// Digits of floats divide badly: most keys have the first one in common. Bins of equal width over the keys that matter
/// divide well. If at most as many keys are taken as there are lanes, the smallest of the lanes' own largest keys is at
/// most the last key to be taken, so that no smaller key has to be counted. One bin holds the last key to be taken; its
/// keys, a few, are compared with each other. A bin with more keys than there are lanes is divided again, at most twice
/// more.
///
/// Lanes read again only keys that they wrote, twice, and then the candidates; they wait for each other eight times.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/tile/cuda/group.cuh>

namespace tessera {
inline namespace v0 {

/// The indices of a list's keys that a lane has: first, first + 32, ... below `end`. A warp's indices come before those
/// of the next warp.
template <int Lanes>
struct key_indices {
  std::int32_t first;  ///< the first index of the lane
  std::int32_t end;    ///< the index after the warp's last

  /// The indices of a lane, in a list of `count` keys.
  __device__ __forceinline__ key_indices(int lane, std::int32_t count) {
    std::int32_t const of_warp = (count + Lanes - 1) / Lanes * 32;
    std::int32_t const begin = lane / 32 * of_warp;
    first = begin + lane % 32;
    end = min(begin + of_warp, count);
  }
};

/// The memory that lanes share while they look for the largest keys.
template <int Lanes>
struct largest_keys_scratch {
  static constexpr int bins = 2 * Lanes;    ///< bins of the histogram
  static constexpr int warps = Lanes / 32;  ///< warps of the block
  static_assert((Lanes & (Lanes - 1)) == 0, "tessera: largest_keys has bins for a power of two of lanes");

  /// The lowest bin from which keys are taken.
  struct last_bin {
    std::uint32_t bin;     ///< its number
    std::uint32_t above;   ///< keys in higher bins
    std::uint32_t within;  ///< keys in it
    std::uint32_t take;    ///< keys to take from this bin and higher ones
  };
  /// The smallest key to be taken.
  struct least_key {
    std::uint32_t key;     ///< the key
    std::uint32_t equals;  ///< how many of the keys equal to it are taken
  };

  alignas(8) std::uint32_t counts[bins];  ///< number of keys in each bin
  std::uint32_t contenders[Lanes];        ///< keys of the last bin
  std::uint32_t contender_count;          ///< number of `contenders`
  std::uint32_t lowest[warps];            ///< for each warp: the smallest of its lanes' largest keys
  std::uint32_t highest[warps];           ///< for each warp: the largest of its lanes' largest keys
  std::uint32_t totals[warps];            ///< sum of each warp
  alignas(16) last_bin last;              ///< read in one access; nothing else is read beside it
  least_key least;                        ///< the result of the search
};

namespace detail {

/// Bins of 2^shift keys each, for the keys from `low` to low + span.
struct key_bins {
  std::uint32_t low;
  std::uint32_t span;
  int shift;

  /// Narrows the range to the keys of one bin.
  __device__ __forceinline__ void keep(std::uint32_t bin) {
    low += bin << shift;
    span = min((1U << shift) - 1, span - (bin << shift));
  }
};

template <int Lanes>
__device__ __forceinline__ void clear_bins(int lane, largest_keys_scratch<Lanes>& scratch) {
  reinterpret_cast<uint2*>(scratch.counts)[lane] = uint2{0, 0};
}

/// The smallest and the largest of the lanes' keys. No lane reads the scratch any more, and it is prepared for
/// counting.
template <int Lanes>
__device__ __forceinline__ uint2 find_range(cuda_block<Lanes> const& group, std::uint32_t own,
                                            largest_keys_scratch<Lanes>& scratch) {
  constexpr int warps = largest_keys_scratch<Lanes>::warps;
  clear_bins(group.lane, scratch);
  std::uint32_t const lowest = __reduce_min_sync(whole_warp, own);
  std::uint32_t const highest = __reduce_max_sync(whole_warp, own);
  if (group.lane % 32 == 0) {
    scratch.lowest[group.lane / 32] = lowest;
    scratch.highest[group.lane / 32] = highest;
  }
  if (group.lane == 0) {
    scratch.contender_count = 0;
  }
  group.sync();
  std::uint32_t const high = __reduce_max_sync(whole_warp, scratch.highest[group.lane % warps]);
  std::uint32_t const low = __reduce_min_sync(whole_warp, scratch.lowest[group.lane % warps]);
  return {low, high};
}

/// Counts the lane's keys into bins.
template <int Lanes>
__device__ __forceinline__ void count_keys(key_indices<Lanes> const& own, std::uint32_t const* keys,
                                           key_bins const& bins, largest_keys_scratch<Lanes>& scratch) {
#pragma unroll 4
  for (std::int32_t index = own.first; index < own.end; index += 32) {
    std::uint32_t const beyond = keys[index] - bins.low;
    if (beyond <= bins.span) {
      atomicAdd(&scratch.counts[beyond >> bins.shift], 1U);
    }
  }
}

/// The sum of what the warps before this one have, and the sum of all warps.
template <int Lanes>
__device__ __forceinline__ uint2 sum_of_warps(int lane, largest_keys_scratch<Lanes> const& scratch) {
  constexpr int warps = largest_keys_scratch<Lanes>::warps;
  std::uint32_t const total = lane % 32 < warps ? scratch.totals[lane % 32] : 0;
  return {__reduce_add_sync(whole_warp, lane % 32 < lane / 32 ? total : 0), __reduce_add_sync(whole_warp, total)};
}

/// Finds the bin of the last of the `take` largest keys. All lanes have counted; a lane has two bins.
template <int Lanes>
__device__ __forceinline__ void find_last_bin(cuda_block<Lanes> const& group, std::uint32_t take,
                                              largest_keys_scratch<Lanes>& scratch) {
  int const pair = Lanes - 1 - group.lane;
  uint2 const own = reinterpret_cast<uint2 const*>(scratch.counts)[pair];
  std::uint32_t const upto = warp_inclusive_sum(group.lane % 32, own.x + own.y);
  if (group.lane % 32 == 31) {
    scratch.totals[group.lane / 32] = upto;
  }
  group.sync();
  uint2 const sums = sum_of_warps(group.lane, scratch);
  std::uint32_t const wanted = min(take, sums.y);
  std::uint32_t const before = sums.x + upto - own.x - own.y;
  if (before < wanted && wanted <= before + own.x + own.y) {
    auto const bin = static_cast<std::uint32_t>(2 * pair);
    if (wanted <= before + own.y) {
      scratch.last = {bin + 1, before, own.y, wanted};
    } else {
      scratch.last = {bin, before + own.y, own.x, wanted};
    }
  }
  group.sync();
}

/// A bit for each of a lane's keys.
struct lane_keys {
  static constexpr int words = 2;
  std::uint32_t bits[words];
};

/// Finds which of the lane's keys are in the last bin or above it; lists those in it if lanes are to compare them.
template <int Lanes>
__device__ __forceinline__ lane_keys find_candidates(key_indices<Lanes> const& own, std::uint32_t const* keys,
                                                     key_bins const& bin, bool is_listed,
                                                     largest_keys_scratch<Lanes>& scratch) {
  lane_keys mine{};
#pragma unroll
  for (int word = 0; word < lane_keys::words; ++word) {
    std::int32_t const first = own.first + 1024 * word;
    std::int32_t const end = min(own.end, first + 1024);
    std::uint32_t bit = 1;
#pragma unroll 4
    for (std::int32_t index = first; index < end; index += 32) {
      std::uint32_t const key = keys[index];
      if (key >= bin.low) {
        mine.bits[word] |= bit;
        if (is_listed && key - bin.low <= bin.span) {
          scratch.contenders[atomicAdd(&scratch.contender_count, 1U)] = key;
        }
      }
      bit += bit;
    }
  }
  return mine;
}

/// Finds, among the listed keys, at most one for each lane, the key than which `left` - 1 others are larger or equal.
template <int Lanes>
__device__ __forceinline__ void compare_contenders(cuda_block<Lanes> const& group, std::uint32_t left,
                                                   largest_keys_scratch<Lanes>& scratch) {
  group.sync();
  std::uint32_t const within = scratch.contender_count;
  if (static_cast<std::uint32_t>(group.lane) < within) {
    std::uint32_t const mine = scratch.contenders[group.lane];
    std::uint32_t larger = 0;
    std::uint32_t equal = 0;  // equal keys before this one, so that only one lane has each rank
#pragma unroll 4
    for (std::uint32_t i = 0; i < within; ++i) {
      std::uint32_t const other = scratch.contenders[i];
      larger += other > mine ? 1U : 0U;
      equal += other == mine && i < static_cast<std::uint32_t>(group.lane) ? 1U : 0U;
    }
    if (larger + equal == left - 1) {
      scratch.least = {mine, equal + 1};
    }
  }
  group.sync();
}

/// Keeps only the first `count` keys of the warp.
__device__ __forceinline__ void keep_first(lane_keys& mine, std::int32_t count, int lane) {
  for (std::uint32_t& own : mine.bits) {
    for (std::uint32_t left = __reduce_or_sync(whole_warp, own); left != 0; left &= left - 1) {
      std::uint32_t const bit = left & (~left + 1);
      std::uint32_t const all = __ballot_sync(whole_warp, (own & bit) != 0);
      if (__popc(all & ((1U << lane) - 1U)) >= count) {
        own &= ~bit;
      }
      count -= __popc(all);
    }
  }
}

/// Calls write(rank, i) for all candidates above the smallest key, and for the first of those that are equal to it.
/// `keys`: the lane's keys, 32 apart.
template <int Lanes, class Write>
__device__ __forceinline__ void write_largest(cuda_block<Lanes> const& group, std::uint32_t const* keys, lane_keys mine,
                                              typename largest_keys_scratch<Lanes>::least_key const& least,
                                              largest_keys_scratch<Lanes>& scratch, Write const& write) {
  lane_keys equal{};
  std::uint32_t found = 0;  // counts of larger keys in the upper half, of equal ones in the lower
#pragma unroll
  for (int word = 0; word < lane_keys::words; ++word) {
    for (std::uint32_t left = mine.bits[word]; left != 0; left &= left - 1) {
      std::uint32_t const key = keys[1024 * word + 32 * (__ffs(static_cast<int>(left)) - 1)];
      std::uint32_t const bit = left & (~left + 1);
      found += key > least.key ? 0x10000U : key == least.key ? 1U : 0U;
      equal.bits[word] |= key == least.key ? bit : 0U;
      mine.bits[word] &= key > least.key ? ~0U : ~bit;
    }
  }
  std::uint32_t const own = __reduce_add_sync(whole_warp, found);
  if (group.lane % 32 == 0) {
    scratch.totals[group.lane / 32] = own;
  }
  group.sync();
  std::uint32_t const before = sum_of_warps(group.lane, scratch).x;
  auto const taken = static_cast<std::int32_t>(min(before & 0xffffU, least.equals));
  std::int32_t const left_of_equals = static_cast<std::int32_t>(least.equals) - taken;
  if (static_cast<std::int32_t>(own & 0xffffU) > left_of_equals) {
    keep_first(equal, left_of_equals, group.lane % 32);
  }
  std::uint32_t rank = (before >> 16) + static_cast<std::uint32_t>(taken);
#pragma unroll
  for (int word = 0; word < lane_keys::words; ++word) {
    std::uint32_t const chosen = mine.bits[word] | equal.bits[word];
    for (std::uint32_t left = __reduce_or_sync(whole_warp, chosen); left != 0; left &= left - 1) {
      std::uint32_t const bit = left & (~left + 1);
      std::uint32_t const all = __ballot_sync(whole_warp, (chosen & bit) != 0);
      if ((chosen & bit) != 0) {
        int const below = __popc(all & ((1U << group.lane % 32) - 1U));
        write(rank + static_cast<std::uint32_t>(below), 1024 * word + 32 * (__ffs(static_cast<int>(left)) - 1));
      }
      rank += static_cast<std::uint32_t>(__popc(all));
    }
  }
}

}  // namespace detail

/// Calls write(rank, i) for the indices i of the `take` largest of fewer than 2^16 keys, up to 64 for each lane, or of
/// all keys if these are fewer, in ascending order; of equal keys the first are taken. Gives how many were taken. A key
/// of 0 is never taken. A lane wrote the keys of its key_indices; `own` is the largest of them, 0 if it has none.
template <int Lanes, class Write>
__device__ __forceinline__ std::int32_t largest_keys(cuda_block<Lanes> const& group, std::uint32_t const* keys,
                                                     std::int32_t count, std::int32_t take, std::uint32_t own,
                                                     largest_keys_scratch<Lanes>& scratch, Write const& write) {
  using scratch_type = largest_keys_scratch<Lanes>;
  constexpr int bin_bits = log2_ceil(static_cast<unsigned>(scratch_type::bins));
  group.sync();  // earlier contents have been read
  uint2 const range = detail::find_range(group, own, scratch);
  if (range.y == 0 || take <= 0) {
    return 0;
  }
  detail::key_bins bins{take <= Lanes && range.x > 0 ? range.x : 1U, 0, 0};
  bins.span = range.y - bins.low;
  bins.shift = max(32 - __clz(static_cast<int>(bins.span)) - bin_bits, 0);
  auto left = static_cast<std::uint32_t>(take);
  std::uint32_t taken = 0;
  typename scratch_type::last_bin last;
  key_indices<Lanes> const indices(group.lane, count);
  while (true) {
    detail::count_keys(indices, keys, bins, scratch);
    group.sync();
    detail::find_last_bin(group, left, scratch);
    last = scratch.last;
    taken = taken == 0 ? last.take : taken;
    left = last.take - last.above;
    bins.keep(last.bin);
    if (left == last.within || bins.shift == 0 || last.within <= static_cast<std::uint32_t>(Lanes)) {
      break;
    }
    bins.shift = max(bins.shift - bin_bits, 0);
    detail::clear_bins(group.lane, scratch);
    group.sync();
  }
  bool const is_divided = left < last.within;
  bool const is_listed = is_divided && bins.shift > 0;
  detail::lane_keys const mine = detail::find_candidates(indices, keys, bins, is_listed, scratch);
  typename scratch_type::least_key least{bins.low - (is_divided ? 0U : 1U), is_divided ? left : 0U};
  if (is_listed) {
    detail::compare_contenders(group, left, scratch);
    least = scratch.least;
  }
  detail::write_largest(group, keys + indices.first, mine, least, scratch,
                        [&](std::uint32_t rank, std::int32_t i) { write(rank, indices.first + i); });
  return static_cast<std::int32_t>(taken);
}

}  // namespace v0
}  // namespace tessera
