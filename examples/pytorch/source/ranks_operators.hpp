// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The operators of losses over ranks for a kind of device: they choose what is compiled elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include "distillation_operators.hpp"
#include "loss_operators.hpp"
#include "operator_arguments.hpp"
#include "ranks.hpp"
#include "soft_target_operators.hpp"
#include "top_entries_operators.hpp"

namespace tessera_torch {

/// A rank's number, how many there are, its first entry and those of all ranks.
template <>
struct schema_of<rank_place> {
  using type = schema<std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
};
/// The same where ranks gather: with the address of a gather_function.
struct gathering_place : rank_place {
  using rank_place::rank_place;
};
template <>
struct schema_of<gathering_place> {
  using type = schema<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
};

/// The bytes of the workspace of linear_cross_entropy over ranks.
template <class Device>
std::int64_t rank_loss_bytes(loss_tensors const& given, gradient_sums const& sums, loss_option_arguments const& options,
                             std::int64_t ranks, bool for_backward) {
  return with_loss<rank_loss_of, Device>(given, sums, options, [&]<class Loss>(Loss, auto const& settings) {
    return Loss::bytes(given, settings, ranks, for_backward);
  });
}

template <class Device>
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> rank_loss_forward(loss_tensors const& given,
                                                                     gradient_sums const& sums,
                                                                     loss_option_arguments const& options,
                                                                     Tensor workspace, gathering_place const& place) {
  return with_loss<rank_loss_of, Device>(given, sums, options, [&]<class Loss>(Loss, auto const& settings) {
    return Loss::forward(given, settings, sums, workspace, place);
  });
}

template <class Device>
std::tuple<Tensor, Tensor, Tensor> rank_loss_backward(loss_tensors const& given, gradient_sums const& sums,
                                                      loss_option_arguments const& options, Tensor workspace,
                                                      rank_place const& place, loss_gradient_request wanted) {
  wanted.sums = sums;
  return with_loss<rank_loss_of, Device>(given, sums, options, [&]<class Loss>(Loss, auto const& settings) {
    return Loss::backward(given, settings, workspace, place, wanted);
  });
}

/// The bytes of the workspace of soft_target_cross_entropy over ranks.
template <class Device>
std::int64_t rank_soft_target_bytes(soft_target_tensors const& given, soft_target_option_arguments const& options,
                                    std::int64_t ranks, bool for_backward) {
  return with_soft_targets<rank_soft_targets_of, Device>(
      given, options, [&]<class Loss>(Loss, auto const& own) { return Loss::bytes(given, own, ranks, for_backward); });
}

template <class Device>
std::tuple<Tensor, Tensor> rank_soft_target_forward(soft_target_tensors const& given,
                                                    soft_target_option_arguments const& options, Tensor workspace,
                                                    gathering_place const& place) {
  return with_soft_targets<rank_soft_targets_of, Device>(
      given, options, [&]<class Loss>(Loss, auto const& own) { return Loss::forward(given, own, workspace, place); });
}

template <class Device>
std::tuple<Tensor, Tensor, Tensor> rank_soft_target_backward(soft_target_tensors const& given,
                                                             soft_target_option_arguments const& options,
                                                             Tensor workspace, rank_place const& place,
                                                             soft_target_gradient_request const& wanted) {
  return with_soft_targets<rank_soft_targets_of, Device>(given, options, [&]<class Loss>(Loss, auto const& own) {
    return Loss::backward(given, own, workspace, place, wanted.whole());
  });
}

/// The bytes of the workspace of linear_distillation over ranks.
template <class Device>
std::int64_t rank_distillation_bytes(distillation_tensors const& given, distillation_option_arguments const& options,
                                     std::int64_t ranks, bool for_backward) {
  return with_distillation<rank_distillation_of, Device>(given, options, [&]<class Loss>(Loss, auto const& settings) {
    return Loss::bytes(given, settings, ranks, for_backward);
  });
}

template <class Device>
Tensor rank_distillation_forward(distillation_tensors const& given, distillation_option_arguments const& options,
                                 Tensor workspace, gathering_place const& place) {
  return with_distillation<rank_distillation_of, Device>(given, options, [&]<class Loss>(Loss, auto const& settings) {
    return Loss::forward(given, settings, workspace, place);
  });
}

template <class Device>
std::tuple<Tensor, Tensor> rank_distillation_backward(distillation_tensors const& given,
                                                      distillation_option_arguments const& options, Tensor workspace,
                                                      rank_place const& place, std::optional<Tensor> by_loss, bool of_e,
                                                      bool of_c) {
  return with_distillation<rank_distillation_of, Device>(given, options, [&]<class Loss>(Loss, auto const& settings) {
    return Loss::backward(given, settings, workspace, place, {by_loss, std::nullopt, std::nullopt, of_e, of_c, false});
  });
}

/// The bytes of the workspace of chosen_log_probabilities over ranks, which neither options nor gradients change.
template <class Device>
std::int64_t rank_chosen_bytes(chosen_tensors const& given, logit_option_arguments const&, std::int64_t ranks, bool) {
  check_dimensions(given.entries, 2, {chosen_function, "entries"});
  return with_functions<rank_soft_targets_of, Device>(
      chosen_function, given, false, [&]<class Targets>(Targets) { return Targets::chosen_bytes(given, ranks); });
}

template <class Device>
Tensor rank_chosen_forward(chosen_tensors const& given, logit_option_arguments const& of_logits, Tensor workspace,
                           gathering_place const& place) {
  return with_functions<rank_soft_targets_of, Device>(chosen_function, given, false, [&]<class Targets>(Targets) {
    return Targets::chosen(given, of_logits.options(), workspace, place);
  });
}

/// The bytes of the workspace of top_log_probabilities over ranks.
template <class Device>
std::int64_t rank_top_bytes(top_tensors const& given, std::int64_t k, logit_option_arguments const& of_logits,
                            bool is_tf32, std::int64_t ranks, bool) {
  return with_functions<rank_top_entries_of, Device>(
      top_function, given, is_tf32, [&]<class Top>(Top) { return Top::bytes(given, k, of_logits.options(), ranks); });
}

template <class Device>
std::tuple<Tensor, Tensor, Tensor> rank_top_forward(top_tensors const& given, std::int64_t k,
                                                    logit_option_arguments const& of_logits, bool is_tf32,
                                                    Tensor workspace, gathering_place const& place) {
  return with_functions<rank_top_entries_of, Device>(top_function, given, is_tf32, [&]<class Top>(Top) {
    return Top::forward(given, k, of_logits.options(), workspace, place);
  });
}

}  // namespace tessera_torch
