// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The function of top_entries.hpp. Each type is compiled by itself, since that takes long.
#pragma once

#include <cstdint>
#include <optional>
#include <torch/csrc/stable/ops.h>
#include <tuple>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/reduce/write_top_entries.hpp>

#include "loss_programs.hpp"
#include "top_entries.hpp"

namespace tessera_torch {

/// The function for up to K entries.
template <class Device, class Operand, int K>
struct top_entries_program {
  static constexpr char const* function = "top_log_probabilities";
  using value_type = typename tessera::gemm_operand<Operand>::value_type;
  using top = tessera::write_top_entries<K>;
  using loss = tessera::cut_cross_entropy_of<Operand, typename top::reducer>;

  static std::tuple<Tensor, Tensor, Tensor> forward(Tensor const& e, Tensor const& c, std::optional<Tensor> const& bias,
                                                    std::int64_t k, tessera::linear_loss_options const& options) {
    torch::stable::Device const device = device_of<Device>(e, {function, "hidden states"});
    auto const hidden = view_of<value_type, 2>(e, device, {function, "hidden states"});
    std::int64_t const tokens = hidden.extent(0);
    Tensor labels = empty_on(device, {tokens}, ScalarType::Long);
    torch::stable::zero_(labels);  // a token without a label would have no entries
    typename loss::template inputs<std::int64_t> const in{
        .hidden = hidden,
        .classifier = view_of<value_type, 2>(c, device, {function, "rows of the classifier"}),
        .labels = writable<std::int64_t>(labels),
        .bias = list_if_any<value_type>(bias, device, {function, "biases"})};
    tessera::check<tessera::value_error>(k <= in.classifier.extent(0), function, ": k is ", k,
                                         " but the vocabulary has ", in.classifier.extent(0), " entries");
    auto const& exec = Device::executor(device);
    auto const plan = loss::plan_forward(exec, {tokens, in.classifier.extent(0), in.hidden.extent(1)}, options);
    auto space = scratch(exec, plan);
    tessera::buffer<float> loss_of_all(exec, 1);
    Tensor const log_sum_exp = empty_on(device, {tokens}, ScalarType::Float);
    Tensor const log_probabilities = empty_on(device, {tokens, K}, ScalarType::Float);
    Tensor const entries = empty_on(device, {tokens, K}, ScalarType::Int);
    loss::forward(exec, in, options, {loss_of_all, writable<float>(log_sum_exp)}, tessera::workspace(plan, space),
                  top{writable<std::int32_t, 2>(entries), writable<float, 2>(log_probabilities)});
    return {first_columns(log_probabilities, k), first_columns(entries, k), log_sum_exp};
  }

  static Tensor first_columns(Tensor of_all, std::int64_t k) {
    return k == K ? of_all : torch::stable::contiguous(torch::stable::narrow(of_all, 1, 0, k));
  }
};

template <class Device, class Operand>
std::tuple<Tensor, Tensor, Tensor> top_entries_of<Device, Operand>::forward(
    Tensor const& e, Tensor const& c, std::optional<Tensor> const& bias, std::int64_t k,
    tessera::linear_loss_options const& options) {
  tessera::check<tessera::value_error>(k >= 1 && k <= most, "top_log_probabilities: k is ", k,
                                       " but must be from 1 to ", most);
  // States of 4 entries stay in registers; the fast program of sm_80 takes up to 13.
  if (k <= 4) {
    return top_entries_program<Device, Operand, 4>::forward(e, c, bias, k, options);
  }
  return k <= 12 ? top_entries_program<Device, Operand, 12>::forward(e, c, bias, k, options)
                 : top_entries_program<Device, Operand, most>::forward(e, c, bias, k, options);
}

}  // namespace tessera_torch
