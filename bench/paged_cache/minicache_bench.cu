// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// MiniCache: decoding over a merged, quantized pair of layers, over the same keys and values in bf16, and the
/// compression of a pair.
///
/// `of_read`: what a layer's attention reads, at the rate of a kernel that only reads. `speedup`: against our own dense
/// decoding, measured beside it. `bytes_of_token`: of a key head, with what is retained and the tail; 512 in bf16.
/// `relative_l1`: of results, against dense decoding over what the cache restores to. `of_copy`: inputs read once and
/// pages written once, at the rate of a copy. `ms` is the median of cold calls, back to back so that the clock is that
/// of full load; of rows of several layers, that of one of them in a CUDA graph of all, whose caches are more than L2
/// holds: a step of a model, where a launch begins while the one before it ends.
///
/// Rows of exchanges: pages of other bits in turns with pages of 4 bits. `compress_of_4bit`: the rate of bytes of keys
/// and values in bf16 that are compressed, over that of 4 bits. `decode_of_4bit`: the rate of bytes that attention
/// reads, over that of 4 bits. `of_4bit`: the smaller of both.
#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/cache_problem.cuh"
#include "support/cuda.cuh"

namespace {

using namespace tessera;

/// The last problem, which is kept, since rows and repetitions with the same problem follow each other.
bench::cache_problem& problem_of(bench::cache_setup const& setup) {
  static std::unique_ptr<bench::cache_problem> last;
  if (last == nullptr || !(last->setup() == setup)) {
    last.reset();  // freed first, so that two problems are never in memory
    last = std::make_unique<bench::cache_problem>(setup);
  }
  return *last;
}

template <class Run>
double seconds_of(bench::cache_problem& problem, Run const& run) {
  constexpr double wanted_seconds = 0.3;
  auto const body = [&](cudaStream_t) { run(); };
  int rounds = 1;
  if (!bench::only_starts()) {
    double const once = bench::median_cold_seconds(problem.exec().stream, 3, body);
    rounds = std::clamp(static_cast<int>(wanted_seconds / once), 15, 200);
  }
  return bench::median_cold_seconds(problem.exec().stream, rounds, body);
}

void measure_dense(benchmark::State& state, bench::cache_setup const& setup) {
  bench::cache_problem& problem = problem_of(setup);
  problem.restore();
  double seconds = 0;
  for (auto _ : state) {
    seconds = seconds_of(problem, [&] { problem.attend_dense(problem.exec()); });
    state.SetIterationTime(seconds);
  }
  state.counters["ms"] = 1e3 * seconds;
  state.counters["of_read"] = problem.dense_bytes() / seconds / bench::read_ceiling();
  bench::report_cuda(state, seconds, {.bytes = problem.dense_bytes()});
}

void measure_cached(benchmark::State& state, bench::cache_setup const& setup) {
  bench::cache_problem& problem = problem_of(setup);
  problem.restore();
  double seconds = 0;
  double dense = 0;
  for (auto _ : state) {
    dense = seconds_of(problem, [&] { problem.attend_dense(problem.exec()); });
    seconds = seconds_of(problem, [&] { problem.attend(problem.exec()); });
    state.SetIterationTime(seconds);
  }
  double const bytes = problem.cached_bytes();
  state.counters["ms"] = 1e3 * seconds;
  state.counters["speedup"] = dense / seconds;
  state.counters["of_read"] = bytes / seconds / bench::read_ceiling();
  state.counters["bytes_of_token"] = 512 * bytes / problem.dense_bytes();
  state.counters["relative_l1"] = problem.distance();
  if (!(problem.distance() < 0.01)) {
    throw std::runtime_error("the relative L1 distance is " + std::to_string(problem.distance()));
  }
  bench::report_cuda(state, seconds, {.bytes = bytes});
}

/// Measures layers of the same shape one after the other in a graph, each with its own cache.
void measure_layers(benchmark::State& state, bench::cache_setup const& setup, int layers) {
  std::vector<std::unique_ptr<bench::cache_problem>> problems;
  for (int i = 0; i < layers; ++i) {
    problems.push_back(std::make_unique<bench::cache_problem>(setup));
    problems.back()->restore();
    problems.back()->wait();
  }
  bench::device_memory memory;
  tessera::cuda exec{.stream = memory.stream()};
  auto const on = [&](cudaStream_t stream) {
    exec.stream = stream;
    return exec;
  };
  double const dense = bench::graph_seconds(memory.stream(), layers, [&](cudaStream_t stream, int i) {
    problems[static_cast<std::size_t>(i)]->attend_dense(on(stream));
  });
  double const seconds = bench::time_graph(state, memory.stream(), layers, [&](cudaStream_t stream, int i) {
    problems[static_cast<std::size_t>(i)]->attend(on(stream));
  });
  double const bytes = problems[0]->cached_bytes();
  state.counters["ms"] = 1e3 * seconds;
  state.counters["dense_ms"] = 1e3 * dense;
  state.counters["speedup"] = dense / seconds;
  state.counters["of_read"] = bytes / seconds / bench::read_ceiling();
  state.counters["dense_of_read"] = problems[0]->dense_bytes() / dense / bench::read_ceiling();
  state.counters["relative_l1"] = problems[0]->distance();
  bench::report_cuda(state, seconds, {.bytes = bytes});
}

void measure_compression(benchmark::State& state, bench::cache_setup const& setup) {
  bench::cache_problem& problem = problem_of(setup);
  double seconds = 0;
  for (auto _ : state) {
    seconds = seconds_of(problem, [&] { problem.append(); });
    state.SetIterationTime(seconds);
  }
  state.counters["ms"] = 1e3 * seconds;
  bench::report_cuda(state, seconds, {.traffic_bytes = problem.compressed_traffic()});
}

/// The median rate of one problem over that of another, of calls in turns.
template <class Own, class Other>
double rate_in_turns(std::vector<double>& seconds, double bytes, Own const& own, double other_bytes,
                     Other const& other) {
  std::vector<double> ratios;
  for (int turn = 0; turn < (bench::only_starts() ? 1 : 5); ++turn) {
    double const of_other = other();
    seconds.push_back(own());
    ratios.push_back(bytes / seconds.back() * of_other / other_bytes);
  }
  std::sort(ratios.begin(), ratios.end());
  std::sort(seconds.begin(), seconds.end());
  return ratios[ratios.size() / 2];
}

/// Compresses pages of other bits, and attends to them, in turns with pages of 4 bits.
void measure_bits(benchmark::State& state, bench::cache_setup const& setup) {
  bench::cache_setup usual = setup;
  usual.bits = 4;
  usual.value_bits = 0;
  bench::cache_problem own(setup);
  bench::cache_problem four(usual);
  double compressing = 0;
  double decoding = 0;
  std::vector<double> compression;
  std::vector<double> attention;
  for (auto _ : state) {
    compressing = rate_in_turns(
        compression, 2 * own.dense_bytes(), [&] { return seconds_of(own, [&] { own.append(); }); },
        2 * four.dense_bytes(), [&] { return seconds_of(four, [&] { four.append(); }); });
    decoding = rate_in_turns(
        attention, own.cached_bytes(), [&] { return seconds_of(own, [&] { own.attend(own.exec()); }); },
        four.cached_bytes(), [&] { return seconds_of(four, [&] { four.attend(four.exec()); }); });
    state.SetIterationTime(attention[attention.size() / 2]);
  }
  own.restore();
  own.attend_dense(own.exec());
  state.counters["compress_ms"] = 1e3 * compression[compression.size() / 2];
  state.counters["compress_of_4bit"] = compressing;
  state.counters["ms"] = 1e3 * attention[attention.size() / 2];
  state.counters["decode_of_4bit"] = decoding;
  state.counters["of_4bit"] = std::min(compressing, decoding);
  state.counters["relative_l1"] = own.distance();
  if (!(own.distance() < 0.01)) {
    throw std::runtime_error("the relative L1 distance is " + std::to_string(own.distance()));
  }
}

void add_decoding(std::string const& name, attention_shape const& shape, int layers = 0) {
  bench::cache_setup const plain{shape};
  bench::add_cuda("minicache/dense_decode/bf16/" + name, [=](benchmark::State& state) { measure_dense(state, plain); });
  bench::add_cuda("minicache/decode/4bit/" + name, [=](benchmark::State& state) { measure_cached(state, plain); });
  if (layers > 0) {
    bench::add_cuda("minicache/decode/4bit/" + name + "/" + std::to_string(layers) + "_layers",
                    [=](benchmark::State& state) { measure_layers(state, plain, layers); });
  }
  bench::cache_setup one_group = plain;
  one_group.value_groups = 1;
  bench::add_cuda("minicache/decode/4bit/" + name + "/value_group_128",
                  [=](benchmark::State& state) { measure_cached(state, one_group); });
  bench::cache_setup retained = plain;
  retained.retained = 0.02;
  bench::add_cuda("minicache/decode/4bit/" + name + "/retained_2_percent",
                  [=](benchmark::State& state) { measure_cached(state, retained); });
}

bench::registration const registered([] {
  add_decoding("d128/64x4k", {64, 32, 32, 1, 4096, 128});
  add_decoding("d128/16x4k", {16, 32, 32, 1, 4096, 128});
  add_decoding("d128/16x4k_gqa4", {16, 32, 8, 1, 4096, 128}, 4);
  add_decoding("d128/1x32k_gqa4", {1, 32, 8, 1, 32768, 128}, 8);
  for (int bits : {2, 3, 8}) {
    bench::cache_setup other{{64, 32, 32, 1, 4096, 128}};
    other.bits = bits;
    bench::add_cuda("minicache/decode/" + std::to_string(bits) + "bit/d128/64x4k",
                    [=](benchmark::State& state) { measure_cached(state, other); });
  }
  bench::cache_setup three{{64, 32, 32, 1, 4096, 128}};
  three.bits = 3;
  bench::add_cuda("minicache/exchange/3bit/d128/64x4k", [=](benchmark::State& state) { measure_bits(state, three); });
  bench::cache_setup four_and_two{{64, 32, 32, 1, 4096, 128}};
  four_and_two.value_bits = 2;
  bench::add_cuda("minicache/exchange/k4v2/d128/64x4k",
                  [=](benchmark::State& state) { measure_bits(state, four_and_two); });
  bench::cache_setup whole{{16, 32, 32, 1, 4096, 128}};
  bench::add_cuda("minicache/compress/bf16/d128/32_heads/16x4k",
                  [=](benchmark::State& state) { measure_compression(state, whole); });
  whole.retained = 0.02;
  bench::add_cuda("minicache/compress/bf16/d128/32_heads/16x4k/retained_2_percent",
                  [=](benchmark::State& state) { measure_compression(state, whole); });
});

}  // namespace
