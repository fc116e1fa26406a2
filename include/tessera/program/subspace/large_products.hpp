// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The programs that compute products of keys again if keys are so large that sums in fp32 overflow, as those of 1e25
/// in bfloat16 or float do. They take the whole prompt. If the products on the diagonal are small enough, they change
/// nothing.
///
///     weigh_channels    the sum of the squares of each channel
///     scale_products    gram = products of keys times a power of two, added up in double
///
/// Directions do not depend on this power of two. The limit of 1e30 leaves room for the sums of a search for directions
/// (program/subspace/iterate.hpp), some of which are in fp32.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/subspace/iterate.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/triangle.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// The largest sum of products of keys that is not computed again.
inline constexpr float most_key_product = 1e30F;

/// The factor of keys in their products: 1, or for a larger sum of their squares a power of two that leaves less than
/// 2^50 of it.
[[nodiscard]] TESSERA_FN constexpr float key_scale(double squares) {
  if (!(squares > static_cast<double>(most_key_product))) {
    return 1.0F;
  }
  auto const exponent = static_cast<int>(bit_cast<std::uint64_t>(squares) >> 52) - 1023;
  constexpr int least = 120;  // 2^-120 is a normal number
  return bit_cast<float>(static_cast<std::uint32_t>(127 - min(exponent / 2, least)) << 23);
}

/// Finds the sum of the squares of each channel. A group for each channel of all heads.
template <class T>
struct weigh_channels {
  static constexpr int lanes = 64;
  struct scratch_type {};

  view<T const, 3> keys;          ///< heads x tokens x channels
  matrix_view<float const> gram;  ///< products of channels; infinite or NaN where they are too large
  array_view<double> squares;     ///< the sum of the squares of each channel

  TESSERA_FN constexpr std::int64_t groups() const { return gram.extent(0); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    float const known = gram(which, which);
    bool const is_known = known <= most_key_product;
    per_lane<double, G> own;
    for (int lane : group) {
      own[lane] = 0.0;
      for (std::int64_t token = lane; !is_known && token < keys.extent(1); token += lanes) {
        auto const key = static_cast<double>(load(keys(which / keys.extent(2), token, which % keys.extent(2))));
        own[lane] += key * key;
      }
    }
    double const all = is_known ? static_cast<double>(known) : sum(group, own);
    for (int lane : group) {
      if (is_first(lane)) {
        squares[which] = all;
      }
    }
  }
};

/// Computes products of scaled keys, and writes the factor. A group for each 32 x 32 products on or above the diagonal;
/// the first one writes the factor.
template <class T>
struct scale_products {
  static constexpr int lanes = 256;
  static constexpr std::int64_t block = 32;  ///< rows and columns of a group
  static constexpr std::int64_t depth = 32;  ///< tokens that are staged at a time
  struct scratch_type {
    float rows[depth][block];     ///< channels of the rows, by token
    float columns[depth][block];  ///< channels of the columns, by token
  };

  view<T const, 3> keys;                   ///< heads x tokens x channels
  array_view<double const> squares;        ///< the sum of the squares of each channel
  matrix_view<float> gram;                 ///< width x width
  array_view<subspace_measures> measures;  ///< measures, of which `scale` is written

  TESSERA_FN constexpr std::int64_t groups() const { return triangle_size(blocks()); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    per_lane<double, G> own;
    for (int lane : group) {
      own[lane] = 0.0;
      for (std::int64_t i = lane; i < squares.size(); i += lanes) {
        own[lane] += squares[i];
      }
    }
    float const scale = key_scale(sum(group, own));
    for (int lane : group) {
      if (which == 0 && is_first(lane)) {
        measures[0].scale = scale;
      }
    }
    if (scale != 1.0F) {
      triangle_coordinate const coordinate = coordinate_in_triangle(which, blocks());
      run(group, coordinate.row * block, coordinate.column * block, static_cast<double>(scale), scratch);
    }
  }

 private:
  static constexpr int products = block * block / lanes;  ///< products of a lane
  struct totals {
    double values[products];
  };

  TESSERA_FN constexpr std::int64_t blocks() const { return divide_up(gram.extent(0), block); }

  TESSERA_FN float key(std::int64_t token, std::int64_t channel) const {
    bool const is_there = token < keys.extent(1) && channel < gram.extent(0);
    return is_there ? static_cast<float>(load(keys(channel / keys.extent(2), token, channel % keys.extent(2)))) : 0.0F;
  }

  template <Group G>
  TESSERA_FN void run(G const& group, std::int64_t first_row, std::int64_t first_column, double scale,
                      scratch_type& scratch) const {
    per_lane<totals, G> sums;
    for (int lane : group) {
      sums[lane] = totals{};
    }
    for (std::int64_t first = 0; first < keys.extent(1); first += depth) {
      group.sync();  // all lanes have read the tokens before
      for (int lane : group) {
        for (std::int64_t at = lane; at < depth * block; at += lanes) {
          scratch.rows[at / block][at % block] = key(first + at / block, first_row + at % block);
          scratch.columns[at / block][at % block] = key(first + at / block, first_column + at % block);
        }
      }
      group.sync();
      for (int lane : group) {
        for (int i = 0; i < products; ++i) {
          std::int64_t const at = lane + i * lanes;
          for (std::int64_t token = 0; token < depth; ++token) {
            sums[lane].values[i] += static_cast<double>(scratch.rows[token][at / block]) *
                                    static_cast<double>(scratch.columns[token][at % block]);
          }
        }
      }
    }
    for (int lane : group) {
      for (int i = 0; i < products; ++i) {
        std::int64_t const row = first_row + (lane + i * lanes) / block;
        std::int64_t const column = first_column + (lane + i * lanes) % block;
        if (row <= column && column < gram.extent(0)) {
          gram(row, column) = gram(column, row) = static_cast<float>(sums[lane].values[i] * scale * scale);
        }
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
