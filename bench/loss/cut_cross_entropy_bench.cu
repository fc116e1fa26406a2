// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Measures the loss of a language model's classifier: time, memory, what the gradient filter keeps and what it
/// changes.
///
/// `ms` is the median of cold calls. `extra_MiB` is the most device memory that was held beyond inputs and gradients,
/// which must be what the plan says. `kept` is the part of blocks (of `block_rows` tokens x `block_columns` entries)
/// that have an element at or over `threshold`, found from all logits; `kept_ordered` is that part with entries ordered
/// by how many blocks of tokens they matter to. `TFLOPs` counts what a pass must multiply: the logits, twice unless
/// there is memory for all softmaxes, and for both gradients the blocks that the better order keeps. Errors are lengths
/// of differences of bf16 gradients from exact ones in fp32. `cublas_logits_ms` is the time that cuBLAS takes to write
/// the logits alone, call by call in turn with ours. `vs_plain` is the time of log-sum-exps alone, `plain_ms`, over the
/// time of a reducer that computes more, call by call in turn.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>

#include "support/cublas.cuh"
#include "support/cuda.cuh"
#include "support/loss_check.cuh"
#include "support/loss_runs.cuh"

namespace {

using namespace tessera;
using bench::loss_data;
using bench::loss_problem;

template <class Loss>
struct filter_of;
template <class Tile, class Reducer, class Filter>
struct filter_of<linear_loss<Tile, Reducer, Filter>> {
  using type = Filter;
};

/// Both gradients of a problem. They begin as NaNs, which show where nothing was written.
template <class T>
struct gradient_arrays {
  bench::device_array<T> hidden;
  bench::device_array<T> classifier;

  explicit gradient_arrays(loss_problem& problem)
      : hidden(problem.memory(), static_cast<std::size_t>(problem.hidden().size())),
        classifier(problem.memory(), static_cast<std::size_t>(problem.classifier().size())) {
    for (auto const* array : {&hidden, &classifier}) {
      bench::check(cudaMemsetAsync(array->data(), 0xff, array->bytes(), problem.memory().stream()), "cudaMemsetAsync");
    }
  }
  linear_loss_gradients<T> views(linear_loss_shape const& shape) const {
    return {{hidden.data(), {shape.tokens, shape.channels}}, {classifier.data(), {shape.vocabulary, shape.channels}}};
  }
};

/// A loss with its workspace and its one output.
template <class Loss>
class loss_run {
 public:
  loss_run(loss_problem& problem, linear_loss_options const& options, workspace_plan plan)
      : problem_(problem), options_(options), plan_(std::move(plan)) {}

  /// Runs the forward pass. `out`: the outputs besides the loss.
  void forward(linear_loss_outputs out = {}) {
    out.loss = loss_.view();
    bench::run_forward<Loss>(problem_.exec(), problem_.inputs(), options_, out, space_);
  }
  template <class T>
  void backward(gradient_arrays<T> const& gradients) {
    bench::run_backward<Loss>(problem_.exec(), problem_.inputs(), options_, gradients.views(problem_.shape()), space_);
  }
  float loss() const {
    float value = 0;
    bench::check(cudaMemcpyAsync(&value, loss_.data(), sizeof value, cudaMemcpyDeviceToHost, problem_.exec().stream),
                 "cudaMemcpyAsync");
    problem_.exec().wait();
    return value;
  }
  std::int64_t planned_bytes() const { return plan_.bytes(); }

 private:
  loss_problem& problem_;
  linear_loss_options options_;
  workspace_plan plan_;
  buffer<float> loss_{problem_.exec(), 1};
  buffer<std::byte> memory_{problem_.exec(), plan_.bytes()};
  workspace space_{plan_, memory_};
};

/// The most device memory in use beyond what was in use at first: memory of the problem's pool, from which executor and
/// workspace take theirs, and of the device's own pool.
class extra_memory {
 public:
  explicit extra_memory(bench::device_memory& memory) : memory_(memory), before_(memory.live_bytes()) {
    int device = 0;
    bench::check(cudaGetDevice(&device), "cudaGetDevice");
    bench::check(cudaDeviceGetDefaultMemPool(&pool_, device), "cudaDeviceGetDefaultMemPool");
    std::uint64_t zero = 0;  // which makes the mark begin at what is in use
    bench::check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrUsedMemHigh, &zero), "cudaMemPoolSetAttribute");
    pool_before_ = pool_high();
    memory.reset_peak();
  }
  std::int64_t bytes() const {
    return static_cast<std::int64_t>(memory_.peak_bytes() - before_ + pool_high() - pool_before_);
  }

 private:
  std::uint64_t pool_high() const {
    std::uint64_t bytes = 0;
    bench::check(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemHigh, &bytes), "cudaMemPoolGetAttribute");
    return bytes;
  }
  bench::device_memory& memory_;
  cudaMemPool_t pool_{};
  std::size_t before_;
  std::uint64_t pool_before_ = 0;
};

/// A problem, with what is computed for it once for all measurements: the softmax, and exact gradients in fp32.
struct known_problem {
  loss_problem problem;
  std::optional<bench::softmax_survey> softmax;
  std::optional<gradient_arrays<float>> exact;

  template <class... Arguments>
  explicit known_problem(Arguments const&... arguments) : problem(arguments...) {
    using loss = exact_cross_entropy;
    linear_loss_options const options;
    auto const plan = loss::plan_backward<float>(problem.exec(), problem.shape(), options);
    loss_run<loss> run(problem, options, plan);
    bench::device_array<float> log_sum_exps(problem.memory(), static_cast<std::size_t>(problem.shape().tokens));
    exact.emplace(problem);
    linear_loss_outputs more;
    more.log_sum_exp = {log_sum_exps.data(), problem.shape().tokens};
    run.forward(more);
    run.backward(*exact);
    softmax = bench::survey<filter_of<cut_cross_entropy>::type>(problem, log_sum_exps.data());
    bench::require_at_most(softmax->worst_total, 1e-3, "the worst sum of a softmax less 1");
    bench::require_at_most(std::abs(softmax->loss - run.loss()), 1e-4 * softmax->loss, "the error of the loss");
  }
};

/// Keeps the last problem, since rows and repetitions with the same one follow each other.
known_problem& problem_of(loss_data data, linear_loss_shape const& shape) {
  static std::unique_ptr<known_problem> last;
  auto const is_wanted = [&](loss_problem const& p) {
    linear_loss_shape const& s = p.shape();
    return p.data() == data &&
           (data == loss_data::smollm2 ||
            (s.tokens == shape.tokens && s.vocabulary == shape.vocabulary && s.channels == shape.channels));
  };
  if (last == nullptr || !is_wanted(last->problem)) {
    last.reset();  // first, so that two are never in memory
    last = data == loss_data::smollm2 ? std::make_unique<known_problem>(bench::smollm2_classifier())
                                      : std::make_unique<known_problem>(data, shape);
  }
  return *last;
}

/// The median time of cold calls: of at least ten calls, and of more where they are short.
template <class Body>
double time_rounds(benchmark::State& state, cudaStream_t stream, Body const& body) {
  constexpr double wanted_seconds = 0.6;
  int rounds = 1;
  if (!bench::only_starts()) {
    double const once = bench::median_cold_seconds(stream, 1, body);
    rounds = std::clamp(static_cast<int>(wanted_seconds / once), 10, 40);
  }
  double seconds = 0;
  for (auto _ : state) {
    seconds = bench::median_cold_seconds(stream, rounds, body);
    state.SetIterationTime(seconds);
  }
  state.counters["ms"] = 1e3 * seconds;
  state.counters["rounds"] = rounds;
  return seconds;
}

/// Reports the counters that all rows have.
template <class Loss>
void report_loss(benchmark::State& state, loss_problem const& problem, loss_run<Loss> const& run,
                 extra_memory const& extra) {
  std::int64_t const bytes = extra.bytes() - static_cast<std::int64_t>(sizeof(float));  // without the loss itself
  if (bytes != run.planned_bytes()) {
    throw std::runtime_error("the plan says " + std::to_string(run.planned_bytes()) + " bytes but " +
                             std::to_string(bytes) + " were in use");
  }
  constexpr double mebibyte = 1 << 20;
  state.counters["extra_MiB"] = static_cast<double>(bytes) / mebibyte;
  state.counters["loss"] = run.loss();
  state.counters["tokens"] = static_cast<double>(problem.shape().tokens);
  state.counters["vocabulary"] = static_cast<double>(problem.shape().vocabulary);
  state.counters["channels"] = static_cast<double>(problem.shape().channels);
}

/// Measures calls in turn with cuBLAS, which writes the logits: both run at the clock of full load.
void measure_forward(benchmark::State& state, loss_data data, linear_loss_shape const& size) {
  using loss = cut_cross_entropy;
  loss_problem& problem = problem_of(data, size).problem;
  linear_loss_shape const& shape = problem.shape();
  {
    extra_memory const extra(problem.memory());
    loss_run<loss> run(problem, {}, loss::plan_forward(problem.exec(), shape));
    run.forward();
    report_loss(state, problem, run, extra);
  }
  loss_run<loss> run(problem, {}, loss::plan_forward(problem.exec(), shape));
  bench::device_array<bfloat16> logits(problem.memory(), static_cast<std::size_t>(shape.tokens * shape.vocabulary));
  bench::cublas_linear<bfloat16, bfloat16> peer(problem.memory(), shape.tokens, shape.vocabulary, shape.channels);
  cudaStream_t const stream = problem.memory().stream();
  peer.choose(problem.hidden().data, problem.classifier().data, logits.data(), stream);
  bench::race seconds{};
  for (auto _ : state) {
    seconds = bench::alternate(
        stream, [&] { run.forward(); },
        [&] { peer.run(problem.hidden().data, problem.classifier().data, logits.data(), stream); });
    state.SetIterationTime(seconds.ours);
  }
  state.counters["ms"] = 1e3 * seconds.ours;
  state.counters["cublas_logits_ms"] = 1e3 * seconds.peer;
  bench::report_cuda(state, seconds.ours, {.operations = problem.operations()});
}

template <class Loss>
void measure_gradients(benchmark::State& state, loss_data data, linear_loss_shape const& shape,
                       linear_loss_options const& options) {
  using filter = typename filter_of<Loss>::type;
  constexpr bool is_exact = filter::threshold == 0.0F;
  known_problem& known = problem_of(data, shape);
  loss_problem& problem = known.problem;
  gradient_arrays<bfloat16> const gradients(problem);
  extra_memory const extra(problem.memory());
  loss_run<Loss> run(problem, options, Loss::plan_backward(problem.exec(), problem.shape(), options));
  double const seconds = time_rounds(state, problem.memory().stream(), [&](cudaStream_t) {
    run.forward();
    run.backward(gradients);
  });
  report_loss(state, problem, run, extra);
  double const kept = is_exact ? 1 : known.softmax->kept;
  double const kept_ordered = is_exact ? 1 : known.softmax->kept_ordered;
  double const hidden_error = bench::relative_distance(gradients.hidden, known.exact->hidden, problem.memory());
  double const classifier_error =
      bench::relative_distance(gradients.classifier, known.exact->classifier, problem.memory());
  bench::require_at_most(hidden_error, is_exact ? 5e-3 : 1, "the error of hidden gradients");
  bench::require_at_most(classifier_error, is_exact ? 5e-3 : 1, "the error of classifier gradients");
  state.counters["kept"] = kept;
  state.counters["kept_ordered"] = kept_ordered;
  state.counters["threshold"] = filter::threshold;
  state.counters["block_rows"] = filter::rows;
  state.counters["block_columns"] = filter::columns;
  state.counters["hidden_error"] = hidden_error;
  state.counters["classifier_error"] = classifier_error;
  bool const has_softmaxes = run.planned_bytes() > 2 * problem.shape().tokens * problem.shape().vocabulary;
  double const products = (has_softmaxes ? 1 : 2) + 2 * std::min(kept, kept_ordered);
  bench::report_cuda(state, seconds, {.operations = products * problem.operations()});
}

template <class Loss>
void add_gradients(std::string const& operation, loss_data data, std::string const& size,
                   linear_loss_shape const& shape, linear_loss_options const& options) {
  bench::add_cuda("cut_cross_entropy/" + operation + "/bf16/" + bench::name_of(data) + "/" + size,
                  [=](benchmark::State& state) { measure_gradients<Loss>(state, data, shape, options); });
}

/// Memory for the outputs of tokens besides their losses.
class token_outputs {
 public:
  explicit token_outputs(loss_problem& problem)
      : entropy_(problem.memory(), static_cast<std::size_t>(problem.shape().tokens)),
        prediction_(problem.memory(), static_cast<std::size_t>(problem.shape().tokens)),
        tokens_(problem.shape().tokens) {}

  /// The outputs that the reducer can compute.
  template <class Reducer>
  linear_loss_outputs outputs() const {
    linear_loss_outputs out;
    if constexpr (has_reducer<entropy_reducer<float>, Reducer>) {
      out.entropy = {entropy_.data(), tokens_};
    }
    if constexpr (has_reducer<arg_max_reducer<float>, Reducer>) {
      out.prediction = {prediction_.data(), tokens_};
    }
    return out;
  }

 private:
  bench::device_array<float> entropy_;
  bench::device_array<std::int32_t> prediction_;
  std::int64_t tokens_;
};

/// Measures a reducer that computes more in turn with that of log-sum-exps.
template <class Reducer, bool HasBackward>
void measure_reducer(benchmark::State& state, linear_loss_shape const& size) {
  using loss = exact_cross_entropy_of<bfloat16, Reducer>;
  using plain = exact_cross_entropy;
  static_assert(loss::is_for_warpgroups);
  loss_problem& problem = problem_of(loss_data::spread, size).problem;
  gradient_arrays<bfloat16> const gradients(problem);
  token_outputs const told(problem);
  linear_loss_shape const& shape = problem.shape();
  loss_run<loss> run(
      problem, {},
      HasBackward ? loss::plan_backward(problem.exec(), shape) : loss::plan_forward(problem.exec(), shape));
  loss_run<plain> plain_run(
      problem, {},
      HasBackward ? plain::plan_backward(problem.exec(), shape) : plain::plan_forward(problem.exec(), shape));
  bench::race seconds{};
  for (auto _ : state) {
    seconds = bench::alternate(
        problem.memory().stream(),
        [&] {
          run.forward(told.outputs<Reducer>());
          if constexpr (HasBackward) {
            run.backward(gradients);
          }
        },
        [&] {
          plain_run.forward();
          if constexpr (HasBackward) {
            plain_run.backward(gradients);
          }
        });
    state.SetIterationTime(seconds.ours);
  }
  bench::require_at_most(std::abs(run.loss() - plain_run.loss()), 1e-5 * plain_run.loss(), "the error of the loss");
  constexpr double mebibyte = 1 << 20;
  state.counters["ms"] = 1e3 * seconds.ours;
  state.counters["plain_ms"] = 1e3 * seconds.peer;
  state.counters["vs_plain"] = seconds.peer / seconds.ours;
  state.counters["extra_MiB"] = static_cast<double>(run.planned_bytes()) / mebibyte;
  state.counters["loss"] = run.loss();
  bench::report_cuda(state, seconds.ours, {.operations = (HasBackward ? 4 : 1) * problem.operations()});
}

template <class Reducer>
void add_forward_of_reducer(std::string const& name, std::string const& size, linear_loss_shape const& shape) {
  bench::add_cuda("cut_cross_entropy/reducers/" + name + "/forward/bf16/spread/" + size,
                  [=](benchmark::State& state) { measure_reducer<Reducer, false>(state, shape); });
}
template <class Reducer>
void add_reducer(std::string const& name, std::string const& size, linear_loss_shape const& shape) {
  add_forward_of_reducer<Reducer>(name, size, shape);
  bench::add_cuda("cut_cross_entropy/reducers/" + name + "/forward_backward_exact/bf16/spread/" + size,
                  [=](benchmark::State& state) { measure_reducer<Reducer, true>(state, shape); });
}

void add_shape(linear_loss_shape const& shape) {
  std::string const size =
      std::to_string(shape.tokens) + "x" + std::to_string(shape.vocabulary) + "x" + std::to_string(shape.channels);
  bench::add_cuda("cut_cross_entropy/forward/bf16/zipf/" + size,
                  [=](benchmark::State& state) { measure_forward(state, loss_data::zipf, shape); });
  add_gradients<cut_cross_entropy>("forward_backward", loss_data::zipf, size, shape, {});
  add_gradients<cut_cross_entropy>("forward_backward", loss_data::flat, size, shape, {});
  add_gradients<cut_cross_entropy>("forward_backward", loss_data::spread, size, shape, {});
  add_gradients<exact_cross_entropy>("forward_backward_exact", loss_data::spread, size, shape, {});
  add_gradients<exact_cross_entropy>("forward_backward_exact_4GiB", loss_data::spread, size, shape,
                                     {.workspace_budget = std::int64_t{4} << 30});
  add_reducer<loss_statistics>("statistics", size, shape);
  add_reducer<bench::with_top_four>("top_four_by_push", size, shape);
  add_forward_of_reducer<bench::with_pushed_entropy>("entropy_by_push", size, shape);
}

bench::registration const registered([] {
  add_shape({8192, 256000, 2304});  // Gemma 2 2B
  add_shape({8192, 128256, 4096});  // Llama 3 8B
  add_gradients<cut_cross_entropy>("forward_backward", loss_data::smollm2, "all", {}, {});
});

}  // namespace
