// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/concepts/score_quantizer.hpp>
#include <tessera/quantize/granularity.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/score_quantizer.hpp>

#include "support/catch.hpp"

using namespace tessera;
using tessera::testing::check_score_laws;

namespace score_quantizer_test {

std::vector<float> values() {
  std::vector<float> made;
  for (std::uint64_t i = 0; i < 64; ++i) {
    made.push_back(testing::gauss().value(6, i));
  }
  return made;
}

/// A user's own groups: every token of an odd place with the one before it.
struct pairs {
  static constexpr bool is_whole = false;
  static constexpr std::int64_t group_of(std::int64_t token) { return token / 2; }
  static constexpr std::int64_t count(std::int64_t tokens) { return (tokens + 1) / 2; }
};

/// Tokens far from each other share a scale.
struct in_turn : pairs {
  static constexpr std::int64_t group_of(std::int64_t token) { return token % 4; }
  static constexpr std::int64_t count(std::int64_t) { return 4; }
};

/// Has memory for fewer scales than there are groups.
struct too_few : pairs {
  static constexpr std::int64_t count(std::int64_t tokens) { return tokens / 4; }
};

/// Has memory for scales that no token has.
struct too_many : pairs {
  static constexpr std::int64_t count(std::int64_t tokens) { return tokens; }
};

template <class Groups>
using grouped = symmetric_quantizer<8, granularity<Groups, Groups>{}>;

static_assert(ScoreQuantizer<grouped<pairs>>);
static_assert(!ScoreQuantizer<symmetric_quantizer<8, 64>>, "a number of neighbours is no granularity of tokens");

}  // namespace score_quantizer_test

using namespace score_quantizer_test;

TEMPLATE_TEST_CASE("quantizers of queries and keys keep the laws", "[host]", grouped<pairs>,
                   (symmetric_quantizer<8, per_thread>), (smoothed<symmetric_quantizer<4, per_warp>>),
                   (two_to_a_byte<symmetric_quantizer<4, per_block>>),
                   (scaled_float_quantizer<float8_e4m3, per_thread>),
                   (smoothed<scaled_float_quantizer<float8_e5m2, per_tensor>>),
                   (scaled_float_quantizer<float16, per_token>)) {
  CHECK(check_score_laws<TestType>(values()).text() == "");
}

TEST_CASE("groups of tokens that break a law are caught", "[host]") {
  CHECK(check_score_laws<grouped<in_turn>>(values()).mentions("queries: a group lies within 128 tokens"));
  CHECK(check_score_laws<grouped<too_few>>(values()).mentions("keys: a token's group is below count()"));
  CHECK(check_score_laws<grouped<too_many>>(values()).mentions("keys: every group has a token"));
}
