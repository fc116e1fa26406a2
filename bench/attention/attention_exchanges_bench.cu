// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Measures what sage_attention2 costs where a part of it is exchanged: with a bias that is a function, linear, or in
/// memory, with lists of half of the tiles, with smoothed queries, with 4 bits, with e4m3 codes of queries and keys,
/// with wider queries and keys than values, or with packed sequences. The exchange and the alias run in turns, from
/// bf16 to bf16 ("forward") or over codes that were made before ("codes"). `of_alias` is the exchange's speed over the
/// alias's, with lists the speed for each tile that a block of 64 queries visits, with wider keys in operations a
/// second. Errors are those of 256 rows against attention in double with the same bias.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tessera/algorithm/attention/float8_attention.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/map/dense_bias.hpp>
#include <tessera/map/linear_bias.hpp>
#include <tessera/map/listed_tiles.hpp>
#include <tessera/sage_attention2.hpp>

#include "support/attention_problem.cuh"
#include "support/attention_runs.cuh"
#include "support/attention_terms.cuh"
#include "support/cuda.cuh"
#include "support/timing.cuh"

namespace {

using namespace tessera;
using bench::attention_problem;

/// sage_attention2 with smoothed queries.
using smoothed_queries = attention<smoothed<smoothed<symmetric_quantizer<8, per_thread>, sampled_mean>, block_mean>,
                                   sampled_range<float8_quantizer<float8_e4m3>>, piecewise_linear_softmax>;

/// 4 bits with a code in a byte, and exponentials.
using four_bits = attention<smoothed<smoothed<symmetric_quantizer<4, per_thread>, sampled_mean>, block_mean>,
                            float8_quantizer<float8_e4m3>, online_softmax<float>>;

/// A method's workspace, and its calls.
template <class Method, class Bias>
class exchange {
 public:
  exchange(attention_problem& problem, Bias const& bias)
      : problem_(problem),
        plan_(Method::plan_forward(problem.exec(), problem.shape())),
        memory_(problem.exec(), plan_.bytes()),
        bias_(bias) {
    Method::quantize(problem.exec(), problem.shape(), problem.inputs(), {}, codes(), space());
  }
  void forward() const {
    Method::forward(problem_.exec(), problem_.inputs(), problem_.options(), problem_.outputs(), space(),
                    attention_functions<Bias>{bias_});
  }
  void over_codes() const {
    attention_shape const& shape = problem_.shape();
    attention_call<typename Method::method, bfloat16, Bias> call{shape, problem_.options(), codes(),
                                                                 problem_.outputs()};
    call.bias = bias_;
    call.counters = Method::counters(shape, space());
    call.partials = Method::partials(shape, space());
    call.work_splits = Method::work_splits(problem_.exec(), shape, space());
    call.widened = Method::widened(problem_.exec(), shape, space());
    Method::forward(problem_.exec(), call);
  }

 private:
  workspace space() const { return workspace(plan_, memory_); }
  typename Method::heads codes() const {
    auto operands = Method::operands(problem_.shape(), space());
    operands.queries.mean_scores = {};
    return operands;
  }

  attention_problem& problem_;
  workspace_plan plan_;
  buffer<std::byte> mutable memory_;
  Bias bias_;
};

/// Reports a race whose results are the problem's. `part`: the part of the alias's operations that the exchange does.
template <class Bias>
void report(benchmark::State& state, bench::race const& seconds, attention_problem& problem, Bias const& bias,
            double part = 1) {
  constexpr double most_error = 0.02;  // queries that lose no mean, but get its scores, have 0.023
  auto const distance = problem.distance(bias);
  state.counters["of_alias"] = part * seconds.peer / seconds.ours;
  state.counters["relative_l1"] = distance.relative_l1;
  if (!(distance.relative_l1 < most_error)) {
    throw std::runtime_error("the relative L1 error is " + std::to_string(distance.relative_l1));
  }
  bench::report_cuda(state, seconds.ours, {.operations = part * problem.operations()});
}

template <class Method, class Bias>
void measure(benchmark::State& state, bool has_codes, attention_problem& problem, Bias const& bias) {
  exchange<Method, Bias> const ours(problem, bias);
  exchange<sage_attention2, no_bias> const alias(problem, {});
  bench::race seconds{};
  for (auto _ : state) {
    seconds = bench::alternate(
        problem.exec().stream, [&] { has_codes ? ours.over_codes() : ours.forward(); },
        [&] { has_codes ? alias.over_codes() : alias.forward(); });
    state.SetIterationTime(seconds.ours);
  }
  ours.forward();
  report(state, seconds, problem, bias);
}

/// Sequences of 1024 to 8192 tokens one behind the other, against the same in a padded batch.
class packed_sequences {
 public:
  explicit packed_sequences(attention_problem& problem) : problem_(problem) {
    std::vector<std::int32_t> starts;
    for (std::int32_t const length : problem.lengths()) {
      starts.push_back(static_cast<std::int32_t>(total_));
      total_ += length;
    }
    attention_inputs<bfloat16> const padded = problem.inputs();
    queries_ = pack(padded.queries, starts);
    keys_ = pack(padded.keys, starts);
    values_ = pack(padded.values, starts);
    result_ = memory_of(padded.queries);
    starts_ = std::make_unique<bench::device_array<std::int32_t>>(problem.memory(), starts.size());
    bench::check(cudaMemcpyAsync(starts_->data(), starts.data(), starts_->bytes(), cudaMemcpyHostToDevice,
                                 problem.memory().stream()),
                 "cudaMemcpyAsync");
    problem.memory().wait();
  }
  void forward(workspace const& space) const {
    attention_inputs<bfloat16> in = problem_.inputs();
    in.queries = view_of(queries_->data());
    in.keys = view_of(keys_->data());
    in.values = view_of(values_->data());
    in.query_starts = in.key_starts = {{starts_->data(), problem_.shape().batch}, total_};
    sage_attention2::forward(problem_.exec(), in, problem_.options(),
                             attention_outputs<bfloat16>{view_of(result_->data())}, space);
  }
  /// Copies results to where the problem expects them.
  void unpack() const {
    std::int64_t first = 0;
    for (std::int64_t i = 0; i < problem_.shape().batch; ++i) {
      copy_rows(result_->data(), problem_.outputs().result.data + i * problem_.outputs().result.stride(0), first, i,
                false);
      first += problem_.lengths()[static_cast<std::size_t>(i)];
    }
  }

 private:
  using memory_type = std::unique_ptr<bench::device_array<bfloat16>>;

  template <class T>
  head_view<T> view_of(T* data) const {
    attention_shape const& s = problem_.shape();
    return {data, {s.batch, s.query_heads, s.queries, s.channels}, {0, s.channels, s.query_heads * s.channels, 1}};
  }
  memory_type memory_of(head_view<bfloat16 const> const& heads) {
    return std::make_unique<bench::device_array<bfloat16>>(
        problem_.memory(), static_cast<std::size_t>(total_ * heads.extent(1) * heads.extent(3)));
  }
  memory_type pack(head_view<bfloat16 const> const& padded, std::vector<std::int32_t> const& starts) {
    memory_type packed = memory_of(padded);
    for (std::size_t i = 0; i < starts.size(); ++i) {
      auto const sequence = static_cast<std::int64_t>(i);
      copy_rows(padded.data + sequence * padded.stride(0), packed->data(), starts[i], sequence, true);
    }
    return packed;
  }
  /// Copies a sequence's heads, which lie one after the other, to between those of other heads, or back.
  void copy_rows(bfloat16 const* from, bfloat16* to, std::int64_t first, std::int64_t sequence, bool packs) const {
    attention_shape const& s = problem_.shape();
    auto const row = static_cast<std::size_t>(s.channels) * sizeof(bfloat16);
    std::size_t const between = row * static_cast<std::size_t>(s.query_heads);
    for (std::int64_t head = 0; head < s.query_heads; ++head) {
      std::int64_t const apart = head * s.queries * s.channels;
      std::int64_t const packed = (first * s.query_heads + head) * s.channels;
      bench::check(cudaMemcpy2DAsync(to + (packs ? packed : apart), packs ? between : row,
                                     from + (packs ? apart : packed), packs ? row : between, row,
                                     static_cast<std::size_t>(problem_.lengths()[static_cast<std::size_t>(sequence)]),
                                     cudaMemcpyDeviceToDevice, problem_.memory().stream()),
                   "cudaMemcpy2DAsync");
    }
  }

  attention_problem& problem_;
  std::int64_t total_ = 0;
  memory_type queries_;
  memory_type keys_;
  memory_type values_;
  memory_type result_;
  std::unique_ptr<bench::device_array<std::int32_t>> starts_;
};

void measure_listed(benchmark::State& state, bool has_codes, attention_problem& problem, std::int64_t together) {
  bench::half_lists const lists(problem, together);
  exchange<sage_attention2, listed_tiles<>> const ours(problem, {lists.list()});
  exchange<sage_attention2, no_bias> const alias(problem, {});
  bench::race seconds{};
  for (auto _ : state) {
    seconds = bench::alternate(
        problem.exec().stream, [&] { has_codes ? ours.over_codes() : ours.forward(); },
        [&] { has_codes ? alias.over_codes() : alias.forward(); });
    state.SetIterationTime(seconds.ours);
  }
  ours.forward();
  report(state, seconds, problem, bench::outside_of_lists{lists.list()}, lists.part());
}

void measure_packed(benchmark::State& state, bool is_causal) {
  std::vector<std::int32_t> lengths;
  for (std::int32_t i = 0; i < 16; ++i) {
    lengths.push_back(1024 + i * 7 % 16 * 7168 / 15);
  }
  attention_problem problem({16, 16, 16, 8192, 8192, 128}, is_causal, lengths);
  packed_sequences const packed(problem);
  auto const plan = sage_attention2::plan_forward(problem.exec(), problem.shape());
  buffer<std::byte> memory(problem.exec(), plan.bytes());
  workspace const space(plan, memory);
  exchange<sage_attention2, no_bias> const alias(problem, {});
  bench::race seconds{};
  for (auto _ : state) {
    seconds = bench::alternate(
        problem.exec().stream, [&] { packed.forward(space); }, [&] { alias.forward(); });
    state.SetIterationTime(seconds.ours);
  }
  packed.forward(space);
  packed.unpack();
  report(state, seconds, problem, no_bias{});
}

/// Queries and keys of 192 channels with values of 128, as DeepSeek-V2 has them, against the alias with 128 of both.
void measure_wide_keys(benchmark::State& state, bool has_codes, bool is_causal) {
  attention_problem problem({2, 16, 16, 16384, 16384, 192, 128}, is_causal);
  attention_problem of_alias({2, 16, 16, 16384, 16384, 128}, is_causal);
  exchange<sage_attention2, no_bias> const ours(problem, {});
  exchange<sage_attention2, no_bias> const alias(of_alias, {});
  cudaStream_t const stream = problem.exec().stream;
  cudaStream_t const stream_of_alias = of_alias.exec().stream;
  bench::event before;
  bench::event after;
  bench::race seconds{};
  for (auto _ : state) {
    seconds = bench::alternate(
        stream, [&] { has_codes ? ours.over_codes() : ours.forward(); },
        [&] {
          before.record(stream);
          before.hold_up(stream_of_alias);
          has_codes ? alias.over_codes() : alias.forward();
          after.record(stream_of_alias);
          after.hold_up(stream);
        });
    state.SetIterationTime(seconds.ours);
  }
  ours.forward();
  seconds.peer *= problem.operations() / of_alias.operations();
  report(state, seconds, problem, no_bias{});
}

constexpr attention_shape shape_of(int channels) {
  return channels == 64 ? attention_shape{2, 32, 32, 16384, 16384, 64} : attention_shape{2, 16, 16, 16384, 16384, 128};
}

/// Adds `measure`(state, whether it runs over codes, problem) for each problem.
template <class Measure>
void add_each(std::string const& what, Measure measure_one) {
  for (int const channels : {128, 64}) {
    for (bool const is_causal : {false, true}) {
      for (bool const has_codes : {false, true}) {
        std::string const name = "exchange/attention/" + what + (has_codes ? "/codes" : "/forward") + "/bf16/d" +
                                 std::to_string(channels) + "/16k" + (is_causal ? "/causal" : "");
        bench::add_cuda(name, [=](benchmark::State& state) {
          attention_problem problem(shape_of(channels), is_causal);
          measure_one(state, has_codes, problem);
        });
      }
    }
  }
}
template <class Method, class MakeBias>
void add(std::string const& what, MakeBias make_bias) {
  add_each(what, [=](benchmark::State& state, bool has_codes, attention_problem& problem) {
    auto const held = make_bias(problem);
    measure<Method>(state, has_codes, problem, held.bias());
  });
}

/// A bias without memory.
template <class Bias>
struct held_value {
  Bias value;
  Bias bias() const { return value; }
};
bench::registration const registered([] {
  for (bool const is_causal : {false, true}) {
    bench::add_cuda(
        std::string("exchange/attention/packed/forward/bf16/d128/lengths_1k_to_8k") + (is_causal ? "/causal" : ""),
        [=](benchmark::State& state) { measure_packed(state, is_causal); });
    for (bool const has_codes : {false, true}) {
      bench::add_cuda(std::string("exchange/attention/wide_keys/") + (has_codes ? "codes" : "forward") +
                          "/bf16/d192_128/16k" + (is_causal ? "/causal" : ""),
                      [=](benchmark::State& state) { measure_wide_keys(state, has_codes, is_causal); });
    }
  }
  add<sage_attention2>("bias_function", [](attention_problem& problem) {
    return held_value<bench::bias_function>{{problem.shape().query_heads}};
  });
  add<sage_attention2>("linear_bias", [](attention_problem& problem) { return bench::held_slopes(problem); });
  add<sage_attention2>("dense_bias", [](attention_problem& problem) { return bench::held_biases(problem); });
  // Random for each block of 64 queries is the worst case for loads; blocks of 128 queries have neighbours in common.
  for (std::int64_t const together : {1, 2}) {
    add_each(together == 1 ? "block_list" : "block_list_of_128",
             [=](benchmark::State& state, bool has_codes, attention_problem& problem) {
               measure_listed(state, has_codes, problem, together);
             });
  }
  add<smoothed_queries>("smoothed_queries", [](attention_problem&) { return held_value<no_bias>{}; });
  add<sage_attention2_int4>("int4", [](attention_problem&) { return held_value<no_bias>{}; });
  add<float8_attention>("float8", [](attention_problem&) { return held_value<no_bias>{}; });
  add<four_bits>("four_bits", [](attention_problem&) { return held_value<no_bias>{}; });
});

}  // namespace
