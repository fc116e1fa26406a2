// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `write_chosen_log_probabilities`: the program of algorithm/loss/chosen_log_probabilities.hpp. A group of 32 lanes
/// takes up to four entries of a token. A lane multiplies every 32nd chunk of 16 bytes of the hidden state with those
/// of the entries' rows, from the first to the last; the sums of the lanes are added in the order of reduce().
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/core/status.hpp>
#include <tessera/map/identity_logits.hpp>
#include <tessera/program/loss/detail/element_of.hpp>
#include <tessera/program/loss/logits.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/row_chunks.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Sums of products of one hidden state with the rows of a few entries.
struct chosen_sums {
  static constexpr int count = 4;  ///< entries that a group takes
  float of[count];                 ///< a sum for each entry

  /// The sums of two lanes together.
  TESSERA_FN friend constexpr chosen_sums operator+(chosen_sums const& a, chosen_sums const& b) {
    chosen_sums both{};
    for (int i = 0; i < count; ++i) {
      both.of[i] = a.of[i] + b.of[i];
    }
    return both;
  }
};

/// T: the type of operands. Entry: std::int32_t or std::int64_t. Classifier: a view, or a TileSource, whose elements
/// are loaded one by one.
template <class T, class Entry, LogitMap Map, class Classifier = matrix_view<T const>>
struct write_chosen_log_probabilities {
  static_assert(std::is_same_v<Entry, std::int32_t> || std::is_same_v<Entry, std::int64_t>,
                "tessera: chosen entries are std::int32_t or std::int64_t");
  static constexpr int lanes = 32;
  static constexpr int groups_per_block = 4;
  static constexpr int blocks_per_multiprocessor = 8;  // 64 registers, so that enough loads are on their way
  struct scratch_type {};

  row_chunks<T const> hidden;            ///< tokens x channels
  Classifier classifier;                 ///< vocabulary x channels
  matrix_view<Entry const> entries;      ///< tokens x K; negative: none
  array_view<float const> log_sum_exp;   ///< one for each token, or null for zeros
  [[no_unique_address]] Map map;         ///< not last, where nvcc 13.0 miscounts sizes
  logit_scaling<T> scaling;              ///< from sums to the map's arguments
  matrix_view<float> log_probabilities;  ///< the result, tokens x K
  status_word* status;

  /// Groups of a token.
  TESSERA_FN constexpr std::int64_t groups_of_token() const {
    return divide_up(entries.extent(1), std::int64_t{chosen_sums::count});
  }
  TESSERA_FN constexpr std::int64_t groups() const { return entries.extent(0) * groups_of_token(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const token = which / groups_of_token();
    std::int64_t const first = which % groups_of_token() * chosen_sums::count;
    chosen_rows const rows = rows_of(token, first);
    per_lane<chosen_sums, G> own;
    for (int lane : group) {
      own[lane] = is_whole() ? multiply_chunks(lane, token, rows) : multiply_elements(lane, token, rows);
    }
    chosen_sums const total = reduce(group, own, plus{});
    for (int lane : group) {
      std::int64_t row = none;
      float sum = 0.0F;
      for (int i = 0; i < chosen_sums::count; ++i) {
        if (lane == i) {
          row = rows.of[i];
          sum = total.of[i];
        }
      }
      if (lane < chosen_sums::count && first + lane < entries.extent(1)) {
        log_probabilities(token, first + lane) = finish(group, token, first + lane, row, sum);
      }
    }
  }

 private:
  using chunk_type = typename row_chunks<T const>::chunk_type;
  static constexpr int chunk = row_chunks<T const>::size;
  static constexpr bool is_view = std::is_same_v<Classifier, matrix_view<T const>>;

  static constexpr std::int64_t none = -1;     ///< no entry is chosen
  static constexpr std::int64_t outside = -2;  ///< the entry is none of the vocabulary

  /// Rows of the classifier, or none or outside.
  struct chosen_rows {
    std::int64_t of[chosen_sums::count];
  };

  TESSERA_FN chosen_rows rows_of(std::int64_t token, std::int64_t first) const {
    chosen_rows rows{};
    for (int i = 0; i < chosen_sums::count; ++i) {
      std::int64_t const entry =
          first + i < entries.extent(1) ? static_cast<std::int64_t>(entries(token, first + i)) : none;
      rows.of[i] = entry < 0 ? none : entry < rows_in(classifier) ? entry : outside;
    }
    return rows;
  }

  /// Whether all chunks of all rows move at once.
  TESSERA_FN bool is_whole() const {
    if constexpr (is_view) {
      return hidden.matrix.extent(1) % chunk == 0 && hidden.is_aligned() &&
             row_chunks<T const>{classifier}.is_aligned();
    } else {
      return false;
    }
  }
  /// The products of a lane's chunks. All chunks of a step are loaded before the first is multiplied.
  TESSERA_FN chosen_sums multiply_chunks(int lane, std::int64_t token, chosen_rows const& rows) const {
    chosen_sums sums{};
    for (std::int64_t column = std::int64_t{lane} * chunk; column < hidden.matrix.extent(1); column += lanes * chunk) {
      chunk_type const state = hidden.moved(hidden.whole(token, column));
      chunk_type held[chosen_sums::count];
      for (int i = 0; i < chosen_sums::count; ++i) {
        held[i] = rows.of[i] < 0 ? chunk_type{} : chunk_of(rows.of[i], column);
      }
      for (int i = 0; i < chosen_sums::count; ++i) {
        for (int j = 0; j < chunk; ++j) {
          sums.of[i] += static_cast<float>(load(state.values[j])) * static_cast<float>(load(held[i].values[j]));
        }
      }
    }
    return sums;
  }

  TESSERA_FN chunk_type chunk_of([[maybe_unused]] std::int64_t row, [[maybe_unused]] std::int64_t column) const {
    if constexpr (is_view) {
      row_chunks<T const> const whole_rows{classifier};
      return whole_rows.moved(whole_rows.whole(row, column));
    } else {
      return {};  // is_whole() is false
    }
  }

  /// The same sums, in the same order, of elements that are loaded one by one.
  TESSERA_FN chosen_sums multiply_elements(int lane, std::int64_t token, chosen_rows const& rows) const {
    chosen_sums sums{};
    for (int i = 0; i < chosen_sums::count; ++i) {
      sums.of[i] = rows.of[i] < 0 ? 0.0F : multiply_row(hidden.matrix[token], classifier, rows.of[i], lane);
    }
    return sums;
  }
  /// A lane's products of two rows. Not inline: it would be there for each entry, and is rarely called.
  [[gnu::noinline]] TESSERA_FN static float multiply_row(array_view<T const> state, Classifier weights,
                                                         std::int64_t row, int lane) {
    float sum = 0.0F;
    for (std::int64_t first = std::int64_t{lane} * chunk; first < state.size(); first += lanes * chunk) {
      std::int64_t const end = min(first + chunk, state.size());
      for (std::int64_t column = first; column < end; ++column) {
        T const weight = element_of(weights, row, column);
        sum += static_cast<float>(load(state[column])) * static_cast<float>(load(weight));
      }
    }
    return sum;
  }

  /// The result for an entry, given its row and its sum of products.
  template <Group G>
  TESSERA_FN float finish(G const& group, std::int64_t token, std::int64_t k, std::int64_t row, float sum) const {
    if (row == outside) {
      group.report(status, status_code::bad_entry, token * entries.extent(1) + k,
                   {static_cast<std::int64_t>(entries(token, k)), rows_in(classifier)});
      return not_a_number;
    }
    if (row == none) {
      return 0.0F;
    }
    float logit = scaling(sum, row);
    if constexpr (!leaves_logits<Map>) {
      logit = logit == -infinity ? logit : map(logit, token, row);
    }
    return log_sum_exp.data != nullptr ? logit - log_sum_exp[token] : logit;
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
