// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// ScaledSource: a matrix whose elements are exact small numbers times a scale for each row and each group of columns.
/// A product can then multiply the exact numbers and scale the sums of a group, which are fewer, instead of rounding
/// every element to the operand's type first.
///
///     sum += source.scale(row, column / S::group) * sum_of_group;    // of products with source.exact(row, column)
///
/// Law, checked by `tessera::testing::check_scaled_laws(source, group)`: exact(row, column) times the scale of its
/// group, rounded once to fp32 and once to the type of the elements, is the element that load() gives, where the source
/// is a TileSource, too.
///
/// OperandCodes: a ScaledSource whose rows a program can copy as they are and make operands of where they are needed:
/// neighbouring codes of `code_bits` bits, of which words of 32 bits are widened to pairs of elements. Pair number i
/// has the codes number i and i + n / 2 of the n codes of a word, in its low and its high half.
///
/// Rows of codes lie at equal distances, and so do scales of rows and of groups.
///
/// Laws: pairs are exact() of the same columns; code_bytes() and scale_address() grow by the same for each row, and
/// scale_address() for each group.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/tile_source.hpp>
#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

// clang-format off
/// A matrix of exact numbers, with a scale for each row and each group of columns.
template <class S>
concept ScaledSource =
    (requires {
       requires std::is_trivially_copyable_v<S>;
       requires std::is_trivially_copyable_v<typename S::value_type>;
     } || because<"a ScaledSource is trivially copyable and names its elements: using value_type = ...;">) &&
    (requires { requires std::is_same_v<decltype(S::group), int const>; requires S::group > 0; }
        || because<"a ScaledSource says how many columns share a scale: static constexpr int group = ...;">) &&
    (requires(S const& s) {
       requires std::is_same_v<decltype(s.rows()), std::int64_t>;
       requires std::is_same_v<decltype(s.columns()), std::int64_t>;
     } || because<"a ScaledSource has std::int64_t rows() const and std::int64_t columns() const">) &&
    (requires(S const& s, std::int64_t i) {
       requires std::is_same_v<decltype(s.exact(i, i)), typename S::value_type>;
       requires std::is_same_v<decltype(s.scale(i, i)), float>;
     } || because<"a ScaledSource has value_type exact(row, column) const "
                  "and float scale(row, group of columns) const">);

/// A ScaledSource with words of codes that become operands.
template <class S>
concept OperandCodes =
    ScaledSource<S> &&
    (requires { requires S::code_bits == 4 || S::code_bits == 8; }
        || because<"OperandCodes have 4 or 8 bits: static constexpr int code_bits = ...;">) &&
    (requires(S const& s, std::int64_t i) {
       static_cast<std::uint8_t const*>(s.code_bytes(i, i));
       static_cast<float const*>(s.scale_address(i, i));
       static_cast<bool>(s.has_whole_chunks());
     } || because<"OperandCodes have code_bytes(row, column) const, where the codes from there on lie, "
                  "scale_address(row, group) const, where a scale lies, "
                  "and has_whole_chunks() const: whether rows are whole chunks at multiples of 16 bytes">) &&
    (requires(std::uint32_t word, std::uint32_t (&pairs)[16 / S::code_bits]) {
       S::widen(detail::lone_lane{}, word, pairs);
     } || because<"OperandCodes have static void widen(group, 32 bits of codes, pairs of elements)">);
// clang-format on

}  // namespace v0
}  // namespace tessera
