// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include <tessera/algorithm/gemm/linear.cuh>
#include <tessera/algorithm/weights/coded_matrix.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/testing/broken_weight_streams.hpp>

#include "algorithm/weights/coded_samples.hpp"
#include "algorithm/weights/weight_samples.hpp"
#include "program/gemm/products_of_codes.cuh"
#include "support/catch.hpp"
#include "support/codecs.hpp"
#include "support/cuda.hpp"

using namespace tessera;
using tessera_test::differing;
using tessera_test::fixed_codec;
using tessera_test::opened_stream;
using tessera_test::tile_of_chunks;
using tessera_test::tile_of_elements;
using tessera_test::weight_kind;

namespace {

std::vector<std::byte> encoded(std::vector<bfloat16> const& weights, weight_stream_options options) {
  auto const stream = fixed_codec::encode(cpu{}, weights, options);
  return {stream.begin(), stream.end()};
}

/// Counts wrong products of `tokens` rows by the program that must be chosen.
template <class Output>
std::int64_t wrong_products(std::int64_t tokens, std::int64_t rows, std::int64_t columns, char const* program) {
  CAPTURE(tokens, rows, columns);
  auto const weights = tessera_test::weights_with_escapes(rows * columns, static_cast<std::uint64_t>(tokens));
  weight_stream_options const options{.block = 2048};
  opened_stream<tessera::cuda> const opened({}, fixed_codec::spec(rows * columns, options), encoded(weights, options),
                                            rows, columns);
  return tessera_test::wrong_products<Output>(tokens, opened.source(), weights, program);
}

}  // namespace

TEST_CASE("coded matrices have on a GPU the bits of their weights", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (weight_kind const kind : tessera_test::weight_kinds) {
    for (std::int64_t const columns : {std::int64_t{208}, std::int64_t{1024}, std::int64_t{515}}) {
      std::int64_t const rows = 20'001 / columns + 3;
      CAPTURE(static_cast<int>(kind), columns);
      std::vector<bfloat16> weights;
      for (std::int64_t i = 0; i < rows * columns; ++i) {
        weights.push_back(tessera_test::weight_of<bfloat16>(kind, 3, i));
      }
      weight_stream_options const options{.block = columns == 208 ? 8192 : 1024, .checksums = columns == 515};
      opened_stream<tessera::cuda> const opened({}, fixed_codec::spec(rows * columns, options),
                                                encoded(weights, options), rows, columns);
      CHECK(differing(opened.copied<tile_of_chunks>().values, weights) == 0);
      CHECK(differing(opened.copied<tile_of_elements>().values, weights) == 0);
    }
  }
}

TEST_CASE("a broken stream is opened on a GPU as the CPU decodes it", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cpu const host{.threads = 1};
  constexpr std::int64_t rows = 40;
  constexpr std::int64_t columns = 160;
  int refused = 0;
  for (bool const checksums : {false, true}) {
    weight_stream_options const options{.block = 1024, .checksums = checksums};
    auto const spec = fixed_codec::spec(rows * columns, options);
    auto const sound = encoded(tessera_test::weights_with_escapes(rows * columns, 3), options);
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
      auto broken = sound;
      testing::break_weight_stream(broken, seed);
      if (static_cast<std::int64_t>(broken.size()) < spec.smallest_bytes()) {
        continue;
      }
      auto const expected = opened_stream<cpu>(host, spec, broken, rows, columns).copied<tile_of_chunks>();
      auto const found = opened_stream<tessera::cuda>({}, spec, broken, rows, columns).copied<tile_of_chunks>();
      CAPTURE(seed, checksums);
      CHECK(found.message == expected.message);
      CHECK(differing(found.values, expected.values) == 0);
      refused += expected.message.empty() ? 0 : 1;
    }
  }
  CHECK(refused > 100);
}

TEST_CASE("products of few rows with coded weights are those with decoded weights", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const tokens : {1, 7, 8, 9, 15, 16}) {
    CHECK(wrong_products<bfloat16>(tokens, 33, 208, gemm_few_rows_model::name) == 0);
    CHECK(wrong_products<float>(tokens, 128, 4096, tessera_test::program_of_coded_rows()) == 0);
    CHECK(wrong_products<float>(tokens, 20, 4096, gemm_few_rows_model::name) == 0);  // fewer rows than it takes
  }
  CHECK(wrong_products<float>(3, 70, 208, gemm_few_rows_model::name) == 0);
  CHECK(wrong_products<float>(0, 70, 208, gemm_few_rows_model::name) == 0);
}

TEST_CASE("products of many rows with coded weights are those with decoded weights", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  char const* const program = tessera_test::program_of_many_rows(128);
  CHECK(wrong_products<bfloat16>(17, 128, 2048, program) == 0);
  CHECK(wrong_products<bfloat16>(300, 264, 1040, program) == 0);
  CHECK(wrong_products<float>(257, 129, 64, program) == 0);
  CHECK(wrong_products<bfloat16>(40, 72, 200, program) == 0);      // rows are not whole chunks
  CHECK(wrong_products<bfloat16>(2560, 1408, 256, program) == 0);  // tall tiles
}
