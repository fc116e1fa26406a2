// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/concepts/selector.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/reduce/minimum_maximum.hpp>
#include <tessera/testing/laws/selector.hpp>

#include "support/catch.hpp"

using tessera::Selector;
using tessera::testing::check_laws;

namespace selector_test {

/// A user's own Selector: a landmark is the box of the keys, a score the most that any key in the box could score.
struct box_selector {
  using landmark_type = tessera::interval<float>;
  constexpr tessera::minimum_maximum_reducer<float> summary() const { return {}; }
  constexpr landmark_type landmark(tessera::interval<float> const& summarised) const { return summarised; }
  constexpr float score(float query, landmark_type const& box) const {
    return tessera::max(query * box.minimum, query * box.maximum);
  }
  constexpr std::int64_t budget(std::int64_t candidates) const { return candidates / 4; }
};

struct taking_too_many : box_selector {
  constexpr std::int64_t budget(std::int64_t) const { return 16; }
};

struct taking_fewer_of_more : box_selector {
  constexpr std::int64_t budget(std::int64_t candidates) const { return candidates < 64 ? candidates : 32; }
};

struct dividing_by_the_width : box_selector {
  constexpr float score(float query, landmark_type const& box) const { return query / (box.maximum - box.maximum); }
};

static_assert(Selector<box_selector>);
static_assert(!Selector<tessera::minimum_maximum_reducer<float>>);

std::vector<float> const keys{1.0F, -2.0F, 0.5F};
std::vector<float> const queries{-1.0F, 0.0F, 3.0F};
tessera::testing::equal_states const equal;

}  // namespace selector_test

using namespace selector_test;

TEST_CASE("a user's own selector keeps the laws", "[host]") {
  auto const report = check_laws<box_selector>(keys, queries, 0.0, equal);
  INFO(report.text());
  CHECK(report.is_empty());
}

TEST_CASE("a selector that takes more chunks than there are is caught", "[host]") {
  CHECK(check_laws<taking_too_many>(keys, queries, 0.0, equal).mentions("budget(n) is between 0 and n: 16 of 0"));
}

TEST_CASE("a selector that takes fewer of more chunks is caught", "[host]") {
  CHECK(check_laws<taking_fewer_of_more>(keys, queries, 0.0, equal).mentions("budget(n) never shrinks when n grows"));
}

TEST_CASE("a selector whose score is not finite is caught", "[host]") {
  CHECK(check_laws<dividing_by_the_width>(keys, queries, 0.0, equal)
            .mentions("finite keys and queries have a finite score"));
}
