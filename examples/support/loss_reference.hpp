// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The mean loss of a classifier and its gradients in double precision, entry by entry.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/precision.hpp>

#include "classifier_problem.hpp"

namespace tessera_examples {

struct loss_reference {
  double loss = 0;
  std::vector<double> hidden;
  std::vector<double> classifier;

  explicit loss_reference(classifier_problem const& p) : hidden(p.hidden.size()), classifier(p.classifier.size()) {
    std::vector<double> const e = widened(p.hidden);
    std::vector<double> const c = widened(p.classifier);
    for (std::size_t token = 0; token < p.tokens; ++token) {
      add_token(p, token, &e[token * p.channels], c);
    }
  }

 private:
  static std::vector<double> widened(std::vector<tessera::bfloat16> const& values) {
    std::vector<double> result;
    for (tessera::bfloat16 const value : values) {
      result.push_back(static_cast<double>(tessera::load(value)));
    }
    return result;
  }

  void add_token(classifier_problem const& p, std::size_t token, double const* e, std::vector<double> const& c) {
    std::vector<double> logits(p.vocabulary);
    for (std::size_t entry = 0; entry < p.vocabulary; ++entry) {
      for (std::size_t k = 0; k < p.channels; ++k) {
        logits[entry] += e[k] * c[entry * p.channels + k];
      }
    }
    double const largest = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (double const logit : logits) {
      sum += std::exp(logit - largest);
    }
    auto const label = static_cast<std::size_t>(p.labels[token]);
    auto const count = static_cast<double>(p.tokens);
    loss += (largest - logits[label] + std::log(sum)) / count;
    for (std::size_t entry = 0; entry < p.vocabulary; ++entry) {
      double const by_logit = (std::exp(logits[entry] - largest) / sum - (entry == label ? 1 : 0)) / count;
      for (std::size_t k = 0; k < p.channels; ++k) {
        hidden[token * p.channels + k] += by_logit * c[entry * p.channels + k];
        classifier[entry * p.channels + k] += by_logit * e[k];
      }
    }
  }
};

}  // namespace tessera_examples
