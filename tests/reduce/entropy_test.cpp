// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <limits>
#include <vector>

#include <tessera/reduce/entropy.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/reducer.hpp>

#include "support/catch.hpp"

using tessera::entropy_reducer;
using tessera::testing::check_laws;
using tessera::testing::is_close;

namespace {

/// States mean the same when both of their values do.
template <class T>
struct same_values {
  double tolerance;
  bool operator()(tessera::weighted_exponentials<T> const& a, tessera::weighted_exponentials<T> const& b) const {
    entropy_reducer<T> const reducer;
    return is_close(reducer.value(a), reducer.value(b), tolerance) &&
           (a.scaled == 0 || b.scaled == 0 ? a.scaled == b.scaled
                                           : is_close(reducer.entropy(a) + 1, reducer.entropy(b) + 1, tolerance));
  }
};

}  // namespace

TEST_CASE("entropy keeps the laws", "[host]") {
  std::vector<float> values;
  for (std::uint64_t i = 0; i < 200; ++i) {
    values.push_back(5.0F * tessera::testing::gauss().value(4, i));
  }
  CHECK(check_laws<entropy_reducer<float>>(values, same_values<float>{3e-6}).text().empty());
  CHECK(check_laws<entropy_reducer<double>>({0.1, 700.0, -700.0, 2.5}, same_values<double>{1e-14}).text().empty());
}

TEST_CASE("entropy agrees with the formula, and minus infinities add nothing", "[host]") {
  float const none = -std::numeric_limits<float>::infinity();
  entropy_reducer<float> const reducer;
  auto state = reducer.identity();
  double sum = 0;
  double weighted = 0;
  for (std::uint64_t i = 0; i < 500; ++i) {
    float const value = 3.0F * tessera::testing::gauss().value(5, i);
    reducer.push(state, value);
    reducer.push(state, none);
    sum += std::exp(static_cast<double>(value));
    weighted += std::exp(static_cast<double>(value)) * static_cast<double>(value);
  }
  CHECK(is_close(reducer.value(state), std::log(sum), 1e-6));
  CHECK(is_close(reducer.entropy(state), std::log(sum) - weighted / sum, 1e-5));
}

TEST_CASE("the entropy of equal values is the logarithm of their number", "[host]") {
  entropy_reducer<float> const reducer;
  auto state = reducer.identity();
  CHECK(std::isnan(reducer.entropy(state)));
  for (int i = 0; i < 4; ++i) {
    reducer.push(state, 1000.0F);
  }
  CHECK(reducer.entropy(state) == Approx(std::log(4.0)));
}
