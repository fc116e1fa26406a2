// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `choose_largest`: select_chunks (program/offloaded_cache/select_chunks.hpp) with as many lanes as a thread block can
/// have. It keeps the sort keys of all chunks in shared memory, so that scores are read once. It selects the same
/// chunks, also among equal scores.
///
/// For each chunk and key head 4 * group bytes are read: at 128K tokens in chunks of 8, 8 key heads and 32 query heads
/// 2.1 MB for a sequence, 64 KB * group for each block, of which 64 KB are in flight at a time. On an H200 16 sequences
/// take 30 us, most of it waiting for sums of blocks, and then for scores.
///
/// Keys of 40960 chunks take 160 KiB of shared memory on sm_90 and sm_100. Code for other architectures, whose devices
/// have as little as 99 KiB for a thread block, has room for 20480 chunks, those of 160K tokens, in 80 KiB.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/program/offloaded_cache/select_chunks.hpp>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/largest_keys.cuh>

namespace tessera {
inline namespace v0 {

/// What a thread block shares that chooses among up to `Most` chunks.
template <int Lanes, std::int64_t Most>
struct choose_largest_scratch {
  largest_keys_scratch<Lanes> found;  ///< scratch of the search for the largest sort keys
  float log_sum_exp[most_group];      ///< log-sum-exps of the scores of each query head of the key head
  std::int32_t exact;                 ///< the number of exact chunks
  std::uint32_t keys[Most];           ///< the sort key of each chunk: see keys_type
};

/// The most chunks of a sequence that choose_largest takes in code for an architecture.
[[nodiscard]] TESSERA_FN constexpr std::int64_t most_chunks_on(architecture tag) {
  return number_of(tag) >= 900 && number_of(tag) < 1200 ? 40960 : 20480;
}

/// Selects chunks. A block for each key head of each step.
template <class T, ChunkSelector S>
struct choose_largest {
  /// The portable program, whose members are the arguments.
  using call_type = select_chunks<T, S>;
  static constexpr int lanes = 1024;
  static constexpr int ahead = 16;  ///< scores of a query that a lane loads at a time
  template <class G>
  using scratch_for = choose_largest_scratch<lanes, most_chunks_on(architecture_of<G>)>;

  call_type call;           ///< extents, memory, step and selector
  std::uint32_t heads;      ///< the number of key heads
  std::int32_t group_size;  ///< query heads of a key head

  /// The program for a call of fewer than 2^31 groups.
  [[nodiscard]] static choose_largest of(call_type const& call) {
    return {call, static_cast<std::uint32_t>(call.extents.key_heads), static_cast<std::int32_t>(call.extents.group())};
  }
  /// Whether code for an architecture can take a call: sequences are short enough, and the scores of neighbouring
  /// chunks are neighbours.
  [[nodiscard]] static bool takes(call_type const& call, architecture code) {
    return call.extents.longest <= most_chunks_on(code) && call.step.scores.strides[0] == 1;
  }
  [[nodiscard]] std::int64_t groups() const { return call.groups(); }

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t which,
                                             scratch_for<cuda_block<lanes>>& scratch) const {
    std::uint32_t const at = static_cast<std::uint32_t>(which) / heads;
    std::uint32_t const head = static_cast<std::uint32_t>(which) - at * heads;
    std::int64_t const sequence = call.step.sequence(call.extents, call.memory.sequences, at);
    std::int64_t taken = 0;
    if (sequence >= 0) {
      cached_sequence const known = call.memory.sequences[sequence];
      std::uint32_t const largest = find_keys(group, at, sequence, head, known, scratch);
      std::int64_t const budget = min(call.selector.budget(known.chunks - scratch.exact), call.extents.budget);
      taken = largest_keys(group, scratch.keys, known.chunks, static_cast<std::int32_t>(budget), largest, scratch.found,
                           write{&call.step.selected(at, head, 0)});
    }
    for (std::int64_t rank = taken + group.lane; rank < call.extents.budget; rank += lanes) {
      call.step.selected(at, head, rank) = -1;
    }
    if (group.lane == 0) {
      call.step.selected_counts(at, head) = static_cast<std::int32_t>(taken);
    }
  }

 private:
  using indices = key_indices<lanes>;
  using shared = scratch_for<cuda_block<lanes>>;

  struct write {
    std::int32_t* to;
    __device__ __forceinline__ void operator()(std::uint32_t rank, std::int32_t chunk) const { to[rank] = chunk; }
  };
  /// Scores of a query that a lane holds: those of `count` chunks, 32 apart.
  struct some_scores {
    float values[ahead];
    __device__ __forceinline__ void load(float const* scores, std::int32_t count) {
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        values[i] = i < count ? scores[32 * i] : 0.0F;
      }
    }
  };

  /// Computes the sort keys, and returns the largest of the lane's.
  __device__ __forceinline__ std::uint32_t find_keys(cuda_block<lanes> const& group, std::uint32_t at,
                                                     std::int64_t sequence, std::uint32_t head,
                                                     cached_sequence const& known, shared& scratch) const {
    auto const& kept = call.step.scores;
    indices const own(group.lane, known.chunks);
    float const* scores = kept.data + kept.offset(known.first + own.first, head, 0);
    bool const adds_up = group.lane / 32 <= group_size;
    some_scores next;
    group.sync();  // all lanes have read the scratch
    if (adds_up) {
      add_up(group, at, sequence, head, known, scratch);
    } else {
      next.load(scores, steps_of(own.first, own.end));  // while other warps add up
    }
    group.sync();
    std::uint32_t largest = 0;
    for (std::int32_t first = own.first; first < own.end; first += 32 * ahead) {
      std::int32_t const count = steps_of(first, own.end);
      float states[ahead];
      std::uint32_t are_out = 0;
      if (adds_up || first > own.first) {
        next.load(scores, count);
      }
      start(states, are_out, next, scratch.log_sum_exp[0]);
      for (std::int32_t query = 1; query < group_size; ++query) {
        next.load(scores + query * kept.strides[2], count);
        add_scores(states, next, scratch.log_sum_exp[query]);
      }
      are_out = exact_ones(are_out, known.first + first, head);
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        if (i < count) {
          typename S::group_type const agreement;
          std::uint32_t const key = ordered_key(agreement.value(states[i], group_size));
          std::uint32_t const kept_key = (are_out >> i & 1U) != 0 ? 0 : key;
          scratch.keys[first + 32 * i] = kept_key;
          largest = max(largest, kept_key);
        }
      }
      scores += 32 * ahead;
    }
    return largest;
  }
  [[nodiscard]] __device__ __forceinline__ static std::int32_t steps_of(std::int32_t first, std::int32_t end) {
    return (end - first + 31) / 32;
  }
  /// Begins the states of chunks with the first query, and marks chunks with a score of minus infinity, as exact ones
  /// have.
  __device__ __forceinline__ static void start(float (&states)[ahead], std::uint32_t& are_out,
                                               some_scores const& scores, float log_sum_exp) {
    typename S::group_type const agreement;
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      states[i] = agreement.identity();
      are_out |= scores.values[i] == -infinity ? 1U << i : 0U;
    }
    add_scores(states, scores, log_sum_exp);
  }
  __device__ __forceinline__ static void add_scores(float (&states)[ahead], some_scores const& scores,
                                                    float log_sum_exp) {
    typename S::group_type const agreement;
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      agreement.push(states[i], scores.values[i] - log_sum_exp);
    }
  }
  /// Which of the marked chunks, 32 rows apart, are exact; few are marked.
  __device__ __forceinline__ std::uint32_t exact_ones(std::uint32_t which, std::int64_t row, std::int64_t head) const {
    std::uint32_t found = 0;
    for (std::uint32_t left = which; left != 0; left &= left - 1) {
      int const i = __ffs(static_cast<int>(left)) - 1;
      bool const is_exact = call.memory.chunk_slots(row + 32 * i, head) == static_cast<std::int16_t>(chunk_slot::exact);
      found |= is_exact ? 1U << i : 0U;
    }
    return found;
  }

  /// Adds up the blocks' sums: a warp for each query, and the next warp counts exact chunks.
  __device__ __forceinline__ void add_up(cuda_block<lanes> const& group, std::uint32_t at, std::int64_t sequence,
                                         std::uint32_t head, cached_sequence const& known, shared& scratch) const {
    cuda_warp const warp;
    std::int32_t const query = group.lane / 32;
    if (query < group_size) {
      per_lane<scaled_exponentials<float>, cuda_warp> own;
      own[warp.lane] =
          blocks_of_lane(at, static_cast<std::int32_t>(head) * group_size + query, known.chunks, warp.lane);
      auto const all = reduce(warp, own, typename call_type::add_sums{});
      if (warp.lane == 0) {
        scratch.log_sum_exp[query] = lse_reducer<float>{}.value(all);
      }
    } else {
      per_lane<std::int32_t, cuda_warp> count;
      count[warp.lane] = 0;
      for (std::int64_t index = warp.lane; index < call.extents.exact(); index += 32) {
        count[warp.lane] += call.memory.exact_ids(sequence, head, index) >= 0 ? 1 : 0;
      }
      std::int32_t const exact = sum(warp, count);
      if (warp.lane == 0) {
        scratch.exact = exact;
      }
    }
  }
  /// Adds up sums as select_chunks does, but loads several at a time.
  __device__ __forceinline__ scaled_exponentials<float> blocks_of_lane(std::int64_t at, std::int64_t query,
                                                                       std::int32_t chunks, int lane) const {
    constexpr int together = 4;
    auto const& sums = call.step.score_sums;
    std::int32_t const blocks = divide_up(chunks, static_cast<std::int32_t>(scored_chunks));
    auto sum = lse_reducer<float>{}.identity();
    for (std::int32_t first = lane; first < blocks; first += 32 * together) {
      scaled_exponentials<float> some[together];
#pragma unroll
      for (int i = 0; i < together; ++i) {
        some[i] = sums(at, min(first + 32 * i, blocks - 1), query);
      }
#pragma unroll
      for (int i = 0; i < together; ++i) {
        if (first + 32 * i < blocks) {
          lse_reducer<float>{}.merge(sum, some[i]);
        }
      }
    }
    return sum;
  }
};

}  // namespace v0
}  // namespace tessera
