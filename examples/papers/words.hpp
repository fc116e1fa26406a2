// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Words that several of these programs need and the library does not have.
#pragma once

#include <tessera/concepts/tile_mma.hpp>
#include <tessera/core/math.hpp>
#include <tessera/reduce/maximum.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/row_tile.hpp>

namespace tessera_examples {

using namespace tessera;

/// A number for each of the four query heads of a key head.
struct head_numbers {
  float of[4];
};
/// The largest of each, for reduce().
struct largest_of_heads {
  TESSERA_FN head_numbers operator()(head_numbers a, head_numbers const& b) const {
    for (int h = 0; h < 4; ++h) {
      a.of[h] = maximum(a.of[h], b.of[h]);
    }
    return a;
  }
};
/// The sum of each.
struct sum_of_heads {
  TESSERA_FN head_numbers operator()(head_numbers a, head_numbers const& b) const {
    for (int h = 0; h < 4; ++h) {
      a.of[h] += b.of[h];
    }
    return a;
  }
};

/// The condition that always holds.
struct always {
  TESSERA_FN bool operator()(std::int64_t) const { return true; }
};
/// Calls write(row, largest) for each of so many rows of sums.
template <RowTile M, class Write>
TESSERA_FN void each_largest(typename M::group_type const& group, typename M::sum_tile const& sums, std::int64_t rows,
                             Write const& write) {
  typename M::template row_values<float> largest;
  auto const begin = [](int, float& most) { most = -infinity; };
  M::each_row(group, begin, largest);
  M::reduce_rows(group, maximum_reducer<float>{}, sums, largest);
  auto const write_row = [&](int row, float most) {
    if (row < rows) {
      write(row, most);
    }
  };
  M::each_row_once(group, write_row, largest);
}

/// The online softmax of the four heads' rows of scores, of which each lane of a group has a column, in base 2. The
/// library's words are near. But weigh_rows over lane_rows is for the rows of one warp, and here the warps of a
/// thread block share them; and weigh_lanes gives each lane a reference of its own, where these weights are
/// multiplied by values together, and so are relative to the same one.
template <class G>
struct softmax_of_heads {
  head_numbers reference;          ///< of weights, the largest scores so far: the same in all lanes
  per_lane<head_numbers, G> sums;  ///< of each lane's own weights

  TESSERA_FN void begin(G const& group) {
    reference = {-1e30F, -1e30F, -1e30F, -1e30F};
    for (int lane : group) {
      sums[lane] = {};
    }
  }
  /// Makes weights of scores, and gives the factors of what was added up by earlier weights.
  TESSERA_FN head_numbers turn(G const& group, per_lane<head_numbers, G>& scores) {
    head_numbers const largest = largest_of_heads{}(reference, reduce(group, scores, largest_of_heads{}));
    head_numbers factors;
    for (int h = 0; h < 4; ++h) {
      factors.of[h] = tessera::exp2(reference.of[h] - largest.of[h]);
    }
    for (int lane : group) {
      for (int h = 0; h < 4; ++h) {
        scores[lane].of[h] = tessera::exp2(scores[lane].of[h] - largest.of[h]);
        sums[lane].of[h] = sums[lane].of[h] * factors.of[h] + scores[lane].of[h];
      }
    }
    reference = largest;
    return factors;
  }
};

}  // namespace tessera_examples
