// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Measures reductions of rows of logits in memory by several Reducers. `of_copy` is the rate of bytes read over that
/// of the bytes that a copy by a kernel reads and writes.
#include <cstdint>
#include <string>

#include <tessera/algorithm/gemm/row_reduction.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/reduce/absolute_maximum.hpp>
#include <tessera/reduce/arg_max.hpp>
#include <tessera/reduce/entropy.hpp>
#include <tessera/reduce/log_sum_exp.hpp>

#include "support/cuda.cuh"
#include "support/streaming.cuh"

namespace {

using namespace tessera;

template <class R>
void add(std::string const& reducer, std::int64_t rows, std::int64_t columns) {
  std::string const name =
      "row_reduction/" + reducer + "/bf16/gauss/" + std::to_string(rows) + "x" + std::to_string(columns);
  bench::add_cuda(name, [=](benchmark::State& state) {
    using reduction = row_reduction<R>;
    bench::device_memory memory;
    tessera::cuda const exec{.stream = memory.stream(), .memory = memory};
    bench::device_array<bfloat16> values(memory, static_cast<std::size_t>(rows * columns));
    bench::device_array<typename R::state_type> states(memory, static_cast<std::size_t>(rows));
    auto const plan = reduction::plan(exec, rows, columns);
    bench::device_array<std::byte> room(memory, static_cast<std::size_t>(plan.bytes() + 1));
    workspace const space(plan, array_view<std::byte>(room.data(), plan.bytes()));
    bench::fill(values, testing::gauss{.sigma = 3.0}, 1, memory.stream());
    double const seconds = bench::time_cold(state, memory.stream(), [&](cudaStream_t) {
      reduction::reduce(exec, R{}, matrix_view<bfloat16 const>(values.data(), {rows, columns}),
                        array_view<typename R::state_type>(states.data(), rows), space);
    });
    double const bytes = static_cast<double>(values.size() * sizeof(bfloat16));
    state.counters["ms"] = 1e3 * seconds;
    bench::report_cuda(state, seconds, {.bytes = bytes, .traffic_bytes = bytes});
  });
}

bench::registration const registered([] {
  for (std::int64_t const columns : {576, 4096, 128'256}) {
    std::int64_t const rows = columns == 576 ? 262'144 : columns == 4096 ? 32'768 : 1024;
    add<absolute_maximum_reducer<float>>("absolute_maximum", rows, columns);
    add<lse_reducer<float>>("log_sum_exp", rows, columns);
    add<entropy_reducer<float>>("entropy", rows, columns);
    add<arg_max_reducer<float>>("arg_max", rows, columns);
  }
});

}  // namespace
