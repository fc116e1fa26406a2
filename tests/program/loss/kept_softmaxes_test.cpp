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
constexpr std::int64_t channels = 27;
constexpr float log2_e = 1.442695041F;

/// Logits, and what a forward pass leaves of them. Every seventh token has no logit that counts. With an offset that is
/// not 0 a whole tile is masked. Tiles share the labels' logits as references, or each has its own.
struct softmax_problem {
  std::int64_t vocabulary;
  float cap;
  float inverse_temperature;
  bool shares;
  std::int64_t stride = divide_up(vocabulary, std::int64_t{128}) * 128;
  std::int64_t tiles = divide_up(vocabulary, std::int64_t{192});
  std::vector<float> logits;
  std::vector<bfloat16> values = std::vector<bfloat16>(static_cast<std::size_t>(tokens * stride));
  std::vector<float> references = std::vector<float>(static_cast<std::size_t>(tiles * tokens));
  std::vector<float> shared_references = std::vector<float>(tokens);
  std::vector<std::int32_t> is_uneven;
  std::vector<std::int32_t> state{kept_softmaxes<bfloat16>::there};
  std::vector<bfloat16> hidden;
  std::vector<bfloat16> scaled_hidden = std::vector<bfloat16>(static_cast<std::size_t>(tokens * channels));
  std::vector<loss_token_factors> factors;
  std::vector<std::int64_t> row_of;
  std::vector<float> targets;
  std::vector<std::uint8_t> blocks = std::vector<std::uint8_t>(static_cast<std::size_t>(2 * stride / 128));

  softmax_problem(std::int64_t entries, float softcap, float temperature, bool shares_references, float offset = 0)
      : vocabulary(entries),
        cap(softcap),
        inverse_temperature(1 / temperature),
        shares(shares_references),
        is_uneven(tokens, shares_references ? 0 : 1) {
    for (std::int64_t i = 0; i < tokens * channels; ++i) {
      bool const is_used = i / channels % 7 != 3;
      float const value = testing::gauss{}.value(9, static_cast<std::uint64_t>(i));
      hidden.push_back(store<bfloat16>(is_used ? value : NAN));
    }
    for (std::int64_t token = 0; token < tokens; ++token) {
      double sum = 0;
      for (std::int64_t entry = 0; entry < vocabulary; ++entry) {
        auto const at = static_cast<std::uint64_t>(token * vocabulary + entry);
        bool const is_masked = offset != 0 && entry / 192 == 1;
        logits.push_back(is_masked ? -INFINITY : offset + testing::gauss{3.0}.value(5, at));
        sum += std::exp(static_cast<double>(logits.back() - offset));
      }
      auto const number = static_cast<std::uint64_t>(token);
      bool const is_used = token % 7 != 3;
      auto const label = static_cast<std::int32_t>(testing::hash(6, number) % static_cast<std::uint64_t>(vocabulary));
      row_of.push_back(is_used ? static_cast<std::int64_t>(targets.size()) : -1);
      bool const has_finite = std::isfinite(logit(token, label));
      shared_references[static_cast<std::size_t>(token)] = has_finite ? std::rint(logit(token, label) * log2_e) : 0.0F;
      keep(token);
      factors.push_back({static_cast<float>(std::log(sum) + static_cast<double>(offset)),
                         testing::uniform{0.5, 1.0}.value(7, number), testing::uniform{0.5, 1.0}.value(8, number),
                         is_used ? label : -1, 0, 0, 0, 0});
      if (is_used) {
        targets.push_back(logit(token, label));
      } else {
        for (std::int64_t entry = 0; entry < vocabulary; ++entry) {
          values[static_cast<std::size_t>(token * stride + entry)] = store<bfloat16>(0.0F);
        }
      }
    }
  }

  float logit(std::int64_t token, std::int64_t entry) const {
    return logits[static_cast<std::size_t>(token * vocabulary + entry)];
  }
  void keep(std::int64_t token) {
    for (std::int64_t first = 0; first < vocabulary; first += 192) {
      std::int64_t const last = std::min(first + 192, vocabulary);
      float largest = -INFINITY;
      for (std::int64_t entry = first; entry < last; ++entry) {
        largest = std::fmax(largest, logit(token, entry) * log2_e);
      }
      float const shared = shared_references[static_cast<std::size_t>(token)];
      float const reference = shares ? shared : largest == -INFINITY ? 0.0F : largest;
      references[static_cast<std::size_t>(first / 192 * tokens + token)] = shares ? shared : largest;
      for (std::int64_t entry = first; entry < last; ++entry) {
        float const value = std::exp2(logit(token, entry) * log2_e - reference) * slope(logit(token, entry));
        values[static_cast<std::size_t>(token * stride + entry)] = store<bfloat16>(value);
      }
    }
  }
  /// The softcap's slope at a logit.
  float slope(float value) const {
    float const bent = cap > 0 ? value / (cap * inverse_temperature) : 0.0F;
    return 1 - bent * bent;
  }
  /// The gradient that run() has left.
  double found(std::int64_t token, std::int64_t entry) const {
    return static_cast<double>(load(values[static_cast<std::size_t>(token * stride + entry)])) *
           static_cast<double>(factors[static_cast<std::size_t>(token)].by_kept);
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
    prepare_softmaxes<bfloat16> const program{{{values.data(), {tokens, vocabulary}, {stride, 1}},
                                               {references.data(), {tiles, tokens}},
                                               shared_references,
                                               is_uneven,
                                               state},
                                              factors,
                                              row_of,
                                              targets,
                                              {{}, cap, inverse_temperature},
                                              {{hidden.data(), {tokens, channels}}},
                                              {{scaled_hidden.data(), {tokens, channels}}},
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
      for (bool const shares : {false, true}) {
        CAPTURE(vocabulary, cap, shares);
        softmax_problem problem(vocabulary, cap, cap > 0 ? 0.5F : 1.0F, shares);
        problem.run(cpu{.threads = 2});
        std::int64_t wrong = 0;
        for (std::int64_t token = 0; token < tokens; ++token) {
          for (std::int64_t entry = 0; entry < vocabulary; ++entry) {
            double const expected = problem.gradient(token, entry);
            bool const is_label = problem.factors[static_cast<std::size_t>(token)].label == entry;
            double const bound = (is_label ? 1.0 / 256 : 1.1 / 128) * std::fabs(expected) + 1e-6;
            wrong += std::fabs(problem.found(token, entry) - expected) <= bound ? 0 : 1;
          }
        }
        CHECK(wrong == 0);
        CHECK(std::count(problem.blocks.begin(), problem.blocks.end(), 1) ==
              2 * divide_up(vocabulary, std::int64_t{128}));
      }
    }
  }
}

TEST_CASE("hidden states get the factors of their tokens' softmaxes", "[host][threads]") {
  for (bool const shares : {false, true}) {
    softmax_problem problem(600, 0.0F, 1.0F, shares);
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
      softmax_problem problem(600, 0.0F, 1.0F, shares, offset);
      for (std::size_t token = 0; token < tokens && shares; ++token) {
        // Tokens with a masked label have no finite reference, and so forward() has found them uneven.
        problem.is_uneven[token] = problem.shared_references[token] == 0.0F ? 1 : 0;
      }
      problem.run(cpu{.threads = 2});
      std::int64_t wrong = 0;
      for (std::int64_t token = 0; token < tokens; ++token) {
        bool const is_skipped = problem.is_uneven[static_cast<std::size_t>(token)] == 1 && shares;
        for (std::int64_t entry = 0; entry < 600 && !is_skipped; ++entry) {
          double const expected = problem.gradient(token, entry);
          // Rounded twice, and half a unit of log-sum-exps of 50000 is 1/512.
          wrong += std::fabs(problem.found(token, entry) - expected) <= 1.5 / 128 * std::fabs(expected) + 1e-6 ? 0 : 1;
        }
      }
      CHECK(wrong == 0);
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
  softmax_problem problem(300, 0.0F, 1.0F, false);
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
