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

#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;

namespace {

constexpr std::int64_t tokens = 130;

/// Logits, and what a forward pass leaves of them. Every seventh token has no logit that counts. With an offset that is
/// not 0 a whole tile is masked.
struct softmax_problem {
  std::int64_t vocabulary;
  float cap;
  float inverse_temperature;
  std::int64_t stride = divide_up(vocabulary, std::int64_t{128}) * 128;
  std::int64_t tiles = divide_up(vocabulary, std::int64_t{192});
  std::vector<float> logits;
  std::vector<bfloat16> values = std::vector<bfloat16>(static_cast<std::size_t>(tokens * stride));
  std::vector<float> references = std::vector<float>(static_cast<std::size_t>(tiles * tokens));
  std::vector<std::int32_t> state{kept_softmaxes<bfloat16>::there};
  std::vector<loss_token_factors> factors;
  std::vector<std::int64_t> row_of;
  std::vector<float> targets;
  std::vector<std::uint8_t> blocks = std::vector<std::uint8_t>(static_cast<std::size_t>(2 * stride / 128));

  softmax_problem(std::int64_t entries, float softcap, float temperature, float offset = 0)
      : vocabulary(entries), cap(softcap), inverse_temperature(1 / temperature) {
    for (std::int64_t token = 0; token < tokens; ++token) {
      double sum = 0;
      for (std::int64_t entry = 0; entry < vocabulary; ++entry) {
        auto const at = static_cast<std::uint64_t>(token * vocabulary + entry);
        bool const is_masked = offset != 0 && entry / 192 == 1;
        logits.push_back(is_masked ? -INFINITY : offset + testing::gauss{3.0}.value(5, at));
        sum += std::exp(static_cast<double>(logits.back() - offset));
      }
      keep(token);
      auto const number = static_cast<std::uint64_t>(token);
      bool const is_used = token % 7 != 3;
      auto const label = static_cast<std::int32_t>(testing::hash(6, number) % static_cast<std::uint64_t>(vocabulary));
      row_of.push_back(is_used ? static_cast<std::int64_t>(targets.size()) : -1);
      factors.push_back({static_cast<float>(std::log(sum) + static_cast<double>(offset)),
                         testing::uniform{0.5, 1.0}.value(7, number),
                         testing::uniform{0.5, 1.0}.value(8, number),
                         is_used ? label : -1,
                         0,
                         0,
                         {}});
      if (is_used) {
        targets.push_back(logit(token, label));
      } else {
        values[static_cast<std::size_t>(token * stride)] = store<bfloat16>(NAN);
      }
    }
  }

  float logit(std::int64_t token, std::int64_t entry) const {
    return logits[static_cast<std::size_t>(token * vocabulary + entry)];
  }
  void keep(std::int64_t token) {
    constexpr float log2_e = 1.442695041F;
    for (std::int64_t first = 0; first < vocabulary; first += 192) {
      std::int64_t const last = std::min(first + 192, vocabulary);
      float largest = -INFINITY;
      for (std::int64_t entry = first; entry < last; ++entry) {
        largest = std::fmax(largest, logit(token, entry) * log2_e);
      }
      references[static_cast<std::size_t>(first / 192 * tokens + token)] = largest;
      for (std::int64_t entry = first; entry < last; ++entry) {
        values[static_cast<std::size_t>(token * stride + entry)] =
            store<bfloat16>(std::exp2(logit(token, entry) * log2_e - (largest == -INFINITY ? 0.0F : largest)));
      }
    }
  }
  double gradient(std::int64_t token, std::int64_t entry) const {
    loss_token_factors const& own = factors[static_cast<std::size_t>(token)];
    double const value = logit(token, entry);
    double const bent = cap > 0 ? value / (static_cast<double>(cap) * static_cast<double>(inverse_temperature)) : 0;
    double const softmax = std::exp(value - static_cast<double>(own.log_sum_exp));
    double const by_label = own.label == entry ? static_cast<double>(own.by_loss) : 0;
    return own.label < 0 ? 0
                         : (static_cast<double>(own.by_softmax) * softmax - by_label) * (1 - bent * bent) *
                               static_cast<double>(inverse_temperature);
  }

  void run(cpu const& exec) {
    matrix_view<std::uint8_t> const kept{blocks.data(), {2, stride / 128}};
    differentiate_softmaxes<bfloat16> const program{
        {{values.data(), {tokens, vocabulary}, {stride, 1}}, {references.data(), {tiles, tokens}}, state},
        factors,
        row_of,
        targets,
        {{}, cap, inverse_temperature},
        kept,
        kept,
        exec.status()};
    exec.run(program, program.groups());
  }
};

}  // namespace

TEST_CASE("softmaxes that are kept become gradients, those of labels as if they had not been rounded",
          "[host][slow][threads]") {
  for (std::int64_t const vocabulary : {1, 7, 8, 191, 192, 193, 8193, 20000}) {
    for (float const cap : {0.0F, 30.0F}) {
      CAPTURE(vocabulary, cap);
      softmax_problem problem(vocabulary, cap, cap > 0 ? 0.5F : 1.0F);
      problem.run(cpu{.threads = 2});
      std::int64_t wrong = 0;
      for (std::int64_t token = 0; token < tokens; ++token) {
        for (std::int64_t entry = 0; entry < vocabulary; ++entry) {
          auto const found =
              static_cast<double>(load(problem.values[static_cast<std::size_t>(token * problem.stride + entry)]));
          double const expected = problem.gradient(token, entry);
          bool const is_label = problem.factors[static_cast<std::size_t>(token)].label == entry;
          double const bound = (is_label ? 1.0 / 256 : 1.1 / 128) * std::fabs(expected) + 1e-6;
          wrong += std::fabs(found - expected) <= bound ? 0 : 1;
        }
      }
      CHECK(wrong == 0);
      CHECK(std::count(problem.blocks.begin(), problem.blocks.end(), 1) ==
            2 * divide_up(vocabulary, std::int64_t{128}));
    }
  }
}

TEST_CASE("kept softmaxes become gradients wherever logits lie, and with masked entries", "[host][threads]") {
  for (float const offset : {-300.0F, 300.0F, -50000.0F, 50000.0F}) {
    CAPTURE(offset);
    softmax_problem problem(600, 0.0F, 1.0F, offset);
    problem.run(cpu{.threads = 2});
    std::int64_t wrong = 0;
    for (std::int64_t token = 0; token < tokens; ++token) {
      for (std::int64_t entry = 0; entry < 600; ++entry) {
        auto const found =
            static_cast<double>(load(problem.values[static_cast<std::size_t>(token * problem.stride + entry)]));
        double const expected = problem.gradient(token, entry);
        // Rounded twice, and half a unit of log-sum-exps of 50000 is 1/512.
        wrong += std::fabs(found - expected) <= 1.5 / 128 * std::fabs(expected) + 1e-6 ? 0 : 1;
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("softmaxes that are not there are reported and become NaN", "[host][threads]") {
  cpu const exec{.threads = 2};
  softmax_problem problem(300, 0.0F, 1.0F);
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
