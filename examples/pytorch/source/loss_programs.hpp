// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Cut Cross-Entropy for a kind of device and a type of operands. Each is compiled by itself, since that takes long.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <tuple>

#include <tessera/cut_cross_entropy.hpp>

#include "loss.hpp"
#include "tensors.hpp"

namespace tessera_torch {

/// The bytes of a loss's workspace, where it begins at a multiple of the alignment. The host may move the memory of a
/// CPU's workspace between the passes, as hooks for saved tensors do: the last byte says where the bytes began.
template <class Device>
class loss_workspace {
 public:
  /// New memory.
  loss_workspace(torch::stable::Device const& device, std::int64_t bytes) : tensor(bytes_on(device, bytes)) {
    if constexpr (Device::is_host) {
      data_of<std::uint8_t>(tensor)[tensor.numel() - 1] = skipped();
    }
  }
  /// That of a forward pass.
  explicit loss_workspace(Tensor const& of_forward) : tensor(of_forward) {
    if constexpr (Device::is_host) {
      auto const began = data_of<std::uint8_t>(tensor)[tensor.numel() - 1];
      if (began != skipped()) {
        tensor = bytes_on(tensor.device(), tensor.numel() - tessera::workspace_plan::alignment);
        std::memcpy(aligned_bytes(tensor).data, data_of<std::byte>(of_forward) + began,
                    static_cast<std::size_t>(aligned_bytes(tensor).size()));
      }
    }
  }
  [[nodiscard]] tessera::array_view<std::byte> bytes() const { return aligned_bytes(tensor); }

  Tensor tensor;

 private:
  [[nodiscard]] std::uint8_t skipped() const {
    return static_cast<std::uint8_t>(aligned_bytes(tensor).data - data_of<std::byte>(tensor));
  }
};

/// Memory for the gradients that are wanted; the others have no elements, and no view.
template <class Device, class Operand>
struct loss_gradients {
  using value_type = typename tessera::gemm_operand<Operand>::value_type;

  Tensor of_e;
  Tensor of_c;
  Tensor of_bias;
  tessera::linear_loss_gradients<value_type> views;

  loss_gradients(Tensor const& e, Tensor const& c, std::optional<Tensor> const& bias,
                 loss_gradient_request const& wanted)
      : of_e(room_for(e, wanted.of_e)),
        of_c(room_for(c, wanted.of_c)),
        of_bias(bias.has_value() ? room_for(*bias, wanted.of_bias) : room_for(c, false)) {
    if (wanted.of_e) {
      views.hidden = writable<value_type, 2>(of_e);
    }
    if (wanted.of_c) {
      views.classifier = writable<value_type, 2>(of_c);
    }
    if (wanted.of_bias) {
      views.bias = writable<value_type>(of_bias);
    }
  }

 private:
  static Tensor room_for(Tensor const& tensor, bool is_wanted) {
    return is_wanted ? empty_as<value_type>(tensor) : empty_on(tensor.device(), {0}, type_of<value_type>);
  }
};

/// What the functions of loss_of share.
template <class Device, class Operand>
class loss_programs {
 public:
  using value_type = typename tessera::gemm_operand<Operand>::value_type;
  static constexpr char const* function = "linear_cross_entropy";

  template <class Use>
  static auto with_loss(loss_settings const& settings, Use const& use) {
    return settings.has_statistics ? use(tessera::cut_cross_entropy_of<Operand, tessera::loss_statistics>{})
                                   : use(tessera::cut_cross_entropy_of<Operand>{});
  }

  template <class Loss, class Executor>
  static tessera::workspace_plan plan_of(Executor const& exec, tessera::linear_loss_shape const& shape,
                                         loss_settings const& settings, bool for_backward) {
    return for_backward ? Loss::plan_backward(exec, shape, settings.options)
                        : Loss::plan_forward(exec, shape, settings.options);
  }

  template <class Loss>
  static loss_results forward_of(loss_tensors const& given, loss_settings const& settings, bool for_backward) {
    torch::stable::Device const device = device_of<Device>(given.e, {function, "hidden states"});
    auto const& exec = Device::executor(device);
    auto const in = inputs_of<Loss>(given, device);
    auto const plan = plan_of<Loss>(exec, shape_of(in), settings, for_backward);
    loss_workspace<Device> const space(device, plan.bytes());
    std::int64_t const tokens = in.hidden.extent(0);
    std::int64_t const statistics = settings.has_statistics ? tokens : 0;
    bool const is_reduced = settings.options.reduction != tessera::loss_reduction::none;
    Tensor const loss = is_reduced ? empty_on(device, {}, ScalarType::Float)  //
                                   : empty_on(device, {tokens}, ScalarType::Float);
    Tensor const log_sum_exp = empty_on(device, {tokens}, ScalarType::Float);
    Tensor const log_probability = empty_on(device, {tokens}, ScalarType::Float);
    Tensor const entropy = empty_on(device, {statistics}, ScalarType::Float);
    Tensor const prediction = empty_on(device, {statistics}, ScalarType::Int);
    tessera::linear_loss_outputs out{writable<float>(loss), writable<float>(log_sum_exp),
                                     writable<float>(log_probability)};
    if (settings.has_statistics) {
      out.entropy = writable<float>(entropy);
      out.prediction = writable<std::int32_t>(prediction);
    }
    Loss::forward(exec, in, settings.options, out, tessera::workspace(plan, space.bytes()));
    return {loss, log_sum_exp, log_probability, entropy, prediction, space.tensor};
  }

  template <class Loss>
  static std::tuple<Tensor, Tensor, Tensor> backward_of(loss_tensors const& given, loss_settings const& settings,
                                                        Tensor const& workspace, loss_gradient_request const& wanted) {
    torch::stable::Device const device = device_of<Device>(given.e, {function, "hidden states"});
    auto const& exec = Device::executor(device);
    auto const in = inputs_of<Loss>(given, device);
    auto const plan = plan_of<Loss>(exec, shape_of(in), settings, true);
    static_cast<void>(list_of<std::uint8_t>(workspace, device, {function, "bytes of the workspace"}));
    loss_workspace<Device> const space(workspace);
    loss_gradients<Device, Operand> const made(given.e, given.c, given.bias, wanted);
    Loss::backward(exec, in, settings.options, upstream_of(wanted, settings.options.reduction, device), made.views,
                   tessera::workspace(plan, space.bytes()));
    return {made.of_e, made.of_c, made.of_bias};
  }

  template <class Loss>
  static typename Loss::template inputs<std::int64_t> inputs_of(loss_tensors const& given,
                                                                torch::stable::Device const& device) {
    return {.hidden = view_of<value_type, 2>(given.e, device, {function, "hidden states"}),
            .classifier = view_of<value_type, 2>(given.c, device, {function, "rows of the classifier"}),
            .labels = view_of<std::int64_t, 1>(given.targets, device, {function, "labels"}),
            .bias = list_if_any<value_type>(given.bias, device, "biases"),
            .weights = list_if_any<float>(given.weights, device, "weights"),
            .class_weights = list_if_any<float>(given.class_weights, device, "weights of classes")};
  }
  template <class In>
  static tessera::linear_loss_shape shape_of(In const& in) {
    return {in.hidden.extent(0), in.classifier.extent(0), in.hidden.extent(1)};
  }

  template <class T>
  static tessera::array_view<T const> list_if_any(std::optional<Tensor> const& tensor,
                                                  torch::stable::Device const& device, char const* name) {
    return tensor.has_value() ? view_of<T, 1>(*tensor, device, {function, name}) : tessera::array_view<T const>{};
  }
  /// The gradients of the result by what a forward pass gave.
  static tessera::loss_upstream upstream_of(loss_gradient_request const& wanted, tessera::loss_reduction reduction,
                                            torch::stable::Device const& device) {
    bool const is_reduced = reduction != tessera::loss_reduction::none;
    return {
        is_reduced ? number_in(wanted.by_loss, device) : list_if_any<float>(wanted.by_loss, device, "upstream losses"),
        list_if_any<float>(wanted.by_log_sum_exp, device, "upstream log-sum-exps"),
        list_if_any<float>(wanted.by_entropy, device, "upstream entropies")};
  }
  /// A tensor of one number.
  static tessera::array_view<float const> number_in(std::optional<Tensor> const& tensor,
                                                    torch::stable::Device const& device) {
    return tensor.has_value() ? list_of<float>(*tensor, device, {function, "upstream losses"})
                              : tessera::array_view<float const>{};
  }
};

template <class Device, class Operand>
loss_results loss_of<Device, Operand>::forward(loss_tensors const& given, loss_settings const& settings,
                                               bool for_backward) {
  using programs = loss_programs<Device, Operand>;
  return programs::with_loss(
      settings, [&]<class Loss>(Loss) { return programs::template forward_of<Loss>(given, settings, for_backward); });
}

template <class Device, class Operand>
std::tuple<Tensor, Tensor, Tensor> loss_of<Device, Operand>::backward(loss_tensors const& given,
                                                                      loss_settings const& settings,
                                                                      Tensor const& workspace,
                                                                      loss_gradient_request const& wanted) {
  using programs = loss_programs<Device, Operand>;
  return programs::with_loss(settings, [&]<class Loss>(Loss) {
    return programs::template backward_of<Loss>(given, settings, workspace, wanted);
  });
}

template <class Device, class Operand>
std::int64_t loss_of<Device, Operand>::workspace_bytes(torch::stable::Device const& device,
                                                       tessera::linear_loss_shape const& shape,
                                                       loss_settings const& settings, bool for_backward) {
  using programs = loss_programs<Device, Operand>;
  return programs::with_loss(settings, [&]<class Loss>(Loss) {
    return programs::template plan_of<Loss>(Device::executor(device), shape, settings, for_backward).bytes() +
           tessera::workspace_plan::alignment;
  });
}

}  // namespace tessera_torch
