// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/reduce/arg_max.hpp>
#include <tessera/reduce/largest_entries.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/reducer.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

constexpr float no_number = std::numeric_limits<float>::quiet_NaN();

using values_type = std::vector<indexed_value<float>>;

struct same_entries {
  template <class State>
  bool operator()(State const& a, State const& b) const {
    return std::equal(std::begin(a.of), std::end(a.of), std::begin(b.of),
                      [](auto const& x, auto const& y) { return x.index == y.index && x.value == y.value; });
  }
};

template <int K>
void check_laws_of(values_type const& values) {
  auto const report = testing::check_laws<largest_entries_reducer<K>>(values, same_entries{});
  CAPTURE(K, report.text());
  CHECK(report.is_empty());
}

/// What a sort finds of the largest values that are numbers.
template <int K>
typename largest_entries_reducer<K>::state_type sorted(values_type values) {
  std::erase_if(values, [](auto const& of) { return std::isnan(of.value); });
  std::sort(values.begin(), values.end(), [](auto const& a, auto const& b) {
    return a.value > b.value || (a.value == b.value && a.index < b.index);
  });
  values.resize(static_cast<std::size_t>(K), {-infinity, -1});
  typename largest_entries_reducer<K>::state_type state{};
  std::copy(values.begin(), values.end(), std::begin(state.of));
  return state;
}

/// Values of which many are equal, and some NaN or infinite.
values_type some_values(std::int32_t count, std::uint64_t seed) {
  values_type values;
  for (std::int32_t i = 0; i < count; ++i) {
    std::uint64_t const word = testing::hash(seed, static_cast<std::uint64_t>(i));
    float const value = static_cast<float>(word % 13) - 6.0F;
    values.push_back({word % 29 == 0 ? no_number : word % 31 == 0 ? infinity : word % 7 == 0 ? -infinity : value, i});
  }
  return values;
}

template <int K>
void check_sorted() {
  largest_entries_reducer<K> const reducer;
  for (std::int32_t const count : {0, 1, K - 1, K, K + 1, 7, 100}) {
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      values_type const values = some_values(count, seed);
      auto forth = reducer.identity();
      auto back = reducer.identity();
      auto parts = std::vector(3, reducer.identity());
      for (std::size_t i = 0; i < values.size(); ++i) {
        reducer.push(forth, values[i]);
        reducer.push(back, values[values.size() - 1 - i]);
        reducer.push(parts[i % 3], values[i]);
      }
      reducer.merge(parts[2], parts[0]);
      reducer.merge(parts[2], parts[1]);
      CAPTURE(K, count, seed);
      CHECK(same_entries{}(forth, sorted<K>(values)));
      CHECK(same_entries{}(back, sorted<K>(values)));
      CHECK(same_entries{}(parts[2], sorted<K>(values)));
    }
  }
}

}  // namespace

TEST_CASE("the largest entries keep the laws, with equal values, infinities and NaNs", "[host]") {
  values_type const values{{1, 0}, {3, 1}, {3, 2}, {-infinity, 3}, {no_number, 4}, {2, 5}, {infinity, 6}, {3, 7}};
  check_laws_of<1>(values);
  check_laws_of<3>(values);
  check_laws_of<4>(values);
  check_laws_of<9>(values);  // more than there are
  check_laws_of<2>({{no_number, 0}, {-infinity, 5}, {-infinity, 2}});
  auto const one = testing::check_laws<largest_entries_reducer<1>>(
      values, [](auto const& a, auto const& b) { return a.of[0].index == b.of[0].index; });
  CHECK(one.is_empty());
}

TEST_CASE("the largest entries are those of a sort, in whatever order values come and states merge", "[host]") {
  check_sorted<1>();
  check_sorted<2>();
  check_sorted<4>();
  check_sorted<8>();
  check_sorted<17>();
}

TEST_CASE("the largest of one entry is arg_max's", "[host]") {
  largest_entries_reducer<1> const reducer;
  arg_max_reducer<float> const best;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    auto state = reducer.identity();
    auto expected = best.identity();
    for (auto const& value : some_values(static_cast<std::int32_t>(seed), seed)) {
      reducer.push(state, value);
      best.push(expected, value);
    }
    CHECK(state.of[0].index == expected.index);
    CHECK(state.of[0].value == expected.value);
  }
}
