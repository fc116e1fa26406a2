// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/concepts/reducer.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/reduce/piecewise_linear_softmax.hpp>
#include <tessera/reduce/row_parts.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/reducer.hpp>
#include <tessera/testing/reference.hpp>

#include "support/catch.hpp"

using namespace tessera;
using tessera::testing::check_laws;
using tessera::testing::is_close;

namespace {

using softmax = online_softmax<float>;
using part = row_part<softmax::state_type, 2>;
using reducer = part_reducer<softmax, part>;
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

static_assert(PartReducer<reducer> && PartReducer<part_reducer<softmax, row_part<softmax::state_type, 0>>>);
static_assert(PartReducer<part_reducer<piecewise_linear_softmax, part>>);
static_assert(!PartReducer<softmax>);

/// A part of one key, whose reference may be above its score.
part key(float score, float first, float second, float above = 0.0F) {
  float const weight = std::exp2(-above);
  return {{score, score + above, weight}, {first * weight, second * weight}};
}
/// Keys whose scores are up to `spread` apart, of which every fifth is hidden.
std::vector<part> keys(std::size_t count, float spread, std::uint64_t seed) {
  std::vector<part> made;
  for (std::size_t i = 0; i < count; ++i) {
    float const score = spread * testing::gauss().value(seed, i);
    made.push_back(i % 5 == 4 ? reducer{}.identity()
                              : key(score, testing::gauss().value(seed + 1, i), testing::gauss().value(seed + 2, i),
                                    -static_cast<float>(i % 3)));
  }
  return made;
}

/// Parts mean the same when their rows do.
struct same_row {
  double tolerance;
  bool operator()(part const& a, part const& b) const {
    bool const are_close = is_close(softmax{}.value(a.state), softmax{}.value(b.state), tolerance);
    if (a.state.sum == 0.0F && b.state.sum == 0.0F) {
      return are_close && a.values[0] == b.values[0] && a.values[1] == b.values[1];
    }
    return are_close && is_close(a.values[0] / a.state.sum, b.values[0] / b.state.sum, tolerance) &&
           is_close(a.values[1] / a.state.sum, b.values[1] / b.state.sum, tolerance);
  }
};

part in_order(std::vector<part> const& parts) {
  part all = reducer{}.identity();
  for (part const& one : parts) {
    reducer{}.merge(all, one);
  }
  return all;
}
template <int Count>
part at_once(std::vector<part> const& parts) {
  return merge_parts<Count>(reducer{}, [&](int i) { return parts[static_cast<std::size_t>(i)]; });
}

template <int Count>
void check_merging() {
  for (float const spread : {0.0F, 1.0F, 30.0F}) {
    auto const parts = keys(Count, spread, Count);
    part const ordered = in_order(parts);
    part const merged = at_once<Count>(parts);
    CAPTURE(Count, spread);
    CHECK(same_row{3e-6}(ordered, merged));
    double sum = 0;
    double value = 0;
    for (part const& one : parts) {
      if (one.state.sum != 0.0F) {
        sum += static_cast<double>(one.state.sum) * std::exp2(static_cast<double>(one.state.reference));
        value += static_cast<double>(one.values[1]) * std::exp2(static_cast<double>(one.state.reference));
      }
    }
    CHECK(static_cast<double>(softmax{}.value(merged.state)) == Approx(std::log(sum)).margin(3e-6));
    CHECK(static_cast<double>(merged.values[1] / merged.state.sum) == Approx(value / sum).margin(3e-6));
  }
}

}  // namespace

TEST_CASE("parts of a row keep the laws of a reducer, with hidden ones too", "[host]") {
  CHECK(check_laws<reducer>(keys(60, 1.0F, 3), same_row{1e-5}).text().empty());
  CHECK(check_laws<reducer>(keys(60, 30.0F, 4), same_row{1e-5}).text().empty());
  CHECK(check_laws<reducer>({reducer{}.identity(), reducer{}.identity()}, same_row{0}).text().empty());
}

TEST_CASE("parts that are merged at once make the row that they make in order", "[host]") {
  check_merging<1>();
  check_merging<2>();
  check_merging<4>();
  check_merging<7>();
  check_merging<33>();
}

TEST_CASE("merging at once says by what sums that lie elsewhere are to be multiplied", "[host]") {
  for (std::size_t const count : {0U, 1U, 5U, 33U}) {
    auto const parts = keys(count, 30.0F, 8 + count);
    float elsewhere = 0.0F;
    int calls = 0;
    part const merged = merge_parts(
        reducer{}, static_cast<int>(count), [&](int i) -> part const& { return parts[static_cast<std::size_t>(i)]; },
        [&](int i, float factor) {
          CHECK(i == calls++);
          elsewhere += parts[static_cast<std::size_t>(i)].values[1] * factor;
        });
    CAPTURE(count);
    CHECK(calls == static_cast<int>(count));
    CHECK(elsewhere == merged.values[1]);
  }
}

TEST_CASE("a row of no parts, and of hidden ones alone, is that without keys", "[host]") {
  for (part const& nothing :
       {at_once<0>({}), at_once<3>({reducer{}.identity(), reducer{}.identity(), reducer{}.identity()})}) {
    CHECK(nothing.state.reference == -infinity);
    CHECK(nothing.state.largest == -infinity);
    CHECK((nothing.state.sum == 0.0F && nothing.values[0] == 0.0F && nothing.values[1] == 0.0F));
  }
}

TEST_CASE("a NaN in a part makes the row's sums NaN, and nothing else of it", "[host]") {
  part bad = key(1.0F, 1.0F, 2.0F);
  bad.values[1] = not_a_number;
  for (part const& all : {in_order({key(3.0F, 1.0F, 1.0F), bad, reducer{}.identity()}),
                          at_once<3>({key(3.0F, 1.0F, 1.0F), bad, reducer{}.identity()})}) {
    CHECK(std::isnan(all.values[1]));
    CHECK(all.values[0] == 1.25F);
    CHECK(all.state.sum == 1.25F);
    CHECK(all.state.reference == 3.0F);
  }
}

TEST_CASE("a part of an infinite score outweighs all others", "[host]") {
  part const infinite{{infinity, infinity, 1.0F}, {2.0F, 3.0F}};
  for (part const& all : {in_order({key(3.0F, 1.0F, 1.0F), infinite}), at_once<2>({key(3.0F, 1.0F, 1.0F), infinite})}) {
    CHECK((all.state.reference == infinity && all.state.sum == 1.0F));
    CHECK((all.values[0] == 2.0F && all.values[1] == 3.0F));
  }
}

TEST_CASE("sums of a part are read and replaced, and add up as parts do", "[host]") {
  reducer const words;
  part one = key(2.0F, 3.0F, 5.0F);
  auto sums = words.sums_of(one);
  reducer::sums_reducer{}.merge(sums, words.sums_of(key(2.0F, 7.0F, 11.0F)));
  words.set_sums(one, sums);
  CHECK((one.state.sum == 2.0F && one.values[0] == 10.0F && one.values[1] == 16.0F));
  CHECK(one.state.reference == 2.0F);
  part added = key(2.0F, 3.0F, 5.0F);
  words.add(added, key(2.0F, 7.0F, 11.0F), 1.0F);
  CHECK((added.state.sum == 2.0F && added.values[0] == 10.0F && added.values[1] == 16.0F));
}
