// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>

#include "algorithm/loss/linear_loss_on_device.cuh"
#include "support/row_states.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

using lse = lse_reducer<float>;
using with_prediction = paired_reducer<lse, arg_max_reducer<float>>;
using with_sum = paired_reducer<sum_reducer<float>, lse>;
using with_top_four = paired_reducer<lse, top_four>;
using with_pushed_entropy = paired_reducer<lse, pushed_entropy>;
using problem_type = loss_problem<bfloat16>;

/// An executor for another architecture has no program of sm_90a's: it runs the portable ones.
using portable_cuda = basic_cuda<arch_list<800>>;

/// Operands are small whole numbers, so that logits are exact, whoever adds them up, and many are equal.
problem_type exact_problem(std::int64_t tokens, std::int64_t vocabulary, std::int64_t channels, bool with_all = false) {
  auto problem = make_loss_problem<bfloat16>(tokens, vocabulary, channels, with_all);
  auto const round_all = [](std::vector<bfloat16>& values, float step) {
    for (bfloat16& value : values) {
      float const rounded = std::nearbyint(static_cast<float>(load(value)) / step) * step;
      value = store<bfloat16>(std::fmin(std::fmax(rounded, -4 * step), 4 * step));
    }
  };
  round_all(problem.hidden, 0.5F);
  round_all(problem.classifier, 0.125F);
  round_all(problem.bias, 0.25F);
  return problem;
}

template <class Reducer>
struct reduced_rows {
  loss_results outputs{0};
  std::vector<typename Reducer::state_type> states;  ///< states of tokens with a label
};

/// A forward pass; the states of a row are read from the workspace, where those that are not used stay those of
/// nothing.
template <class Filter, class Reducer, class Executor>
reduced_rows<Reducer> reduce_on(Executor const& exec, problem_type const& p, bool with_marks) {
  using loss = linear_loss<loss_gemm_tile<bfloat16>, Reducer, Filter>;
  using state_type = typename Reducer::state_type;
  linear_loss_shape const shape{p.tokens, p.vocabulary, p.channels};
  tessera::detail::loss_regions<loss_gemm_tile<bfloat16>, Reducer> const layout("test", shape);
  tessera::cuda const host;
  device_problem<bfloat16, std::int64_t> const in(host, p);
  workspace_plan const plan =
      with_marks ? loss::plan_backward(exec, shape, p.options) : loss::plan_forward(exec, shape);
  buffer<std::byte> memory(host, plan.bytes());
  std::vector<std::byte> bytes(static_cast<std::size_t>(plan.bytes()));
  std::vector<state_type> states(static_cast<std::size_t>(layout.states.count), Reducer{}.identity());
  std::memcpy(bytes.data() + layout.states.offset, states.data(), states.size() * sizeof(state_type));
  host.copy(bytes, memory);
  reduced_rows<Reducer> found{loss_results(p.tokens, p.options.reduction), {}};
  loss_results& results = found.outputs;
  auto values = to_device(host, results.loss);
  auto sums = to_device(host, results.log_sum_exp);
  auto probabilities = to_device(host, results.log_probability);
  auto entropies = to_device(host, results.entropy);
  auto predictions = to_device(host, results.prediction);
  host.wait();
  linear_loss_outputs out{.loss = values.view(), .log_sum_exp = sums.view(), .log_probability = probabilities.view()};
  if constexpr (has_reducer<entropy_reducer<float>, Reducer>) {
    out.entropy = entropies.view();
  }
  if constexpr (has_reducer<arg_max_reducer<float>, Reducer>) {
    out.prediction = predictions.view();
  }
  loss::forward(exec, in.inputs(), p.options, out, workspace(plan, memory));
  exec.wait();
  results.loss = to_host(host, values);
  results.log_sum_exp = to_host(host, sums);
  results.log_probability = to_host(host, probabilities);
  results.entropy = to_host(host, entropies);
  results.prediction = to_host(host, predictions);
  host.copy(memory, bytes);
  host.wait();
  std::memcpy(states.data(), bytes.data() + layout.states.offset, states.size() * sizeof(state_type));
  std::int64_t rows = 0;
  for (std::int64_t token = 0; token < p.tokens; ++token) {
    rows += reference_label(p, token) >= 0 ? 1 : 0;
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    found.states.push_back(Reducer{}.identity());
    for (std::int64_t split = 0; split < layout.splits; ++split) {
      Reducer{}.merge(found.states.back(), states[static_cast<std::size_t>(split * p.tokens + row)]);
    }
  }
  return found;
}

std::int64_t apart(std::vector<float> const& found, std::vector<float> const& expected, float tolerance) {
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    wrong += difference_of_values("", found[i], expected[i], tolerance).empty() ? 0 : 1;
  }
  return wrong;
}

/// Checks the program of sm_90a against the portable one.
template <class Reducer, class Filter = gradient_filter<0>>
void check_reducer(problem_type const& p, bool with_marks = false) {
  CAPTURE(p.tokens, p.vocabulary, p.channels, p.options.softcap, p.options.temperature, p.options.smoothing, with_marks,
          sizeof(typename Reducer::state_type));
  static_assert(linear_loss<loss_gemm_tile<bfloat16>, Reducer, Filter>::is_for_warpgroups);
  auto const found = reduce_on<Filter, Reducer>(tessera::cuda{}, p, with_marks);
  auto const expected = reduce_on<Filter, Reducer>(portable_cuda{}, p, false);
  float const slack = p.options.softcap > 0 ? 50.0F : 1.0F;  // the cap is by fast exponentials
  CHECK(apart(found.outputs.loss, expected.outputs.loss, 4e-6F * slack) == 0);
  CHECK(apart(found.outputs.log_sum_exp, expected.outputs.log_sum_exp, 4e-6F * slack) == 0);
  CHECK(apart(found.outputs.log_probability, expected.outputs.log_probability, 8e-6F * slack) == 0);
  CHECK(apart(found.outputs.entropy, expected.outputs.entropy, 3e-5F * slack) == 0);
  CHECK(found.outputs.prediction == expected.outputs.prediction);
  REQUIRE(found.states.size() == expected.states.size());
  std::string first;
  for (std::size_t row = 0; row < found.states.size() && first.empty(); ++row) {
    first = difference_of<Reducer>(found.states[row], expected.states[row], slack);
  }
  CHECK(first == "");
}

template <class Reducer>
void check_many() {
  for (std::int64_t const tokens : {1, 15, 129, 300}) {
    check_reducer<Reducer>(exact_problem(tokens, 777, 72));
  }
  for (std::int64_t const vocabulary : {1, 7, 191, 192, 193, 500, 5000}) {  // tiles have 192 columns
    check_reducer<Reducer>(exact_problem(70, vocabulary, 64, vocabulary == 500));
  }
  auto ignored = exact_problem(300, 400, 64);
  for (std::size_t token = 64; token < 260; ++token) {
    ignored.labels[token] = -100;
  }
  check_reducer<Reducer>(ignored);
  auto masked = exact_problem(140, 700, 64, true);
  for (std::size_t entry = 100; entry < 600; ++entry) {  // whole tiles, and parts of others
    masked.bias[entry] = store<bfloat16>(-INFINITY);
  }
  check_reducer<Reducer>(masked);
  auto cooled = exact_problem(140, 700, 64, true);
  cooled.options.temperature = 0.5F;
  cooled.options.reduction = loss_reduction::none;
  check_reducer<Reducer>(cooled);
  cooled.options.softcap = 30.0F;
  check_reducer<Reducer>(cooled);
  // With marks there are several launches, and more states.
  check_reducer<Reducer, gradient_filter<12>>(exact_problem(300, 40000, 64), true);
}

}  // namespace

TEST_CASE("entropies, predictions and sums on a GPU are those of the portable program", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_many<loss_statistics>();
  auto smoothed = exact_problem(140, 700, 64, true);
  smoothed.options.smoothing = 0.1F;
  smoothed.options.reduction = loss_reduction::none;
  check_reducer<loss_statistics>(smoothed);
  check_reducer<with_sum>(smoothed);
}

TEST_CASE("log-sum-exps with and without predictions on a GPU are those of the portable program", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_many<lse>();
  check_many<with_prediction>();
}

TEST_CASE("a user's reducer with 48 bytes of state gets its push() for each logit on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  static_assert(sizeof(with_top_four::state_type) == 48);
  check_many<with_top_four>();
}

TEST_CASE("a user's reducer with a small state keeps one in each lane, in as many stages, on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  static_assert(loss_row_states<lse> == 1 && loss_row_states<with_top_four> == 1);
  static_assert(loss_row_states<with_pushed_entropy> == 2);
  static_assert(loss_row_states<paired_reducer<lse, many_sums<8>>> == 2);  // 40 bytes
  static_assert(loss_row_states<paired_reducer<lse, many_sums<9>>> == 1);
  static_assert(warpgroup_loss_policy<paired_reducer<lse, many_sums<8>>> == warpgroup_loss_policy<lse>);
  static_assert(warpgroup_loss_policy<paired_reducer<lse, many_sums<9>>> == warpgroup_loss_policy<lse>);
  check_many<with_pushed_entropy>();
  check_many<paired_reducer<lse, many_sums<8>>>();
}

TEST_CASE("states in lanes begin anew after some tiles, and are the same bits each time, on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto const problem = exact_problem(8000, 32000, 64);  // 132 workers: a split has 41 of a row's 167 tiles, or more
  check_reducer<with_pushed_entropy>(problem);
  check_reducer<paired_reducer<lse, many_sums<8>>>(problem);
  auto const first = reduce_on<gradient_filter<0>, with_pushed_entropy>(tessera::cuda{}, problem, false);
  auto const second = reduce_on<gradient_filter<0>, with_pushed_entropy>(tessera::cuda{}, problem, false);
  REQUIRE(first.states.size() == second.states.size());
  CHECK(std::memcmp(first.states.data(), second.states.data(), first.states.size() * sizeof(first.states[0])) == 0);
  CHECK(first.outputs.loss == second.outputs.loss);
}

TEST_CASE("reducers with large states leave room for fewer pieces of operands, and are as right on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  using of_four = paired_reducer<lse, many_sums<40>>;
  using of_three = paired_reducer<many_sums<90>, lse>;
  static_assert(warpgroup_loss_policy<of_four>.stages == 4);
  static_assert(warpgroup_loss_policy<of_three>.stages == 3);
  for (std::int64_t const vocabulary : {100, 2000}) {
    check_reducer<of_four>(exact_problem(140, vocabulary, 1024));
    check_reducer<of_three>(exact_problem(140, vocabulary, 1024));
  }
}

TEST_CASE("NaNs, infinities and huge logits reach the same outputs by both programs on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (float const special : {NAN, INFINITY, -INFINITY, 1e6F, 1e12F, -1e12F, 3e38F}) {
    CAPTURE(special);
    auto problem = exact_problem(140, 700, 64, true);
    problem.options.reduction = loss_reduction::none;
    for (std::size_t const token : {1U, 17U, 128U, 139U}) {
      problem.labels[token] = 3;
      problem.hidden[token * 64 + 5] = store<bfloat16>(special);
    }
    for (std::size_t entry = 0; entry < 700; entry += 2) {  // no products with 0, and one that is the largest
      problem.classifier[entry * 64 + 5] = store<bfloat16>(entry % 4 == 0 ? 0.25F : -0.125F);
      problem.classifier[(entry + 1) * 64 + 5] = store<bfloat16>(entry == 300 ? 0.5F : 0.125F);
    }
    check_reducer<lse>(problem);
    check_reducer<loss_statistics>(problem);
    check_reducer<with_top_four>(problem);
    check_reducer<with_pushed_entropy>(problem);
    problem.options.softcap = 5.0F;
    check_reducer<lse>(problem);
    auto masked = exact_problem(140, 700, 64, true);
    masked.bias[300] = store<bfloat16>(special);
    check_reducer<loss_statistics>(masked);
    masked.bias.assign(700, store<bfloat16>(-INFINITY));
    check_reducer<loss_statistics>(masked);
  }
}
