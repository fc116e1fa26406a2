// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `staged_page`: a part of compress_pages (program/paged_cache/write_pages.cuh). It says where the parts of a page are
/// in shared memory, packs codes of fewer than 4 bits, and stores the page.
///
/// The page in shared memory has the format of 4 bits, whatever its own: in that a thread has all codes of the words
/// that it writes, while a word of 3 bits has codes of threads of several warps. Codes of fewer bits are packed when
/// all are there. A warp packs a strip of keys and one of values in place, and stores both by itself, so that no
/// barrier of the block is needed: strips of 384 or 256 bytes lie 512 bytes apart.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/program/paged_cache/detail/narrow_codes.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

/// Pages of a format with codes of 2, 3 or 4 bits. Copies: bulk_page_copies or chunk_page_copies (page_copies.cuh).
template <cache_page_format Format, class Copies>
struct staged_page {
  /// Where the parts of a page are in shared memory.
  static constexpr cache_page_format parts{Format.channels, 4, 4, Format.value_groups, Format.layers};
  static constexpr bool has_packed_keys = Format.key_bits < 4;      ///< whether codes of keys are packed
  static constexpr bool has_packed_values = Format.value_bits < 4;  ///< whether codes of values are packed
  /// Whether warps store strips.
  static constexpr bool is_packed = has_packed_keys || has_packed_values;
  static_assert(Format.key_bits >= 2 && Format.key_bits <= 4 && Format.value_bits >= 2 && Format.value_bits <= 4,
                "tessera: compress_pages makes codes of 2, 3 or 4 bits");

  /// Stores what is not packed, of pages of so many layers. `Lanes` lanes, or the first of them, as Copies says.
  template <int Lanes>
  __device__ __forceinline__ static void store(std::byte* page, unsigned char const* image, int layers, int lane) {
    int const end = layers == 2 ? parts.bytes() : parts.read_bytes();
    if constexpr (is_packed) {
      constexpr int head = has_packed_keys ? parts.key_codes() : parts.value_codes();
      constexpr int behind = has_packed_values ? parts.value_ratios() : parts.value_codes();
      constexpr int behind_in_page = has_packed_values ? Format.value_ratios() : Format.value_codes();
      Copies::template store<Lanes>(page, image, head, lane);
      Copies::template store<Lanes>(page + behind_in_page, image + behind, end - behind, lane);
    } else {
      Copies::template store<Lanes>(page, image, end, lane);
    }
    Copies::commit();
  }

  /// Packs strip `strip` of keys and of values, where all codes have been written, and stores it if the page is kept.
  /// One warp; its first lane must await_reads() of Copies before the page is overwritten.
  __device__ __forceinline__ static void pack_and_store(std::byte* page, unsigned char* image, bool is_kept, int strip,
                                                        int lane) {
    std::uint32_t keys[4];
    std::uint32_t values[4];
    load<has_packed_keys>(image + parts.key_codes(), strip, lane, keys);
    load<has_packed_values>(image + parts.value_codes(), strip, lane, values);
    sync_warp();  // all have loaded
    pack<Format.key_bits>(image + parts.key_codes(), strip, lane, keys);
    pack<Format.value_bits>(image + parts.value_codes(), strip, lane, values);
    Copies::fence();
    sync_warp();
    if (is_kept && (lane == 0 || !Copies::is_by_one_warp)) {
      store_strip<Format.key_bits>(page + Format.key_codes(), image + parts.key_codes(), strip, lane);
      store_strip<Format.value_bits>(page + Format.value_codes(), image + parts.value_codes(), strip, lane);
      Copies::commit();
    }
  }

 private:
  static constexpr int strip_bytes = 512;  ///< bytes of a strip of 4 bits

  template <bool IsPacked>
  __device__ __forceinline__ static void load(unsigned char const* codes, int strip, int lane,
                                              std::uint32_t (&words)[4]) {
    if constexpr (IsPacked) {
      uint4 const found = *reinterpret_cast<uint4 const*>(codes + strip * strip_bytes + 16 * lane);
      words[0] = found.x;
      words[1] = found.y;
      words[2] = found.z;
      words[3] = found.w;
    }
  }
  template <int Bits>
  __device__ __forceinline__ static void pack(unsigned char* codes, int strip, int lane,
                                              std::uint32_t const (&four)[4]) {
    if constexpr (Bits < 4) {
      std::uint32_t words[Bits];
      narrow_codes<Bits>(four, words);
      auto* const to = reinterpret_cast<std::uint32_t*>(codes + strip * strip_bytes) + lane * Bits;
#pragma unroll
      for (int i = 0; i < Bits; ++i) {
        to[i] = words[i];
      }
    }
  }
  template <int Bits>
  __device__ __forceinline__ static void store_strip(std::byte* codes_of_page, unsigned char const* codes, int strip,
                                                     int lane) {
    if constexpr (Bits < 4) {
      constexpr int bytes = 128 * Bits;
      Copies::template store<32>(codes_of_page + strip * bytes, codes + strip * strip_bytes, bytes, lane);
    }
  }
};

}  // namespace v0
}  // namespace tessera
