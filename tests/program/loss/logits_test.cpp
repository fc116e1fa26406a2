// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include <tessera/program/loss/logits.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/source/async_source.hpp>
#include <tessera/tile/staged_tile.hpp>

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

TEST_CASE("rows of a band are loaded in words as they are loaded at once", "[host]") {
  std::vector<float> values(5 * 8);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i + 1);
  }
  serial_group<32> const group;
  banded_rows<float> const band{{values.data(), {5, 6}, {8, 1}}, 64, 200};  // entries 64 to 68 of 200
  static_assert(SourceOfWords<banded_rows<float>>);
  CHECK(band.has_words<4>());
  for (std::int64_t const first : {64, 67}) {
    CAPTURE(first);
    staged_tile<float, 8, 16> at_once;
    staged_tile<float, 8, 16> in_words;
    band.load(group, at_once, first, 0);
    band.in_words<4>().begin_load(group, in_words, first, 0);
    int wrong = 0;
    for (int i = 0; i < 8 * 16; ++i) {
      wrong += at_once(i / 16, i % 16) == in_words(i / 16, i % 16) ? 0 : 1;
    }
    CHECK(wrong == 0);
    CHECK(in_words(1, 5) == static_cast<float>((first - 64 + 1) * 8 + 6));
  }
}
