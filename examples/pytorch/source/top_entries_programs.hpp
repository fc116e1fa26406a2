// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The function of top_entries.hpp. Each type is compiled by itself, since that takes long.
#pragma once

#include <cstdint>
#include <optional>
#include <torch/csrc/stable/ops.h>
#include <tuple>
#include <type_traits>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/reduce/write_top_entries.hpp>

#include "loss_programs.hpp"
#include "top_entries.hpp"

namespace tessera_torch {

/// What calls for up to K entries share.
template <class Device, class Operand, int K>
struct top_entries_program {
  static constexpr char const* function = "top_log_probabilities";
  using classifiers = classifiers_of<Operand>;
  using value_type = typename classifiers::value_type;
  using top = tessera::write_top_entries<K>;
  using loss = typename classifiers::template method<
      tessera::cut_cross_entropy_of<typename classifiers::operand, typename top::reducer>>;
  using inputs = typename loss::template inputs<std::int64_t>;

  /// labels: of tokens, all of which must have one to have entries.
  static inputs inputs_of(top_tensors const& given, torch::stable::Device const& device, Tensor const& labels) {
    return {.hidden = view_of<value_type, 2>(given.e, device, {function, "hidden states"}),
            .classifier = classifiers::rows_of(given.classifier(), device, {function, "rows of the classifier"}),
            .labels = writable<std::int64_t>(labels),
            .bias = list_if_any<value_type>(given.bias, device, {function, "biases"})};
  }
  static Tensor labels_for(top_tensors const& given, torch::stable::Device const& device) {
    check_dimensions(given.e, 2, {function, "hidden states"});
    Tensor labels = empty_on(device, {given.e.size(0)}, ScalarType::Long);
    torch::stable::zero_(labels);
    return labels;
  }
  static tessera::linear_loss_shape shape_of(inputs const& in) {
    return {in.hidden.extent(0), classifiers::count_of(in.classifier), in.hidden.extent(1)};
  }
  static void check_count(std::int64_t k, std::int64_t vocabulary) {
    tessera::check<tessera::value_error>(k <= vocabulary, function, ": k is ", k, " but the vocabulary has ",
                                         vocabulary, " entries");
  }

  /// Memory for what a call gives.
  struct results {
    tessera::buffer<float> loss_of_all;
    Tensor log_sum_exp;
    Tensor log_probabilities;
    Tensor entries;

    results(torch::stable::Device const& device, std::int64_t tokens)
        : loss_of_all(Device::executor(device), 1),
          log_sum_exp(empty_on(device, {tokens}, ScalarType::Float)),
          log_probabilities(empty_on(device, {tokens, K}, ScalarType::Float)),
          entries(empty_on(device, {tokens, K}, ScalarType::Int)) {}
    tessera::linear_loss_outputs views() { return {loss_of_all, writable<float>(log_sum_exp)}; }
    [[nodiscard]] top finish() const {
      return {writable<std::int32_t, 2>(entries), writable<float, 2>(log_probabilities)};
    }
    [[nodiscard]] std::tuple<Tensor, Tensor, Tensor> of_columns(std::int64_t k) const {
      return {first_columns(log_probabilities, k), first_columns(entries, k), log_sum_exp};
    }
    static Tensor first_columns(Tensor of_all, std::int64_t k) {
      return k == K ? of_all : torch::stable::contiguous(torch::stable::narrow(of_all, 1, 0, k));
    }
  };

  static std::tuple<Tensor, Tensor, Tensor> forward(top_tensors const& given, std::int64_t k,
                                                    tessera::linear_loss_options const& options) {
    torch::stable::Device const device = device_of<Device>(given.e, {function, "hidden states"});
    Tensor const labels = labels_for(given, device);
    auto const in = inputs_of(given, device, labels);
    check_count(k, classifiers::count_of(in.classifier));
    auto const& exec = Device::executor(device);
    auto const plan = loss::plan_forward(exec, shape_of(in), options);
    auto space = scratch(exec, plan);
    results made(device, in.hidden.extent(0));
    loss::forward(exec, in, options, made.views(), tessera::workspace(plan, space), made.finish());
    return made.of_columns(k);
  }
};

/// Calls `use` with the number of entries that a program for `k` of them keeps. States of 4 stay in registers; the fast
/// program of sm_80 takes up to 13, that of sm_90a up to 48.
template <class Use>
auto with_entries(std::int64_t k, Use const& use) {
  tessera::check<tessera::value_error>(k >= 1 && k <= most_top_entries, "top_log_probabilities: k is ", k,
                                       " but must be from 1 to ", most_top_entries);
  if (k <= 4) {
    return use(std::integral_constant<int, 4>{});
  }
  return k <= 12 ? use(std::integral_constant<int, 12>{}) : use(std::integral_constant<int, most_top_entries>{});
}

template <class Device, class Operand>
std::tuple<Tensor, Tensor, Tensor> top_entries_of<Device, Operand>::forward(
    top_tensors const& given, std::int64_t k, tessera::linear_loss_options const& options) {
  return with_entries(k, [&]<int K>(std::integral_constant<int, K>) {
    return top_entries_program<Device, Operand, K>::forward(given, k, options);
  });
}

}  // namespace tessera_torch
