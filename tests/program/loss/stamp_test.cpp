// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/loss/stamp.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

using samples_type = loss_input_samples<bfloat16, std::int32_t>;

/// Numbers of all that the samples see of a classifier.
template <class Executor = cpu>
std::uint64_t number_of(matrix_view<bfloat16 const> classifier, Executor const& exec = Executor{}) {
  std::vector<std::uint64_t> words(loss_stamp::size);
  samples_type const samples{{}, classifier, {}, {}, {}};
  exec.run(stamp_loss<bfloat16, std::int32_t>{{}, samples, words}, 1);
  CHECK(words[loss_stamp::mark] == loss_stamp::made);
  return words[loss_stamp::inputs];
}

std::vector<bfloat16> some_values(std::size_t count) {
  std::vector<bfloat16> values;
  for (std::size_t i = 0; i < count; ++i) {
    values.push_back(testing::sample<bfloat16>(testing::gauss{}, 1, i));
  }
  return values;
}

}  // namespace

TEST_CASE("a stamp tells numbers, their order and their part", "[host]") {
  std::set<std::uint64_t> seen;
  for (auto const part : {loss_stamp::plan, loss_stamp::options}) {
    loss_stamp const one = loss_stamp{}.add(part, std::int64_t{1}).add(part, std::int64_t{2});
    loss_stamp const other = loss_stamp{}.add(part, std::int64_t{2}).add(part, std::int64_t{1});
    loss_stamp const fraction = loss_stamp{}.add(part, 0.5F, 0.25F).add(part, std::int64_t{1});
    loss_stamp const turned = loss_stamp{}.add(part, 0.25F, 0.5F).add(part, std::int64_t{1});
    CHECK(one.words[loss_stamp::mark] == loss_stamp::made);
    CHECK(one.words[part == loss_stamp::plan ? loss_stamp::options : loss_stamp::plan] == 0);
    seen.insert({one.words[part], other.words[part], fraction.words[part], turned.words[part]});
    CHECK(loss_stamp{}.add(part, -0.0F, 0.0F).words[part] == loss_stamp{}.add(part, 0.0F, -0.0F).words[part]);
  }
  CHECK(seen.size() == 4);
  CHECK(loss_stamp{}.set(loss_stamp::tokens, 5).set(loss_stamp::tokens, 7).words[loss_stamp::tokens] == 7);
}

TEST_CASE("of up to 1024 elements each counts, at its own index", "[host]") {
  for (auto const columns : {1, 3, 64}) {
    auto values = some_values(static_cast<std::size_t>(1024 / columns * columns));
    matrix_view<bfloat16 const> const matrix(values.data(), {1024 / columns, columns});
    std::set<std::uint64_t> seen{number_of(matrix)};
    std::size_t changes = 0;
    for (std::size_t i = 0; i < values.size(); i += 23) {
      bfloat16 const before = values[i];
      values[i] = store<bfloat16>(static_cast<float>(load(before)) + 1.0F);
      seen.insert(number_of(matrix));
      values[i] = before;
      ++changes;
    }
    CHECK(seen.size() == changes + 1);
  }
}

TEST_CASE("of more elements those of all indices are looked at", "[host]") {
  constexpr std::size_t count = 50000;
  auto values = some_values(count);
  matrix_view<bfloat16 const> const matrix(values.data(), {500, 100});
  std::uint64_t const before = number_of(matrix);
  for (std::size_t first = 0; first < count; first += 1000) {
    auto const kept = values;
    for (std::size_t i = first; i < first + 1000; ++i) {
      values[i] = bfloat16{0x4040};
    }
    CHECK(number_of(matrix) != before);
    values = kept;
  }
  CHECK(number_of(matrix) == before);
}

TEST_CASE("the number of inputs depends on values, not on strides or executors", "[host]") {
  auto const values = some_values(60 * 70);
  std::vector<bfloat16> turned(values.size() * 2);
  for (std::size_t i = 0; i < 60; ++i) {
    for (std::size_t k = 0; k < 70; ++k) {
      turned[k * 120 + 2 * i] = values[i * 70 + k];
    }
  }
  std::uint64_t const expected = number_of({values.data(), {60, 70}});
  CHECK(number_of({turned.data(), {60, 70}, {2, 120}}) == expected);
  CHECK(number_of({values.data(), {60, 70}}, testing::adversary{.seed = 2}) == expected);
  CHECK(number_of({}) == 0);
  CHECK(number_of({values.data(), {60, 0}}) == 0);
}
