// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `packed_codes`: a user's own TileSource, of codes of 2 or 4 bits, and `pack_codes`, the program that makes them.
/// Rows are in groups of 32 columns with a scale and a minimum in fp16. Code t of a word is field t / 8 of its nibble
/// t % 8.
#pragma once

#include <cstdint>

#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/quantize/asymmetric.hpp>
#include <tessera/tile/source/byte_as_float.hpp>
#include <tessera/tile/store_values.hpp>
#include <tessera/view/matrix_view.hpp>
#if defined(__CUDACC__)
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/group.cuh>
#endif

namespace tessera_examples {

using namespace tessera;

/// Four of the bytes of two words: nibble i of the selector is the number of byte i, of 0 to 7. A GPU has an
/// instruction for it.
template <class G>
TESSERA_FN std::uint32_t picked_bytes(G const&, std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
  std::uint64_t const bytes = std::uint64_t{high} << 32 | low;
  std::uint32_t picked = 0;
  for (int i = 0; i < 4; ++i) {
    picked |= static_cast<std::uint32_t>(bytes >> (selector >> (4 * i) & 7U) * 8 & 255U) << (8 * i);
  }
  return picked;
}
#if defined(__CUDACC__)
template <CudaLanes G>
__device__ std::uint32_t picked_bytes(G const&, std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
  return pick_bytes(low, high, selector);
}
#endif

template <int Bits>
struct packed_codes {
  using value_type = bfloat16;
  using quantizer = asymmetric_half_quantizer<Bits, 32>;
  using params_type = typename quantizer::params_type;
  static constexpr int in_word = 32 / Bits;
  matrix_view<std::uint32_t> words;  ///< rows x columns / in_word, contiguous
  matrix_view<params_type> params;   ///< rows x columns / 32

  TESSERA_FN std::int64_t rows() const { return words.extent(0); }
  TESSERA_FN std::int64_t columns() const { return words.extent(1) * in_word; }
  /// `first_column` is a multiple of 32. A lane's codes are all on their way before it decodes the first.
  template <class G, class Tile>
  TESSERA_FN void load(G const& group, Tile& tile, std::int64_t first_row, std::int64_t first_column) const {
    constexpr int in_row = Tile::columns / 32, of_lane = divide_up(Tile::rows * in_row, G::size);
    for (int lane : group) {
      codes_of_group found[of_lane];
      params_type of_group[of_lane];
      for (int i = 0; i < of_lane; ++i) {
        std::int64_t const row = first_row + (lane + i * G::size) / in_row;
        std::int64_t const column = first_column + (lane + i * G::size) % in_row * 32;
        bool const is_inside = row < rows() && column < columns();
        found[i] =
            is_inside ? *reinterpret_cast<codes_of_group const*>(&words(row, column / in_word)) : codes_of_group{};
        of_group[i] = is_inside ? params(row, column / 32) : params_type{};  // decodes 0 to 0
      }
      for (int i = 0; i < of_lane && lane + i * G::size < Tile::rows * in_row; ++i) {
        int const row = (lane + i * G::size) / in_row, column = (lane + i * G::size) % in_row * 32;
        decode(
            group, found[i], of_group[i], [&](int which) -> auto& { return tile.chunk(row, column + 8 * which); });
      }
    }
    group.sync();
  }

 private:
  struct alignas(4 * Bits) codes_of_group {
    std::uint32_t words[Bits];
  };
  struct alignas(16) chunk_words {
    std::uint32_t words[4];
  };
  /// Writes 32 values, eight to a chunk. With 2 bits the four values that there are become bytes to choose from.
  template <class G, class Chunk>
  TESSERA_FN static void decode(G const& group, codes_of_group const& codes, params_type of_group, Chunk const& chunk) {
    float values[8];
    if constexpr (Bits == 2) {
      for (int code = 0; code < 8; ++code) {
        values[code] = quantizer{}.decode_whole(static_cast<float>(code % 4), of_group);
      }
      tile_chunk<bfloat16> rounded;
      store_values<bfloat16>(group, values, true, rounded);
      auto const table = bit_cast<chunk_words>(rounded);
      std::uint32_t const low = picked_bytes(group, table.words[0], table.words[1], 0x6420U);
      std::uint32_t const high = picked_bytes(group, table.words[0], table.words[1], 0x7531U);
      for (int which = 0; which < 4; ++which) {
        std::uint32_t const fields = codes.words[which / 2] >> (which % 2 * 2) & 0x33333333U;
        chunk_words pairs;
        for (int half = 0; half < 2; ++half) {
          std::uint32_t const lows = picked_bytes(group, low, 0, fields >> (16 * half));
          std::uint32_t const highs = picked_bytes(group, high, 0, fields >> (16 * half));
          pairs.words[2 * half] = picked_bytes(group, lows, highs, 0x5140U);
          pairs.words[2 * half + 1] = picked_bytes(group, lows, highs, 0x7362U);
        }
        chunk(which) = bit_cast<tile_chunk<bfloat16>>(pairs);
      }
    } else {
      for (int which = 0; which < 4; ++which) {
        for (int t = 0; t < 8; ++t) {
          std::uint32_t const fields = codes.words[which] >> (t % 2 * 4) & 0x0f0f0f0fU;
          values[t] = quantizer{}.decode_whole(byte_as_float(group, fields, t / 2) - 0x1p23F, of_group);
        }
        store_values<bfloat16>(group, values, true, chunk(which));
      }
    }
  }
};

/// Codes of several matrices, such as those of heads.
template <int Bits>
struct packed_heads {
  view<std::uint32_t, 3> words;                              ///< head x row x word
  view<typename packed_codes<Bits>::params_type, 3> params;  ///< head x row x group
  TESSERA_FN packed_codes<Bits> operator[](std::int64_t head) const { return {words[head], params[head]}; }
};

/// Makes codes, one group of 32 columns for each lane.
template <int Bits>
struct pack_codes {
  using codes = packed_codes<Bits>;
  static constexpr int lanes = 32;
  struct scratch_type {};
  view<bfloat16 const, 3> values;  ///< head x row x column, of any strides; columns are a multiple of 32
  packed_heads<Bits> to;
  [[nodiscard]] std::int64_t groups() const { return divide_up(to.params.size(), std::int64_t{lanes}); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      if (std::int64_t const i = which * lanes + lane; i < to.params.size()) {
        std::int64_t const row = i / to.params.extent(2);
        pack(values[row / values.extent(1)][row % values.extent(1)], to[row / values.extent(1)], row % values.extent(1),
             i % to.params.extent(2));
      }
    }
  }

 private:
  TESSERA_FN static void pack(array_view<bfloat16 const> from, codes const& into, std::int64_t row, std::int64_t part) {
    typename codes::quantizer const by_group;
    auto range = by_group.range().identity();
    for (int t = 0; t < 32; ++t) {
      by_group.range().push(range, load(from[32 * part + t]));
    }
    auto const params = into.params(row, part) = by_group.fit(range);
    for (int word = 0; word < Bits; ++word) {
      std::uint32_t packed = 0;
      for (int t = 0; t < codes::in_word; ++t) {
        float const value = load(from[32 * part + word * codes::in_word + t]);
        packed |= std::uint32_t{by_group.encode(value, params)} << (t % 8 * 4 + t / 8 * Bits);
      }
      into.words(row, part * Bits + word) = packed;
    }
  }
};

/// Codes of matrices in an executor's memory.
template <int Bits>
struct packed_memory {
  buffer<std::uint32_t> words;
  buffer<typename packed_codes<Bits>::params_type> params;
  packed_heads<Bits> heads;  ///< views of both

  /// Makes them. `values`: head x row x column, of any strides; columns are a multiple of 32.
  template <class Executor>
  packed_memory(Executor const& exec, view<bfloat16 const, 3> values)
      : words(exec, values.size() * Bits / 32),
        params(exec, values.size() / 32),
        heads{{words.data(), {values.extent(0), values.extent(1), values.extent(2) * Bits / 32}},
              {params.data(), {values.extent(0), values.extent(1), values.extent(2) / 32}}} {
    check<shape_error>(values.extent(2) % 32 == 0, "packed_memory: there are ", values.extent(2),
                       " columns but must be a multiple of 32");
    pack_codes<Bits> const pack{values, heads};
    exec.run(pack, pack.groups());
  }
};

}  // namespace tessera_examples
