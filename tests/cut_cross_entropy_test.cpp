// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
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

TEST_CASE("cut cross-entropy is right on a real model's hidden states", "[host]") {
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
  std::int64_t const small = cut_cross_entropy::plan(exec, {8192, 32768, 2304}).bytes();
  std::int64_t const large = cut_cross_entropy::plan(exec, {8192, 256000, 2304}).bytes();
  CHECK(small == large);
  CHECK(large < 256 * 8192 + (2 << 20));
  CHECK(cut_cross_entropy::plan(exec, {std::int64_t{1} << 32, 256000, 2304}).bytes() > 0);
}

TEST_CASE("gradients on a real model's hidden states are right, and the paper's filter changes them little", "[host]") {
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
