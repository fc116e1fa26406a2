// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <tessera/concepts/tile_source.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/program/weights/reader.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/tile_source.hpp>
#include <tessera/tile/source/decoded.hpp>

#include "support/catch.hpp"
#include "support/codecs.hpp"
#include "support/gather_tiles.hpp"

using namespace tessera;

namespace {

using tessera_test::gather_tiles;

using bf16_reader = weight_reader<bfloat16, keep_mantissa<7>>;
static_assert(TileSource<decoded<bf16_reader>>);

/// A matrix of rare exponents among ordinary ones, so that there are escapes and raw blocks too.
template <class T>
std::vector<T> some_weights(std::int64_t count) {
  std::vector<T> weights(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    auto const at = static_cast<std::uint64_t>(i);
    weights[at] = testing::sample<T>(testing::gauss{.sigma = 0.02}, 3, at);
    if (i % 97 == 5 || i / 1024 == 2) {
      weights[at] = testing::sample<T>(testing::uniform_bits{}, 4, at);
    }
  }
  return weights;
}

template <class T>
bool same_bits(std::vector<T> const& a, std::vector<T> const& b) {
  if (a.size() != b.size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (to_bits(a[i]) != to_bits(b[i])) {
      return false;
    }
  }
  return true;
}

/// Writes a matrix tile by tile through `decoded`.
template <class Codec, int Rows, int Columns, class Executor>
std::vector<typename Codec::value_type> gathered(Executor const& exec, array_view<std::byte const> stream,
                                                 weight_stream_spec spec, std::int64_t rows, std::int64_t columns) {
  using T = typename Codec::value_type;
  std::vector<T> found(static_cast<std::size_t>(rows * columns), testing::sample<T>(testing::uniform_bits{}, 9, 1));
  weight_decode_table table;
  weight_decoding<T> decoding;
  decoding.spec = spec;
  decoding.stream = reinterpret_cast<std::uint8_t const*>(stream.data);
  decoding.stream_bytes = stream.size();
  decoding.table = &table;
  decoding.status = exec.status();
  exec.run(open_weights<T>{decoding}, 1);
  using reader = weight_reader<T, typename Codec::mantissa_type>;
  gather_tiles<decoded_matrix<reader>, Rows, Columns> const program{{reader{decoding}, rows, columns},
                                                                    {found.data(), {rows, columns}}};
  exec.run(program, program.tiles());
  return found;
}

template <class Codec>
void check_matrix(std::int64_t rows, std::int64_t columns, weight_stream_options options = {.block = 1024}) {
  CAPTURE(rows, columns, scalar_traits<typename Codec::value_type>::name());
  auto const weights = some_weights<typename Codec::value_type>(rows * columns);
  cpu const exec{.threads = 2};
  auto const stream = Codec::encode(exec, weights, options);
  auto const spec = Codec::spec(rows * columns, options);
  auto const wide = gathered<Codec, 8, 16>(exec, stream, spec, rows, columns);
  auto const tall = gathered<Codec, 32, 5>(exec, stream, spec, rows, columns);
  exec.wait();
  std::vector<typename Codec::value_type> expected(weights.size());
  Codec::decode(exec, stream, expected);
  CHECK(same_bits(wide, expected));
  CHECK(same_bits(tall, expected));
}

}  // namespace

TEST_CASE("a decoded matrix keeps the laws of a tile source", "[host]") {
  constexpr std::int64_t rows = 59;
  constexpr std::int64_t columns = 37;
  auto const weights = some_weights<bfloat16>(rows * columns);
  cpu const exec{.threads = 1};
  auto const stream = neuzip::encode(exec, weights, {.block = 1024});
  weight_decode_table table;
  weight_decoding<bfloat16> decoding;
  decoding.spec = neuzip::spec(rows * columns, {.block = 1024});
  decoding.stream = reinterpret_cast<std::uint8_t const*>(stream.data());
  decoding.stream_bytes = stream.size();
  decoding.table = &table;
  decoding.status = exec.status();
  exec.run(open_weights<bfloat16>{decoding}, 1);
  exec.wait();
  REQUIRE(decoding.spec.coder == weight_coder::rans_pairs);
  auto const scratch = std::make_unique<decoded<bf16_reader>::scratch_type>();
  serial_group<32> const group;
  auto const source = decoded<bf16_reader>::open(group, bf16_reader{decoding}, rows, columns, *scratch);
  CHECK(testing::check_laws(source, group).text().empty());
  tessera::detail::plain_tile<bfloat16, 2, 2> corner;
  source.load(group, corner, -1, -1);
  CHECK(to_bits(corner(0, 0)) == 0);
  CHECK(to_bits(corner(0, 1)) == 0);
  CHECK(to_bits(corner(1, 0)) == 0);
  CHECK(to_bits(corner(1, 1)) == to_bits(weights[0]));
}

TEST_CASE("tiles of a decoded matrix hold its values, whatever the extents", "[host][threads]") {
  for (std::int64_t const rows : {1, 7, 31, 32, 33, 130}) {
    for (std::int64_t const columns : {1, 15, 16, 17, 200}) {
      check_matrix<neuzip>(rows, columns);
    }
  }
  check_matrix<neuzip>(0, 0);
  check_matrix<neuzip>(3, 3000);
  check_matrix<neuzip>(27, 1001, {});  // in fewer tiles, of which each decodes a whole block, than with longer rows
}

TEST_CASE("matrices of every format and coder can be loaded from", "[host][threads]") {
  check_matrix<neuzip_of<float16>>(70, 65);
  check_matrix<neuzip_of<float>>(70, 65);
  check_matrix<neuzip_of<float8_e4m3>>(70, 65);
  check_matrix<neuzip_of<float8_e5m2>>(70, 65);
  check_matrix<neuzip_fixed<bfloat16>>(70, 65);
  check_matrix<neuzip_lossy<3>>(70, 65, {.block = 2048, .normalizer_block = 64});
}

TEST_CASE("a decoded matrix keeps the rules for programs", "[host]") {
  constexpr std::int64_t rows = 21;
  constexpr std::int64_t columns = 150;
  auto const weights = some_weights<bfloat16>(rows * columns);
  auto const spec = neuzip::spec(rows * columns, {.block = 1024});
  auto const stream = neuzip::encode(cpu{.threads = 1}, weights, {.block = 1024});
  testing::adversary const exec{.seed = 5};
  auto const found = gathered<neuzip, 16, 64>(exec, stream, spec, rows, columns);
  exec.wait();
  CHECK(same_bits(found, weights));
}

TEST_CASE("a block that is not sound is reported and reads as zeros", "[host][threads]") {
  constexpr std::int64_t rows = 64;
  constexpr std::int64_t columns = 64;
  std::vector<bfloat16> weights(rows * columns, store<bfloat16>(0.5F));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = testing::sample<bfloat16>(testing::gauss{.sigma = 0.02}, 3, i);
  }
  weight_stream_options const options{.block = 1024, .checksums = true};
  auto const spec = neuzip::spec(rows * columns, options);
  cpu const exec{.threads = 2};
  auto stream = neuzip::encode(exec, weights, options);
  stream[spec.planes_offset() + spec.planes_before(1) + 100] ^= std::byte{4};
  auto const found = gathered<neuzip, 16, 64>(exec, stream, spec, rows, columns);
  try {
    exec.wait();
    FAIL("nothing was reported");
  } catch (corrupt_data const& e) {
    CHECK(e.position() == 1);
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    CHECK(to_bits(found[i]) == (i / 1024 == 1 ? 0 : to_bits(weights[i])));
  }
}

TEST_CASE("a small matrix that is stored as it is can be loaded from, and is checked", "[host]") {
  auto const weights = some_weights<bfloat16>(12 * 11);
  cpu const exec{.threads = 1};
  auto stream = neuzip::encode(exec, weights);
  auto const spec = neuzip::spec(12 * 11);
  REQUIRE(spec.coder == weight_coder::stored);
  CHECK(same_bits(gathered<neuzip, 8, 8>(exec, stream, spec, 12, 11), weights));
  exec.wait();
  stream[stream.size() - 1] ^= std::byte{1};
  auto const found = gathered<neuzip, 8, 8>(exec, stream, spec, 12, 11);
  CHECK_THROWS_AS(exec.wait(), corrupt_data);
  CHECK(same_bits(found, std::vector<bfloat16>(12 * 11)));
}
