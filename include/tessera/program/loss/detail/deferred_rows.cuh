// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `deferred_classifier_rows`: a warp's rows of the classifier's gradient, rounded to 16 bits, on their way to memory
/// while the tensor cores multiply the next tile.
#pragma once

#include <cstdint>
#include <cstring>

#include <tessera/program/loss/block_lists.hpp>
#include <tessera/program/loss/detail/gradient_rows.cuh>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Registers: those of a lane's sums of 16 rows, laid out as warpgroup_mma.cuh says.
template <class Gradient, int Registers>
class deferred_classifier_rows {
 public:
  static_assert(sizeof(Gradient) == 2 && Registers % 32 == 0, "tessera: two sums become a word, 64 columns at a time");

  /// Rounds sums, of which the warp's first row in the part is `row`, as write_classifier_rows does.
  __device__ __forceinline__ void take(write_classifier_rows<Gradient> const& to, float const (&sums)[Registers],
                                       std::int32_t row, std::int32_t channel) {
    float const factor = *to.scale;
#pragma unroll
    for (int i = 0; i < Registers / 2; ++i) {
      words_[i] = pack_pair<Gradient>(sums[2 * i] * factor, sums[2 * i + 1] * factor);
    }
    row_ = row;
    channel_ = channel;
  }
  /// Writes half of what was taken, if there is something: 0, and then 1.
  template <int Half>
  __device__ __forceinline__ void run(write_classifier_rows<Gradient> const& to, loss_part_range const& range) {
    if (row_ < 0) {
      return;
    }
    constexpr int groups = Registers / 16;  // of 32 columns
    auto const lane = static_cast<std::int32_t>(thread_index() % 32);
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      std::int32_t const in_part = row_ + lane / 4 + 8 * side;
      bool const is_there = in_part < range.width();
      std::int64_t entry = range.first + in_part;
      if (is_there && to.order != nullptr) {
        entry = to.order[entry];
      }
      Gradient* const at = &to.target(entry, channel_ + 8 * (lane % 4));
      std::int32_t const count =
          is_there ? static_cast<std::int32_t>(to.target.extent(1)) - channel_ - 8 * (lane % 4) : 0;
#pragma unroll
      for (int group = Half * groups / 2; group < (Half + 1) * groups / 2; ++group) {
        std::uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          words[i] = words_[8 * group + 2 * i + side];
        }
        transpose_of_four(words);
        write(at + 32 * group, words, count - 32 * group);
      }
    }
    row_ = Half == 1 ? -1 : row_;
  }

 private:
  /// Writes 8 neighbouring channels, `count` of which exist.
  __device__ __forceinline__ static void write(Gradient* at, std::uint32_t const (&words)[4], std::int32_t count) {
    if (count >= 8) {
      *reinterpret_cast<uint4*>(at) = uint4{words[0], words[1], words[2], words[3]};
      return;
    }
    Gradient some[8];
    memcpy(some, words, sizeof some);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i < count) {
        at[i] = some[i];
      }
    }
  }

  std::uint32_t words_[Registers / 2];
  std::int32_t row_ = -1;  // of the warp in the part; -1: there is nothing to write
  std::int32_t channel_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
