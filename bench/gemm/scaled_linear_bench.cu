// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Measures linear layers of 8-bit codes with scales for groups of 128 columns, with cuBLAS's fp8 product beside them,
/// which has no scales of groups. `vs_cublas` is our rate over cuBLAS's on the same fp8 codes, call by call in turn;
/// for integers cuBLAS multiplies random fp8 codes of the same extents. `vs_linear` is our rate over that of `linear`,
/// which multiplies the same codes without scales, in turn, too.
///
/// `1x128` and `128x128`: rows and columns of weights that share a scale; of inputs, 1 x 128 do. Scales of neighbouring
/// rows lie next to each other.
#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/algorithm/gemm/linear.cuh>
#include <tessera/algorithm/gemm/scaled_linear.hpp>
#include <tessera/core/math.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/source/scaled_operand.hpp>

#include "support/cublas.cuh"
#include "support/cuda.cuh"

namespace {

using namespace tessera;

/// Normally distributed codes, which fill 8 bits.
template <class Code>
__global__ void fill_codes(std::uint64_t seed, Code* codes, std::size_t count) {
  std::size_t const step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    float const value = testing::gauss{}.value(seed, i);
    if constexpr (std::is_integral_v<Code>) {
      codes[i] = static_cast<Code>(clamp(round_to_even(40.0F * value), -127.0F, 127.0F));
    } else {
      codes[i] = store<Code>(100.0F * value);
    }
  }
}
/// Scales lie between 0.5 and 1.5 hundredths.
template <class Params>
__global__ void fill_scales(Params* scales, std::size_t count) {
  std::size_t const step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    scales[i] = {0.005F + 0.01F * static_cast<float>(i % 97) / 97.0F};
  }
}

/// Codes and scales on the device.
template <class Quantizer, int Rows>
struct scaled_matrix {
  using code = typename Quantizer::code_type;
  using params = typename Quantizer::params_type;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t scale_rows;
  std::int64_t groups;
  bench::device_array<code> codes;
  bench::device_array<params> scales;

  scaled_matrix(bench::device_memory& memory, std::int64_t m, std::int64_t n, std::uint64_t seed)
      : rows(m),
        columns(n),
        scale_rows(divide_up(m, std::int64_t{Rows})),
        groups(divide_up(n, std::int64_t{Quantizer::group})),
        codes(memory, static_cast<std::size_t>(m * n)),
        scales(memory, static_cast<std::size_t>(scale_rows * groups)) {
    fill_codes<<<1024, 256, 0, memory.stream()>>>(seed, codes.data(), codes.size());
    fill_scales<<<1024, 256, 0, memory.stream()>>>(scales.data(), scales.size());
  }
  scaled_operand<Quantizer, Rows> source() const {
    return {{codes.data(), {rows, columns}}, {scales.data(), {scale_rows, groups}, {1, scale_rows}}};
  }
};

template <class Quantizer, int Rows>
void measure(benchmark::State& state, std::int64_t tokens, std::int64_t columns, std::int64_t depth) {
  using fp8 = scaled_float_quantizer<float8_e4m3, 128>;
  bench::device_memory memory;
  cudaStream_t const stream = memory.stream();
  scaled_matrix<Quantizer, 1> const inputs(memory, tokens, depth, 1);
  scaled_matrix<Quantizer, Rows> const weights(memory, columns, depth, 2);
  scaled_matrix<fp8, 1> const peer_inputs(memory, tokens, depth, 1);
  scaled_matrix<fp8, 1> const peer_weights(memory, columns, depth, 2);
  bench::device_array<bfloat16> outputs(memory, static_cast<std::size_t>(tokens * columns));
  bench::check(cudaGetLastError(), "fill_codes");
  tessera::cuda const exec{.stream = stream, .memory = memory};
  bench::cublas_linear<float8_e4m3, bfloat16> peer(memory, tokens, columns, depth);
  peer.choose(peer_inputs.codes.data(), peer_weights.codes.data(), outputs.data(), stream);
  matrix_view<bfloat16> const results(outputs.data(), {tokens, columns});
  auto const multiply = [&] { scaled_linear::forward(exec, inputs.source(), weights.source(), results); };
  bench::race seconds{};
  bench::race beside_linear{};
  for (auto _ : state) {
    beside_linear = bench::alternate(stream, multiply, [&] {
      linear<typename Quantizer::code_type>::forward(exec, inputs.source().codes, weights.source().codes, results);
    });
    seconds = bench::alternate(stream, multiply, [&] {
      peer.run(peer_inputs.codes.data(), peer_weights.codes.data(), outputs.data(), stream);
    });
    state.SetIterationTime(seconds.ours);
  }
  double const operations =
      2.0 * static_cast<double>(tokens) * static_cast<double>(columns) * static_cast<double>(depth);
  bench::report_cuda(state, seconds.ours, {.operations = operations});
  state.counters["cublas_TFLOPs"] = operations / seconds.peer * 1e-12;
  state.counters["vs_cublas"] = seconds.peer / seconds.ours;
  state.counters["linear_TFLOPs"] = operations / beside_linear.peer * 1e-12;
  state.counters["vs_linear"] = beside_linear.peer / beside_linear.ours;
}

struct product_size {
  std::int64_t tokens;
  std::int64_t columns;
  std::int64_t depth;
};

template <class Quantizer, int Rows>
void add(std::string const& format, product_size size) {
  std::string const name = "scaled_linear/" + format + "/gauss/" + std::to_string(size.tokens) + "x" +
                           std::to_string(size.columns) + "x" + std::to_string(size.depth);
  bench::add_cuda(
      name, [=](benchmark::State& state) { measure<Quantizer, Rows>(state, size.tokens, size.columns, size.depth); });
}

bench::registration const registered([] {
  // The last one is DeepSeek-V3's first dense layer.
  for (product_size const size : {product_size{4096, 8192, 8192}, {8192, 8192, 8192}, {4096, 18432, 7168}}) {
    add<scaled_float_quantizer<float8_e4m3, 128>, 128>("fp8_e4m3_128x128", size);
    add<scaled_float_quantizer<float8_e4m3, 128>, 1>("fp8_e4m3_1x128", size);
    add<symmetric_quantizer<8, 128>, 128>("int8_128x128", size);
    add<symmetric_quantizer<8, 128>, 1>("int8_1x128", size);
  }
});

}  // namespace
