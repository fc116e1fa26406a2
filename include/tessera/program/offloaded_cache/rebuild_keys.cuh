// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `rebuild_rotated`: rebuild_keys (program/offloaded_cache/rebuild_keys.hpp) by tensor cores, for 16-bit coefficients
/// and directions. It gathers coefficients of missed chunks into registers, multiplies them with the directions of
/// their head in shared memory, rotates the sums in fp32 and rounds once.
///
/// Eight tokens are the columns of a product, so that only missed chunks are multiplied. Channels are its rows, and
/// both channels of a pair are in the same lane. For rank 160 and 128 channels a chunk of 8 tokens and head takes 0.33
/// MFLOP, 2.5 KB read and 2 KB written. 16 sequences of 8 key heads, each of which misses 256 chunks, take 10.7 GFLOP
/// and 151 MB, which an H200's memory moves in 35 us, and in 14 us at a hit rate of 0.6. Measured are 69 and 36 us, 5
/// of them for a launch, from cold caches: the warps, 12 a multiprocessor, wait for gathered coefficients and for
/// operands, about as long for either. The directions of a head are 40 KiB. Each of the blocks that share its list
/// reads them once, puts them in the order of operands, and then reads them from shared memory for every 16 tokens. The
/// rotation of a token is that of the first of its eight, which lanes compute together, and then that by 0 to 7 more
/// positions, which is the same for all eights. So the tables are read for every eighth token only.
#pragma once

#include <cstdint>

#include <tessera/core/fast_divisor.hpp>
#include <tessera/program/offloaded_cache/rebuild_keys.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/row_operands.cuh>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

/// Rebuilds keys. Pairs: the pairs of the rotation; with halves, all channels turn or none.
template <int Channels, class T, class E, rotary_pairs Pairs>
struct rebuild_rotated {
  /// The portable program, whose members are the arguments.
  using call_type = rebuild_keys<T, E>;
  static constexpr int eights = 2;  ///< groups of eight tokens that a warp has at a time
  static constexpr int lanes = 192;
  static constexpr int blocks_per_multiprocessor = 2;
  static constexpr int warps = lanes / 32;
  static constexpr int most_blocks = 6;  ///< the most blocks of 32 coefficients
  /// Tiles of 8 pairs of channels; lane / 4 has so many neighbouring pairs.
  static constexpr int tiles = Channels / 16;
  static constexpr int twos = tiles / 2;                        ///< twos of neighbouring pairs of a lane
  static constexpr std::int64_t of_block = 8 * eights * warps;  ///< tokens that a thread block rebuilds at a time

  /// The rotations of two neighbouring pairs, the first of which is even.
  struct alignas(16) two_rotations {
    rotation of[2];  ///< the rotation of each pair
  };
  struct scratch_type {
    uint4 directions[tiles][most_blocks][2][32];  ///< operands of each lane, for 16 channels and 16 coefficients
    /// From the first token of an eight to each of a lane's two tokens.
    two_rotations steps[2][twos][32];
    two_rotations firsts[warps][eights][Channels / 4];  ///< rotations of the first tokens of the warp's eights
  };

  call_type call;          ///< extents, memory, step and rotation
  std::int32_t splits;     ///< thread blocks that share a list of missed chunks
  fast_divisor by_splits;  ///< `splits` as a divisor
  fast_divisor by_heads;   ///< the number of key heads, as a divisor
  fast_divisor by_eights;  ///< the eights of a chunk, as a divisor

  /// The program for a call. `splits`: thread blocks for the list of each key head of each step; fewer than 2^31 blocks
  /// in all.
  [[nodiscard]] static rebuild_rotated of(call_type const& call, std::int64_t splits) {
    return {call, static_cast<std::int32_t>(splits), fast_divisor::of(static_cast<std::uint32_t>(splits)),
            fast_divisor::of(static_cast<std::uint32_t>(call.extents.key_heads)),
            fast_divisor::of(static_cast<std::uint32_t>(call.extents.chunk / 8))};
  }
  [[nodiscard]] std::int64_t groups() const { return call.step.steps() * call.extents.key_heads * splits; }

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t which,
                                             scratch_type& scratch) const {
    std::uint32_t const list = by_splits.quotient(static_cast<std::uint32_t>(which));
    auto const split = static_cast<std::int32_t>(by_splits.remainder(static_cast<std::uint32_t>(which)));
    std::int64_t const at = by_heads.quotient(list);
    std::int64_t const head = by_heads.remainder(list);
    auto const units = call.step.missed_counts(at, head) * static_cast<std::int32_t>(by_eights.divisor);
    std::int64_t const sequence = call.step.sequence(call.extents, call.memory.sequences, at);
    if (sequence < 0 || eights * split * warps >= units) {
      return;
    }
    stage(sequence, head, scratch, group.lane);
    group.sync();
    list_type const all{&call.step.missed(at, head, 0), units - 1,
                        call.memory.sequences[sequence].first * call.extents.chunk,
                        &call.memory.slot_keys(sequence, head, 0, 0, 0)};
    int const warp = group.lane / 32;
    for (std::int32_t first = eights * (split * warps + warp); first < units; first += eights * splits * warps) {
      rebuild(all, first, scratch, warp, group.lane % 32);
    }
  }

 private:
  struct list_type {
    missed_chunk const* missed;
    std::int32_t last;       ///< the last eight of the list
    std::int64_t first_row;  ///< the first row of the sequence's coefficients
    T* keys;                 ///< keys in the head's slots
  };

  [[nodiscard]] __device__ __forceinline__ int blocks() const { return static_cast<int>(call.extents.rank) / 32; }
  [[nodiscard]] __device__ __forceinline__ bool has_blocks() const { return call.rotary.blocks.data != nullptr; }

  /// Channel `which`, 0 or 1, of pair `pair`.
  [[nodiscard]] __device__ __forceinline__ static int channel_of(int pair, int which) {
    return Pairs == rotary_pairs::halves ? pair + which * (Channels / 2) : 2 * pair + which;
  }
  [[nodiscard]] __device__ __forceinline__ two_rotations load_two(matrix_view<rotation const> const& table,
                                                                  std::int64_t row, int pair) const {
    return 2 * pair < call.rotary.channels() ? *reinterpret_cast<two_rotations const*>(&table(row, pair))
                                             : two_rotations{{{1.0F, 0.0F}, {1.0F, 0.0F}}};
  }
  [[nodiscard]] __device__ __forceinline__ static two_rotations both(two_rotations const& a, two_rotations const& b) {
    return {{rotary_embedding::both(a.of[0], b.of[0]), rotary_embedding::both(a.of[1], b.of[1])}};
  }
  /// The rotation from one position to another, both of the same length.
  [[nodiscard]] __device__ __forceinline__ static rotation between(rotation const& from, rotation const& to) {
    float const inverse = 1.0F / multiply_add(from.cosine, from.cosine, from.sine * from.sine);
    return {inverse * multiply_add(to.cosine, from.cosine, to.sine * from.sine),
            inverse * multiply_add(to.sine, from.cosine, -to.cosine * from.sine)};
  }

  /// Loads directions and steps to shared memory. Lane l of a warp has the pair in row l / 4 of a tile, and piece l % 4
  /// of each block of the pair's coefficients.
  __device__ __forceinline__ void stage(std::int64_t sequence, std::int64_t head, scratch_type& scratch,
                                        int lane) const {
    auto const* const from = reinterpret_cast<uint4 const*>(&call.memory.directions(sequence, head * Channels, 0));
    auto const pieces = static_cast<int>(call.extents.rank) / piece_numbers;
    int const of_warp = lane % 32;
    for (int i = lane / 32; i < tiles * blocks(); i += warps) {
      int const tile = i % tiles;
      int const block = i / tiles;
      int const pair = tiles * (of_warp / 4) + tile;
      uint4 const a = load_from_l2(from + channel_of(pair, 0) * pieces + row_piece(of_warp, block));
      uint4 const b = load_from_l2(from + channel_of(pair, 1) * pieces + row_piece(of_warp, block));
      scratch.directions[tile][block][0][of_warp] = {a.x, b.x, a.y, b.y};
      scratch.directions[tile][block][1][of_warp] = {a.z, b.z, a.w, b.w};
    }
    for (int i = lane; i < 2 * twos * 32 && has_blocks(); i += lanes) {
      int const pair = tiles * (i % 32 / 4) + 2 * (i / 32 % twos);
      two_rotations const zero = load_two(call.rotary.within, 0, pair);
      two_rotations const found = load_two(call.rotary.within, 2 * (i % 4) + i / (32 * twos), pair);
      scratch.steps[i / (32 * twos)][i / 32 % twos][i % 32] = {
          {between(zero.of[0], found.of[0]), between(zero.of[1], found.of[1])}};
    }
  }

  /// Rebuilds the eights from `first` on. Behind the end it repeats the last eight, and writes the same keys again.
  __device__ __forceinline__ void rebuild(list_type const& list, std::int32_t first, scratch_type& scratch, int warp,
                                          int lane) const {
    uint4 columns[eights][most_blocks];
    std::int32_t positions[eights];     // positions of their first tokens
    std::int32_t first_tokens[eights];  // indices of their first tokens among all tokens of the head's slots
    auto const chunk = static_cast<std::int32_t>(call.extents.chunk);
#pragma unroll
    for (int i = 0; i < eights; ++i) {
      auto const eight = static_cast<std::uint32_t>(min(first + i, list.last));
      std::uint32_t const of_list = by_eights.quotient(eight);
      auto const inside = 8 * static_cast<std::int32_t>(eight - of_list * by_eights.divisor);
      missed_chunk const missed = list.missed[of_list];
      positions[i] = missed.chunk * chunk + inside;
      first_tokens[i] = missed.slot * chunk + inside;
    }
#pragma unroll
    for (int i = 0; i < eights; ++i) {
      auto const* const row = reinterpret_cast<uint4 const*>(
          call.memory.coefficients.data + (list.first_row + positions[i] + lane / 4) * call.extents.rank);
#pragma unroll
      for (int block = 0; block < most_blocks; ++block) {
        if (block < blocks()) {
          columns[i][block] = load_from_l2(row + row_piece(lane, block));
        }
      }
    }
    sync_warp();  // all lanes have read the scratch
    if (has_blocks() && lane < Channels / 4) {
      find_firsts(positions, scratch.firsts[warp], lane);
    }
    sync_warp();
    float sums[eights][tiles][4] = {};
    multiply(sums, columns, scratch, lane);
    if (call.rotary.channels() > 0) {
      turn(sums, positions, scratch, warp, lane);
    }
#pragma unroll
    for (int i = 0; i < eights; ++i) {
#pragma unroll
      for (int which = 0; which < 2; ++which) {
        std::int64_t const token = first_tokens[i] + lane % 4 * 2 + which;
        store_token(sums[i], which, list.keys + token * Channels, lane);
      }
    }
  }

  __device__ __forceinline__ void find_firsts(std::int32_t const (&positions)[eights],
                                              two_rotations (&firsts)[eights][Channels / 4], int lane) const {
    int const pair = tiles * (lane % 8) + 2 * (lane / 8);
#pragma unroll
    for (int i = 0; i < eights; ++i) {
      auto const position = static_cast<std::uint32_t>(positions[i]);
      firsts[i][lane] = both(load_two(call.rotary.blocks, position / rotary_embedding::block, pair),
                             load_two(call.rotary.within, position % rotary_embedding::block, pair));
    }
  }

  __device__ __forceinline__ void multiply(float (&sums)[eights][tiles][4], uint4 const (&columns)[eights][most_blocks],
                                           scratch_type const& scratch, int lane) const {
#pragma unroll
    for (int block = 0; block < most_blocks; ++block) {
      if (block < blocks()) {
#pragma unroll
        for (int tile = 0; tile < tiles; ++tile) {
          uint4 const a = scratch.directions[tile][block][0][lane];
          uint4 const b = scratch.directions[tile][block][1][lane];
#pragma unroll
          for (int i = 0; i < eights; ++i) {
            uint4 const column = columns[i][block];
            warp_mma<T>::multiply(sums[i][tile], {a.x, a.y, a.z, a.w}, {column.x, column.y});
            warp_mma<T>::multiply(sums[i][tile], {b.x, b.y, b.z, b.w}, {column.z, column.w});
          }
        }
      }
    }
  }

  /// Rotates sums as rotary_embedding::turn does, two pairs of a token at a time.
  __device__ __forceinline__ void turn(float (&sums)[eights][tiles][4], std::int32_t const (&positions)[eights],
                                       scratch_type const& scratch, int warp, int lane) const {
#pragma unroll
    for (int two = 0; two < twos; ++two) {
#pragma unroll
      for (int which = 0; which < 2; ++which) {
        two_rotations const step = scratch.steps[which][two][lane];
#pragma unroll
        for (int i = 0; i < eights; ++i) {
          two_rotations const by = has_blocks() ? both(scratch.firsts[warp][i][8 * two + lane / 4], step)
                                                : load_two(call.rotary.within, positions[i] + lane % 4 * 2 + which,
                                                           tiles * (lane / 4) + 2 * two);
          turn_pair(sums[i][2 * two][which], sums[i][2 * two][2 + which], by.of[0]);
          turn_pair(sums[i][2 * two + 1][which], sums[i][2 * two + 1][2 + which], by.of[1]);
        }
      }
    }
  }
  __device__ __forceinline__ static void turn_pair(float& first, float& second, rotation const& by) {
    float const turned = multiply_add(first, by.cosine, -second * by.sine);
    second = multiply_add(second, by.cosine, first * by.sine);
    first = turned;
  }

  /// Stores the lane's neighbouring pairs of a token: neighbouring channels of each half, or both channels of each
  /// pair.
  __device__ __forceinline__ static void store_token(float const (&sums)[tiles][4], int which, T* key, int lane) {
    std::uint32_t words[tiles];
#pragma unroll
    for (int i = 0; i < tiles; ++i) {
      int const two = i % twos;
      int const half = 2 * (i / twos) + which;
      words[i] = Pairs == rotary_pairs::halves ? pack_pair<T>(sums[2 * two][half], sums[2 * two + 1][half])
                                               : pack_pair<T>(sums[i][which], sums[i][2 + which]);
    }
    constexpr int apart = Pairs == rotary_pairs::halves ? Channels / 2 : tiles;
    T* const to = key + (Pairs == rotary_pairs::halves ? tiles : 2 * tiles) * (lane / 4);
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      std::uint32_t const* const of_part = words + part * twos;
      if constexpr (twos == 4) {
        *reinterpret_cast<uint4*>(to + part * apart) = {of_part[0], of_part[1], of_part[2], of_part[3]};
      } else {
        *reinterpret_cast<uint2*>(to + part * apart) = {of_part[0], of_part[1]};
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
