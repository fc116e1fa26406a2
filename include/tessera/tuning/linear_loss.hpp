// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How the programs of algorithm/linear_loss.hpp for sm_90a are laid out.
#pragma once

#include <tessera/config.hpp>
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
  TESSERA_FN constexpr policy_type operator()(int) const { return {256, 2, 4, 8, 24, 240}; }
};

}  // namespace v0
}  // namespace tessera
