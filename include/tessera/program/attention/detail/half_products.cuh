// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `half_products`: how forward_by_warps multiplies weights by values as fp16, which tensor cores of sm_80 and later
/// do. Moved by 7 bits, a code of e4m3 is the fp16 of 2^-8 of its number, denormal ones included.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <tessera/core/float16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/program/attention/detail/parked_weights.cuh>
#include <tessera/program/attention/detail/row_floats.cuh>
#include <tessera/program/attention/detail/warp_operands.cuh>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/row_tile.cuh>
#include <tessera/tile/multiply_staged.hpp>
#include <tessera/tile/multiply_sums.hpp>
#include <tessera/tuning/attention/forward_by_warps.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Method: an attention_method. Channels: the most channels that a head may have, 64 or 128. Policy: with 128 channels,
/// how many times 16 rows a warp has, and how rows lie in shared memory; with 64 channels, how many warps there are.
/// StoredValue: what values lie in memory as: float8_e4m3, whose codes each thread block widens, or float16, as
/// widen_to_halves leaves them.
template <class Method, int Channels, forward_by_warps_policy Policy, class StoredValue = float8_e4m3>
struct half_products {
  static_assert((Channels == 64 || Channels == 128) && (Policy.sets == 1 || (Policy.sets == 2 && Channels == 128)),
                "tessera: forward_by_warps has 64 channels, or 128 in one or two sets");
  static_assert(!Policy.are_swizzled || (Channels == 128 && Policy.sets == 1 && std::is_same_v<StoredValue, float16>),
                "tessera: forward_by_warps has swizzled rows of 128 channels in one set, of values that are widened");
  static_assert(Policy.warps_of_64 == 4 || (Policy.warps_of_64 == 8 && Channels == 64),
                "tessera: forward_by_warps has four or eight warps with 64 channels, and eight with 128");
  using method = Method;
  static constexpr int channels = Channels;
  static constexpr int warps = Channels == 64 ? Policy.warps_of_64 : 8;
  static constexpr int tiles = Channels == 64 ? 2 : 1;  ///< 16 rows of a warp; registers are for so many
  static constexpr int sets = Policy.sets;              ///< sets of rows, whose scores are made one after the other
  static constexpr int blocks_per_multiprocessor = 8 / warps;
  static constexpr int from_architecture = 800;
  /// Rows are swizzled, and eight warps have 64 channels, where a thread block has 99 KiB of shared memory: on sm_86,
  /// by code for it or for sm_80.
  static constexpr int before_architecture = Policy.are_swizzled || Policy.warps_of_64 == 8 ? 890 : 10000;
  /// Whether copies of the next keys begin when a tile's weights are made, not when its scores are: with 128 channels
  /// 323 TFLOP/s in place of 354, with 64 channels 343 in place of 336.
  static constexpr bool begins_keys_late = Channels == 64;
  /// Whether rows of keys and values in shared memory have no gaps.
  static constexpr bool are_swizzled = Policy.are_swizzled;
  /// Whether references stay in registers: else 64 channels have 353 TFLOP/s in place of 348, two sets 378 in place of
  /// 373, and one set of 128 channels has 1 % less.
  static constexpr bool keeps_references = Channels == 128 && sets == 1;
  static constexpr bool keeps_largest = false;  ///< whether largest scores stay in registers
  /// Whether codes of queries stay in registers.
  static constexpr bool keeps_queries = Channels == 128 && sets == 1 && std::is_same_v<StoredValue, float16>;
  /// The group that multiplies.
  using block = cuda_block<32 * warps>;
  /// How keys and values get to shared memory.
  using sources = warp_operands<Method, Channels, block::size, warp_storage<float16, StoredValue, are_swizzled>>;

 private:
  static constexpr int rows = 16 * tiles * warps;  ///< of a set
  static constexpr int parts = sources::parts;
  using weights = row_tile<float16, shape<rows, sources::tile_keys, 16>, block>;
  using results = row_tile<float16, shape<rows, sources::width, 16>, block>;  ///< weights by values
  using sums_of_weights = row_tile<float16, shape<rows, 8, 16>, block>;       ///< weights by ones

 public:
  /// The weights of a set.
  using operands_type = operands_of_sums<weights, results>;
  /// After how many products of 16 tokens of eight the next tile's values are begun. Two sets (16K) have 427 TFLOP/s
  /// after 2, 417 after none and 425 after 4, 64 channels 379 after 2 and 375 after 4. Where codes are widened two sets
  /// have 412 after 3, 420 after 4, 413 after 5, 407 after 6 and 406 after all.
  static constexpr int begins_values_at = sources::widens ? 4 : 2;
  /// The weights of the first of two sets.
  using parked_type = parked_weights<operands_type::steps>;
  /// The sums of a lane's rows.
  struct totals_type {
    typename results::sum_tile of_channels[sets][parts];
    typename sums_of_weights::sum_tile rounded[sets];  ///< of the numbers of weights' codes
  };

  __device__ __forceinline__ static void clear(block const& group, totals_type& totals) {
    each_constant<sets>([&](auto set) {
      each_constant<parts>([&](auto part) { results::clear(group, totals.of_channels[set.value][part.value]); });
      sums_of_weights::clear(group, totals.rounded[set.value]);
    });
  }
  /// Multiplies the totals of a set by the factors of its rows.
  __device__ __forceinline__ static void turn(row_floats<tiles> const& factors, totals_type& totals, int set) {
    each_constant<parts>([&](auto part) { factors.scale(totals.of_channels[set][part.value]); });
    factors.scale(totals.rounded[set]);
  }
  /// Makes operands of the codes in the last bits of scores: fp16 of 2^-8 of their numbers.
  template <class Scores>
  __device__ __forceinline__ static void pack(Scores const& sums, operands_type& operands) {
    each_constant<operands_type::steps>([&](auto step) {
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          auto const& of = sums.values[tile][2 * step.value + word / 2];
          auto const first = static_cast<std::uint32_t>(of[word % 2 * 2]);
          auto const second = static_cast<std::uint32_t>(of[word % 2 * 2 + 1]);
          operands.of_step[step.value].words[0][tile][word] = pick_bytes(first, second, 0x5410U) << 7;
        }
      }
    });
  }
  /// Adds the products of a tile's weights and values, and the sums of weights. Calls between() when a part of the tile
  /// is multiplied, begins_values_at of its steps, and end(last) when `last` is loaded, of all values last.
  template <class Between, class End>
  __device__ __forceinline__ static void add(block const& group, operands_type const& operands,
                                             parked_type const& parked, typename sources::value_tile const& values,
                                             totals_type& totals, Between const& between, End const& end) {
    each_constant<operands_type::steps>([&](auto step) {
      if constexpr (step.value == begins_values_at) {
        between();
      }
      typename results::a_tile of_sets[sets];
      of_sets[sets - 1] = operands.of_step[step.value];
      if constexpr (sets == 2) {
        of_sets[0] = parked.template operand<typename results::a_tile>(step.value);
      }
      each_constant<parts>([&](auto part) {
        typename results::b_tile b_tile;
        load_b_transposed_of<results>(group, b_tile, values[part.value], step.value * results::depth);
        if constexpr (step.value + 1 == operands_type::steps && part.value + 1 == parts) {
          end(b_tile.words[0][sources::width / 8 - 1][1]);
        }
        each_constant<sets>([&](auto set) {
          results::multiply(group, of_sets[set.value], b_tile, totals.of_channels[set.value][part.value]);
        });
      });
      each_constant<sets>([&](auto set) { add_ones(group, of_sets[set.value], totals.rounded[set.value]); });
    });
  }
  /// The sum of the numbers of a row's codes.
  __device__ __forceinline__ static float rounded(totals_type const& totals, int set, int tile, int half) {
    return totals.rounded[set].values[tile][0][half * 2] * of_weights;
  }
  /// Calls visit(row, channel, total) for the totals of a set, in units of codes.
  template <class Visit>
  __device__ __forceinline__ static void each(block const& group, totals_type& totals, int set, Visit const& visit) {
    each_constant<parts>([&](auto part) {
      results::each(group, totals.of_channels[set][part.value], [&](int row, int column, float total) {
        visit(row, part.value * sources::width + column, total * (widened_pairs<float8_e4m3>::unit() * of_weights));
      });
    });
  }

 private:
  static constexpr float of_weights = 256.0F;  ///< operands are 2^-8 of the numbers

  template <class Operand>
  __device__ __forceinline__ static void add_ones(block const& group, Operand const& operand,
                                                  typename sums_of_weights::sum_tile& sums) {
    constexpr std::uint32_t one = 0x3c003c00U;
    typename sums_of_weights::b_tile ones;
    ones.words[0][0][0] = one;
    ones.words[0][0][1] = one;
    typename sums_of_weights::a_tile same;  // rows by tokens, whatever the columns of the product are
    static_assert(sizeof same == sizeof operand);
    memcpy(&same, &operand, sizeof same);
    sums_of_weights::multiply(group, same, ones, sums);
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
