// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Distillation by the formulas, in double, with all logits in memory, and by tessera on any executor.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/loss/linear_distillation.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/map/forward_kl.hpp>
#include <tessera/map/reverse_kl.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"
#include "support/double_rows.hpp"
#include "support/loss_gradient_reference.hpp"

namespace tessera_test {

/// A divergence of two distributions in double.
enum class divergence_kind { forward, reverse, jensen_shannon };

/// Inputs of distillation, in vectors.
template <class T>
struct distillation_problem {
  tessera::distillation_shape shape;
  std::vector<T> hidden = {};
  std::vector<T> classifier = {};
  std::vector<T> teacher_hidden = {};
  std::vector<T> teacher_classifier = {};
  std::vector<float> weights = {};   ///< may be empty
  std::vector<float> upstream = {};  ///< may be empty
  std::vector<T> bias = {};          ///< may be empty
  std::vector<T> teacher_bias = {};  ///< may be empty
  tessera::distillation_options options = {};
  reference_map map = {};          ///< what the reference does to the student's logits
  reference_map teacher_map = {};  ///< the same of the teacher's
};

/// Makes a problem with logits of a spread of about 2.
template <class T>
distillation_problem<T> make_distillation_problem(tessera::distillation_shape const& shape, bool with_weights = false) {
  distillation_problem<T> p{shape};
  auto const samples = [](std::int64_t rows, std::int64_t columns, std::uint64_t seed, double sigma) {
    std::vector<T> values(static_cast<std::size_t>(rows * columns));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = tessera::store<T>(tessera::testing::gauss{sigma}.value(seed, i));
    }
    return values;
  };
  double const narrow = 2.0 / std::sqrt(static_cast<double>(shape.channels));
  double const of_teacher = 2.0 / std::sqrt(static_cast<double>(shape.teacher_channels));
  p.hidden = samples(shape.tokens, shape.channels, 21, 1.0);
  p.classifier = samples(shape.vocabulary, shape.channels, 22, narrow);
  p.teacher_hidden = samples(shape.tokens, shape.teacher_channels, 23, 1.0);
  p.teacher_classifier = samples(shape.vocabulary, shape.teacher_channels, 24, of_teacher);
  for (std::int64_t i = 0; with_weights && i < shape.tokens; ++i) {
    float const weight = tessera::testing::uniform{0.0, 2.0}.value(25, static_cast<std::uint64_t>(i));
    p.weights.push_back(i % 5 == 3 ? 0.0F : weight);
  }
  return p;
}

/// Gives a problem biases of both classifiers.
template <class T>
void add_biases(distillation_problem<T>& p) {
  for (std::int64_t j = 0; j < p.shape.vocabulary; ++j) {
    auto const entry = static_cast<std::uint64_t>(j);
    p.bias.push_back(tessera::store<T>(tessera::testing::gauss{0.7}.value(26, entry)));
    p.teacher_bias.push_back(tessera::store<T>(tessera::testing::gauss{0.9}.value(27, entry)));
  }
}

/// A problem with everything that an option can turn on.
template <class T>
distillation_problem<T> full_problem(tessera::distillation_shape const& shape, tessera::loss_reduction reduction) {
  auto p = make_distillation_problem<T>(shape, true);
  p.options.reduction = reduction;
  p.options.temperature = 1.5F;
  p.options.softcap = 4.0F;
  p.options.teacher_softcap = 5.0F;
  p.options.workspace_budget = 1;  // parts of 128 entries
  std::int64_t const losses = reduction == tessera::loss_reduction::none ? shape.tokens : 1;
  for (std::int64_t i = 0; i < losses; ++i) {
    p.upstream.push_back(tessera::testing::gauss{}.value(31, static_cast<std::uint64_t>(i)) - 0.25F);
  }
  return p;
}

/// Budgets of the workspace for 513 to 1024 tokens of an operand type T, with which forward passes have parts of 256
/// tokens where they read logits twice; keep gradients by logits of 512 tokens; keep all, in parts of 512; and keep all
/// in one part.
template <class T>
std::vector<std::int64_t> budgets_of_tokens(tessera::distillation_shape const& shape) {
  std::int64_t const entries = tessera::align_up(shape.vocabulary, std::int64_t{64});
  std::int64_t const logits = 8 * entries;
  std::int64_t const gradient = entries * static_cast<std::int64_t>(sizeof(T));
  return {256 * logits, 512 * (logits + gradient), 512 * logits + shape.tokens * gradient, std::int64_t{1} << 30};
}

/// How many tokens' gradients by logits a plan has room to keep.
template <class T>
std::int64_t kept_tokens(tessera::workspace_plan const& plan, tessera::distillation_shape const& shape) {
  std::int64_t const row = tessera::align_up(shape.vocabulary, std::int64_t{64}) * static_cast<std::int64_t>(sizeof(T));
  for (auto const& entry : plan.entries()) {
    if (entry.name == "gradients by logits that are kept") {
      return entry.bytes / row;
    }
  }
  return -1;
}

/// What distillation is, in double.
struct distillation_reference {
  double loss = 0;                 ///< where it is reduced
  std::vector<double> divergence;  ///< of each token
  std::vector<double> hidden;      ///< gradient
  std::vector<double> classifier;  ///< gradient
  std::vector<double> bias;        ///< gradient
};

/// Logits of a token, and their slopes by the sums. `hidden`: the token's; `rows`: the classifier's.
template <class T>
std::vector<double> distillation_logits(double const* hidden, std::vector<double> const& rows,
                                        std::vector<T> const& bias, std::int64_t token, std::int64_t channels,
                                        double cap, double temperature, reference_map const& map,
                                        std::vector<double>* slopes) {
  std::vector<double> logits;
  std::int64_t const entries = static_cast<std::int64_t>(rows.size()) / channels;
  for (std::int64_t j = 0; j < entries; ++j) {
    double const sum = row_product(hidden, rows.data() + j * channels, channels) +
                       (bias.empty() ? 0.0 : as_double(bias[static_cast<std::size_t>(j)]));
    double const bent = cap > 0 ? std::tanh(sum / cap) : 0;
    double const scaled = (cap > 0 ? cap * bent : sum) / temperature;
    logits.push_back(map.value != nullptr ? map.value(scaled, token, j) : scaled);
    if (slopes != nullptr) {
      slopes->push_back((1 - bent * bent) / temperature * (map.slope != nullptr ? map.slope(scaled, token, j) : 1.0));
    }
  }
  return logits;
}

inline void to_log_probabilities(std::vector<double>& logits) {
  double largest = -HUGE_VAL;
  double sum = 0;
  for (double const logit : logits) {
    largest = std::fmax(largest, logit);
  }
  for (double const logit : logits) {
    sum += std::exp(logit - largest);
  }
  for (double& logit : logits) {
    logit -= largest + std::log(sum);
  }
}

/// The divergence of a row, and its gradient by the student's logits, by closed forms.
inline double divergence_of_row(divergence_kind kind, double beta, std::vector<double> const& log_p,
                                std::vector<double> const& log_q, std::vector<double>& gradient) {
  double value = 0;
  double mean = 0;
  std::vector<double> log_m;
  for (std::size_t j = 0; j < log_p.size(); ++j) {
    double const p = std::exp(log_p[j]);
    double const q = std::exp(log_q[j]);
    log_m.push_back(std::log(beta * p + (1 - beta) * q));
    value += kind == divergence_kind::forward ? p * (log_p[j] - log_q[j])
             : kind == divergence_kind::reverse
                 ? q * (log_q[j] - log_p[j])
                 : beta * p * (log_p[j] - log_m[j]) + (1 - beta) * q * (log_q[j] - log_m[j]);
    mean += q * (log_q[j] - log_m[j]);
  }
  for (std::size_t j = 0; j < log_p.size(); ++j) {
    double const q = std::exp(log_q[j]);
    gradient.push_back(kind == divergence_kind::forward   ? q - std::exp(log_p[j])
                       : kind == divergence_kind::reverse ? q * (log_q[j] - log_p[j] - value)
                                                          : (1 - beta) * q * (log_q[j] - log_m[j] - mean));
  }
  return value;
}

/// Everything by the formulas. `beta`: of jensen_shannon.
template <class T>
distillation_reference reference_distillation(distillation_problem<T> const& p, divergence_kind kind,
                                              double beta = 0.5) {
  distillation_reference result{0,
                                {},
                                std::vector<double>(p.hidden.size()),
                                std::vector<double>(p.classifier.size()),
                                std::vector<double>(static_cast<std::size_t>(p.shape.vocabulary))};
  double weights = 0;
  for (std::int64_t i = 0; i < p.shape.tokens; ++i) {
    weights += p.weights.empty() ? 1.0 : static_cast<double>(p.weights[static_cast<std::size_t>(i)]);
  }
  auto const& o = p.options;
  bool const is_mean = o.reduction == tessera::loss_reduction::mean;
  double const scale = !is_mean ? 1.0 : weights != 0 ? 1 / weights : 0;
  auto const hidden = doubles_of(p.hidden);
  auto const classifier = doubles_of(p.classifier);
  auto const teacher_hidden = doubles_of(p.teacher_hidden);
  auto const teacher_classifier = doubles_of(p.teacher_classifier);
  std::int64_t const channels = p.shape.channels;
  std::int64_t const teacher_channels = p.shape.teacher_channels;
  for (std::int64_t i = 0; i < p.shape.tokens; ++i) {
    std::vector<double> slopes;
    std::vector<double> gradient;
    auto log_q =
        distillation_logits(hidden.data() + i * channels, classifier, p.bias, i, channels,
                            static_cast<double>(o.softcap), static_cast<double>(o.temperature), p.map, &slopes);
    auto log_p = distillation_logits(teacher_hidden.data() + i * teacher_channels, teacher_classifier, p.teacher_bias,
                                     i, teacher_channels, static_cast<double>(o.teacher_softcap),
                                     static_cast<double>(o.temperature), p.teacher_map, nullptr);
    to_log_probabilities(log_q);
    to_log_probabilities(log_p);
    result.divergence.push_back(divergence_of_row(kind, beta, log_p, log_q, gradient));
    auto const at = static_cast<std::size_t>(i);
    double const weight = p.weights.empty() ? 1.0 : static_cast<double>(p.weights[at]);
    bool const is_single = o.reduction != tessera::loss_reduction::none;
    double const upstream = p.upstream.empty() ? 1.0 : static_cast<double>(p.upstream[is_single ? 0 : at]);
    result.loss += scale * weight * result.divergence.back();
    for (std::int64_t j = 0; j < p.shape.vocabulary; ++j) {
      double const by_sum =
          scale * weight * upstream * gradient[static_cast<std::size_t>(j)] * slopes[static_cast<std::size_t>(j)];
      result.bias[static_cast<std::size_t>(j)] += by_sum;
      add_row(result.hidden.data() + i * channels, by_sum, classifier.data() + j * channels, channels);
      add_row(result.classifier.data() + j * channels, by_sum, hidden.data() + i * channels, channels);
    }
  }
  return result;
}

/// Results of an executor, on the host.
template <class Gradient>
struct distillation_results {
  std::vector<float> loss;
  std::vector<float> divergence;
  std::vector<Gradient> hidden;
  std::vector<Gradient> classifier;
  std::vector<Gradient> bias;
};

/// The classifier that a loss is given, for a matrix in memory: the matrix.
template <class T>
struct plain_classifier {
  template <class Rows>
  tessera::matrix_view<T const> operator()(Rows const& rows) const {
    return rows;
  }
};

/// Which gradients a run wants; others stay NaN.
struct wanted_gradients {
  bool hidden = true;
  bool classifier = true;
};

/// Changes nothing of inputs.
struct given_inputs {
  template <class Inputs>
  void operator()(Inputs&) const {}
};

/// Runs both passes with everything in the executor's memory, gradients filled with NaN before. `times`: how often the
/// backward pass runs, adding to what is there but the first time.
/// `student`, `teacher`: make the classifiers of views of the problem's. `change`: changes the inputs.
template <class Loss, class Gradient, class Exec, class T, class Student = plain_classifier<T>,
          class Teacher = plain_classifier<T>, class Change = given_inputs>
distillation_results<Gradient> run_distillation(Exec const& exec, distillation_problem<T> const& p,
                                                decltype(Loss::inputs::divergence) const& given_divergence = {},
                                                int times = 1, Student const& student = {}, Teacher const& teacher = {},
                                                Change const& change = {}, wanted_gradients const& want = {}) {
  auto const given = [&](auto const& values) {
    tessera::buffer<typename std::decay_t<decltype(values)>::value_type> memory(
        exec, static_cast<std::int64_t>(values.size()));
    exec.copy(values, memory);
    return memory;
  };
  auto const& s = p.shape;
  auto const hidden = given(p.hidden);
  auto const classifier = given(p.classifier);
  auto const teacher_hidden = given(p.teacher_hidden);
  auto const teacher_classifier = given(p.teacher_classifier);
  auto const weights = given(p.weights);
  auto const upstream = given(p.upstream);
  auto const bias = given(p.bias);
  auto const teacher_bias = given(p.teacher_bias);
  auto const losses = static_cast<std::size_t>(p.options.reduction == tessera::loss_reduction::none ? s.tokens : 1);
  distillation_results<Gradient> found{
      std::vector<float>(losses, NAN), std::vector<float>(static_cast<std::size_t>(s.tokens), NAN),
      std::vector<Gradient>(p.hidden.size(), tessera::store<Gradient>(NAN)),
      std::vector<Gradient>(p.classifier.size(), tessera::store<Gradient>(NAN)),
      std::vector<Gradient>(static_cast<std::size_t>(s.vocabulary), tessera::store<Gradient>(NAN))};
  auto loss = given(found.loss);
  auto divergence = given(found.divergence);
  auto by_hidden = given(found.hidden);
  auto by_classifier = given(found.classifier);
  auto by_bias = given(found.bias);
  tessera::matrix_view<T const> const rows(classifier.data(), {s.vocabulary, s.channels});
  tessera::matrix_view<T const> const rows_of_teacher(teacher_classifier.data(), {s.vocabulary, s.teacher_channels});
  typename Loss::inputs in{{hidden.data(), {s.tokens, s.channels}},
                           student(rows),
                           {teacher_hidden.data(), {s.tokens, s.teacher_channels}},
                           teacher(rows_of_teacher)};
  in.divergence = given_divergence;
  if (!p.bias.empty()) {
    in.bias = bias.view();
  }
  if (!p.teacher_bias.empty()) {
    in.teacher_bias = teacher_bias.view();
  }
  if (!p.weights.empty()) {
    in.weights = weights.view();
  }
  change(in);
  auto const plan = Loss::template plan_backward<Gradient>(exec, s, p.options);
  tessera::buffer<std::byte> memory(exec, plan.bytes());
  exec.copy(std::vector<std::byte>(static_cast<std::size_t>(plan.bytes()), std::byte{0xff}), memory);
  tessera::workspace const space(plan, memory);
  Loss::forward(exec, in, p.options, {loss.view(), divergence.view()}, space);
  tessera::linear_loss_gradients<Gradient> out{
      {by_hidden.data(), {s.tokens, s.channels}}, {by_classifier.data(), {s.vocabulary, s.channels}}, by_bias.view()};
  out.hidden = want.hidden ? out.hidden : tessera::matrix_view<Gradient>{};
  out.classifier = want.classifier ? out.classifier : tessera::matrix_view<Gradient>{};
  for (int i = 0; i < times; ++i) {
    Loss::backward(exec, in, p.options, p.upstream.empty() ? tessera::array_view<float const>{} : upstream.view(), out,
                   space);
    out.accumulate_hidden = out.accumulate_classifier = out.accumulate_bias = true;
  }
  exec.copy(loss, found.loss);
  exec.copy(divergence, found.divergence);
  exec.copy(by_hidden, found.hidden);
  exec.copy(by_classifier, found.classifier);
  exec.copy(by_bias, found.bias);
  exec.wait();
  return found;
}

/// The largest error of losses and divergences, relative to 1 or the value.
template <class Gradient, class T>
double worst_divergence(distillation_problem<T> const& p, distillation_results<Gradient> const& found,
                        distillation_reference const& expected) {
  double worst = 0;
  auto const add = [&](float value, double wanted) {
    double const apart = std::fabs(static_cast<double>(value) - wanted) / (1 + std::fabs(wanted));
    worst = std::isnan(worst) || apart <= worst ? worst : apart;
  };
  bool const is_single = p.options.reduction != tessera::loss_reduction::none;
  for (std::size_t i = 0; i < expected.divergence.size(); ++i) {
    add(found.divergence[i], expected.divergence[i]);
    if (!is_single) {
      add(found.loss[i], expected.divergence[i] * (p.weights.empty() ? 1.0 : static_cast<double>(p.weights[i])));
    }
  }
  if (is_single) {
    add(found.loss[0], expected.loss);
  }
  return worst;
}

/// The kind of a divergence of the library.
template <class D>
constexpr divergence_kind divergence_kind_of =
    std::is_same_v<D, tessera::forward_kl>   ? divergence_kind::forward
    : std::is_same_v<D, tessera::reverse_kl> ? divergence_kind::reverse
                                             : divergence_kind::jensen_shannon;

/// Compares both passes with the formulas.
template <class D, class Gradient, class T, class Exec>
void check_distillation(Exec const& exec, distillation_problem<T> const& p, double tolerance) {
  CAPTURE(p.shape.tokens, p.shape.vocabulary, p.shape.channels, p.shape.teacher_channels);
  auto const found = run_distillation<tessera::linear_distillation<T, D>, Gradient>(exec, p);
  auto const expected = reference_distillation(p, divergence_kind_of<D>);
  CHECK(worst_divergence(p, found, expected) <= 1e-5);
  CHECK(relative_distance(found.hidden, expected.hidden) <= tolerance);
  CHECK(relative_distance(found.classifier, expected.classifier) <= tolerance);
  if (!p.bias.empty()) {  // else sums of gradients that sum to 0 in each row may all be small
    CHECK(relative_distance(found.bias, expected.bias) <= 2 * tolerance);
  }
}

}  // namespace tessera_test
