// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/core/int4.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/source/dequantized.hpp>
#include <tessera/view/matrix_view.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/gather_tiles.hpp"

using namespace tessera;

namespace {

template <class Code>
Code code_of(std::uint8_t bits) {
  if constexpr (std::is_same_v<Code, int4x2>) {
    return {bits};
  } else {
    return static_cast<Code>(bits);
  }
}

/// The decoded matrix as an executor gathers it from tiles.
template <class Exec, class Source>
std::vector<bfloat16> gathered(Exec const& exec, Source const& source) {
  std::int64_t const count = source.rows() * source.columns();
  buffer<bfloat16> matrix(exec, count);
  tessera_test::gather_tiles<Source, 16, 24> const program{source, {matrix.data(), {source.rows(), source.columns()}}};
  exec.run(program, program.tiles());
  std::vector<bfloat16> found(static_cast<std::size_t>(count));
  exec.copy(matrix, found);
  exec.wait();
  return found;
}

/// Decodes any codes, with scales for groups of columns, on both executors.
template <class Q>
void check_codes(std::int64_t rows, std::int64_t columns) {
  using code = stored_code<Q>;
  CAPTURE(rows, columns, Q::bits);
  constexpr std::int64_t codes_of_element = dequantized<Q, bfloat16>::is_packed ? 2 : 1;
  std::int64_t const elements = columns / codes_of_element;
  std::int64_t const groups = divide_up(columns, std::int64_t{Q::group});
  std::vector<code> codes(static_cast<std::size_t>(rows * elements));
  std::vector<symmetric_params> params(static_cast<std::size_t>(rows * groups));
  for (std::size_t i = 0; i < codes.size(); ++i) {
    codes[i] = code_of<code>(static_cast<std::uint8_t>(testing::hash(3, i)));
  }
  for (std::size_t i = 0; i < params.size(); ++i) {
    params[i].scale = 0.01F * static_cast<float>(1 + testing::hash(4, i) % 100);
  }
  auto const source = [&](code const* first_code, symmetric_params const* first) {
    return dequantized<Q, bfloat16>{{}, {first_code, {rows, elements}}, {first, {rows, groups}}};
  };
  tessera::cuda const exec;
  buffer<code> codes_there(exec, rows * elements);
  buffer<symmetric_params> params_there(exec, rows * groups);
  exec.copy(codes, codes_there);
  exec.copy(params, params_there);
  auto const found = gathered(exec, source(codes_there.data(), params_there.data()));
  auto const expected = gathered(cpu{.threads = 1}, source(codes.data(), params.data()));
  std::int64_t differing = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    differing += to_bits(found[i]) != to_bits(expected[i]) ? 1 : 0;
  }
  CHECK(differing == 0);
}

}  // namespace

TEST_CASE("tiles of dequantized codes have on a GPU the bits that they have on the CPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const rows : {1, 15, 16, 17, 130}) {
    for (std::int64_t const columns : {2, 22, 24, 26, 200}) {
      check_codes<symmetric_quantizer<8, 16>>(rows, columns);
      check_codes<two_to_a_byte<symmetric_quantizer<4, 16>>>(rows, columns);
    }
  }
}
