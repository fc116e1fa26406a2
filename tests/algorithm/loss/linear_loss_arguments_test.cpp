// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tessera/algorithm/loss/linear_loss_arguments.hpp>
#include <tessera/reduce/arg_max.hpp>
#include <tessera/reduce/entropy.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/reduce/paired.hpp>
#include <tessera/reduce/sum.hpp>

#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using tessera_test::contains;
using tessera_test::message_of;

namespace {

using plain = detail::linear_loss_arguments<float, lse_reducer<float>>;
using whole = detail::linear_loss_arguments<
    float, paired_reducer<entropy_reducer<float>, paired_reducer<arg_max_reducer<float>, sum_reducer<float>>>>;

/// A map whose steepest slope is what a caller says.
struct map_of_slope {
  float slope_of;
  float operator()(float logit, std::int64_t, std::int64_t) const { return slope_of * logit; }
  float slope(float, std::int64_t, std::int64_t) const { return slope_of; }
  float steepest() const { return slope_of; }
};

/// Four tokens of eight channels, and a vocabulary of six entries.
struct arguments {
  static constexpr linear_loss_shape shape{4, 6, 8};
  std::vector<float> values = std::vector<float>(100);
  std::vector<std::int64_t> labels = std::vector<std::int64_t>(4);
  linear_loss_inputs<float, std::int64_t> in{{values.data(), {4, 8}}, {values.data(), {6, 8}}, labels};
  linear_loss_outputs out{one()};

  [[nodiscard]] array_view<float> one() { return list(1); }
  [[nodiscard]] array_view<float> list(std::int64_t count) { return {values.data(), count}; }
  [[nodiscard]] matrix_view<float> matrix(std::int64_t rows, std::int64_t columns) {
    return {values.data(), {rows, columns}};
  }

  [[nodiscard]] std::string of_inputs(linear_loss_options const& options = {}) const {
    return message_of([&] { plain::check_inputs("f", in, options); });
  }
  template <class Checks = plain>
  [[nodiscard]] static std::string of_options(linear_loss_options const& options) {
    return message_of([&] { Checks::check_options("f", shape, options); });
  }
  template <class Checks = plain>
  [[nodiscard]] std::string of_outputs(linear_loss_options const& options = {}) const {
    return message_of([&] { Checks::check_outputs(shape, options, out); });
  }
  template <class Checks = plain>
  [[nodiscard]] static std::string of_gradients(loss_upstream const& upstream,
                                                linear_loss_gradients<float> const& gradients,
                                                linear_loss_options const& options = {}) {
    return message_of([&] { Checks::check_gradients(shape, options, upstream, gradients); });
  }
};

std::string of_extents(std::int64_t tokens, std::int64_t vocabulary, std::int64_t channels) {
  return message_of([&] { plain::check_extents("f", {tokens, vocabulary, channels}); });
}

}  // namespace

TEST_CASE("extents of a loss are refused where they are negative, too large, or of an empty vocabulary", "[host]") {
  CHECK(of_extents(0, 1, 0) == "");
  CHECK(of_extents(std::int64_t{1} << 40, 0x7fffffff, 0x7fffffff) == "");
  CHECK(of_extents(-1, 6, 8) == "f: there are -1 tokens of 8 channels but neither must be negative");
  CHECK(of_extents(4, 6, -8) == "f: there are 4 tokens of -8 channels but neither must be negative");
  CHECK(of_extents((std::int64_t{1} << 40) + 1, 6, 8) ==
        "f: there are 1099511627777 tokens of 8 channels but at most 1099511627776 of 2147483647 can be");
  CHECK_THAT(of_extents(4, 6, 0x80000000), contains("4 tokens of 2147483648 channels but at most"));
  CHECK(of_extents(4, 0, 8) == "f: the vocabulary has 0 entries but must have 1 to 2147483647");
  CHECK(of_extents(4, 0x80000000, 8) == "f: the vocabulary has 2147483648 entries but must have 1 to 2147483647");
}

TEST_CASE("inputs of a loss are refused where their extents differ, or where they have no memory", "[host]") {
  arguments good;
  CHECK(good.of_inputs() == "");
  linear_loss_shape const found = plain::check_inputs("f", good.in, {});
  CHECK((found.tokens == 4 && found.vocabulary == 6 && found.channels == 8));
  auto const changed = [](auto change) {
    arguments made;
    change(made);
    return made.of_inputs();
  };
  CHECK(changed([](arguments& a) { a.in.classifier = a.matrix(6, 7); }) ==
        "f: the hidden states have 8 channels but the classifier has 7");
  CHECK(changed([](arguments& a) { a.in.classifier = a.matrix(0, 8); }) ==
        "f: the vocabulary has 0 entries but must have 1 to 2147483647");
  CHECK(changed([](arguments& a) { a.in.labels = {a.labels.data(), 3}; }) == "f: there are 3 labels but 4 tokens");
  CHECK(changed([](arguments& a) { a.in.bias = a.list(4); }) == "f: the bias has 4 values but the vocabulary has 6");
  CHECK(changed([](arguments& a) { a.in.weights = a.list(6); }) == "f: there are 6 weights but 4 tokens");
  CHECK(changed([](arguments& a) {
          a.in.hidden = {nullptr, {4, 8}};
        }) == "f: the hidden states have no memory but 32 elements");
  CHECK(changed([](arguments& a) {
          a.in.classifier = {nullptr, {6, 8}};
        }) == "f: the rows of the classifier have no memory but 48 elements");
  CHECK(changed([](arguments& a) { a.in.labels = {nullptr, 4}; }) == "f: the labels have no memory but 4 elements");
  CHECK(changed([](arguments& a) { a.in.bias = {nullptr, 6}; }) == "f: the biases have no memory but 6 elements");
  CHECK(changed([](arguments& a) { a.in.weights = {nullptr, 4}; }) == "f: the weights have no memory but 4 elements");
  CHECK(changed([](arguments& a) { a.in.class_weights = a.list(4); }) ==
        "f: there are 4 weights of classes but 6 entries of the vocabulary");
  CHECK(changed([](arguments& a) {
          a.in.class_weights = {nullptr, 6};
        }) == "f: the weights of classes have no memory but 6 elements");
  CHECK(good.of_inputs({.temperature = 0.0F}) == "f: the temperature is 0.000000 but must be positive and finite");
}

TEST_CASE("a map of logits is refused unless its steepest slope is positive and finite", "[host]") {
  arguments good;
  for (float const slope :
       {0.0F, -1.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    linear_loss_inputs<float, std::int64_t, map_of_slope> const in{
        good.in.hidden, good.in.classifier, good.in.labels, {}, {}, {slope}};
    CHECK_THAT(message_of([&] { plain::check_inputs("f", in, {}); }),
               contains("f: the map of logits has slopes up to ") &&
                   contains(" but its steepest() must be positive and finite"));
  }
}

TEST_CASE("options of a loss are refused where they are no numbers, or outside of their range", "[host]") {
  CHECK(arguments::of_options({}) == "");
  for (float linear_loss_options::*const option :
       {&linear_loss_options::softcap, &linear_loss_options::temperature, &linear_loss_options::smoothing,
        &linear_loss_options::z_factor, &linear_loss_options::hidden_threshold,
        &linear_loss_options::classifier_threshold}) {
    linear_loss_options options;
    options.*option = std::numeric_limits<float>::quiet_NaN();
    CHECK_THAT(arguments::of_options(options), contains("f: the ") && contains("nan"));
  }
  CHECK_THAT(arguments::of_options({.temperature = 1e-39F}), contains("whose reciprocal is not finite"));
  CHECK(arguments::of_options({.temperature = -1.0F}) ==
        "f: the temperature is -1.000000 but must be positive and finite");
  CHECK(arguments::of_options({.softcap = -1.0F}) == "f: the softcap is -1.000000 but must be finite and not negative");
  CHECK_THAT(arguments::of_options({.z_factor = std::numeric_limits<float>::infinity()}),
             contains("f: the factor of the z-loss is inf"));
  CHECK(arguments::of_options<whole>({.smoothing = 1.0F}) == "");
  CHECK(arguments::of_options<whole>({.smoothing = 1.5F}) == "f: the smoothing is 1.500000 but must be from 0 to 1");
  CHECK(arguments::of_options({.smoothing = 0.5F}) ==
        "f: the smoothing is 0.500000 but the reducer has no sum_reducer<float>");
  CHECK(arguments::of_options({.shift = -1}) ==
        "f: the shift is -1 and the length of sequences 0 but neither must be negative");
  CHECK(arguments::of_options({.sequence = 2}) == "");
  CHECK(arguments::of_options({.sequence = 3}) == "f: there are 4 tokens, which are no whole number of sequences of 3");
}

TEST_CASE("outputs of a loss are refused where their sizes differ, or where nothing computes them", "[host]") {
  arguments a;
  CHECK(a.of_outputs() == "");
  CHECK(a.of_outputs({.reduction = loss_reduction::none}) ==
        "linear_loss.forward: the loss has 1 elements but needs 4");
  a.out.loss = a.list(4);
  CHECK(a.of_outputs({.reduction = loss_reduction::none}) == "");
  CHECK(a.of_outputs() == "linear_loss.forward: the loss has 4 elements but needs 1");
  a.out = {.loss = a.one(), .log_sum_exp = a.one()};
  CHECK(a.of_outputs() == "linear_loss.forward: there are 1 log-sum-exps but 4 tokens");
  a.out = {.loss = a.one(), .log_sum_exp = {nullptr, 4}};
  CHECK(a.of_outputs() == "linear_loss.forward: the log-sum-exps have no memory but 4 elements");
  a.out = {.loss = {nullptr, 1}};
  CHECK(a.of_outputs() == "linear_loss.forward: the losses have no memory but 1 elements");
  a.out = {.loss = a.one(), .log_probability = {a.values.data(), {4}, {0}}};
  CHECK(a.of_outputs() == "linear_loss.forward: the log-probabilities have 4 elements with a stride of 0");
  std::vector<std::int32_t> predictions(4);
  a.out = {.loss = a.one(), .entropy = a.list(4), .prediction = predictions, .accuracy = a.one()};
  CHECK(a.of_outputs<whole>() == "");
  CHECK(a.of_outputs() == "linear_loss.forward: entropies are asked for but the reducer has no entropy_reducer<float>");
  a.out.entropy = {};
  CHECK(a.of_outputs() ==
        "linear_loss.forward: predictions are asked for but the reducer has no arg_max_reducer<float>");
  a.out.accuracy = a.list(2);
  CHECK(a.of_outputs<whole>() == "linear_loss.forward: there are 2 accuracies but 1 results");
}

TEST_CASE("gradients of a loss are refused where their extents differ, or where many have one address", "[host]") {
  arguments a;
  CHECK(a.of_gradients({}, {}) == "");
  CHECK(a.of_gradients({.loss = a.one()}, {a.matrix(4, 8), a.matrix(6, 8), a.list(6)}) == "");
  CHECK(a.of_gradients({}, {.hidden = a.matrix(4, 7)}) ==
        "linear_loss.backward: the gradient of the hidden states is 4 x 7 but must be 4 x 8");
  CHECK(a.of_gradients({}, {.hidden = {nullptr, {4, 8}}}) ==
        "linear_loss.backward: the gradients of hidden states have no memory but 32 elements");
  CHECK(a.of_gradients({}, {.classifier = {a.values.data(), {6, 8}, {0, 1}}}) ==
        "linear_loss.backward: dimension 0 of the gradient of the classifier has 6 elements with a stride of 0");
  CHECK(a.of_gradients({}, {.bias = a.list(5)}) ==
        "linear_loss.backward: there are 5 gradients of the bias but 6 entries of the vocabulary");
  CHECK(a.of_gradients({.loss = a.list(4)}, {}) ==
        "linear_loss.backward: there are 4 upstream gradients of losses but 1 losses");
  CHECK(a.of_gradients({.loss = a.list(4)}, {}, {.reduction = loss_reduction::none}) == "");
  CHECK(a.of_gradients({.log_sum_exp = a.one()}, {}) ==
        "linear_loss.backward: there are 1 upstream gradients of log-sum-exps but 4 tokens");
  CHECK(a.of_gradients({.entropy = a.list(4)}, {}) ==
        "linear_loss.backward: entropies have gradients but the reducer has no entropy_reducer<float>");
  CHECK(a.of_gradients<whole>({.entropy = a.list(4)}, {}) == "");
  CHECK(a.of_gradients({}, {}, {.workspace_budget = -1}) ==
        "linear_loss.backward: the budget of the workspace is -1 bytes but must not be negative");
}

TEST_CASE("gradients of fewer bits than fp32 do not accumulate", "[host]") {
  arguments a;
  CHECK(a.of_gradients({}, {a.matrix(4, 8), a.matrix(6, 8), a.list(6), true, true, true}) == "");
  CHECK(a.of_gradients({}, {.accumulate_hidden = true, .accumulate_bias = true}) == "");  // of none that are wanted
  CHECK(a.of_gradients({}, {.hidden = a.matrix(4, 7), .accumulate_hidden = true}) ==
        "linear_loss.backward: the gradient of the hidden states is 4 x 7 but must be 4 x 8");
  auto const message = [](auto const& out) {
    return message_of([&] { plain::check_gradients(arguments::shape, {}, {}, out); });
  };
  std::vector<bfloat16> values(48);
  using of_bf16 = linear_loss_gradients<bfloat16>;
  CHECK(message(of_bf16{.hidden = {values.data(), {4, 8}}, .bias = {values.data(), 6}}) == "");
  CHECK(message(of_bf16{.hidden = {values.data(), {4, 8}}, .accumulate_hidden = true}) ==
        "linear_loss.backward: accumulate_hidden is true, which needs gradients of 32 bits (float), but they have 16");
  CHECK(message(of_bf16{.classifier = {values.data(), {6, 8}}, .accumulate_classifier = true}) ==
        "linear_loss.backward: accumulate_classifier is true, which needs gradients of 32 bits (float), but they have "
        "16");
  CHECK(message(linear_loss_gradients<float16>{.accumulate_bias = true}) ==
        "linear_loss.backward: accumulate_bias is true, which needs gradients of 32 bits (float), but they have 16");
}
