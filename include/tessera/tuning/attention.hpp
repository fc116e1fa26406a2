// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How the program of algorithm/attention.hpp for sm_90a is laid out.
#pragma once

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// What a warpgroup's tensor cores do while it computes exponentials.
enum class attention_overlap {
  none,           ///< nothing: those of other warpgroups are at work meanwhile; takes fewest registers
  own_values,     ///< they multiply the weights of the tile before by its values
  values_in_turn  ///< the same, and warpgroups begin with a tile one after the other
};

/// How the weights of a row are added up.
enum class weight_sum {
  ones_column,  ///< by tensor cores, as if values had one more channel, which is 1: the sum of the rounded weights
  additions     ///< one by one, before they are rounded
};

/// The program for sm_90a: a block has 64 rows of queries for each warpgroup that multiplies.
struct warpgroup_attention_policy {
  int consumers;       ///< warpgroups that multiply: 2 or 3
  int blocks;          ///< of a cluster, which share keys and values: 1 or 2
  int stages;          ///< tiles of 128 keys, and of as many values, in shared memory
  int value_channels;  ///< that are multiplied at a time; all of them if there is overlap
  int polynomials;     ///< of 16 exponentials; the others are left to the special function unit
  attention_overlap overlap;
  weight_sum sum;
  int producer_registers;  ///< of each thread of the warpgroup that starts copies
  int consumer_registers;  ///< of each thread of those that multiply

  friend constexpr bool operator==(warpgroup_attention_policy const&, warpgroup_attention_policy const&) = default;
};

}  // namespace v0
}  // namespace tessera
