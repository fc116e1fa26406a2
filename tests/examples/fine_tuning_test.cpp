// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/mix_bits.hpp>
#include <tessera/testing/generators.hpp>

#include "../../examples/fine_tuning/adam.hpp"
#include "../../examples/fine_tuning/adapted_classifier.hpp"
#include "../../examples/fine_tuning/trainings.hpp"
#include "../../examples/support/distance.hpp"
#include "../../examples/support/loss_reference.hpp"
#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using namespace tessera_examples;
using tessera_test::contains;
using tessera_test::message_of;

namespace {

std::vector<bfloat16> gauss_rows(std::uint64_t seed, std::size_t count, double sigma) {
  std::vector<bfloat16> rows(count);
  for (std::size_t i = 0; i < count; ++i) {
    rows[i] = testing::sample<bfloat16>(testing::gauss{.sigma = sigma}, seed, i);
  }
  return rows;
}

/// Tokens N(0, 1), logits N(0, 9), any labels.
classifier_problem random_problem(std::size_t tokens, std::size_t vocabulary, std::size_t channels) {
  classifier_problem problem{tokens,
                             vocabulary,
                             channels,
                             gauss_rows(1, tokens * channels, 1),
                             gauss_rows(2, vocabulary * channels, 3 / std::sqrt(static_cast<double>(channels))),
                             {}};
  for (std::size_t token = 0; token < tokens; ++token) {
    problem.labels.push_back(static_cast<std::int32_t>(mix_bits(3, token) % vocabulary));
  }
  return problem;
}

double relative_error(std::vector<float> const& found, std::vector<double> const& expected) {
  distance apart;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    apart.add(static_cast<double>(found.at(i)), expected[i]);
  }
  return apart.relative();
}

/// The tokens of a range behind an adapter, in double but for the rounding of adapted states.
classifier_problem behind_adapter(classifier_problem const& data, token_range range,
                                  std::vector<float> const& adapter) {
  std::size_t const channels = data.channels;
  classifier_problem result{range.count, data.vocabulary, channels, {}, data.classifier, {}};
  for (std::size_t token = range.first; token < range.first + range.count; ++token) {
    for (std::size_t i = 0; i < channels; ++i) {
      double sum = static_cast<double>(load(data.hidden[token * channels + i]));
      for (std::size_t k = 0; k < channels; ++k) {
        sum += static_cast<double>(load(data.hidden[token * channels + k])) *
               static_cast<double>(adapter[i * channels + k]);
      }
      result.hidden.push_back(store<bfloat16>(static_cast<float>(sum)));
    }
    result.labels.push_back(data.labels[token]);
  }
  return result;
}

/// The gradient by the adapter from that by hidden states, in double.
std::vector<double> by_adapter(classifier_problem const& data, token_range range,
                               std::vector<double> const& by_states) {
  std::size_t const channels = data.channels;
  std::vector<double> result(channels * channels);
  for (std::size_t token = 0; token < range.count; ++token) {
    for (std::size_t i = 0; i < channels * channels; ++i) {
      result[i] += by_states[token * channels + i / channels] *
                   static_cast<double>(load(data.hidden[(range.first + token) * channels + i % channels]));
    }
  }
  return result;
}

template <class Loss>
void check_gradients(classifier_problem const& data, token_range range, filter_choice const& filter,
                     double largest_error) {
  adapted_classifier<Loss> model(data, filter, 1);
  for (std::size_t i = 0; i < model.weights().adapter.size(); ++i) {
    model.weights().adapter[i] = load(testing::sample<bfloat16>(testing::gauss{.sigma = 0.1}, 4, i));
  }
  auto const loss = static_cast<double>(model.differentiate(range));
  loss_reference const expected(behind_adapter(data, range, model.weights().adapter));
  CAPTURE(data.tokens, data.vocabulary, data.channels, filter.hidden, filter.classifier);
  CHECK(std::abs(loss - expected.loss) < 2e-3 * expected.loss);
  CHECK(static_cast<double>(model.loss(range)) == loss);
  CHECK(relative_error(model.gradients().classifier, expected.classifier) < largest_error);
  CHECK(relative_error(model.gradients().adapter, by_adapter(data, range, expected.hidden)) < largest_error);
}

}  // namespace

TEST_CASE("a classifier behind an adapter has the gradients of double precision", "[host]") {
  for (auto const& [tokens, vocabulary, channels] :
       std::vector<std::array<std::size_t, 3>>{{1, 1, 1}, {7, 33, 5}, {129, 257, 16}}) {
    classifier_problem const data = random_problem(tokens + 3, vocabulary, channels);
    if (vocabulary > 1) {
      check_gradients<exact_cross_entropy>(data, {3, tokens}, {}, 1e-2);
      check_gradients<cut_cross_entropy>(data, {3, tokens}, {1e-9F, 1e-9F}, 1e-2);  // which changes the order alone
      check_gradients<excerpt_loss>(data, {2, tokens}, {1e-3F, 1e-3F}, 5e-2);
    } else {
      adapted_classifier<exact_cross_entropy> model(data, {}, 1);
      CHECK(model.differentiate({0, tokens}) == 0.0F);
      CHECK(model.gradients().adapter == std::vector<float>(1));
      CHECK(model.gradients().classifier == std::vector<float>(1));
    }
  }
}

TEST_CASE("a filter in the order of use leaves rows of rare entries without gradient", "[host]") {
  classifier_problem data = random_problem(256, 1024, 16);
  for (std::size_t i = 0; i < data.classifier.size(); ++i) {  // every second row has a small logit only
    if (i / 16 % 2 == 1) {
      data.classifier[i] = store<bfloat16>(0.01F * load(data.classifier[i]));
    }
  }
  for (std::int32_t& label : data.labels) {
    label -= label % 2;
  }
  adapted_classifier<cut_cross_entropy> model(data, {1.0F / 64, 1.0F / 64}, 1);
  model.differentiate({0, 256});
  std::vector<float> const none(model.gradients().classifier.size());
  double const empty = part_of_equal_rows(model.gradients().classifier, none, 16);
  CHECK(empty >= 0.25);
  CHECK(empty < 1);
  adapted_classifier<cut_cross_entropy> full(data, {1.0F / 64, 0}, 1);
  full.differentiate({0, 256});
  CHECK(part_of_equal_rows(full.gradients().classifier, none, 16) == 0);
}

TEST_CASE("Adam moves weights as its equations say", "[host]") {
  std::vector<float> weights{1, -2, 0.5F};
  std::vector<double> expected(weights.begin(), weights.end());
  std::vector<double> means(3);
  std::vector<double> squares(3);
  adam optimizer(3);
  for (int step = 1; step <= 5; ++step) {
    std::vector<float> const gradient{0.1F * static_cast<float>(step), -1e-6F, 0};
    optimizer.step(0.01F, gradient, weights);
    for (std::size_t i = 0; i < 3; ++i) {
      auto const slope = static_cast<double>(gradient[i]);
      means[i] = 0.9 * means[i] + 0.1 * slope;
      squares[i] = 0.999 * squares[i] + 0.001 * slope * slope;
      expected[i] -=
          0.01 * (means[i] / (1 - std::pow(0.9, step))) / (std::sqrt(squares[i] / (1 - std::pow(0.999, step))) + 1e-8);
      CHECK(std::abs(static_cast<double>(weights[i]) - expected[i]) < 1e-5);
    }
  }
  CHECK(weights[2] == 0.5F);                        // no gradient moves nothing
  CHECK(std::abs(weights[1] + 2 - 0.05F) < 1e-3F);  // a small one moves as far as others
}

TEST_CASE("fine-tuning on real hidden states lowers the loss, filtered or not", "[host][slow]") {
  classifier_problem const data = read_classifier(std::string(TESSERA_TEST_DATA) + "/smollm2_classifier.safetensors");
  int steps = 0;
  std::vector<loss_curve> const curves =
      trainings<excerpt_loss>(data, excerpt_plan(), excerpt_threshold, [&](int, loss_curve const&) { ++steps; });
  CHECK(steps == 3 * excerpt_plan().steps);
  CHECK(message_of([&] { check_trainings(data, excerpt_plan(), curves, excerpt_bound); }).empty());
  CHECK(curves[0].training.back() < 0.7 * curves[0].training.front());
  // The filter must leave something out, and a part of the classifier where both gradients are filtered.
  CHECK(largest_difference(curves[1], curves[0]) > 1e-4);
  CHECK(largest_difference(curves[2], curves[0]) > 1e-4);
  CHECK(curves[0].rows_not_moved == 0);
  CHECK(curves[1].rows_not_moved > 0.1);
  CHECK(curves[2].rows_not_moved == 0);
  CHECK_THAT(message_of([&] { check_trainings(data, excerpt_plan(), curves, 1e-5); }),
             contains("from that with exact gradients"));
}

TEST_CASE("a training that raises losses is refused", "[host]") {
  classifier_problem const data = random_problem(10, 2, 1);
  training_plan const plan{.steps = 5, .batch = 4, .held_out = 2};
  loss_curve curve;
  curve.name = "some";
  curve.training = {3, 2, 2.5, 1, 2};  // two batches; the last steps of each lower the loss by 1
  CHECK(gain_of(curve, 2) == 1);
  CHECK(message_of([&] { check_trainings(data, plan, {curve}, 0); }).empty());
  curve.training = {3, 2, 2.5, 2.5, 3.25};
  CHECK(gain_of(curve, 2) == -0.375);
  CHECK_THAT(message_of([&] { check_trainings(data, plan, {curve}, 0); }), contains("must lower it"));
  curve.training = {3, std::nan(""), 2.5, std::nan(""), 2};
  CHECK_THAT(message_of([&] { check_trainings(data, plan, {curve}, 0); }), contains("must lower it"));
  curve.training = {3, 4};
  CHECK(gain_of(curve, 2) == 0);  // no batch came twice
}

TEST_CASE("batches follow each other in the text and never reach what is held out", "[host]") {
  classifier_problem const data = random_problem(23, 2, 1);
  training_plan const plan{.steps = 9, .batch = 5, .held_out = 7};
  CHECK(held_out_tokens(data, plan).first == 16);
  std::vector<std::size_t> firsts;
  for (int step = 0; step < 4; ++step) {
    firsts.push_back(batch_of(data, plan, step).first);
  }
  CHECK(firsts == std::vector<std::size_t>{0, 5, 10, 0});
  training_plan const too_large{.steps = 1, .batch = 17, .held_out = 7};
  CHECK_THAT(message_of([&] { held_out_tokens(data, too_large); }), contains("there are 23 tokens"));
}
