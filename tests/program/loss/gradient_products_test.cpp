// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/loss/gradient_products.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

float some_number(std::uint64_t seed, std::int64_t i) {
  return testing::gauss{}.value(seed, static_cast<std::uint64_t>(i));
}

/// Rows of a list that has the tokens backwards, and their upstream gradients.
struct prepared_rows {
  std::int64_t tokens;
  std::vector<std::int64_t> order;
  std::vector<std::int64_t> count;
  std::vector<std::int32_t> labels;
  std::vector<float> weights;
  std::vector<float> class_weights{0.5F, -2.0F, 3.0F};
  std::vector<float> row_lse;
  std::vector<float> row_entropy;
  std::vector<float> upstream_loss;
  std::vector<float> upstream_lse;
  std::vector<float> upstream_entropy;
  std::vector<float> mean_scale{0.125F};
  std::vector<loss_row_gradient> rows;
  std::vector<float> largest;

  prepared_rows(std::int64_t all, std::int64_t listed)
      : tokens(all),
        count{listed},
        rows(static_cast<std::size_t>(all), {-9.0F, -9.0F, -9.0F, -9.0F, -9.0F}),
        largest(static_cast<std::size_t>((all + 255) / 256), -9.0F) {
    for (std::int64_t i = 0; i < all; ++i) {
      order.push_back(all - 1 - i);
      labels.push_back(static_cast<std::int32_t>(i % 3));
      weights.push_back(some_number(1, i));
      row_lse.push_back(some_number(2, i) + 5.0F);
      row_entropy.push_back(std::fabs(some_number(3, i)));
      upstream_loss.push_back(some_number(4, i));
      upstream_lse.push_back(some_number(5, i));
      upstream_entropy.push_back(some_number(6, i));
    }
  }
  template <class Executor>
  void prepare(Executor const& exec, bool is_reduced, bool has_weights, bool has_upstream) {
    loss_token_weights given;
    if (has_weights) {
      given = {weights, class_weights};
    }
    loss_upstream upstream;
    if (has_upstream) {
      upstream = {upstream_loss, upstream_lse, upstream_entropy};
    }
    prepare_loss_gradients const program{{order, {}, labels, count},
                                         given,
                                         row_lse,
                                         row_entropy,
                                         upstream,
                                         0.01F,
                                         is_reduced,
                                         mean_scale,
                                         rows,
                                         largest};
    exec.run(program, program.groups());
  }
  [[nodiscard]] double class_weight(std::int64_t row) const {
    return static_cast<double>(class_weights[static_cast<std::size_t>(row % 3)]);
  }
  /// How many rows have other factors than the formulas give, or were written beyond the list.
  [[nodiscard]] int wrong(bool is_reduced, bool has_weights, bool has_upstream) const {
    int found = 0;
    for (std::int64_t row = 0; row < tokens; ++row) {
      auto const at = static_cast<std::size_t>(row);
      loss_row_gradient const& own = rows[at];
      if (row >= count[0]) {
        found += own.by_loss == -9.0F && own.by_entropy == -9.0F ? 0 : 1;
        continue;
      }
      auto const token = static_cast<std::size_t>(order[at]);
      double const up = !has_upstream ? 1.0 : static_cast<double>(upstream_loss[is_reduced ? 0 : token]);
      double const g = (is_reduced ? 0.125 : 1.0) * up *
                       (has_weights ? static_cast<double>(weights[token]) * class_weight(row) : 1.0);
      double const h = (has_upstream ? static_cast<double>(upstream_lse[token]) : 0.0) +
                       2.0 * 0.01 * g * static_cast<double>(row_lse[at]);
      double const k = has_upstream ? static_cast<double>(upstream_entropy[token]) : 0.0;
      bool const is_right = own.log_sum_exp == row_lse[at] && own.entropy == row_entropy[at] &&
                            std::fabs(static_cast<double>(own.by_loss) - g) < 1e-6 * (1 + std::fabs(g)) &&
                            std::fabs(static_cast<double>(own.by_log_sum_exp) - h) < 1e-6 * (1 + std::fabs(g)) &&
                            static_cast<double>(own.by_entropy) == k;
      found += is_right ? 0 : 1;
    }
    return found;
  }
  /// How many groups of 256 rows do not have the largest bound of their rows.
  [[nodiscard]] int wrong_bounds() const {
    int found = 0;
    for (std::size_t group = 0; group < largest.size(); ++group) {
      double expected = 0;
      for (std::size_t row = 256 * group; row < 256 * group + 256 && static_cast<std::int64_t>(row) < count[0]; ++row) {
        auto const size = [](float value) { return std::fabs(static_cast<double>(value)); };
        double const bound = size(rows[row].by_loss) + size(rows[row].by_log_sum_exp) +
                             size(rows[row].by_entropy) * (0.375 + size(rows[row].entropy));
        expected = std::isfinite(bound) ? std::fmax(expected, bound) : expected;
      }
      found += std::fabs(static_cast<double>(largest[group]) - expected) <= 1e-6 * expected ? 0 : 1;
    }
    return found;
  }
};

}  // namespace

TEST_CASE("factors of rows are made of weights, upstream gradients and the z-loss", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const tokens : {0, 1, 7, 255, 256, 257, 600}) {
    for (int options = 0; options < 8; ++options) {
      CAPTURE(tokens, options);
      prepared_rows found(tokens, tokens * 2 / 3);
      bool const is_reduced = (options & 1) != 0;
      bool const has_weights = (options & 2) != 0;
      bool const has_upstream = (options & 4) != 0 && tokens > 0;
      found.prepare(exec, is_reduced, has_weights, has_upstream);
      CHECK(found.wrong(is_reduced, has_weights, has_upstream) == 0);
      CHECK(found.wrong_bounds() == 0);
    }
  }
  prepared_rows infinite(10, 10);
  infinite.row_lse[3] = std::numeric_limits<float>::infinity();
  infinite.prepare(exec, false, false, false);
  CHECK(std::isfinite(infinite.largest[0]));
}

TEST_CASE("factors are divided by one number that fills the range of halves, and sums are multiplied by it",
          "[host][threads]") {
  cpu const exec{.threads = 2};
  for (float const size : {1e-30F, 1.0F, 1e30F}) {
    CAPTURE(size);
    prepared_rows found(600, 500);
    for (float& weight : found.weights) {
      weight *= size;
    }
    found.prepare(exec, false, true, false);
    auto const before = found.rows;
    float bound = 0;
    for (float const one : found.largest) {
      bound = one > bound ? one : bound;
    }
    std::vector<float> late{3.0F};
    scale_loss_gradients const program{found.count, found.largest, 2.0F, found.rows, late};
    exec.run(program, program.groups());
    float const divisor = scale_loss_gradients::divisor_for(2.0F * bound);
    CHECK(static_cast<double>(2.0F * bound) / static_cast<double>(divisor) == Approx(32768.0));
    CHECK(late[0] == 3.0F * divisor);
    int wrong = 0;
    for (std::size_t row = 0; row < 600; ++row) {
      float const by = row < 500 ? divisor : 1.0F;
      wrong += found.rows[row].by_loss == before[row].by_loss / by ? 0 : 1;
      wrong += found.rows[row].by_log_sum_exp == before[row].by_log_sum_exp / by ? 0 : 1;
      wrong += found.rows[row].log_sum_exp == before[row].log_sum_exp ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
  CHECK(scale_loss_gradients::divisor_for(0.0F) == 1.0F);
  CHECK(std::isnormal(scale_loss_gradients::divisor_for(1e-45F)));
}

TEMPLATE_TEST_CASE("products of parts are added in fp32 and rounded once, after the last part", "[host]", float,
                   bfloat16, float16) {
  std::vector<TestType> target(4 * 3);
  std::vector<std::uint16_t> remains(12);
  std::vector<std::int64_t> order{2, -1, 0};
  float const scale = 0.5F;
  float total = 0;
  constexpr int parts = 21;
  for (int part = 0; part < parts; ++part) {
    accumulate_tokens<TestType> const add{
        {target.data(), {4, 3}}, {remains.data(), {4, 3}}, order, &scale, part == 0, part + 1 == parts, false};
    float const sum = part == 0 ? 1.0F + 0x1p-20F : 0x1p-10F;  // which 16 bits would lose
    add(0, 1, sum);
    add(1, 1, 100.0F);  // of no token
    add(2, 2, -sum);
    total = part == 0 ? sum : total + sum;
  }
  CHECK(to_bits(target[2 * 3 + 1]) == to_bits(store<TestType>(total * 0.5F)));
  CHECK(to_bits(target[0 * 3 + 2]) == to_bits(store<TestType>(-total * 0.5F)));
  CHECK(to_bits(target[1 * 3 + 1]) == 0);
}

TEST_CASE("gradients of tokens without a label are zeros, or NaN where the factor is", "[host][threads]") {
  for (float const scale : {2.0F, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<std::int64_t> const row_of{0, -1, 1, -1};
    std::vector<bfloat16> target(4 * 130, store<bfloat16>(7.0F));
    clear_unlabelled<bfloat16> const program{row_of, &scale, {target.data(), {4, 130}}, false};
    cpu{.threads = 2}.run(program, program.groups());
    int wrong = 0;
    for (std::size_t i = 0; i < target.size(); ++i) {
      float const found = load(target[i]);
      bool const is_cleared = i / 130 % 2 == 1;
      wrong += (!is_cleared ? found == 7.0F : std::isnan(scale) ? std::isnan(found) : found == 0.0F) ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("products of parts are added to an old gradient one by one, with the late factor", "[host]") {
  std::vector<std::int64_t> order{2, -1, 0};
  float const scale = 0.5F;
  std::vector<float> target;
  for (std::int64_t i = 0; i < 12; ++i) {
    target.push_back(some_number(31, i));
  }
  target[1] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> expected = target;
  for (int part = 0; part < 5; ++part) {
    accumulate_tokens<float> const add{{target.data(), {4, 3}}, {}, order, &scale, part == 0, part == 4, true};
    for (std::int64_t row = 0; row < 3; ++row) {
      for (std::int64_t channel = 0; channel < 3; ++channel) {
        float const sum = some_number(32 + static_cast<std::uint64_t>(part), row * 3 + channel);
        add(row, channel, sum);
        std::int64_t const token = order[static_cast<std::size_t>(row)];
        if (token >= 0) {
          expected[static_cast<std::size_t>(token * 3 + channel)] += 0.5F * sum;
        }
      }
    }
  }
  CHECK(std::isnan(target[1]));
  target[1] = expected[1] = 0.0F;
  CHECK(target == expected);
}

TEST_CASE("sums of the classifier are written with the late factor, or added to what is there", "[host]") {
  float const scale = 0.5F;
  std::vector<float> target{1.0F, 2.0F, 3.0F, 4.0F};
  write_entries<float>{{target.data(), {2, 2}}, &scale, false}(1, 0, 10.0F);
  CHECK(target == std::vector<float>{1.0F, 2.0F, 5.0F, 4.0F});
  write_entries<float> const add{{target.data(), {2, 2}}, &scale, true};
  add(1, 0, 10.0F);
  add(0, 1, -3.0F);
  CHECK(target == std::vector<float>{1.0F, 0.5F, 10.0F, 4.0F});
  std::vector<bfloat16> narrow(2, store<bfloat16>(-7.0F));
  write_entries<bfloat16>{{narrow.data(), {1, 2}}, &scale, false}(0, 1, 3.0F);
  CHECK((load(narrow[0]) == -7.0F && load(narrow[1]) == 1.5F));
}

TEST_CASE("old gradients of tokens without a label stay bit for bit, unless the factor is NaN", "[host][threads]") {
  for (float const scale : {2.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<std::int64_t> const row_of{0, -1, 1, -1};
    std::vector<float> target;
    for (std::int64_t i = 0; i < 4 * 130; ++i) {
      target.push_back(i % 7 == 0 ? -0.0F : some_number(41, i));
    }
    std::vector<float> const before = target;
    clear_unlabelled<float> const program{row_of, &scale, {target.data(), {4, 130}}, true};
    cpu{.threads = 2}.run(program, program.groups());
    int wrong = 0;
    for (std::size_t i = 0; i < target.size(); ++i) {
      bool const must_be_nan = i / 130 % 2 == 1 && std::isnan(scale);
      wrong += (must_be_nan ? std::isnan(target[i]) : to_bits(target[i]) == to_bits(before[i])) ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("columns of a gradient are summed in blocks, and blocks to the gradient of the bias", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const tokens : {1, 127, 128, 129, 300}) {
    for (std::int64_t const entries : {1, 255, 256, 257}) {
      CAPTURE(tokens, entries);
      std::vector<bfloat16> gradient;
      for (std::int64_t i = 0; i < tokens * entries; ++i) {
        gradient.push_back(store<bfloat16>(some_number(8, i)));
      }
      std::int64_t const blocks = (tokens + 127) / 128;
      std::vector<float> sums(static_cast<std::size_t>(blocks * entries), -777.0F);
      sum_gradient_columns<bfloat16> const columns{
          {gradient.data(), {tokens, entries}}, {sums.data(), {blocks, entries}}, {}};
      exec.run(columns, columns.groups());
      std::vector<float> bias(static_cast<std::size_t>(entries), -777.0F);
      float const scale = 0.25F;
      sum_bias_gradient<float> const all{{sums.data(), {blocks, entries}}, &scale, bias, false};
      exec.run(all, all.groups());
      std::vector<float> const written = bias;
      std::vector<float> added(bias.size());
      for (std::size_t i = 0; i < added.size(); ++i) {
        bias[i] = added[i] = some_number(9, static_cast<std::int64_t>(i));
        added[i] += written[i];
      }
      sum_bias_gradient<float> const more{{sums.data(), {blocks, entries}}, &scale, bias, true};
      exec.run(more, more.groups());
      CHECK(bias == added);
      int wrong = 0;
      for (std::int64_t entry = 0; entry < entries; ++entry) {
        double expected = 0;
        for (std::int64_t token = 0; token < tokens; ++token) {
          expected += 0.25 * static_cast<double>(load(gradient[static_cast<std::size_t>(token * entries + entry)]));
        }
        wrong += std::fabs(static_cast<double>(written[static_cast<std::size_t>(entry)]) - expected) <= 1e-4 ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("programs around products of gradients keep the rules for programs", "[host]") {
  testing::adversary const exec{.seed = 26};
  prepared_rows found(300, 290);
  found.prepare(exec, true, true, true);
  CHECK(found.wrong(true, true, true) == 0);
  CHECK(found.wrong_bounds() == 0);
  std::vector<float> late{1.0F};
  scale_loss_gradients const program{found.count, found.largest, 1.0F, found.rows, late};
  exec.run(program, program.groups());
  CHECK(late[0] != 1.0F);
}
