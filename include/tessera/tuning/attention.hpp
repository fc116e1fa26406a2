// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How the program of algorithm/attention.hpp for sm_90a is laid out.
#pragma once

#include <cstdint>

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

/// H200, TFLOP/s of the program alone, 4 * queries * keys * channels operations a head (half of them if causal), 8 x 16
/// heads of 4096, 2 x 16 of 16384 and 8 of 32768 tokens of 128 channels, and twice as many of 64:
///
///     128 channels                          4K    16K    32K   causal 4K    16K    32K
///     2 warpgroups, own_values             823    911    914         703    901    902
///     2 warpgroups, values_in_turn         804    871    888         697    868    868
///     3 warpgroups, none                   915    993    972         797    906    967
///     the same, 4 of 16 polynomials        880    947    927         765    864    926
///     the same, additions                  859    929    909         750    845    914
///      64 channels
///     2 warpgroups, own_values             496    552    564         437    542    558
///     3 warpgroups, none                   594    652    665         525    636    656
///     the same, 4 of 16 polynomials        580    634    639         511    612    632
///
/// So other warpgroups hide what one waits for as well as its own products do, with fewer registers.
///
/// At 128 channels and 1.77 GHz schedulers issue in 47 % of cycles, tensor cores and exponentials take 49 and 51 %. A
/// warp's samples: 22 % waiting for products, 29 % in exponentials, the rest in other instructions. What did not help
/// (1014 at 16K before): products and the next scores of one warpgroup after the other (961 to 981), exponents,
/// exponentials and their packing interleaved by data dependences (1010 to 1015; the compiler's order is all exponents,
/// then all exponentials), a cluster of two that shares keys (980), 3 stages (973). In a long run the clock drops for
/// power: 940.
template <int Channels>
struct warpgroup_attention_tuning {
  using policy_type = warpgroup_attention_policy;
  TESSERA_FN constexpr policy_type operator()(int) const {
    return {3, 1, Channels > 64 ? 4 : 6, 64, 0, attention_overlap::none, weight_sum::ones_column, 32, 160};
  }
};

/// How quantize_heads goes over key heads: as many at a time as have about so many bytes of keys and values.
///
/// H200, 2 x 16 heads of 16384 tokens, 64 channels: 254 us, 0.57 of the copy's speed; with sections of 3, 6, 24 and 48
/// MiB 321, 323, 265 and 267. 512 threads instead of 256, which spill nothing: 250. The next tile asked for ahead, into
/// L2: 299. Tiles brought by the copy engine into a ring in shared memory: 293 to 559. 64 query and 8 key heads, 128
/// channels: 170, 0.70.
struct quantize_heads_tuning {
  struct policy_type {
    std::int64_t section_bytes;
    friend constexpr bool operator==(policy_type const&, policy_type const&) = default;
  };
  TESSERA_FN constexpr policy_type operator()(int) const { return {std::int64_t{12} << 20}; }
};

}  // namespace v0
}  // namespace tessera
