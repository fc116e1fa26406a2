// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What the filter of gradients keeps and changes on a real model's whole classifier, and beside it on `zipf` data of
/// the same extents, on one core of the CPU.
///
///     python3 tests/data/make_data.py smollm2 --large DIR --tokens 8192
///     TESSERA_TEST_DATA=DIR tessera_bench --benchmark_filter=^cut_cross_entropy/on_cpu
///
/// On the CPU a filtered backward pass takes entries in the order of the vocabulary; in rows `ordered` they have been
/// brought into the order in which the one on sm_90a takes them (program/loss/entry_order.hpp), so that the same blocks
/// are left out as there, or more: there a block is multiplied if the one beside it is kept.
///
/// `kept` is the part of blocks (of `block_rows` tokens x `block_columns` entries) with an element at or over
/// `threshold`, found from all logits; it is `kept_ordered` in rows `ordered`, and `kept_by_use` is that part with
/// entries ordered by exactly how many blocks of tokens they matter to. Errors are lengths of differences of bf16
/// gradients from exact ones in fp32, which are themselves compared with double for some tokens and entries.
/// `rows_without` is the part of the classifier's rows whose gradient is zero though the exact one is not. `ms` is the
/// time of one call of both passes.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>

#include "../../examples/support/entries_in_order.hpp"
#include "support/harness.hpp"
#include "support/host_loss_problem.hpp"
#include "support/kept_blocks.hpp"

namespace {

using namespace tessera;
using bench::host_loss_problem;
using filter = gradient_filter_for<bfloat16>;

constexpr std::int64_t whole_vocabulary = 49152;  // SmolLM2's

/// Both gradients of a problem. They begin as NaNs, which show where nothing was written.
template <class T>
struct host_gradients {
  std::vector<T> hidden;
  std::vector<T> classifier;

  explicit host_gradients(host_loss_problem const& problem)
      : hidden(problem.hidden.size(), store<T>(std::nanf(""))),
        classifier(problem.classifier.size(), store<T>(std::nanf(""))) {}
  linear_loss_gradients<T> views(linear_loss_shape const& shape) {
    return {{hidden.data(), {shape.tokens, shape.channels}}, {classifier.data(), {shape.vocabulary, shape.channels}}};
  }
};

/// Both passes; returns the seconds that they take.
template <class Loss, class T>
double run_passes(host_loss_problem const& problem, linear_loss_options const& options, linear_loss_outputs const& out,
                  host_gradients<T>& gradients, workspace const& space) {
  using clock = std::chrono::steady_clock;
  auto const start = clock::now();
  Loss::forward(problem.exec, problem.inputs(), options, out, space);
  Loss::backward(problem.exec, problem.inputs(), options, {}, gradients.views(problem.shape), space);
  problem.exec.wait();
  return std::chrono::duration<double>(clock::now() - start).count();
}

/// Throws unless `value` is at most `limit`; throws for a NaN.
void require_at_most(double value, double limit, std::string const& what) {
  if (!(value <= limit)) {
    throw std::runtime_error(what + " is " + std::to_string(value) + " but must be at most " + std::to_string(limit));
  }
}

/// The relative distance |found - expected| / |expected|.
template <class T, class Expected>
double relative_distance(std::span<T const> found, std::span<Expected const> expected) {
  double apart = 0;
  double length = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    auto const value = static_cast<double>(expected[i]);
    double const difference = static_cast<double>(load(found[i])) - value;
    apart += difference * difference;
    length += value * value;
  }
  return std::sqrt(apart / length);
}

/// What all softmaxes say about the blocks.
struct survey {
  double kept;                      ///< part of the blocks, with entries in the vocabulary's own order
  double kept_ordered;              ///< the same with entries in `order`
  double kept_by_use;               ///< the same in falling order of the number of blocks that entries matter to
  std::vector<std::int32_t> order;  ///< the entries in the order of sm_90a
  double worst_total = 0;           ///< largest |1 - sum of a token's softmax|
  double loss = 0;                  ///< mean over tokens
};

survey survey_softmax(host_loss_problem const& problem, std::vector<float> const& log_sum_exps) {
  linear_loss_shape const& shape = problem.shape;
  auto const vocabulary = static_cast<std::size_t>(shape.vocabulary);
  auto const blocks = static_cast<std::size_t>(divide_up(shape.tokens, std::int64_t{filter::rows}));
  std::vector<unsigned char> matters(blocks * vocabulary);
  std::vector<double> totals(static_cast<std::size_t>(shape.tokens));
  double loss = 0;
  problem.for_logits([&](std::int64_t first, auto logits) {
    for (std::int64_t token = 0; token < shape.tokens; ++token) {
      auto const at = static_cast<std::size_t>(token);
      unsigned char* const row = &matters[at / filter::rows * vocabulary + static_cast<std::size_t>(first)];
      std::int64_t const label = problem.labels[at] - first;
      for (std::int64_t column = 0; column < logits.extent(1); ++column) {
        float const log_softmax = logits(token, column) - log_sum_exps[at];
        float const softmax = std::exp(log_softmax);
        totals[at] += static_cast<double>(softmax);
        loss -= column == label ? static_cast<double>(log_softmax) : 0.0;
        bool const is_below = std::abs(softmax - (column == label ? 1.0F : 0.0F)) < filter::threshold;
        row[column] = static_cast<unsigned char>(row[column] | (is_below ? 0 : 1));
      }
    }
  });
  auto const part = [&](std::vector<std::size_t> const& entries) {
    return bench::kept_blocks(matters, entries, filter::columns);
  };
  std::vector<std::int32_t> order = tessera_examples::entries_in_order(problem.exec, matters, shape.vocabulary);
  survey result{part(bench::in_own_order(vocabulary)), part({order.begin(), order.end()}),
                part(bench::by_use(matters, vocabulary)), std::move(order)};
  result.loss = loss / static_cast<double>(shape.tokens);
  for (double const total : totals) {
    double const apart = std::abs(1 - total);
    result.worst_total = apart <= result.worst_total ? result.worst_total : apart;  // a NaN stays
  }
  return result;
}

/// A problem, with what is computed for it once for all measurements.
struct known_problem {
  host_loss_problem problem;
  host_gradients<float> exact{problem};
  std::vector<float> log_sum_exps = std::vector<float>(problem.labels.size());
  survey softmax{};

  explicit known_problem(host_loss_problem given) : problem(std::move(given)) {
    using loss = exact_cross_entropy;
    auto const plan = loss::plan_backward<float>(problem.exec, problem.shape);
    buffer<std::byte> memory(problem.exec, plan.bytes());
    float value = 0;
    run_passes<loss>(problem, {}, {.loss = {&value, 1}, .log_sum_exp = log_sum_exps}, exact, workspace(plan, memory));
    softmax = survey_softmax(problem, log_sum_exps);
    require_at_most(softmax.worst_total, 1e-3, "the worst sum of a softmax less 1");
    require_at_most(std::abs(softmax.loss - static_cast<double>(value)), 1e-4 * softmax.loss, "the error of the loss");
    for (std::size_t i = 0; i < 4; ++i) {
      std::size_t const token = i * (problem.labels.size() - 1) / 3;
      check_token(token);
      check_entry(static_cast<std::size_t>(problem.labels[token]));
      check_entry((i + 1) * static_cast<std::size_t>(problem.shape.vocabulary) / 5);
    }
  }

 private:
  [[nodiscard]] std::size_t channels() const { return static_cast<std::size_t>(problem.shape.channels); }

  /// A logit in double.
  [[nodiscard]] double logit(std::size_t token, std::size_t entry) const {
    double sum = 0;
    for (std::size_t k = 0; k < channels(); ++k) {
      sum += static_cast<double>(load(problem.hidden[token * channels() + k])) *
             static_cast<double>(load(problem.classifier[entry * channels() + k]));
    }
    return sum;
  }
  /// The gradient by a logit, where `log_sum_exp` is that of the token.
  [[nodiscard]] double by_logit(double logit, double log_sum_exp, std::size_t token, std::size_t entry) const {
    bool const is_label = static_cast<std::size_t>(problem.labels[token]) == entry;
    return (std::exp(logit - log_sum_exp) - (is_label ? 1 : 0)) / static_cast<double>(problem.shape.tokens);
  }
  static void add(double factor, bfloat16 const* row, std::vector<double>& sums) {
    for (std::size_t k = 0; k < sums.size(); ++k) {
      sums[k] += factor * static_cast<double>(load(row[k]));
    }
  }

  /// Compares the hidden gradient of a token with that in double.
  void check_token(std::size_t token) const {
    auto const vocabulary = static_cast<std::size_t>(problem.shape.vocabulary);
    std::vector<double> logits(vocabulary);
    for (std::size_t entry = 0; entry < vocabulary; ++entry) {
      logits[entry] = logit(token, entry);
    }
    double const largest = *std::max_element(logits.begin(), logits.end());
    double total = 0;
    for (double const each : logits) {
      total += std::exp(each - largest);
    }
    double const log_sum_exp = largest + std::log(total);
    require_at_most(std::abs(log_sum_exp - static_cast<double>(log_sum_exps[token])), 1e-4 * std::abs(log_sum_exp),
                    "the error of a log-sum-exp");
    std::vector<double> expected(channels());
    for (std::size_t entry = 0; entry < vocabulary; ++entry) {
      add(by_logit(logits[entry], log_sum_exp, token, entry), &problem.classifier[entry * channels()], expected);
    }
    std::span<float const> const found(&exact.hidden[token * channels()], channels());
    require_at_most(relative_distance<float, double>(found, expected), 5e-3, "the error of a token's exact gradient");
  }

  /// Compares the gradient of a row of the classifier with that in double.
  void check_entry(std::size_t entry) const {
    std::vector<double> expected(channels());
    for (std::size_t token = 0; token < problem.labels.size(); ++token) {
      double const factor = by_logit(logit(token, entry), static_cast<double>(log_sum_exps[token]), token, entry);
      add(factor, &problem.hidden[token * channels()], expected);
    }
    std::span<float const> const found(&exact.classifier[entry * channels()], channels());
    require_at_most(relative_distance<float, double>(found, expected), 5e-3, "the error of an entry's exact gradient");
  }
};

/// Says how to get the whole classifier.
std::string const hint =
    ": the whole classifier and its hidden states are needed, which python3 tests/data/make_data.py smollm2 --large "
    "DIR "
    "--tokens 8192 makes and TESSERA_TEST_DATA=DIR in the environment names";

/// SmolLM2's whole classifier and all hidden states that there are.
host_loss_problem whole_smollm2(std::string const& name) {
  bench::real_classifier real{};
  try {
    real = bench::smollm2_classifier();
  } catch (std::exception const& error) {
    throw std::runtime_error(error.what() + hint);
  }
  if (real.vocabulary != whole_vocabulary) {
    throw std::runtime_error("the classifier has " + std::to_string(real.vocabulary) + " rows but SmolLM2's has " +
                             std::to_string(whole_vocabulary) + hint);
  }
  return bench::real_loss_problem(name, real);
}

/// Keeps the last problem, since rows with the same one follow each other.
template <class Make>
known_problem& problem_of(std::string const& name, Make const& make) {
  static std::unique_ptr<known_problem> last;
  if (last == nullptr || last->problem.name != name) {
    last.reset();  // first, so that two are never in memory
    last = std::make_unique<known_problem>(make());
  }
  return *last;
}

/// The part of the classifier's rows whose gradient is zero though the exact one is not.
double rows_without_gradient(std::vector<bfloat16> const& found, std::vector<float> const& exact, std::size_t rows) {
  auto const channels = static_cast<std::ptrdiff_t>(exact.size() / rows);
  std::int64_t count = 0;
  for (std::ptrdiff_t row = 0; row < static_cast<std::ptrdiff_t>(rows); ++row) {
    auto const at = found.begin() + row * channels;
    auto const expected = exact.begin() + row * channels;
    bool const is_zero = std::all_of(at, at + channels, [](bfloat16 x) { return load(x) == 0.0F; });
    bool const has_any = std::any_of(expected, expected + channels, [](float x) { return x != 0.0F; });
    count += is_zero && has_any ? 1 : 0;
  }
  return static_cast<double>(count) / static_cast<double>(rows);
}

/// What a row measures.
struct filter_choice {
  std::string operation;        ///< in the name
  linear_loss_options options;  ///< the thresholds
  bool is_ordered = false;      ///< whether entries are in the order of sm_90a
};

host_loss_problem in_order(host_loss_problem const& problem, std::vector<std::int32_t> const& order) {
  return {problem.name, problem.shape, problem.hidden, tessera_examples::rows_in_order(problem.classifier, order),
          tessera_examples::labels_in_order(problem.labels, tessera_examples::slots_of(order))};
}

void measure(benchmark::State& state, known_problem const& known, filter_choice const& choice) {
  using loss = cut_cross_entropy;
  bool const is_whole = choice.options.classifier_threshold == 0;
  bool const is_exact = is_whole && choice.options.hidden_threshold == 0;
  host_loss_problem const problem = choice.is_ordered ? in_order(known.problem, known.softmax.order) : known.problem;
  host_gradients<bfloat16> gradients(problem);
  auto const plan = loss::plan_backward(problem.exec, problem.shape, choice.options);
  buffer<std::byte> memory(problem.exec, plan.bytes());
  float value = 0;
  double seconds = 0;
  for (auto _ : state) {
    seconds = run_passes<loss>(problem, choice.options, {.loss = {&value, 1}}, gradients, workspace(plan, memory));
    state.SetIterationTime(seconds);
  }
  if (choice.is_ordered) {
    gradients.classifier =
        tessera_examples::rows_in_order(gradients.classifier, tessera_examples::slots_of(known.softmax.order));
  }
  double const hidden_error = relative_distance<bfloat16, float>(gradients.hidden, known.exact.hidden);
  double const classifier_error = relative_distance<bfloat16, float>(gradients.classifier, known.exact.classifier);
  require_at_most(hidden_error, is_exact ? 5e-3 : 1, "the error of hidden gradients");
  require_at_most(classifier_error, is_whole ? 5e-3 : 1, "the error of classifier gradients");
  require_at_most(std::abs(known.softmax.loss - static_cast<double>(value)), 1e-4 * known.softmax.loss,
                  "the error of the loss");
  state.counters["ms"] = 1e3 * seconds;
  state.counters["loss"] = static_cast<double>(value);
  state.counters["tokens"] = static_cast<double>(problem.shape.tokens);
  state.counters["vocabulary"] = static_cast<double>(problem.shape.vocabulary);
  state.counters["channels"] = static_cast<double>(problem.shape.channels);
  state.counters["extra_MiB"] = static_cast<double>(plan.bytes()) / (1 << 20);
  if (choice.is_ordered) {
    state.counters["kept_ordered"] = known.softmax.kept_ordered;
    state.counters["kept_by_use"] = known.softmax.kept_by_use;
  } else {
    state.counters["kept"] = is_exact ? 1 : known.softmax.kept;
  }
  state.counters["threshold"] = is_exact ? 0 : filter::threshold;
  state.counters["block_rows"] = filter::rows;
  state.counters["block_columns"] = filter::columns;
  state.counters["hidden_error"] = hidden_error;
  state.counters["classifier_error"] = classifier_error;
  state.counters["rows_without"] =
      rows_without_gradient(gradients.classifier, known.exact.classifier, known.softmax.order.size());
}

template <class Make>
void add_losses(std::string const& data, std::vector<filter_choice> const& choices, Make const& make) {
  for (filter_choice const& choice : choices) {
    bench::add("cut_cross_entropy/on_cpu/" + choice.operation + "/bf16/" + data,
               [=](benchmark::State& state) { measure(state, problem_of(data, [&] { return make(data); }), choice); })
        ->Iterations(1)
        ->Repetitions(1);
  }
}

bench::registration const registered([] {
  filter_choice const plain{"forward_backward", {}};
  filter_choice const ordered{"forward_backward_ordered", {}, true};
  filter_choice const full_classifier{"forward_backward_full_classifier", {.classifier_threshold = 0}};
  filter_choice const exact{"forward_backward_exact", {.hidden_threshold = 0, .classifier_threshold = 0}};
  if (bench::only_starts()) {
    add_losses("smollm2/any", {plain, ordered, full_classifier, exact},
               [](std::string const& data) { return bench::real_loss_problem(data, bench::smollm2_classifier()); });
    add_losses("zipf/200x1000x64", {plain, ordered}, [](std::string const& data) {
      return bench::zipf_loss_problem(data, {200, 1000, 64});
    });
    return;
  }
  add_losses("smollm2/whole", {plain, ordered, full_classifier, exact}, &whole_smollm2);
  add_losses("zipf/8192x49152x576", {plain, ordered}, [](std::string const& data) {
    return bench::zipf_loss_problem(data, {8192, 49152, 576});
  });
});

}  // namespace
