// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Runs kernel_levels on a GPU: the same checks, the level that only sm_90a has, and times beside cuBLAS.
#include <cuda_runtime_api.h>

#include <cstdio>

#include <tessera/exec/cuda.cuh>

#include "../support/cublas_linear.hpp"
#include "../support/seconds_on_stream.hpp"
#include "gpu_part.hpp"
#include "level_check.hpp"
#include "warpgroup_level.cuh"

namespace tessera_examples {
namespace {

void add_time(text_table& table, char const* name, product const& whole, double seconds) {
  double const operations = 2.0 * static_cast<double>(whole.c.size()) * static_cast<double>(whole.a.extent(1));
  table.add({name, fixed(seconds * 1e3, 3), fixed(operations / seconds / 1e12, 1)});
}

template <class Level>
void time_level(cuda const& exec, text_table& table, product const& whole, Level const& level) {
  add_time(table, Level::name, whole, seconds_on_stream(exec.stream, 1, 3, [&] { exec.run(level, level.groups()); }));
}

}  // namespace

bool has_gpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

bool check_on_gpu(text_table& table) {
  cuda const exec;
  bool right = check_portable_levels(exec, "GPU", table);
  if (exec.has<warpgroup_level>()) {
    for (product_data const& data : products_to_check()) {
      product_there<cuda> const there(exec, data);
      if (has_aligned_rows(there.whole().a) && has_aligned_rows(there.whole().b)) {
        right = check_level(exec, "GPU", data, warpgroup_level::of_product(there.whole()), there, table) && right;
      }
    }
  }
  return right;
}

void time_on_gpu() {
  cuda const exec;
  constexpr std::int64_t size = 4096;
  product_there<cuda> const there(exec, product_data::made(size, size, size));
  product const& whole = there.whole();
  text_table table({"4096 x 4096 x 4096", "ms", "TFLOP/s"}, 1);
  time_level(exec, table, whole, plain_level{whole});
  time_level(exec, table, whole, tiled_level{{whole}});
  time_level(exec, table, whole, fetched_level{{whole}});
  time_level(exec, table, whole, ring_level{{whole}});
  if (exec.has<warpgroup_level>()) {
    time_level(exec, table, whole, warpgroup_level::of_product(whole));
  }
  cublas_linear const cublas(exec.stream);
  add_time(table, "cuBLAS", whole,
           seconds_on_stream(exec.stream, 1, 10, [&] { cublas.run(whole.a, whole.b, whole.c); }));
  exec.wait();
  std::printf("\n");
  table.print(stdout);
}

}  // namespace tessera_examples
