// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Granularities: which tokens of an attention head share the scale of a quantizer, for queries and for keys.
///
///     using quantizer = tessera::symmetric_quantizer<8, tessera::per_thread>;
///     using groups = quantizer::granularity_type::keys;
///     std::int64_t const group = groups::group_of(token);      // of the key `token`
///     std::int64_t const count = groups::count(tokens);        // scales of a head
///
/// SageAttention2 (arXiv 2411.10958), section 3.2 and equation 8, with tiles of 64 queries, 16 for each warp, and 128
/// keys. In a tensor core's sums a lane holds rows lane / 4 and lane / 4 + 8, and columns 2 * (lane % 4), the next one,
/// and those 8, 16, 24 ... further. So per_thread gives each lane exactly one scale of queries and one of keys
/// (is_one_for_a_lane).
///
///     granularity   group of query n           group of key n
///     per_tensor    0                          0                            of a head
///     per_block     n / 64                     n / 128
///     per_warp      n / 16                     n / 128
///     per_thread    n / 16 * 8 + n % 8         n / 128 * 4 + n % 8 / 2
///     per_token     n                          n
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/attention_quantizer.hpp>
#include <tessera/concepts/quantizer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>

namespace tessera {
inline namespace v0 {

/// Every `Tokens` neighbouring tokens have `Groups` groups. Runs of `Neighbours` tokens belong to these groups
/// round-robin. `whole_tensor` means that all tokens of a head are one group.
template <int Tokens, int Groups = 1, int Neighbours = 1>
struct token_groups {
  static_assert(Tokens >= 0 && Groups > 0 && Neighbours > 0 && Tokens % (Groups * Neighbours) == 0,
                "tessera: token_groups has a whole number of turns through its groups");
  static_assert(Tokens != whole_tensor || Groups == 1, "tessera: all tokens of a head are one group");

  static constexpr int tokens = Tokens;                     ///< neighbouring tokens that have `Groups` groups
  static constexpr bool is_whole = Tokens == whole_tensor;  ///< whether all tokens of a head are one group

  /// The group of a token; both are counted from the start of the head.
  TESSERA_FN static constexpr std::int64_t group_of(std::int64_t token) {
    if constexpr (is_whole) {
      return 0;
    } else {
      return token / Tokens * Groups + token % (Groups * Neighbours) / Neighbours;
    }
  }
  /// The number of groups of the first `all` tokens of a head; 1 if all tokens of a head are one group.
  TESSERA_FN static constexpr std::int64_t count(std::int64_t all) {
    if constexpr (is_whole) {
      return 1;
    } else {
      return divide_up(all, std::int64_t{Tokens}) * Groups;
    }
  }
};

namespace detail {

/// How many neighbouring values share a scale if `group` is a number, else whole_tensor: then a granularity tells.
template <class Given>
constexpr int neighbours_in(Given const& group) {
  if constexpr (std::is_integral_v<Given>) {
    return static_cast<int>(group);
  } else {
    return whole_tensor;
  }
}

}  // namespace detail

template <TokenGroups Queries, TokenGroups Keys>
struct granularity {
  /// How queries are grouped: a token_groups.
  using queries = Queries;
  /// How keys are grouped: a token_groups.
  using keys = Keys;
};

/// One scale for all tokens of a head.
inline constexpr granularity<token_groups<whole_tensor>, token_groups<whole_tensor>> per_tensor{};
/// A scale for each 64 queries, and one for each 128 keys.
inline constexpr granularity<token_groups<64>, token_groups<128>> per_block{};
/// A scale for each 16 queries, which a warp multiplies at a time, and one for each 128 keys.
inline constexpr granularity<token_groups<16>, token_groups<128>> per_warp{};
/// A scale for the tokens whose scores one thread of a warp holds: 8 groups in 16 queries, 4 in 128 keys.
inline constexpr granularity<token_groups<16, 8>, token_groups<128, 4, 2>> per_thread{};
/// A scale for each token.
inline constexpr granularity<token_groups<1>, token_groups<1>> per_token{};

/// Whether a lane of a tensor core's sums, of `rows` queries and `columns` keys, needs one scale of queries and one of
/// keys.
template <class Granularity>
[[nodiscard]] constexpr bool is_one_for_a_lane(Granularity const&, int rows, int columns) {
  for (int lane = 0; lane < 32; ++lane) {
    int const row = lane / 4;
    int const column = lane % 4 * 2;
    for (int i = row; i < rows; i += 8) {
      if (Granularity::queries::group_of(i) != Granularity::queries::group_of(row)) {
        return false;
      }
    }
    for (int i = column; i < columns; i += 8) {
      if (Granularity::keys::group_of(i) != Granularity::keys::group_of(column) ||
          Granularity::keys::group_of(i + 1) != Granularity::keys::group_of(column)) {
        return false;
      }
    }
  }
  return true;
}

static_assert(is_one_for_a_lane(per_thread, 16, 128) && !is_one_for_a_lane(per_thread, 32, 128));
static_assert(is_one_for_a_lane(per_warp, 16, 128) && !is_one_for_a_lane(per_token, 16, 128));

}  // namespace v0
}  // namespace tessera
