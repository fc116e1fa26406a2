// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Bytes that are read piece by piece, from a file (input_file.hpp) or from memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "failure.hpp"

namespace tessera_examples {

class byte_source {
 public:
  virtual ~byte_source() = default;
  [[nodiscard]] virtual std::int64_t size() const = 0;
  /// Fills all of `into` with the bytes from `offset` on; throws a failure where that is not possible.
  virtual void read(std::int64_t offset, std::span<std::byte> into) const = 0;
};

/// Bytes in the caller's memory, which must stay as long as this.
class memory_source final : public byte_source {
 public:
  explicit memory_source(std::span<std::byte const> bytes) : bytes_(bytes) {}

  [[nodiscard]] std::int64_t size() const override { return static_cast<std::int64_t>(bytes_.size()); }
  void read(std::int64_t offset, std::span<std::byte> into) const override {
    auto const count = static_cast<std::int64_t>(into.size());
    require(exit_code::unreadable, offset >= 0 && offset <= size() && count <= size() - offset, "cannot read ", count,
            " bytes from byte ", offset, " on: there are ", size());
    auto const from = bytes_.begin() + offset;
    std::copy(from, from + count, into.begin());
  }

 private:
  std::span<std::byte const> bytes_;
};

/// Neighbouring bytes of a source, which must stay as long as this.
struct byte_range {
  byte_source const* source = nullptr;
  std::int64_t begin = 0;
  std::int64_t size = 0;

  /// Reads bytes; `offset` counts from the beginning of the range.
  void read(std::int64_t offset, std::span<std::byte> into) const { source->read(begin + offset, into); }
  [[nodiscard]] byte_range first(std::int64_t count) const { return {source, begin, count}; }
  [[nodiscard]] byte_range behind(std::int64_t count) const { return {source, begin + count, size - count}; }
};

}  // namespace tessera_examples
