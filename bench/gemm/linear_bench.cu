// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Measures linear layers, with cuBLAS beside them. `vs_cublas` is our rate over cuBLAS's on the same data, call by
/// call in turn: under full load the card's clock moves by several per cent within a second, and moves both rates.
/// `alone_TFLOPs` is our rate where nothing else runs in between, as of programs that have no peer beside them. Of
/// operands that lie across the depth `vs_along` is our rate over that of operands along it, in turn.
///
/// Formats that end in nn have weights across the depth, as the gradient of inputs has; those that end in tn both
/// operands, as the gradient of weights has; those that end in tt inputs.
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/gemm/linear.cuh>
#include <tessera/core/math.hpp>
#include <tessera/testing/generators.hpp>

#include "support/cublas.cuh"
#include "support/cuda.cuh"

namespace {

using namespace tessera;

/// Fills an operand with random numbers: integers are normally distributed and fill 8 bits, other types are N(0, 1).
template <class T>
__global__ void fill_operand(std::uint64_t seed, T* data, std::size_t count) {
  std::size_t const step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    if constexpr (std::is_integral_v<T>) {
      float const value = round_to_even(40.0F * testing::gauss{}.value(seed, i));
      data[i] = static_cast<T>(clamp(value, -127.0F, 127.0F));
    } else {
      data[i] = testing::sample<T>(testing::gauss{}, seed, i);
    }
  }
}

template <class Operand, class Output>
struct problem {
  using value_type = typename gemm_operand<Operand>::value_type;

  std::int64_t tokens;
  std::int64_t columns;
  std::int64_t depth;
  bench::operands_across across;
  bench::device_memory memory;
  bench::device_array<value_type> inputs{memory, static_cast<std::size_t>(tokens* depth)};
  bench::device_array<value_type> weights{memory, static_cast<std::size_t>(columns* depth)};
  bench::device_array<Output> outputs{memory, static_cast<std::size_t>(tokens* columns)};
  tessera::cuda exec{.stream = memory.stream(), .memory = memory};

  problem(std::int64_t m, std::int64_t n, std::int64_t k, bench::operands_across which = {})
      : tokens(m), columns(n), depth(k), across(which) {
    fill_operand<<<1024, 256, 0, memory.stream()>>>(1, inputs.data(), inputs.size());
    fill_operand<<<1024, 256, 0, memory.stream()>>>(2, weights.data(), weights.size());
    bench::check(cudaGetLastError(), "fill_operand");
  }
  void run() const { run(across); }
  /// Runs it as if operands of this memory were those across the depth.
  void run(bench::operands_across which) const {
    linear<Operand>::forward(exec, operand(inputs.data(), tokens, which.inputs),
                             operand(weights.data(), columns, which.weights),
                             matrix_view<Output>(outputs.data(), {tokens, columns}));
  }
  double operations() const {
    return 2.0 * static_cast<double>(tokens) * static_cast<double>(columns) * static_cast<double>(depth);
  }

 private:
  matrix_view<value_type const> operand(value_type const* data, std::int64_t rows, bool is_across) const {
    if (is_across) {
      return matrix_view<value_type const>(data, {depth, rows}).transposed();
    }
    return {data, {rows, depth}};
  }
};

template <class Operand, class Output>
void measure(benchmark::State& state, std::int64_t tokens, std::int64_t columns, std::int64_t depth,
             bench::operands_across across) {
  problem<Operand, Output> layer(tokens, columns, depth, across);
  bench::cublas_linear<Operand, Output> peer(layer.memory, tokens, columns, depth, across);
  cudaStream_t const stream = layer.memory.stream();
  peer.choose(layer.inputs.data(), layer.weights.data(), layer.outputs.data(), stream);
  bench::race seconds{};
  double alone = 0;
  for (auto _ : state) {
    alone = bench::median_cold_seconds(stream, bench::samples_per_repetition, [&](cudaStream_t) { layer.run(); });
    seconds = bench::alternate(
        stream, [&] { layer.run(); },
        [&] { peer.run(layer.inputs.data(), layer.weights.data(), layer.outputs.data(), stream); });
    state.SetIterationTime(seconds.ours);
  }
  bench::report_cuda(state, seconds.ours, {.operations = layer.operations()});
  state.counters["alone_TFLOPs"] = layer.operations() / alone * 1e-12;
  state.counters["cublas_TFLOPs"] = layer.operations() / seconds.peer * 1e-12;
  state.counters["vs_cublas"] = seconds.peer / seconds.ours;
  if (across.inputs || across.weights) {
    bench::race const with_along = bench::alternate(
        stream, [&] { layer.run(); }, [&] { layer.run({}); });
    state.counters["vs_along"] = with_along.peer / with_along.ours;
  }
}

/// Compares int8 with the faster of cuBLAS's int8 and our own fp8, all three on 8192^3.
void measure_int8_over_best(benchmark::State& state) {
  constexpr std::int64_t size = 8192;
  problem<std::int8_t, std::int32_t> integers(size, size, size);
  problem<float8_e4m3, bfloat16> floats(size, size, size);
  bench::cublas_linear<std::int8_t, std::int32_t> peer(integers.memory, size, size, size);
  cudaStream_t const stream = integers.memory.stream();
  peer.choose(integers.inputs.data(), integers.weights.data(), integers.outputs.data(), stream);
  floats.memory.wait();
  floats.exec.stream = stream;
  double ours = 0;
  double best = 0;
  for (auto _ : state) {
    bench::race const with_floats = bench::alternate(
        stream, [&] { integers.run(); }, [&] { floats.run(); });
    bench::race const with_cublas = bench::alternate(
        stream, [&] { integers.run(); },
        [&] { peer.run(integers.inputs.data(), integers.weights.data(), integers.outputs.data(), stream); });
    ours = 0.5 * (with_floats.ours + with_cublas.ours);
    best = std::min(with_floats.peer * ours / with_floats.ours, with_cublas.peer * ours / with_cublas.ours);
    state.SetIterationTime(ours);
  }
  bench::report_cuda(state, ours, {.operations = integers.operations()});
  state.counters["vs_best"] = best / ours;
}

template <class Operand, class Output>
void add(std::string const& format, std::int64_t tokens, std::int64_t columns, std::int64_t depth,
         bench::operands_across across = {}) {
  std::string const name = "linear/" + format + "/gauss/" + std::to_string(tokens) + "x" + std::to_string(columns) +
                           "x" + std::to_string(depth);
  bench::add_cuda(name,
                  [=](benchmark::State& state) { measure<Operand, Output>(state, tokens, columns, depth, across); });
}

bench::registration const registered([] {
  add<bfloat16, bfloat16>("bf16", 8192, 8192, 8192);
  add<bfloat16, bfloat16>("bf16", 4096, 4096, 4096);
  add<bfloat16, bfloat16>("bf16", 8192, 28672, 4096);
  add<bfloat16, bfloat16>("bf16", 8192, 256000, 2304);
  bench::operands_across const nn{.weights = true};
  bench::operands_across const tn{.inputs = true, .weights = true};
  bench::operands_across const tt{.inputs = true};
  add<bfloat16, bfloat16>("bf16_nn", 8192, 8192, 8192, nn);
  add<bfloat16, bfloat16>("bf16_nn", 8192, 4096, 14336, nn);
  add<bfloat16, bfloat16>("bf16_tn", 8192, 8192, 8192, tn);
  add<bfloat16, bfloat16>("bf16_tn", 14336, 4096, 8192, tn);
  add<bfloat16, bfloat16>("bf16_tt", 8192, 8192, 8192, tt);
  add<float16, float16>("fp16", 8192, 8192, 8192);
  add<tf32, float>("tf32", 8192, 8192, 8192);
  add<float8_e4m3, bfloat16>("fp8_e4m3", 8192, 8192, 8192);
  add<std::int8_t, std::int32_t>("int8", 8192, 8192, 8192);
  bench::add_cuda("linear/int8_over_best/gauss/8192x8192x8192", measure_int8_over_best);
});

}  // namespace
