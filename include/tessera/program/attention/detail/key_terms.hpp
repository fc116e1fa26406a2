// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `key_terms`: the scales of a tile's keys, and what is added to their scores, for attention by row words. Lanes read
/// those of the next tile while they work on this one, and leave them in scratch when it is free.
///
///     using terms = detail::key_terms<Method, 128, 128>;            // 128 lanes, tiles of 128 keys
///     terms::next<Group> held;
///     terms::read(group, scales, corrections, first_key, held);
///     ...
///     terms::put(group, held, scratch.terms);                       // before a sync
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/tile/codes/value_slot.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Whether the groups of keys that share a scale are the same for every 8 of so many keys, so that a lane whose columns
/// are equal modulo 8 has one scale for all of them.
template <class Groups, int Keys>
TESSERA_FN constexpr bool scales_repeat() {
  for (std::int64_t key = 0; key < Keys; ++key) {
    if (Groups::group_of(key) != Groups::group_of(key % 8)) {
      return false;
    }
  }
  return true;
}

/// Method: an attention_method. Lanes: those of a group. Keys: those of a tile.
template <class Method, int Lanes, int Keys>
struct key_terms {
  /// How many scales of keys a tile has: see scales_repeat().
  static constexpr int scales = scales_repeat<typename Method::key_groups, Keys>() ? 8 : Keys;
  /// Whether the scores of mean queries are added to scores.
  static constexpr bool has_corrections = is_smoothed_by<block_mean, typename Method::score_quantizer>;

  struct scratch_type {
    static constexpr int scales = key_terms::scales;
    float scale[scales];                           ///< of the keys
    float correction[has_corrections ? Keys : 1];  ///< what is added to the scores of each key

    /// The scale of a key of the tile.
    TESSERA_FN float scale_of(int key) const {
      return scale[static_cast<unsigned>(key) % static_cast<unsigned>(scales)];
    }
  };

  /// What lanes hold of the next tile.
  template <class G>
  struct next {
    per_lane<float, G> scale[divide_up(scales, Lanes)];
    per_lane<float, G> correction[divide_up(has_corrections ? Keys : 1, Lanes)];
  };

  /// Reads the terms of a tile that begins at `first`. Corrections lie by value_slot().
  template <Group G>
  TESSERA_FN static void read(G const& group, view<float const, 1> of_keys, array_view<float> corrections,
                              std::int64_t first, next<G>& to) {
    each<scales>(group, [&](int lane, auto i, int key) {
      to.scale[i.value][lane] = of_keys(Method::key_groups::group_of(first + key));
    });
    if constexpr (has_corrections) {
      each<Keys>(group, [&](int lane, auto i, int key) {
        to.correction[i.value][lane] = corrections[value_slot(first + key)];
      });
    }
  }
  /// Leaves them in scratch.
  template <Group G>
  TESSERA_FN static void put(G const& group, next<G> const& from, scratch_type& scratch) {
    each<scales>(group, [&](int lane, auto i, int key) { scratch.scale[key] = from.scale[i.value][lane]; });
    if constexpr (has_corrections) {
      each<Keys>(group, [&](int lane, auto i, int key) { scratch.correction[key] = from.correction[i.value][lane]; });
    }
  }

 private:
  /// Calls function(lane, i, key) for `Count` keys: the one that is number i of its lane.
  template <int Count, Group G, class Function>
  TESSERA_FN static void each(G const& group, Function const& function) {
    for (int lane : group) {
      each_constant<divide_up(Count, Lanes)>([&](auto i) {
        int const key = i.value * Lanes + lane;
        if (key < Count) {
          function(lane, i, key);
        }
      });
    }
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
