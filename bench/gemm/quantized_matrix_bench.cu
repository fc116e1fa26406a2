// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Measures how fast matrices in memory become codes of a Quantizer, and codes become matrices. `of_copy` is the rate
/// of bytes read and written over that of a copy by a kernel.
#include <cstdint>
#include <string>

#include <tessera/algorithm/gemm/quantized_matrix.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/quantize/asymmetric.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>

#include "support/cuda.cuh"
#include "support/streaming.cuh"

namespace {

using namespace tessera;

constexpr std::int64_t rows = 16384;
constexpr std::int64_t columns = 8192;

template <class Q>
struct problem {
  using method = quantized_matrix<Q>;
  static constexpr std::int64_t code_columns = method::code_columns(columns);
  static constexpr std::int64_t groups = method::groups(columns);
  static constexpr std::int64_t params_rows = Q::group == whole_tensor ? 1 : rows;

  bench::device_memory memory;
  tessera::cuda exec{.stream = memory.stream(), .memory = memory};
  bench::device_array<bfloat16> values{memory, static_cast<std::size_t>(rows* columns)};
  bench::device_array<stored_code<Q>> codes{memory, static_cast<std::size_t>(rows* code_columns)};
  bench::device_array<typename Q::params_type> params{memory, static_cast<std::size_t>(params_rows* groups)};
  workspace_plan plan = method::plan(exec, rows, columns);
  bench::device_array<std::byte> room{memory, static_cast<std::size_t>(plan.bytes() + 1)};
  workspace space{plan, array_view<std::byte>(room.data(), plan.bytes())};

  problem() {
    bench::fill(values, testing::gauss{}, 1, memory.stream());
    quantize();
    memory.wait();
  }
  void quantize() {
    method::quantize(exec, Q{}, matrix_view<bfloat16 const>(values.data(), {rows, columns}),
                     matrix_view<stored_code<Q>>(codes.data(), {rows, code_columns}),
                     matrix_view<typename Q::params_type>(params.data(), {params_rows, groups}), space);
  }
  void dequantize() {
    method::dequantize(exec, Q{}, matrix_view<stored_code<Q> const>(codes.data(), {rows, code_columns}),
                       matrix_view<typename Q::params_type const>(params.data(), {params_rows, groups}),
                       matrix_view<bfloat16>(values.data(), {rows, columns}));
  }
  [[nodiscard]] double bytes() const {
    return static_cast<double>(values.size() * sizeof(bfloat16) + codes.size() * sizeof(stored_code<Q>) +
                               params.size() * sizeof(typename Q::params_type));
  }
};

template <class Q>
void add(std::string const& format) {
  std::string const extents = "/bf16/gauss/16384x8192";
  bench::add_cuda("quantized_matrix/quantize/" + format + extents, [](benchmark::State& state) {
    problem<Q> all;
    double const seconds = bench::time_cold(state, all.memory.stream(), [&](cudaStream_t) { all.quantize(); });
    state.counters["ms"] = 1e3 * seconds;
    bench::report_cuda(state, seconds, {.bytes = all.bytes(), .traffic_bytes = all.bytes()});
  });
  bench::add_cuda("quantized_matrix/dequantize/" + format + extents, [](benchmark::State& state) {
    problem<Q> all;
    double const seconds = bench::time_cold(state, all.memory.stream(), [&](cudaStream_t) { all.dequantize(); });
    state.counters["ms"] = 1e3 * seconds;
    bench::report_cuda(state, seconds, {.bytes = all.bytes(), .traffic_bytes = all.bytes()});
  });
}

bench::registration const registered([] {
  add<symmetric_quantizer<8, 64>>("symmetric_8_by_64");
  add<symmetric_quantizer<8, 128>>("symmetric_8_by_128");
  add<two_to_a_byte<symmetric_quantizer<4, 128>>>("symmetric_4_by_128");
  add<two_to_a_byte<asymmetric_quantizer<4, 64>>>("asymmetric_4_by_64");
  add<symmetric_quantizer<8, 8192>>("symmetric_8_by_row");
  add<symmetric_quantizer<8, whole_tensor>>("symmetric_8_by_tensor");
  add<scaled_float_quantizer<float8_e4m3, 128>>("e4m3_by_128");
});

}  // namespace
