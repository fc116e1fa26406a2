// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `write_bias`: the last step of the gradient of a bias, which all programs of linear_loss's backward pass have in
/// common.
#pragma once

#include <tessera/concepts/executor.hpp>
#include <tessera/config.hpp>
#include <tessera/program/loss/gradient_products.hpp>
#include <tessera/program/loss/logit_gradient.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Enqueues the sums of a part's columns, if the gradient of the bias is wanted. Call: a loss_gradient_call.
template <Executor Exec, class Call, class Gradient>
void write_bias(Exec const& exec, Call const& call, loss_gradient_part<typename Call::value_type> const& part,
                array_view<Gradient> target) {
  if (target.data != nullptr) {
    array_view<Gradient> const some(&target[part.first], {part.gradient.extent(1)}, {target.stride(0)});
    sum_bias_gradient<Gradient> const sum{part.column_sums, call.space[call.regions.late_scale].data, some,
                                          call.out.accumulate_bias};
    exec.run(sum, sum.groups());
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
