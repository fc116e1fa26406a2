// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `block_pool`: records which blocks of a paged cache are free, and how many sequences use each of the others. It is
/// in host memory only.
///
///     tessera::block_pool pool(1000);
///     std::int32_t const block = pool.take();      // for one sequence
///     pool.share(block);                           // a second one begins with the same tokens
///     pool.give_back(block);                       // the first has ended; the block is still in use
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/check.hpp>

namespace tessera {
inline namespace v0 {

/// A pool of blocks. The lowest free block is taken first, so that the same calls always give the same blocks.
class block_pool {
 public:
  /// A pool in which all blocks are free. Throws shape_error for more blocks than 31 bits can number.
  explicit block_pool(std::int64_t blocks) {
    check<shape_error>(blocks >= 0 && blocks <= INT32_MAX, "block_pool: there are ", blocks,
                       " blocks but block tables number them with 31 bits, up to ", INT32_MAX);
    users_.resize(static_cast<std::size_t>(blocks));
    for (std::int64_t block = blocks; block-- > 0;) {
      free_.push_back(static_cast<std::int32_t>(block));
    }
  }

  /// The number of all blocks.
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(users_.size()); }
  /// The number of free blocks.
  [[nodiscard]] std::int64_t free() const { return static_cast<std::int64_t>(free_.size()); }
  /// The number of sequences that use a block; 0 for a free one. Throws value_error if there is no such block.
  [[nodiscard]] std::int32_t users(std::int32_t block) const { return users_[checked(block)]; }

  /// Takes the lowest free block. Throws shape_error if there is none.
  [[nodiscard]] std::int32_t take() {
    check<shape_error>(!free_.empty(), "block_pool.take: ", users_.size(), " blocks are in use, of ", users_.size());
    std::int32_t const block = free_.back();
    free_.pop_back();
    users_[static_cast<std::size_t>(block)] = 1;
    return block;
  }
  /// Adds a sequence that uses a block. Throws value_error for a block that is not in use.
  void share(std::int32_t block) {
    check<value_error>(users_[checked(block)] > 0, "block_pool.share: block ", block, " is in use by nobody");
    ++users_[checked(block)];
  }
  /// Ends a sequence's use of a block, which is free when no sequence uses it. Throws value_error for a block that is
  /// not in use.
  void give_back(std::int32_t block) {
    check<value_error>(users_[checked(block)] > 0, "block_pool.give_back: block ", block, " is in use by nobody");
    if (--users_[checked(block)] == 0) {
      free_.push_back(block);
      for (std::size_t i = free_.size() - 1; i > 0 && free_[i - 1] < free_[i]; --i) {
        std::int32_t const moved = free_[i];
        free_[i] = free_[i - 1];
        free_[i - 1] = moved;
      }
    }
  }

 private:
  [[nodiscard]] std::size_t checked(std::int32_t block) const {
    check<value_error>(block >= 0 && block < size(), "block_pool: block ", block, " is none of ", size());
    return static_cast<std::size_t>(block);
  }

  std::vector<std::int32_t> users_;
  std::vector<std::int32_t> free_;  ///< free blocks, in descending order
};

}  // namespace v0
}  // namespace tessera
