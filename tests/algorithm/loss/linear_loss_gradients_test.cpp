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

namespace {

/// Adds gradients to old ones, once or twice, and compares with the reference's sum.
template <class Loss, class Executor, class T>
void check_added(Executor const& exec, loss_problem<T> const& p, double tolerance,
                 upstream_samples const& upstream = {}) {
  CAPTURE(p.tokens, p.vocabulary, p.channels);
  auto const expected = reference_gradient(p, upstream);
  auto const old = old_gradients_for(expected);
  auto const sum = added_to(old, expected);
  auto const found = add_gradients<Loss>(exec, p, old, upstream);
  CHECK(worst_distance(found, sum) <= tolerance);
  CHECK(changed_without_label(p, found.hidden, old.hidden) == 0);
  auto const again = add_gradients<Loss>(exec, p, old, upstream, 2);
  gradient_reference twice = expected;
  for (std::vector<double>* values : {&twice.hidden, &twice.classifier, &twice.bias}) {
    for (double& value : *values) {
      value *= 2;
    }
  }
  CHECK(worst_distance(again, added_to(old, twice)) <= tolerance);
  CHECK(changed_without_label(p, again.hidden, old.hidden) == 0);
}

/// Gives the workspace too few bytes for the whole vocabulary at a time.
template <class Loss, class T>
void cut_vocabulary(loss_problem<T>& p) {
  linear_loss_shape const shape{p.tokens, p.vocabulary, p.channels};
  p.options.workspace_budget = Loss::template plan_backward<float>(cpu{}, shape, p.options).bytes() - 1;
}

/// How many values are not bit for bit the sums of two others.
std::size_t wrong_sums(std::vector<float> const& found, std::vector<float> const& a, std::vector<float> const& b) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    wrong += to_bits(found[i]) == to_bits(a[i] + b[i]) ? 0U : 1U;
  }
  return wrong;
}

}  // namespace

TEST_CASE("gradients are added to old ones, whatever the extents", "[host][threads]") {
  cpu const exec{.threads = 2};
  testing::adversary const adversary{.seed = 9};
  for (std::int64_t const tokens : {0, 1, 7, 63, 64, 65, 130}) {
    check_added<small_loss<float>>(exec, make_loss_problem<float>(tokens, 37, 33, true), 3e-6);
  }
  for (std::int64_t const vocabulary : {2, 7, 63, 64, 65, 200}) {
    check_added<small_loss<float>>(exec, make_loss_problem<float>(5, vocabulary, 16), 3e-6);
  }
  for (std::int64_t const channels : {0, 1, 7, 63, 64, 65}) {
    check_added<small_loss<float>>(exec, make_loss_problem<float>(7, 70, channels, true), 3e-6);
    check_added<small_loss<float>>(adversary, make_loss_problem<float>(7, 70, channels), 3e-6);
  }
  check_added<small_loss<float>>(exec, make_loss_problem<float>(7, 1, 5), 1e-6);
}

TEST_CASE("gradients of every option, of every output and of each type of inputs are added to old ones",
          "[host][threads][slow]") {
  cpu const exec{.threads = 2};
  for (loss_reduction const reduction : {loss_reduction::none, loss_reduction::sum, loss_reduction::mean}) {
    auto problem = full_problem<float>(70, 101, 45);
    problem.options.reduction = reduction;
    weigh_classes(problem);
    check_added<small_loss<float>>(exec, problem, 3e-6);
    check_added<small_loss<float>>(exec, problem, 3e-6, make_upstream(70, reduction));
    check_added<small_loss<float>>(testing::adversary{.seed = 10}, problem, 3e-6, make_upstream(70, reduction));
  }
  for (bool const in_parts : {false, true}) {
    auto wide = full_problem<bfloat16>(70, 300, 64);
    auto narrow = full_problem<float16>(70, 300, 64);  // whose factors are scaled
    auto full = full_problem<float>(70, 300, 64);
    if (in_parts) {
      cut_vocabulary<small_loss<bfloat16>>(wide);
      cut_vocabulary<small_loss<float16>>(narrow);
      cut_vocabulary<small_loss<float>>(full);
    }
    check_added<small_loss<bfloat16>>(exec, wide, 3e-3);
    check_added<small_loss<float16>>(exec, narrow, 5e-4);
    narrow.options.reduction = loss_reduction::sum;
    check_added<small_loss<float16>>(exec, narrow, 5e-4, {{1e-9F}, {}, {}});
    check_added<small_loss<float16>>(exec, narrow, 5e-4, {{1e9F}, {}, {}});
    check_added<small_loss<float>>(exec, full, 3e-6);
  }
}

TEST_CASE("gradients that are added are those that are written, filtered or not, and repeat bit for bit",
          "[host][threads]") {
  auto const check = [](auto loss, float threshold) {
    using loss_type = decltype(loss);
    auto problem = make_loss_problem<float>(130, 300, 40, true);
    problem.options.hidden_threshold = problem.options.classifier_threshold = threshold;
    cpu const exec{.threads = 2};
    auto const old = old_gradients_for(reference_gradient(problem));
    auto const written = run_gradients<loss_type, float>(exec, problem);
    auto const found = add_gradients<loss_type>(exec, problem, old);
    CHECK(found.loss == written.loss);
    CHECK(changed_without_label(problem, found.hidden, old.hidden) == 0);
    CHECK(wrong_sums(found.hidden, old.hidden, written.hidden) == 0);  // of one part
    CHECK(wrong_sums(found.classifier, old.classifier, written.classifier) == 0);
    CHECK(wrong_sums(found.bias, old.bias, written.bias) == 0);
    gradient_results<float> const none{{},
                                       std::vector<float>(found.hidden.size()),
                                       std::vector<float>(found.classifier.size()),
                                       std::vector<float>(found.bias.size())};
    auto const twice = add_gradients<loss_type>(exec, problem, none, {}, 2);
    CHECK(wrong_sums(twice.hidden, written.hidden, written.hidden) == 0);
    CHECK(wrong_sums(twice.classifier, written.classifier, written.classifier) == 0);
    CHECK(wrong_sums(twice.bias, written.bias, written.bias) == 0);
    cut_vocabulary<loss_type>(problem);
    auto const in_parts = add_gradients<loss_type>(exec, problem, old);
    for (auto const& again : {add_gradients<loss_type>(cpu{.threads = 1}, problem, old),
                              add_gradients<loss_type>(testing::adversary{.seed = 12}, problem, old)}) {
      CHECK(std::memcmp(in_parts.hidden.data(), again.hidden.data(), 4 * again.hidden.size()) == 0);
      CHECK(std::memcmp(in_parts.classifier.data(), again.classifier.data(), 4 * again.classifier.size()) == 0);
      CHECK(std::memcmp(in_parts.bias.data(), again.bias.data(), 4 * again.bias.size()) == 0);
    }
    CHECK(wrong_sums(in_parts.classifier, old.classifier, written.classifier) == 0);
    CHECK(relative_distance(in_parts.hidden, added_to(old, reference_gradient(problem)).hidden) <=
          (threshold > 0 ? 0.1 : 3e-6));
  };
  check(small_loss<float>{}, 0.0F);
  check(small_loss<float, gradient_filter<8, 32, 32>>{}, 0.05F);
}

TEST_CASE("a NaN in an old gradient stays where it is", "[host]") {
  cpu const exec{.threads = 1};
  auto const problem = make_loss_problem<float>(20, 100, 16);
  auto old = old_gradients_for(reference_gradient(problem));
  auto const sum = add_gradients<small_loss<float>>(exec, problem, old);
  float const nan = std::numeric_limits<float>::quiet_NaN();
  old.hidden[33] = old.classifier[70] = old.bias[5] = nan;
  auto const found = add_gradients<small_loss<float>>(exec, problem, old);
  auto const differ_in = [](std::vector<float> const& a, std::vector<float> const& b, std::size_t place) {
    std::size_t count = std::isnan(a[place]) ? 0 : 1;
    for (std::size_t i = 0; i < a.size(); ++i) {
      count += i != place && to_bits(a[i]) != to_bits(b[i]) ? 1U : 0U;
    }
    return count;
  };
  CHECK(differ_in(found.hidden, sum.hidden, 33) == 0);
  CHECK(differ_in(found.classifier, sum.classifier, 70) == 0);
  CHECK(differ_in(found.bias, sum.bias, 5) == 0);
}

TEST_CASE("each gradient accumulates or not, whatever the others do, in views of any strides", "[host]") {
  cpu const exec{.threads = 1};
  auto const problem = make_loss_problem<float>(20, 100, 16);
  using loss = small_loss<float>;
  auto const plan = loss::plan_backward<float>(exec, {20, 100, 16}, problem.options);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  std::vector<float> value(1);
  loss::forward(exec, problem.inputs(), problem.options, {.loss = value}, space);
  auto const whole = run_gradients<loss, float>(exec, problem);
  for (int which = 0; which < 8; ++which) {
    CAPTURE(which);
    std::vector<float> hidden(20 * 16, 3.0F);
    std::vector<float> classifier(100 * 16 * 2, 3.0F);
    std::vector<float> bias(100, 3.0F);
    linear_loss_gradients<float> out{{hidden.data(), {20, 16}}, {classifier.data(), {100, 16}, {32, 2}}, bias};
    out.accumulate_hidden = (which & 1) != 0;
    out.accumulate_classifier = (which & 2) != 0;
    out.accumulate_bias = (which & 4) != 0;
    loss::backward(exec, problem.inputs(), problem.options, {}, out, space);
    auto const old = [](bool accumulates, std::size_t size) {
      return std::vector<float>(size, accumulates ? 3.0F : -0.0F);
    };
    std::vector<float> dense;
    std::size_t changed = 0;
    for (std::size_t i = 0; i < classifier.size(); i += 2) {
      dense.push_back(classifier[i]);
      changed += classifier[i + 1] == 3.0F ? 0U : 1U;
    }
    CHECK(changed == 0);
    CHECK(wrong_sums(hidden, old(out.accumulate_hidden, hidden.size()), whole.hidden) == 0);
    CHECK(wrong_sums(dense, old(out.accumulate_classifier, dense.size()), whole.classifier) == 0);
    CHECK(wrong_sums(bias, old(out.accumulate_bias, bias.size()), whole.bias) == 0);
    out.bias = {};  // not wanted, so that nothing is added to it
    out.classifier = {};
    loss::backward(exec, problem.inputs(), problem.options, {}, out, space);
    CHECK(wrong_sums(bias, old(out.accumulate_bias, bias.size()), whole.bias) == 0);
  }
}

TEST_CASE("a backward pass does not add to gradients of 16 bits", "[host]") {
  cpu const exec{.threads = 1};
  auto const problem = make_loss_problem<bfloat16>(4, 6, 8);
  using loss = small_loss<bfloat16>;
  std::vector<bfloat16> values(48);
  auto const plan = loss::plan_backward<bfloat16>(exec, {4, 6, 8});
  buffer<std::byte> memory(exec, plan.bytes());
  linear_loss_gradients<bfloat16> const out{.classifier = {values.data(), {6, 8}}, .accumulate_classifier = true};
  CHECK(message_of([&] { loss::backward(exec, problem.inputs(), {}, {}, out, workspace(plan, memory)); }) ==
        "linear_loss.backward: accumulate_classifier is true, which needs gradients of 32 bits (float), but they have "
        "16");
}
