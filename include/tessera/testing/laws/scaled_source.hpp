// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of a ScaledSource and of OperandCodes that run on the host.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/testing/laws/law_report.hpp>
#include <tessera/testing/laws/tile_source.hpp>
#include <tessera/tile/source/scaled_source.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {

namespace detail {

/// Whether the words of a row's codes are widened to the pairs that exact() gives.
template <OperandCodes S, class G>
bool widens_row(S const& source, G const& group, std::int64_t row) {
  constexpr int count = 16 / S::code_bits;
  bool right = true;
  for (std::int64_t column = 0; column + 2 * count <= source.columns(); column += 2 * count) {
    std::uint32_t word = 0;
    std::memcpy(&word, source.code_bytes(row, column), sizeof word);
    std::uint32_t pairs[count];
    S::widen(group, word, pairs);
    for (int i = 0; i < count; ++i) {
      std::uint32_t const low = bit_cast<std::uint16_t>(source.exact(row, column + i));
      std::uint32_t const high = bit_cast<std::uint16_t>(source.exact(row, column + i + count));
      right = right && pairs[i] == (low | high << 16);
    }
  }
  return right;
}

/// Whether a row's codes and scales lie as far behind the row before as in all rows, and scales of groups, too.
template <OperandCodes S>
bool lies_evenly(S const& source, std::int64_t row) {
  bool right = true;
  if (row > 1) {
    right = source.code_bytes(row, 0) - source.code_bytes(row - 1, 0) ==
                source.code_bytes(1, 0) - source.code_bytes(0, 0) &&
            source.scale_address(row, 0) - source.scale_address(row - 1, 0) ==
                source.scale_address(1, 0) - source.scale_address(0, 0);
  }
  for (std::int64_t group = 2; group < source.columns() / S::group; ++group) {
    right = right && source.scale_address(row, group) - source.scale_address(row, group - 1) ==
                         source.scale_address(row, 1) - source.scale_address(row, 0);
  }
  return right;
}

}  // namespace detail

/// Checks every element of a small source, with `group`.
template <ScaledSource S, class G>
law_report check_scaled_laws(S const& source, G const& group) {
  law_report report;
  report.expect(source.rows() >= 0 && source.columns() >= 0, "rows() and columns() are not negative");
  for (std::int64_t row = 0; row < source.rows(); ++row) {
    std::string const name = "row " + std::to_string(row);
    for (std::int64_t column = 0; column < source.columns(); ++column) {
      std::string const place = name + ", column " + std::to_string(column);
      float const scale = source.scale(row, column / S::group);
      report.expect(std::isfinite(scale), "scales are finite", place);
      if constexpr (TileSource<S>) {
        auto const rounded = store<typename S::value_type>(load(source.exact(row, column)) * scale);
        report.expect(detail::same_bytes(rounded, detail::element(source, group, row, column)),
                      "load() gives the exact number times the scale, rounded", place);
      }
      if constexpr (OperandCodes<S>) {
        report.expect(*source.scale_address(row, column / S::group) == scale, "scale_address() is where the scale lies",
                      place);
      }
    }
    if constexpr (OperandCodes<S>) {
      report.expect(detail::widens_row(source, group, row), "words of codes are widened to pairs of exact numbers",
                    name);
      report.expect(detail::lies_evenly(source, row), "rows and scales lie at equal distances", name);
    }
  }
  return report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
