// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Cut Cross-Entropy for a kind of device and a type of operands. Each is compiled by itself, since that takes long.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <tuple>
#include <type_traits>

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
  /// That of a forward pass. `function`: how errors call what gets it.
  loss_workspace(char const* function, Tensor const& of_forward, torch::stable::Device const& device)
      : tensor(of_forward) {
    static_cast<void>(list_of<std::uint8_t>(of_forward, device, {function, "bytes of the workspace"}));
    if constexpr (Device::is_host) {
      auto const began = data_of<std::uint8_t>(tensor)[tensor.numel() - 1];
      if (began != skipped()) {
        tensor = bytes_on(tensor.device(), tensor.numel() - tessera::workspace_plan::alignment);
        std::memcpy(aligned_bytes(tensor).data, data_of<std::byte>(of_forward) + began,
                    static_cast<std::size_t>(aligned_bytes(tensor).size()));
      }
    }
  }
  /// A caller's new memory of bytes_for() bytes.
  static loss_workspace begun(char const* function, Tensor const& memory, torch::stable::Device const& device) {
    static_cast<void>(list_of<std::uint8_t>(memory, device, {function, "bytes of the workspace"}));
    tessera::check<tessera::shape_error>(memory.numel() >= tessera::workspace_plan::alignment, function,
                                         ": the workspace has ", memory.numel(), " bytes but must have at least ",
                                         tessera::workspace_plan::alignment);
    loss_workspace made(memory);
    if constexpr (Device::is_host) {
      data_of<std::uint8_t>(memory)[memory.numel() - 1] = made.skipped();
    }
    return made;
  }
  static std::int64_t bytes_for(tessera::workspace_plan const& plan) {
    return plan.bytes() + tessera::workspace_plan::alignment;
  }
  [[nodiscard]] tessera::array_view<std::byte> bytes() const { return aligned_bytes(tensor); }
  /// All of it for a call that checks what it needs.
  [[nodiscard]] tessera::workspace room() const {
    auto const all = bytes();
    tessera::workspace_plan plan("the workspace", tessera::workspace_plan::record::sizes);
    plan.add<std::byte>("all", all.size());
    return {plan, tessera::array_view<std::byte>(all.data, plan.bytes())};
  }

  Tensor tensor;

 private:
  explicit loss_workspace(Tensor const& memory) : tensor(memory) {}
  [[nodiscard]] std::uint8_t skipped() const {
    return static_cast<std::uint8_t>(aligned_bytes(tensor).data - data_of<std::byte>(tensor));
  }
};

/// The elements of a user's list, or null.
template <class T>
tessera::array_view<T const> list_if_any(std::optional<Tensor> const& tensor, torch::stable::Device const& device,
                                         argument const& which) {
  return tensor.has_value() ? view_of<T, 1>(*tensor, device, which) : tessera::array_view<T const>{};
}

/// Memory for losses: one for all tokens, or one for each.
inline Tensor room_for_losses(torch::stable::Device const& device, tessera::loss_reduction reduction,
                              std::int64_t tokens) {
  return reduction != tessera::loss_reduction::none ? empty_on(device, {}, ScalarType::Float)
                                                    : empty_on(device, {tokens}, ScalarType::Float);
}

/// The workspace of both passes of a Method with gradients of a type, or of its forward pass alone.
template <class Method, class Gradient>
tessera::workspace_plan plan_of(auto const& exec, auto const& shape, auto const& options, bool for_backward) {
  return for_backward ? Method::template plan_backward<Gradient>(exec, shape, options)
                      : Method::plan_forward(exec, shape, options);
}

/// The same over ranks.
template <class Method, class Gradient>
tessera::workspace_plan rank_plan_of(auto const& exec, std::int64_t ranks, auto const& shape, auto const& options,
                                     bool for_backward) {
  return for_backward ? Method::template plan_backward<Gradient>(exec, ranks, shape, options)
                      : Method::plan_forward(exec, ranks, shape, options);
}

/// The gradients of the result by what a forward pass gave.
inline tessera::loss_upstream upstream_of(char const* function, loss_gradient_request const& wanted,
                                          tessera::loss_reduction reduction, torch::stable::Device const& device) {
  argument const losses{function, "upstream losses"};
  bool const is_number = wanted.by_loss.has_value() && reduction != tessera::loss_reduction::none;
  return {
      is_number ? list_of<float>(*wanted.by_loss, device, losses) : list_if_any<float>(wanted.by_loss, device, losses),
      list_if_any<float>(wanted.by_log_sum_exp, device, {function, "upstream log-sum-exps"}),
      list_if_any<float>(wanted.by_entropy, device, {function, "upstream entropies"})};
}

inline constexpr char const* sums_of_c = "sums of the classifier's gradients";
inline constexpr char const* sums_of_bias = "sums of the bias's gradients";

/// A user's tensor that gradients are added to, in the shape of another tensor of the user's.
template <int Rank>
tessera::view<float, Rank> sum_of(Tensor const& sums, Tensor const& like, argument const& which) {
  static_cast<void>(view_of<float, Rank>(sums, like.device(), which));
  for (int dimension = 0; dimension < Rank; ++dimension) {
    tessera::check<tessera::shape_error>(sums.size(dimension) == like.size(dimension), which.function, ": the ",
                                         which.name, " have ", sums.size(dimension), " elements in dimension ",
                                         dimension, " but must have ", like.size(dimension));
  }
  auto const view = writable<float, Rank>(sums);
  tessera::check_apart(which.function, which.name, view);
  return view;
}

/// Memory for the gradients that are wanted; the others, and those that are added to what there is, have no elements.
template <class Gradient>
struct loss_gradients {
  Tensor of_e;
  Tensor of_c;
  Tensor of_bias;
  tessera::linear_loss_gradients<Gradient> views;

  loss_gradients(char const* function, Tensor const& e, Tensor const& c, std::optional<Tensor> const& bias,
                 loss_gradient_request const& wanted)
      : of_e(room_for(e, wanted.of_e)),
        of_c(room_for(c, wanted.of_c && !wanted.sums.of_c.has_value())),
        of_bias(room_for(bias.value_or(c), wanted.of_bias && !wanted.sums.of_bias.has_value())) {
    check_has_gradient(function, c, wanted.of_c);
    if (wanted.of_e) {
      views.hidden = writable<Gradient, 2>(of_e);
    }
    if (wanted.of_c && !wanted.sums.of_c.has_value()) {
      views.classifier = writable<Gradient, 2>(of_c);
    }
    if (wanted.of_bias && !wanted.sums.of_bias.has_value()) {
      views.bias = writable<Gradient>(of_bias);
    }
    if constexpr (std::is_same_v<Gradient, float>) {  // others cannot be added to
      if (wanted.of_c && wanted.sums.of_c.has_value()) {
        views.classifier = sum_of<2>(*wanted.sums.of_c, c, {function, sums_of_c});
        views.accumulate_classifier = true;
      }
      if (wanted.of_bias && wanted.sums.of_bias.has_value()) {
        views.bias = sum_of<1>(*wanted.sums.of_bias, bias.value(), {function, sums_of_bias});
        views.accumulate_bias = true;
      }
    }
  }

 private:
  static Tensor room_for(Tensor const& tensor, bool is_wanted) {
    return is_wanted ? empty_as<Gradient>(tensor) : empty_on(tensor.device(), {0}, type_of<Gradient>);
  }
};

/// Memory for what a forward pass gives; statistics that were not asked for have no elements.
struct loss_outputs {
  Tensor loss;
  Tensor log_sum_exp;
  Tensor log_probability;
  Tensor entropy;
  Tensor prediction;

  loss_outputs(torch::stable::Device const& device, loss_settings const& settings, std::int64_t tokens)
      : loss(room_for_losses(device, settings.options.reduction, tokens)),
        log_sum_exp(empty_on(device, {tokens}, ScalarType::Float)),
        log_probability(empty_on(device, {tokens}, ScalarType::Float)),
        entropy(empty_on(device, {settings.has_statistics ? tokens : 0}, ScalarType::Float)),
        prediction(empty_on(device, {settings.has_statistics ? tokens : 0}, ScalarType::Int)),
        has_statistics_(settings.has_statistics) {}
  [[nodiscard]] tessera::linear_loss_outputs views() const {
    tessera::linear_loss_outputs out{writable<float>(loss), writable<float>(log_sum_exp),
                                     writable<float>(log_probability)};
    if (has_statistics_) {
      out.entropy = writable<float>(entropy);
      out.prediction = writable<std::int32_t>(prediction);
    }
    return out;
  }

 private:
  bool has_statistics_;
};

/// What the functions of loss_of share.
template <class Device, class Operand>
class loss_programs {
 public:
  using classifiers = classifiers_of<Operand>;
  using value_type = typename classifiers::value_type;
  static constexpr char const* function = "linear_cross_entropy";

  /// Calls `use` with the loss and a number of the type of its gradients.
  template <class Use>
  static auto with_loss(loss_settings const& settings, Use const& use) {
    using operand = typename classifiers::operand;
    using with_statistics = tessera::cut_cross_entropy_of<operand, tessera::loss_statistics>;
    return settings.has_statistics
               ? with_gradient<typename classifiers::template method<with_statistics>>(settings, use)
               : with_gradient<typename classifiers::template method<tessera::cut_cross_entropy_of<operand>>>(settings,
                                                                                                              use);
  }

  template <class Loss, class Gradient>
  static loss_results forward_of(loss_tensors const& given, loss_settings const& settings, gradient_sums const& sums,
                                 bool for_backward) {
    torch::stable::Device const device = device_of<Device>(given.e, {function, "hidden states"});
    auto const& exec = Device::executor(device);
    auto const in = inputs_of<Loss>(given, device);
    check_sums(given, sums);
    auto const plan = plan_of<Loss, Gradient>(exec, shape_of(in), settings.options, for_backward);
    loss_workspace<Device> const space(device, plan.bytes());
    loss_outputs const made(device, settings, in.hidden.extent(0));
    Loss::forward(exec, in, settings.options, made.views(), tessera::workspace(plan, space.bytes()));
    return {made.loss, made.log_sum_exp, made.log_probability, made.entropy, made.prediction, space.tensor};
  }

  template <class Loss, class Gradient>
  static std::tuple<Tensor, Tensor, Tensor> backward_of(loss_tensors const& given, loss_settings const& settings,
                                                        Tensor const& workspace, loss_gradient_request const& wanted) {
    torch::stable::Device const device = device_of<Device>(given.e, {function, "hidden states"});
    auto const& exec = Device::executor(device);
    auto const in = inputs_of<Loss>(given, device);
    auto const plan = plan_of<Loss, Gradient>(exec, shape_of(in), settings.options, true);
    loss_workspace<Device> const space(function, workspace, device);
    loss_gradients<Gradient> const made(function, given.e, given.c, given.bias, wanted);
    Loss::backward(exec, in, settings.options, upstream_of(function, wanted, settings.options.reduction, device),
                   made.views, tessera::workspace(plan, space.bytes()));
    return {made.of_e, made.of_c, made.of_bias};
  }

  template <class Loss>
  static typename Loss::template inputs<std::int64_t> inputs_of(loss_tensors const& given,
                                                                torch::stable::Device const& device) {
    return {.hidden = view_of<value_type, 2>(given.e, device, {function, "hidden states"}),
            .classifier = classifiers::rows_of(given.classifier(), device, {function, "rows of the classifier"}),
            .labels = view_of<std::int64_t, 1>(given.targets, device, {function, "labels"}),
            .bias = list_if_any<value_type>(given.bias, device, {function, "biases"}),
            .weights = list_if_any<float>(given.weights, device, {function, "weights"}),
            .class_weights = list_if_any<float>(given.class_weights, device, {function, "weights of classes"})};
  }
  template <class In>
  static tessera::linear_loss_shape shape_of(In const& in) {
    return {in.hidden.extent(0), classifiers::count_of(in.classifier), in.hidden.extent(1)};
  }

  /// Throws where gradients cannot be added to tensors, before anything is enqueued.
  static void check_sums(loss_tensors const& given, gradient_sums const& sums) {
    if (sums.of_c.has_value()) {
      static_cast<void>(sum_of<2>(*sums.of_c, given.c, {function, sums_of_c}));
    }
    if (sums.of_bias.has_value()) {
      tessera::check<tessera::value_error>(given.bias.has_value(), function,
                                           ": there are sums of the bias's gradients but no bias");
      static_cast<void>(sum_of<1>(*sums.of_bias, *given.bias, {function, sums_of_bias}));
    }
  }

 private:
  template <class Loss, class Use>
  static auto with_gradient(loss_settings const& settings, Use const& use) {
    if constexpr (std::is_same_v<typename classifiers::gradient_type, float>) {
      return use(Loss{}, float{});
    } else {
      return settings.adds_gradients ? use(Loss{}, float{}) : use(Loss{}, value_type{});
    }
  }
};

template <class Device, class Operand>
loss_results loss_of<Device, Operand>::forward(loss_tensors const& given, loss_settings const& settings,
                                               gradient_sums const& sums, bool for_backward) {
  using programs = loss_programs<Device, Operand>;
  return programs::with_loss(settings, [&]<class Loss, class Gradient>(Loss, Gradient) {
    return programs::template forward_of<Loss, Gradient>(given, settings, sums, for_backward);
  });
}

template <class Device, class Operand>
std::tuple<Tensor, Tensor, Tensor> loss_of<Device, Operand>::backward(loss_tensors const& given,
                                                                      loss_settings const& settings,
                                                                      Tensor const& workspace,
                                                                      loss_gradient_request const& wanted) {
  using programs = loss_programs<Device, Operand>;
  return programs::with_loss(settings, [&]<class Loss, class Gradient>(Loss, Gradient) {
    return programs::template backward_of<Loss, Gradient>(given, settings, workspace, wanted);
  });
}

template <class Device, class Operand>
std::int64_t loss_of<Device, Operand>::workspace_bytes(torch::stable::Device const& device,
                                                       tessera::linear_loss_shape const& shape,
                                                       loss_settings const& settings, bool for_backward) {
  return loss_programs<Device, Operand>::with_loss(settings, [&]<class Loss, class Gradient>(Loss, Gradient) {
    return plan_of<Loss, Gradient>(Device::executor(device), shape, settings.options, for_backward).bytes() +
           tessera::workspace_plan::alignment;
  });
}

}  // namespace tessera_torch
