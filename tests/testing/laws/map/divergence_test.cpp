// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tessera/map/forward_kl.hpp>
#include <tessera/testing/laws/map/divergence.hpp>

#include "support/catch.hpp"
#include "support/divergence_rows.hpp"

using namespace tessera;
using namespace tessera_test;
using tessera::testing::check_divergence_laws;

namespace {

struct squared_distance {
  TESSERA_FN float value(float log_p, float log_q) const {
    float const apart = tessera::exp(log_q) - tessera::exp(log_p);
    return apart * apart;
  }
  TESSERA_FN float slope(float log_p, float log_q) const {
    return tessera::exp(log_q) * 2.0F * (tessera::exp(log_q) - tessera::exp(log_p));
  }
};
struct wrong_slope : forward_kl {
  TESSERA_FN float slope(float log_p, float) const { return -0.9F * tessera::exp(log_p); }
};
struct wrong_ratio : squared_distance {
  static constexpr mean_log_ratio ratio = mean_log_ratio::student;
};
struct negative : forward_kl {
  static constexpr mean_log_ratio ratio = mean_log_ratio::none;
  TESSERA_FN float value(float log_p, float log_q) const { return -forward_kl::value(log_p, log_q); }
  TESSERA_FN float slope(float log_p, float log_q) const { return -forward_kl::slope(log_p, log_q); }
};
struct offset : squared_distance {
  TESSERA_FN float value(float log_p, float log_q) const { return squared_distance::value(log_p, log_q) + 0.01F; }
};
struct not_for_nothing : squared_distance {
  TESSERA_FN float slope(float log_p, float log_q) const {
    return log_p == -infinity ? 1.0F : squared_distance::slope(log_p, log_q);
  }
};

}  // namespace

TEST_CASE("a user's own divergence keeps the laws", "[host]") {
  CHECK(check_divergence_laws(squared_distance{}, divergence_rows(9)).text() == "");
}

TEST_CASE("the laws of divergences find what breaks them", "[host]") {
  auto const text = [](auto const& divergence) { return check_divergence_laws(divergence, divergence_rows(9)).text(); };
  CHECK_THAT(text(wrong_slope{}), contains("slopes make the derivative by the logit"));
  CHECK_THAT(text(wrong_ratio{}), contains("is the mean of log-ratios"));
  CHECK_THAT(text(negative{}), contains("no divergence is negative"));
  CHECK_THAT(text(offset{}), contains("does not diverge from itself"));
  CHECK_THAT(text(not_for_nothing{}), contains("neither has counts nothing"));
}
