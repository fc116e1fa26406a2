// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `cache_inputs`: the new keys and values that a cache in compressed pages is given.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {

/// The index of keys in lists of keys and values.
inline constexpr int key_part = 0;
/// The index of values in lists of keys and values.
inline constexpr int value_part = 1;

/// New keys and values of both layers, of any strides; their first token is number `before` of the sequence.
template <class T>
struct cache_inputs {
  head_view<T const> keys[2];    ///< keys of each layer: sequence x key head x token x channel
  head_view<T const> values[2];  ///< values of each layer: sequence x key head x token x channel

  /// The keys or values of one layer.
  [[nodiscard]] TESSERA_FN constexpr head_view<T const> const& part(int layer, int which) const {
    return which == key_part ? keys[layer] : values[layer];
  }
};

}  // namespace v0
}  // namespace tessera
