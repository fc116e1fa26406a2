// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Runs custom_kernel on a GPU: the same checks, then the time of a large layer beside that of cuBLAS with bf16
/// weights.
#include <cuda_runtime_api.h>

#include <cstdio>

#include <tessera/exec/cuda.cuh>
#include <tessera/testing/generators.hpp>

#include "../support/cublas_linear.hpp"
#include "../support/seconds_on_stream.hpp"
#include "gpu_part.hpp"

namespace tessera_examples {
namespace {

/// A program that makes normally distributed numbers in the executor's memory.
struct fill_gauss {
  static constexpr int lanes = 128;
  struct scratch_type {};
  array_view<bfloat16> values;
  double sigma;
  std::uint64_t seed;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      std::int64_t const i = which * lanes + lane;
      if (i < values.size()) {
        values[i] = testing::sample<bfloat16>(testing::gauss{.sigma = sigma}, seed, static_cast<std::uint64_t>(i));
      }
    }
  }
};

buffer<bfloat16> made(cuda const& exec, std::int64_t count, double sigma, std::uint64_t seed) {
  buffer<bfloat16> values(exec, count);
  exec.run(fill_gauss{values.view(), sigma, seed}, divide_up(count, std::int64_t{fill_gauss::lanes}));
  return values;
}

/// Adds a row of microseconds, GB/s of weights and TFLOP/s.
void add_row(text_table& table, std::string const& what, std::int64_t tokens, timed_shape shape, std::int64_t bytes,
             double seconds) {
  double const operations =
      2.0 * static_cast<double>(tokens) * static_cast<double>(shape.columns) * static_cast<double>(shape.depth);
  table.add({std::to_string(tokens), what, fixed(seconds * 1e6, 1),
             fixed(static_cast<double>(bytes) / seconds / 1e9, 0), fixed(operations / seconds / 1e12, 1)});
}

/// The layer that is timed, with all of its memory on the GPU.
class timed_layer {
 public:
  static constexpr std::int64_t most_tokens = 4096;

  timed_layer(cuda const& exec, timed_shape shape)
      : exec_(exec),
        shape_(shape),
        weights_(made(exec, shape.columns * shape.depth, 0.02, 1)),
        inputs_(made(exec, most_tokens * shape.depth, 1.0, 2)),
        outputs_(exec, most_tokens * shape.columns),
        layer_(exec, weights()),
        sums_(exec, layer_.partial_sums(few_tokens)),
        cublas_(exec.stream) {}

  void time(std::int64_t tokens, text_table& table) {
    add_row(table, "int4, this example", tokens, shape_, layer_.bytes(),
            seconds_on_stream(exec_.stream, 3, 10, [&] { forward(tokens); }));
    add_row(table, "bf16, cuBLAS", tokens, shape_, static_cast<std::int64_t>(weights_.bytes()),
            seconds_on_stream(exec_.stream, 3, 10, [&] { cublas_.run(inputs(tokens), weights(), outputs(tokens)); }));
  }

  /// Whether some of the outputs are right: a few columns, as double precision on the CPU takes long for more.
  bool is_right(std::int64_t tokens) {
    forward(tokens);
    auto const found = on_host<bfloat16>(exec_, {outputs_.data(), tokens * shape_.columns});
    layer_data const data{"",
                          tokens,
                          shape_.columns,
                          shape_.depth,
                          on_host<bfloat16>(exec_, {inputs_.data(), tokens * shape_.depth}),
                          on_host<bfloat16>(exec_, weights_.view())};
    constexpr std::int64_t some_columns = 30;
    layer_errors const errors = errors_of(exec_, data, layer_, found, divide_up(shape_.columns, some_columns));
    std::printf("%ld tokens: codes / bound %.3f, outputs / bound %.3f\n", static_cast<long>(tokens), errors.codes,
                errors.outputs);
    return errors.are_within_bounds();
  }

 private:
  static constexpr std::int64_t few_tokens = 16;

  void forward(std::int64_t tokens) { layer_.forward(exec_, inputs(tokens), sums_, outputs(tokens)); }
  matrix_view<bfloat16 const> weights() const { return {weights_.data(), {shape_.columns, shape_.depth}}; }
  matrix_view<bfloat16 const> inputs(std::int64_t tokens) const { return {inputs_.data(), {tokens, shape_.depth}}; }
  matrix_view<bfloat16> outputs(std::int64_t tokens) { return {outputs_.data(), {tokens, shape_.columns}}; }

  cuda const& exec_;
  timed_shape shape_;
  buffer<bfloat16> weights_;
  buffer<bfloat16> inputs_;
  buffer<bfloat16> outputs_;
  int4_layer layer_;
  buffer<float> sums_;
  cublas_linear cublas_;
};

}  // namespace

bool has_gpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

bool check_on_gpu(std::vector<layer_data> const& layers, text_table& table) {
  return check_layers(cuda{}, "GPU", layers, table);
}

bool time_on_gpu(timed_shape shape) {
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, 0), "custom_kernel", "cudaGetDeviceProperties");
  std::printf("%s, a layer of %ld x %ld\n", properties.name, static_cast<long>(shape.columns),
              static_cast<long>(shape.depth));
  cuda const exec;
  timed_layer layer(exec, shape);
  bool right = layer.is_right(1);
  right = layer.is_right(16) && right;
  right = layer.is_right(256) && right;
  text_table table({"tokens", "weights", "us", "GB/s of weights", "TFLOP/s"}, 2);
  for (std::int64_t const tokens : {1, 16, 256, 4096}) {
    layer.time(tokens, table);
  }
  exec.wait();
  table.print(stdout);
  return right;
}

}  // namespace tessera_examples
