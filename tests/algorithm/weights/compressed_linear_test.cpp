// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/weights/compressed_linear.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"
#include "support/codecs.hpp"
#include "support/linear_reference.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using tessera_test::contains;
using tessera_test::differing;
using tessera_test::gaussian;
using tessera_test::linear_reference;
using tessera_test::message_of;

namespace {

template <class Output, class Codec, class Executor, class Input, class Weight>
std::vector<Output> forward(Executor const& exec, buffer<std::byte> const& stream, weight_stream_spec const& spec,
                            std::vector<Input> const& inputs, std::vector<Weight> const& bias, std::int64_t tokens,
                            std::int64_t rows, std::int64_t columns) {
  using linear = compressed_linear<Codec>;
  std::vector<Output> outputs(static_cast<std::size_t>(tokens * rows), store<Output>(77.0F));
  auto const plan = linear::plan_forward(exec, spec);
  buffer<std::byte> memory(exec, plan.bytes());
  typename linear::layer layer{spec, stream};
  if (!bias.empty()) {
    layer.bias = bias;
  }
  linear::forward(exec, layer, matrix_view<Input const>(inputs.data(), {tokens, columns}),
                  matrix_view<Output>(outputs.data(), {tokens, rows}), workspace(plan, memory));
  return outputs;
}

/// Compares cpu with the reference, with and without a bias.
template <class Codec, class Input, class Output>
void check_layer(std::int64_t tokens, std::int64_t rows, std::int64_t columns,
                 weight_stream_options options = {.block = 1024}) {
  using T = typename Codec::value_type;
  CAPTURE(tokens, rows, columns, scalar_traits<T>::name());
  cpu const exec{.threads = 2};
  auto weights = gaussian<T>(rows * columns, 1, 0.05);
  auto const inputs = gaussian<Input>(tokens * columns, 2, 1.0);
  auto const bias = gaussian<T>(rows, 3, 0.5);
  auto const stream = Codec::encode(exec, weights, options);
  auto const spec = Codec::spec(rows * columns, options);
  Codec::decode(exec, stream, weights);  // the weights that a lossy codec keeps
  auto const plain = forward<Output, Codec>(exec, stream, spec, inputs, std::vector<T>{}, tokens, rows, columns);
  auto const biased = forward<Output, Codec>(exec, stream, spec, inputs, bias, tokens, rows, columns);
  exec.wait();
  CHECK(differing(plain, linear_reference<Output>(inputs, weights, std::vector<T>{}, tokens, rows, columns)) == 0);
  CHECK(differing(biased, linear_reference<Output>(inputs, weights, bias, tokens, rows, columns)) == 0);
}

}  // namespace

TEST_CASE("a compressed layer gives the documented bits, whatever the extents", "[host][threads]") {
  for (std::int64_t const tokens : {0, 1, 7, 15, 16, 17}) {
    check_layer<neuzip, bfloat16, bfloat16>(tokens, 64, 64);
    check_layer<neuzip, bfloat16, float>(tokens, 7, 1023);
  }
  for (std::int64_t const rows : {0, 1, 7, 124, 125, 126, 251}) {
    check_layer<neuzip, bfloat16, bfloat16>(3, rows, 33);  // a band has 125 rows
  }
  for (std::int64_t const columns : {0, 1, 7, 31, 32, 33, 1023, 1024, 1025, 5000}) {
    check_layer<neuzip, float, float>(5, 9, columns);
  }
  check_layer<neuzip, bfloat16, bfloat16>(2, 40, 700, {});
}

TEST_CASE("compressed layers work with every format and coder", "[host][threads]") {
  check_layer<neuzip_of<float16>, float16, float16>(5, 70, 65);
  check_layer<neuzip_of<float>, float, float>(5, 70, 65);
  check_layer<neuzip_of<float8_e4m3>, bfloat16, bfloat16>(5, 70, 65);
  check_layer<neuzip_of<float8_e5m2>, bfloat16, float>(5, 70, 65);
  check_layer<neuzip_fixed<bfloat16>, bfloat16, bfloat16>(5, 70, 65);
  check_layer<neuzip_lossy<3>, bfloat16, bfloat16>(5, 70, 65, {.block = 1024, .normalizer_block = 128});
}

TEST_CASE("a compressed layer keeps the rules for programs", "[host]") {
  std::int64_t const tokens = 18;
  std::int64_t const rows = 20;
  std::int64_t const columns = 333;
  auto const weights = gaussian<bfloat16>(rows * columns, 1, 0.05);
  auto const inputs = gaussian<bfloat16>(tokens * columns, 2, 1.0);
  auto const bias = gaussian<bfloat16>(rows, 3, 0.5);
  auto const stream = neuzip::encode(cpu{.threads = 1}, weights, {.block = 1024});
  auto const spec = neuzip::spec(rows * columns, {.block = 1024});
  testing::adversary const exec{.seed = 3};
  auto const outputs = forward<float, neuzip>(exec, stream, spec, inputs, bias, tokens, rows, columns);
  exec.wait();
  CHECK(differing(outputs, linear_reference<float>(inputs, weights, bias, tokens, rows, columns)) == 0);
}

TEST_CASE("a compressed layer honours strides of inputs and outputs", "[host][threads]") {
  using linear = compressed_linear<neuzip>;
  std::int64_t const tokens = 5;
  std::int64_t const rows = 33;
  std::int64_t const columns = 90;
  cpu const exec{.threads = 2};
  auto const weights = gaussian<bfloat16>(rows * columns, 1, 0.05);
  auto const inputs = gaussian<float>(tokens * columns, 2, 1.0);
  auto const stream = neuzip::encode(exec, weights);
  auto const spec = neuzip::spec(rows * columns);
  auto const plan = linear::plan_forward(exec, spec);
  buffer<std::byte> memory(exec, plan.bytes());
  std::vector<float> turned(inputs.size());
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t c = 0; c < columns; ++c) {
      turned[static_cast<std::size_t>(c * tokens + t)] = inputs[static_cast<std::size_t>(t * columns + c)];
    }
  }
  std::vector<float> spread(static_cast<std::size_t>(tokens * rows * 2), 5.0F);
  linear::forward(exec, linear::layer{spec, stream}, matrix_view<float>(turned.data(), {columns, tokens}).transposed(),
                  matrix_view<float>(spread.data(), {tokens, rows}, {2 * rows, 2}), workspace(plan, memory));
  exec.wait();
  auto const expected = linear_reference<float>(inputs, weights, std::vector<bfloat16>{}, tokens, rows, columns);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(spread[2 * i] == expected[i]);
    CHECK(spread[2 * i + 1] == 5.0F);
  }
}

TEST_CASE("a compressed layer says what does not fit together", "[host]") {
  using linear = compressed_linear<neuzip>;
  cpu const exec{.threads = 1};
  auto const weights = gaussian<bfloat16>(64 * 96, 1, 0.05);
  auto const stream = neuzip::encode(exec, weights);
  auto const spec = neuzip::spec(64 * 96);
  auto const plan = linear::plan_forward(exec, spec);
  CHECK(plan.bytes() >= static_cast<std::int64_t>(sizeof(weight_decode_table)));
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  std::vector<float> in(96 * 8);
  std::vector<float> out(64 * 8);
  std::vector<bfloat16> const bias(63);
  matrix_view<float> const inputs(in.data(), {4, 96});
  matrix_view<float> const outputs(out.data(), {4, 64});
  linear::layer layer{spec, stream};
  auto const message = [&](linear::layer const& l, matrix_view<float> x, matrix_view<float> y) {
    return message_of([&] { linear::forward(exec, l, x, y, space); });
  };
  CHECK(message(layer, inputs, outputs) == "");
  CHECK(message(layer, matrix_view<float>(in.data(), {5, 96}), outputs) ==
        "compressed_linear.forward: the inputs have 5 tokens but the outputs have 4");
  CHECK(message(layer, matrix_view<float>(in.data(), {4, 95}), outputs) ==
        "compressed_linear.forward: 64 outputs of 95 inputs take 6080 weights but the stream has 6144");
  CHECK(message(layer, inputs, matrix_view<float>(out.data(), {4, 64}, {64, 0})) ==
        "compressed_linear.forward: dimension 1 of the outputs has 64 elements with a stride of 0");
  layer.bias = bias;
  CHECK(message(layer, inputs, outputs) ==
        "compressed_linear.forward: the bias has 63 values but the outputs have 64 columns");
  layer.bias = {};
  layer.spec = neuzip_of<float16>::spec(64 * 96);
  CHECK(message(layer, inputs, outputs) ==
        "compressed_linear.forward: the stream holds elements of type 1 but the codec has type 0");
  layer.spec = neuzip_fixed<bfloat16>::spec(64 * 96);
  CHECK(message(layer, inputs, outputs) == "compressed_linear.forward: the stream has coder 2 but the codec has 1");
  layer.spec = neuzip_lossy<3>::spec(64 * 96);
  CHECK(message(layer, inputs, outputs) ==
        "compressed_linear.forward: the stream keeps 3 mantissa bits but the codec 7");
  layer.spec = spec;
  CHECK(message(layer, matrix_view<float>(nullptr, {4, 96}), outputs) ==
        "compressed_linear.forward: the inputs have no memory but 384 elements");
  CHECK(message(layer, inputs, matrix_view<float>(nullptr, {4, 64})) ==
        "compressed_linear.forward: the outputs have no memory but 256 elements");
  layer.bias = {nullptr, 64};
  CHECK(message(layer, inputs, outputs) == "compressed_linear.forward: the biases have no memory but 64 elements");
  layer.bias = {};
  layer.stream = {nullptr, stream.size()};
  CHECK_THAT(message(layer, inputs, outputs), contains("the bytes of the stream have no memory"));
  workspace_plan const empty("none");
  CHECK_THROWS_WITH(linear::forward(exec, {spec, stream}, inputs, outputs, workspace(empty, memory)),
                    "compressed_linear.forward: the workspace is of a plan of 0 bytes but 6144 weights need " +
                        std::to_string(plan.bytes()));
  layer.stream = array_view<std::byte const>(stream.data(), 100);
  CHECK_THAT(message(layer, inputs, outputs), contains("the stream has 100 bytes but needs at least"));
  layer.stream = array_view<std::byte const>(stream.data() + 1, stream.size() - 1);
  CHECK(message(layer, inputs, outputs) ==
        "compressed_linear.forward: the stream starts 1 bytes past a multiple of 16");
}

TEST_CASE("a corrupt stream under a layer is reported, and its block counts as zeros", "[host][threads]") {
  cpu const exec{.threads = 2};
  std::int64_t const rows = 64;
  std::int64_t const columns = 64;
  auto weights = gaussian<bfloat16>(rows * columns, 1, 0.05);
  auto const inputs = gaussian<float>(3 * columns, 2, 1.0);
  weight_stream_options const options{.block = 1024};
  auto const spec = neuzip::spec(rows * columns, options);
  auto stream = neuzip::encode(exec, weights, options);
  auto& entry = reinterpret_cast<weight_block_index*>(stream.data() + spec.index_offset())[2];
  entry.words = static_cast<std::uint16_t>(entry.words + 1);
  auto const outputs = forward<float, neuzip>(exec, stream, spec, inputs, std::vector<bfloat16>{}, 3, rows, columns);
  try {
    exec.wait();
    FAIL("nothing was reported");
  } catch (corrupt_data const& e) {
    CHECK(e.position() == 2);
  }
  for (std::size_t i = 2048; i < 3072; ++i) {
    weights[i] = bfloat16{};
  }
  CHECK(differing(outputs, linear_reference<float>(inputs, weights, std::vector<bfloat16>{}, 3, rows, columns)) == 0);

  stream[20] ^= std::byte{1};  // a byte of the header
  auto const nothing = forward<float, neuzip>(exec, stream, spec, inputs, std::vector<bfloat16>{}, 3, rows, columns);
  CHECK_THROWS_AS(exec.wait(), corrupt_data);
  CHECK(nothing == std::vector<float>(nothing.size()));
}
