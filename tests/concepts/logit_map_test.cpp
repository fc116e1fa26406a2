// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <vector>

#include <tessera/concepts/logit_map.hpp>
#include <tessera/map/identity_logits.hpp>
#include <tessera/testing/laws/logit_map.hpp>

#include "support/catch.hpp"
#include "support/loss_maps.hpp"

using namespace tessera;
using namespace tessera_test;
using tessera::testing::check_logit_map_laws;

namespace {

struct without_slope {
  float operator()(float logit, std::int64_t, std::int64_t) const { return logit; }
  float steepest() const { return 1; }
};
struct without_bound {
  float operator()(float logit, std::int64_t, std::int64_t) const { return logit; }
  float slope(float, std::int64_t, std::int64_t) const { return 1; }
};
struct with_values : identity_logits {
  std::vector<float> values;
};
struct too_large : identity_logits {
  float values[257];
};
static_assert(LogitMap<identity_logits> && LogitMap<adjusted_by_prior> && LogitMap<heated_by_token> &&
              LogitMap<curved>);
static_assert(!LogitMap<without_slope> && !LogitMap<without_bound> && !LogitMap<with_values> && !LogitMap<too_large>);
static_assert(!leaves_logits<curved>);

/// Broken maps, one for each law.
struct counting : identity_logits {
  mutable float calls = 0;
  float operator()(float logit, std::int64_t, std::int64_t) const { return logit + 100 * ++calls; }
};
struct self_aware : identity_logits {
  self_aware const* self = this;
  float slope(float, std::int64_t, std::int64_t) const { return self == this ? 1.0F : -1.0F; }
};
struct squared {
  float bound = 100.0F;
  float operator()(float logit, std::int64_t, std::int64_t) const { return logit * logit; }
  float slope(float logit, std::int64_t, std::int64_t) const { return 2 * logit; }
  float steepest() const { return bound; }
};
struct squared_with_wrong_slope : squared {
  float slope(float logit, std::int64_t, std::int64_t entry) const { return entry == 2 ? logit : 2 * logit; }
};

std::vector<float> some_logits() {
  std::vector<float> logits;
  for (int i = 0; i < 40; ++i) {
    logits.push_back(static_cast<float>(i) * 1.7F - 33.0F);
  }
  return logits;
}

}  // namespace

TEST_CASE("maps of logits keep the laws, the library's and readers' own", "[host]") {
  auto const prior = log_prior_of(4);
  auto const heat = heat_of(10, 3.0F);
  CHECK(check_logit_map_laws(identity_logits{}, some_logits(), 4).text() == "");
  CHECK(check_logit_map_laws(adjusted_by_prior{prior, 0.5F}, some_logits(), 4).text() == "");
  CHECK(check_logit_map_laws(heated_by_token{heat, 3.0F}, some_logits(), 4).text() == "");
  CHECK(check_logit_map_laws(curved{}, some_logits(), 4).text() == "");
  CHECK(check_logit_map_laws(squared{}, some_logits(), 4).text() == "");
}

TEST_CASE("each law of a map of logits has a map that breaks it and is caught", "[host]") {
  auto const of = [](auto const& map) { return check_logit_map_laws(map, some_logits(), 4); };
  CHECK(of(counting{}).mentions("the result and the slope depend on the arguments alone"));
  CHECK(of(self_aware{}).mentions("a copy of the bytes is the same map"));
  CHECK(of(squared_with_wrong_slope{}).mentions("the slope is the derivative by the logit"));
  CHECK(of(squared{50.0F}).mentions("no slope is steeper than steepest()"));
  CHECK(of(squared{0.0F}).mentions("steepest() is positive and finite"));
  CHECK(of(squared{INFINITY}).mentions("steepest() is positive and finite"));
}
