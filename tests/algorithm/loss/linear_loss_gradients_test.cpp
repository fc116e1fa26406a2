// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <tessera/algorithm/loss/linear_loss.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"
#include "support/loss_gradient_reference.hpp"
#include "support/loss_runs.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

using all_statistics = paired_reducer<entropy_reducer<float>, sum_reducer<float>>;
template <class T, class Filter = gradient_filter<0, 64, 64>>
using small_loss = linear_loss<gemm_tile<T, shape<64, 64, 32 / static_cast<int>(sizeof(T))>>, all_statistics, Filter>;

upstream_samples make_upstream(std::int64_t tokens, loss_reduction reduction) {
  upstream_samples upstream{operand_samples<float>(reduction == loss_reduction::none ? tokens : 1, 11),
                            operand_samples<float>(tokens, 12), operand_samples<float>(tokens, 13)};
  if (reduction == loss_reduction::none && tokens > 2) {
    upstream.loss[2] = 0.0F;
  }
  return upstream;
}

template <class T, class Gradient, class Executor>
void check_gradients(Executor const& exec, loss_problem<T> const& p, double tolerance,
                     upstream_samples const& upstream = {}) {
  CAPTURE(p.tokens, p.vocabulary, p.channels);
  auto const found = run_gradients<small_loss<T>, Gradient>(exec, p, upstream);
  CHECK(worst_distance(found, reference_gradient(p, upstream)) <= tolerance);
}

/// Everything that an option can turn on.
template <class T>
loss_problem<T> full_problem(std::int64_t tokens, std::int64_t vocabulary, std::int64_t channels) {
  auto problem = make_loss_problem<T>(tokens, vocabulary, channels, true);
  problem.options.softcap = 4.0F;
  problem.options.temperature = 0.8F;
  problem.options.smoothing = 0.1F;
  problem.options.z_factor = 1e-2F;
  problem.options.shift = 1;
  return problem;
}

}  // namespace

TEST_CASE("the reference's gradients are slopes of the reference's loss", "[host]") {
  for (loss_reduction const reduction : {loss_reduction::none, loss_reduction::mean}) {
    auto problem = full_problem<float>(5, 17, 9);
    problem.options.reduction = reduction;
    auto const upstream = make_upstream(5, reduction);
    auto const expected = reference_gradient(problem, upstream);
    auto const check_slopes = [&](std::vector<float>& values, std::vector<double> const& slopes) {
      for (std::size_t i = 0; i < values.size(); i += 3) {
        float const value = values[i];
        values[i] = value + 0.0078125F;
        double const above = static_cast<double>(values[i]);
        double const high = reference_objective(problem, upstream);
        values[i] = value - 0.0078125F;
        double const slope = (high - reference_objective(problem, upstream)) / (above - static_cast<double>(values[i]));
        values[i] = value;
        CHECK(std::fabs(slope - slopes[i]) <= 2e-3 * (1 + std::fabs(slopes[i])));
      }
    };
    check_slopes(problem.hidden, expected.hidden);
    check_slopes(problem.classifier, expected.classifier);
    check_slopes(problem.bias, expected.bias);
  }
}

TEST_CASE("gradients are right, whatever the extents", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (std::int64_t const tokens : {0, 1, 63, 64, 65, 130}) {
    check_gradients<float, float>(exec, make_loss_problem<float>(tokens, 37, 33), 3e-6);
  }
  for (std::int64_t const vocabulary : {2, 31, 63, 64, 65, 200}) {
    check_gradients<float, float>(exec, make_loss_problem<float>(5, vocabulary, 16), 3e-6);
  }
  for (std::int64_t const channels : {0, 1, 7, 33, 123}) {
    check_gradients<float, float>(exec, make_loss_problem<float>(7, 70, channels, true), 3e-6);
  }
  check_gradients<float, float>(exec, make_loss_problem<float>(7, 1, 5), 1e-6);  // all zeros
}

TEST_CASE("without channels logits are the bias's, and gradients of the others have no elements", "[host]") {
  cpu const exec{.threads = 1};
  for (std::int64_t const tokens : {0, 1, 70}) {
    auto const problem = make_loss_problem<float>(tokens, 90, 0, true);
    using loss = small_loss<float>;
    auto const plan = loss::plan_backward<float>(exec, {tokens, 90, 0}, problem.options);
    buffer<std::byte> memory(exec, plan.bytes());
    workspace const space(plan, memory);
    std::vector<float> value(1);
    std::vector<float> untouched(1, 7.0F);
    std::vector<float> bias(90, 7.0F);
    loss::forward(exec, problem.inputs(), problem.options, {.loss = value}, space);
    linear_loss_gradients<float> const out{{untouched.data(), {tokens, 0}}, {untouched.data(), {90, 0}}, bias};
    loss::backward(exec, problem.inputs(), problem.options, {}, out, space);
    exec.wait();
    CHECK(static_cast<double>(value[0]) == Approx(reference_loss(problem).total).epsilon(1e-6));
    CHECK(relative_distance(bias, reference_gradient(problem).bias) < 3e-6);
    CHECK(untouched[0] == 7.0F);
  }
}

TEST_CASE("without tokens a loss is 0, and gradients of the classifier and of the bias are", "[host]") {
  cpu const exec{.threads = 1};
  for (loss_reduction const reduction : {loss_reduction::none, loss_reduction::sum, loss_reduction::mean}) {
    auto problem = make_loss_problem<bfloat16>(0, 90, 16, true);
    problem.options.reduction = reduction;
    auto const found = run_gradients<small_loss<bfloat16>, float>(exec, problem);
    exec.wait();
    CHECK(found.loss == std::vector<float>(reduction == loss_reduction::none ? 0 : 1));
    CHECK(found.classifier == std::vector<float>(90 * 16));
    CHECK(found.bias == std::vector<float>(90));
  }
}

TEST_CASE("gradients of every option and of every output are right", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (loss_reduction const reduction : {loss_reduction::none, loss_reduction::sum, loss_reduction::mean}) {
    auto problem = full_problem<float>(70, 101, 45);
    problem.options.reduction = reduction;
    check_gradients<float, float>(exec, problem, 3e-6);
    check_gradients<float, float>(exec, problem, 3e-6, make_upstream(70, reduction));
    check_gradients<float, float>(exec, problem, 3e-6, {make_upstream(70, reduction).loss, {}, {}});
  }
}

TEST_CASE("class weights multiply the gradients of tokens by their labels", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (loss_reduction const reduction : {loss_reduction::none, loss_reduction::sum, loss_reduction::mean}) {
    auto problem = full_problem<float>(70, 31, 24);
    problem.options.reduction = reduction;
    weigh_classes(problem);
    check_gradients<float, float>(exec, problem, 3e-6);
    check_gradients<float, float>(exec, problem, 3e-6, make_upstream(70, reduction));
    check_gradients<float, float>(testing::adversary{.seed = 6}, problem, 3e-6);
    problem.weights = std::vector<float>();
    check_gradients<float, float>(exec, problem, 3e-6);
  }
}

TEST_CASE("gradients of 16-bit inputs are rounded once on the way and once at the end", "[host][threads][slow]") {
  cpu const exec{.threads = 2};
  check_gradients<bfloat16, bfloat16>(exec, full_problem<bfloat16>(70, 300, 64), 4e-3);
  check_gradients<bfloat16, float>(exec, full_problem<bfloat16>(70, 300, 64), 3e-3);
  check_gradients<float16, float>(exec, full_problem<float16>(70, 300, 64), 5e-4);
  auto problem = full_problem<float16>(70, 300, 64);
  problem.weights.assign(70, 1.0F);
  check_gradients<float16, float>(exec, problem, 5e-4, {{1e-4F}, {}, {}});  // would vanish if rounded as it is
}

TEST_CASE("gradients do not depend on how the vocabulary is cut, on threads or on the order of tiles",
          "[host][threads]") {
  auto problem = full_problem<bfloat16>(70, 400, 40);
  using loss = small_loss<bfloat16>;
  cpu const exec{.threads = 2};
  linear_loss_shape const shape{70, 400, 40};
  auto const whole_plan = loss::plan_backward<bfloat16>(exec, shape, problem.options);
  auto const whole = run_gradients<loss, bfloat16>(exec, problem);
  auto const other = run_gradients<loss, bfloat16>(testing::adversary{.seed = 3}, problem);
  auto const same = [](auto const& a, auto const& b) {
    return std::memcmp(a.hidden.data(), b.hidden.data(), a.hidden.size() * 2) == 0 &&
           std::memcmp(a.classifier.data(), b.classifier.data(), a.classifier.size() * 2) == 0 &&
           std::memcmp(a.bias.data(), b.bias.data(), a.bias.size() * 2) == 0;
  };
  CHECK(same(whole, other));
  problem.options.workspace_budget = whole_plan.bytes() - 1;
  CHECK(loss::plan_backward<bfloat16>(exec, shape, problem.options).bytes() < whole_plan.bytes());
  auto const cut = run_gradients<loss, bfloat16>(exec, problem);
  CHECK(same(cut, run_gradients<loss, bfloat16>(cpu{.threads = 1}, problem)));
  CHECK(worst_distance(cut, reference_gradient(problem)) < 4e-3);
  CHECK(worst_distance(run_gradients<loss, float>(exec, problem), reference_gradient(problem)) < 3e-3);
  problem.options.workspace_budget = 1000;
  CHECK_THROWS_AS((loss::plan_backward<bfloat16>(exec, shape, problem.options)), value_error);
}

TEST_CASE("without a budget a backward pass of usual size needs at most 160 MiB", "[host]") {
  cpu const exec;
  constexpr std::int64_t most = std::int64_t{160} << 20;
  using loss = exact_cross_entropy;
  for (linear_loss_shape const& shape :
       {linear_loss_shape{8192, 256000, 2304}, linear_loss_shape{8192, 128256, 4096}}) {
    std::int64_t const bytes = loss::plan_backward(exec, shape).bytes();
    CHECK((bytes <= most && bytes > most / 2));
    linear_loss_options more;
    more.workspace_budget = std::int64_t{1} << 30;
    std::int64_t const more_bytes = loss::plan_backward(exec, shape, more).bytes();
    CHECK((more_bytes <= more.workspace_budget && more_bytes > bytes));
  }
  CHECK(loss::plan_backward(exec, {1 << 20, 256000, 4096}).bytes() > most);
}

TEST_CASE("tokens that do not count have gradients of zero and harm no others", "[host]") {
  cpu const exec{.threads = 1};
  auto problem = make_loss_problem<float>(20, 50, 16, true);
  problem.labels[3] = problem.labels[15] = -100;
  auto const expected = reference_gradient(problem);
  problem.hidden[3 * 16 + 2] = std::numeric_limits<float>::quiet_NaN();
  CHECK(worst_distance(run_gradients<small_loss<float>, float>(exec, problem), expected) < 3e-6);
  problem.labels[15] = 50;  // reported, and otherwise as if ignored, but for the loss
  auto const found = run_gradients<small_loss<float>, float>(exec, problem);
  CHECK_THROWS_AS(exec.wait(), value_error);
  CHECK(std::isnan(found.loss[0]));
  CHECK(worst_distance(found, expected) < 3e-6);
  problem.labels.assign(20, -100);
  auto const nothing = run_gradients<small_loss<float>, float>(exec, problem);
  CHECK(nothing.loss[0] == 0.0F);
  CHECK(worst_distance(nothing, {std::vector<double>(320), std::vector<double>(800), std::vector<double>(50)}) == 0);
}

TEST_CASE("a NaN or an infinity in a token reaches its own gradient and all of the classifier's, filtered or not",
          "[host]") {
  cpu const exec{.threads = 1};
  float const none = std::numeric_limits<float>::infinity();
  for (float const special : {std::numeric_limits<float>::quiet_NaN(), none, -none}) {
    CAPTURE(special);
    auto problem = make_loss_problem<float>(5, 200, 16);
    problem.labels = {1, 2, 3, 4, 5};
    problem.hidden[16] = special;
    for (std::size_t entry = 64; entry < 128; ++entry) {  // a block whose logits are minus infinities, if any are
      problem.classifier[entry * 16] = std::copysign(problem.classifier[entry * 16], -special);
    }
    auto const wrong_gradients = [&](gradient_results<float> const& found) {
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < found.hidden.size(); ++i) {
        wrong += std::isnan(found.hidden[i]) == (i / 16 == 1) ? 0U : 1U;
      }
      for (std::vector<float> const* values : {&found.classifier, &found.bias}) {
        for (float const value : *values) {
          wrong += std::isnan(value) ? 0U : 1U;
        }
      }
      return wrong;
    };
    using filtered_loss = small_loss<float, gradient_filter<1, 64, 64>>;
    CHECK(wrong_gradients(run_gradients<filtered_loss, float>(exec, problem)) == 0);
    CHECK(wrong_gradients(run_gradients<small_loss<float>, float>(exec, problem)) == 0);
  }
}

TEST_CASE("only the gradients that are asked for are computed", "[host]") {
  cpu const exec{.threads = 1};
  auto const problem = make_loss_problem<float>(20, 100, 16);
  using loss = small_loss<float>;
  auto const plan = loss::plan_backward<float>(exec, {20, 100, 16}, problem.options);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  std::vector<float> value(1);
  loss::forward(exec, problem.inputs(), problem.options, {.loss = value}, space);
  auto const whole = run_gradients<loss, float>(exec, problem);
  std::vector<float> hidden(20 * 16);
  std::vector<float> classifier(100 * 16 * 2, 7.0F);
  std::vector<float> bias(100);
  loss::backward(exec, problem.inputs(), problem.options, {},
                 linear_loss_gradients<float>{.hidden = {hidden.data(), {20, 16}}}, space);
  CHECK(hidden == whole.hidden);
  loss::backward(exec, problem.inputs(), problem.options, {},
                 linear_loss_gradients<float>{.classifier = {classifier.data(), {100, 16}, {32, 2}}}, space);
  for (std::size_t i = 0; i < whole.classifier.size(); ++i) {
    CHECK((classifier[2 * i] == whole.classifier[i] && classifier[2 * i + 1] == 7.0F));
  }
  loss::backward(exec, problem.inputs(), problem.options, {}, linear_loss_gradients<float>{.bias = bias}, space);
  CHECK(bias == whole.bias);
}

TEST_CASE("a backward pass says what does not fit together", "[host]") {
  cpu const exec{.threads = 1};
  auto const problem = make_loss_problem<float>(4, 6, 8);
  using loss = small_loss<float>;
  std::vector<float> values(100);
  auto const plan = loss::plan_backward<float>(exec, {4, 6, 8});
  buffer<std::byte> memory(exec, plan.bytes());
  auto const message = [&](loss_upstream const& upstream, linear_loss_gradients<float> const& out) {
    return message_of([&] { loss::backward(exec, problem.inputs(), {}, upstream, out, workspace(plan, memory)); });
  };
  CHECK(message({}, {.hidden = {values.data(), {4, 7}}}) ==
        "linear_loss.backward: the gradient of the hidden states is 4 x 7 but must be 4 x 8");
  CHECK(message({.loss = {values.data(), 4}}, {}) ==
        "linear_loss.backward: there are 4 upstream gradients of losses but 1 losses");
}
