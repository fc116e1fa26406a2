// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <exception>
#include <torch/csrc/stable/library.h>

#include "cpu_device.hpp"
#include "loss_operators.hpp"

namespace tessera_torch {

/// A call of which Python's fake implementation must know how large its workspace is. The members are those of
/// _WorkspaceRequest in _loss_operators.py, in the same order; flags are 0 or 1.
struct workspace_request {
  std::int64_t cuda_device;  ///< its number, or -1 for the CPU
  std::int64_t type;         ///< of hidden states: 0 bfloat16, 1 float16, 2 float
  std::int64_t is_stored;    ///< whether the classifier is not a matrix of this type
  std::int64_t tokens;
  std::int64_t vocabulary;
  std::int64_t channels;
  std::int64_t reduction;  // the options, in the order of the operators' schema
  std::int64_t ignore_index;
  std::int64_t shift;
  std::int64_t sequence;
  cross_entropy_option_arguments shared;
  std::int64_t has_statistics;
  std::int64_t is_tf32;
  std::int64_t adds_gradients;
  std::int64_t for_backward;

  [[nodiscard]] loss_settings settings() const {
    loss_option_arguments const options{reduction, ignore_index,        shift,       sequence,
                                        shared,    has_statistics != 0, is_tf32 != 0};
    return options.settings(loss_function, adds_gradients != 0);
  }
};

}  // namespace tessera_torch

/// Gives -1 for what no call takes.
extern "C" __attribute__((visibility("default"))) std::int64_t tessera_torch_loss_workspace_bytes(
    tessera_torch::workspace_request const* request) noexcept {
  using namespace tessera_torch;
  using torch::headeronly::DeviceType;
  try {
    constexpr ScalarType types[] = {ScalarType::BFloat16, ScalarType::Half, ScalarType::Float};
    workspace_request const& of = *request;
    ScalarType const type = types[of.type];
    tessera::linear_loss_shape const shape{of.tokens, of.vocabulary, of.channels};
    if (of.cuda_device < 0) {
      return loss_workspace_bytes<cpu_device>({DeviceType::CPU}, type, of.is_stored != 0, shape, of.settings(),
                                              of.for_backward != 0);
    }
    torch::stable::Device const device{DeviceType::CUDA, static_cast<int>(of.cuda_device)};
    workspace_bytes_function const of_cuda = cuda_workspace_bytes();
    return of_cuda == nullptr ? -1
                              : of_cuda(device, type, of.is_stored != 0, shape, of.settings(), of.for_backward != 0);
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
