// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/map/plain_sum.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/program/gemm/gemm_tiles.hpp>
#include <tessera/program/gemm/store_sums.hpp>
#include <tessera/program/weights/reader.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/source/decoded.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/source/open_source.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

using bf16_reader = weight_reader<bfloat16, keep_mantissa<7>>;
static_assert(ScratchSource<decoded_matrix<bf16_reader>> && !TileSource<decoded_matrix<bf16_reader>>);
static_assert(TileSource<dense<bfloat16>> && !ScratchSource<dense<bfloat16>>);
static_assert(lanes_for_sources<dense<bfloat16>, decoded_matrix<bf16_reader>>(128) == 32);
static_assert(lanes_for_sources<dense<bfloat16>, dense<bfloat16>>(128) == 128);

/// inputs * weights^T, with weights in memory and with weights that are decoded on the way.
template <class Executor>
void check_product(Executor const& exec, std::int64_t tokens, std::int64_t rows, std::int64_t columns) {
  CAPTURE(tokens, rows, columns);
  weight_stream_options const options{.block = 1024};
  std::vector<bfloat16> weights(static_cast<std::size_t>(rows * columns));
  std::vector<bfloat16> inputs(static_cast<std::size_t>(tokens * columns));
  testing::fill(testing::gauss{.sigma = 0.02}, 3, weights.data(), weights.size());
  testing::fill(testing::gauss{}, 4, inputs.data(), inputs.size());
  auto const stream = neuzip::encode(cpu{.threads = 1}, weights, options);
  weight_decode_table table;
  weight_decoding<bfloat16> decoding;
  decoding.spec = neuzip::spec(rows * columns, options);
  decoding.stream = reinterpret_cast<std::uint8_t const*>(stream.data());
  decoding.stream_bytes = static_cast<std::int64_t>(stream.size());
  decoding.table = &table;
  decoding.status = exec.status();
  exec.run(open_weights<bfloat16>{decoding}, 1);
  std::vector<float> found(static_cast<std::size_t>(tokens * rows));
  std::vector<float> expected(found.size());
  matrix_view<bfloat16 const> const x(inputs.data(), {tokens, columns});
  matrix_view<bfloat16 const> const w(weights.data(), {rows, columns});
  using output = store_sums<float, plain_sum>;
  gemm_tiles<bfloat16, dense<bfloat16>, decoded_matrix<bf16_reader>, output> const with_stream{
      {x}, {{decoding}, rows, columns}, {matrix_view<float>(found.data(), {tokens, rows}), {}}};
  gemm_tiles<bfloat16, dense<bfloat16>, dense<bfloat16>, output> const with_values{
      {x}, {w}, {matrix_view<float>(expected.data(), {tokens, rows}), {}}};
  exec.run(with_stream, with_stream.tiles());
  exec.run(with_values, with_values.tiles());
  exec.wait();
  CHECK(found == expected);
}

}  // namespace

TEST_CASE("a product with weights that are decoded on the way is the product with weights in memory",
          "[host][threads]") {
  check_product(cpu{.threads = 2}, 3, 70, 100);
  check_product(cpu{.threads = 2}, 65, 5, 1500);
  check_product(cpu{.threads = 2}, 1, 1, 1);
  check_product(testing::adversary{.seed = 6}, 2, 66, 40);
}

TEST_CASE("a source that needs no scratch is opened as itself", "[host]") {
  serial_group<32> const group;
  dense<bfloat16> const source{};
  source_scratch<dense<bfloat16>> scratch;
  CHECK(&open_source(group, source, scratch) == &source);
}
