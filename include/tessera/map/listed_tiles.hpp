// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `listed_tiles`: a bias of attention's scores within lists of tiles: block-sparse attention whose programs skip what
/// is not listed (SpargeAttention, arXiv 2502.18137; MInference, arXiv 2407.02490).
///
///     attention_block_list const list{{counts, {batch, heads, blocks}}, {tiles, {batch, heads, blocks, most}}};
///     attention_functions<listed_tiles<>> const functions{{list}};
///     sage_attention2::forward(exec, inputs, options, outputs, space, functions);
///
/// The list of a block of 64 queries has the tiles of 128 keys that these see, within the mask, as
/// view/attention_block_list.hpp says; the same list as attention_inputs::block_list means the same. As a part of the
/// type it has programs of its own, which only calls with lists compile: on sm_90a the fast one.
///
/// Lists may have any order. On sm_90a the blocks of queries of a thread block share the loads of tiles that their
/// lists have in common, where all of these lists ascend; out of order, a tile may be loaded once for each of them.
/// A thread block has four blocks of queries for up to 64 channels (three with a bias), three for up to 128, and two
/// for up to 256.
#pragma once

#include <type_traits>
#include <utility>

#include <tessera/config.hpp>
#include <tessera/map/no_bias.hpp>
#include <tessera/view/attention_block_list.hpp>
#include <tessera/view/attention_shape.hpp>
#include <tessera/view/visit_views.hpp>

namespace tessera {
inline namespace v0 {

/// A bias within lists of tiles. Bias: no_bias or the caller's own.
template <class Bias = no_bias>
struct listed_tiles {
  /// What is added to scores of listed tiles.
  using bias_type = Bias;

  attention_block_list list = {};  ///< which tiles of keys are seen, where the executor runs; null: all
  Bias bias = {};                  ///< what is added to their scores

  /// Names the views that it reads, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    use("counts of the block list", list.counts);
    use("tiles of the block list", list.tiles);
    visit_views(bias, use);
  }
  /// Checks the bias, where it has such a function.
  void check_shape(char const* function, attention_shape const& s) const {
    if constexpr (requires { bias.check_shape(function, s); }) {
      bias.check_shape(function, s);
    }
  }
};

/// Whether a bias is one within lists of tiles.
template <class Bias>
inline constexpr bool is_listed = false;
/// listed_tiles are.
template <class Bias>
inline constexpr bool is_listed<listed_tiles<Bias>> = true;

/// What `bias` adds to scores, without lists.
template <class Bias>
constexpr Bias const& without_list(Bias const& bias) {
  return bias;
}
/// What `bias` adds to scores, without lists.
template <class Bias>
constexpr Bias const& without_list(listed_tiles<Bias> const& bias) {
  return bias.bias;
}
/// The type of a bias without lists.
template <class Bias>
using bias_without_list = std::remove_cvref_t<decltype(without_list(std::declval<Bias const&>()))>;

}  // namespace v0
}  // namespace tessera
