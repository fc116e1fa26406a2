// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>

#include "support/catch.hpp"
#include "support/loss_gradient_reference.hpp"
#include "support/loss_runs.hpp"
#include "support/real_tensor.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// The hidden states of a model at some tokens of a text, with the rows of its classifier for the likeliest tokens.
loss_problem<bfloat16, std::int32_t> real_problem(std::int64_t tokens) {
  constexpr char const* file = "smollm2_classifier.safetensors";
  loss_problem<bfloat16, std::int32_t> problem{tokens, 512, 576, {}, {}, {}, {}, {}, {}};
  problem.hidden = real_tensor<bfloat16>(file, "hidden");
  problem.classifier = real_tensor<bfloat16>(file, "classifier_rows");
  problem.labels = real_tensor<std::int32_t>(file, "next_token_rows");
  problem.hidden.resize(static_cast<std::size_t>(tokens * 576));
  problem.labels.resize(static_cast<std::size_t>(tokens));
  return problem;
}

}  // namespace

TEST_CASE("cut cross-entropy is right on a real model's hidden states", "[host][threads]") {
  cpu const exec{.threads = 2};
  auto const problem = real_problem(100);
  auto const expected = reference_loss(problem);
  using loss = cut_cross_entropy_of<bfloat16, loss_statistics>;
  auto const found = run_loss<loss, loss_statistics>(exec, problem);
  CHECK(static_cast<double>(found.loss[0]) == Approx(expected.total).epsilon(1e-6));
  CHECK(static_cast<double>(found.accuracy[0]) == Approx(expected.correct / 100).epsilon(1e-6));
  double worst = 0;
  for (std::size_t i = 0; i < 100; ++i) {
    token_reference const& token = expected.tokens[i];
    worst = std::max(worst, std::fabs(static_cast<double>(found.log_sum_exp[i]) - token.log_sum_exp));
    worst = std::max(worst, std::fabs(static_cast<double>(found.log_probability[i]) - token.log_probability));
    worst = std::max(worst, std::fabs(static_cast<double>(found.entropy[i]) - token.entropy));
    CHECK(found.prediction[i] == token.prediction);
  }
  CHECK(worst < 5e-5);  // sums of 576 products, of about 25 in all, in fp32
  CHECK(run_loss<cut_cross_entropy, lse_reducer<float>>(exec, problem).loss[0] ==
        Approx(static_cast<double>(found.loss[0])).epsilon(1e-6));
}

TEST_CASE("the workspace of a loss does not grow with the vocabulary", "[host]") {
  cpu const exec;
  std::int64_t const small = cut_cross_entropy::plan_forward(exec, {8192, 32768, 2304}).bytes();
  std::int64_t const large = cut_cross_entropy::plan_forward(exec, {8192, 256000, 2304}).bytes();
  CHECK(small == large);
  CHECK(large < 256 * 8192 + (2 << 20));
  CHECK(cut_cross_entropy::plan_forward(exec, {std::int64_t{1} << 32, 256000, 2304}).bytes() > 0);
}

TEST_CASE("gradients on a real model's hidden states are right, and the paper's filter changes them little",
          "[host][threads][slow]") {
  cpu const exec{.threads = 2};
  auto problem = real_problem(100);
  auto const expected = reference_gradient(problem);
  auto const exact = run_gradients<exact_cross_entropy, bfloat16>(exec, problem);
  CHECK(worst_distance(exact, expected) < 4e-3);
  auto const filtered = run_gradients<cut_cross_entropy, bfloat16>(exec, problem);
  CHECK(worst_distance(filtered, expected) < 4e-3);  // every block of 128 x 128 has an entry over 2^-12 here
  using finely = linear_loss<loss_gemm_tile<bfloat16>, lse_reducer<float>, gradient_filter<12, 4, 4>>;
  auto const fine = run_gradients<finely, bfloat16>(exec, problem);
  CHECK(worst_distance(fine, expected) < 3e-2);
  CHECK(relative_distance(fine.hidden, expected.hidden) > relative_distance(exact.hidden, expected.hidden));
}

namespace {

/// All softmaxes are about 2^-13.3; labels are among the first entries. How many rows of the classifier have a gradient
/// of zero, and how far it is from the exact one.
template <class T>
struct flat_run {
  std::int64_t empty_rows = 0;
  double distance = 0;

  flat_run() {
    auto problem = make_loss_problem<typename gemm_operand<T>::value_type>(20, 10240, 16);
    for (auto& value : problem.classifier) {
      value = store<typename gemm_operand<T>::value_type>(0.02F * static_cast<float>(load(value)));
    }
    for (std::int64_t& label : problem.labels) {
      label = label < 0 ? label : label % 100;
    }
    auto const found = run_gradients<cut_cross_entropy_of<T>, float>(cpu{.threads = 2}, problem);
    distance = relative_distance(found.classifier, reference_gradient(problem).classifier);
    for (std::size_t row = 0; row < 10240; ++row) {
      auto const first = found.classifier.begin() + static_cast<std::ptrdiff_t>(row * 16);
      empty_rows += std::all_of(first, first + 16, [](float value) { return value == 0.0F; }) ? 1 : 0;
    }
  }
};

}  // namespace

TEST_CASE("the filter's threshold is that of the operands' type, as the authors have it", "[host][long][threads]") {
  static_assert(std::is_same_v<cut_cross_entropy, cut_cross_entropy_of<bfloat16>>);
  CHECK(flat_run<bfloat16>().empty_rows == 10240 - 128);
  flat_run<float16> const halves;
  CHECK((halves.empty_rows == 0 && halves.distance < 5e-4));
  flat_run<float> const floats;
  CHECK((floats.empty_rows == 0 && floats.distance < 1e-5));
  flat_run<tf32> const rounded;
  CHECK((rounded.empty_rows == 0 && rounded.distance < 5e-3));
}

TEST_CASE("a minus infinity is a probability of 0 without a softcap, and -softcap with one", "[host][threads]") {
  cpu const exec{.threads = 2};
  auto problem = make_loss_problem<float>(20, 200, 16, true);
  for (std::int64_t& label : problem.labels) {
    label = label < 0 ? label : label % 100;
  }
  for (std::size_t entry = 100; entry < 200; ++entry) {
    problem.bias[entry] = -infinity;
  }
  auto masked = problem;
  masked.vocabulary = 100;
  masked.classifier.resize(100 * 16);
  masked.bias.resize(100);
  using loss = exact_cross_entropy_of<float>;
  for (float const softcap : {0.0F, 3.0F}) {
    problem.options.softcap = masked.options.softcap = softcap;
    auto const found = run_gradients<loss, float>(exec, problem);
    CHECK(static_cast<double>(found.loss[0]) == Approx(reference_loss(problem).total).epsilon(1e-6));
    bool const is_masked = std::fabs(static_cast<double>(found.loss[0]) - reference_loss(masked).total) < 1e-5;
    CHECK(is_masked == (softcap == 0.0F));
    for (std::size_t entry = 100; entry < 200; ++entry) {
      CHECK(found.bias[entry] == 0.0F);
    }
  }
}
