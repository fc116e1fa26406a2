// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/loss/kept_softmaxes.hpp>
#include <tessera/testing/generators.hpp>

#include "program/loss/softmax_problem.hpp"
#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using namespace tessera_test::softmaxes;

TEST_CASE("softmaxes that are kept become gradients, those of labels as if they had not been rounded",
          "[host][slow][threads]") {
  for (std::int64_t const vocabulary : {1, 7, 8, 191, 192, 193, 8193, 20000}) {
    for (float const cap : {0.0F, 30.0F}) {
      for (bool const shares : {false, true}) {
        CAPTURE(vocabulary, cap, shares);
        softmax_problem<> problem(vocabulary, cap, cap > 0 ? 0.5F : 1.0F, shares);
        problem.run(cpu{.threads = 2});
        CHECK(count_wrong(problem, vocabulary, 1.0 / 256, 1.1 / 128) == 0);
        CHECK(std::count(problem.blocks.begin(), problem.blocks.end(), 1) ==
              2 * divide_up(vocabulary, std::int64_t{128}));
      }
    }
  }
}

TEST_CASE("hidden states get the factors of their tokens' softmaxes", "[host][threads]") {
  for (bool const shares : {false, true}) {
    softmax_problem<> problem(600, 0.0F, 1.0F, shares);
    problem.factors[5].by_softmax = 0;  // a token with the weight 0
    problem.factors[5].by_loss = 0;
    problem.factors[6].by_softmax = 0;  // a gradient of the label's logit alone
    problem.run(cpu{.threads = 2});
    std::int64_t wrong = 0;
    for (std::int64_t token = 0; token < tokens; ++token) {
      loss_token_factors const& own = problem.factors[static_cast<std::size_t>(token)];
      double const softmax = std::exp2(static_cast<double>(problem.shared_references[static_cast<std::size_t>(token)]) -
                                       static_cast<double>(own.log_sum_exp) * static_cast<double>(log2_e));
      bool const is_shared = shares && token != 6;
      double const factor = own.label < 0 ? 0 : is_shared ? static_cast<double>(own.by_softmax) * softmax : 1;
      // Where softmaxes share a reference the factor takes what rounding the label's value leaves.
      wrong += std::fabs(static_cast<double>(own.by_kept) - factor) <= factor / 250 ? 0 : 1;
      for (std::int64_t i = token * channels; i < (token + 1) * channels; ++i) {
        auto const at = static_cast<std::size_t>(i);
        double const by = static_cast<double>(own.by_kept);
        double const value = by > 0 ? static_cast<double>(load(problem.hidden[at])) * by : 0;
        double const scaled = static_cast<double>(load(problem.scaled_hidden[at]));
        wrong += std::fabs(scaled - value) <= std::fabs(value) / 200 ? 0 : 1;
      }
      wrong += std::fabs(problem.found(token, 17) - problem.gradient(token, 17)) <= 0.01 ? 0 : 1;
      if (own.label >= 0) {  // of which only the factor is rounded
        double const of_label = problem.gradient(token, own.label);
        bool const is_exact = shares && token != 6;
        double const bound = std::fabs(of_label) * (is_exact ? 1e-4 : 1.0 / 256);
        wrong += std::fabs(problem.found(token, own.label) - of_label) <= bound ? 0 : 1;
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("kept softmaxes become gradients wherever logits lie, and with masked entries", "[host][threads]") {
  for (float const offset : {-300.0F, 300.0F, -50000.0F, 50000.0F}) {
    for (bool const shares : {false, true}) {
      CAPTURE(offset, shares);
      softmax_problem<> problem(600, 0.0F, 1.0F, shares, offset);
      for (std::size_t token = 0; token < tokens && shares; ++token) {
        // Tokens with a masked label have no finite reference, and so forward() has found them uneven.
        problem.is_uneven[token] = problem.shared_references[token] == 0.0F ? 1 : 0;
      }
      problem.run(cpu{.threads = 2});
      // Rounded twice, and half a unit of log-sum-exps of 50000 is 1/512.
      CHECK(count_wrong(problem, 600, 1.5 / 128, 1.5 / 128, [&](std::int64_t token) {
              return problem.is_uneven[static_cast<std::size_t>(token)] == 1 && shares;
            }) == 0);
    }
  }
}

TEST_CASE("references are the logits of labels, or 0", "[host][threads]") {
  constexpr std::int64_t vocabulary = 11;
  auto const samples = [](std::int64_t count, std::uint64_t seed) {
    std::vector<bfloat16> values;
    for (std::int64_t i = 0; i < count; ++i) {
      values.push_back(testing::sample<bfloat16>(testing::gauss{}, seed, static_cast<std::uint64_t>(i)));
    }
    return values;
  };
  std::vector<bfloat16> const hidden = samples(tokens * channels, 21);
  std::vector<bfloat16> const classifier = samples(vocabulary * channels, 22);
  std::vector<bfloat16> bias = samples(vocabulary, 23);
  bias[4] = store<bfloat16>(-INFINITY);
  std::vector<std::int64_t> row_of(tokens);
  std::vector<std::int32_t> labels;
  for (std::int64_t token = 0; token < tokens; ++token) {
    bool const is_used = token % 7 != 3;
    row_of[static_cast<std::size_t>(token)] = is_used ? static_cast<std::int64_t>(labels.size()) : -1;
    if (is_used) {
      labels.push_back(static_cast<std::int32_t>(token % vocabulary));
    }
  }
  std::vector<float> references(tokens, NAN);
  std::vector<std::int32_t> is_uneven(tokens, -1);
  choose_references<bfloat16> const choose{{{}, row_of, labels, {}},
                                           {{hidden.data(), {tokens, channels}}},
                                           {{classifier.data(), {vocabulary, channels}}},
                                           {bias, 0.0F, 0.5F},
                                           references,
                                           is_uneven};
  cpu{.threads = 2}.run(choose, choose.groups());
  for (std::int64_t token = 0; token < tokens; ++token) {
    std::int64_t const label = token % vocabulary;
    double sum = static_cast<double>(load(bias[static_cast<std::size_t>(label)]));
    for (std::int64_t i = 0; i < channels; ++i) {
      sum += static_cast<double>(load(hidden[static_cast<std::size_t>(token * channels + i)])) *
             static_cast<double>(load(classifier[static_cast<std::size_t>(label * channels + i)]));
    }
    bool const is_zero = token % 7 == 3 || label == 4;
    double const expected = is_zero ? 0 : sum * 0.5 * static_cast<double>(log2_e);
    auto const found = static_cast<double>(references[static_cast<std::size_t>(token)]);
    CHECK(std::fabs(found - expected) <= 0.5001);
    CHECK(found == std::rint(found));
    CHECK(is_uneven[static_cast<std::size_t>(token)] == 0);
  }
}

TEST_CASE("softmaxes that are not there are reported and become NaN", "[host][threads]") {
  cpu const exec{.threads = 2};
  softmax_problem<> problem(300, 0.0F, 1.0F, false);
  problem.state[0] = kept_softmaxes<bfloat16>::none;
  problem.run(exec);
  CHECK_THROWS_AS(exec.wait(), value_error);
  problem.run(exec);
  std::string const message = tessera_test::message_of([&] { exec.wait(); });
  CHECK(message.find("an earlier backward() has used up the softmaxes that forward() kept") != std::string::npos);
  for (std::size_t i = 0; i < 300; ++i) {
    CHECK(std::isnan(load(problem.values[i])));
  }
  exec.run(set_softmaxes{problem.state, kept_softmaxes<bfloat16>::there}, 1);
  problem.run(exec);
  CHECK_NOTHROW(exec.wait());
}
