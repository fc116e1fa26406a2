// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/core/float8.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/reduce/piecewise_linear_softmax.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/reducer.hpp>
#include <tessera/testing/reference.hpp>

#include "support/catch.hpp"

using tessera::float8_e4m3;
using tessera::piecewise_linear_softmax;
using tessera::softmax_state;
using tessera::testing::check_laws;
using tessera::testing::is_close;

namespace {

using quantizer = tessera::float8_quantizer<float8_e4m3>;
float const infinite = std::numeric_limits<float>::infinity();
float const not_a_number = std::numeric_limits<float>::quiet_NaN();

softmax_state<float> state_at(float reference) {
  return {reference, reference, 0.0F};
}

/// What a code is for a weight of 2^score, without roundings but the last.
double exact_position(double score) {
  return std::max(8.0 * score + 126.0, 0.0);
}

struct same_value {
  double tolerance;
  bool operator()(softmax_state<float> const& a, softmax_state<float> const& b) const {
    piecewise_linear_softmax const softmax;
    return is_close(softmax.value(a), softmax.value(b), tolerance);
  }
};

}  // namespace

TEST_CASE("a piecewise linear softmax keeps the laws of a reducer", "[host]") {
  std::vector<float> scores;
  for (std::uint64_t i = 0; i < 300; ++i) {
    scores.push_back(10.0F * tessera::testing::gauss().value(4, i));
  }
  CHECK(check_laws<piecewise_linear_softmax>(scores, same_value{2e-6}).text().empty());
  CHECK(check_laws<piecewise_linear_softmax>({1.0F, -infinite, 3.0F}, same_value{1e-6}).text().empty());
}

TEST_CASE("the code of a weight is the nearest integer on a line with 8 codes to a power of two", "[host]") {
  piecewise_linear_softmax const softmax;
  for (float const scale : {1e-9F, 3e-5F, 1e-3F, 0.02F, 0.031F, 0.04F, 0.7F, 1.0F, 30.0F}) {
    for (std::int32_t most : {-4000000, -5, 0, 77, 12345, 2000000}) {
      float const reference = scale * static_cast<float>(most);
      for (std::int32_t below : {0, 1, 2, 5, 11, 100, 1999, 20000}) {
        auto const sum = static_cast<float>(most - below);
        auto const [code, weight] = softmax.weigh<quantizer>(state_at(reference), scale, sum, false);
        double const position =
            exact_position(static_cast<double>(scale) * static_cast<double>(sum) - static_cast<double>(reference));
        CAPTURE(scale, most, below, position);
        // References and logits are fp32; below 1/32 the addend is as well, at most 8 / 32 * 1.5 * 2^23.
        double const magnitude = 8.0 * std::fabs(static_cast<double>(reference)) +
                                 (scale < 0.03125F ? 8.0 * static_cast<double>(scale) * 12582912.0 : 0.0);
        CHECK(std::fabs(code.bits - position) <= 0.5 + 1.2e-7 * magnitude + 1e-5);
        CHECK(code.bits <= 126);
        CHECK(weight == load(code) * (1.0F / 448.0F));
      }
    }
  }
}

TEST_CASE("weights as numbers are those of their codes, in the shorter way for small scales, too", "[host]") {
  piecewise_linear_softmax const softmax;
  for (float const scale : {0.0F, 1e-30F, 1e-9F, 3e-5F, 1e-3F, 0.02F, 0.031F, 0.04F, 1.0F, 30.0F}) {
    for (std::int32_t most : {-4000000, -5, 0, 77, 12345, 2000000}) {
      float const reference = scale * static_cast<float>(most);
      for (std::int32_t below = 0; below < 20000; below = below < 300 ? below + 1 : below + 977) {
        for (bool const is_first : {false, true}) {
          auto const sum = below == 299 ? -infinite : static_cast<float>(most - below);
          auto const expected = softmax.weigh<quantizer>(state_at(reference), scale, sum, is_first);
          auto const found =
              piecewise_linear_softmax::weigh_number<quantizer>(state_at(reference), scale, sum, is_first);
          CAPTURE(scale, most, below, is_first);
          REQUIRE(found.number == load(expected.code));
          REQUIRE(found.weight == expected.weight);
          if (scale < piecewise_linear_softmax::most_scale && !is_first) {
            auto const small = piecewise_linear_softmax::weigh_small(state_at(reference), scale, sum);
            REQUIRE(small.number == found.number);
            REQUIRE(small.weight == found.weight);
          }
        }
      }
    }
  }
  auto const hidden = piecewise_linear_softmax::weigh_small(softmax.identity(), 0.01F, -infinite);
  CHECK(hidden.number == 0.0F);
  CHECK(hidden.weight == 0.0F);
}

TEST_CASE("the largest weight of a tile has the largest code, however large scales and scores are", "[host]") {
  piecewise_linear_softmax const softmax;
  for (float scale = 1e-12F; scale < 1e30F; scale *= 1.7F) {
    for (std::int32_t most : {-4161600, -3, 0, 1, 16129, 4161599}) {
      float const volatile apart = scale;  // so that no compiler sees the product of weigh() in the reference
      float const reference = apart * static_cast<float>(most);
      CAPTURE(scale, most);
      CHECK(softmax.weigh<quantizer>(state_at(reference), scale, static_cast<float>(most), false).code.bits == 126);
    }
  }
}

TEST_CASE("weights of a piecewise linear softmax are within 8.4 % of exponentials, in the mean right", "[host]") {
  piecewise_linear_softmax const softmax;
  double sum = 0;
  double squares = 0;
  int count = 0;
  for (double score = -14.0; score < 0; score += 1.0 / 1024) {
    auto const found = softmax.weigh<quantizer>(state_at(0.0F), 1.0F, static_cast<float>(score), false);
    double const ratio = static_cast<double>(found.weight) / std::exp2(score);
    CAPTURE(score);
    CHECK(std::fabs(ratio - 1) < 0.084);
    sum += ratio;
    squares += (ratio - 1) * (ratio - 1);
    ++count;
  }
  CHECK(std::fabs(sum / count - 1) < 0.002);
  CHECK(std::sqrt(squares / count) < 0.033);
}

TEST_CASE("hidden scores have no weight, whatever the scale is; NaN and infinity have NaN", "[host]") {
  piecewise_linear_softmax const softmax;
  for (float const scale : {0.0F, 1e-30F, 0.01F, 1.0F, 1e30F, infinite, not_a_number}) {
    auto const hidden = softmax.weigh<quantizer>(state_at(3.0F), scale, -infinite, false);
    CHECK(hidden.code.bits == 0);
    CHECK(hidden.weight == 0.0F);
  }
  auto const empty = softmax.weigh<quantizer>(softmax.identity(), 0.01F, -infinite, false);
  CHECK(empty.code.bits == 0);
  CHECK(std::isnan(softmax.weigh<quantizer>(state_at(3.0F), not_a_number, 2.0F, false).weight));
  CHECK(std::isnan(softmax.weigh<quantizer>(state_at(infinite), 1.0F, infinite, false).weight));
  CHECK(softmax.weigh<quantizer>(state_at(infinite), 1.0F, 5.0F, false).code.bits == 0);
  CHECK(std::isnan(load(softmax.weigh<quantizer>(state_at(3.0F), not_a_number, 2.0F, false).code)));
}

TEST_CASE("in a sequence's first tile weights go on for a power of two behind a sink", "[host]") {
  piecewise_linear_softmax const softmax;
  for (int steps = -1069; steps < 0; ++steps) {  // of 1 / 64
    double const score = steps / 64.0;
    for (float const scale : {1.0F / 64, 1.0F}) {  // the second one's codes are rounded before their second line, too
      float const sum = static_cast<float>(score) / scale;
      auto const plain = softmax.weigh<quantizer>(state_at(0.0F), scale, sum, false);
      auto const first = softmax.weigh<quantizer>(state_at(0.0F), scale, sum, true);
      CAPTURE(score, scale);
      if (plain.code.bits > 8) {
        CHECK(first.code == plain.code);
      } else {
        double const wanted = std::exp2(score) * 448 * 512;  // in denormal steps
        CHECK(first.code.bits >= plain.code.bits);
        CHECK(std::fabs(first.code.bits - wanted) < (score > -15.75 ? 1.0 : scale < 1 ? 2.3 : 2.4));
      }
      CHECK((plain.code.bits > 0 || score < -15.68));
    }
  }
}

TEST_CASE("log-sum-exps of many keys and of one are right by what codes stand for", "[host]") {
  piecewise_linear_softmax const softmax;
  for (int const keys : {1, 2, 40, 3000}) {
    for (float const spread : {0.5F, 3.0F, 12.0F}) {
      std::vector<float> row;
      for (int i = 0; i < keys; ++i) {
        row.push_back(spread * tessera::testing::gauss().value(7, static_cast<std::uint64_t>(i)));
      }
      auto state = softmax.identity();
      softmax.turn(state, *std::max_element(row.begin(), row.end()));
      double sum = 0;
      for (float const score : row) {
        state.sum += softmax.weigh<quantizer>(state, 1.0F, score, false).weight;
        sum += std::exp2(static_cast<double>(score));
      }
      CAPTURE(keys, spread);
      CHECK(std::fabs(static_cast<double>(softmax.value(state)) - std::log(sum)) < (keys == 1 ? 1e-5 : 0.03));
    }
  }
}
