// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <vector>

#include <tessera/concepts/merger.hpp>
#include <tessera/reduce/pair_products.hpp>
#include <tessera/testing/laws/merger.hpp>

#include "support/catch.hpp"

using tessera::Merger;
using tessera::testing::check_laws;
using tessera::testing::vector_pair;

namespace merger_test {

/// A user's own Merger: keeps the longer vector alone, and the ratio of lengths.
struct longer_one {
  struct kept_type {
    float first;
    float second;
  };
  constexpr tessera::pair_products_reducer measure() const { return {}; }
  constexpr tessera::mix_weights mix(tessera::pair_products const& measured) const {
    return measured.first < measured.second ? tessera::mix_weights{0, 1} : tessera::mix_weights{1, 0};
  }
  kept_type keep(tessera::pair_products const& measured) const {
    double const longer = std::sqrt(std::fmax(measured.first, measured.second));
    if (longer == 0) {
      return {0, 0};
    }
    return {static_cast<float>(std::sqrt(measured.first) / longer),
            static_cast<float>(std::sqrt(measured.second) / longer)};
  }
  constexpr float restore(float merged, kept_type kept, tessera::side which) const {
    return merged * (which == tessera::side::first ? kept.first : kept.second);
  }
};

/// The mean, without lengths.
struct mean_of_both : longer_one {
  constexpr tessera::mix_weights mix(tessera::pair_products const&) const { return {0.5F, 0.5F}; }
  constexpr float restore(float merged, kept_type, tessera::side) const { return merged; }
};

struct half_of_it : longer_one {
  constexpr tessera::mix_weights mix(tessera::pair_products const&) const { return {0.5F, 0.0F}; }
};

struct dividing_by_the_length : longer_one {
  tessera::mix_weights mix(tessera::pair_products const& measured) const {
    return {1.0F / static_cast<float>(measured.first), 0.0F};
  }
};

static_assert(Merger<longer_one>);
static_assert(!Merger<tessera::pair_products_reducer>);

std::vector<vector_pair> const pairs{{{1, 2, 3}, {3, 2, -1}}, {{0, 1, 0}, {100, 0, 0}}};

bool nearly_same(tessera::pair_products const& a, tessera::pair_products const& b) {
  return tessera::testing::is_close(a.first, b.first, 1e-12) && tessera::testing::is_close(a.second, b.second, 1e-12) &&
         tessera::testing::is_close(a.cross, b.cross, 1e-12);
}

}  // namespace merger_test

using namespace merger_test;

TEST_CASE("a user's own merger keeps the laws", "[host]") {
  auto const report = check_laws<longer_one>(pairs, 1e-6, nearly_same);
  INFO(report.text());
  CHECK(report.is_empty());
}

TEST_CASE("a merger that does not restore a vector of zeros is caught", "[host]") {
  CHECK(check_laws<mean_of_both>(pairs, 1e-6, nearly_same).mentions("zeros restore to zeros"));
}

TEST_CASE("a merger that does not restore equal vectors is caught", "[host]") {
  CHECK(check_laws<half_of_it>(pairs, 1e-6, nearly_same).mentions("two equal vectors restore to themselves"));
}

TEST_CASE("a merger that divides by the length of a vector of zeros is caught", "[host]") {
  CHECK(check_laws<dividing_by_the_length>(pairs, 1e-6, nearly_same).mentions("finite vectors restore to finite ones"));
}
