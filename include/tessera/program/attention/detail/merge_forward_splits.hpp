// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `merge_attention_splits`: makes the results of attention's work items that were cut into splits
/// (attention/detail/forward_splits.hpp), from what each split has left in its slot of memory.
///
/// A warp adds up the splits of a row in order, four channels a lane. Where work items have many splits, four warps add
/// up a quarter of them each, and then the quarters in order. So results depend on how work items were cut.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/attention/detail/forward_band.hpp>
#include <tessera/program/attention/detail/forward_splits.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {

/// The slots of memory for splits. A slot has the sums of its rows, channel by channel, relative to the rows'
/// references. Channels 2 i and 2 i + 1 have changed places: warpgroup_attention stores both at once, for which ptxas
/// keeps the first in an even register and the second in the odd one behind it, and these should not be as even as
/// those of the products that are added to them: three operands of a fused multiply-add in registers that are all even,
/// or all odd, take a cycle more (see tuning/attention/attention.hpp).
template <class State>
struct attention_split_slots {
  using row_type = attention_row<State>;
  float* totals = nullptr;      ///< slots x rows x pitch: sums by place_of() channel, and padding
  row_type* rows = nullptr;     ///< slots x rows: states
  std::int32_t block_rows = 0;  ///< rows of a slot
  std::int32_t pitch = 0;       ///< floats from row to row of totals, a multiple of 4

  /// Floats of memory of a slot.
  [[nodiscard]] TESSERA_FN static constexpr std::int64_t floats_of_slot(std::int64_t rows, std::int64_t pitch) {
    return rows * (pitch + static_cast<std::int64_t>(sizeof(row_type) / sizeof(float)));
  }
  /// `slots` slots in memory that begins at a multiple of 16 bytes.
  static attention_split_slots in(array_view<float> memory, std::int32_t slots, std::int32_t rows, std::int32_t pitch) {
    float* const behind = memory.data + std::int64_t{slots} * rows * pitch;
    return {memory.data, reinterpret_cast<row_type*>(behind), rows, pitch};
  }
  /// Where a channel's sum is in a row.
  [[nodiscard]] TESSERA_FN static constexpr std::int32_t place_of(std::int32_t channel) { return channel ^ 1; }
  /// The sums of a row.
  [[nodiscard]] TESSERA_FN constexpr float* totals_of(std::int32_t slot, std::int32_t row) const {
    return totals + (std::int64_t{slot} * block_rows + row) * pitch;
  }
  /// The state of a row.
  [[nodiscard]] TESSERA_FN constexpr row_type& row_of(std::int32_t slot, std::int32_t row) const {
    return rows[std::int64_t{slot} * block_rows + row];
  }
};

template <class Method, class T>
struct merge_attention_splits {
  using softmax_type = typename Method::softmax;
  using state_type = typename softmax_type::state_type;
  using row_type = attention_row<state_type>;
  using reducer_type = part_reducer<softmax_type, row_type>;  ///< merges splits
  static constexpr int warps = 4;
  static constexpr int lanes = 32 * warps;
  static constexpr int most_channels = 256;
  static constexpr int at_a_time = 4;  ///< splits that are loaded before the first is added

  struct scratch_type {
    row_type rows[warps];                 ///< state of each warp's splits
    float factors[warps];                 ///< what each warp's sums are multiplied by
    finished_row finished[warps];         ///< the finished rows
    float totals[warps * most_channels];  ///< sums of weighted values of each warp
  };

  attention_splits splits;  ///< how work items were cut
  attention_schedule schedule;
  attention_split_slots<state_type> slots;  ///< where splits have left their sums
  attention_writer<Method, T> results;
  std::int32_t parts;  ///< 1 or 4 warps for a row

  /// The number of warps for a row: 1 where work items have few splits, else 4.
  static constexpr std::int32_t parts_of(attention_splits const& splits) {
    return splits.ranges > 8 * splits.work_items ? warps : 1;
  }

  TESSERA_FN constexpr std::int64_t groups() const { return std::int64_t{splits.work_items} * groups_of_work_item(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    auto const number = static_cast<std::int32_t>(which / groups_of_work_item());
    if (!splits.is_cut(number)) {
      return;
    }
    attention_work_item const work = schedule.at(splits.whole + number);
    auto const first_row = static_cast<std::int32_t>(which % groups_of_work_item()) * rows_of_group();
    for (int lane : group) {
      add_up(number, first_row + lane / 32 / parts, lane, scratch);
    }
    group.sync();
    for (int lane : group) {
      std::int64_t const query = std::int64_t{work.block} * slots.block_rows + first_row + lane;
      if (lane < rows_of_group() && query < results.shape.queries) {
        finish(work.head, query, lane, scratch);
      }
    }
    group.sync();
    for (int lane : group) {
      for (std::int32_t i = lane; i < rows_of_group() * channels(); i += lanes) {
        std::int64_t const query = std::int64_t{work.block} * slots.block_rows + first_row + i / channels();
        if (query < results.shape.queries) {
          write(work.head, query, i / channels(), i % channels(), scratch);
        }
      }
    }
  }

 private:
  struct alignas(16) four_floats {
    float values[4];
  };

  TESSERA_FN constexpr std::int32_t channels() const {
    return static_cast<std::int32_t>(results.shape.channels_of_values());
  }
  TESSERA_FN constexpr std::int32_t rows_of_group() const { return warps / parts; }
  TESSERA_FN constexpr std::int32_t groups_of_work_item() const { return slots.block_rows / rows_of_group(); }

  /// Adds up a warp's part of a row's splits.
  TESSERA_FN void add_up(std::int32_t number, std::int32_t row, int lane, scratch_type& scratch) const {
    int const warp = lane / 32;
    std::int32_t const first = splits.first_range(number);
    std::int32_t const beyond = splits.last_range(number) + 1;
    std::int32_t const each = divide_up(beyond - first, parts);
    std::int32_t const begin = first + warp % parts * each;
    std::int32_t const end = min(begin + each, beyond);
    for (std::int32_t channel = lane % 32 * 4; channel < channels(); channel += 128) {
      row_type whole = reducer_type{}.identity();
      four_floats totals{};
      for (std::int32_t range = begin; range < end; range += at_a_time) {
        add_splits(whole, totals, number, row, channel, range, end);
      }
      for (int i = 0; i < 4; ++i) {
        scratch.totals[warp * most_channels + channel + i] = totals.values[i];
      }
      if (channel == 0) {
        scratch.rows[warp] = whole;
      }
    }
  }

  TESSERA_FN void add_splits(row_type& whole, four_floats& totals, std::int32_t number, std::int32_t row,
                             std::int32_t channel, std::int32_t first, std::int32_t end) const {
    row_type rows[at_a_time];
    four_floats values[at_a_time];
    for (int i = 0; i < at_a_time; ++i) {
      std::int32_t const slot = splits.slot(number, min(first + i, end - 1));
      rows[i] = slots.row_of(slot, row);
      values[i] = *reinterpret_cast<four_floats const*>(slots.totals_of(slot, row) + channel);
    }
    for (int i = 0; i < at_a_time; ++i) {
      if (first + i < end) {
        auto const by = reducer_type{}.merge(whole, rows[i]);
        for (int j = 0; j < 4; ++j) {
          totals.values[j] = totals.values[j] * by.of_first + values[i].values[j] * by.of_second;
        }
      }
    }
  }

  /// Finishes a row from the states of its warps.
  TESSERA_FN void finish(std::int32_t head, std::int64_t query, int row, scratch_type& scratch) const {
    reducer_type const reducer;
    row_type whole = reducer.identity();
    for (std::int32_t part = 0; part < parts; ++part) {
      reducer.merge(whole, scratch.rows[row * parts + part]);
    }
    for (std::int32_t part = 0; part < parts; ++part) {
      int const warp = row * parts + part;
      scratch.factors[warp] = reducer.factor(scratch.rows[warp], whole);
    }
    coordinates const at = coordinates_of(head);
    scratch.finished[row] = results.finish(at.sequence, at.head, query, whole);
    results.write_log_sum_exp(at.sequence, at.head, query, scratch.finished[row]);
  }

  TESSERA_FN void write(std::int32_t head, std::int64_t query, std::int32_t row, std::int32_t channel,
                        scratch_type const& scratch) const {
    float total = 0.0F;
    std::int32_t const place = attention_split_slots<state_type>::place_of(channel);
    for (std::int32_t part = 0; part < parts; ++part) {
      int const warp = row * parts + part;
      total += scratch.totals[warp * most_channels + place] * scratch.factors[warp];
    }
    coordinates const at = coordinates_of(head);
    finished_row const& finished = scratch.finished[row];
    results.write(at.sequence, at.head, query, channel, finished.inverse, finished.share, total);
  }

  struct coordinates {
    std::int64_t sequence;
    std::int64_t head;
  };
  [[nodiscard]] TESSERA_FN coordinates coordinates_of(std::int32_t head) const {
    auto const heads = static_cast<std::int32_t>(results.shape.query_heads);
    return {head / heads, head % heads};
  }
};

}  // namespace v0
}  // namespace tessera
