// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `choose_largest`: select_chunks (program/select_chunks.hpp) with more lanes, which keep the keys of all chunks in
/// shared memory, so that scores are read once. The same chunks, to the last tie.
#pragma once

#include <cstdint>

#include <tessera/program/select_chunks.hpp>
#include <tessera/tile/cuda/group.cuh>

namespace tessera {
inline namespace v0 {

/// A block for each key head of each step.
template <class T, ChunkSelector S>
struct choose_largest {
  /// The portable program, whose members say what is to be done.
  using call_type = select_chunks<T, S>;
  static constexpr int lanes = 512;
  static constexpr std::int64_t most_chunks = 40960;  ///< of a sequence

  struct scratch_type {
    top_k_scratch digits;             ///< for the largest keys
    float log_sum_exp[most_group];    ///< of the scores of each query head of the key head
    std::uint32_t keys[most_chunks];  ///< of each chunk: see keys_type
  };

  call_type call;  ///< extents, memory, step and selector

  [[nodiscard]] std::int64_t groups() const { return call.groups(); }

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t which,
                                             scratch_type& scratch) const {
    const std::int64_t at = which / call.extents.key_heads;
    const std::int64_t head = which % call.extents.key_heads;
    const std::int64_t sequence = call.step.sequence(call.extents, call.memory.sequences, at);
    std::int64_t taken = 0;
    if (sequence >= 0) {
      const cached_sequence known = call.memory.sequences[sequence];
      const std::int64_t candidates = known.chunks - exact_chunks(group, sequence, head);
      add_blocks(at, head, known, scratch, group.lane);
      group.sync();
      const typename call_type::keys_type keys{call, known.first, head, scratch.log_sum_exp};
#pragma unroll 4
      for (std::int32_t chunk = group.lane; chunk < known.chunks; chunk += lanes) {
        scratch.keys[chunk] = keys(chunk);
      }
      const std::int64_t budget = min(call.selector.budget(candidates), call.extents.budget);
      taken = top_k(group, kept_keys{scratch.keys}, known.chunks, budget, scratch.digits, write{call, at, head});
    }
    for (std::int64_t rank = taken + group.lane; rank < call.extents.budget; rank += lanes) {
      call.step.selected(at, head, rank) = -1;
    }
    if (group.lane == 0) {
      call.step.selected_counts(at, head) = static_cast<std::int32_t>(taken);
    }
  }

 private:
  struct kept_keys {
    std::uint32_t const* keys;
    __device__ __forceinline__ std::uint32_t operator()(std::int64_t chunk) const { return keys[chunk]; }
  };
  struct write {
    call_type const& call;
    std::int64_t at;
    std::int64_t head;
    __device__ __forceinline__ void operator()(std::int64_t rank, std::int64_t chunk) const {
      call.step.selected(at, head, rank) = static_cast<std::int32_t>(chunk);
    }
  };

  /// A warp for each query.
  __device__ __forceinline__ void add_blocks(std::int64_t at, std::int64_t head, cached_sequence const& known,
                                             scratch_type& scratch, int lane) const {
    const cuda_warp warp;
    const std::int64_t query = lane / 32;
    if (query < call.extents.group()) {
      per_lane<scaled_exponentials<float>, cuda_warp> own;
      own[warp.lane] = call.blocks_of_lane(at, head * call.extents.group() + query, known.chunks, warp.lane);
      const auto all = reduce(warp, own, typename call_type::add_sums{});
      if (warp.lane == 0) {
        scratch.log_sum_exp[query] = lse_reducer<float>{}.value(all);
      }
    }
  }

  __device__ __forceinline__ std::int32_t exact_chunks(cuda_block<lanes> const& group, std::int64_t sequence,
                                                       std::int64_t head) const {
    per_lane<std::int32_t, cuda_block<lanes>> count;
    count[group.lane] = 0;
    for (std::int64_t place = group.lane; place < call.extents.exact(); place += lanes) {
      count[group.lane] += call.memory.exact_ids(sequence, head, place) >= 0 ? 1 : 0;
    }
    return sum(group, count);
  }
};

}  // namespace v0
}  // namespace tessera
