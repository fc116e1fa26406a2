// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Changes to valid data, as a fuzzer's input describes them: so its mutations reach what lies behind magic numbers,
/// lengths and checksums.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace tessera_fuzz {

/// Stops the program, so that the fuzzer keeps the input.
inline void must(bool holds) {
  if (!holds) {
    std::abort();
  }
}

/// The input, taken from the front; zeros when there is no more.
class input {
 public:
  input(std::uint8_t const* bytes, std::size_t size) : bytes_(bytes), size_(size) {}

  [[nodiscard]] bool is_empty() const { return size_ == 0; }
  template <class Number>
  Number take() {
    Number number{};
    std::size_t const there = std::min(size_, sizeof(Number));
    std::memcpy(&number, bytes_, there);
    bytes_ += there;
    size_ -= there;
    return number;
  }
  /// A number from 0 to `end` - 1.
  int below(int end) { return take<std::uint8_t>() % end; }
  [[nodiscard]] std::vector<std::uint8_t> rest() const { return {bytes_, bytes_ + size_}; }

 private:
  std::uint8_t const* bytes_;
  std::size_t size_;
};

struct edit_summary {
  int edits = 0;
  bool all_small = true;  ///< each changes at most four bytes that lie side by side, and none moves others
};

/// One edit: what (1 byte), where (3 bytes), with which value (up to 8 bytes).
inline void apply_edit(input& from, std::vector<std::uint8_t>& data, edit_summary& summary) {
  enum { set_byte, flip_bit, set_16, set_32, set_64, truncate, extend, copy, erase, insert, kinds };
  int const kind = from.below(kinds);
  std::size_t const where = from.take<std::uint16_t>() | static_cast<std::size_t>(from.take<std::uint8_t>()) << 16;
  std::size_t const position = data.empty() ? 0 : where % data.size();
  auto const overwrite = [&](auto value) {
    std::memcpy(data.data() + position, &value, std::min(sizeof(value), data.size() - position));
  };
  ++summary.edits;
  summary.all_small = summary.all_small && kind <= set_32;
  if (data.empty() && kind != extend) {
    return;
  }
  switch (kind) {
    case set_byte:
      return overwrite(from.take<std::uint8_t>());
    case flip_bit:
      data[position] ^= static_cast<std::uint8_t>(1u << from.below(8));
      return;
    case set_16:
      return overwrite(from.take<std::uint16_t>());
    case set_32:
      return overwrite(from.take<std::uint32_t>());
    case set_64:
      return overwrite(from.take<std::uint64_t>());
    case truncate:
      data.resize(position);
      return;
    case extend:
      data.resize(data.size() + static_cast<std::size_t>(from.below(256)));
      return;
    case copy: {
      std::size_t const target = from.take<std::uint16_t>() % data.size();
      std::size_t const length = std::min<std::size_t>(16, data.size() - std::max(position, target));
      std::memmove(data.data() + target, data.data() + position, length);
      return;
    }
    case erase:
      data.erase(data.begin() + static_cast<std::ptrdiff_t>(position));
      return;
    default:
      data.insert(data.begin() + static_cast<std::ptrdiff_t>(position), from.take<std::uint8_t>());
      return;
  }
}

inline edit_summary apply_edits(input& from, std::vector<std::uint8_t>& data) {
  constexpr int most_edits = 64;
  edit_summary summary;
  while (!from.is_empty() && summary.edits < most_edits) {
    apply_edit(from, data, summary);
  }
  return summary;
}

}  // namespace tessera_fuzz
