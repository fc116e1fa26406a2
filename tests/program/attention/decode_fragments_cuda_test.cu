// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/concepts/reducer.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/program/attention/decode_fragments.cuh>
#include <tessera/reduce/row_parts.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/view/array_view.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/device_copies.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

static_assert(Reducer<relative_softmax<>> && PartReducer<relative_reducer<2>>);
constexpr int row_parts_count = 6;
constexpr int tile_scores = 5;

/// What a lane makes of a row of scores, in parts of `tile_scores`; the values are 1 and the number of a score.
struct row_outcome {
  relative_part<2> in_order;                                 ///< parts that are merged one after the other
  relative_part<2> at_once;                                  ///< the same parts by merge_parts
  relative_softmax<>::state_type binary;                     ///< of the same scores, tile by tile
  relative_softmax<fast_natural_power>::state_type natural;  ///< of scores that are natural
};

/// A lane has a row of row_parts_count * tile_scores scores.
struct parts_of_lanes {
  static constexpr int lanes = 32;
  struct scratch_type {};
  array_view<float const> scores;
  array_view<row_outcome> outcomes;

  template <class Group>
  __device__ void operator()(Group const& group, std::int64_t, scratch_type&) const {
    float const* const own = scores.data + group.lane * row_parts_count * tile_scores;
    row_outcome made;
    relative_part<2> parts[row_parts_count];
    for (int part = 0; part < row_parts_count; ++part) {
      tile_softmax<> const softmax;
      parts[part] = {};
      softmax.turn(parts[part].state, largest_of(own + part * tile_scores));
      float sum = 0.0F;
      for (int i = 0; i < tile_scores; ++i) {
        float const weight = softmax.weight(parts[part].state, own[part * tile_scores + i]);
        sum += weight;
        parts[part].values[0] += weight;
        parts[part].values[1] += weight * static_cast<float>(part * tile_scores + i);
      }
      softmax.add(parts[part].state, 0.0F, sum);
    }
    made.in_order = relative_reducer<2>{}.identity();
    for (relative_part<2> const& part : parts) {
      relative_reducer<2>{}.merge(made.in_order, part);
    }
    made.at_once = merge_parts<row_parts_count>(relative_reducer<2>{}, [&](int i) { return parts[i]; });
    made.binary = by_tiles(relative_softmax<>{}, own);
    made.natural = by_tiles(relative_softmax<fast_natural_power>{}, own);
    outcomes[group.lane] = made;
  }

 private:
  __device__ static float largest_of(float const* scores) {
    float largest = -infinity;
    for (int i = 0; i < tile_scores; ++i) {
      largest = fmaxf(largest, scores[i]);
    }
    return largest;
  }
  template <class Softmax>
  __device__ static typename Softmax::state_type by_tiles(Softmax const& softmax, float const* scores) {
    typename Softmax::state_type state = softmax.identity();
    for (int part = 0; part < row_parts_count; ++part) {
      float const factor = softmax.turn(state, largest_of(scores + part * tile_scores));
      float sum = 0.0F;
      for (int i = 0; i < tile_scores; ++i) {
        sum += softmax.weight(state, scores[part * tile_scores + i]);
      }
      softmax.add(state, factor, sum);
    }
    return state;
  }
};

/// Scores of rows: usual ones, some far apart, row 7 hidden altogether, others in parts, row 9 with a NaN.
std::vector<float> scores_of_rows() {
  std::vector<float> made;
  for (std::uint64_t row = 0; row < 32; ++row) {
    for (std::uint64_t i = 0; i < row_parts_count * tile_scores; ++i) {
      float const score = (row % 3 == 0 ? 60.0F : 2.0F) * testing::gauss().value(row, i);
      bool const is_hidden = row == 7 || (row % 4 == 1 && i / tile_scores % 2 == 0);
      made.push_back(is_hidden ? -infinity : row == 9 && i == 8 ? std::numeric_limits<float>::quiet_NaN() : score);
    }
  }
  return made;
}

}  // namespace

TEST_CASE("parts of rows that lanes merge have the sums of a softmax", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto const scores = scores_of_rows();
  auto const there = to_device(exec, scores);
  auto results = to_device(exec, std::vector<row_outcome>(32));
  exec.run(parts_of_lanes{there.view(), results.view()}, 1);
  auto const found = to_host(exec, results);
  for (std::size_t row = 0; row < 32; ++row) {
    float const* const own = scores.data() + row * row_parts_count * tile_scores;
    float largest = -infinity;
    for (int i = 0; i < row_parts_count * tile_scores; ++i) {
      largest = std::fmax(largest, own[i]);
    }
    double binary = 0;
    double natural = 0;
    double value = 0;
    for (int i = 0; i < row_parts_count * tile_scores; ++i) {
      double const less = own[i] == -infinity ? -1e30 : static_cast<double>(own[i]) - static_cast<double>(largest);
      binary += std::exp2(less);
      natural += std::exp(less);
      value += std::exp2(less) * i;
    }
    row_outcome const& of_row = found[row];
    CAPTURE(row);
    for (relative_part<2> const& part : {of_row.in_order, of_row.at_once}) {
      CHECK(part.state.reference == largest);
      if (row == 9) {
        CHECK((std::isnan(part.state.sum) && std::isnan(part.values[0]) && std::isnan(part.values[1])));
      } else {
        CHECK(static_cast<double>(part.state.sum) == Approx(binary).epsilon(1e-5));
        CHECK(static_cast<double>(part.values[0]) == Approx(binary).epsilon(1e-5));
        CHECK(static_cast<double>(part.values[1]) == Approx(value).epsilon(1e-5));
      }
    }
    CHECK((of_row.binary.reference == largest && of_row.natural.reference == largest));
    if (row == 9) {
      CHECK((std::isnan(of_row.binary.sum) && std::isnan(of_row.natural.sum)));
    } else {
      CHECK(static_cast<double>(of_row.binary.sum) == Approx(binary).epsilon(1e-5));
      CHECK(static_cast<double>(of_row.natural.sum) == Approx(natural).epsilon(1e-5));
    }
  }
}
