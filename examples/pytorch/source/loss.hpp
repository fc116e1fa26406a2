// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Cut Cross-Entropy for tensors. tensors.hpp describes a Device.
#pragma once

#include <cstdint>
#include <tuple>

#include <tessera/cut_cross_entropy.hpp>

#include "tensors.hpp"

namespace tessera_torch {

template <class Device>
class loss_on {
 public:
  /// The loss and the workspace. backward() needs the workspace of a forward pass with `for_backward`, which is larger.
  static std::tuple<Tensor, Tensor> forward(Tensor hidden, Tensor classifier, Tensor labels, std::int64_t ignore_index,
                                            bool exact, bool for_backward) {
    return with_loss(exact, [&]<class Loss>(Loss) {
      torch::stable::Device const device = device_of<Device>(hidden, {function, "hidden states"});
      auto const& exec = Device::executor(device);
      auto const options = loss_options(ignore_index);
      auto const in = loss_inputs<Loss>(hidden, classifier, labels, device);
      auto const shape = loss_shape(hidden, classifier);
      auto const plan =
          for_backward ? Loss::template plan_backward<bfloat16>(exec, shape, options) : Loss::plan_forward(exec, shape);
      Tensor const space = bytes_on(device, plan.bytes());
      Tensor loss = empty_on(device, {}, ScalarType::Float);
      Loss::forward(exec, in, options, {.loss = writable<float>(loss)}, tessera::workspace(plan, aligned_bytes(space)));
      return std::tuple(loss, space);
    });
  }

  /// The gradients. Those that are not wanted have no elements, and are not computed.
  static std::tuple<Tensor, Tensor> backward(Tensor hidden, Tensor classifier, Tensor labels, std::int64_t ignore_index,
                                             bool exact, Tensor space, Tensor upstream, bool wants_hidden,
                                             bool wants_classifier) {
    return with_loss(exact, [&]<class Loss>(Loss) {
      torch::stable::Device const device = device_of<Device>(hidden, {function, "hidden states"});
      auto const& exec = Device::executor(device);
      auto const options = loss_options(ignore_index);
      auto const plan = Loss::template plan_backward<bfloat16>(exec, loss_shape(hidden, classifier), options);
      Tensor const of_hidden = room_for(hidden, wants_hidden);
      Tensor const of_classifier = room_for(classifier, wants_classifier);
      Loss::backward(exec, loss_inputs<Loss>(hidden, classifier, labels, device), options,
                     {.loss = list_of<float>(upstream, device, {function, "upstream gradients"})},
                     tessera::linear_loss_gradients<bfloat16>{view_if(of_hidden, wants_hidden),
                                                              view_if(of_classifier, wants_classifier)},
                     tessera::workspace(plan, aligned_bytes(space)));
      return std::tuple(of_hidden, of_classifier);
    });
  }

 private:
  static constexpr char const* function = "linear_cross_entropy";

  template <class Use>
  static auto with_loss(bool exact, Use const& use) {
    return exact ? use(tessera::exact_cross_entropy{}) : use(tessera::cut_cross_entropy{});
  }
  /// Memory for a gradient.
  static Tensor room_for(Tensor const& tensor, bool is_wanted) {
    return is_wanted ? empty_as<bfloat16>(tensor) : empty_on(tensor.device(), {0}, ScalarType::BFloat16);
  }
  static tessera::matrix_view<bfloat16> view_if(Tensor const& tensor, bool is_wanted) {
    return is_wanted ? writable<bfloat16, 2>(tensor) : tessera::matrix_view<bfloat16>{};
  }
  static tessera::linear_loss_options loss_options(std::int64_t ignore_index) { return {.ignore_index = ignore_index}; }
  static tessera::linear_loss_shape loss_shape(Tensor const& hidden, Tensor const& classifier) {
    return {hidden.size(0), classifier.size(0), hidden.size(1)};
  }
  template <class Loss>
  static typename Loss::template inputs<std::int64_t> loss_inputs(Tensor const& hidden, Tensor const& classifier,
                                                                  Tensor const& labels,
                                                                  torch::stable::Device const& device) {
    return {view_of<bfloat16, 2>(hidden, device, {function, "hidden states"}),
            view_of<bfloat16, 2>(classifier, device, {function, "rows of the classifier"}),
            view_of<std::int64_t, 1>(labels, device, {function, "labels"})};
  }
};

}  // namespace tessera_torch
