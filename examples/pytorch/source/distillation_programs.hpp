// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The functions of distillation.hpp. Each type is compiled by itself, since that takes long.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include <tessera/algorithm/loss/linear_distillation.hpp>
#include <tessera/map/forward_kl.hpp>
#include <tessera/map/jensen_shannon.hpp>
#include <tessera/map/reverse_kl.hpp>

#include "distillation.hpp"
#include "loss_programs.hpp"

namespace tessera_torch {

/// What the functions of distillation_of share.
template <class Device, class Operand>
struct distillation_programs {
  static constexpr char const* function = "linear_distillation";
  using classifiers = classifiers_of<Operand>;
  using value_type = typename classifiers::value_type;
  using gradient_type = typename classifiers::gradient_type;
  template <class D>
  using method = typename classifiers::template method_with_teacher<
      tessera::linear_distillation<typename classifiers::operand, D>>;

  /// Calls `use` with the divergence.
  template <class Use>
  static auto with_divergence(distillation_settings const& settings, Use const& use) {
    switch (settings.divergence) {
      case 0:
        return use(tessera::forward_kl{});
      case 1:
        return use(tessera::reverse_kl{});
      default:
        tessera::check<tessera::value_error>(settings.divergence == 2, function, ": the divergence is number ",
                                             settings.divergence, " but numbers go from 0 to ", 2);
        return use(tessera::jensen_shannon{static_cast<float>(settings.beta)});
    }
  }
  template <class D>
  static typename method<D>::inputs inputs_of(distillation_tensors const& given, D const& divergence,
                                              torch::stable::Device const& device) {
    return {view_of<value_type, 2>(given.e, device, {function, "hidden states"}),
            classifiers::rows_of(given.classifier(), device, {function, "rows of the classifier"}),
            view_of<value_type, 2>(given.teacher_e, device, {function, "teacher's hidden states"}),
            classifiers::rows_of(given.teacher_classifier(), device, {function, "rows of the teacher's classifier"}),
            list_if_any<float>(given.weights, device, {function, "weights"}),
            divergence};
  }
  template <class In>
  static tessera::distillation_shape shape_of(In const& in) {
    return {in.hidden.extent(0), classifiers::count_of(in.classifier), in.hidden.extent(1),
            in.teacher_hidden.extent(1)};
  }
};

template <class Device, class Operand>
std::tuple<Tensor, Tensor> distillation_of<Device, Operand>::forward(distillation_tensors const& given,
                                                                     distillation_settings const& settings,
                                                                     bool for_backward) {
  using shared = distillation_programs<Device, Operand>;
  torch::stable::Device const device = device_of<Device>(given.e, {shared::function, "hidden states"});
  return shared::with_divergence(settings, [&]<class D>(D const& divergence) {
    using method = typename shared::template method<D>;
    auto const& exec = Device::executor(device);
    auto const in = shared::inputs_of(given, divergence, device);
    auto const plan =
        plan_of<method, typename shared::gradient_type>(exec, shared::shape_of(in), settings.options, for_backward);
    loss_workspace<Device> const space(device, plan.bytes());
    Tensor const loss = room_for_losses(device, settings.options.reduction, in.hidden.extent(0));
    method::forward(exec, in, settings.options, {writable<float>(loss)}, tessera::workspace(plan, space.bytes()));
    return std::tuple(loss, space.tensor);
  });
}

template <class Device, class Operand>
std::tuple<Tensor, Tensor> distillation_of<Device, Operand>::backward(distillation_tensors const& given,
                                                                      distillation_settings const& settings,
                                                                      Tensor const& workspace,
                                                                      loss_gradient_request const& wanted) {
  using shared = distillation_programs<Device, Operand>;
  torch::stable::Device const device = device_of<Device>(given.e, {shared::function, "hidden states"});
  return shared::with_divergence(settings, [&]<class D>(D const& divergence) {
    using method = typename shared::template method<D>;
    auto const& exec = Device::executor(device);
    auto const in = shared::inputs_of(given, divergence, device);
    using gradient_type = typename shared::gradient_type;
    auto const plan = plan_of<method, gradient_type>(exec, shared::shape_of(in), settings.options, true);
    loss_workspace<Device> const space(shared::function, workspace, device);
    loss_gradients<gradient_type> const made(shared::function, given.e, given.c, std::nullopt, wanted);
    auto const upstream = upstream_of(shared::function, wanted, settings.options.reduction, device);
    method::backward(exec, in, settings.options, upstream.loss, made.views, tessera::workspace(plan, space.bytes()));
    return std::tuple(made.of_e, made.of_c);
  });
}

}  // namespace tessera_torch
