// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/map/divergence.hpp>
#include <tessera/map/forward_kl.hpp>
#include <tessera/map/jensen_shannon.hpp>
#include <tessera/map/reverse_kl.hpp>

#include "support/catch.hpp"

using namespace tessera;

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
struct without_slope {
  TESSERA_FN float value(float, float) const { return 0.0F; }
};
struct in_double {
  TESSERA_FN double value(float, float) const { return 0.0; }
  TESSERA_FN float slope(float, float) const { return 0.0F; }
};
struct with_memory : squared_distance {
  with_memory(with_memory const&) {}
};
struct with_other_ratio : squared_distance {
  static constexpr int ratio = 1;  // no mean_log_ratio
};

}  // namespace

TEST_CASE("a divergence is a trivially copyable pair of functions of two floats", "[host]") {
  CHECK(Divergence<squared_distance>);
  CHECK(Divergence<forward_kl>);
  CHECK(Divergence<reverse_kl>);
  CHECK(Divergence<jensen_shannon>);
  CHECK(!Divergence<without_slope>);
  CHECK(!Divergence<in_double>);
  CHECK(!Divergence<with_memory>);
  CHECK(!Divergence<float>);
}

TEST_CASE("a divergence says which mean of log-ratios it is, or is none", "[host]") {
  CHECK(detail::ratio_of<forward_kl> == mean_log_ratio::teacher);
  CHECK(detail::ratio_of<reverse_kl> == mean_log_ratio::student);
  CHECK(detail::ratio_of<jensen_shannon> == mean_log_ratio::none);
  CHECK(detail::ratio_of<squared_distance> == mean_log_ratio::none);
  CHECK(detail::ratio_of<with_other_ratio> == mean_log_ratio::none);
}
