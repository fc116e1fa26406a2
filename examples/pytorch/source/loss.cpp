// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <exception>
#include <torch/csrc/stable/library.h>

#include "cpu_device.hpp"
#include "loss_operators.hpp"

/// For Python's fake implementations, which must know how large the workspace is without an operator's call.
/// type: of hidden states, 0 bfloat16, 1 float16, 2 float; is_stored: whether the classifier is not a matrix of it.
/// cuda_device: its number, or -1 for the CPU. Gives -1 for what no call takes.
extern "C" __attribute__((visibility("default"))) std::int64_t tessera_torch_loss_workspace_bytes(
    int cuda_device, int type, int is_stored, std::int64_t tokens, std::int64_t vocabulary, std::int64_t channels,
    std::int64_t reduction, std::int64_t ignore_index, std::int64_t shift, std::int64_t sequence, double softcap,
    double temperature, double smoothing, double z_factor, double e_threshold, double c_threshold,
    std::int64_t workspace_budget, int has_statistics, int is_tf32, int adds_gradients, int for_backward) noexcept {
  using namespace tessera_torch;
  using torch::headeronly::DeviceType;
  try {
    constexpr ScalarType types[] = {ScalarType::BFloat16, ScalarType::Half, ScalarType::Float};
    loss_option_arguments const options{reduction,        ignore_index,        shift,       sequence,    softcap,
                                        temperature,      smoothing,           z_factor,    e_threshold, c_threshold,
                                        workspace_budget, has_statistics != 0, is_tf32 != 0};
    loss_settings const settings = options.settings(loss_function, adds_gradients != 0);
    tessera::linear_loss_shape const shape{tokens, vocabulary, channels};
    if (cuda_device < 0) {
      return loss_workspace_bytes<cpu_device>({DeviceType::CPU}, types[type], is_stored != 0, shape, settings,
                                              for_backward != 0);
    }
    workspace_bytes_function const of_cuda = cuda_workspace_bytes();
    return of_cuda == nullptr ? -1
                              : of_cuda({DeviceType::CUDA, cuda_device}, types[type], is_stored != 0, shape, settings,
                                        for_backward != 0);
  } catch (std::exception const&) {
    return -1;
  }
}

STABLE_TORCH_LIBRARY_FRAGMENT(tessera_torch, m) {
  m.def(
      "loss_forward(Tensor e, Tensor c, Tensor targets, Tensor? bias, Tensor? weights, Tensor? class_weights, Tensor? "
      "c_scale, Tensor? classifier_gradient, Tensor? bias_gradient, int reduction, int ignore_index, int shift, int "
      "sequence, float softcap, float temperature, float smoothing, float z_factor, float e_threshold, float "
      "c_threshold, int workspace_budget, bool has_statistics, bool is_tf32, bool for_backward) -> (Tensor loss, "
      "Tensor log_sum_exp, Tensor log_probability, Tensor entropy, Tensor prediction, Tensor workspace)");
  m.def(
      "loss_backward(Tensor e, Tensor c, Tensor targets, Tensor? bias, Tensor? weights, Tensor? class_weights, "
      "Tensor? c_scale, int reduction, int ignore_index, int shift, int sequence, float softcap, float temperature, "
      "float smoothing, float z_factor, float e_threshold, float c_threshold, int workspace_budget, bool "
      "has_statistics, bool is_tf32, Tensor workspace, Tensor? by_loss, Tensor? by_log_sum_exp, Tensor? by_entropy, "
      "bool of_e, bool of_c, bool of_bias) -> (Tensor, Tensor, Tensor)");
  m.def(
      "loss_backward_into(Tensor e, Tensor c, Tensor targets, Tensor? bias, Tensor? weights, Tensor? class_weights, "
      "Tensor? c_scale, Tensor(a!)? classifier_gradient, Tensor(b!)? bias_gradient, int reduction, int ignore_index, "
      "int shift, int sequence, float softcap, float temperature, float smoothing, float z_factor, float e_threshold, "
      "float c_threshold, int workspace_budget, bool has_statistics, bool is_tf32, Tensor workspace, Tensor? by_loss, "
      "Tensor? by_log_sum_exp, Tensor? by_entropy, bool of_e, bool of_c, bool of_bias) -> (Tensor, Tensor, Tensor)");
}
STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CPU, m) {
  m.impl("loss_forward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::loss_forward<tessera_torch::cpu_device>>::call));
  m.impl("loss_backward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::loss_backward<tessera_torch::cpu_device>>::call));
  m.impl("loss_backward_into",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::loss_backward_into<tessera_torch::cpu_device>>::call));
}
