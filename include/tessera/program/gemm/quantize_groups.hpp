// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `quantize_groups`: the parameters and the codes of groups of neighbouring columns of a matrix in memory, at once.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/concepts/quantizer.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/gemm/detail/row_encoder.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Fits the parameters of groups of neighbouring columns and encodes them. Where groups have whole chunks of codes and
/// 128 lanes have whole groups, each lane has a chunk and the lanes of a group share what they found of its range.
/// Elsewhere a lane does all of a group.
template <Quantizer Q, Scalar T>
requires(Q::group != whole_tensor) struct quantize_groups {
  static constexpr int lanes = 128;
  /// With 5 blocks, schedulers of an H100 find nothing to issue for a third of the time; with 8, pairs of codes spill.
  static constexpr int blocks_per_multiprocessor = row_encoder<Q, T>::in_element == 2 ? 6 : 8;
  static constexpr int part_columns = row_encoder<Q, T>::columns;  ///< columns whose codes make a chunk
  static constexpr int sharing_lanes = Q::group % part_columns == 0 ? Q::group / part_columns : 0;  ///< of a group
  /// Whether lanes share groups.
  static constexpr bool shares = sharing_lanes > 0 && lanes % (sharing_lanes > 0 ? sharing_lanes : 1) == 0 &&
                                 std::is_trivially_default_constructible_v<range_state_t<Q>>;

  /// What lanes found of ranges.
  struct shared_ranges {
    range_state_t<Q> of[lanes];  ///< the range of each lane's values
  };
  struct no_ranges {};
  using scratch_type = std::conditional_t<shares, shared_ranges, no_ranges>;

  row_encoder<Q, T> encoder;                    ///< the values, and where their codes go
  matrix_view<typename Q::params_type> params;  ///< rows x groups of a row

  TESSERA_FN constexpr std::int64_t groups() const {
    return shares ? params.extent(0) * tiles_in_row()
                  : divide_up(params.extent(0) * params.extent(1), std::int64_t{lanes});
  }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    if constexpr (shares) {
      quantize_together(group, which / tiles_in_row(), which % tiles_in_row() * lanes * part_columns, scratch);
    } else {
      each_index<lanes>(group, which, params.extent(0) * params.extent(1),
                        [&, this](std::int64_t at) { quantize(at / params.extent(1), at % params.extent(1)); });
    }
  }

 private:
  TESSERA_FN constexpr std::int64_t tiles_in_row() const {
    return divide_up(encoder.values.extent(1), std::int64_t{lanes * part_columns});
  }

  /// Quantizes the groups of a row from a column on.
  template <Group G>
  TESSERA_FN void quantize_together(G const& group, std::int64_t row, std::int64_t first, scratch_type& scratch) const {
    std::int64_t const end = encoder.values.extent(1);
    auto const reducer = encoder.quantizer.range();
    per_lane<typename row_encoder<Q, T>::part, G> parts;
    group.sync();  // all lanes have read the ranges of a tile before
    for (int lane : group) {
      std::int64_t const column = first + lane * part_columns;
      auto range = reducer.identity();
      if (column < end) {
        parts[lane] = encoder.load(row, column, end);
        encoder.push(reducer, range, parts[lane], end - column);
      }
      scratch.of[lane] = range;
    }
    group.sync();
    for (int lane : group) {
      std::int64_t const column = first + lane * part_columns;
      if (column < end) {
        int const first_lane = lane / sharing_lanes * sharing_lanes;
        auto range = scratch.of[first_lane];
        for (int i = 1; i < sharing_lanes; ++i) {
          reducer.merge(range, scratch.of[first_lane + i]);
        }
        auto const fitted = encoder.quantizer.fit(range);
        if (lane == first_lane) {
          params(row, column / Q::group) = fitted;
        }
        encoder.store(row, column, end, encoder.encode(parts[lane], fitted));
      }
    }
  }

  TESSERA_FN void quantize(std::int64_t row, std::int64_t which) const {
    std::int64_t const first = which * Q::group;
    std::int64_t const end = min(first + Q::group, encoder.values.extent(1));
    auto const reducer = encoder.quantizer.range();
    auto range = reducer.identity();
    for (std::int64_t column = first; column < end; column += part_columns) {
      encoder.push(reducer, range, encoder.load(row, column, end), end - column);
    }
    auto const fitted = encoder.quantizer.fit(range);
    params(row, which) = fitted;
    for (std::int64_t column = first; column < end; column += part_columns) {
      encoder.store(row, column, end, encoder.encode(encoder.load(row, column, end), fitted));
    }
  }
};

}  // namespace v0
}  // namespace tessera
