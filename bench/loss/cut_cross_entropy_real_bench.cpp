// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What the filter of gradients keeps and changes on a real model's whole classifier, and beside it on `zipf` data of
/// the same extents, on one core of the CPU.
///
///     python3 tests/data/make_data.py smollm2 --large DIR --tokens 8192
///     TESSERA_TEST_DATA=DIR tessera_bench --benchmark_filter=^cut_cross_entropy/on_cpu
///
/// `kept` is the part of blocks (of `block_rows` tokens x `block_columns` entries) with an element at or over
/// `threshold`, found from all logits, with entries in the order of the vocabulary; `kept_ordered` is that part with
/// entries ordered by how many blocks of tokens they matter to, and `kept_in_classes` with entries in the order in
/// which the backward pass on sm_90a takes them (program/loss/entry_order.hpp). Errors are lengths of differences of
/// bf16 gradients from exact ones in fp32, which are themselves compared with double for some tokens and entries.
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
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/program/loss/entry_order.hpp>

#include "support/cpu.hpp"
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

/// The entries in the order in which a filtered backward pass on sm_90a takes them, by its own programs.
std::vector<std::size_t> in_classes(cpu const& exec, std::vector<unsigned char> const& matters,
                                    std::int64_t vocabulary) {
  std::int64_t const blocks = std::ssize(matters) / vocabulary;
  std::int64_t const words = divide_up(vocabulary, std::int64_t{32});
  std::vector<std::uint32_t> live(static_cast<std::size_t>(blocks * words));
  for (std::int64_t i = 0; i < blocks * vocabulary; ++i) {
    if (matters[static_cast<std::size_t>(i)] != 0) {
      std::int64_t const entry = i % vocabulary;
      live[static_cast<std::size_t>(i / vocabulary * words + entry / 32)] |= 1U << entry % 32;
    }
  }
  std::int32_t const is_marked = 1;
  std::vector<std::int32_t> entry_of(static_cast<std::size_t>(vocabulary));
  std::vector<std::int32_t> slot_of(entry_of.size());
  std::vector<std::uint8_t> class_of(entry_of.size());
  std::vector<std::int32_t> counts(
      static_cast<std::size_t>(loss_entry_order::classes * loss_entry_order::groups(vocabulary)));
  std::int64_t alive = 0;
  std::int32_t dead_blocks = 0;
  std::int32_t own_order = 0;
  loss_entry_order const order{entry_of, slot_of, class_of, counts, {&alive, 1}, {&dead_blocks, 1}, {&own_order, 1}};
  class_entries const classify{{{live.data(), {blocks, words}}, {&is_marked, 1}}, order};
  exec.run(classify, classify.groups());
  scatter_entries const scatter{order};
  exec.run(scatter, scatter.groups());
  exec.wait();
  return {entry_of.begin(), entry_of.end()};
}

/// What all softmaxes say about the blocks.
struct survey {
  double kept;
  double kept_ordered;
  double kept_in_classes;
  double worst_total = 0;  ///< largest |1 - sum of a token's softmax|
  double loss = 0;         ///< mean over tokens
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
  survey result{part(bench::in_own_order(vocabulary)), part(bench::by_use(matters, vocabulary)),
                part(in_classes(problem.exec, matters, shape.vocabulary))};
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
double rows_without_gradient(host_gradients<bfloat16> const& found, host_gradients<float> const& exact,
                             linear_loss_shape const& shape) {
  auto const channels = static_cast<std::ptrdiff_t>(shape.channels);
  std::int64_t count = 0;
  for (std::ptrdiff_t row = 0; row < shape.vocabulary; ++row) {
    auto const at = found.classifier.begin() + row * channels;
    auto const expected = exact.classifier.begin() + row * channels;
    bool const is_zero = std::all_of(at, at + channels, [](bfloat16 x) { return load(x) == 0.0F; });
    bool const has_any = std::any_of(expected, expected + channels, [](float x) { return x != 0.0F; });
    count += is_zero && has_any ? 1 : 0;
  }
  return static_cast<double>(count) / static_cast<double>(shape.vocabulary);
}

template <class Loss>
void measure(benchmark::State& state, known_problem const& known, linear_loss_options const& options) {
  constexpr bool is_exact = std::is_same_v<Loss, exact_cross_entropy>;
  host_loss_problem const& problem = known.problem;
  host_gradients<bfloat16> gradients(problem);
  auto const plan = Loss::plan_backward(problem.exec, problem.shape, options);
  buffer<std::byte> memory(problem.exec, plan.bytes());
  float value = 0;
  double seconds = 0;
  for (auto _ : state) {
    seconds = run_passes<Loss>(problem, options, {.loss = {&value, 1}}, gradients, workspace(plan, memory));
    state.SetIterationTime(seconds);
  }
  double const hidden_error = relative_distance<bfloat16, float>(gradients.hidden, known.exact.hidden);
  double const classifier_error = relative_distance<bfloat16, float>(gradients.classifier, known.exact.classifier);
  require_at_most(hidden_error, is_exact ? 5e-3 : 1, "the error of hidden gradients");
  require_at_most(classifier_error, is_exact || options.classifier_threshold == 0 ? 5e-3 : 1,
                  "the error of classifier gradients");
  require_at_most(std::abs(known.softmax.loss - static_cast<double>(value)), 1e-4 * known.softmax.loss,
                  "the error of the loss");
  state.counters["ms"] = 1e3 * seconds;
  state.counters["loss"] = static_cast<double>(value);
  state.counters["tokens"] = static_cast<double>(problem.shape.tokens);
  state.counters["vocabulary"] = static_cast<double>(problem.shape.vocabulary);
  state.counters["channels"] = static_cast<double>(problem.shape.channels);
  state.counters["extra_MiB"] = static_cast<double>(plan.bytes()) / (1 << 20);
  state.counters["kept"] = is_exact ? 1 : known.softmax.kept;
  state.counters["kept_ordered"] = is_exact ? 1 : known.softmax.kept_ordered;
  state.counters["kept_in_classes"] = is_exact ? 1 : known.softmax.kept_in_classes;
  state.counters["threshold"] = is_exact ? 0 : filter::threshold;
  state.counters["block_rows"] = filter::rows;
  state.counters["block_columns"] = filter::columns;
  state.counters["hidden_error"] = hidden_error;
  state.counters["classifier_error"] = classifier_error;
  state.counters["rows_without"] = rows_without_gradient(gradients, known.exact, problem.shape);
}

/// Adds the filtered loss, that with the whole gradient of the classifier, and the exact one.
template <class Make>
void add_losses(std::string const& data, Make const& make) {
  auto const add = [&](std::string const& operation, auto const& measure_it) {
    bench::add("cut_cross_entropy/on_cpu/" + operation + "/bf16/" + data,
               [=](benchmark::State& state) { measure_it(state, problem_of(data, [&] { return make(data); })); })
        ->Iterations(1)
        ->Repetitions(1);
  };
  add("forward_backward",
      [](benchmark::State& state, known_problem const& known) { measure<cut_cross_entropy>(state, known, {}); });
  add("forward_backward_full_classifier", [](benchmark::State& state, known_problem const& known) {
    measure<cut_cross_entropy>(state, known, {.classifier_threshold = 0});
  });
  add("forward_backward_exact",
      [](benchmark::State& state, known_problem const& known) { measure<exact_cross_entropy>(state, known, {}); });
}

bench::registration const registered([] {
  if (bench::only_starts()) {
    add_losses("smollm2/any",
               [](std::string const& data) { return bench::real_loss_problem(data, bench::smollm2_classifier()); });
    add_losses("zipf/200x1000x64", [](std::string const& data) {
      return bench::zipf_loss_problem(data, {200, 1000, 64});
    });
    return;
  }
  add_losses("smollm2/whole", whole_smollm2);
  add_losses("zipf/8192x49152x576", [](std::string const& data) {
    return bench::zipf_loss_problem(data, {8192, 49152, 576});
  });
});

}  // namespace
