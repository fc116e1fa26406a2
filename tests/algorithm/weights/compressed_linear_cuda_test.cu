// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/weights/compressed_linear.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/neuzip.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"
#include "support/codecs.hpp"
#include "support/cuda.hpp"
#include "support/linear_reference.hpp"

using namespace tessera;
using tessera_test::differing;
using tessera_test::gaussian;
using tessera_test::linear_reference;

namespace {

template <class T>
buffer<T> on_device(tessera::cuda const& exec, std::vector<T> const& values) {
  buffer<T> copy(exec, static_cast<std::int64_t>(values.size()));
  exec.copy(values, copy);
  exec.wait();
  return copy;
}

/// Runs a layer on the device, with a stream that the CPU made; damage(stream) may change the stream.
template <class Output, class Codec, class Input, class Weight, class Damage>
std::vector<Output> forward(tessera::cuda const& exec, std::vector<Weight> const& weights,
                            std::vector<Input> const& inputs, std::vector<Weight> const& bias, std::int64_t tokens,
                            std::int64_t rows, Damage damage) {
  using linear = compressed_linear<Codec>;
  std::int64_t const columns = static_cast<std::int64_t>(inputs.size()) / tokens;
  weight_stream_options const options{.block = 1024};
  auto const spec = Codec::spec(rows * columns, options);
  auto const host_stream = Codec::encode(cpu{.threads = 2}, weights, options);
  std::vector<std::byte> bytes(host_stream.begin(), host_stream.end());
  damage(bytes, spec);
  auto const stream = on_device(exec, bytes);
  auto const device_inputs = on_device(exec, inputs);
  auto const device_bias = on_device(exec, bias);
  buffer<Output> outputs(exec, tokens * rows);
  auto const plan = linear::plan_forward(exec, spec);
  buffer<std::byte> memory(exec, plan.bytes());
  typename linear::layer const layer{spec, stream.view(), device_bias.view()};
  linear::forward(exec, layer, matrix_view<Input const>(device_inputs.data(), {tokens, columns}),
                  matrix_view<Output>(outputs.data(), {tokens, rows}), workspace(plan, memory));
  std::vector<Output> found(static_cast<std::size_t>(tokens * rows));
  exec.copy(outputs, found);
  return found;
}

struct no_damage {
  void operator()(std::vector<std::byte>&, weight_stream_spec const&) const {}
};
struct one_word_too_many {
  void operator()(std::vector<std::byte>& bytes, weight_stream_spec const& spec) const {
    ++reinterpret_cast<weight_block_index*>(bytes.data() + spec.index_offset())[2].words;
  }
};

template <class Codec, class Input, class Output>
void check_layer(std::int64_t tokens, std::int64_t rows, std::int64_t columns) {
  using T = typename Codec::value_type;
  CAPTURE(tokens, rows, columns, scalar_traits<T>::name());
  tessera::cuda const exec;
  auto const weights = gaussian<T>(rows * columns, 1, 0.05);
  auto const inputs = gaussian<Input>(tokens * columns, 2, 1.0);
  auto const bias = gaussian<T>(rows, 3, 0.5);
  auto const found = forward<Output, Codec>(exec, weights, inputs, bias, tokens, rows, no_damage{});
  exec.wait();
  CHECK(differing(found, linear_reference<Output>(inputs, weights, bias, tokens, rows, columns)) == 0);
}

}  // namespace

TEST_CASE("a compressed layer on a GPU gives the documented bits, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const tokens : {1, 7, 16, 17}) {
    check_layer<neuzip, bfloat16, bfloat16>(tokens, 64, 64);
    check_layer<neuzip, bfloat16, float>(tokens, 7, 1023);
  }
  for (std::int64_t const rows : {1, 7, 124, 125, 126, 251}) {
    check_layer<neuzip, bfloat16, bfloat16>(3, rows, 33);
  }
  for (std::int64_t const columns : {1, 7, 31, 32, 33, 1025, 5000}) {
    check_layer<neuzip, float, float>(5, 9, columns);
  }
}

TEST_CASE("compressed layers of every format and coder work on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_layer<neuzip_of<float16>, float16, float16>(5, 70, 65);
  check_layer<neuzip_of<float>, float, float>(5, 70, 65);
  check_layer<neuzip_of<float8_e4m3>, bfloat16, bfloat16>(5, 70, 65);
  check_layer<neuzip_fixed<bfloat16>, bfloat16, bfloat16>(5, 70, 65);
}

TEST_CASE("a corrupt stream under a layer on a GPU is reported, and its block counts as zeros", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto weights = gaussian<bfloat16>(64 * 64, 1, 0.05);
  auto const inputs = gaussian<float>(3 * 64, 2, 1.0);
  auto const bias = gaussian<bfloat16>(64, 3, 0.5);
  auto const found = forward<float, neuzip>(exec, weights, inputs, bias, 3, 64, one_word_too_many{});
  try {
    exec.wait();
    FAIL("nothing was reported");
  } catch (corrupt_data const& e) {
    CHECK(e.position() == 2);
  }
  for (std::size_t i = 2048; i < 3072; ++i) {
    weights[i] = bfloat16{};
  }
  CHECK(differing(found, linear_reference<float>(inputs, weights, bias, 3, 64, 64)) == 0);
}
