// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `correct_tiles`: makes the scores of mean queries and their ranges, which query_corrections makes elsewhere, by
/// tensor cores, and codes of the keys, which encode_tiles makes where queries are not smoothed: keys are read once. A
/// thread block takes tiles of 128 keys, some distance apart, and up to 128 means of a key head (256 channels: 256).
///
/// A score is factor * (mean query . key - mean query . mean key). Means of queries are rounded to the type of keys, so
/// that both are operands as they are, and products are exact. encode_tiles makes the second product, which is the same
/// for all keys, and leaves it beside the mean (`mean_operands`).
///
/// Cost for M means and N keys of C channels: 2 M N C operations, and 4.125 M N bytes of results, the floor: 16384
/// queries and keys of a head take 8.25 MiB. A warp keeps 16 means in registers, as left operands, for all tiles of its
/// block. Tiles of keys are copied to shared memory two ahead, and codes are made of them there. A lane's scores of
/// 16 keys are 16 bytes that lie next to each other, because keys have the slots of value_slot(); a warp has all keys
/// of a tile, so that a range needs no other warp.
///
/// Where no query sees keys from some distance behind it on (`keys_behind`), scores that nobody sees are not made: half
/// of them where queries are as many as keys.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/concepts/program.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/fast_divisor.hpp>
#include <tessera/core/math.hpp>
#include <tessera/program/attention/detail/head_lanes.cuh>
#include <tessera/program/attention/detail/key_lanes.cuh>
#include <tessera/program/attention/detail/mean_operands.cuh>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/maximum_or_nan.cuh>
#include <tessera/tile/cuda/row_operands.cuh>
#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/dependent_launch.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tile/row_operands.hpp>

namespace tessera {
inline namespace v0 {

/// Shared memory of correct_tiles: tiles of keys of so many stages. HasPanels: whether they lie as wgmma reads them.
template <int Channels, int Stages, bool HasPanels>
struct correct_tiles_scratch {
  static constexpr int stages = Stages;                    ///< tiles that are here at a time
  static constexpr bool has_panels = HasPanels;            ///< whether wgmma multiplies
  static constexpr int pieces = Channels / piece_numbers;  ///< pieces of eight channels of a key
  static constexpr int tile = static_cast<int>(attention_padding);
  static constexpr int row_pieces = 8;                        ///< pieces of a swizzled row of a panel: 128 bytes
  static constexpr int panel_bytes = 16 * tile * row_pieces;  ///< bytes of a panel, 64 channels of all keys
  /// Keys of a tile: piece number p of key r is number index_of(r, p).
  using keys_type = uint4[tile * pieces];

  alignas(1024) keys_type keys[Stages];
  alignas(16) float mean[Channels];  ///< the mean key
  float magnitude[16];               ///< what lanes exchange that make codes of keys

  /// Lanes that read the same four pieces of two keys, or eight pieces of one, read other banks.
  [[nodiscard]] TESSERA_FN static constexpr int index_of(int key, int piece) {
    if constexpr (HasPanels) {
      return (piece / row_pieces * tile + key) * row_pieces + (piece % row_pieces ^ key % row_pieces);
    } else {
      return key * pieces + (piece ^ (key % 2 * 4 + key / 2 % 4));
    }
  }
};

/// Makes corrections of tiles of keys, and codes of these keys. T: bfloat16 or float16; keys begin at multiples of 16
/// bytes, their channels lie next to each other. Channels: 64, 128 or 256, the next that has room for the head's
/// channels. Form: that of codes. HasMean: whether they are those of keys less their mean.
template <class T, int Channels, code_form Form, bool HasMean>
struct correct_tiles {
  using coder = key_lanes<T, Channels, Form, HasMean>;
  static constexpr int lanes = coder::lanes;
  static constexpr bool is_persistent = true;
  static constexpr bool waits_for_stream = true;
  static constexpr int blocks_per_multiprocessor = 512 / lanes;
  static constexpr int tile = tiled_heads<T>::tile;    ///< keys of a tile
  static constexpr int sets = Channels <= 64 ? 2 : 1;  ///< sets of 16 means that a warp has
  static constexpr int part = lanes / 32 * 16 * sets;  ///< the most means of a block

  /// Tiles that a block has at a time in code for an architecture: three where there is room.
  [[nodiscard]] TESSERA_FN static constexpr int stages_on(architecture tag) {
    int const fitting = (device_limits::shared_bytes_on(tag) - 1024) / (tile * Channels * static_cast<int>(sizeof(T)));
    return clamp(fitting, 1, 3);
  }
  template <class G>
  using scratch_for =
      correct_tiles_scratch<Channels, stages_on(architecture_of<G>), architecture_of<G> == architecture::sm_90a>;

  tiled_heads<T> keys;          ///< keys as they are stored
  std::int32_t key_heads;       ///< key heads of all sequences
  fast_divisor key_tiles;       ///< tiles of a key head
  fast_divisor parts;           ///< blocks that share the means of a key head
  fast_divisor shares;          ///< blocks that share the tiles of a key head
  fast_divisor blocks_of_head;  ///< means of a query head
  std::int32_t rows;            ///< means of a key head: all blocks of queries of its query heads
  std::int32_t channels;        ///< channels of a head
  bool is_after_summaries;      ///< whether summarize_tiles ran in the same call: then inputs are complete already
  /// The mean of a block has scores with keys below this and the number of its last query in its head plus 1;
  /// most_keys_behind where all are seen.
  std::int32_t keys_behind;
  float factor;              ///< what products are multiplied by: the softmax's scale, in base 2
  mean_operands<T> means;    ///< means of all key heads
  float* corrections;        ///< batch x query heads x blocks of queries x padded keys
  correction_range* ranges;  ///< batch x query heads x blocks of queries x tiles
  std::int8_t* key_codes;    ///< memory of quantized_keys::codes; null: no codes are made
  float* key_scales;         ///< memory of quantized_keys::scales
  float const* key_mean;     ///< means of keys, if HasMean

  static constexpr std::int32_t most_keys_behind = 1 << 30;  ///< every query sees all keys

  /// How many blocks should share the tiles of a key head, where so many run at a time on the device: the least number
  /// with which it is done soonest. Beginning takes a block as long as half a tile.
  [[nodiscard]] static std::int64_t find_shares(std::int64_t lists, std::int64_t of_head, std::int64_t at_a_time) {
    std::int64_t best = 1;
    std::int64_t least = 0;
    for (std::int64_t count = 1; count <= min(of_head, at_a_time); ++count) {
      std::int64_t const halves = divide_up(lists * count, at_a_time) * (2 * divide_up(of_head, count) + 1);
      if (count == 1 || halves < least) {
        best = count;
        least = halves;
      }
    }
    return best;
  }
  /// How many thread blocks the program has: one for each part of the means and share of the tiles.
  [[nodiscard]] TESSERA_FN std::int64_t count() const {
    return std::int64_t{key_heads} * shares.value() * parts.value();
  }

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t which,
                                             scratch_for<cuda_block<lanes>>& scratch) const {
    let_next_kernel_start();
    if (!is_after_summaries) {
      wait_for_stream();
    }
    auto const index = static_cast<std::int32_t>(which);
    std::int32_t const list = index / parts;  // parts of the same keys are neighbours, which find them in L2
    std::int32_t const part_of_list = index - list * parts.value();
    std::int32_t const head = list / shares;
    std::int32_t const first = list - head * shares.value();
    std::int32_t const row = part_of_list * part;
    std::int32_t const end = min(row + part, rows);
    bool const makes_codes = key_codes != nullptr && part_of_list == 0;
    std::int32_t const last = makes_codes ? key_tiles.value() : tiles_seen(row, end);
    walk(group, {head, first, last, row, end, makes_codes}, scratch);
  }

 private:
  using shared = scratch_for<cuda_block<lanes>>;
  static constexpr int tiles =
      shared::has_panels && sets == 1 ? 8 : 4;  ///< tiles of eight keys that are taken at a time
  static constexpr int blocks = Channels / 32;  ///< blocks of 32 channels

  /// What a thread block does.
  struct work {
    std::int32_t head;   ///< key head
    std::int32_t first;  ///< the first tile; others follow `shares` apart
    std::int32_t last;   ///< one past the last tile
    std::int32_t row;    ///< the first mean, counted in the key head
    std::int32_t end;    ///< one past the last mean
    bool makes_codes;    ///< whether codes of keys are made, too
  };
  /// The means of a warp's lane: rows lane / 4 and lane / 4 + 8 of 16.
  struct lane_means {
    std::uint32_t left[sets][2 * blocks][4];  ///< as left operands, of depth 16 each
    float less[sets][2];                      ///< their products with the mean key
    std::int32_t row[sets];                   ///< the first of the 16
  };

  /// Where the scores of a lane's two means of a set go, and their range in a tile.
  struct score_rows {
    float* first;       ///< of the first mean and the lane's first keys
    std::int32_t left;  ///< means from the first one on that have scores
    float least[2] = {infinity, infinity};
    float highest[2] = {-infinity, -infinity};
  };

  /// Whether a query of any of `count` means from `row` on sees a key of a tile.
  [[nodiscard]] __device__ __forceinline__ bool is_seen(std::int32_t row, std::int32_t count, std::int32_t end,
                                                        std::int32_t at) const {
    return keys_behind == most_keys_behind || std::int64_t{at} * tile < keys_seen(row, count, end);
  }
  /// One past the last key that a query of any of `count` means from `row` on sees.
  [[nodiscard]] __device__ __forceinline__ std::int64_t keys_seen(std::int32_t row, std::int32_t count,
                                                                  std::int32_t end) const {
    std::int32_t const last = min(row + count, end) - 1;
    std::int32_t const head = last / blocks_of_head;
    std::int32_t const first = head * blocks_of_head.value();
    std::int32_t const block = row < first ? blocks_of_head.value() - 1 : last - first;
    return std::int64_t{block + 1} * block_mean::tokens + keys_behind;
  }
  /// One past the last tile of which a query of these means sees a key.
  [[nodiscard]] __device__ __forceinline__ std::int32_t tiles_seen(std::int32_t row, std::int32_t end) const {
    if (keys_behind == most_keys_behind) {
      return key_tiles.value();
    }
    std::int64_t const seen = max(keys_seen(row, end - row, end), std::int64_t{0});
    return static_cast<std::int32_t>(min(divide_up(seen, std::int64_t{tile}), std::int64_t{key_tiles.value()}));
  }

  __device__ __forceinline__ void walk(cuda_block<lanes> const& group, work const& of, shared& scratch) const {
    constexpr int ahead = shared::stages - 1;
    std::int32_t const step = shares.value();
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      begin_tile(group.lane, of, of.first + i * step, scratch.keys[i]);
    }
    wait_for_stream();
    if (of.first >= of.last) {
      return;
    }
    lane_means mine;
    load_means(group.lane, of, mine);
    if constexpr (HasMean) {
      if (group.lane < Channels) {  // all see it after the next sync
        bool const exists = of.makes_codes && group.lane < channels;
        scratch.mean[group.lane] =
            exists ? load_from_l2(key_mean + std::int64_t{of.head} * channels + group.lane) : 0.0F;
      }
    }
    int now = 0;
#pragma unroll 1
    for (std::int32_t at = of.first; at < of.last; at += step) {
      if constexpr (ahead > 0) {
        async_copy_wait<ahead - 1>();
        fence_copies();
        group.sync();  // all see this tile, and have read the one before
        begin_tile(group.lane, of, at + ahead * step, scratch.keys[now == 0 ? ahead : now - 1]);
      } else {
        group.sync();
        begin_tile(group.lane, of, at, scratch.keys[0]);
        async_copy_wait<0>();
        fence_copies();
        group.sync();
      }
      std::int32_t const tokens = keys.tokens(of.head, at);
      if (of.makes_codes) {
        make_codes(group, of.head, at, tokens, scratch.keys[now], scratch);
      }
      multiply(group.lane, of, at, tokens, mine, scratch.keys[now]);
      now = now == ahead ? 0 : now + 1;
    }
  }

  /// Begins to copy a tile, with zeros for keys and channels that do not exist, if there is one.
  __device__ __forceinline__ void begin_tile(int lane, work const& of, std::int32_t at,
                                             typename shared::keys_type& to) const {
    if (at < of.last) {
      std::int32_t const end = keys.in_memory(of.head, at, keys.tokens(of.head, at));
      int const piece = lane % shared::pieces;
      int const first = lane / shared::pieces;
      bool const has_channels = piece * piece_numbers < channels;
      T const* from = keys.first(of.head, at) + first * keys.heads.strides[2] + piece * piece_numbers;
#pragma unroll
      for (int i = 0; i < coder::passes; ++i) {
        int const key = first + i * coder::rows;
        bool const exists = has_channels && key < end;
        async_copy_16_or_zero(&to[shared::index_of(key, piece)], exists ? from : keys.heads.data, exists);
        from += coder::rows * keys.heads.strides[2];
      }
    }
    async_copy_commit();
  }

  /// Lets wgmma read what this thread has copied.
  __device__ __forceinline__ static void fence_copies() {
    if constexpr (shared::has_panels) {
      fence_async_proxy();
    }
  }

  /// Loads a lane's means, zeros for those and for channels that do not exist.
  __device__ __forceinline__ void load_means(int of_block, work const& of, lane_means& to) const {
    int const lane = of_block % 32;
#pragma unroll
    for (int set = 0; set < sets; ++set) {
      to.row[set] = of.row + (set * (lanes / 32) + of_block / 32) * 16;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::int32_t const row = to.row[set] + lane / 4 + 8 * half;
        bool const exists = row < of.end;
        std::int64_t const mean = std::int64_t{of.head} * rows + (exists ? row : of.row);
        auto const* const words = reinterpret_cast<float const*>(means.row(mean, channels));
        to.less[set][half] = load_from_l2(means.product(mean, channels));
#pragma unroll
        for (int block = 0; block < blocks; ++block) {
          bool const has_channels = exists && block * 32 < channels;
          float four[4] = {};
          if (has_channels) {
            load_words(words + 16 * block, lane % 4, four);
          }
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            to.left[set][2 * block + i / 2][i % 2 * 2 + half] = __float_as_uint(four[i]);
          }
        }
      }
    }
  }
  /// Loads a lane's four words of 32 channels of a mean: in the order of channels for wgmma, else in that of pieces.
  __device__ __forceinline__ static void load_words(float const* from, int which, float (&four)[4]) {
    if constexpr (shared::has_panels) {
      float4 const found = load_from_l2(reinterpret_cast<float4 const*>(from + 4 * which));
      four[0] = found.x;
      four[1] = found.y;
      four[2] = found.z;
      four[3] = found.w;
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        four[i] = load_from_l2(from + 4 * i + which);
      }
    }
  }

  /// Makes codes of a tile.
  __device__ __forceinline__ void make_codes(cuda_block<lanes> const& group, std::int32_t head, std::int32_t at,
                                             std::int32_t tokens, typename shared::keys_type const& staged,
                                             shared& scratch) const {
    typename coder::coordinates const where(group.lane);
    typename coder::pair words[coder::passes][4];
#pragma unroll
    for (int i = 0; i < coder::passes; ++i) {
      int const key = where.row + i * coder::step;
      uint4 const piece = staged[shared::index_of(key, where.channel / piece_numbers)];
      words[i][0] = piece.x;
      words[i][1] = piece.y;
      words[i][2] = piece.z;
      words[i][3] = piece.w;
    }
    float mean[coder::vector] = {};
    if constexpr (HasMean) {
#pragma unroll
      for (int i = 0; i < coder::vector; ++i) {
        mean[i] = scratch.mean[where.channel + i];
      }
    }
    std::int64_t const first = (std::int64_t{head} * key_tiles.value() + at) * tile;
    coder::encode_keys(group, {key_codes + first * channels / Form.in_byte, key_scales + first / 32, channels}, tokens,
                       words, mean, scratch.magnitude);
  }

  /// Makes the scores of a warp's means with a tile, and their ranges.
  __device__ __forceinline__ void multiply(int of_block, work const& of, std::int32_t at, std::int32_t tokens,
                                           lane_means const& mine, typename shared::keys_type const& staged) const {
    constexpr int together = shared::has_panels ? 64 : 16;  // means that are multiplied by all lanes at once
    int const lane = of_block % 32;
    score_rows to[sets];
    bool has_rows = false;
#pragma unroll
    for (int set = 0; set < sets; ++set) {
      std::int32_t const row = mine.row[set];
      std::int32_t const first = row - row % together;
      has_rows = has_rows || (first < of.end && is_seen(first, together, of.end, at));
      bool const exists = row < of.end && is_seen(row, 16, of.end, at);
      std::int64_t const mean = std::int64_t{of.head} * rows + row + lane / 4;
      std::int32_t const left = exists ? of.end - row - lane / 4 : 0;
      to[set] = {corrections + (mean * key_tiles.value() + at) * tile + lane % 4 * 4, left};
    }
    if (!has_rows) {
      return;
    }
#pragma unroll 1
    for (int key = 0; key < tile; key += 8 * tiles) {
      float sums[sets][4 * tiles];
      if constexpr (shared::has_panels) {
        multiply_panels(key, mine, staged, sums);
      } else {
        multiply_keys(lane, key, mine, staged, sums);
      }
#pragma unroll
      for (int set = 0; set < sets; ++set) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          take_scores(to[set], half, key, tokens - key - lane % 4 * 2, mine.less[set][half], sums[set]);
        }
      }
    }
#pragma unroll
    for (int set = 0; set < sets; ++set) {
      write_ranges(lane, std::int64_t{of.head} * rows + mine.row[set] + lane / 4, at, to[set]);
    }
  }

  /// Makes the products of a warpgroup's means with the keys from `key` on.
  __device__ __forceinline__ static void multiply_panels(int key, lane_means const& mine,
                                                         typename shared::keys_type const& staged,
                                                         float (&sums)[sets][4 * tiles]) {
    using mma = warpgroup_mma<T, 8 * tiles>;
    auto const right =
        matrix_descriptor::rows_of<128>(detail::plain_shared_address(staged) + static_cast<std::uint32_t>(key * 128));
#pragma unroll
    for (int set = 0; set < sets; ++set) {
      begin_multiply(sums[set]);
#pragma unroll
      for (int i = 0; i < 2 * blocks; ++i) {
        mma::multiply(sums[set], mine.left[set][i], right.further(i / 4 * shared::panel_bytes + i % 4 * 32), i != 0);
      }
      commit_multiply();
    }
#pragma unroll
    for (int set = 0; set < sets; ++set) {
      await_multiply<0>(sums[set]);
    }
  }
  /// Makes the products of a warp's means with the keys from `key` on.
  __device__ __forceinline__ static void multiply_keys(int lane, int key, lane_means const& mine,
                                                       typename shared::keys_type const& staged,
                                                       float (&sums)[sets][4 * tiles]) {
    int const own = key + lane / 4;
#pragma unroll
    for (int i = 0; i < sets * 4 * tiles; ++i) {
      sums[i / (4 * tiles)][i % (4 * tiles)] = 0.0F;
    }
#pragma unroll
    for (int block = 0; block < blocks; ++block) {
#pragma unroll
      for (int i = 0; i < tiles; ++i) {
        uint4 const piece = staged[shared::index_of(own + 8 * i, row_piece(lane, block))];
#pragma unroll
        for (int set = 0; set < sets; ++set) {
          auto& of_tile = reinterpret_cast<float(&)[4]>(sums[set][4 * i]);
          warp_mma<T>::multiply(of_tile, mine.left[set][2 * block], {piece.x, piece.y});
          warp_mma<T>::multiply(of_tile, mine.left[set][2 * block + 1], {piece.z, piece.w});
        }
      }
    }
  }

  /// Writes a lane's scores of a mean with the keys from `key` on, of which `left` exist from the lane's first one on.
  __device__ __forceinline__ void take_scores(score_rows& to, int half, int key, std::int32_t left, float less,
                                              float const (&sums)[4 * tiles]) const {
    float scores[2 * tiles];
#pragma unroll
    for (int i = 0; i < 2 * tiles; ++i) {
      scores[i] = __fmaf_rn(factor, sums[i / 2 * 4 + 2 * half + i % 2], -less);
    }
    if (left < 8 * tiles - 6) {  // the last one is 8 (tiles - 1) + 1 behind the first
#pragma unroll
      for (int i = 0; i < 2 * tiles; ++i) {
        scores[i] = i / 2 * 8 + i % 2 < left ? scores[i] : 0.0F;
      }
    }
    std::int64_t const row = half == 0 ? 0 : 8 * std::int64_t{key_tiles.value()} * tile;
#pragma unroll
    for (int i = 0; i < 2 * tiles; i += 4) {
      if (8 * half < to.left) {
        *reinterpret_cast<float4*>(to.first + row + key + 4 * i) = {scores[i], scores[i + 1], scores[i + 2],
                                                                    scores[i + 3]};
      }
    }
#pragma unroll
    for (int i = 0; i < 2 * tiles; ++i) {
      to.least[half] = minimum_or_nan(to.least[half], scores[i]);
      to.highest[half] = maximum_or_nan(to.highest[half], scores[i]);
    }
  }

  /// Writes the ranges of scores that four lanes have. `mean`: the number of the lane's first one.
  __device__ __forceinline__ void write_ranges(int lane, std::int64_t mean, std::int32_t at, score_rows& of) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int distance = 1; distance < 4; distance *= 2) {
        of.least[half] = minimum_or_nan(of.least[half], shuffle_xor(of.least[half], distance));
        of.highest[half] = maximum_or_nan(of.highest[half], shuffle_xor(of.highest[half], distance));
      }
      if (lane % 4 == 0 && 8 * half < of.left) {
        ranges[(mean + 8 * half) * key_tiles.value() + at] = correction_range::of(of.least[half], of.highest[half]);
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
