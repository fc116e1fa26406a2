// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/math.hpp>
#include <tessera/reduce/minimum_maximum.hpp>
#include <tessera/reduce/row_fold.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/reducer.hpp>

#include "support/catch.hpp"
#include "support/row_states.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

struct power_of_two {
  float operator()(float power) const { return tessera::exp2(power); }
};

/// A row's state as lanes make it: lane l of 4 has columns 8 j + 2 l and 8 j + 2 l + 1 of a tile. Those beyond the row
/// hold minus infinity.
template <class R>
typename R::state_type folded_tile(std::vector<float> const& row, std::int32_t first, std::int32_t columns, float scale,
                                   bool is_far) {
  constexpr float log2_e = 1.442695041F;
  using fold = row_fold<R>;
  auto const end = static_cast<std::int32_t>(row.size());
  auto const value_at = [&](std::int32_t column) {
    return column < end ? row[static_cast<std::size_t>(column)] : -infinity;
  };
  float largest = value_at(first);
  for (std::int32_t column = first; column < first + columns; ++column) {
    largest = maximum(largest, value_at(column));
  }
  is_far = is_far || is_far_row(largest, scale * log2_e);
  float const reference = reference_of_row(largest, scale * log2_e);
  float raw = 0;
  typename fold::part all{};
  for (std::int32_t lane = 0; lane < 4; ++lane) {
    typename fold::part part{};
    for (std::int32_t i = 0; i < columns / 4; ++i) {
      std::int32_t const further = i / 2 * 8 + i % 2;
      std::int32_t const column = first + 2 * lane + further;
      row_value value{value_at(column), largest, 0.0F, 0.0F, further, column < end};
      value.exponent = is_far ? far_exponent(value.value, largest, scale * log2_e)
                              : multiply_add(value.value, scale * log2_e, -reference);
      value.exponential = tessera::exp2(value.exponent);
      raw += value.exponential;
      fold::take(part, value);
    }
    fold::settle(part, {first + 2 * lane, end, scale});
    if (lane == 0) {
      all = part;
    } else {
      fold::join(all, part);
    }
  }
  return fold::finish(all, facts_of_row(largest, scale, raw, is_far, power_of_two{}));
}

/// The state of a row, folded tile by tile, 64 columns each. `is_far`: another row of the warp is far.
template <class R>
typename R::state_type folded(std::vector<float> const& row, float scale, bool is_far = false) {
  typename R::state_type kept = R{}.identity();
  for (std::int32_t first = 0; first < static_cast<std::int32_t>(row.size()); first += 64) {
    typename R::state_type total = kept;
    row_fold<R>::add(total, folded_tile<R>(row, first, 64, scale, is_far), power_of_two{});
    row_fold<R>::keep(kept, total);
  }
  return kept;
}

template <class R>
void check_folds() {
  static_assert(!row_fold<R>::is_pushed);
  for (std::vector<float> const& row : awkward_rows()) {
    for (float const scale : {1.0F, 0.7F, 2.0F}) {
      CAPTURE(row.size(), row[0], scale);
      CHECK(difference_of<R>(folded<R>(row, scale), pushed<R>(row, scale)) == "");
      CHECK(difference_of<R>(folded<R>(row, scale, true), pushed<R>(row, scale)) == "");
    }
  }
}

using all_statistics =
    paired_reducer<entropy_reducer<float>, paired_reducer<arg_max_reducer<float>, sum_reducer<float>>>;

/// A specialisation for a user's own reducer, as users may write them: it counts values.
struct count_reducer {
  using state_type = std::int32_t;
  using input_type = float;
  constexpr state_type identity() const { return 0; }
  constexpr void push(state_type& state, input_type) const { ++state; }
  constexpr void merge(state_type& into, state_type other) const { into += other; }
};

}  // namespace

namespace tessera {
inline namespace v0 {
template <>
struct row_fold<count_reducer> : known_row_fold {
  static constexpr bool uses_bounds = true;
  static_assert(uses_bounds && !uses_exponentials && !is_pushed);
  struct part {
    std::int32_t count = 0;
  };
  static void take(part& lane, row_value const& value) { lane.count += value.is_there ? 1 : 0; }
  static void settle(part&, row_coordinate const&) {}
  static void join(part& into, part const& other) { into.count += other.count; }
  static std::int32_t finish(part const& all, row_facts const&) { return all.count; }
  template <class Power>
  static void add(std::int32_t& into, std::int32_t found, Power const&) {
    into += found;
  }
  template <class Power>
  static void merge(std::int32_t& into, std::int32_t other, Power const&) {
    into += other;
  }
};
}  // namespace v0
}  // namespace tessera

TEST_CASE("folds of rows give what pushing each value gives, with NaNs and infinities in the same states", "[host]") {
  check_folds<lse_reducer<float>>();
  check_folds<entropy_reducer<float>>();
  check_folds<arg_max_reducer<float>>();
  check_folds<sum_reducer<float>>();
  check_folds<paired_reducer<lse_reducer<float>, arg_max_reducer<float>>>();
  check_folds<paired_reducer<sum_reducer<float>, lse_reducer<float>>>();
  check_folds<all_statistics>();
}

TEST_CASE("merging states as a fold does is merging them as the reducer does", "[host][slow]") {
  auto const rows = awkward_rows();
  for (std::vector<float> const& a : rows) {
    for (std::vector<float> const& b : rows) {
      CAPTURE(a.size(), b.size(), a[0], b[0]);
      auto expected = pushed<all_statistics>(a, 1.0F);
      auto found = expected;
      all_statistics{}.merge(expected, pushed<all_statistics>(b, 1.0F));
      row_fold<all_statistics>::merge(found, pushed<all_statistics>(b, 1.0F), power_of_two{});
      CHECK(difference_of<all_statistics>(found, expected) == "");
      auto lse = pushed<lse_reducer<float>>(a, 1.0F);
      auto const other = pushed<lse_reducer<float>>(b, 1.0F);
      auto merged = lse;
      lse_reducer<float>{}.merge(lse, other);
      row_fold<lse_reducer<float>>::merge(merged, other, power_of_two{});
      CHECK(difference_of<lse_reducer<float>>(merged, lse) == "");
    }
  }
}

TEST_CASE("a reducer that says nothing of rows is pushed, beside others that are not", "[host]") {
  using extremes = minimum_maximum_reducer<float>;
  using both = paired_reducer<lse_reducer<float>, extremes>;
  CHECK(row_fold<extremes>::is_pushed);
  CHECK(row_fold<both>::is_pushed);
  CHECK(row_fold<both>::uses_exponentials);
  CHECK(!row_fold<both>::uses_bounds);
  std::vector<float> const row{1.0F, 5.0F, -2.0F};
  auto kept = both{}.identity();
  extremes{}.push(kept.second, 3.0F);  // what a program has pushed meanwhile
  auto total = kept;
  row_fold<both>::add(total, folded_tile<both>(row, 0, 64, 1.0F, false), power_of_two{});
  CHECK(total.second == interval<float>{3.0F, 3.0F});
  extremes{}.push(kept.second, 4.0F);
  row_fold<both>::keep(kept, total);
  CHECK(kept.second == interval<float>{3.0F, 4.0F});
  CHECK(difference_of<lse_reducer<float>>(kept.first, pushed<lse_reducer<float>>(row, 1.0F)) == "");
  row_fold<both>::merge(kept, {kept.first, {-7.0F, 3.0F}}, power_of_two{});
  CHECK(kept.second == interval<float>{-7.0F, 4.0F});
}

TEST_CASE("the reducers that tests bring along keep the laws", "[host]") {
  std::vector<indexed_value<float>> values;
  for (std::int32_t i = 0; i < 40; ++i) {
    auto const at = static_cast<std::uint64_t>(i);
    values.push_back(
        {i % 7 == 3 ? 1.5F : testing::gauss().value(6, at), static_cast<std::int32_t>(testing::hash(7, at) >> 40)});
  }
  auto const four = [](auto const& a, auto const& b) { return difference_of<top_four>(a, b) == ""; };
  CHECK(testing::check_laws<top_four>(values, four).text().empty());
  auto const sums = [](auto const& a, auto const& b) { return difference_of<many_sums<6>>(a, b) == ""; };
  CHECK(testing::check_laws<many_sums<6>>(values, sums).text().empty());
}

TEST_CASE("a user can say how a reducer is made of rows", "[host]") {
  using both = paired_reducer<count_reducer, lse_reducer<float>>;
  for (std::size_t const size : {1U, 63U, 64U, 65U, 200U}) {
    CHECK(folded<count_reducer>(std::vector<float>(size, 1.0F), 1.0F) == static_cast<std::int32_t>(size));
    CHECK(folded<both>(std::vector<float>(size, 1.0F), 1.0F).first == static_cast<std::int32_t>(size));
  }
}
