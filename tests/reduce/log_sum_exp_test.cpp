// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <limits>
#include <vector>

#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/reducer.hpp>
#include <tessera/testing/reference.hpp>

#include "support/catch.hpp"

using tessera::lse_reducer;
using tessera::testing::check_laws;
using tessera::testing::is_close;

namespace {

float const infinite = std::numeric_limits<float>::infinity();

template <class T>
T lse(std::vector<float> const& values) {
  lse_reducer<T> const reducer;
  auto state = reducer.identity();
  for (float value : values) {
    reducer.push(state, value);
  }
  return reducer.value(state);
}

/// States mean the same when their values do: which of two equal infinities came first is no matter.
template <class T>
struct same_value {
  double tolerance;
  bool operator()(tessera::scaled_exponentials<T> const& a, tessera::scaled_exponentials<T> const& b) const {
    lse_reducer<T> const reducer;
    return is_close(reducer.value(a), reducer.value(b), tolerance);
  }
};

std::vector<float> scores(float spread) {
  std::vector<float> values;
  for (std::uint64_t i = 0; i < 300; ++i) {
    values.push_back(spread * tessera::testing::gauss().value(4, i));
  }
  return values;
}

}  // namespace

TEST_CASE("log-sum-exp keeps the laws, with infinities too", "[host]") {
  CHECK(check_laws<lse_reducer<float>>(scores(10.0F), same_value<float>{1e-6}).text().empty());
  CHECK(check_laws<lse_reducer<float>>({1.0F, -infinite, 3.0F}, same_value<float>{1e-6}).text().empty());
  CHECK(check_laws<lse_reducer<float>>({1.0F, infinite, -infinite, infinite}, same_value<float>{1e-6}).text().empty());
  CHECK(check_laws<lse_reducer<double>>({0.1, 700.0, -700.0, 2.5}, same_value<double>{1e-14}).text().empty());
}

TEST_CASE("log-sum-exp agrees with the formula in double", "[host]") {
  for (float spread : {0.01F, 1.0F, 10.0F, 1000.0F}) {
    auto const values = scores(spread);
    CHECK(is_close(lse<float>(values), tessera::testing::reference_log_sum_exp(values), 1e-6));
    CHECK(is_close(lse<double>(values), tessera::testing::reference_log_sum_exp(values), 1e-14));
  }
}

TEST_CASE("an empty row gives minus infinity", "[host]") {
  CHECK(lse<float>({}) == -infinite);
  CHECK(lse<float>({-infinite, -infinite}) == -infinite);
}

TEST_CASE("large scores do not overflow", "[host]") {
  CHECK(lse<float>({1000.0F, 1000.0F}) == Approx(1000.0 + std::log(2.0)));
  CHECK(lse<float>({-1000.0F, -1000.0F}) == Approx(-1000.0 + std::log(2.0)));
  CHECK(lse<float>({3e38F, 3e38F}) == 3e38F);
}

TEST_CASE("one infinity or NaN decides the log-sum-exp", "[host]") {
  CHECK(lse<float>({1.0F, infinite, 2.0F}) == infinite);
  CHECK(std::isnan(lse<float>({1.0F, NAN, 2.0F})));
  CHECK(std::isnan(lse<float>({NAN})));
}
