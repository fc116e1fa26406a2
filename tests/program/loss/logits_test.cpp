// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include <tessera/program/loss/logits.hpp>
#include <tessera/tile/serial/group.hpp>

#include "program/loss/small_logits.hpp"
#include "support/catch.hpp"

using namespace tessera;
using tessera_test::small_logits;

namespace {

using layout = loss_tile<tessera_test::small_logit_tile>;

/// How many logits of a tile are not those of a loop in double.
int wrong_logits(small_logits const& problem, std::int64_t first_row, std::int64_t first_column) {
  auto const scratch = std::make_unique<layout::scratch_type>();
  auto const logits = problem.logits();
  logits.compute(serial_group<layout::lanes>{}, first_row, first_column, *scratch);
  int wrong = 0;
  for (int row = 0; row < layout::rows; ++row) {
    for (int column = 0; column < layout::columns; ++column) {
      if (first_row + row < problem.tokens && first_column + column < problem.vocabulary) {
        auto const found = static_cast<double>(scratch->logit(row, column));
        wrong += std::fabs(found - problem.logit(first_row + row, first_column + column)) <= 2e-5 ? 0 : 1;
      }
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("logits of a tile are those of a loop in double, whatever the extents", "[host]") {
  for (std::int64_t const tokens : {1, 63, 64, 65}) {
    for (std::int64_t const vocabulary : {1, 63, 64, 100}) {
      for (std::int64_t const channels : {1, 31, 32, 33}) {
        CAPTURE(tokens, vocabulary, channels);
        small_logits problem(tokens, vocabulary, channels);
        CHECK(problem.logits().row_tiles() == (tokens + 63) / 64);
        CHECK(problem.logits().column_tiles() == (vocabulary + 63) / 64);
        CHECK(wrong_logits(problem, 0, 0) == 0);
        CHECK(wrong_logits(problem, 64, 64) == 0);
        problem.bend(3.0F, 0.7F);
        CHECK(wrong_logits(problem, 0, 0) == 0);
      }
    }
  }
}

TEST_CASE("logits are bent by a cap, and their slope is the derivative", "[host]") {
  for (float const cap : {0.0F, 2.0F, 30.0F}) {
    logit_scaling<float> const map{{}, cap, 1.25F};
    for (float const sum : {-40.0F, -3.0F, -0.1F, 0.0F, 0.7F, 5.0F, 90.0F}) {
      CAPTURE(cap, sum);
      auto const exact = [&](double x) {
        auto const bound = static_cast<double>(cap);
        return 1.25 * (cap > 0.0F ? bound * std::tanh(x / bound) : x);
      };
      auto const at = static_cast<double>(sum);
      CHECK(static_cast<double>(map(sum, 0)) == Approx(exact(at)).epsilon(1e-6));
      double const slope = (exact(at + 1e-4) - exact(at - 1e-4)) / 2e-4;
      CHECK(static_cast<double>(map.slope(map(sum, 0))) == Approx(slope).margin(2e-6));
    }
  }
  float const infinite = std::numeric_limits<float>::infinity();
  CHECK(logit_scaling<float>{{}, 0.0F, 2.0F}(-infinite, 0) == -infinite);
  CHECK(logit_scaling<float>{{}, 5.0F, 2.0F}(-infinite, 0) == -10.0F);
  CHECK(std::isnan(logit_scaling<float>{{}, 5.0F, 2.0F}.slope(std::nanf(""))));
}
