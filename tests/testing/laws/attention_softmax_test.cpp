// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/quantize/scaled_float.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/attention_softmax.hpp>

#include "support/catch.hpp"

using namespace tessera;
using tessera::testing::check_softmax_laws;

namespace {

using fp16 = scaled_float_quantizer<float16>;
using exact = online_softmax<float>;

/// Scores in base 2, `size` apart from each other and away from zero.
std::vector<float> scores(float size) {
  std::vector<float> made;
  for (std::uint64_t i = 0; i < 60; ++i) {
    made.push_back(size * (testing::gauss().value(8, i) + 1.0F));
  }
  return made;
}

/// Forgets what came before a piece.
struct forgetful : exact {
  float turn(state_type& state, float largest) const {
    state = identity();
    return exact::turn(state, largest);
  }
};

/// Takes weights relative to a reference that is too low.
struct low : exact {
  float turn(state_type& state, float largest) const { return exact::turn(state, largest - 1.0F); }
};

/// Merges sums without moving them to one reference.
struct careless : exact {
  factors merge(state_type& into, state_type const& other) const {
    into.sum += other.sum;
    return {1.0F, 1.0F};
  }
};

/// Makes the codes of half of the weight.
struct halving : exact {
  template <class Q>
  weighed_code<typename Q::code_type, float> weigh(state_type const& state, float scale, float sum, bool) const {
    float const own = weight(state, scale * sum);
    return {Q::encode_scaled(0.5F * own, static_cast<float>(Q::highest)), own};
  }
};

/// Has other numbers than codes.
struct doubling : exact {
  using numbers_of = doubling;
  template <class Q>
  static weighed_number weigh_number(state_type const& state, float scale, float sum, bool is_first) {
    auto const found = exact::weigh_number<Q>(state, scale, sum, is_first);
    return {2.0F * found.number, found.weight};
  }
};

/// Says that weights are numbers.
struct confusing : exact {
  using numbers_of = confusing;
  static constexpr float weight_of_number = 1.0F;
};

}  // namespace

TEST_CASE("a softmax that breaks a law is caught", "[host]") {
  CHECK(check_softmax_laws<forgetful, fp16>(scores(1.0F), 1e-3).mentions("pieces give the log-sum-exp of the row"));
  CHECK(check_softmax_laws<low, fp16>(scores(1.0F), 1e-3).mentions("weights are from 0 to 1"));
  CHECK(check_softmax_laws<careless, fp16>(scores(3.0F), 1e-3).mentions("states of pieces merge to the state of both"));
  CHECK(check_softmax_laws<doubling, fp16>(scores(1.0F), 1e-3).mentions("weigh_number gives the number of the code"));
  CHECK(check_softmax_laws<confusing, fp16>(scores(1.0F), 1e-3)
            .mentions("a weight is its code's number times weight_of_number"));
  CHECK(check_softmax_laws<halving, fp16>(scores(1.0F), 1e-3).mentions("a code is the weight times the largest code"));
}
