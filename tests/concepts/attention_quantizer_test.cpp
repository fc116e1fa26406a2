// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/concepts/attention_quantizer.hpp>
#include <tessera/quantize/asymmetric.hpp>
#include <tessera/quantize/granularity.hpp>
#include <tessera/quantize/sampled_range.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/attention_quantizer.hpp>

#include "support/catch.hpp"

using namespace tessera;
using tessera::testing::check_scale_laws;
using tessera::testing::check_score_laws;

namespace attention_quantizer_test {

// fp32 has no product of its own among those of codes.
static_assert(tessera::detail::is_multiplied<std::int8_t> && tessera::detail::is_multiplied<float16> &&
              tessera::detail::is_multiplied<float8_e4m3> && !tessera::detail::is_multiplied<float>);

using eight = symmetric_quantizer<8, 64>;

std::vector<float> values(float size) {
  std::vector<float> made;
  for (std::uint64_t i = 0; i < 200; ++i) {
    made.push_back(size * testing::gauss().value(5, i));
  }
  return made;
}

/// Rounds towards zero.
struct cutting : eight {
  static std::int8_t encode_scaled(float value, float reciprocal) {
    return static_cast<std::int8_t>(value * reciprocal);
  }
};

/// Has a code that no positive value can have.
struct lopsided : eight {
  static std::int8_t encode_scaled(float value, float reciprocal) {
    auto const code = eight::encode_scaled(value, reciprocal);
    return code == -highest ? static_cast<std::int8_t>(-128) : code;
  }
};

/// Says that its largest code is another one.
struct modest : eight {
  static constexpr int highest = 200;
};

/// Encodes groups of zeros by a reciprocal that it makes up.
struct careless : eight {
  static std::int8_t encode_scaled(float value, float reciprocal) {
    return eight::encode_scaled(value, reciprocal == 0.0F ? 1.0F : reciprocal);
  }
};

static_assert(ScaleQuantizer<eight> && ScaleQuantizer<smoothed<eight>>);
static_assert(!ScaleQuantizer<asymmetric_quantizer<4, 64>>, "its range has two ends");

/// A user's own groups: every token of an odd index with the one before it.
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

}  // namespace attention_quantizer_test

using namespace attention_quantizer_test;

TEMPLATE_TEST_CASE("quantizers of one scale keep its laws", "[host]", eight, (symmetric_quantizer<4, 64>),
                   smoothed<eight>, (two_to_a_byte<symmetric_quantizer<4, 64>>), float8_quantizer<float8_e4m3>,
                   (scaled_float_quantizer<float8_e5m2, 32>), scaled_float_quantizer<float16>,
                   sampled_range<float8_quantizer<float8_e4m3>>) {
  for (float size : {1.0F, 1e-3F, 1e-20F, 1e30F}) {
    CAPTURE(size);
    CHECK(check_scale_laws<TestType>(values(size)).text() == "");
  }
  CHECK(check_scale_laws<TestType>({0.0F, -3.0F}).text() == "");
}

TEST_CASE("a quantizer whose scaled codes break a law is caught", "[host]") {
  CHECK(check_scale_laws<cutting>(values(1.0F)).mentions("encode_scaled is as near as encode"));
  CHECK(check_scale_laws<lopsided>(values(1.0F)).mentions("the opposite value has the opposite code"));
  CHECK(check_scale_laws<modest>(values(1.0F)).mentions("the largest magnitude gets the largest code"));
  CHECK(check_scale_laws<careless>(values(1.0F)).mentions("a reciprocal of 0 gives the code of 0"));
}

TEMPLATE_TEST_CASE("quantizers of queries and keys keep the laws", "[host]", grouped<pairs>,
                   (symmetric_quantizer<8, per_thread>), (smoothed<symmetric_quantizer<4, per_warp>>),
                   (two_to_a_byte<symmetric_quantizer<4, per_block>>),
                   (scaled_float_quantizer<float8_e4m3, per_thread>),
                   (smoothed<scaled_float_quantizer<float8_e5m2, per_tensor>>),
                   (scaled_float_quantizer<float16, per_token>)) {
  CHECK(check_score_laws<TestType>(values(1.0F)).text() == "");
}

TEST_CASE("groups of tokens that break a law are caught", "[host]") {
  CHECK(check_score_laws<grouped<in_turn>>(values(1.0F)).mentions("queries: a group lies within 128 tokens"));
  CHECK(check_score_laws<grouped<too_few>>(values(1.0F)).mentions("keys: a token's group is below count()"));
  CHECK(check_score_laws<grouped<too_many>>(values(1.0F)).mentions("keys: every group has a token"));
}
