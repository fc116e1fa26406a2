// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/attention/detail/merge_rows.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/reduce/row_parts.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

struct method {
  using softmax = online_softmax<float>;
};
using row_type = attention_row<method::softmax::state_type>;
using row_reducer = part_reducer<method::softmax, row_type>;
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// The row of these scores in base 2; the sum of its rounded weights is 448 times the sum of its weights.
row_type row_of(std::vector<float> const& scores, float above = 0.0F) {
  row_type row = row_type::nothing(method::softmax{});
  for (float const score : scores) {
    row.state.largest = max(row.state.largest, score);
  }
  row.state.reference = row.state.largest - above;
  for (float const score : scores) {
    row.state.sum += std::exp2(score - row.state.reference);
  }
  row.rounded = 448.0F * row.state.sum;
  return row;
}

/// Rows of 2 sequences, 2 heads and 3 queries, whose values are the weights themselves in the last channel.
struct shared_rows {
  static constexpr std::int64_t channels = 5;
  std::int64_t splits;
  std::vector<float> totals;
  std::vector<row_type> rows;
  std::vector<double> sums;    ///< sum of 2^score of each row
  std::vector<double> values;  ///< sum of weighted values of each row and channel

  shared_rows(std::int64_t count, unsigned seed)
      : splits(count),
        totals(at(count * 12 * channels)),
        rows(at(count * 12)),
        sums(12, 0.0),
        values(at(12 * channels), 0.0) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < splits * 12; ++i) {
      std::vector<float> scores;
      for (std::int64_t key = 0; key < i % 4; ++key) {  // some splits have no key
        scores.push_back(10.0F * normal(random));
      }
      row_type& row = rows[at(i)];
      row = row_of(scores, static_cast<float>(i % 3));
      for (float const score : scores) {
        sums[at(i % 12)] += std::exp2(static_cast<double>(score));
        for (std::int64_t channel = 0; channel < channels; ++channel) {
          float const value = channel + 1 == channels ? 1.0F : normal(random);
          totals[at(i * channels + channel)] += 448.0F * value * std::exp2(score - row.state.reference);
          values[at(i % 12 * channels + channel)] += static_cast<double>(value) * std::exp2(static_cast<double>(score));
        }
      }
    }
  }
  attention_partials<method::softmax::state_type> partials() {
    return {{totals.data(), {splits, 2, 2, 3, channels}}, {rows.data(), {splits, 2, 2, 3}}};
  }
};

}  // namespace

TEST_CASE("a row of no key is neutral, on either side", "[host]") {
  method::softmax const softmax;
  row_type const some = row_of({3.0F, -2.0F}, 1.0F);
  row_type left = row_type::nothing(softmax);
  row_reducer const reducer;
  auto const by = reducer.merge(left, some);
  CHECK(by.of_second == 1.0F);
  CHECK((left.state.reference == some.state.reference && left.state.largest == some.state.largest));
  CHECK((left.state.sum == some.state.sum && left.rounded == some.rounded));
  row_type right = some;
  CHECK(reducer.merge(right, row_type::nothing(softmax)).of_first == 1.0F);
  CHECK((right.state.sum == some.state.sum && right.rounded == some.rounded));
  row_type neither = row_type::nothing(softmax);
  reducer.merge(neither, row_type::nothing(softmax));
  CHECK((neither.state.sum == 0.0F && neither.rounded == 0.0F && neither.state.reference == -infinity));
}

TEST_CASE("two rows merge to the row of all their keys, and say what their totals are multiplied by", "[host]") {
  method::softmax const softmax;
  for (float const apart : {-200.0F, -3.0F, 0.0F, 5.0F, 90.0F}) {
    row_type whole = row_of({1.0F, 0.5F});
    row_type const other = row_of({1.0F + apart, 0.25F + apart}, 2.0F);
    auto const factors = softmax.merge_factors(whole.state, other.state);
    auto const by = row_reducer{}.merge(whole, other);
    CAPTURE(apart);
    CHECK((by.of_first == factors.of_first && by.of_second == factors.of_second));
    double const sum = std::exp2(1.0) + std::exp2(0.5) + std::exp2(1.0 + apart) + std::exp2(0.25 + apart);
    CHECK(std::log2(whole.state.sum) + whole.state.reference == Approx(std::log2(sum)).epsilon(1e-6));
    CHECK(whole.rounded == Approx(448.0F * whole.state.sum).epsilon(1e-6));
  }
}

TEST_CASE("a split is added by the factor that makes it relative to the row's reference", "[host]") {
  row_type whole = row_of({4.0F});
  row_reducer{}.add(whole, row_of({2.0F, 2.0F}), 0.25F);
  CHECK(whole.state.sum == 1.5F);
  CHECK(whole.rounded == 448.0F * 1.5F);
  CHECK(whole.state.reference == 4.0F);
}

TEST_CASE("a row without keys ends as zeros and minus infinity, one with a NaN as NaN", "[host]") {
  using softmax = method::softmax;
  finished_row const empty = finish_attention_row<softmax>(row_type::nothing(softmax{}), -infinity, not_a_number);
  CHECK((empty.inverse == 0.0F && empty.log_sum_exp == -infinity && empty.share == 1.0F));
  finished_row const with_sink = finish_attention_row<softmax>(row_type::nothing(softmax{}), 2.0F, 7.0F);
  CHECK(with_sink.inverse == 0.0F);
  CHECK(with_sink.log_sum_exp == Approx(2.0F));
  row_type bad = row_of({1.0F});
  bad.state.sum = not_a_number;  // its codes have none
  CHECK(std::isnan(finish_attention_row<softmax>(bad, -infinity, 0.0F).inverse));
}

TEST_CASE("a sink takes its share of a row, and the mean key's score belongs to its log-sum-exp", "[host]") {
  row_type const row = row_of({2.0F, 1.0F, -5.0F}, 0.5F);
  double const sum = std::exp2(2.0) + std::exp2(1.0) + std::exp2(-5.0);
  for (float const mean_score : {0.0F, -3.0F, 4.0F}) {
    for (float const sink : {-infinity, -40.0F, 0.0F, 3.0F}) {
      finished_row const found = finish_attention_row<method::softmax>(row, sink, mean_score);
      double const keys = sum * std::exp(static_cast<double>(mean_score));
      double const all = keys + std::exp(static_cast<double>(sink));
      CAPTURE(mean_score, sink);
      CHECK(found.log_sum_exp == Approx(std::log(all)).epsilon(1e-5));
      CHECK(found.share == Approx(keys / all).epsilon(1e-5));
      CHECK(found.inverse * row.rounded == Approx(keys / all).epsilon(1e-5));
    }
  }
}

namespace {

/// Checks that a program merges any number of splits to the rows of all keys.
template <class Merge>
void check_merged_rows() {
  for (std::int64_t const splits : {1, 2, 3, 4, 5, 31, 32, 33, 63, 64}) {
    shared_rows problem(splits, static_cast<unsigned>(splits));
    std::vector<float> results(at(12 * shared_rows::channels), -7.0F);
    std::vector<float> lse(12, -7.0F);
    attention_shape const s{2, 2, 2, 3, 100, shared_rows::channels};
    attention_writer<method, float> writer{};
    writer.shape = s;
    writer.out = {results.data(), {2, 2, 3, shared_rows::channels}};
    writer.log_sum_exp = {lse.data(), {2, 2, 3}};
    Merge const merge{problem.partials(), writer};
    cpu{.threads = 1}.run(merge, merge.groups());
    for (std::int64_t row = 0; row < 12; ++row) {
      double const sum = problem.sums[at(row)];
      CAPTURE(splits, row);
      if (sum == 0.0) {
        REQUIRE(lse[at(row)] == -infinity);
      } else {
        REQUIRE(lse[at(row)] == Approx(std::log(sum)).margin(1e-5));
      }
      for (std::int64_t channel = 0; channel < shared_rows::channels; ++channel) {
        double const expected = sum == 0.0 ? 0.0 : problem.values[at(row * shared_rows::channels + channel)] / sum;
        REQUIRE(results[at(row * shared_rows::channels + channel)] == Approx(expected).margin(2e-6));
      }
    }
  }
}

}  // namespace

TEST_CASE("any number of splits come to the rows of all keys", "[host]") {
  check_merged_rows<merge_attention<method, float>>();
  check_merged_rows<tessera::detail::merge_rows<method, float>>();
}

TEST_CASE("queries beyond the length of their sequence are written as nothing seen, or nowhere", "[host]") {
  shared_rows problem(3, 8);
  std::vector<float> results(at(12 * shared_rows::channels), -7.0F);
  std::vector<float> lse(12, -7.0F);
  std::vector<std::int32_t> const lengths{3, 1};
  attention_writer<method, float> writer{};
  writer.shape = {2, 2, 2, 3, 100, shared_rows::channels};
  writer.query_lengths = lengths;
  writer.out = {results.data(), {2, 2, 3, shared_rows::channels}};
  writer.log_sum_exp = {lse.data(), {2, 2, 3}};
  merge_attention<method, float> const merge{problem.partials(), writer};
  cpu{.threads = 1}.run(merge, merge.groups());
  for (std::int64_t row = 0; row < 12; ++row) {
    bool const is_beyond = row >= 6 && row % 3 > 0;
    CAPTURE(row);
    CHECK((lse[at(row)] == -infinity) == (is_beyond || problem.sums[at(row)] == 0.0));
    CHECK((results[at(row * shared_rows::channels + 4)] == 0.0F) == (is_beyond || problem.sums[at(row)] == 0.0));
  }
  std::vector<std::int32_t> const starts{0, 3};
  std::vector<float> packed(at(2 * 4 * shared_rows::channels), -7.0F);
  writer.starts = {starts, 4};
  writer.out = {packed.data(), {2, 2, 3, shared_rows::channels}, {0, 4 * shared_rows::channels, 5, 1}};
  writer.log_sum_exp = {};
  merge_attention<method, float> const into{problem.partials(), writer};
  cpu{.threads = 1}.run(into, into.groups());
  for (std::int64_t head = 0; head < 2; ++head) {
    for (std::int64_t token = 0; token < 4; ++token) {
      std::int64_t const row = token < 3 ? head * 3 + token : 6 + head * 3;
      for (std::int64_t channel = 0; channel < shared_rows::channels; ++channel) {
        CHECK(packed[at((head * 4 + token) * shared_rows::channels + channel)] ==
              results[at(row * shared_rows::channels + channel)]);
      }
    }
  }
}
