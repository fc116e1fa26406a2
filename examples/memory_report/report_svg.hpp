// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The report as a picture: for each row, a bar for the data's size before and one for their size now. Readable on
/// light and dark pages.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "../support/text_table.hpp"
#include "report.hpp"

namespace tessera_examples {
namespace detail {

inline std::string escaped(std::string const& text) {
  std::string result;
  for (char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

inline std::string svg_text(double x, double y, std::string const& style, std::string const& text) {
  return "<text x=\"" + fixed(x, 0) + "\" y=\"" + fixed(y, 0) + "\" class=\"" + style + "\">" + escaped(text) +
         "</text>\n";
}
inline std::string svg_bar(double x, double y, double width, double height, std::string const& style) {
  return "<rect x=\"" + fixed(x, 1) + "\" y=\"" + fixed(y, 1) + "\" width=\"" + fixed(width, 1) + "\" height=\"" +
         fixed(height, 1) + "\" class=\"" + style + "\"/>\n";
}

inline constexpr char const* svg_style = R"(<style>
  svg { background: #ffffff; font: 13px system-ui, sans-serif; }
  text { fill: #1f2328; }
  .title { font-size: 16px; font-weight: 600; }
  .small { font-size: 11px; fill: #59636e; }
  .before { fill: #d1d9e0; }
  .after { fill: #1a7f64; }
  .lost { fill: #cf222e; }
  .bound { fill: #1f2328; }
  @media (prefers-color-scheme: dark) {
    svg { background: #0d1117; }
    text { fill: #f0f6fc; }
    .small { fill: #9198a1; }
    .before { fill: #3d444d; }
    .after { fill: #3fb68f; }
    .lost { fill: #ff7b72; }
    .bound { fill: #f0f6fc; }
  }
</style>
)";

}  // namespace detail

inline std::string report_svg(report_rows const& rows) {
  constexpr double left = 190;
  constexpr double width = 420;
  constexpr double right = 250;
  constexpr double row_height = 34;
  constexpr double top = 66;
  double most_bits = 1;
  for (report_row const& row : rows) {
    most_bits = std::max(most_bits, row.bits_before());
  }
  double const height = top + row_height * static_cast<double>(rows.size()) + 12;
  std::string const size = "width=\"" + fixed(left + width + right, 0) + "\" height=\"" + fixed(height, 0) + "\"";
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" " + size + " viewBox=\"0 0 " +
                    fixed(left + width + right, 0) + " " + fixed(height, 0) +
                    "\" role=\"img\">\n<title>Bits an element, before and after</title>\n";
  svg += detail::svg_style;
  svg += detail::svg_text(12, 26, "title", "Memory before and after, bits an element");
  svg += detail::svg_bar(12, 38, 12, 10, "before") + detail::svg_text(30, 47, "small", "before");
  svg += detail::svg_bar(82, 38, 12, 10, "after") + detail::svg_text(100, 47, "small", "after");
  svg += detail::svg_bar(146, 38, 12, 10, "lost") + detail::svg_text(164, 47, "small", "after, and does not pay");
  svg += detail::svg_bar(300, 36, 2, 14, "bound") + detail::svg_text(308, 47, "small", "entropy bound");
  double y = top;
  for (report_row const& row : rows) {
    double const scale = width / most_bits;
    svg += detail::svg_text(12, y + 11, "name", row.algorithm + ", " + row.data) +
           detail::svg_text(12, y + 24, "small", row.mode);
    svg += detail::svg_bar(left, y, row.bits_before() * scale, 22, "before");
    svg += detail::svg_bar(left, y + 4, row.bits_after() * scale, 14, row.pays ? "after" : "lost");
    if (row.bound_bits > 0) {
      svg += detail::svg_bar(left + row.bound_bits * scale - 1, y - 1, 2, 24, "bound");
    }
    svg += detail::svg_text(
        left + width + 12, y + 11, "name",
        fixed(row.bits_before(), 0) + " → " + fixed(row.bits_after(), 2) + " bits, " + fixed(row.ratio(), 2) + "×");
    std::string const speed =
        row.decode_gbps > 0 ? fixed(row.decode_gbps, row.decode_gbps < 10 ? 2 : 0) + " GB/s decode, " : "";
    svg += detail::svg_text(left + width + 12, y + 24, "small", speed + row.setting);
    y += row_height;
  }
  return svg + "</svg>\n";
}

}  // namespace tessera_examples
