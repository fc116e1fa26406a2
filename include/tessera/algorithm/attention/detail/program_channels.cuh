// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `program_channels`: which of warpgroup_attention's programs for sm_90a a call gets, by the channels of its heads.
#pragma once

#include <cstdint>

#include <tessera/core/math.hpp>
#include <tessera/exec/policy_of.hpp>
#include <tessera/program/attention/quantized_forward.cuh>
#include <tessera/tuning/attention/attention.hpp>
#include <tessera/view/attention_shape.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// The number of channels of the program for the call: the smallest of 64, 128 and 256 that is large enough for all
/// operands, or 192, for queries and keys, where values have at most 128.
inline int program_channels(attention_shape const& s) {
  std::int64_t const most = max(s.channels, s.channels_of_values());
  bool const has_wide_keys = s.channels <= 192 && s.channels_of_values() <= 128;
  return most <= 64 ? 64 : most <= 128 ? 128 : has_wide_keys ? 192 : 256;
}

/// The number of channels of values of that program.
constexpr int program_value_channels(int channels) {
  return channels == 192 ? 128 : channels;
}

/// Queries of a block of the program for sm_90a.
inline int block_rows_of(attention_shape const& s) {
  int const channels = program_channels(s);
  return 64 * (channels == 192  ? policy_of<attention_wide_keys_tuning>(900)
               : channels > 128 ? policy_of<warpgroup_attention_tuning<256>>(900)
               : channels > 64  ? policy_of<warpgroup_attention_tuning<128>>(900)
                                : policy_of<warpgroup_attention_tuning<64>>(900))
                  .consumers;
}

/// program_channels() for a way of weighing: where scores have terms, or there are lists, 256 stands for 192.
template <int Channels, class Weighing>
inline constexpr int channels_of_weighing = Channels == 192 && (!Weighing::terms_type::is_none || Weighing::is_listed)
                                                ? 256
                                                : Channels;

/// A policy without terms, by which sums begin at zero if they are floats.
template <class Weighing>
constexpr warpgroup_attention_policy policy_of_sums(warpgroup_attention_policy policy) {
  policy.begins_at_products = policy.begins_at_products && Weighing::rows_type::begins_at_terms;
  return policy;
}

/// The policy of warpgroup_attention for so many channels.
template <int Channels, class Weighing>
constexpr warpgroup_attention_policy policy_of_weighing() {
  using terms = typename Weighing::terms_type;
  if constexpr (Channels == 192) {
    return policy_of<attention_wide_keys_tuning>(900);
  } else if constexpr (terms::has_range && Weighing::rows_type::begins_at_terms && Channels <= 128) {
    return policy_of<attention_corrections_tuning<Channels>>(900);
  } else if constexpr (terms::is_line && Weighing::rows_type::begins_at_terms && Channels <= 128) {
    return policy_of<attention_line_tuning<Channels>>(900);
  } else if constexpr (!terms::is_none) {
    return policy_of<attention_terms_tuning<Channels, terms::has_tiles>>(900);
  } else if constexpr (Weighing::is_listed) {
    return policy_of_sums<Weighing>(policy_of<attention_list_tuning<Channels>>(900));
  } else {
    return policy_of_sums<Weighing>(policy_of<warpgroup_attention_tuning<Channels>>(900));
  }
}

/// warpgroup_attention for so many channels.
template <int Channels, class Weighing, class T>
using program_of_weighing =
    warpgroup_attention<program_value_channels(Channels), Weighing, T, policy_of_weighing<Channels, Weighing>()>;

}  // namespace detail
}  // namespace v0
}  // namespace tessera
