// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/gemm/materialize.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/gemm/store_source.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/tile/source/converted.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/source/dequantized.hpp>

#include "algorithm/gemm/row_samples.hpp"
#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("a source's matrix is written to outputs of any strides, and nothing beside it", "[host][threads]") {
  for (std::int64_t const rows : {0, 1, 7, 63, 64, 65}) {
    for (std::int64_t const columns : {0, 1, 8, 63, 64, 65, 200}) {
      CAPTURE(rows, columns);
      row_samples<bfloat16> const samples(rows, columns, false);
      dense<bfloat16> const source{samples.view_of(samples.values.data())};
      std::int64_t const pitch = columns + 3;
      auto const written = [&](auto const& exec, bool is_turned) {
        std::vector<bfloat16> outputs(static_cast<std::size_t>((rows + 1) * pitch + columns * rows), bfloat16{0x7777});
        materialize(exec, source,
                    is_turned ? matrix_view<bfloat16>(outputs.data(), {columns, rows}).transposed()
                              : matrix_view<bfloat16>(outputs.data(), {rows, columns}, {pitch, 1}));
        exec.wait();
        return outputs;
      };
      for (bool const is_turned : {false, true}) {
        auto const found = written(cpu{.threads = 1}, is_turned);
        int wrong = 0;
        std::vector<bool> is_written(found.size());
        for (std::int64_t row = 0; row < rows; ++row) {
          for (std::int64_t column = 0; column < columns; ++column) {
            auto const at = static_cast<std::size_t>(is_turned ? column * rows + row : row * pitch + column);
            is_written[at] = true;
            wrong += found[at].bits != samples.values[static_cast<std::size_t>(row * columns + column)].bits;
          }
        }
        for (std::size_t i = 0; i < found.size(); ++i) {
          wrong += !is_written[i] && found[i].bits != 0x7777;
        }
        CHECK(wrong == 0);
        CHECK((written(cpu{.threads = 2}, is_turned) == found));
        CHECK((written(testing::adversary{.seed = 4}, is_turned) == found));
      }
    }
  }
}

TEST_CASE("rows of a source from any one on are written", "[host]") {
  row_samples<bfloat16> const samples(140, 70, false);
  dense<bfloat16> const source{samples.view_of(samples.values.data())};
  std::vector<bfloat16> all(140 * 70);
  std::vector<bfloat16> some(67 * 70);
  materialize(cpu{.threads = 1}, source, matrix_view<bfloat16>(all.data(), {140, 70}));
  store_source<dense<bfloat16>> const program{source, {some.data(), {67, 70}}, 71};
  cpu{.threads = 1}.run(program, program.groups());
  CHECK(std::equal(some.begin(), some.end(), all.begin() + 71 * 70, [](auto a, auto b) { return a.bits == b.bits; }));
}

TEST_CASE("materialize refuses outputs of other extents than the source's", "[host]") {
  cpu const exec{.threads = 1};
  row_samples<float8_e4m3> const samples(4, 32, false);
  std::vector<bfloat16> outputs(4 * 32);
  converted<float8_e4m3, bfloat16> const source(samples.view_of(samples.values.data()));
  auto const message = [&](matrix_view<bfloat16> to) { return message_of([&] { materialize(exec, source, to); }); };
  CHECK(message({outputs.data(), {4, 32}}) == "");
  CHECK(message({outputs.data(), {3, 32}}) == "materialize: the source has 4 rows but the outputs have 3");
  CHECK(message({outputs.data(), {4, 31}}) == "materialize: the source has 32 columns but the outputs have 31");
  CHECK(message({nullptr, {4, 32}}) == "materialize: the outputs have no memory but 128 elements");
  CHECK(message({outputs.data(), {4, 32}, {0, 1}}) ==
        "materialize: dimension 0 of the outputs has 4 elements with a stride of 0");
}

TEST_CASE("materialize refuses codes without a scale for each group", "[host]") {
  std::vector<std::int8_t> const codes(4 * 64);
  std::vector<symmetric_params> const scales(4);
  std::vector<bfloat16> outputs(4 * 64);
  dequantized<symmetric_quantizer<8, 32>, bfloat16> const source{{}, {codes.data(), {4, 64}}, {scales.data(), {4, 1}}};
  CHECK(message_of([&] {
          materialize(cpu{.threads = 1}, source, {outputs.data(), {4, 64}});
        }) == "materialize: the parameters of the codes of the source are 4 x 1 but must be 4 x 2");
}
