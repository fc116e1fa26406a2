// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Where the references of kept softmaxes (loss/kept_softmaxes.hpp) lie. Softmaxes are not negative, so that they have
/// signs to spare: the program for sm_80 and later, whose warps have 64 columns of a tile and know nothing of each
/// other's, writes a reference of 32 bits into the signs of 32 neighbouring values (`references_in_signs`), which takes
/// no memory. sm_90a's program writes references of tiles of 192 entries into a matrix (`references_of_tiles`), which
/// workspaces have for devices that run it.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// A reference in the signs of 32 values of 16 bits. Of each two neighbours, word k of 16, the lower has bit k of the
/// reference, and the upper bit k + 16. All signs clear say that the values have the reference that the token's tiles
/// share, or 0 where they share none.
struct signed_reference {
  static constexpr int values = 32;
  static constexpr std::uint32_t signs = 0x80008000U;

  /// The bits for a reference: a 0 is a minus 0.
  TESSERA_FN static constexpr std::uint32_t bits_of(float reference) {
    auto const bits = bit_cast<std::uint32_t>(reference);
    return bits == 0 ? 0x80000000U : bits;
  }
  /// Word number k with its part of the bits, and without other signs.
  TESSERA_FN static constexpr std::uint32_t put(std::uint32_t word, std::uint32_t bits, int k) {
    return (word & ~signs) | ((bits << (15 - k)) & signs);
  }
  /// What word number k has of the bits.
  TESSERA_FN static constexpr std::uint32_t take(std::uint32_t word, int k) { return (word & signs) >> (15 - k); }
};

}  // namespace detail

/// References of tiles of entries, in kept_softmaxes::references, where prepare_softmaxes finds them itself.
struct references_of_tiles {
  static constexpr bool are_in_signs = false;  ///< whether values must be loaded to find them
  /// Neighbouring entries that a lane takes at a time.
  template <class T>
  static constexpr int together = 16 / static_cast<int>(sizeof(T));
};

/// References in the signs of values.
struct references_in_signs {
  static constexpr bool are_in_signs = true;  ///< whether values must be loaded to find them
  /// Neighbouring entries that a lane takes at a time.
  template <class T>
  static constexpr int together = detail::signed_reference::values;

  /// The reference of a part whose signs are clear. Kept: a kept_softmaxes.
  template <class Kept>
  TESSERA_FN static float find(Kept const& kept, std::int64_t token, std::int64_t) {
    return Kept::shares_references ? kept.shared_references[token] : 0.0F;
  }
  /// Takes the reference out of the signs of loaded values, if there is one.
  template <class Part>
  TESSERA_FN static constexpr float settle(Part& part, float found) {
    static_assert(sizeof(Part) == 2 * detail::signed_reference::values, "tessera: values of 16 bits have references");
    auto some = bit_cast<words>(part);
    std::uint32_t bits = 0;
    take<0>(some, bits);
    part = bit_cast<Part>(some);
    return bits == 0 ? found : bit_cast<float>(bits);
  }

 private:
  struct words {
    std::uint32_t of_pairs[detail::signed_reference::values / 2];
  };
  /// It recurses, so that all indices are constants and words stay in registers.
  template <int K>
  TESSERA_FN static constexpr void take(words& some, std::uint32_t& bits) {
    if constexpr (K < detail::signed_reference::values / 2) {
      bits |= detail::signed_reference::take(some.of_pairs[K], K);
      some.of_pairs[K] = detail::signed_reference::put(some.of_pairs[K], 0, K);
      take<K + 1>(some, bits);
    }
  }
};

}  // namespace v0
}  // namespace tessera
