// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `pack_codes` and `widen_codes`: pack 4-bit codes that lie in bytes into pairs, two to a byte, and widen them again.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/int4.hpp>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {

/// Packs codes. A group takes 8192 pairs; two neighbouring channels are a pair.
struct pack_codes {
  static constexpr int lanes = 128;
  static constexpr std::int64_t pairs = 64 * lanes;  ///< pairs of codes that a group packs
  struct scratch_type {};

  head_view<std::int8_t const> codes;  ///< contiguous, of an even number of channels; values from -8 to 7
  head_view<int4x2> packed;            ///< contiguous, of half as many channels as `codes`

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(packed.size(), pairs); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const end = min((which + 1) * pairs, packed.size());
    for (int lane : group) {
      for (std::int64_t i = which * pairs + lane; i < end; i += lanes) {
        packed.data[i] = pack_int4(codes.data[2 * i], codes.data[2 * i + 1]);
      }
    }
  }
};

/// Widens pairs to bytes. A group takes 8192 pairs.
struct widen_codes {
  static constexpr int lanes = 128;
  static constexpr std::int64_t pairs = 64 * lanes;  ///< pairs of codes that a group widens
  struct scratch_type {};

  head_view<int4x2 const> packed;  ///< the first code of a pair in the low bits
  head_view<std::int8_t> codes;    ///< batch x heads x tokens x channels

  TESSERA_FN constexpr std::int64_t groups() const { return divide_up(packed.size(), pairs); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const end = min((which + 1) * pairs, packed.size());
    for (int lane : group) {
      for (std::int64_t i = which * pairs + lane; i < end; i += lanes) {
        codes.data[2 * i] = static_cast<std::int8_t>(low(packed.data[i]));
        codes.data[2 * i + 1] = static_cast<std::int8_t>(high(packed.data[i]));
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
