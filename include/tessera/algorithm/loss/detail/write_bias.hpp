// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `write_bias`: the last step of the gradient of a bias, which all programs of linear_loss's backward pass have in
/// common, and `sum_columns`, those of programs that keep a part's gradient in memory.
#pragma once

#include <cstdint>

#include <tessera/concepts/executor.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
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

/// Enqueues the sums of a part's columns and the gradient of the bias, for as many entries at a time as there is memory
/// for, if that gradient is wanted. `is_kept`: whether the part holds kept softmaxes.
template <Executor Exec, class Call>
void sum_columns(Exec const& exec, Call const& call, loss_gradient_part<typename Call::value_type> const& part,
                 bool is_kept) {
  auto const& regions = call.regions;
  for (std::int64_t first = 0; call.out.bias.data != nullptr && first < part.gradient.extent(1);
       first += regions.entries) {
    std::int64_t const width = min(regions.entries, part.gradient.extent(1) - first);
    loss_gradient_part<typename Call::value_type> some = part;
    some.first += first;
    some.gradient = {&part.gradient(0, first), {part.gradient.extent(0), width}, {part.gradient.stride(0), 1}};
    some.column_sums = regions.column_sums_of(call.space, width);
    sum_gradient_columns<typename Call::value_type> sum{some.gradient, some.column_sums, {}};
    if (is_kept) {
      sum.factors = call.space[regions.factors];
    }
    exec.run(sum, sum.groups());
    write_bias(exec, call, some, call.out.bias);
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
