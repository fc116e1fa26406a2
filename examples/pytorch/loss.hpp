// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Cut Cross-Entropy for tensors. tensors.hpp describes a Device.
#pragma once

#include <tuple>

#include <tessera/cut_cross_entropy.hpp>

#include "backend.hpp"
#include "tensors.hpp"

namespace tessera_torch {

template <class Device>
class loss_on final : public loss_backend {
 public:
  std::tuple<torch::Tensor, torch::Tensor> forward(torch::Tensor const& hidden, torch::Tensor const& classifier,
                                                   torch::Tensor const& labels, std::int64_t ignore_index, bool exact,
                                                   bool for_backward) override {
    return with_loss(exact, [&]<class Loss>(Loss) {
      auto const& exec = Device::executor(hidden.device());
      auto const options = loss_options(ignore_index);
      auto const in = loss_inputs<Loss>(hidden, classifier, labels);
      auto const shape = loss_shape(hidden, classifier);
      auto const plan =
          for_backward ? Loss::template plan_backward<bfloat16>(exec, shape, options) : Loss::plan_forward(exec, shape);
      torch::Tensor const space = bytes_on(hidden.device(), plan.bytes());
      torch::Tensor loss = torch::empty({1}, hidden.options().dtype(torch::kFloat32));
      Loss::forward(exec, in, options, {.loss = writable<float>(loss)}, tessera::workspace(plan, aligned_bytes(space)));
      return std::tuple(loss, space);
    });
  }

  std::tuple<torch::Tensor, torch::Tensor> backward(torch::Tensor const& hidden, torch::Tensor const& classifier,
                                                    torch::Tensor const& labels, std::int64_t ignore_index, bool exact,
                                                    torch::Tensor const& space, torch::Tensor const& upstream,
                                                    wanted_gradients wanted) override {
    return with_loss(exact, [&]<class Loss>(Loss) {
      auto const& exec = Device::executor(hidden.device());
      auto const options = loss_options(ignore_index);
      auto const plan = Loss::template plan_backward<bfloat16>(exec, loss_shape(hidden, classifier), options);
      torch::Tensor const of_hidden = room_for(hidden, wanted.hidden);
      torch::Tensor const of_classifier = room_for(classifier, wanted.classifier);
      Loss::backward(exec, loss_inputs<Loss>(hidden, classifier, labels), options,
                     {.loss = list_of<float>(upstream, hidden.device(), {function, "upstream gradients"})},
                     tessera::linear_loss_gradients<bfloat16>{view_if_any(of_hidden), view_if_any(of_classifier)},
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
  /// Memory for a gradient; undefined if it is not wanted.
  static torch::Tensor room_for(torch::Tensor const& tensor, bool is_wanted) {
    return is_wanted ? torch::empty(tensor.sizes(), tensor.options()) : torch::Tensor();
  }
  static tessera::matrix_view<bfloat16> view_if_any(torch::Tensor const& tensor) {
    return tensor.defined() ? writable<bfloat16, 2>(tensor) : tessera::matrix_view<bfloat16>{};
  }
  static tessera::linear_loss_options loss_options(std::int64_t ignore_index) { return {.ignore_index = ignore_index}; }
  static tessera::linear_loss_shape loss_shape(torch::Tensor const& hidden, torch::Tensor const& classifier) {
    return {hidden.size(0), classifier.size(0), hidden.size(1)};
  }
  template <class Loss>
  static typename Loss::template inputs<std::int64_t> loss_inputs(torch::Tensor const& hidden,
                                                                  torch::Tensor const& classifier,
                                                                  torch::Tensor const& labels) {
    torch::Device const device = hidden.device();
    return {view_of<bfloat16, 2>(hidden, device, {function, "hidden states"}),
            view_of<bfloat16, 2>(classifier, device, {function, "rows of the classifier"}),
            view_of<std::int64_t, 1>(labels, device, {function, "labels"})};
  }
};

}  // namespace tessera_torch
