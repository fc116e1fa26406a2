// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/reduce/attention_softmax.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/reduce/piecewise_linear_softmax.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/attention_softmax.hpp>

#include "support/catch.hpp"

using namespace tessera;
using tessera::testing::check_softmax_laws;

namespace {

using e4m3 = float8_quantizer<float8_e4m3>;
using fp16 = scaled_float_quantizer<float16>;
using int8 = symmetric_quantizer<8>;
using exact = online_softmax<float>;

/// Scores in base 2, `size` apart from each other and away from zero.
std::vector<float> scores(float size) {
  std::vector<float> made;
  for (std::uint64_t i = 0; i < 60; ++i) {
    made.push_back(size * (testing::gauss().value(8, i) + 1.0F));
  }
  return made;
}

static_assert(AttentionSoftmax<exact, int8> && AttentionSoftmax<piecewise_linear_softmax, e4m3>);
static_assert(!AttentionSoftmax<piecewise_linear_softmax, fp16> && !AttentionSoftmax<online_softmax<double>, fp16>);

}  // namespace

TEST_CASE("softmaxes of attention keep the laws", "[host]") {
  for (float size : {0.1F, 3.0F, 40.0F, 500.0F}) {
    CAPTURE(size);
    CHECK(check_softmax_laws<exact, fp16>(scores(size), 1e-3).text() == "");
    CHECK(check_softmax_laws<exact, int8>(scores(size), 1e-3).text() == "");
    CHECK(check_softmax_laws<exact, e4m3>(scores(size), 0.07).text() == "");
    CHECK(check_softmax_laws<piecewise_linear_softmax, e4m3>(scores(size), 0.1).text() == "");
  }
}
