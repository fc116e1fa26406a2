// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Named regions of one block of memory, planned on the host from extents alone, then found again inside of the block.
///
///     workspace_plan plan("neuzip.encode");
///     auto const counts = plan.add<std::uint32_t>("symbol counts", 256);
///     auto const lengths = plan.add<std::uint64_t>("lengths of blocks", blocks);
///     buffer<std::byte> memory(exec, plan.bytes());
///     workspace const space(plan, memory);
///     exec.run(program{.counts = space[counts], .lengths = space[lengths]}, blocks);
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/check.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {

/// A region of every workspace of one plan.
template <class T>
struct region {
  std::int64_t offset = 0;  ///< in bytes
  std::int64_t count = 0;   ///< in elements
};

/// The memory that a function needs beyond its inputs and outputs.
class workspace_plan {
 public:
  /// The alignment of regions and of the block.
  static constexpr std::int64_t alignment = 256;

  /// A region, its name and its offset.
  struct entry {
    std::string name;     ///< name in messages, unique in a plan
    std::int64_t offset;  ///< in bytes from the start
    std::int64_t bytes;   ///< without the padding that aligns the next region
  };

  /// What a plan records of its regions. With sizes alone it allocates nothing, for calls that only look for offsets;
  /// the name of its function must then outlive it.
  enum class record { entries, sizes };

  /// An empty plan for `function`, which messages name.
  explicit workspace_plan(std::string_view function, record what = record::entries)
      : literal_(function), records_(what) {
    if (what == record::entries) {
      function_ = function;
      literal_ = {};
    }
  }

  /// Adds room for `count` elements. Throws `shape_error` when the sizes do not fit 63 bits.
  template <class T>
  region<T> add(std::string_view name, std::int64_t count) {
    static_assert(alignof(T) <= alignment, "tessera: elements of a workspace are aligned to at most 256 bytes");
    return {add_bytes(name, count, static_cast<std::int64_t>(sizeof(T))), count};
  }

  /// The size of the whole block.
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  /// The function that the plan is for, in messages.
  [[nodiscard]] std::string function() const { return function_ + std::string(literal_); }
  /// All regions in the order of their offsets; empty if the plan records sizes alone.
  [[nodiscard]] std::vector<entry> const& entries() const { return entries_; }

  /// A table for people: one line for each region, then the sum.
  [[nodiscard]] std::string describe() const {
    std::size_t widest = sizeof("total") - 1;
    for (entry const& e : entries_) {
      widest = e.name.size() > widest ? e.name.size() : widest;
    }
    std::string table = function() + "\n";
    for (entry const& e : entries_) {
      append_line(table, e.name, e.bytes, widest);
    }
    append_line(table, "total", bytes_, widest);
    return table;
  }

 private:
  /// Adds room for elements of so many bytes, and returns its offset.
  std::int64_t add_bytes(std::string_view name, std::int64_t count, std::int64_t size) {
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() - (alignment - 1);
    if (count < 0 || count > (most - bytes_) / size) {
      std::string const where = this->function() + ": " + std::string(name);
      std::int64_t const bytes = checked_multiply(where.c_str(), count, size);
      static_cast<void>(checked_add(where.c_str(), checked_add(where.c_str(), bytes_, bytes), alignment - 1));
    }
    std::int64_t const offset = bytes_;
    std::int64_t const bytes = count * size;
    if (records_ == record::entries) {
      entries_.push_back({std::string(name), offset, bytes});
    }
    bytes_ = (offset + bytes + alignment - 1) / alignment * alignment;
    return offset;
  }
  static void append_line(std::string& table, std::string const& name, std::int64_t bytes, std::size_t widest) {
    constexpr std::size_t digits = 20;
    std::string const number = std::to_string(bytes);
    table += "  " + name + std::string(widest - name.size(), ' ');
    table += std::string(number.size() < digits ? digits - number.size() : 1, ' ') + number + " bytes\n";
  }

  std::string function_;      ///< the function's name, where entries are recorded
  std::string_view literal_;  ///< the function's name, where they are not
  record records_;
  std::vector<entry> entries_;
  std::int64_t bytes_ = 0;
};

/// A block of memory that is large enough for a plan.
class workspace {
 public:
  /// Makes the regions of `plan` in `block`, which must be large enough (shape_error), not null (value_error) and stay
  /// where it is.
  workspace(workspace_plan const& plan, array_view<std::byte> block) : first_(block.data), bytes_(plan.bytes()) {
    auto const address = reinterpret_cast<std::uintptr_t>(block.data);
    auto const beyond = static_cast<std::int64_t>(address % static_cast<std::uintptr_t>(workspace_plan::alignment));
    bool const is_there = block.data != nullptr && beyond == 0;
    if (block.size() >= plan.bytes() && block.is_contiguous() && (plan.bytes() == 0 || is_there)) {
      return;  // without making the function's name
    }
    std::string const function = plan.function();
    check<shape_error>(block.size() >= plan.bytes(), function, ": the workspace has ", block.size(),
                       " bytes but the plan needs ", plan.bytes());
    check_memory(function.c_str(), "bytes of the workspace", block);
    check<shape_error>(block.is_contiguous(), function, ": the workspace has a stride of ", block.stride(0),
                       " but must have a stride of 1");
    check<shape_error>(beyond == 0, function, ": the workspace starts ", beyond, " bytes past a multiple of ",
                       workspace_plan::alignment);
  }

  /// How many bytes of the block the plan takes.
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  /// The first byte of the block.
  [[nodiscard]] std::byte* data() const { return first_; }

  /// Throws shape_error if a call needs more bytes than were planned. `extents` describe the call in pieces of text and
  /// numbers: 16, " tokens of ", 64, " channels".
  template <class... Extents>
  void check_room(char const* function, std::int64_t needed, Extents const&... extents) const {
    check<shape_error>(bytes_ >= needed, function, ": the workspace is of a plan of ", bytes_, " bytes but ",
                       extents..., " need ", needed);
  }

  /// The elements of a region that the same plan added.
  template <class T>
  [[nodiscard]] array_view<T> operator[](region<T> where) const {
    std::int64_t const end = where.offset + where.count * static_cast<std::int64_t>(sizeof(T));
    if (end > bytes_) {  // a call looks up dozens of regions: what makes the message stays out of the way
      refuse_region(end, bytes_);
    }
    return {reinterpret_cast<T*>(first_ + where.offset), where.count};
  }

 private:
  [[noreturn]] static void refuse_region(std::int64_t end, std::int64_t bytes) {
    throw shape_error(join("workspace: a region ends at byte ", end, " but the plan at ", bytes));
  }

  std::byte* first_;
  std::int64_t bytes_;
};

}  // namespace v0
}  // namespace tessera
