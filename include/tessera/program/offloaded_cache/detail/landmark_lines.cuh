// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `landmark_lines`: how tensor cores multiply landmarks of chunks, a line of bytes each, by queries, for the selectors
/// whose chunks score_means can score. A warp has 16 lines and 8 queries.
///
///     means in bfloat16    m16n8k16, sums in fp32
///     boxes in bfloat16    m16n8k16, sums in fp32: with p = max(q, 0) and n = min(q, 0), max(q low, q high) is
///                          n low + p high where both are finite; so a box is a line of twice the channels
///     codes of means       m16n8k32: a query is s (256 high + low) with high and low in 8 bits, and s its largest
///                          magnitude / 32512. Sums of products of codes are exact; so scores differ from those of the
///                          query in fp32 by what its 16 bits leave: s / 2 a channel.
#pragma once

#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/quantize/code_scale.hpp>
#include <tessera/reduce/absolute_maximum_or_nan.hpp>
#include <tessera/select/coded_landmark.hpp>
#include <tessera/select/landmark.hpp>
#include <tessera/select/quest.hpp>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/mma.cuh>
#include <tessera/tile/cuda/row_operands.cuh>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

/// Lines of heads of `Channels` channels, a multiple of 32. S: the selector.
template <int Channels, ChunkSelector S>
struct landmark_lines;

/// Whether a NaN among scores of such lines says only that the selector's own score() must be called.
template <class Lines>
inline constexpr bool doubts_nans = requires {
  requires Lines::doubts_nans;
};

/// The least odd multiple of `step` that is not below `bytes`.
[[nodiscard]] constexpr int next_odd_multiple(int bytes, int step) {
  return divide_up(bytes - step, 2 * step) * 2 * step + step;
}

/// Where lines in bfloat16 lie in shared memory, and queries that are multiplied with them as they are.
template <int Channels>
struct lines_in_bfloat16 {
  static constexpr int spare_bytes = 128;  ///< the gaps for each eight lines in shared memory
  /// The gap between eight chunks' lines in shared memory, which begin at multiples of 128 bytes, and the next eight,
  /// so that lines that are loaded together are in different banks.
  [[nodiscard]] static constexpr int gap(int) { return 64; }
  /// Bytes between a chunk's lines and the next one's, at least `bytes`, so that lines of eight neighbouring chunks,
  /// which are loaded together, are in different banks.
  [[nodiscard]] static constexpr int pitch(int bytes) { return next_odd_multiple(bytes, 64); }

  /// A query as it is loaded, query lane / 4 of 8.
  using raw_type = row_words<Channels>;
  /// A query as it is multiplied.
  struct queries_type {
    row_words<Channels> rows;  ///< query lane / 4 of 8

    /// Prepares the loaded queries.
    __device__ __forceinline__ void make(raw_type const& raw, int) { rows = raw; }
  };
};

/// Lines of means in bfloat16, which begin at multiples of 16 bytes.
template <int Channels, int Chunk, class QueryGroup>
struct landmark_lines<Channels, landmark_selector<Chunk, QueryGroup>> : lines_in_bfloat16<Channels> {
  static constexpr int bytes = 2 * Channels;  ///< bytes of a line
  using typename lines_in_bfloat16<Channels>::queries_type;

  uint4 words[2][row_words<Channels>::blocks];  ///< pieces of two lines

  /// Loads two lines.
  __device__ __forceinline__ void load(unsigned char const* first, unsigned char const* second, int lane) {
#pragma unroll
    for (int number = 0; number < row_words<Channels>::blocks; ++number) {
      words[0][number] = reinterpret_cast<uint4 const*>(first)[row_piece(lane, number)];
      words[1][number] = reinterpret_cast<uint4 const*>(second)[row_piece(lane, number)];
    }
  }
  /// Multiplies both lines with queries 2 * (lane % 4) and the next one; the products of the first line come first.
  __device__ __forceinline__ void multiply(float (&scores)[4], queries_type const& queries) const {
    float sums[2][4] = {};  // two, so that products wait less for each other
#pragma unroll
    for (int number = 0; number < row_words<Channels>::blocks; ++number) {
      multiply_pieces<bfloat16>(sums[number % 2], words[0][number], words[1][number], queries.rows.words[number]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[i] = sums[0][i] + sums[1][i];
    }
  }
};

/// Lines of boxes in bfloat16, the least numbers of all channels before the largest, which begin at multiples of 16
/// bytes.
template <int Channels, int Chunk, class QueryGroup>
struct landmark_lines<Channels, quest_selector<Chunk, QueryGroup>> : lines_in_bfloat16<Channels> {
  static constexpr int bytes = 4 * Channels;    ///< bytes of a line
  static constexpr int blocks = Channels / 32;  ///< blocks of least, and of largest, numbers
  /// The end of a box that a query leaves out is multiplied by 0, which is NaN where that end is infinite.
  static constexpr bool doubts_nans = true;
  using typename lines_in_bfloat16<Channels>::queries_type;

  uint4 lines[2][2 * blocks];  ///< pieces of two lines

  /// Loads two lines.
  __device__ __forceinline__ void load(unsigned char const* first, unsigned char const* second, int lane) {
#pragma unroll
    for (int number = 0; number < 2 * blocks; ++number) {
      lines[0][number] = reinterpret_cast<uint4 const*>(first)[row_piece(lane, number)];
      lines[1][number] = reinterpret_cast<uint4 const*>(second)[row_piece(lane, number)];
    }
  }
  /// Multiplies both lines with queries 2 * (lane % 4) and the next one; the products of the first line come first.
  __device__ __forceinline__ void multiply(float (&scores)[4], queries_type const& queries) const {
    float sums[2][4] = {};  // two, so that products wait less for each other
#pragma unroll
    for (int block = 0; block < blocks; ++block) {
      uint4 const& all = queries.rows.words[block];  // split here, since both parts would take twice the registers
      uint4 const below{below_zero(all.x), below_zero(all.y), below_zero(all.z), below_zero(all.w)};
      multiply_pieces<bfloat16>(sums[0], lines[0][block], lines[1][block], below);
      multiply_pieces<bfloat16>(sums[1], lines[0][blocks + block], lines[1][blocks + block],
                                {all.x ^ below.x, all.y ^ below.y, all.z ^ below.z, all.w ^ below.w});
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[i] = sums[0][i] + sums[1][i];
    }
  }

 private:
  /// The numbers of a pair whose sign bit is set; zeros for the others.
  __device__ __forceinline__ static std::uint32_t below_zero(std::uint32_t pair) {
    return pair & (pair >> 15 & 0x00010001U) * 0xffffU;
  }
};

/// Lines of codes of means and their scale, which begin at multiples of 4 bytes.
template <int Channels, int Chunk, class QueryGroup>
struct landmark_lines<Channels, coded_landmark_selector<Chunk, QueryGroup>> {
  /// Bytes of a line.
  static constexpr int bytes = Channels + coded_landmark_selector<Chunk, QueryGroup>::scale_bytes;
  static constexpr int spare_bytes = 160;       ///< the gaps for each eight lines in shared memory
  static constexpr int blocks = Channels / 32;  ///< blocks of numbers that an instruction takes
  static_assert(bytes % 4 == 0 && Channels % 32 == 0);

  /// Bytes between eight chunks' lines in shared memory and the next eight; eight heads' lines have 33 times 32 bytes.
  [[nodiscard]] static constexpr int gap(int heads) { return heads == 8 ? 16 : 64; }
  /// Bytes between a chunk's lines and the next one's: see lines of means.
  [[nodiscard]] static constexpr int pitch(int bytes) { return next_odd_multiple(bytes, 16); }

  /// A query as it is loaded, query lane / 4 of 8.
  struct raw_type {
    uint2 pieces[2 * blocks];  ///< numbers 4 * (lane % 4) and the next three of each 16

    /// Loads a query; a null one is zeros.
    __device__ __forceinline__ void load(bfloat16 const* row, int lane) {
#pragma unroll
      for (int i = 0; i < 2 * blocks; ++i) {
        pieces[i] = row != nullptr ? load_once(reinterpret_cast<uint2 const*>(row + 16 * i) + lane % 4) : uint2{0, 0};
      }
    }
  };
  /// A query in codes, and the scales of the queries of which the lane has scores.
  struct queries_type {
    std::uint32_t high[blocks][2];  ///< high codes, in the order of the instruction's columns
    std::uint32_t low[blocks][2];   ///< low codes, in the order of the instruction's columns
    float scales[2];                ///< scales of queries 2 * (lane % 4) and the next one

    static constexpr int highest = 127 * 256;  ///< the largest value of both codes together

    /// Codes the loaded queries. Where a number is not finite, the scale is NaN.
    __device__ __forceinline__ void make(raw_type const& raw, int lane) {
      std::uint32_t magnitudes = 0;  // two magnitudes of 16 bits, which order as numbers do
#pragma unroll
      for (uint2 const& piece : raw.pieces) {
        magnitudes = __vmaxu2(magnitudes, __vmaxu2(piece.x & 0x7fff7fffU, piece.y & 0x7fff7fffU));
      }
      absolute_maximum_or_nan_reducer const range;
      auto largest = max(magnitudes << 16, magnitudes & 0xffff0000U);
      range.merge(largest, shuffle_xor(largest, 1));
      range.merge(largest, shuffle_xor(largest, 2));
      code_scale const fitted = fit_scale(range.value(largest), static_cast<float>(highest));
#pragma unroll
      for (int i = 0; i < 2 * blocks; ++i) {
        code(raw.pieces[i], fitted.reciprocal, high[i / 2][i % 2], low[i / 2][i % 2]);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        scales[i] = shuffle(fitted.scale, 8 * (lane % 4) + 4 * i);
      }
    }

   private:
    /// The sum of the nearest whole number and 128, as 16 bits: bytes 1 and 0 are the codes, byte 0 with its sign
    /// inverted.
    __device__ __forceinline__ static std::uint32_t whole(std::uint32_t number, float reciprocal) {
      constexpr float no_fraction = 0x1.8p23F;  // floats near it have no fraction, and their low bits are what is added
      return __float_as_uint(__fmaf_rn(__uint_as_float(number), reciprocal, no_fraction + 128.0F));
    }
    __device__ __forceinline__ static void code(uint2 const& piece, float reciprocal, std::uint32_t& high,
                                                std::uint32_t& low) {
      std::uint32_t const first =
          pick_bytes(whole(piece.x << 16, reciprocal), whole(piece.x & 0xffff0000U, reciprocal), 0x5140U);
      std::uint32_t const second =
          pick_bytes(whole(piece.y << 16, reciprocal), whole(piece.y & 0xffff0000U, reciprocal), 0x5140U);
      high = pick_bytes(first, second, 0x7632U);
      low = pick_bytes(first, second, 0x5410U) ^ 0x80808080U;
    }
  };

  std::uint32_t words[blocks][4];  ///< codes of both lines, in the order of the instruction's rows
  float scales[2];                 ///< scales of both lines

  /// Loads two lines.
  __device__ __forceinline__ void load(unsigned char const* first, unsigned char const* second, int lane) {
    auto const* const one = reinterpret_cast<std::uint32_t const*>(first);
    auto const* const other = reinterpret_cast<std::uint32_t const*>(second);
#pragma unroll
    for (int i = 0; i < 2 * blocks; ++i) {
      words[i / 2][i % 2 * 2] = one[4 * i + lane % 4];
      words[i / 2][i % 2 * 2 + 1] = other[4 * i + lane % 4];
    }
    scales[0] = __uint_as_float(one[Channels / 4]);
    scales[1] = __uint_as_float(other[Channels / 4]);
  }
  /// Multiplies both lines with queries 2 * (lane % 4) and the next one; the products of the first line come first.
  __device__ __forceinline__ void multiply(float (&scores)[4], queries_type const& queries) const {
    std::int32_t high[4] = {};
    std::int32_t low[4] = {};
#pragma unroll
    for (int block = 0; block < blocks; ++block) {
      warp_mma<std::int8_t>::multiply(high, words[block], queries.high[block]);
      warp_mma<std::int8_t>::multiply(low, words[block], queries.low[block]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[i] = static_cast<float>(256 * high[i] + low[i]) * queries.scales[i % 2] * scales[i / 2];
    }
  }
};

}  // namespace v0
}  // namespace tessera
