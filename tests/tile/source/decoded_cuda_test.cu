// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/neuzip.hpp>
#include <tessera/program/weights/reader.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/source/decoded.hpp>

#include "support/catch.hpp"
#include "support/codecs.hpp"
#include "support/cuda.hpp"
#include "support/gather_tiles.hpp"

using namespace tessera;

namespace {

template <class Codec>
void check_matrix(std::int64_t rows, std::int64_t columns) {
  using T = typename Codec::value_type;
  CAPTURE(rows, columns, scalar_traits<T>::name());
  std::vector<T> weights(static_cast<std::size_t>(rows * columns));
  testing::fill(testing::gauss{.sigma = 0.02}, 3, weights.data(), weights.size());
  for (std::size_t i = 0; i < weights.size(); i += 97) {
    weights[i] = testing::sample<T>(testing::uniform_bits{}, 4, i);
  }
  auto const spec = Codec::spec(rows * columns, {.block = 1024});
  auto const host_stream = Codec::encode(cpu{.threads = 2}, weights, {.block = 1024});
  tessera::cuda const exec;
  buffer<std::byte> stream(exec, host_stream.size());
  buffer<weight_decode_table> table(exec, 1);
  buffer<T> matrix(exec, rows * columns);
  exec.copy(host_stream, stream);
  weight_decoding<T> decoding;
  decoding.spec = spec;
  decoding.stream = reinterpret_cast<std::uint8_t const*>(stream.data());
  decoding.stream_bytes = stream.size();
  decoding.table = table.data();
  decoding.status = exec.status();
  exec.run(open_weights<T>{decoding}, 1);
  using reader = weight_reader<T, typename Codec::mantissa_type>;
  tessera_test::gather_tiles<decoded_matrix<reader>, 16, 24> const program{{reader{decoding}, rows, columns},
                                                                           {matrix.data(), {rows, columns}}};
  exec.run(program, program.tiles());
  std::vector<T> found(weights.size());
  exec.copy(matrix, found);
  exec.wait();
  std::int64_t differing = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    differing += to_bits(found[i]) != to_bits(weights[i]) ? 1 : 0;
  }
  CHECK(differing == 0);
}

}  // namespace

TEST_CASE("tiles of a decoded matrix hold its values on a GPU too", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const rows : {1, 15, 16, 17, 130}) {
    for (std::int64_t const columns : {1, 23, 24, 25, 200}) {
      check_matrix<neuzip>(rows, columns);
    }
  }
  check_matrix<neuzip_of<float16>>(70, 65);
  check_matrix<neuzip_of<float>>(70, 65);
  check_matrix<neuzip_of<float8_e5m2>>(70, 65);
  check_matrix<neuzip_fixed<bfloat16>>(70, 65);
}
