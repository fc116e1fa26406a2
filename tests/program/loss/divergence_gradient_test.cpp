// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/map/reverse_kl.hpp>
#include <tessera/program/loss/divergence_gradient.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("factors of tokens are scaled so that the largest is 64, and the late scale undoes it", "[host]") {
  for (std::int64_t const tokens : {1, 7, 1023, 1025}) {
    for (bool const is_reduced : {false, true}) {
      std::vector<float> weights;
      std::vector<float> upstream;
      for (std::int64_t i = 0; i < tokens; ++i) {
        weights.push_back(i % 4 == 1 ? 0.0F : 0.25F + static_cast<float>(i % 9));
        upstream.push_back(testing::gauss{}.value(1, static_cast<std::uint64_t>(i)) * 1e-9F);
      }
      std::vector<float> const scale = {0.125F};
      std::vector<float> const verdicts = {1.0F, 1.0F};
      std::vector<float> factors(weights.size(), NAN);
      std::vector<float> late(1, NAN);
      prepare_divergence_gradients const prepare{weights, upstream, is_reduced, scale, verdicts, factors, late};
      cpu{.threads = 1}.run(prepare, 1);
      float largest = 0.0F;
      for (std::size_t i = 0; i < factors.size(); ++i) {
        float const expected = (is_reduced ? 0.125F * upstream[0] : upstream[i]) * weights[i];
        CHECK(std::fabs(factors[i] * late[0] - expected) <= 1e-6F * std::fabs(expected));
        largest = std::fmax(largest, std::fabs(factors[i]));
      }
      CHECK(std::fabs(largest - 64.0F) <= 1e-4F);
    }
  }
}

TEST_CASE("a wrong stamp makes the late scale NaN; factors of 0 leave it 1", "[host]") {
  std::vector<float> const scale = {1.0F};
  std::vector<float> const weights = {0.0F, 0.0F};
  for (int wrong = 0; wrong < 3; ++wrong) {
    std::vector<float> const verdicts = {wrong == 1 ? NAN : 1.0F, wrong == 2 ? NAN : 1.0F};
    std::vector<float> factors(2, NAN);
    std::vector<float> late(1, 7.0F);
    testing::adversary{.seed = 2}.run(prepare_divergence_gradients{weights, {}, true, scale, verdicts, factors, late},
                                      1);
    CHECK(factors[0] == 0.0F);
    CHECK(std::isnan(late[0]) == (wrong != 0));
    CHECK((wrong != 0 || late[0] == 1.0F));
  }
}

TEMPLATE_TEST_CASE("gradients by logits lie row after row, with zeros behind the last entry", "[host]", float,
                   bfloat16) {
  for (std::int64_t const tokens : {1, 7, 10}) {
    for (std::int64_t const entries : {1, 64, 2050}) {
      std::int64_t const padded_entries = align_up(entries, std::int64_t{64});
      std::vector<float> student;
      std::vector<float> teacher;
      for (std::int64_t i = 0; i < tokens * entries; ++i) {
        student.push_back(testing::gauss{}.value(1, static_cast<std::uint64_t>(i)));
        teacher.push_back(testing::gauss{}.value(2, static_cast<std::uint64_t>(i)));
      }
      std::vector<divergence_row> rows;
      std::vector<float> factors;
      for (std::int64_t i = 0; i < tokens; ++i) {
        rows.push_back({5.0F, 4.5F, 0.0F, 0.25F + static_cast<float>(i % 3)});
        factors.push_back(i == 5 ? 0.0F : static_cast<float>(i % 7) - 3.5F);
      }
      if (tokens > 5) {
        student[static_cast<std::size_t>(5 * entries)] = NAN;  // of a token with a factor of 0
      }
      auto const poison = store<TestType>(NAN);
      std::vector<TestType> gradient(static_cast<std::size_t>(tokens * padded_entries), poison);
      differentiate_divergence<reverse_kl, TestType> const program{
          {},   {{}, 6.0F, 0.5F}, {student.data(), {tokens, entries}},        {teacher.data(), {tokens, entries}},
          rows, factors,          {gradient.data(), {tokens, padded_entries}}};
      testing::adversary{.seed = 8}.run(program, program.groups());
      int wrong = 0;
      for (std::int64_t i = 0; i < tokens; ++i) {
        for (std::int64_t j = 0; j < padded_entries; ++j) {
          double expected = 0;
          if (j < entries && factors[static_cast<std::size_t>(i)] != 0.0F) {
            auto const at = static_cast<std::size_t>(i * entries + j);
            double const log_q = static_cast<double>(student[at]) - 5.0;
            double const log_p = static_cast<double>(teacher[at]) - 4.5;
            double const bent = static_cast<double>(student[at]) / (0.5 * 6.0);
            expected = static_cast<double>(factors[static_cast<std::size_t>(i)]) * std::exp(log_q) *
                       (log_q - log_p + 1 - static_cast<double>(rows[static_cast<std::size_t>(i)].slope_sum)) *
                       (1 - bent * bent) * 0.5;
          }
          double const allowed = (sizeof(TestType) == 2 ? 5e-3 : 3e-5) * (std::fabs(expected) + 1e-2);
          TestType const found = gradient[static_cast<std::size_t>(i * padded_entries + j)];
          wrong += std::fabs(static_cast<double>(load(found)) - expected) <= allowed ? 0 : 1;
        }
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("sums of products are scaled and added to what was there", "[host]") {
  float const scale = 0.5F;
  std::vector<float> const before = {1.0F, 2.0F, 3.0F, 4.0F};
  CHECK(scaled_and_added<false>{&scale, {}}(3.0F, 1, 1) == 1.5F);
  CHECK(scaled_and_added<false>{&scale, {before.data(), {2, 2}}}(3.0F, 1, 0) == 4.5F);
  float const nothing = 0.0F;
  CHECK(scaled_and_added<false>{&nothing, {}}(NAN, 1, 1) == 0.0F);
  CHECK(scaled_and_added<false>{&nothing, {before.data(), {2, 2}}}(infinity, 1, 0) == 3.0F);
}

TEST_CASE("the last factor of gradients that are kept has what the forward pass did not know", "[host]") {
  std::vector<float> const divisor = {3.0F};
  std::vector<float> const scale = {0.25F};
  std::vector<float> const upstream = {-8.0F};
  for (int wrong = 0; wrong < 3; ++wrong) {
    std::vector<float> const verdicts = {wrong == 1 ? NAN : 1.0F, wrong == 2 ? NAN : 1.0F};
    std::vector<float> late(1, 7.0F);
    testing::adversary{.seed = 2}.run(scale_kept_gradients{divisor, scale, upstream, verdicts, late}, 1);
    CHECK(std::isnan(late[0]) == (wrong != 0));
    CHECK((wrong != 0 || late[0] == -6.0F));
    cpu{.threads = 1}.run(scale_kept_gradients{divisor, scale, {}, verdicts, late}, 1);
    CHECK((wrong != 0 || late[0] == 0.75F));
  }
}
