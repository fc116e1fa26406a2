// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/core/check.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/check_parts.hpp>

#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using tessera_test::message_of;

namespace {

/// A source that says nothing but how large it is.
struct silent_source {
  std::int64_t count;
  std::int64_t rows() const { return count; }
  std::int64_t columns() const { return 4; }
};

/// A user's own source of two views, of which one must be as long as the other.
struct talking_source {
  array_view<float const> values;
  array_view<float const> scales;

  template <class Use>
  constexpr void each_view(Use const& use) const {
    use("values", values);
    use("scales", scales);
  }
  std::int64_t rows() const { return values.size(); }
  std::int64_t columns() const { return 1; }
  void check(char const* function, char const* what) const {
    tessera::check<shape_error>(values.size() == scales.size(), function, ": the ", what, " have ", values.size(),
                                " values but ", scales.size(), " scales");
  }
};

struct short_map {
  void check_sums(char const* function, std::int64_t rows, std::int64_t columns) const {
    check<shape_error>(rows * columns < 10, function, ": there are ", rows, " x ", columns, " sums but at most 9");
  }
};

}  // namespace

TEST_CASE("a source refuses what does not fit together, in the name of the call", "[host]") {
  std::vector<float> const numbers(3);
  auto const message = [](auto const& source) { return message_of([&] { check_source("f", "weights", source); }); };
  CHECK(message(silent_source{3}) == "");
  CHECK(message(silent_source{-3}) == "f: the extents of the weights are -3 x 4 but neither must be negative");
  CHECK(message(talking_source{numbers, numbers}) == "");
  CHECK(message(talking_source{numbers, {}}) == "f: the weights have 3 values but 0 scales");
  CHECK(message(talking_source{numbers, {nullptr, 3}}) == "f: the scales have no memory but 3 elements");
}

TEST_CASE("a map that can refuse outputs is asked, and any other takes them", "[host]") {
  CHECK(message_of([] { check_map("f", short_map{}, 3, 3); }) == "");
  CHECK(message_of([] { check_map("f", short_map{}, 2, 5); }) == "f: there are 2 x 5 sums but at most 9");
  CHECK(message_of([] { check_map("f", silent_source{3}, 2, 5); }) == "");
}
