// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `direction_codecs`: the PageCodec of a cache whose parts have different bits or groups, with a device's own kernels
/// for all of them.
///
///     using mixed = tessera::direction_codecs<tessera::direction_codec<4>, tessera::direction_codec<2>>;
///     using cache = tessera::cross_layer_cache<tessera::slerp_merger<float>, tessera::retain_most_different, mixed>;
///
/// Parts of any cache of a direction_codec may have any bits and groups (cache_layers), and its bytes are the same. But
/// nvcc takes about a second for each kernel, and a cache has seven for each pair of bits: a part whose numbers its
/// codec does not name runs in the portable programs.
#pragma once

#include <tessera/algorithm/paged_cache/direction_codec.hpp>
#include <tessera/concepts/page_codec.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {
template <class C>
inline constexpr bool is_direction_codec = false;
template <int Bits, int ValueGroup, int ValueBits>
inline constexpr bool is_direction_codec<direction_codec<Bits, ValueGroup, ValueBits>> = true;
}  // namespace detail

/// A PageCodec for a cache whose parts have the bits and groups of any of these direction_codecs. It is the first of
/// them, whose numbers parts have that name none, and kernels for one architecture are compiled for all of them.
template <class First, class... More>
requires(detail::is_direction_codec<First> && (detail::is_direction_codec<More> && ...)) struct direction_codecs
    : First {
  /// Calls `use` with each of the codecs, until one call returns true. Returns whether one did.
  template <class Use>
  static constexpr bool any_codec(Use const& use) {
    return First::any_codec(use) || (More::any_codec(use) || ...);
  }
};

static_assert(PageCodec<direction_codecs<direction_codec<2>, direction_codec<4>>>);

}  // namespace v0
}  // namespace tessera
