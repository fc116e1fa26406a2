// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/algorithm/attention/decode_attention.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

using partial_row = attention_row<online_softmax<float>::state_type>;

/// A few queries of two sequences over keys in blocks that a table numbers backwards; block_tokens = keys: no table.
struct dense_decode_problem {
  attention_shape s;
  std::int64_t block_tokens;
  std::int64_t splits;
  bool is_causal;
  std::int64_t blocks;                ///< of a sequence
  std::vector<std::int32_t> lengths;  ///< of the two sequences
  std::vector<std::int32_t> table;
  std::vector<bfloat16> queries;
  std::vector<bfloat16> keys;
  std::vector<bfloat16> values;
  std::vector<float> result;
  std::vector<float> log_sum_exp;
  std::vector<float> totals;
  std::vector<partial_row> rows;

  dense_decode_problem(attention_shape const& shape, std::int64_t of_block, std::int64_t of_splits, bool causal)
      : s(shape),
        block_tokens(of_block),
        splits(of_splits),
        is_causal(causal),
        blocks((s.keys + of_block - 1) / of_block),
        lengths{static_cast<std::int32_t>(s.keys), static_cast<std::int32_t>(s.keys * 2 / 3)},
        queries(samples(s.batch * s.query_heads * s.queries * s.channels, 1)),
        keys(samples(s.batch * blocks * s.key_heads * block_tokens * s.channels, 2)),
        values(samples(s.batch * blocks * s.key_heads * block_tokens * s.channels, 3)),
        result(queries.size(), -777.0F),
        log_sum_exp(static_cast<std::size_t>(s.batch * s.query_heads * s.queries), -777.0F),
        totals(static_cast<std::size_t>(splits) * queries.size()),
        rows(static_cast<std::size_t>(splits) * log_sum_exp.size()) {
    for (std::int64_t i = 0; i < s.batch * blocks; ++i) {
      table.push_back(static_cast<std::int32_t>(s.batch * blocks - 1 - i));
    }
  }
  static std::vector<bfloat16> samples(std::int64_t count, std::uint64_t seed) {
    std::vector<bfloat16> made(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < made.size(); ++i) {
      made[i] = store<bfloat16>(testing::gauss{}.value(seed, i));
    }
    return made;
  }
  [[nodiscard]] bool has_table() const { return block_tokens < s.keys; }

  [[nodiscard]] decode_attention_call<bfloat16, float> call() {
    std::int64_t const all = s.batch * blocks;
    decode_attention_call<bfloat16, float> made{s,
                                                {{keys.data(), {all, s.key_heads, block_tokens, s.channels}},
                                                 {values.data(), {all, s.key_heads, block_tokens, s.channels}},
                                                 {},
                                                 lengths},
                                                {queries.data(), {s.batch, s.query_heads, s.queries, s.channels}},
                                                0.2F,
                                                is_causal,
                                                {{result.data(), {s.batch, s.query_heads, s.queries, s.channels}},
                                                 {log_sum_exp.data(), {s.batch, s.query_heads, s.queries}}}};
    if (has_table()) {
      made.source.blocks = {table.data(), {s.batch, blocks}};
    }
    if (splits > 1) {
      made.partials = {{totals.data(), {splits, s.batch, s.query_heads, s.queries, s.channels}},
                       {rows.data(), {splits, s.batch, s.query_heads, s.queries}}};
    }
    return made;
  }

  [[nodiscard]] double at(std::vector<bfloat16> const& of, std::int64_t sequence, std::int64_t head, std::int64_t token,
                          std::int64_t channel) const {
    std::int64_t const number = sequence * blocks + token / block_tokens;
    std::int64_t const block = has_table() ? table[static_cast<std::size_t>(number)] : number;
    std::int64_t const row = (block * s.key_heads + head) * block_tokens + token % block_tokens;
    return static_cast<double>(load(of[static_cast<std::size_t>(row * s.channels + channel)]));
  }

  /// How many results and log-sum-exps are not those of the formula in double.
  [[nodiscard]] int wrong() const {
    int count = 0;
    for (std::int64_t row = 0; row < static_cast<std::int64_t>(log_sum_exp.size()); ++row) {
      std::int64_t const query = row % s.queries;
      std::int64_t const head = row / s.queries % s.query_heads;
      std::int64_t const sequence = row / s.queries / s.query_heads;
      std::int64_t const key_head = head / (s.query_heads / s.key_heads);
      std::int64_t const length = lengths[static_cast<std::size_t>(sequence)];
      std::int64_t const seen = is_causal ? std::max<std::int64_t>(length - s.queries + query + 1, 0) : length;
      std::vector<double> sums(static_cast<std::size_t>(s.channels));
      double total = 0;
      for (std::int64_t key = 0; key < seen; ++key) {
        double score = 0;
        for (std::int64_t channel = 0; channel < s.channels; ++channel) {
          score += static_cast<double>(load(queries[static_cast<std::size_t>(row * s.channels + channel)])) *
                   at(keys, sequence, key_head, key, channel);
        }
        double const weight = std::exp(0.2 * score);
        total += weight;
        for (std::int64_t channel = 0; channel < s.channels; ++channel) {
          sums[static_cast<std::size_t>(channel)] += weight * at(values, sequence, key_head, key, channel);
        }
      }
      auto const found_lse = static_cast<double>(log_sum_exp[static_cast<std::size_t>(row)]);
      count += seen > 0 ? (std::fabs(found_lse - std::log(total)) < 1e-4 ? 0 : 1)
                        : (found_lse == -std::numeric_limits<double>::infinity() ? 0 : 1);
      for (std::int64_t channel = 0; channel < s.channels; ++channel) {
        double const expected = seen > 0 ? sums[static_cast<std::size_t>(channel)] / total : 0.0;
        auto const found = static_cast<double>(result[static_cast<std::size_t>(row * s.channels + channel)]);
        count += std::fabs(found - expected) < 1e-4 ? 0 : 1;
      }
    }
    return count;
  }
};

}  // namespace

TEST_CASE("attention of a few queries over keys as they are is that of the formula, whatever the extents",
          "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const keys : {1, 7, 127, 128, 129, 300}) {
    for (std::int64_t const splits : {1, 3}) {
      for (std::int64_t const queries : {1, 3}) {
        CAPTURE(keys, splits, queries);
        dense_decode_problem whole({2, 4, 2, queries, keys, 16}, keys, splits, true);
        run(exec, whole.call());
        CHECK(whole.wrong() == 0);
        dense_decode_problem paged({2, 3, 1, queries, keys, 8}, 16, splits, false);
        run(exec, paged.call());
        CHECK(paged.wrong() == 0);
      }
    }
  }
}

TEST_CASE("without sequences or queries nothing is attended to", "[host]") {
  CHECK(dense_decode_problem({0, 4, 2, 1, 9, 8}, 9, 1, true).call().is_empty());
  CHECK(dense_decode_problem({2, 4, 2, 0, 9, 8}, 9, 1, true).call().is_empty());
  CHECK_FALSE(dense_decode_problem({2, 4, 2, 1, 9, 8}, 9, 1, true).call().is_empty());
}

TEST_CASE("attention of a few queries keeps the rules for programs", "[host]") {
  dense_decode_problem problem({2, 2, 1, 2, 140, 8}, 64, 2, true);
  run(testing::adversary{.seed = 5}, problem.call());
  CHECK(problem.wrong() == 0);
}
