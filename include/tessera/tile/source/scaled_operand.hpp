// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `scaled_operand`: the ScaledSource of a matrix of 8-bit codes that are multiplied as they are: integers, or floats
/// such as float8_e4m3, with a scale for each row, or for so many neighbouring rows, and each group of columns.
///
///     using quantizer = scaled_float_quantizer<float8_e4m3, 128>;
///     scaled_operand<quantizer> const activations{codes, scales};        // a scale for 1 x 128 codes
///     scaled_operand<quantizer, 128> const weights{w_codes, w_scales};   // a scale for 128 x 128 codes
///
/// Scales may have any strides. Programs that read scales of many rows at a time read fastest where those of
/// neighbouring rows lie next to each other, strides {1, rows}, and begin at multiples of 16 bytes for each group.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/attention_quantizer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/tile/source/scaled_source.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Q: a quantizer of groups whose values are codes times `params.scale`, such as symmetric_quantizer<8, 128>. Rows: how
/// many neighbouring rows share a scale.
template <Quantizer Q, int Rows = 1>
struct scaled_operand {
  static_assert(
      detail::is_multiplied<typename Q::code_type> && sizeof(typename Q::code_type) == 1 && Q::group != whole_tensor &&
          requires {
            requires std::is_same_v<decltype(Q::params_type::scale), float>;
            requires sizeof(typename Q::params_type) == sizeof(float);
          },
      "tessera: scaled_operand needs a quantizer with codes of 8 bits, groups, and a scale alone for each");
  static_assert(Rows > 0, "tessera: scaled_operand has at least one row to a scale");

  using quantizer_type = Q;                   ///< what makes the codes
  using value_type = typename Q::code_type;   ///< the type of the codes
  static constexpr int group = Q::group;      ///< columns that share a scale
  static constexpr int rows_of_scale = Rows;  ///< rows that share a scale

  matrix_view<value_type const> codes;                ///< rows x columns
  matrix_view<typename Q::params_type const> params;  ///< divide_up(rows, Rows) x groups of a row

  /// Names the views that it reads, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    use("codes of the source", codes);
    use("scales of codes", params);
  }
  TESSERA_FN constexpr std::int64_t rows() const { return codes.extent(0); }
  TESSERA_FN constexpr std::int64_t columns() const { return codes.extent(1); }
  /// Throws shape_error, in the name of `function`, where there are not as many scales as codes need, or a view is no
  /// memory.
  void check(char const* function, char const* what) const {
    std::int64_t const scale_rows = divide_up(rows(), std::int64_t{Rows});
    std::int64_t const groups = divide_up(columns(), std::int64_t{group});
    tessera::check<shape_error>(params.extent(0) == scale_rows && params.extent(1) == groups, function,
                                ": the scales of ", what, " are ", params.extent(0), " x ", params.extent(1),
                                " but must be ", scale_rows, " x ", groups);
    check_memory(function, what, codes);
    check_memory(function, "scales", params);
  }
  /// The code of an element.
  TESSERA_FN constexpr value_type exact(std::int64_t row, std::int64_t column) const { return codes(row, column); }
  /// The scale of a row's group of columns.
  TESSERA_FN constexpr float scale(std::int64_t row, std::int64_t which) const {
    return params(row / Rows, which).scale;
  }
  /// Where that scale lies.
  TESSERA_FN float const* scale_address(std::int64_t row, std::int64_t which) const {
    return &params.data[row / Rows * params.stride(0) + which * params.stride(1)].scale;
  }
};

}  // namespace v0
}  // namespace tessera
