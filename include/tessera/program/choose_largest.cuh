// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `choose_largest`: select_chunks (program/select_chunks.hpp) with as many lanes as a block has, which keep the keys of
/// all chunks in shared memory, so that scores are read once. The same chunks, to the last tie.
///
/// For each chunk and key head 4 * group bytes are read: at 128K tokens in chunks of 8, 8 key heads and 32 query heads
/// 2.1 MB for a sequence, 16 KB * group for each block, which asks for 64 KB of them at a time.
#pragma once

#include <cstdint>

#include <tessera/program/select_chunks.hpp>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/largest_keys.cuh>

namespace tessera {
inline namespace v0 {

/// A block for each key head of each step.
template <class T, ChunkSelector S>
struct choose_largest {
  /// The portable program, whose members say what is to be done.
  using call_type = select_chunks<T, S>;
  static constexpr int lanes = 1024;
  static constexpr int ahead = 16;                    ///< scores of a query that a lane asks for at a time
  static constexpr std::int64_t most_chunks = 40960;  ///< of a sequence

  struct scratch_type {
    largest_keys_scratch<lanes> found;
    float log_sum_exp[most_group];    ///< of the scores of each query head of the key head
    std::int32_t exact;               ///< chunks
    std::uint32_t keys[most_chunks];  ///< of each chunk: see keys_type
  };

  call_type call;  ///< extents, memory, step and selector

  [[nodiscard]] std::int64_t groups() const { return call.groups(); }

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t which,
                                             scratch_type& scratch) const {
    const auto heads = static_cast<std::uint32_t>(call.extents.key_heads);
    const std::uint32_t at = static_cast<std::uint32_t>(which) / heads;
    const std::uint32_t head = static_cast<std::uint32_t>(which) - at * heads;
    const std::int64_t sequence = call.step.sequence(call.extents, call.memory.sequences, at);
    std::int64_t taken = 0;
    if (sequence >= 0) {
      const cached_sequence known = call.memory.sequences[sequence];
      const std::uint32_t largest = find_keys(group, at, sequence, head, known, scratch);
      const std::int64_t budget = min(call.selector.budget(known.chunks - scratch.exact), call.extents.budget);
      taken = largest_keys(group, scratch.keys, known.chunks, static_cast<std::int32_t>(budget), largest, scratch.found,
                           write{call, at, head});
    }
    for (std::int64_t rank = taken + group.lane; rank < call.extents.budget; rank += lanes) {
      call.step.selected(at, head, rank) = -1;
    }
    if (group.lane == 0) {
      call.step.selected_counts(at, head) = static_cast<std::int32_t>(taken);
    }
  }

 private:
  using places = key_places<lanes>;

  struct write {
    call_type const& call;
    std::int64_t at;
    std::int64_t head;
    __device__ __forceinline__ void operator()(std::uint32_t rank, std::int32_t chunk) const {
      call.step.selected(at, head, rank) = chunk;
    }
  };
  /// A lane's scores of a query.
  struct some_scores {
    float values[ahead];
    __device__ __forceinline__ void load(float const* scores, std::int64_t stride, std::int32_t first,
                                         std::int32_t end) {
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        const std::int32_t chunk = first + 32 * i;
        values[i] = chunk < end ? scores[chunk * stride] : 0.0F;
      }
    }
  };

  /// Gives the largest of the lane's.
  __device__ __forceinline__ std::uint32_t find_keys(cuda_block<lanes> const& group, std::int64_t at,
                                                     std::int64_t sequence, std::int64_t head,
                                                     cached_sequence const& known, scratch_type& scratch) const {
    const auto& kept = call.step.scores;
    float const* const scores = kept.data + kept.offset(known.first, head, 0);
    const places own(group.lane, known.chunks);
    some_scores next;
    next.load(scores, kept.strides[0], own.first, own.end);  // while sums of blocks are added up
    group.sync();                                            // what was there has been read
    add_up(group, at, sequence, head, known, scratch);
    group.sync();
    std::uint32_t largest = 0;
    for (std::int32_t first = own.first; first < own.end; first += 32 * ahead) {
      float states[ahead];
      std::uint32_t are_out = 0;  // chunks with a score of minus infinity
      for (std::int32_t query = 0; query < static_cast<std::int32_t>(call.extents.group()); ++query) {
        if (query > 0 || first > own.first) {
          next.load(scores + query * kept.strides[2], kept.strides[0], first, own.end);
        }
        add_scores(states, are_out, next, query, scratch.log_sum_exp[query]);
      }
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        const std::int32_t chunk = first + 32 * i;
        if (chunk < own.end) {
          const std::uint32_t key = key_of(states[i], (are_out >> i & 1U) != 0, known.first + chunk, head);
          scratch.keys[chunk] = key;
          largest = max(largest, key);
        }
      }
    }
    return largest;
  }
  __device__ __forceinline__ static void add_scores(float (&states)[ahead], std::uint32_t& are_out,
                                                    some_scores const& scores, std::int32_t query, float log_sum_exp) {
    const typename S::group_type agreement;
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      states[i] = query == 0 ? agreement.identity() : states[i];
      are_out |= scores.values[i] == -infinity ? 1U << i : 0U;
      agreement.push(states[i], scores.values[i] - log_sum_exp);
    }
  }
  /// As select_chunks has it.
  __device__ __forceinline__ std::uint32_t key_of(float state, bool is_out, std::int64_t row, std::int64_t head) const {
    if (is_out && call.memory.places(row, head) == static_cast<std::int16_t>(chunk_place::exact)) {
      return 0;
    }
    const typename S::group_type agreement;
    return ordered_key(agreement.value(state, call.extents.group()));
  }

  /// A warp for each query, one for the exact chunks.
  __device__ __forceinline__ void add_up(cuda_block<lanes> const& group, std::int64_t at, std::int64_t sequence,
                                         std::int64_t head, cached_sequence const& known, scratch_type& scratch) const {
    const cuda_warp warp;
    const std::int64_t query = group.lane / 32;
    if (query < call.extents.group()) {
      per_lane<scaled_exponentials<float>, cuda_warp> own;
      own[warp.lane] = call.blocks_of_lane(at, head * call.extents.group() + query, known.chunks, warp.lane);
      const auto all = reduce(warp, own, typename call_type::add_sums{});
      if (warp.lane == 0) {
        scratch.log_sum_exp[query] = lse_reducer<float>{}.value(all);
      }
    } else if (query == lanes / 32 - 1) {
      per_lane<std::int32_t, cuda_warp> count;
      count[warp.lane] = 0;
      for (std::int64_t place = warp.lane; place < call.extents.exact(); place += 32) {
        count[warp.lane] += call.memory.exact_ids(sequence, head, place) >= 0 ? 1 : 0;
      }
      const std::int32_t exact = sum(warp, count);
      if (warp.lane == 0) {
        scratch.exact = exact;
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
