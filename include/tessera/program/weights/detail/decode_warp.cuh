// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How a warp of the CUDA decoder (program/weights/decode.cuh) decodes one block of weights.
#pragma once

#include <cstdint>

#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/entropy/exponent_window.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/program/weights/decode.hpp>
#include <tessera/program/weights/detail/decode_part.cuh>
#include <tessera/program/weights/detail/join_kept_rows.cuh>
#include <tessera/program/weights/detail/normalize_rows.cuh>
#include <tessera/program/weights/detail/warp_rans.cuh>
#include <tessera/quantize/keep_mantissa.hpp>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/shared_access.cuh>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

/// Decodes blocks in a warp, of weights of which Mantissa kept a part. Words: the 16-bit words of shared memory that a
/// warp has for a block's states, words and escapes.
template <class T, class Mantissa, int Words>
struct warp_decoder {
  using mantissa = Mantissa;
  /// How the warp decodes its blocks.
  using part_type = decode_part<T, mantissa>;
  /// How sixteen bytes of weights are joined.
  using rows = rows_of_kept<T, mantissa>;
  /// Rows between two checks of the cursor. The words of so many rows must be staged before, and a corrupt stream may
  /// run over by as many.
  static constexpr int rows_a_look = min(rows::rows, max(8 / rows::pairs, 1));
  /// The most words of the coder in the rows between two checks.
  static constexpr int words_a_look = 32 * rows::pairs * rows_a_look;
  static constexpr int state_words = weight_stream_spec::states_bytes / 2;  ///< words that the lanes' states take
  static constexpr int staged_words = Words - state_words - words_a_look;   ///< words that fit besides
  static_assert(staged_words >= 2 * words_a_look && Words % 8 == 0, "tessera: too few words of shared memory a warp");

  using steps = weight_block_steps<T, mantissa>;
  using portable = decode_weights<T, mantissa>;

  static constexpr int granularity = max(max(steps::residual_planes.granularity(), steps::code_planes.granularity()),
                                         steps::exponent_planes.granularity());

  /// Whether pop_plain_rows can take a block: what is staged of it fits the warp's room.
  __device__ __forceinline__ static bool is_plain(block_parts const& parts) {
    return parts.fits && !parts.raw && words_to_stage(parts) <= state_words + staged_words;
  }

  /// Begins to copy a plain block's states, words and an escape for each lane.
  __device__ __forceinline__ static void stage(std::uint8_t const* stream, block_parts const& parts,
                                               std::uint16_t* words) {
    if (is_plain(parts)) {
      auto const* const source = reinterpret_cast<std::uint16_t const*>(stream + parts.begin);
      stage_words(source, words_to_stage(parts), words, cuda_warp{}.lane);
    }
  }

  /// Decodes a plain block, whose states, words and first escapes are being copied to `words`. patch_rest() patches the
  /// other escapes. Normalizers: no_normalizers or block_normalizers.
  template <bool Contiguous, class Normalizers>
  __device__ __forceinline__ static bool pop_plain_rows(std::uint8_t const* planes, Normalizers normalizers,
                                                        exponent_window window, block_parts const& parts, int coded,
                                                        std::uint32_t const* table, std::uint16_t* words, T* weights) {
    using block_rows = normalized_rows<T, rows, Normalizers>;
    int const lane = cuda_warp{}.lane;
    window_exponents<Contiguous> const exponents(window);
    block_rows next;
    int const row_count = coded / row_weights;
    std::uint32_t const states = shared_address(words);
    popping_lanes lanes_state{0, states + weight_stream_spec::states_bytes, shared_address(table), lanes_below()};
    std::uint32_t const words_begin = lanes_state.cursor;
    std::uint32_t const words_end = words_begin + 2 * parts.words;
    next.template load<false>(planes, coded, 0, 0, lane);
    next.load_normalizers(normalizers, 0, lane);
    T* out = weights + lane * steps::weights_per_lane;
    async_copy_wait_all();
    sync_warp();
    lanes_state.state = load_shared_u32(states + 4 * lane);
    bool sound = pair_coder::is_state(lanes_state.state);
    int escape_at = -1;
    kept_value escaped;
    if (lane < parts.escapes) {
      std::uint32_t const listed = states + parts.escapes_begin + 4 * lane;
      std::uint32_t const entry = load_shared_u32(listed);
      int const previous = lane > 0 ? static_cast<int>(weight_escape::position(load_shared_u32(listed - 4))) : -1;
      escaped.exponent = weight_escape::exponent(entry);
      escaped.lost_nan = lost_nan(entry);
      sound = sound && weight_escape::is_valid<T, mantissa>(entry, previous, coded);
      escape_at = min(static_cast<int>(weight_escape::position(entry)), coded - 1);
      escaped.residual = steps::residual_at(planes, coded, escape_at);
    }
#pragma unroll 1
    for (int row = 0; row < row_count; row += rows::rows) {
      block_rows const now = next;
      if (row + rows::rows < row_count) {
        next.template load<false>(planes, coded, row + rows::rows, 0, lane);
        next.load_normalizers(normalizers, row + rows::rows, lane);
      }
#pragma unroll
      for (int r = 0; r < rows::rows; ++r) {
        std::uint32_t codes[rows::pairs];
        lanes_state.row(codes);
        store_once(reinterpret_cast<uint4*>(out + r * row_weights),
                   now.normalized(r, now.template row<Contiguous>(r, codes, exponents)));
        // A corrupt stream that took more words than it has continues with any words.
        if ((r + 1) % rows_a_look == 0 && lanes_state.cursor > words_end) {
          sound = false;
          lanes_state.cursor = words_begin;
        }
      }
      out += rows::rows * row_weights;
    }
    sound = sound && pair_coder::finished(lanes_state.state);
    sync_warp();
    if (escape_at >= 0) {
      weights[escape_at] = steps::join_weight(escaped, normalizers.first, normalizers.log2_block, escape_at);
    }
    return all_of_warp(sound) && lanes_state.cursor == words_end;
  }

  /// Patches the escapes of a plain block that no lane had in pop_plain_rows. In real tensors some blocks have many.
  template <class Normalizers>
  __device__ __forceinline__ static bool patch_rest(std::uint8_t const* payload, std::uint8_t const* planes,
                                                    Normalizers normalizers, block_parts const& parts, int coded,
                                                    T* weights) {
    auto const* const escapes = reinterpret_cast<std::uint32_t const*>(payload + parts.escapes_begin);
    return patch(escapes, escapes_at_once, parts.escapes, planes, normalizers, coded, coded, weights);
  }
  /// Whether there are such escapes.
  __device__ __forceinline__ static bool needs_patches(block_parts const& parts) {
    return parts.escapes > escapes_at_once;
  }

  /// Decodes any block whose parts are within the stream, with all that a stream may hold. Returns false if it is
  /// corrupt.
  __device__ __forceinline__ static bool decode(part_type const& part, int block, block_parts const& parts, int coded,
                                                std::uint32_t const* table, std::uint16_t* words) {
    std::uint8_t const* const payload = part.stream + parts.begin;
    std::uint8_t const* const planes = part.planes_of(block);
    T* const weights = part.weights_of(block);
    int const count = part.weights_in(block);
    exponent_window const window = part.window();
    auto const normalizers = part.normalizers_of(block);
    if (parts.raw) {
      portable::join_raw(cuda_warp{}, payload, planes, normalizers.first, normalizers.log2_block, count, coded,
                         weights);
      return true;
    }
    bool sound = true;
    if (part.is_rans) {
      sound = pop_rows(payload, planes, window, parts.words, count, coded, table, words, weights);
    } else if (count != coded || coded % (rows::rows * row_weights) != 0 ||
               reinterpret_cast<std::uintptr_t>(weights) % 16 != 0) {
      copy_rows<false, false>(payload, planes, window, count, coded, weights);
    } else if (window.is_contiguous()) {
      copy_rows<true, true>(payload, planes, window, count, coded, weights);
    } else {
      copy_rows<true, false>(payload, planes, window, count, coded, weights);
    }
    sync_warp();
    if constexpr (!part_type::is_lossless) {
      if (part.has_normalizers()) {
        normalize_in_place<T, mantissa>(weights, count, normalizers);
        sync_warp();
      }
    }
    auto const* const escapes = reinterpret_cast<std::uint32_t const*>(payload + parts.escapes_begin);
    return patch(escapes, 0, parts.escapes, planes, normalizers, count, coded, weights) && sound;
  }

 private:
  static constexpr int row_weights = steps::row_weights;
  static constexpr int escapes_at_once = 32;  ///< one for each lane

  /// Whether an escape is a NaN that kept no mantissa bit.
  __device__ __forceinline__ static bool lost_nan(std::uint32_t entry) {
    return mantissa::kept_bits == 0 && weight_escape::lost_nan(entry);
  }
  /// The words to stage of a plain block.
  __device__ __forceinline__ static int words_to_stage(block_parts const& parts) {
    return parts.escapes_begin / 2 + 2 * min(parts.escapes, escapes_at_once);
  }

  // Plain: the block is whole, and its output aligned. Contiguous: its window has no exponent from elsewhere.
  /// A lane's 16 bytes of one row.
  template <bool Plain>
  __device__ __forceinline__ static void store_row(T* weights, int position, int count, uint4 values) {
    if constexpr (Plain) {
      store_once(reinterpret_cast<uint4*>(weights + position), values);
    } else {
      std::uint32_t const words[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
      for (int i = 0; i < steps::weights_per_lane; ++i) {
        if (position + i < count) {
          constexpr int bits = static_cast<int>(sizeof(T)) * 8;
          using bits_type = typename scalar_traits<T>::bits_type;
          weights[position + i] = from_bits<T>(static_cast<bits_type>(words[i * bits / 32] >> (i * bits % 32)));
        }
      }
    }
  }

  /// Begins to copy words, eight at a time.
  __device__ __forceinline__ static void stage_words(std::uint16_t const* source, int count, std::uint16_t* words,
                                                     int lane) {
#pragma unroll 1
    for (int i = lane * 8; i < count; i += 32 * 8) {
      async_copy_16(words + i, source + i);
    }
  }

  /// The cursor up to which a pass may begin if `count` words are left, of which the first are staged.
  __device__ __forceinline__ static std::uint32_t staged_limit(std::uint32_t words_begin, int count) {
    return words_begin + 2 * (count <= staged_words ? count : staged_words - words_a_look);
  }

  /// Decodes all other blocks of the rANS coder.
  __device__ __forceinline__ static bool pop_rows(std::uint8_t const* payload, std::uint8_t const* planes,
                                                  exponent_window window, int word_count, int count, int coded,
                                                  std::uint32_t const* table, std::uint16_t* words, T* weights) {
    int const lane = cuda_warp{}.lane;
    window_exponents<false> const exponents(window);
    int const last_row = coded / row_weights - 1;
    auto const* const source = reinterpret_cast<std::uint16_t const*>(payload + weight_stream_spec::states_bytes);
    popping_lanes lanes_state{reinterpret_cast<std::uint32_t const*>(payload)[lane], shared_address(words),
                              shared_address(table), lanes_below()};
    std::uint32_t const words_begin = lanes_state.cursor;
    bool sound = pair_coder::is_state(lanes_state.state);
    int staged = 0;                     // the number of the word at words_begin
    std::uint32_t limit = words_begin;  // the cursor up to which a pass may begin
    stage_words(source, min(word_count, staged_words), words, lane);
    async_copy_wait_all();
    sync_warp();
    limit = staged_limit(words_begin, word_count);
    auto const look_at_cursor = [&] {
      if (lanes_state.cursor > limit) {
        // Either more words are needed, or a corrupt stream took more than it has and continues with any words.
        int const used = staged + static_cast<int>(lanes_state.cursor - words_begin) / 2;
        sound = sound && used <= word_count;
        staged = used <= word_count ? used & ~7 : 0;
        sync_warp();
        stage_words(source + staged, min(word_count - staged, staged_words), words, lane);
        async_copy_wait_all();
        sync_warp();
        lanes_state.cursor = words_begin + (used <= word_count ? 2 * (used - staged) : 0);
        limit = staged_limit(words_begin, word_count - staged);
      }
    };
#pragma unroll 1
    for (int row = 0; row <= last_row; row += rows::rows) {
      rows now;
      now.template load<true>(planes, coded, row, last_row, lane);
#pragma unroll
      for (int r = 0; r < rows::rows; ++r) {
        if (row + r <= last_row) {
          std::uint32_t codes[rows::pairs];
          lanes_state.row(codes);
          store_row<false>(weights, (row + r) * row_weights + lane * steps::weights_per_lane, count,
                           now.template row<false>(r, codes, exponents));
        }
        if ((r + 1) % rows_a_look == 0) {
          look_at_cursor();
        }
      }
    }
    int const used = staged + static_cast<int>(lanes_state.cursor - words_begin) / 2;
    sound = sound && pair_coder::finished(lanes_state.state);
    return all_of_warp(sound) && used == word_count;
  }

  /// Decodes a block of the fixed coder: the codes of a row are in a plane like the rest.
  template <bool Plain, bool Contiguous>
  __device__ __forceinline__ static void copy_rows(std::uint8_t const* payload, std::uint8_t const* planes,
                                                   exponent_window window, int count, int coded, T* weights) {
    constexpr int code_words = rows::pairs == 8 ? 2 : 1;
    constexpr int rows_per_unit = rows::pairs == 2 ? 2 : 1;
    int const lane = cuda_warp{}.lane;
    window_exponents<Contiguous> const exponents(window);
    int const last_row = coded / row_weights - 1;
    for (int row = 0; row <= last_row; row += rows::rows) {
      rows now;
      std::uint32_t words[rows::rows / rows_per_unit * code_words];
      now.template load<!Plain>(planes, coded, row, last_row, lane);
      load_plane<!Plain, code_words, rows_per_unit, rows::rows>(payload, row, last_row, lane, words);
#pragma unroll
      for (int r = 0; r < rows::rows; ++r) {
        if (Plain || row + r <= last_row) {
          std::uint32_t codes[rows::pairs];
#pragma unroll
          for (int pair = 0; pair < rows::pairs; ++pair) {
            int const bit = (r % rows_per_unit) * 16 + 8 * (pair % 4);
            std::uint32_t const symbol = words[r / rows_per_unit * code_words + pair / 4] >> bit;
            codes[pair] = (symbol & 0xfu) | ((symbol & 0xf0u) << 12);
          }
          store_row<Plain>(weights, (row + r) * row_weights + lane * steps::weights_per_lane, count,
                           now.template row<Contiguous>(r, codes, exponents));
        }
      }
    }
  }

  /// Writes the weights of escapes from entry `begin` on, four a lane at a time: loads of all are issued before the
  /// first wait.
  template <class Normalizers>
  __device__ __forceinline__ static bool patch(std::uint32_t const* escapes, int begin, int escape_count,
                                               std::uint8_t const* planes, Normalizers normalizers, int count,
                                               int coded, T* weights) {
    constexpr int at_once = 4;
    bool sound = true;
#pragma unroll 1
    for (int first = begin + cuda_warp{}.lane; first < escape_count; first += 32 * at_once) {
      std::uint32_t entries[at_once];
      int previous[at_once];  // positions of the entries before
      std::uint32_t residuals[at_once];
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        int const which = first + 32 * i;
        entries[i] = which < escape_count ? __ldg(escapes + which) : 0;
        previous[i] = which > 0 && which < escape_count
                          ? static_cast<int>(weight_escape::position(__ldg(escapes + which - 1)))
                          : -1;
      }
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        int const position = static_cast<int>(weight_escape::position(entries[i]));
        residuals[i] = steps::residual_at(planes, coded, min(position, coded - 1));
      }
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        int const position = static_cast<int>(weight_escape::position(entries[i]));
        std::uint32_t const exponent = weight_escape::exponent(entries[i]);
        if (first + 32 * i < escape_count) {
          if (weight_escape::is_valid<T, mantissa>(entries[i], previous[i], count)) {
            weights[position] = steps::join_weight({exponent, residuals[i], lost_nan(entries[i])}, normalizers.first,
                                                   normalizers.log2_block, position);
          } else {
            sound = false;
          }
        }
      }
    }
    return all_of_warp(sound);
  }
};

}  // namespace v0
}  // namespace tessera
