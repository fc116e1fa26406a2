// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `rebuild_rotated`: rebuild_keys (program/bring_chunks.hpp) by tensor cores, for 16-bit coefficients and directions:
/// gathers coefficients of missed chunks into registers, multiplies them with the directions of their head in shared
/// memory, turns the sums in fp32 and rounds once.
///
/// A chunk of 8 tokens is half of the 16 rows of a product, so that nothing but missed chunks is multiplied. For rank
/// 160 and 128 channels a chunk and head is 0.33 MFLOP, 2.5 KB read and 2 KB written: for 8 key heads of which each
/// misses 102 chunks 0.27 GFLOP and 3.7 MB, less than 2 us of a device. Directions of a head are 40 KiB, which blocks
/// that share its list each read once.
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
  static constexpr int lanes = 256;
  static constexpr int warps = lanes / 32;
  static constexpr int most_blocks = 6;       ///< of 32 coefficients
  static constexpr int tiles = Channels / 8;  ///< of 8 channels
  /// Of 8 coefficients, of a channel's row of directions; padded.
  static constexpr int most_pieces = static_cast<int>(padded_pieces(4 * most_blocks));

  struct scratch_type {
    uint4 directions[Channels * most_pieces];  ///< rows of the head's channels
  };

  call_type call;           ///< extents, memory, step and rotation
  std::int32_t splits;      ///< blocks that share a list of missed chunks
  known_divisor by_splits;  ///< the same
  known_divisor by_heads;   ///< key heads

  /// `splits`: blocks for the list of each key head of each step; fewer than 2^31 blocks in all.
  [[nodiscard]] static rebuild_rotated of(call_type const& call, std::int64_t splits) {
    return {call, static_cast<std::int32_t>(splits), known_divisor::of(static_cast<std::uint32_t>(splits)),
            known_divisor::of(static_cast<std::uint32_t>(call.extents.key_heads))};
  }
  [[nodiscard]] std::int64_t groups() const { return call.step.steps() * call.extents.key_heads * splits; }

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t which,
                                             scratch_type& scratch) const {
    const std::uint32_t list = by_splits.quotient(static_cast<std::uint32_t>(which));
    const auto split = static_cast<std::int32_t>(by_splits.remainder(static_cast<std::uint32_t>(which)));
    const std::int64_t at = by_heads.quotient(list);
    const std::int64_t head = by_heads.remainder(list);
    const auto units = step_count(at, head) * eights();
    const std::int64_t sequence = call.step.sequence(call.extents, call.memory.sequences, at);
    if (sequence < 0 || 2 * split * warps >= units) {
      return;
    }
    stage(sequence, head, scratch, group.lane);
    async_copy_wait_all();
    group.sync();
    const int lane = group.lane % 32;
    for (std::int32_t pair = split * warps + group.lane / 32; 2 * pair < units; pair += splits * warps) {
      const eight_tokens first = find(at, sequence, head, 2 * pair, lane);
      // Of an odd number the last one is there twice, and written twice alike.
      const eight_tokens second = find(at, sequence, head, min(2 * pair + 1, units - 1), lane);
      float sums[tiles][4] = {};
      multiply(sums, first, second, scratch, lane);
      store_row(sums, 0, first, lane);
      store_row(sums, 2, second, lane);
    }
  }

 private:
  /// The lane's row of eight tokens.
  struct eight_tokens {
    T const* coefficients;
    T* key;
    std::int64_t position;
  };

  [[nodiscard]] __device__ __forceinline__ std::int32_t step_count(std::int64_t at, std::int64_t head) const {
    return call.step.missed_counts(at, head);
  }
  [[nodiscard]] __device__ __forceinline__ std::int32_t eights() const {
    return static_cast<std::int32_t>(call.extents.chunk) / 8;
  }
  [[nodiscard]] __device__ __forceinline__ int blocks() const { return static_cast<int>(call.extents.rank) / 32; }
  [[nodiscard]] __device__ __forceinline__ int row_pieces() const {
    return static_cast<int>(padded_pieces(call.extents.rank / piece_numbers));
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
  }

  [[nodiscard]] __device__ __forceinline__ eight_tokens find(std::int64_t at, std::int64_t sequence, std::int64_t head,
                                                             std::int32_t unit, int lane) const {
    const missed_chunk missed = call.step.missed(at, head, unit / eights());
    const std::int64_t token = unit % eights() * 8 + lane / 4;
    const std::int64_t position = missed.chunk * call.extents.chunk + token;
    const std::int64_t row = call.memory.sequences[sequence].first * call.extents.chunk + position;
    return {&call.memory.coefficients(row, 0), &call.memory.slot_keys(sequence, head, missed.slot, token, 0), position};
  }

  __device__ __forceinline__ void multiply(float (&sums)[tiles][4], eight_tokens const& first,
                                           eight_tokens const& second, scratch_type const& scratch, int lane) const {
    uint4 rows[2][most_blocks];
#pragma unroll
    for (int block = 0; block < most_blocks; ++block) {
      if (block < blocks()) {
        rows[0][block] = load_from_l2(reinterpret_cast<uint4 const*>(first.coefficients) + row_piece(lane, block));
        rows[1][block] = load_from_l2(reinterpret_cast<uint4 const*>(second.coefficients) + row_piece(lane, block));
      }
    }
#pragma unroll
    for (int block = 0; block < most_blocks; ++block) {
      if (block < blocks()) {
#pragma unroll
        for (int tile = 0; tile < tiles; ++tile) {
          const int row = table_row(tile, lane / 4);
          multiply_pieces<T>(sums[tile], rows[0][block], rows[1][block],
                             scratch.directions[row * row_pieces() + row_piece(lane, block)]);
        }
      }
    }
  }

  /// Turns and writes a row: numbers `first` and the next of each tile.
  __device__ __forceinline__ void store_row(float (&sums)[tiles][4], int first, eight_tokens const& tokens,
                                            int lane) const {
    float values[Channels / 32][8];
#pragma unroll
    for (int i = 0; i < Channels / 4; ++i) {
      values[i / 8][i % 8] = sums[i / 2][first + i % 2];
    }
    if (call.rotary.channels() > 0) {
      turn(values, tokens.position, lane);
    }
#pragma unroll
    for (int part = 0; part < Channels / 32; ++part) {
      float const(&v)[8] = values[part];
      const uint4 piece{pack_pair<T>(v[0], v[1]), pack_pair<T>(v[2], v[3]), pack_pair<T>(v[4], v[5]),
                        pack_pair<T>(v[6], v[7])};
      reinterpret_cast<uint4*>(tokens.key)[row_piece(lane, part)] = piece;
    }
  }

  /// Of two neighbouring pairs, the first one even.
  struct alignas(16) two_rotations {
    rotation of[2];
  };
  [[nodiscard]] __device__ __forceinline__ two_rotations rotations_at(std::int64_t position, std::int64_t pair) const {
    const rotary_embedding& rotary = call.rotary;
    const auto load_two = [pair](matrix_view<rotation const> const& table, std::int64_t row) {
      return *reinterpret_cast<two_rotations const*>(&table(row, pair));
    };
    if (rotary.blocks.data == nullptr) {
      return load_two(rotary.within, position);
    }
    const two_rotations a = load_two(rotary.blocks, position / rotary_embedding::block);
    const two_rotations b = load_two(rotary.within, position % rotary_embedding::block);
    return {{rotary_embedding::both(a.of[0], b.of[0]), rotary_embedding::both(a.of[1], b.of[1])}};
  }

  /// As rotary_embedding::turn.
  __device__ __forceinline__ void turn(float (&values)[Channels / 32][8], std::int64_t position, int lane) const {
    constexpr int parts = Channels / 32;
    if constexpr (Pairs == rotary_pairs::halves) {
#pragma unroll
      for (int part = 0; part < parts / 2; ++part) {
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
          const two_rotations by = rotations_at(position, piece_numbers * row_piece(lane, part) + i);
          turn_pair(values[part][i], values[part + parts / 2][i], by.of[0]);
          turn_pair(values[part][i + 1], values[part + parts / 2][i + 1], by.of[1]);
        }
      }
    } else {
#pragma unroll
      for (int part = 0; part < parts; ++part) {
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          const int pair = piece_numbers / 2 * row_piece(lane, part) + i;
          if (2 * pair < call.rotary.channels()) {
            const two_rotations by = rotations_at(position, pair);
            turn_pair(values[part][2 * i], values[part][2 * i + 1], by.of[0]);
            turn_pair(values[part][2 * i + 2], values[part][2 * i + 3], by.of[1]);
          }
        }
      }
    }
  }
  __device__ __forceinline__ static void turn_pair(float& first, float& second, rotation const& by) {
    const float turned = multiply_add(first, by.cosine, -second * by.sine);
    second = multiply_add(second, by.cosine, first * by.sine);
    first = turned;
  }
};

}  // namespace v0
}  // namespace tessera
