// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/loss/linear_loss.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>

#include "support/catch.hpp"
#include "support/loss_gradient_reference.hpp"
#include "support/loss_runs.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

template <class T, class Filter>
using small_loss =
    linear_loss<gemm_tile<T, shape<64, 64, 32 / static_cast<int>(sizeof(T))>>, lse_reducer<float>, Filter>;

/// The softmax minus the target distribution of each token with a label, in their order: rows of the vocabulary's size.
std::vector<double> reference_apart(loss_problem<float> const& p, std::vector<std::int64_t>& tokens) {
  loss_operands const operands(p);
  std::vector<double> apart;
  for (std::int64_t token = 0; token < p.tokens; ++token) {
    token_reference const r = reference_token(p, operands, token);
    if (r.label >= 0) {
      tokens.push_back(token);
      for (std::int64_t entry = 0; entry < p.vocabulary; ++entry) {
        apart.push_back(std::exp(r.logits[static_cast<std::size_t>(entry)] - r.log_sum_exp) -
                        (entry == r.label ? 1 : 0));
      }
    }
  }
  return apart;
}

struct filter_reference {
  gradient_reference gradient;
  std::vector<double> dropped;  ///< for each token, the sum of |S - q| left out of its hidden gradient
  std::int64_t kept = 0;        ///< blocks that are kept for the hidden states
  std::int64_t blocks = 0;
};

/// The paper's rule, in double: blocks of rows x columns of the tokens with a label. Sums, not means.
filter_reference reference_filtered(loss_problem<float> const& p, std::int64_t rows, std::int64_t columns,
                                    double hidden_threshold, double classifier_threshold) {
  filter_reference result{{std::vector<double>(p.hidden.size()), std::vector<double>(p.classifier.size()), {}},
                          std::vector<double>(static_cast<std::size_t>(p.tokens))};
  std::vector<std::int64_t> tokens;
  auto const apart = reference_apart(p, tokens);
  auto const count = static_cast<std::int64_t>(tokens.size());
  for (std::int64_t row = 0; row < count; row += rows) {
    for (std::int64_t column = 0; column < p.vocabulary; column += columns) {
      double largest = 0;
      auto const each = [&](auto const& visit) {
        for (std::int64_t i = row; i < std::min(row + rows, count); ++i) {
          for (std::int64_t j = column; j < std::min(column + columns, p.vocabulary); ++j) {
            visit(tokens[static_cast<std::size_t>(i)], j, apart[static_cast<std::size_t>(i * p.vocabulary + j)]);
          }
        }
      };
      each([&](std::int64_t, std::int64_t, double a) { largest = std::max(largest, std::fabs(a)); });
      result.kept += largest >= hidden_threshold ? 1 : 0;
      ++result.blocks;
      each([&](std::int64_t token, std::int64_t entry, double a) {
        if (largest < hidden_threshold) {
          result.dropped[static_cast<std::size_t>(token)] += std::fabs(a);
        }
        for (std::int64_t k = 0; k < p.channels; ++k) {
          auto const at_hidden = static_cast<std::size_t>(token * p.channels + k);
          auto const at_classifier = static_cast<std::size_t>(entry * p.channels + k);
          result.gradient.hidden[at_hidden] +=
              largest < hidden_threshold ? 0.0 : a * static_cast<double>(p.classifier[at_classifier]);
          result.gradient.classifier[at_classifier] +=
              largest < classifier_threshold ? 0.0 : a * static_cast<double>(p.hidden[at_hidden]);
        }
      });
    }
  }
  return result;
}

/// A problem whose logits have a spread that leaves most of the probability to few entries; labels are among the first
/// of these.
loss_problem<float> peaked_problem() {
  auto problem = make_loss_problem<float>(150, 330, 24);
  for (float& value : problem.classifier) {
    value *= 2.0F;
  }
  for (std::int64_t& label : problem.labels) {
    label = label < 0 ? label : label % 60;
  }
  problem.options.reduction = loss_reduction::sum;
  return problem;
}

template <class Filter>
void check_filter(float hidden_threshold, float classifier_threshold) {
  cpu const exec{.threads = 2};
  auto problem = peaked_problem();
  problem.options.hidden_threshold = hidden_threshold;
  problem.options.classifier_threshold = classifier_threshold;
  auto const found = run_gradients<small_loss<float, Filter>, float>(exec, problem);
  auto const expected =
      reference_filtered(problem, Filter::rows, Filter::columns, static_cast<double>(hidden_threshold),
                         static_cast<double>(classifier_threshold));
  CAPTURE(expected.kept, expected.blocks, hidden_threshold, classifier_threshold);
  CHECK((expected.kept > 0 && expected.kept < expected.blocks));
  CHECK(relative_distance(found.hidden, expected.gradient.hidden) < 1e-5);
  CHECK(relative_distance(found.classifier, expected.gradient.classifier) < 1e-5);
  CHECK(relative_distance(found.bias, reference_gradient(problem).bias) < 1e-5);  // never filtered
}

}  // namespace

TEST_CASE("what the filter leaves out are the blocks of the paper's rule, for each gradient its own",
          "[host][threads]") {
  check_filter<gradient_filter<12, 64, 64>>(0.98F, 0.9F);
  check_filter<gradient_filter<12, 64, 32>>(0.9F, 0.98F);
  check_filter<gradient_filter<12, 16, 8>>(0.0625F, 0.03125F);
  check_filter<gradient_filter<12, 8, 4>>(0.00390625F, 0.0F);
}

TEST_CASE("a filter's own threshold is two to the power of minus its bits", "[host]") {
  cpu const exec{.threads = 1};
  auto problem = peaked_problem();
  auto const by_filter = run_gradients<small_loss<float, gradient_filter<6, 16, 16>>, float>(exec, problem);
  problem.options.hidden_threshold = problem.options.classifier_threshold = 0.015625F;
  auto const by_option = run_gradients<small_loss<float, gradient_filter<12, 16, 16>>, float>(exec, problem);
  CHECK(by_filter.hidden == by_option.hidden);
  CHECK(by_filter.classifier == by_option.classifier);
}

TEST_CASE("a threshold of zero is the exact gradient, bit for bit, an infinite one leaves only the bias", "[host]") {
  cpu const exec{.threads = 1};
  auto problem = peaked_problem();
  using loss = small_loss<float, gradient_filter<12, 16, 16>>;
  auto const exact = run_gradients<small_loss<float, gradient_filter<0, 64, 64>>, float>(exec, problem);
  problem.options.hidden_threshold = problem.options.classifier_threshold = 0.0F;
  auto const zero = run_gradients<loss, float>(exec, problem);
  CHECK(zero.hidden == exact.hidden);
  CHECK(zero.classifier == exact.classifier);
  problem.options.hidden_threshold = problem.options.classifier_threshold = infinity;
  auto const nothing = run_gradients<loss, float>(exec, problem);
  CHECK(nothing.hidden == std::vector<float>(nothing.hidden.size()));
  CHECK(nothing.classifier == std::vector<float>(nothing.classifier.size()));
  CHECK(nothing.bias == exact.bias);
}

TEST_CASE("what a filter changes is within its bound", "[host]") {
  cpu const exec{.threads = 1};
  auto problem = peaked_problem();
  double const threshold = 0.0625;
  problem.options.hidden_threshold = problem.options.classifier_threshold = static_cast<float>(threshold);
  using loss = small_loss<float, gradient_filter<12, 16, 8>>;
  auto const found = run_gradients<loss, float>(exec, problem);
  auto const exact = reference_gradient(problem);
  auto const rule = reference_filtered(problem, 16, 8, threshold, threshold);
  auto const length = [](auto const& values, std::size_t row) {
    double squares = 0;
    for (std::size_t k = 0; k < 24; ++k) {
      squares += static_cast<double>(values[row * 24 + k]) * static_cast<double>(values[row * 24 + k]);
    }
    return std::sqrt(squares);
  };
  std::vector<double> apart(problem.hidden.size());
  double longest = 0;
  double hidden_lengths = 0;
  for (std::size_t j = 0; j < 330; ++j) {
    longest = std::max(longest, length(problem.classifier, j));
  }
  for (std::size_t i = 0; i < apart.size(); ++i) {
    apart[i] = static_cast<double>(found.hidden[i]) - exact.hidden[i];
  }
  for (std::size_t i = 0; i < 150; ++i) {
    CHECK(length(apart, i) <= rule.dropped[i] * longest + 1e-4);
    hidden_lengths += length(problem.hidden, i);
  }
  apart.resize(problem.classifier.size());
  for (std::size_t i = 0; i < apart.size(); ++i) {
    apart[i] = static_cast<double>(found.classifier[i]) - exact.classifier[i];
  }
  for (std::size_t j = 0; j < 330; ++j) {
    CHECK(length(apart, j) <= threshold * hidden_lengths + 1e-4);
  }
}
