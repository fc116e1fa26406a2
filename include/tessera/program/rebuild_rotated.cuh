// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `rebuild_rotated`: rebuild_keys (program/bring_chunks.hpp) by tensor cores, for 16-bit coefficients and directions:
/// gathers coefficients of missed chunks into registers, multiplies them with the directions of their head in shared
/// memory, turns the sums in fp32 and rounds once.
///
/// Tokens go in eights, half of the 16 rows of a product, so that nothing but missed chunks is multiplied. For rank 160
/// and 128 channels a chunk of 8 tokens and head is 0.33 MFLOP, 2.5 KB read and 2 KB written: 16 sequences of 8 key
/// heads of which each misses 256 chunks are 10.7 GFLOP and 151 MB, 35 us of an H200's memory; at a hit rate of 0.6 14.
/// Directions of a head are 40 KiB, which blocks that share its list each read once, and warps again from shared memory
/// for every 32 tokens. A token turns as the first of its eight does, which lanes work out together, and then by 0 to 7
/// positions more, which is the same for all eights: so that the tables are read for every eighth token only.
#pragma once

#include <cstdint>

#include <tessera/core/known_divisor.hpp>
#include <tessera/program/bring_chunks.hpp>
#include <tessera/program/piece_operands.cuh>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/group.cuh>

namespace tessera {
inline namespace v0 {

/// Pairs: of the rotation; of halves all channels turn, or none.
template <int Channels, class T, class E, rotary_pairs Pairs>
struct rebuild_rotated {
  /// The portable program, whose members say what is to be done.
  using call_type = rebuild_keys<T, E>;
  static constexpr int sixteens = 2;           ///< of tokens, that a warp has at a time
  static constexpr int eights = 2 * sixteens;  ///< likewise
  static constexpr int lanes = sixteens == 1 ? 256 : 128;
  static constexpr int blocks_per_multiprocessor = 2;
  static constexpr int warps = lanes / 32;
  static constexpr int most_blocks = 6;          ///< of 32 coefficients
  static constexpr int passes = Channels / 64;   ///< over 64 channels, in two parts of 32
  static constexpr int columns = Channels / 16;  ///< that lanes have 16 channels of: lane % 4 of each pass
  /// Of 8 coefficients, of a channel's row of directions; padded.
  static constexpr int most_pieces = static_cast<int>(padded_pieces(4 * most_blocks));

  /// Of two neighbouring pairs, the first one even.
  struct alignas(16) two_rotations {
    rotation of[2];
  };
  struct scratch_type {
    uint4 directions[Channels * most_pieces];          ///< rows of the head's channels
    two_rotations steps[passes * 4][32];               ///< of a lane's token, from the first of its eight
    two_rotations firsts[warps][eights][4 * columns];  ///< of the first tokens of the warp's eights
  };

  call_type call;           ///< extents, memory, step and rotation
  std::int32_t splits;      ///< blocks that share a list of missed chunks
  known_divisor by_splits;  ///< the same
  known_divisor by_heads;   ///< key heads
  known_divisor by_eights;  ///< eights of a chunk

  /// `splits`: blocks for the list of each key head of each step; fewer than 2^31 blocks in all.
  [[nodiscard]] static rebuild_rotated of(call_type const& call, std::int64_t splits) {
    return {call, static_cast<std::int32_t>(splits), known_divisor::of(static_cast<std::uint32_t>(splits)),
            known_divisor::of(static_cast<std::uint32_t>(call.extents.key_heads)),
            known_divisor::of(static_cast<std::uint32_t>(call.extents.chunk / 8))};
  }
  [[nodiscard]] std::int64_t groups() const { return call.step.steps() * call.extents.key_heads * splits; }

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t which,
                                             scratch_type& scratch) const {
    const std::uint32_t list = by_splits.quotient(static_cast<std::uint32_t>(which));
    const auto split = static_cast<std::int32_t>(by_splits.remainder(static_cast<std::uint32_t>(which)));
    const std::int64_t at = by_heads.quotient(list);
    const std::int64_t head = by_heads.remainder(list);
    const auto units = call.step.missed_counts(at, head) * static_cast<std::int32_t>(by_eights.divisor);
    const std::int64_t sequence = call.step.sequence(call.extents, call.memory.sequences, at);
    if (sequence < 0 || eights * split * warps >= units) {
      return;
    }
    stage(sequence, head, scratch, group.lane);
    async_copy_wait_all();
    group.sync();
    const std::int64_t first_row = call.memory.sequences[sequence].first * call.extents.chunk;
    const int warp = group.lane / 32;
    missed_chunk const* const missed = &call.step.missed(at, head, 0);
    T* const keys = &call.memory.slot_keys(sequence, head, 0, 0, 0);
    for (std::int32_t first = eights * (split * warps + warp); first < units; first += eights * splits * warps) {
      rebuild(missed, first, units - 1, first_row, keys, scratch, warp, group.lane % 32);
    }
  }

 private:
  [[nodiscard]] __device__ __forceinline__ int blocks() const { return static_cast<int>(call.extents.rank) / 32; }
  [[nodiscard]] __device__ __forceinline__ int row_pieces() const {
    return static_cast<int>(padded_pieces(call.extents.rank / piece_numbers));
  }
  [[nodiscard]] __device__ __forceinline__ bool has_blocks() const { return call.rotary.blocks.data != nullptr; }

  /// The first of the two pairs that a column has as its `which`th of four: of eight neighbours, or four of each part.
  [[nodiscard]] __device__ __forceinline__ static int first_pair(int column, int which) {
    if constexpr (Pairs == rotary_pairs::halves) {
      return 8 * column + 2 * which;
    }
    return 4 * column + 2 * (which % 2) + which / 2 * (Channels / 4);
  }
  [[nodiscard]] __device__ __forceinline__ two_rotations load_two(matrix_view<rotation const> const& table,
                                                                  std::int64_t row, int pair) const {
    return 2 * pair < call.rotary.channels() ? *reinterpret_cast<two_rotations const*>(&table(row, pair))
                                             : two_rotations{{{1.0F, 0.0F}, {1.0F, 0.0F}}};
  }
  [[nodiscard]] __device__ __forceinline__ static two_rotations both(two_rotations const& a, two_rotations const& b) {
    return {{rotary_embedding::both(a.of[0], b.of[0]), rotary_embedding::both(a.of[1], b.of[1])}};
  }
  /// From one position to another, both of the same length.
  [[nodiscard]] __device__ __forceinline__ static rotation between(rotation const& from, rotation const& to) {
    const float inverse = 1.0F / multiply_add(from.cosine, from.cosine, from.sine * from.sine);
    return {inverse * multiply_add(to.cosine, from.cosine, to.sine * from.sine),
            inverse * multiply_add(to.sine, from.cosine, -to.cosine * from.sine)};
  }

  __device__ __forceinline__ void stage(std::int64_t sequence, std::int64_t head, scratch_type& scratch,
                                        int lane) const {
    auto const* const from = reinterpret_cast<uint4 const*>(&call.memory.directions(sequence, head * Channels, 0));
    const auto pieces = static_cast<int>(call.extents.rank) / piece_numbers;
    for (int row = lane / 32; row < Channels; row += warps) {
      for (int piece = lane % 32; piece < pieces; piece += 32) {
        async_copy_16(&scratch.directions[row * row_pieces() + piece], from + row * pieces + piece);
      }
    }
    for (int i = lane; i < 4 * passes * 32 && has_blocks(); i += lanes) {
      const int pair = first_pair(i / 128 * 4 + i % 4, i / 32 % 4);
      const two_rotations from_zero = load_two(call.rotary.within, 0, pair);
      const two_rotations found = load_two(call.rotary.within, i % 32 / 4, pair);
      scratch.steps[i / 32][i % 32] = {{between(from_zero.of[0], found.of[0]), between(from_zero.of[1], found.of[1])}};
    }
  }

  /// Eights `first` and on; the last one instead of those behind it, as often as there are some: written alike.
  __device__ __forceinline__ void rebuild(missed_chunk const* list, std::int32_t first, std::int32_t last,
                                          std::int64_t first_row, T* keys, scratch_type& scratch, int warp,
                                          int lane) const {
    uint4 rows[eights][most_blocks];
    std::int32_t positions[eights];  // of their first tokens
    std::int32_t places[eights];     // among all tokens of the head's slots
    const auto chunk = static_cast<std::int32_t>(call.extents.chunk);
#pragma unroll
    for (int i = 0; i < eights; ++i) {
      const auto unit = static_cast<std::uint32_t>(min(first + i, last));
      const std::uint32_t of_list = by_eights.quotient(unit);
      const auto inside = 8 * static_cast<std::int32_t>(unit - of_list * by_eights.divisor);
      const missed_chunk missed = list[of_list];
      positions[i] = missed.chunk * chunk + inside;
      places[i] = missed.slot * chunk + inside;
    }
#pragma unroll
    for (int i = 0; i < eights; ++i) {
      auto const* const row = reinterpret_cast<uint4 const*>(call.memory.coefficients.data +
                                                             (first_row + positions[i] + lane / 4) * call.extents.rank);
#pragma unroll
      for (int block = 0; block < most_blocks; ++block) {
        if (block < blocks()) {
          rows[i][block] = load_from_l2(row + row_piece(lane, block));
        }
      }
    }
    __syncwarp();  // what was there has been read
    if (has_blocks()) {
      find_firsts(positions, scratch.firsts[warp], lane);
    }
    __syncwarp();
#pragma unroll 1
    for (int pass = 0; pass < passes; ++pass) {
      float sums[sixteens][8][4] = {};
      multiply(sums, rows, scratch, pass, lane);
      if (call.rotary.channels() > 0) {
        turn(sums, positions, scratch, pass, warp, lane);
      }
#pragma unroll
      for (int i = 0; i < eights; ++i) {
        store_rows(sums[i / 2], i % 2 * 2, keys + std::int64_t{places[i] + lane / 4} * Channels, pass, lane);
      }
    }
  }

  __device__ __forceinline__ void find_firsts(std::int32_t const (&positions)[eights],
                                              two_rotations (&firsts)[eights][4 * columns], int lane) const {
    if (lane < 4 * columns) {
      const int pair = first_pair(lane % columns, lane / columns);
      two_rotations found[eights][2];
#pragma unroll
      for (int i = 0; i < eights; ++i) {
        const auto position = static_cast<std::uint32_t>(positions[i]);
        found[i][0] = load_two(call.rotary.blocks, position / rotary_embedding::block, pair);
        found[i][1] = load_two(call.rotary.within, position % rotary_embedding::block, pair);
      }
#pragma unroll
      for (int i = 0; i < eights; ++i) {
        firsts[i][lane] = both(found[i][0], found[i][1]);
      }
    }
  }

  /// Tiles of the pass's two parts, four each.
  __device__ __forceinline__ void multiply(float (&sums)[sixteens][8][4], uint4 const (&rows)[eights][most_blocks],
                                           scratch_type const& scratch, int pass, int lane) const {
#pragma unroll
    for (int block = 0; block < most_blocks; ++block) {
      if (block < blocks()) {
#pragma unroll
        for (int tile = 0; tile < 8; ++tile) {
          const int row = table_row(tile % 4, lane / 4) + 32 * (pass + tile / 4 * passes);
          const uint4 column = scratch.directions[row * row_pieces() + row_piece(lane, block)];
#pragma unroll
          for (int i = 0; i < sixteens; ++i) {
            multiply_pieces<T>(sums[i][tile], rows[2 * i][block], rows[2 * i + 1][block], column);
          }
        }
      }
    }
  }

  /// As rotary_embedding::turn, two pairs of each eight at a time.
  __device__ __forceinline__ void turn(float (&sums)[sixteens][8][4], std::int32_t const (&positions)[eights],
                                       scratch_type const& scratch, int pass, int warp, int lane) const {
    const int column = 4 * pass + lane % 4;
#pragma unroll
    for (int two = 0; two < 4; ++two) {
      const two_rotations step = scratch.steps[4 * pass + two][lane];
#pragma unroll
      for (int i = 0; i < eights; ++i) {
        const two_rotations by = has_blocks()
                                     ? both(scratch.firsts[warp][i][two * columns + column], step)
                                     : load_two(call.rotary.within, positions[i] + lane / 4, first_pair(column, two));
        float(&tiles)[8][4] = sums[i / 2];
        const int of_row = i % 2 * 2;
        if constexpr (Pairs == rotary_pairs::halves) {
          turn_pair(tiles[two][of_row], tiles[two + 4][of_row], by.of[0]);
          turn_pair(tiles[two][of_row + 1], tiles[two + 4][of_row + 1], by.of[1]);
        } else {
          turn_pair(tiles[2 * two][of_row], tiles[2 * two][of_row + 1], by.of[0]);
          turn_pair(tiles[2 * two + 1][of_row], tiles[2 * two + 1][of_row + 1], by.of[1]);
        }
      }
    }
  }
  __device__ __forceinline__ static void turn_pair(float& first, float& second, rotation const& by) {
    const float turned = multiply_add(first, by.cosine, -second * by.sine);
    second = multiply_add(second, by.cosine, first * by.sine);
    first = turned;
  }

  /// Of a token, a piece of each part.
  __device__ __forceinline__ static void store_rows(float const (&tiles)[8][4], int of_row, T* key, int pass,
                                                    int lane) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const auto word = [&](int tile) {
        return pack_pair<T>(tiles[4 * part + tile][of_row], tiles[4 * part + tile][of_row + 1]);
      };
      reinterpret_cast<uint4*>(key)[row_piece(lane, pass + part * passes)] = {word(0), word(1), word(2), word(3)};
    }
  }
};

}  // namespace v0
}  // namespace tessera
