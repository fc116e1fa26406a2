// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Measures linear layers whose weights come from a source, with cuBLAS's product of bf16 weights beside them: what it
/// costs to exchange weights in memory for codes that are decoded on the way. `vs_cublas` is our rate over cuBLAS's,
/// call by call in turn; workspace_MB is what panels of the weights have, 0 where weights are multiplied as they are
/// made: with few tokens, and in the rows without_workspace.
#include <cstddef>
#include <cstdint>
#include <string>

#include <tessera/algorithm/gemm/linear.cuh>
#include <tessera/exec/buffer.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/source/dequantized.hpp>
#include <tessera/tile/source/scaled_codes.hpp>

#include "support/cublas.cuh"
#include "support/cuda.cuh"

namespace {

using namespace tessera;

/// Codes are normally distributed as bytes, which are also pairs of codes of 4 bits.
__global__ void fill_codes(std::uint64_t seed, std::uint8_t* codes, std::size_t count) {
  std::size_t const step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    codes[i] = static_cast<std::uint8_t>(static_cast<int>(testing::gauss{}.value(seed, i) * 64.0F));
  }
}
/// Scales lie between 0.5 and 1.5 hundredths.
__global__ void fill_scales(symmetric_params* scales, std::size_t count) {
  std::size_t const step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    scales[i] = {0.005F + 0.01F * static_cast<float>(i % 97) / 97.0F};
  }
}
__global__ void fill_values(std::uint64_t seed, bfloat16* values, std::size_t count) {
  std::size_t const step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    values[i] = testing::sample<bfloat16>(testing::gauss{}, seed, i);
  }
}

template <class Quantizer, class Source>
void measure(benchmark::State& state, std::int64_t tokens, std::int64_t columns, std::int64_t depth,
             linear_options const& options) {
  using source = Source;
  using element = stored_code<Quantizer>;
  constexpr int in_element = source::is_packed ? 2 : 1;
  bench::device_memory memory;
  auto const elements = [](std::int64_t rows, std::int64_t row) { return static_cast<std::size_t>(rows * row); };
  bench::device_array<element> codes(memory, elements(columns, depth / in_element));
  bench::device_array<symmetric_params> scales(memory, elements(columns, depth / Quantizer::group));
  bench::device_array<bfloat16> weights(memory, elements(columns, depth));
  bench::device_array<bfloat16> inputs(memory, elements(tokens, depth));
  bench::device_array<bfloat16> outputs(memory, elements(tokens, columns));
  cudaStream_t const stream = memory.stream();
  fill_codes<<<1024, 256, 0, stream>>>(1, reinterpret_cast<std::uint8_t*>(codes.data()), codes.size());
  fill_scales<<<1024, 256, 0, stream>>>(scales.data(), scales.size());
  fill_values<<<1024, 256, 0, stream>>>(2, weights.data(), weights.size());
  fill_values<<<1024, 256, 0, stream>>>(3, inputs.data(), inputs.size());
  bench::check(cudaGetLastError(), "fill_values");
  tessera::cuda const exec{.stream = stream, .memory = memory};
  source const from_codes{
      {}, {codes.data(), {columns, depth / in_element}}, {scales.data(), {columns, depth / Quantizer::group}}};
  auto const plan = linear<bfloat16>::plan_forward(exec, tokens, from_codes, options);
  buffer<std::byte> room(exec, plan.bytes());
  workspace const space(plan, room);
  bench::cublas_linear<bfloat16, bfloat16> peer(memory, tokens, columns, depth);
  peer.choose(inputs.data(), weights.data(), outputs.data(), stream);
  bench::race seconds{};
  for (auto _ : state) {
    seconds = bench::alternate(
        stream,
        [&] {
          linear<bfloat16>::forward(exec, matrix_view<bfloat16 const>(inputs.data(), {tokens, depth}), from_codes,
                                    matrix_view<bfloat16>(outputs.data(), {tokens, columns}), space, options);
        },
        [&] { peer.run(inputs.data(), weights.data(), outputs.data(), stream); });
    state.SetIterationTime(seconds.ours);
  }
  double const operations =
      2.0 * static_cast<double>(tokens) * static_cast<double>(columns) * static_cast<double>(depth);
  bench::report_cuda(state, seconds.ours, {.operations = operations});
  state.counters["cublas_TFLOPs"] = operations / seconds.peer * 1e-12;
  state.counters["vs_cublas"] = seconds.peer / seconds.ours;
  state.counters["workspace_MB"] = static_cast<double>(plan.bytes()) * 1e-6;
}

/// Source: dequantized, whose values are rounded, or scaled_codes, of which sums may be scaled.
template <class Quantizer, template <class, class> class Source = dequantized>
void add(std::string const& format, std::int64_t tokens, linear_options const& options = {}) {
  constexpr std::int64_t size = 8192;
  std::string const name = "linear/" + format + "/gauss/" + std::to_string(tokens) + "x8192x8192";
  bench::add_cuda(name, [=](benchmark::State& state) {
    measure<Quantizer, Source<Quantizer, bfloat16>>(state, tokens, size, size, options);
  });
}

bench::registration const registered([] {
  using codes_of_8_bits = symmetric_quantizer<8, 128>;
  using codes_of_4_bits = two_to_a_byte<symmetric_quantizer<4, 128>>;
  for (std::int64_t const tokens : {1, 16, 512, 2048, 4096, 16384}) {
    add<codes_of_8_bits>("w8a16", tokens);
    add<codes_of_4_bits>("w4a16", tokens);
  }
  for (std::int64_t const tokens : {2048, 4096, 16384}) {
    add<codes_of_8_bits>("w8a16_without_workspace", tokens, {.workspace_budget = 0});
    add<codes_of_4_bits>("w4a16_without_workspace", tokens, {.workspace_budget = 0});
  }
  for (std::int64_t const tokens : {1, 16}) {
    add<codes_of_8_bits, scaled_codes>("w8a16_scaled", tokens);
    add<codes_of_4_bits, scaled_codes>("w4a16_scaled", tokens);
  }
});

}  // namespace
