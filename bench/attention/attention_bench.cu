// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Measures SageAttention2: whole calls from bf16 to bf16, quantization alone, and attention over codes.
///
/// Data have offsets (support/attention_problem.cuh), except where the name ends in `normal`: those are N(0, 1), and
/// their results are near zero, so that the same errors are larger relative to them. `TFLOPs` counts 4 operations for
/// each channel of each pair of a query and a key that a sequence really has, half of the pairs if causal. Errors are
/// those of 256 rows against attention in double. `of_copy` compares quantization with reading each input once and
/// writing each code once, at the rate of a copy. `of_read` compares decoding with reading codes and scales of keys and
/// values once, at the rate of a kernel that only reads. `ms` is the median of cold calls, back to back so that the
/// clock is that of full load.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <tessera/exec/buffer.hpp>
#include <tessera/sage_attention2.hpp>

#include "support/attention_problem.cuh"
#include "support/attention_runs.cuh"
#include "support/cuda.cuh"

namespace {

using namespace tessera;
using method = sage_attention2;

enum class part { all, quantization, attention, decoding };

/// Codes and scales of keys and values.
double key_and_value_bytes(attention_shape const& s) {
  constexpr double bytes_of_key_scales = 0.125;  // of a token
  auto const tokens = static_cast<double>(s.batch * s.key_heads * s.keys);
  auto const channels = static_cast<double>(s.channels);
  return tokens * (2 * channels + bytes_of_key_scales) + 4 * channels * static_cast<double>(s.batch * s.key_heads);
}

/// Keeps the last problem, since rows and repetitions with the same one follow each other.
bench::attention_problem& problem_of(attention_shape const& shape, bool is_causal,
                                     std::vector<std::int32_t> const& lengths, bench::attention_data data) {
  static std::unique_ptr<bench::attention_problem> last;
  if (last == nullptr || !(last->shape() == shape) || last->options().is_causal != is_causal ||
      last->lengths() != lengths || last->data() != data) {
    last.reset();  // first, so that two are never in memory
    last = std::make_unique<bench::attention_problem>(shape, is_causal, lengths, data);
  }
  return *last;
}

void measure(benchmark::State& state, part what, attention_shape const& shape, bool is_causal,
             std::vector<std::int32_t> const& lengths = {},
             bench::attention_data data = bench::attention_data::with_offsets) {
  bench::attention_problem& problem = problem_of(shape, is_causal, lengths, data);
  auto const& exec = problem.exec();
  auto const plan = method::plan_forward(exec, shape);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  auto codes = method::operands(shape, space);
  codes.queries.mean_scores = {};
  attention_call<method::method, bfloat16> call{
      shape, problem.options(), codes, problem.outputs(), problem.device_lengths(), problem.device_lengths()};
  call.counters = method::counters(shape, space);
  call.partials = method::partials(shape, space);
  call.work_splits = method::work_splits(exec, shape, space);
  call.halves_of_values = method::halves_of_values(exec, shape, space);
  method::quantize(exec, shape, problem.inputs(), {.softmax_scale = problem.options().softmax_scale}, codes, space);
  auto const run = [&](cudaStream_t) {
    if (what == part::all) {
      method::forward(exec, problem.inputs(), problem.options(), problem.outputs(), space);
    } else if (what == part::quantization) {
      method::quantize(exec, shape, problem.inputs(), {.softmax_scale = problem.options().softmax_scale}, codes, space);
    } else {
      method::forward(exec, call);
    }
  };
  constexpr double wanted_seconds = 0.5;
  int rounds = 1;
  if (!bench::only_starts()) {
    double const once = bench::median_cold_seconds(exec.stream, 3, run);
    rounds = std::clamp(static_cast<int>(wanted_seconds / once), 15, 200);
  }
  double seconds = 0;
  for (auto _ : state) {
    seconds = bench::median_cold_seconds(exec.stream, rounds, run);
    state.SetIterationTime(seconds);
  }
  state.counters["ms"] = 1e3 * seconds;
  if (what == part::quantization) {
    bench::report_cuda(state, seconds, {.traffic_bytes = problem.quantized_bytes()});
    return;
  }
  auto const distance = problem.distance();
  state.counters["relative_l1"] = distance.relative_l1;
  state.counters["cosine"] = distance.cosine;
  if (!(distance.relative_l1 < 0.05)) {
    throw std::runtime_error("the relative L1 error is " + std::to_string(distance.relative_l1));
  }
  if (what == part::decoding) {
    double const bytes = key_and_value_bytes(shape);
    state.counters["of_read"] = bytes / seconds / bench::read_ceiling();
    bench::report_cuda(state, seconds, {.bytes = bytes});
    return;
  }
  bench::report_cuda(state, seconds, {.operations = problem.operations()});
}

void add_shape(std::string const& name, attention_shape const& shape) {
  for (bool const is_causal : {false, true}) {
    std::string const size = name + (is_causal ? "/causal" : "");
    auto const add = [&](std::string const& operation, part what) {
      bench::add_cuda("attention/" + operation + "/bf16/" + size,
                      [=](benchmark::State& state) { measure(state, what, shape, is_causal); });
    };
    add("forward", part::all);
    add("codes", part::attention);
    if (!is_causal) {
      add("quantize", part::quantization);
    }
  }
}

/// The same heads without offsets.
void add_normal(std::string const& name, attention_shape const& shape) {
  for (bool const is_causal : {false, true}) {
    bench::add_cuda("attention/forward/bf16/" + name + (is_causal ? "/causal/normal" : "/normal"),
                    [=](benchmark::State& state) {
                      measure(state, part::all, shape, is_causal, {}, bench::attention_data::normal);
                    });
  }
}

/// 16 sequences of 1024 to 8192 tokens, long and short ones mixed.
void add_lengths() {
  constexpr attention_shape shape{16, 16, 16, 8192, 8192, 128};
  std::vector<std::int32_t> lengths;
  for (std::int32_t i = 0; i < 16; ++i) {
    lengths.push_back(1024 + i * 7 % 16 * 7168 / 15);
  }
  for (bool const is_causal : {false, true}) {
    std::string const size = std::string("d128/lengths_1k_to_8k") + (is_causal ? "/causal" : "");
    bench::add_cuda("attention/forward/bf16/" + size,
                    [=](benchmark::State& state) { measure(state, part::all, shape, is_causal, lengths); });
    bench::add_cuda("attention/codes/bf16/" + size,
                    [=](benchmark::State& state) { measure(state, part::attention, shape, is_causal, lengths); });
  }
}

/// Measures a problem with fewer blocks of queries than multiprocessors.
void add_few_blocks(std::string const& name, attention_shape const& shape) {
  bench::add_cuda("attention/forward/bf16/" + name,
                  [=](benchmark::State& state) { measure(state, part::all, shape, false); });
  bench::add_cuda("attention/codes/bf16/" + name,
                  [=](benchmark::State& state) { measure(state, part::attention, shape, false); });
}

void add_decoding(std::string const& name, attention_shape const& shape) {
  bench::add_cuda("attention/decode/bf16/" + name,
                  [=](benchmark::State& state) { measure(state, part::decoding, shape, false); });
}

bench::registration const registered([] {
  add_shape("d128/4k", {8, 16, 16, 4096, 4096, 128});
  add_shape("d128/16k", {2, 16, 16, 16384, 16384, 128});
  add_shape("d128/32k", {1, 8, 8, 32768, 32768, 128});
  add_shape("d64/4k", {8, 32, 32, 4096, 4096, 64});
  add_shape("d64/16k", {2, 32, 32, 16384, 16384, 64});
  add_shape("d64/32k", {1, 16, 16, 32768, 32768, 64});
  add_shape("d256/16k", {1, 16, 16, 16384, 16384, 256});
  add_normal("d128/4k", {8, 16, 16, 4096, 4096, 128});
  add_normal("d128/16k", {2, 16, 16, 16384, 16384, 128});
  add_normal("d128/32k", {1, 8, 8, 32768, 32768, 128});
  add_normal("d64/16k", {2, 32, 32, 16384, 16384, 64});
  add_normal("d256/16k", {1, 16, 16, 16384, 16384, 256});
  add_shape("d96/16k", {2, 16, 16, 16384, 16384, 96});
  add_shape("d128/16k_64_query_8_key_heads", {1, 64, 8, 16384, 16384, 128});
  add_lengths();
  add_few_blocks("d128/8_heads/1024_queries/32k", {1, 8, 8, 1024, 32768, 128});
  add_few_blocks("d128/8_heads/256_queries/32k", {1, 8, 8, 256, 32768, 128});
  add_decoding("d128/128k", {1, 32, 8, 1, 131072, 128});
  add_decoding("d128/batch64/4k", {64, 32, 8, 1, 4096, 128});
  add_decoding("d128/batch16/16k", {16, 32, 8, 1, 16384, 128});
  add_decoding("d128/batch4/64_query_heads/4_queries/32k", {4, 64, 8, 4, 32768, 128});
  add_decoding("d256/128k", {1, 32, 8, 1, 131072, 256});
  add_decoding("d96/128k", {1, 32, 8, 1, 131072, 96});
  add_decoding("d64/128k", {1, 32, 8, 1, 131072, 64});
  add_decoding("d64/batch64/4k", {64, 32, 8, 1, 4096, 64});
});

}  // namespace
