// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How score_means (score_chunks.cuh) and score_tiles (score_tiles.cuh) divide score_chunks' work into items: `blocks`
/// neighbouring blocks of `scored_chunks` chunks, of up to as many key heads as a thread block has warps.
///
/// The functions take the program, since members of a base class would change the machine code of score_means.
#pragma once

#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/fast_divisor.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/offloaded_cache/score_chunks.hpp>

namespace tessera {
inline namespace v0 {

/// The part of a step's state that scoring needs.
struct score_step {
  std::int32_t row;     ///< row of the sequence's first chunk
  std::int32_t chunks;  ///< archived chunks of the sequence; 0 if there is no sequence
};

/// A work item.
struct score_item {
  static constexpr int tile = 16;  ///< chunks of a warp in a stage

  std::int32_t at;     ///< the step
  std::int32_t head;   ///< the first key head
  std::int32_t heads;  ///< the number of key heads
  std::int32_t row;    ///< row of the sequence's first chunk
  std::int32_t first;  ///< the first chunk
  std::int32_t end;    ///< the end of the chunks; there are none if it is not after `first`

  /// The pipeline stages that the work item takes.
  __device__ __forceinline__ std::int32_t stages_of_it() const {
    return first < end ? divide_up(min(end - first, static_cast<std::int32_t>(scored_chunks)), tile) : 0;
  }
  /// The chunk of a line of a stage: the lines of a block of chunks follow each other.
  __device__ __forceinline__ std::int32_t chunk_of(std::int32_t stage, std::int32_t line) const {
    return first + line / tile * static_cast<std::int32_t>(scored_chunks) + stage * tile + line % tile;
  }
};

/// The step and head whose queries a warp holds.
struct score_queries {
  std::int32_t at = -1;    ///< the step
  std::int32_t head = -1;  ///< the key head
};

/// A warp's part of a work item: some chunks of a head. Its queries and slots are loaded while the part before it is
/// scored.
struct score_part {
  score_item work;     ///< the work item that it is a part of
  std::int32_t head;   ///< the key head
  std::int32_t first;  ///< the first chunk
  std::int32_t end;    ///< one past the last chunk
  /// Of the chunks from the lane's number on, 32 apart, which says whether they can be selected.
  std::int16_t chunk_slots[scored_chunks / 32];

  /// Whether there is nothing to score.
  __device__ __forceinline__ bool is_empty() const { return first >= end; }
};

/// Divides the work of a program, whose call and heads are set. A stage has room for `fitting` blocks of chunks, and
/// `together` thread blocks run at a time.
template <class Scorer>
void divide_score_work(Scorer& made, std::int64_t fitting, std::int64_t together) {
  std::int64_t const sets = divide_up(made.key_heads, made.heads);
  std::int64_t const single = made.call.step.steps() * sets * made.call.blocks();
  std::int64_t const neighbours = clamp(single / together, std::int64_t{1}, fitting);
  std::int64_t const ranges = divide_up(made.call.blocks(), neighbours);
  made.work_items = static_cast<std::int32_t>(made.call.step.steps() * sets * ranges);
  made.blocks = static_cast<std::int32_t>(neighbours);
  made.by_sets = fast_divisor::of(static_cast<std::uint32_t>(sets));
  made.by_ranges = fast_divisor::of(static_cast<std::uint32_t>(ranges));
}

/// The state of a step.
template <class Call>
__device__ __forceinline__ score_step score_step_of(Call const& call, std::int64_t at) {
  std::int64_t const sequence = call.step.sequence(call.extents, call.memory.sequences, at);
  return sequence < 0 ? score_step{0, 0}
                      : score_step{call.memory.sequences[sequence].first, call.memory.sequences[sequence].chunks};
}
/// A work item of a program. `known`: the state of the first steps.
template <class Scorer, int Known>
__device__ __forceinline__ score_item score_item_of(Scorer const& program, score_step const (&known)[Known],
                                                    std::int32_t number) {
  auto const all = static_cast<std::uint32_t>(number);
  std::uint32_t const of_set = program.by_sets.quotient(all);
  auto const at = static_cast<std::int32_t>(program.by_ranges.quotient(of_set));
  auto const set = static_cast<std::int32_t>(all - of_set * program.by_sets.divisor);
  auto const range = static_cast<std::int32_t>(of_set - static_cast<std::uint32_t>(at) * program.by_ranges.divisor);
  score_step const step = at < Known ? known[at] : score_step_of(program.call, at);
  std::int32_t const first = range * program.blocks * static_cast<std::int32_t>(scored_chunks);
  return {at,
          set * program.heads,
          min(program.heads, program.key_heads - set * program.heads),
          step.row,
          first,
          min(first + program.blocks * static_cast<std::int32_t>(scored_chunks), step.chunks)};
}
/// A warp's part of a work item of a program, without its slots. `known`: as for score_item_of().
template <class Scorer, int Known>
__device__ __forceinline__ score_part score_part_of(Scorer const& program, score_step const (&known)[Known],
                                                    std::int32_t number, int warp) {
  score_part part{};
  part.work = score_item_of(program, known, number);
  std::int32_t const block = warp / program.heads;
  std::int32_t const head = warp - block * program.heads;
  part.head = part.work.head + head;
  part.first = part.work.first + block * static_cast<std::int32_t>(scored_chunks);
  part.end = block < program.blocks && head < part.work.heads
                 ? min(part.first + static_cast<std::int32_t>(scored_chunks), part.work.end)
                 : part.first;
  return part;
}
/// Loads a part's queries, eight rows to each of `raw`, if the warp holds others. Returns whether it did; nothing waits
/// for them yet.
template <class Scorer, class Raw, int Halves>
__device__ __forceinline__ bool load_score_queries(Scorer const& program, score_part const& part, score_queries& held,
                                                   Raw (&raw)[Halves], int lane) {
  if (part.is_empty() || (held.at == part.work.at && held.head == part.head)) {
    return false;
  }
  held = {part.work.at, part.head};
#pragma unroll
  for (int i = 0; i < Halves; ++i) {
    int const row = lane / 4 + 8 * i;
    std::int64_t const query = part.head * program.rows + row;
    raw[i].load(row < program.rows ? &program.call.step.queries(part.work.at, query, 0) : nullptr, lane);
  }
  return true;
}
/// The landmarks of a chunk for all heads of a work item.
template <class Call>
__device__ __forceinline__ unsigned char const* score_line_of(Call const& call, score_item const& work,
                                                              std::int32_t chunk) {
  auto const& landmarks = call.memory.landmarks;
  return reinterpret_cast<unsigned char const*>(landmarks.data + landmarks.offset(work.row, work.head, 0) +
                                                chunk * landmarks.strides[0]);
}

/// A query as the portable program reads it, without its scale.
struct score_query_row {
  bfloat16 const* values;  ///< the query's channels
  /// The query's value of a channel.
  __device__ __forceinline__ float operator()(std::int64_t channel) const { return load(values[channel]); }
};
/// The score, without its scale, that the portable program computes for a query of a work item's step and a chunk.
template <ChunkSelector S>
__device__ __forceinline__ float score_by_selector(score_chunks<bfloat16, S> const& call, score_item const& work,
                                                   std::int64_t query, std::int32_t head, std::int32_t chunk) {
  score_query_row const values{&call.step.queries(work.at, query, 0)};
  auto const& all = call.memory.landmarks;
  return chunk_landmarks<S>::score(call.selector, values, all.data + all.offset(work.row + chunk, head, 0),
                                   call.extents.channels, {});  // a Selector's scores do not depend on where a chunk is
}

}  // namespace v0
}  // namespace tessera
