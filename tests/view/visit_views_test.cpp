// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/map/chained.hpp>
#include <tessera/map/from_column.hpp>
#include <tessera/map/plain_sum.hpp>
#include <tessera/view/visit_views.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// A map with two views.
struct two_views {
  int first = 1;
  int second = 2;

  template <class Use>
  constexpr void each_view(Use const& use) const {
    use("first", first);
    use("second", second);
  }
  template <class Sum>
  Sum operator()(Sum sum, std::int64_t, std::int64_t) const {
    return sum;
  }
};

template <class Object>
std::vector<std::string> names_of(Object const& object) {
  std::vector<std::string> names;
  visit_views(object, [&](char const* what, int view) { names.push_back(what + std::to_string(view)); });
  return names;
}

}  // namespace

TEST_CASE("an object's views are visited in its order, those of what it holds included", "[host]") {
  using list = std::vector<std::string>;
  CHECK(names_of(two_views{}) == list{"first1", "second2"});
  CHECK(names_of(from_column<two_views>{{3, 4}, 0}) == list{"first3", "second4"});
  CHECK(names_of(chained<two_views, two_views>{{}, {5, 6}}) == list{"first1", "second2", "first5", "second6"});
  CHECK(names_of(chained<plain_sum, two_views>{}) == list{"first1", "second2"});
}

TEST_CASE("an object that names no views has none", "[host]") {
  CHECK(names_of(plain_sum{}).empty());
}
