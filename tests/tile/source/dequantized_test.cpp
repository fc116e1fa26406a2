// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/concepts/quantizer.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/int4.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/map/plain_sum.hpp>
#include <tessera/program/gemm/gemm_tiles.hpp>
#include <tessera/program/gemm/store_sums.hpp>
#include <tessera/quantize/asymmetric.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/testing/laws/tile_source.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/source/dequantized.hpp>
#include <tessera/tile/source/fetched_source.hpp>
#include <tessera/tile/staged_tile.hpp>

#include "support/catch.hpp"
#include "support/gemm_reference.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using tessera_test::message_of;
using tessera_test::operand_samples;

namespace {

/// Codes of 11 x 40 values, 16 of a row to a group (the last has 8).
template <class Q>
struct codes_of_rows {
  static constexpr std::int64_t rows = 11;
  static constexpr std::int64_t columns = 40;
  static constexpr std::int64_t groups = Q::group == whole_tensor ? 1 : 3;
  std::vector<float> values = operand_samples<float>(rows * columns, 5);
  std::vector<typename Q::code_type> codes = std::vector<typename Q::code_type>(rows * columns);
  std::vector<typename Q::params_type> params;
  std::vector<bfloat16> decoded = std::vector<bfloat16>(rows * columns);

  codes_of_rows() {
    Q const q;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t group = 0; group < groups; ++group) {
        auto range = q.range().identity();
        std::int64_t const begin = row * columns + group * Q::group;
        std::int64_t const end =
            Q::group == whole_tensor ? begin + columns : std::min(begin + Q::group, (row + 1) * columns);
        for (std::int64_t i = begin; i < end; ++i) {
          q.range().push(range, Q::group == whole_tensor ? 4.0F : values[static_cast<std::size_t>(i)]);
        }
        params.push_back(q.fit(range));
        for (std::int64_t i = begin; i < end; ++i) {
          auto const at = static_cast<std::size_t>(i);
          codes[at] = q.encode(values[at], params.back());
          decoded[at] = store<bfloat16>(q.decode(codes[at], params.back()));
        }
      }
    }
  }
  dequantized<Q, bfloat16> source() const {
    return {Q{}, matrix_view<typename Q::code_type const>(codes.data(), {rows, columns}), scales()};
  }
  /// The same codes, two to a byte, in `pairs`.
  template <class Packed = two_to_a_byte<Q>>
  dequantized<Packed, bfloat16> packed_source(std::vector<int4x2>& pairs) const {
    for (std::size_t i = 0; i < codes.size(); i += 2) {
      pairs.push_back(pack_int4(codes[i], codes[i + 1]));
    }
    return {{}, matrix_view<int4x2 const>(pairs.data(), {rows, columns / 2}), scales()};
  }

 private:
  matrix_view<typename Q::params_type const> scales() const {
    return matrix_view<typename Q::params_type const>(params.data(), {rows, groups});
  }
};

template <TileSource Source>
void check_source(Source const& source, std::vector<bfloat16> const& decoded) {
  serial_group<32> const group;
  CHECK(testing::check_laws(source, group).text().empty());
  CHECK(source.columns() == 40);
  detail::plain_tile<bfloat16, 11, 40> tile;
  source.load(group, tile, 0, 0);
  bool same = true;
  for (std::size_t i = 0; i < decoded.size(); ++i) {
    same = same && to_bits(tile.values[i]) == to_bits(decoded[i]);
  }
  CHECK(same);
}

template <class Q>
void check_codes() {
  codes_of_rows<Q> const made;
  check_source(made.source(), made.decoded);
}

template <class Q>
void check_packed_codes() {
  codes_of_rows<Q> const made;
  std::vector<int4x2> pairs;
  check_source(made.packed_source(pairs), made.decoded);
}

/// Checks codes in rows that begin at multiples of 16 bytes, `columns` of which belong to the matrix.
template <class Q>
void check_aligned_codes(std::int64_t columns) {
  constexpr std::int64_t rows = 11;
  constexpr std::int64_t stride = 96;
  CAPTURE(columns);
  std::vector<stored_code<Q>> codes(rows * stride);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if constexpr (std::is_same_v<stored_code<Q>, int4x2>) {
      codes[i] = pack_int4(static_cast<int>(i % 15) - 7, static_cast<int>(i % 13) - 6);
    } else {
      codes[i] = static_cast<stored_code<Q>>(i % 251);
    }
  }
  std::int64_t const groups = Q::group == whole_tensor ? 1 : divide_up(columns, std::int64_t{Q::group});
  std::vector<typename Q::params_type> params;
  for (std::int64_t i = 0; i < rows * groups; ++i) {
    auto range = Q{}.range().identity();
    Q{}.range().push(range, 1.0F + static_cast<float>(i));
    params.push_back(Q{}.fit(range));
  }
  using source_type = dequantized<Q, bfloat16>;
  source_type const source{{},
                           {codes.data(), {rows, columns / (source_type::is_packed ? 2 : 1)}, {stride, 1}},
                           matrix_view<typename Q::params_type const>(params.data(), {rows, groups})};
  CHECK(testing::check_laws(source, serial_group<32>{}).text().empty());
}

}  // namespace

TEST_CASE("codes are read 16 bytes at a time, and one at a time at the edges, with the same values", "[host]") {
  static_assert(
      FetchedSource<dequantized<symmetric_quantizer<8, 16>, bfloat16>, serial_group<32>, staged_tile<bfloat16, 5, 64>>);
  static_assert(!FetchedSource<dequantized<symmetric_quantizer<8, 24>, bfloat16>, serial_group<32>,
                               staged_tile<bfloat16, 5, 64>>);
  for (std::int64_t const columns : {16, 48, 64, 78, 80}) {
    check_aligned_codes<symmetric_quantizer<8, 16>>(columns);
    check_aligned_codes<symmetric_quantizer<8, 24>>(columns);
    check_aligned_codes<symmetric_quantizer<8, whole_tensor>>(columns);
    check_aligned_codes<two_to_a_byte<symmetric_quantizer<4, 32>>>(columns);
    check_aligned_codes<two_to_a_byte<asymmetric_quantizer<4, 64>>>(columns);
  }
}

TEST_CASE("a matrix of codes keeps the laws of a tile source and shows decoded values", "[host]") {
  check_codes<symmetric_quantizer<8, 16>>();
  check_codes<symmetric_quantizer<4, whole_tensor>>();
}

TEST_CASE("a matrix of codes that are packed in pairs shows the values that the same codes in bytes decode to",
          "[host]") {
  check_packed_codes<symmetric_quantizer<4, 16>>();
  check_packed_codes<symmetric_quantizer<4, whole_tensor>>();
  check_packed_codes<asymmetric_quantizer<4, 16>>();
}

TEST_CASE("a product with codes is the product with what they decode to", "[host]") {
  using quantizer = symmetric_quantizer<8, 16>;
  codes_of_rows<quantizer> const weights;
  auto const inputs = operand_samples<bfloat16>(7 * weights.columns, 6);
  matrix_view<bfloat16 const> const x(inputs.data(), {7, weights.columns});
  matrix_view<bfloat16 const> const w(weights.decoded.data(), {weights.rows, weights.columns});
  std::vector<float> found(7 * weights.rows);
  std::vector<float> expected(7 * weights.rows);
  using output = store_sums<float, plain_sum>;
  gemm_tiles<bfloat16, dense<bfloat16>, dequantized<quantizer, bfloat16>, output> const with_codes{
      {x}, weights.source(), {matrix_view<float>(found.data(), {7, weights.rows}), {}}};
  gemm_tiles<bfloat16, dense<bfloat16>, dense<bfloat16>, output> const with_values{
      {x}, {w}, {matrix_view<float>(expected.data(), {7, weights.rows}), {}}};
  cpu const exec{.threads = 1};
  exec.run(with_codes, with_codes.tiles());
  exec.run(with_values, with_values.tiles());
  CHECK(found == expected);
}

namespace {

/// Decodes as its base does, and adds one; what it inherits beside decode() must not be taken for it.
template <class Base>
struct one_more : Base {
  TESSERA_FN constexpr float decode(typename Base::code_type code, typename Base::params_type params) const {
    return Base::decode(code, params) + 1.0F;
  }
};
/// The same with a number of its own, which is zero where nobody says otherwise.
template <class Base>
struct so_much_more : Base {
  float added = 0.0F;
  TESSERA_FN constexpr float decode(typename Base::code_type code, typename Base::params_type params) const {
    return Base::decode(code, params) + added;
  }
};

template <class Q>
void check_decode(Q const& quantizer) {
  std::int64_t const rows = 3;
  std::int64_t const columns = 32;
  std::vector<std::int8_t> codes(static_cast<std::size_t>(rows * columns) + 16);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<std::int8_t>(static_cast<int>(i * 29 % 255) - 127);
  }
  std::vector<symmetric_params> const params(6, symmetric_params{0.25F});
  std::size_t const skipped = (16 - reinterpret_cast<std::uintptr_t>(codes.data()) % 16) % 16;
  std::int8_t const* const aligned = codes.data() + skipped;
  dequantized<Q, bfloat16> const source{quantizer, {aligned, {rows, columns}}, {params.data(), {rows, 2}}};
  staged_tile<bfloat16, 8, 64> tile;
  source.load(serial_group<32>{}, tile, 0, 0);
  for (int row = 0; row < 8; ++row) {
    for (int column = 0; column < 64; ++column) {
      bool const is_inside = row < rows && column < columns;
      float const expected = is_inside ? quantizer.decode(aligned[row * columns + column], params[0]) : 0.0F;
      CAPTURE(row, column);
      REQUIRE(tile(row, column).bits == tessera::store<bfloat16>(expected).bits);
    }
  }
}

}  // namespace

TEST_CASE("codes are decoded by the quantizer given, and zeros are outside of the matrix", "[host]") {
  check_decode(symmetric_quantizer<8, 16>{});
  check_decode(one_more<symmetric_quantizer<8, 16>>{});
  so_much_more<symmetric_quantizer<8, 16>> quantizer;
  quantizer.added = 5.0F;
  check_decode(quantizer);
}

TEST_CASE("parameters that are not one set for each group of codes are refused in the name of the call", "[host]") {
  std::vector<std::int8_t> const codes(4 * 96);
  std::vector<symmetric_params> const scales(16);
  auto const message = [&](auto quantizer, std::int64_t rows, std::int64_t groups) {
    dequantized<decltype(quantizer), bfloat16> const source{
        quantizer, {codes.data(), {4, 96}}, {scales.data(), {rows, groups}}};
    return message_of([&] { source.check("f", "weights"); });
  };
  CHECK(message(symmetric_quantizer<8, 64>{}, 4, 2) == "");  // the last group is shorter
  CHECK(message(symmetric_quantizer<8, 32>{}, 4, 2) ==
        "f: the parameters of the codes of the weights are 4 x 2 but must be 4 x 3");
  CHECK(message(symmetric_quantizer<8, 64>{}, 2, 4) ==
        "f: the parameters of the codes of the weights are 2 x 4 but must be 4 x 2");
  CHECK(message(symmetric_quantizer<8, whole_tensor>{}, 1, 1) == "");
  CHECK(message(symmetric_quantizer<8, whole_tensor>{}, 4, 1) ==
        "f: the parameters of the codes of the weights are 4 x 1 but must be 1 x 1");
}
