// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>

#include <tessera/core/math.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/reduce/maximum.hpp>
#include <tessera/reduce/sum.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/row_tile.hpp>
#include <tessera/tile/rows/weigh_rows.hpp>

#include "support/catch.hpp"
#include "tile/row_words.hpp"
#include "tile/rows/part_rows.hpp"
#include "tile/rows/weighed_rows.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

using scores_tile = row_tile<float, shape<8, 16, 4>>;
using states_type = scores_tile::row_values<referred_softmax::state_type>;
constexpr int weighed_tiles = 20;

/// Scores that grow by a 16th for each token.
float score_of(int row, int token) {
  auto const random = testing::hash(static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(token)) % 64;
  return static_cast<float>(random) / 16.0F + static_cast<float>(token) / 16.0F + static_cast<float>(row);
}

/// The states after all tiles, and a sum of weights that is rescaled as outputs are.
void weigh_all(referred_softmax& softmax, states_type& states, scores_tile::row_values<float>& rescaled) {
  serial_group<1> const group;
  scores_tile::each_row(
      group,
      [](int, referred_softmax::state_type& state, float& total) {
        state = {-3.0e38F, 0.0F};
        total = 0.0F;
      },
      states, rescaled);
  for (int tile = 0; tile < weighed_tiles; ++tile) {
    scores_tile::sum_tile scores;
    scores_tile::each_with_row(group, scores,
                               [&](int row, int column, float& score) { score = score_of(row, 16 * tile + column); });
    weigh_rows_with_headroom<scores_tile>(group, softmax, scores, states, [&](scores_tile::row_values<float>& factors) {
      scores_tile::each_row(
          group, [](int, float& total, float factor) { total *= factor; }, rescaled, factors);
    });
    scores_tile::reduce_rows(group, sum_reducer<float>{}, scores, rescaled);
  }
}

}  // namespace

TEST_CASE("rows with headroom have the sums of a softmax, and are rescaled as seldom as their scores allow", "[host]") {
  for (float const headroom : {0.0F, 8.0F, 1000.0F}) {
    CAPTURE(headroom);
    referred_softmax softmax{headroom};
    states_type states;
    scores_tile::row_values<float> rescaled;
    weigh_all(softmax, states, rescaled);
    scores_tile::each_row(
        serial_group<1>{},
        [&](int row, referred_softmax::state_type const& state, float total) {
          double sum = 0;
          for (int token = 0; token < 16 * weighed_tiles; ++token) {
            sum += std::exp2(static_cast<double>(score_of(row, token)) - static_cast<double>(state.reference));
          }
          CHECK(static_cast<double>(state.sum) == Approx(sum).epsilon(1e-5));
          CHECK(static_cast<double>(total) == Approx(sum).epsilon(1e-5));
        },
        states, rescaled);
    CHECK(softmax.agreements == (headroom == 0.0F ? weighed_tiles : headroom == 8.0F ? 3 : 1));
  }
}

TEST_CASE("a row that sees nothing keeps its reference, and a NaN does not raise it", "[host]") {
  serial_group<1> const group;
  referred_softmax softmax{8.0F};
  states_type states;
  scores_tile::each_row(
      group,
      [](int, referred_softmax::state_type& state) {
        state = {-3.0e38F, 0.0F};
      },
      states);
  scores_tile::sum_tile scores;
  scores_tile::each_with_row(group, scores, [](int row, int column, float& score) {
    score = row == 0 ? -infinity : row == 1 && column == 3 ? std::nanf("") : 0.0F;
  });
  weigh_rows_with_headroom<scores_tile>(group, softmax, scores, states, [](auto&) {});
  CHECK(states.values[0].reference == -3.0e38F);
  CHECK(states.values[0].sum == 0.0F);
  CHECK(states.values[1].reference == 0.0F);
  CHECK(std::isnan(states.values[1].sum));
  CHECK(states.values[2].sum == 16.0F);
}

TEST_CASE("weights of an online softmax are relative to the largest score, by rows and by lanes", "[host]") {
  serial_group<1> const group;
  for (bool const by_lanes : {false, true}) {  // one thread plays all lanes, so that both are the same
    CAPTURE(by_lanes);
    raised_softmax const softmax;
    scores_tile::row_values<raised_softmax::state_type> states;
    scores_tile::row_values<float> factors;
    scores_tile::row_values<float> totals;
    scores_tile::each_row(
        group,
        [](int, raised_softmax::state_type& state, float& total) {
          state = {-infinity, 0.0F};
          total = 0.0F;
        },
        states, totals);
    for (int tile = 0; tile < weighed_tiles; ++tile) {
      scores_tile::sum_tile scores;
      scores_tile::each_with_row(group, scores, [&](int row, int column, float& score) {
        score = row == 7 ? -infinity : score_of(row, 16 * tile + column);
      });
      if (by_lanes) {
        weigh_lanes<scores_tile>(group, softmax, scores, states, factors);
      } else {
        weigh_rows<scores_tile>(group, softmax, scores, states, factors);
      }
      scores_tile::each_row(
          group, [](int, float& total, float factor) { total *= factor; }, totals, factors);
      scores_tile::reduce_rows(group, sum_reducer<float>{}, scores, totals);
    }
    scores_tile::each_row(
        group,
        [&](int row, raised_softmax::state_type const& state, float total) {
          double largest = -1e30;
          double sum = 0;
          for (int token = 0; row != 7 && token < 16 * weighed_tiles; ++token) {
            largest = std::fmax(largest, static_cast<double>(score_of(row, token)));
          }
          for (int token = 0; row != 7 && token < 16 * weighed_tiles; ++token) {
            sum += std::exp2(static_cast<double>(score_of(row, token)) - largest);
          }
          CHECK(state.reference == (row == 7 ? -infinity : static_cast<float>(largest)));
          CHECK(static_cast<double>(state.sum) == Approx(sum).epsilon(1e-5));
          CHECK(static_cast<double>(total) == Approx(sum).epsilon(1e-5));
        },
        states, totals);
  }
}

TEST_CASE("weighing rows, with headroom and by lanes, keeps the rules for programs", "[host]") {
  for (int const tiles : {0, 1, 7}) {
    CHECK(wrong_weights_of<tile_words<float, 16, 16>, 16, 16>(cpu{.threads = 1}, tiles, 8.0F) == "");
    CHECK(wrong_weights_of<tile_words<float, 16, 16>, 16, 16>(testing::adversary{.seed = 3}, tiles, 0.0F) == "");
    CHECK(wrong_weights_of<lane_words<float, 4, 33>, 4, 33>(testing::adversary{.seed = 4}, tiles, 8.0F) == "");
  }
}
