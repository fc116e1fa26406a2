// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How the programs of algorithm/linear_loss.hpp for sm_90a are laid out.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/tuning/linear.hpp>

namespace tessera {
inline namespace v0 {

/// The forward pass: its band is not used, rows are walked by a row_schedule.
struct warpgroup_loss_tuning {
  using policy_type = warpgroup_gemm_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {192, 2, 5, 8, 24, 240}; }
};

/// The backward pass: the gradient by the logits.
struct warpgroup_loss_gradient_tuning {
  using policy_type = warpgroup_gemm_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {192, 2, 4, 8, 24, 240}; }
};

/// Likewise: the products with it.
struct warpgroup_loss_product_tuning {
  using policy_type = warpgroup_gemm_policy;
  TESSERA_FN constexpr policy_type operator()(int) const { return {192, 2, 5, 8, 24, 240}; }
};

/// How many entries of the vocabulary a part of the backward pass has: programs for sm_90a compute whole tiles, as many
/// at a time as there are clusters, and the last of them leave clusters idle.
struct loss_part_tuning {
  static constexpr std::int64_t clusters = 66;         ///< of an H200
  static constexpr std::int64_t launches = 200 * 192;  ///< what launches cost, in the unit below

  /// What a part costs for each of its entries, in multiplications of 256 rows x 64 of the depth.
  [[nodiscard]] static constexpr double cost(std::int64_t tokens, std::int64_t channels, std::int64_t entries) {
    const std::int64_t rows = divide_up(tokens, std::int64_t{256});
    const std::int64_t across = divide_up(channels, std::int64_t{192});
    const std::int64_t tiles = rows * divide_up(entries, std::int64_t{192});
    const std::int64_t panels = divide_up(entries, std::int64_t{256});
    const std::int64_t products = (panels + rows) * across;
    const double pieces = static_cast<double>(across * (panels * divide_up(tokens, std::int64_t{64}) +
                                                        rows * divide_up(entries, std::int64_t{64})));
    const double depth = pieces / static_cast<double>(products > 0 ? products : 1);
    const double made = static_cast<double>(divide_up(tiles, clusters) * divide_up(channels, std::int64_t{64}) * 192);
    const double added = static_cast<double>(divide_up(products, clusters) * 192) * depth;
    return (made + added + static_cast<double>(launches)) / static_cast<double>(entries);
  }
};

}  // namespace v0
}  // namespace tessera
