// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Measures linear layers whose weights are in a stream of NeuZip, with cuBLAS's product of bf16 weights beside them.
/// `vs_cublas` is our rate over cuBLAS's, call by call in turn; bits_per_weight is what the stream takes.
///
///     fixed     codes of a fixed length (coded_matrix, opened once), decoded while they are multiplied, or for many
///               tokens in panels that have a workspace
///     rans      rANS, decoded to memory and then multiplied, both in every call
///
/// Outputs are checked on the device against those of cuBLAS with the same weights.
#include <cstdint>
#include <stdexcept>
#include <string>

#include <tessera/algorithm/gemm/linear.cuh>
#include <tessera/algorithm/weights/coded_matrix.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/testing/generators.hpp>

#include "support/codecs.cuh"
#include "support/cublas.cuh"
#include "support/cuda.cuh"

namespace {

using namespace tessera;

__global__ void fill_values(std::uint64_t seed, float sigma, int zero_every, bfloat16* values, std::size_t count) {
  std::size_t const step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    bool const is_zero = zero_every > 0 && testing::hash(seed + 9, i) % static_cast<unsigned>(zero_every) == 0;
    values[i] = is_zero ? bfloat16{} : testing::sample<bfloat16>(testing::gauss{.sigma = sigma}, seed, i);
  }
}
/// The largest difference of two results, as the bits of a float; NaN is larger than all.
__global__ void find_difference(bfloat16 const* a, bfloat16 const* b, std::size_t count, unsigned* largest) {
  std::size_t const step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  unsigned found = 0;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    unsigned const bits = __float_as_uint(load(a[i]) - load(b[i])) & 0x7fffffffU;
    found = bits > found ? bits : found;
  }
  atomicMax(largest, found);
}

/// Weights, inputs and outputs of a layer.
struct layer {
  static constexpr std::int64_t columns = 8192;
  static constexpr std::int64_t depth = 8192;
  bench::device_memory memory;
  tessera::cuda exec{.stream = memory.stream(), .memory = memory};
  std::int64_t tokens;
  buffer<bfloat16> weights{exec, columns* depth};
  buffer<bfloat16> inputs{exec, tokens* depth};
  buffer<bfloat16> outputs{exec, tokens* columns};
  buffer<bfloat16> expected{exec, tokens* columns};

  layer(std::int64_t token_count, int zero_every) : tokens(token_count) {
    auto const size = [](auto const& all) { return static_cast<std::size_t>(all.size()); };
    fill_values<<<1024, 256, 0, exec.stream>>>(1, 0.02F, zero_every, weights.data(), size(weights));
    fill_values<<<1024, 256, 0, exec.stream>>>(2, 1.0F, 0, inputs.data(), size(inputs));
    bench::check(cudaGetLastError(), "fill_values");
  }
  [[nodiscard]] matrix_view<bfloat16 const> input_view() const { return {inputs.data(), {tokens, depth}}; }
  [[nodiscard]] matrix_view<bfloat16> output_view() { return {outputs.data(), {tokens, columns}}; }

  /// Products have about the size of sqrt(8192) * 0.02 = 1.8, and a bf16 of 8 has steps of 1 / 32.
  void require_result() {
    buffer<unsigned> largest(exec, 1);
    exec.clear(largest);
    find_difference<<<1024, 256, 0, exec.stream>>>(outputs.data(), expected.data(),
                                                   static_cast<std::size_t>(outputs.size()), largest.data());
    unsigned bits = 0;
    exec.copy(largest, array_view<unsigned>(&bits, 1));
    exec.wait();
    if (!(bit_cast<float>(bits) <= 0.07F)) {
      throw std::runtime_error("outputs differ from cuBLAS's by " + std::to_string(bit_cast<float>(bits)));
    }
  }
};

/// Measures `ours()` and cuBLAS in turn.
template <class Ours>
void measure(benchmark::State& state, layer& l, double stream_bytes, Ours const& ours) {
  bench::cublas_linear<bfloat16, bfloat16> peer(l.memory, l.tokens, layer::columns, layer::depth);
  peer.choose(l.inputs.data(), l.weights.data(), l.expected.data(), l.exec.stream);
  bench::race seconds{};
  for (auto _ : state) {
    seconds = bench::alternate(l.exec.stream, ours,
                               [&] { peer.run(l.inputs.data(), l.weights.data(), l.expected.data(), l.exec.stream); });
    state.SetIterationTime(seconds.ours);
  }
  l.require_result();
  double const operations = 2.0 * static_cast<double>(l.tokens) * layer::columns * layer::depth;
  bench::report_cuda(state, seconds.ours, {.operations = operations});
  state.counters["cublas_TFLOPs"] = operations / seconds.peer * 1e-12;
  state.counters["vs_cublas"] = seconds.peer / seconds.ours;
  state.counters["bits_per_weight"] = 8 * stream_bytes / (layer::columns * layer::depth);
}

void measure_fixed(benchmark::State& state, std::int64_t tokens, int zero_every) {
  using codec = neuzip_fixed<bfloat16>;
  using matrix = coded_matrix<codec>;
  layer l(tokens, zero_every);
  auto const spec = codec::spec(l.weights.size());
  auto const stream = codec::encode(l.exec, array_view<bfloat16 const>(l.weights.data(), l.weights.size()));
  auto const plan = matrix::plan_open(l.exec, spec);
  buffer<std::byte> memory(l.exec, plan.bytes());
  auto const weights = matrix::open(
      l.exec, {spec, array_view<std::byte const>(stream.data(), stream.size()), layer::columns, layer::depth},
      workspace(plan, memory));
  l.exec.wait();
  auto const panels = linear<bfloat16>::plan_forward(l.exec, tokens, weights);
  buffer<std::byte> room(l.exec, panels.bytes());
  workspace const space(panels, room);
  measure(state, l, static_cast<double>(stream.bytes()),
          [&] { linear<bfloat16>::forward(l.exec, l.input_view(), weights, l.output_view(), space); });
  state.counters["workspace_MB"] = static_cast<double>(panels.bytes()) * 1e-6;
}

void measure_rans(benchmark::State& state, std::int64_t tokens, int zero_every) {
  layer l(tokens, zero_every);
  auto const spec = neuzip::spec(l.weights.size());
  auto const stream = neuzip::encode(l.exec, array_view<bfloat16 const>(l.weights.data(), l.weights.size()));
  auto const plan = neuzip::plan_decode(l.exec, spec);
  buffer<std::byte> memory(l.exec, plan.bytes());
  buffer<bfloat16> decoded(l.exec, l.weights.size());
  measure(state, l, static_cast<double>(stream.bytes()), [&] {
    neuzip::decode(l.exec, spec, stream, decoded, workspace(plan, memory));
    linear<bfloat16>::forward(l.exec, l.input_view(),
                              matrix_view<bfloat16 const>(decoded.data(), {layer::columns, layer::depth}),
                              l.output_view());
  });
}

bench::registration const registered([] {
  for (std::int64_t const tokens : {1, 16, 512, 2048, 4096, 16384}) {
    std::string const shape = std::to_string(tokens) + "x8192x8192";
    bench::add_cuda("linear/decoded_fixed/gauss/" + shape,
                    [=](benchmark::State& state) { measure_fixed(state, tokens, 0); });
    bench::add_cuda("linear/decoded_rans/gauss/" + shape,
                    [=](benchmark::State& state) { measure_rans(state, tokens, 0); });
  }
  for (std::int64_t const tokens : {16, 4096}) {
    bench::add_cuda("linear/decoded_fixed/gauss_with_zeros/" + std::to_string(tokens) + "x8192x8192",
                    [=](benchmark::State& state) { measure_fixed(state, tokens, 100); });
  }
});

}  // namespace
