// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tables in plain text: the first column is aligned to the left, numbers to the right.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace tessera_examples {

/// `value` with so many digits after the point.
inline std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

/// Bytes for people: "1.04 MB".
inline std::string readable_bytes(std::int64_t bytes) {
  constexpr char const* units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(units)) {
    value /= 1000;
    ++unit;
  }
  return fixed(value, unit == 0 ? 0 : 2) + " " + units[unit];
}

class text_table {
 public:
  /// The first `left` columns are aligned to the left.
  explicit text_table(std::vector<std::string> titles, std::size_t left = 1) : left_(left) { add(std::move(titles)); }

  void add(std::vector<std::string> cells) {
    widths_.resize(std::max(widths_.size(), cells.size()), 0);
    for (std::size_t i = 0; i < cells.size(); ++i) {
      widths_[i] = std::max(widths_[i], width_of(cells[i]));
    }
    rows_.push_back(std::move(cells));
  }

  void print(std::FILE* file) const {
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      std::string line;
      for (std::size_t i = 0; i < rows_[row].size(); ++i) {
        std::string const& cell = rows_[row][i];
        std::string const space(widths_[i] - width_of(cell), ' ');
        line += (i == 0 ? "" : "  ") + (i < left_ ? cell + space : space + cell);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      std::fprintf(file, "%s\n", line.c_str());
      if (row == 0) {
        print_rule(file);
      }
    }
  }

 private:
  /// The width of a cell in characters of UTF-8, not bytes.
  static std::size_t width_of(std::string const& cell) {
    return static_cast<std::size_t>(
        std::count_if(cell.begin(), cell.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
  }
  void print_rule(std::FILE* file) const {
    std::size_t length = 2 * (widths_.size() - 1);
    for (std::size_t width : widths_) {
      length += width;
    }
    std::fprintf(file, "%s\n", std::string(length, '-').c_str());
  }

  std::size_t left_;
  std::vector<std::size_t> widths_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tessera_examples
