// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `scaled_codes`: the source of a matrix of a quantizer's codes for products that may scale the sums of a group
/// instead of each value: `dequantized` for a user who does not ask for values that are rounded to the operand's type.
///
///     using source = scaled_codes<two_to_a_byte<symmetric_quantizer<4, 128>>, bfloat16>;
///     source const weights{{}, codes, scales};                    // as dequantized has them
///     linear<bfloat16>::forward(exec, inputs, weights, outputs);
///
/// Results differ from those of `dequantized` by rounding alone, and are the more exact: code times scale in fp32 is
/// rounded to 8 (fp16: 11) bits there, while codes are exact and only sums of a group are multiplied by its scale here.
/// Such a sum, of codes times inputs without the scale, must be finite in fp32: inputs below 2^120 / (group * largest
/// code) in magnitude are safe. Whether a program does so depends on the device and the extents alone
/// (algorithm/gemm/linear.cuh); a program that does not rounds values as `dequantized` does.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/attention_quantizer.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/config.hpp>
#include <tessera/core/int4.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/tile/source/dequantized.hpp>
#include <tessera/tile/source/scaled_source.hpp>
#include <tessera/tile/source/widen_exactly.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Q: a quantizer of groups whose values are integer codes times `params.scale`. Value: bfloat16 or float16.
template <Quantizer Q, Scalar Value>
struct scaled_codes {
  static_assert(
      std::is_same_v<typename Q::code_type, std::int8_t> && Q::group != whole_tensor &&
          requires {
            requires std::is_same_v<decltype(Q::params_type::scale), float>;
            requires sizeof(typename Q::params_type) == sizeof(float);
          },
      "tessera: scaled_codes needs a quantizer with integer codes, groups, and a scale alone for each group");
  static_assert(is_16_bit_float<Value>, "tessera: scaled_codes are multiplied as bf16 or fp16");

  using value_type = Value;
  /// The source that rounds each value.
  using rounded_type = dequantized<Q, Value>;
  /// 16 bytes of codes.
  using code_chunk = typename rounded_type::code_chunk;
  static constexpr bool is_packed = rounded_type::is_packed;  ///< whether a byte holds two codes
  static constexpr int code_bits = is_packed ? 4 : 8;         ///< bits of a code in memory
  static constexpr int group = Q::group;                      ///< columns that share a scale
  /// Whether codes can be read in chunks of 16 bytes.
  static constexpr bool has_chunks = rounded_type::has_chunks;

  Q quantizer;                                        ///< the quantizer that made the codes
  matrix_view<stored_code<Q> const> codes;            ///< rows x columns, or x columns / 2 where they are packed
  matrix_view<typename Q::params_type const> params;  ///< rows x groups of a row

  /// Names the views that it reads, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    use("codes of the source", codes);
    use("parameters of codes", params);
  }
  TESSERA_FN constexpr std::int64_t rows() const { return codes.extent(0); }
  TESSERA_FN constexpr std::int64_t columns() const { return codes.extent(1) * (is_packed ? 2 : 1); }

  /// Throws shape_error, in the name of `function`, where there are not as many scales as codes need.
  void check(char const* function, char const* what) const { rounded().check(function, what); }

  /// The same matrix with values that are rounded.
  TESSERA_FN constexpr rounded_type rounded() const { return {quantizer, codes, params}; }

  /// The code of an element, which a Value holds exactly.
  TESSERA_FN constexpr Value exact(std::int64_t row, std::int64_t column) const {
    if constexpr (is_packed) {
      int4x2 const pair = codes(row, column / 2);
      return tessera::store<Value>(static_cast<float>(column % 2 != 0 ? high(pair) : low(pair)));
    } else {
      return tessera::store<Value>(static_cast<float>(codes(row, column)));
    }
  }
  /// The scale of a row's group of columns.
  TESSERA_FN constexpr float scale(std::int64_t row, std::int64_t which) const { return params(row, which).scale; }

  /// Where the codes of a row from a column on lie, where rows are contiguous.
  TESSERA_FN std::uint8_t const* code_bytes(std::int64_t row, std::int64_t column) const {
    return reinterpret_cast<std::uint8_t const*>(codes.data + row * codes.stride(0) + column / (is_packed ? 2 : 1));
  }
  /// Where the scale of a row's group of columns lies.
  TESSERA_FN float const* scale_address(std::int64_t row, std::int64_t which) const {
    return &params.data[row * params.stride(0) + which * params.stride(1)].scale;
  }
  /// Whether rows are whole chunks, at multiples of 16 bytes.
  TESSERA_FN bool has_whole_chunks() const { return rounded().has_whole_chunks(); }

  /// Pairs of the codes of a word: tile/source/scaled_source.hpp says which.
  template <class G>
  TESSERA_FN static constexpr void widen(G const& lanes, std::uint32_t word, std::uint32_t (&pairs)[16 / code_bits]) {
    widen_exactly<Value, code_bits>(lanes, word, pairs);
  }

  /// What a tile's codes are on their way.
  template <class G, class Tile>
  using fetched = typename rounded_type::template fetched<G, Tile>;

  /// Starts to load a tile of rounded values, as `dequantized` does.
  template <class G, class Tile>
  TESSERA_FN void fetch(G const& lanes, fetched<G, Tile>& to, std::int64_t first_row, std::int64_t first_column) const {
    rounded().fetch(lanes, to, first_row, first_column);
  }
  /// Waits for what was fetched and writes it to a tile.
  template <class G, class Tile>
  TESSERA_FN void store(G const& lanes, fetched<G, Tile> const& from, Tile& tile) const {
    rounded().store(lanes, from, tile);
  }
  /// Loads a tile of rounded values.
  template <class G, class Tile>
  TESSERA_FN void load(G const& lanes, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    rounded().load(lanes, tile, first_row, first_column);
  }
};

}  // namespace v0
}  // namespace tessera
