// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `byte_products`: how forward_by_warps multiplies weights by values as e4m3, which tensor cores of sm_89 and of
/// sm_120 do at twice the rate of fp16. (ptxas makes twelve conversions and two products of fp16 of such an instruction
/// for sm_90 and sm_100.)
///
/// Tensor cores of sm_89 keep 13 bits of the sums of such products (Zhang et al., arXiv 2411.10958, section 3.4). So
/// the sums of each tile of 128 keys begin at zero, and are then added in fp32 to those of earlier tiles, by the
/// multiply-add that multiplies these by the factor of their row. The sums of weights are made in the same way, by
/// products with ones, so that they are rounded as results are. In a model that drops what lies 13 bits below the
/// largest product, results of 1024 and 8192 keys have relative L1 errors of 2e-4 to 5e-4, and of 5e-3 to 0.16 with
/// sums of one level (tests/tuning/attention/byte_products_test.cpp). Rounding to codes costs 0.04 with values around
/// zero, 0.002 with values that have offsets.
///
/// Values lie in shared memory as they do in global memory, in the order of value_slot(), in which the scores that a
/// lane has are operands without an exchange. With one byte for a value a thread block of 128 rows and channels takes
/// 91 KiB in place of 140: sm_89 and sm_120 have 99.
#pragma once

#include <cstdint>
#include <cstring>

#include <tessera/core/float8.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/program/attention/detail/row_floats.cuh>
#include <tessera/program/attention/detail/warp_operands.cuh>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/row_tile.cuh>
#include <tessera/tile/multiply_staged.hpp>
#include <tessera/tile/multiply_sums.hpp>
#include <tessera/tuning/attention/byte_products.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Method: an attention_method. Channels: the most channels that a head may have, 64 or 128.
template <class Method, int Channels, byte_products_policy Policy>
struct byte_products {
  static_assert(Channels == 64 || Channels == 128, "tessera: forward_by_warps has 64 or 128 channels");
  using method = Method;
  static constexpr int channels = Channels;
  static constexpr int warps = Policy.warps;
  static constexpr int tiles = 1;  ///< 16 rows of a warp
  static constexpr int sets = 1;   ///< sets of rows
  static constexpr int blocks_per_multiprocessor = Policy.blocks_per_multiprocessor;
  static constexpr int from_architecture = Policy.from;
  static constexpr int before_architecture = Policy.before;
  static constexpr bool begins_keys_late = false;
  static constexpr bool are_swizzled = false;     ///< whether rows in shared memory have no gaps
  static constexpr bool keeps_references = true;  ///< whether references stay in registers
  static constexpr bool keeps_largest = true;     ///< whether largest scores stay in registers
  static constexpr bool keeps_queries = false;    ///< whether codes of queries do
  /// The group that multiplies.
  using block = cuda_block<32 * warps>;
  /// How keys and values get to shared memory.
  using sources = warp_operands<Method, Channels, block::size, warp_storage<float8_e4m3>>;

 private:
  static constexpr int rows = 16 * tiles * warps;
  static constexpr int parts = sources::parts;
  using weights = row_tile<float8_e4m3, shape<rows, sources::tile_keys, 32>, block>;
  using results = row_tile<float8_e4m3, shape<rows, sources::width, 32>, block>;  ///< weights by values
  using sums_of_weights = row_tile<float8_e4m3, shape<rows, 8, 32>, block>;       ///< weights by ones

 public:
  /// The weights of a tile.
  using operands_type = operands_of_sums<weights, results>;
  /// There is one set of rows, whose weights are multiplied at once.
  struct parked_type {
    template <class Operands>
    __device__ __forceinline__ static parked_type of(Operands const&) {
      return {};
    }
  };
  /// The sums of a lane's rows.
  struct totals_type {
    typename results::sum_tile of_channels[parts];
    row_floats<tiles> rounded;  ///< of the numbers of weights' codes
    row_floats<tiles> factors;  ///< what both are to be multiplied by
  };

  __device__ __forceinline__ static void clear(block const& group, totals_type& totals) {
    each_constant<parts>([&](auto part) { results::clear(group, totals.of_channels[part.value]); });
    totals.rounded = {};
    totals.factors = {};
  }
  /// Keeps the factors by which add() multiplies totals.
  __device__ __forceinline__ static void turn(row_floats<tiles> const& factors, totals_type& totals, int) {
    totals.factors = factors;
  }
  /// Makes operands of the codes in the lowest bytes of scores: for 32 tokens a word has four slots of 16 of them.
  template <class Scores>
  __device__ __forceinline__ static void pack(Scores const& sums, operands_type& operands) {
    each_constant<operands_type::steps>([&](auto step) {
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        std::uint32_t pairs[2];  // of the first 8 of 16 tokens, and of the others
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          auto const& of = sums.values[0][4 * step.value + word / 2 * 2 + i];
          auto const first = static_cast<std::uint32_t>(of[word % 2 * 2]);
          auto const second = static_cast<std::uint32_t>(of[word % 2 * 2 + 1]);
          pairs[i] = pick_bytes(first, second, 0x0040U);
        }
        operands.of_step[step.value].words[0][0][word] = pick_bytes(pairs[0], pairs[1], 0x5410U);
      }
    });
  }
  /// Multiplies totals by their factors, and adds the products of a tile's weights and values, and the sums of weights.
  /// Calls between() before the last part of the channels, and end(last) when `last` is loaded from the values after
  /// all others.
  template <class Between, class End>
  __device__ __forceinline__ static void add(block const& group, operands_type const& operands, parked_type const&,
                                             typename sources::value_tile const& values, totals_type& totals,
                                             Between const& between, End const& end) {
    each_constant<parts>([&](auto part) {
      if constexpr (part.value + 1 == parts) {
        between();
      }
      typename results::sum_tile sums;
      results::clear(group, sums);
      each_constant<operands_type::steps>([&](auto step) {
        typename results::b_tile b_tile;
        load_b_transposed_of<results>(group, b_tile, values[part.value], step.value * results::depth);
        if constexpr (step.value + 1 == operands_type::steps && part.value + 1 == parts) {
          end(b_tile.words[0][sources::width / 8 - 1][1]);
        }
        results::multiply(group, operands.of_step[step.value], b_tile, sums);
      });
      totals.factors.scale_and_add(totals.of_channels[part.value], sums);
    });
    add_weights(group, operands, totals);
  }
  /// The sum of the numbers of a row's codes.
  __device__ __forceinline__ static float rounded(totals_type const& totals, int, int tile, int half) {
    return totals.rounded.of[tile][half];
  }
  /// Calls visit(row, channel, total) for the totals, in units of codes.
  template <class Visit>
  __device__ __forceinline__ static void each(block const& group, totals_type& totals, int, Visit const& visit) {
    each_constant<parts>([&](auto part) {
      results::each(group, totals.of_channels[part.value],
                    [&](int row, int column, float total) { visit(row, part.value * sources::width + column, total); });
    });
  }

 private:
  __device__ __forceinline__ static void add_weights(block const& group, operands_type const& operands,
                                                     totals_type& totals) {
    constexpr std::uint32_t ones = 0x38383838U;
    typename sums_of_weights::b_tile b_tile;
    b_tile.words[0][0][0] = ones;
    b_tile.words[0][0][1] = ones;
    typename sums_of_weights::sum_tile sums;
    sums_of_weights::clear(group, sums);
    each_constant<operands_type::steps>([&](auto step) {
      typename sums_of_weights::a_tile same;  // rows by tokens, whatever the columns of the product are
      static_assert(sizeof same == sizeof operands.of_step[0]);
      memcpy(&same, &operands.of_step[step.value], sizeof same);
      sums_of_weights::multiply(group, same, b_tile, sums);
    });
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& total = totals.rounded.of[0][half];
      total = __fmaf_rn(total, totals.factors.of[0][half], sums.values[0][0][2 * half]);
    }
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
