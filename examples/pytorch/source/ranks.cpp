// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <torch/csrc/stable/library.h>

#include "cpu_device.hpp"
#include "ranks_operators.hpp"

STABLE_TORCH_LIBRARY_FRAGMENT(tessera_torch, m) {
  m.def(
      "rank_loss_bytes(Tensor e, Tensor c, Tensor targets, Tensor? bias, Tensor? weights, Tensor? class_weights, "
      "Tensor? c_scale, Tensor? classifier_gradient, Tensor? bias_gradient, int reduction, int ignore_index, int "
      "shift, int sequence, float softcap, float temperature, float smoothing, float z_factor, float e_threshold, "
      "float c_threshold, int workspace_budget, bool has_statistics, bool is_tf32, int ranks, bool for_backward) -> "
      "int");
  m.def(
      "rank_loss_forward(Tensor e, Tensor c, Tensor targets, Tensor? bias, Tensor? weights, Tensor? class_weights, "
      "Tensor? c_scale, Tensor? classifier_gradient, Tensor? bias_gradient, int reduction, int ignore_index, int "
      "shift, int sequence, float softcap, float temperature, float smoothing, float z_factor, float e_threshold, "
      "float c_threshold, int workspace_budget, bool has_statistics, bool is_tf32, Tensor(a!) workspace, int rank, "
      "int ranks, int first, int vocabulary, int gather) -> (Tensor loss, Tensor log_sum_exp, Tensor log_probability, "
      "Tensor entropy, Tensor prediction)");
  m.def(
      "rank_loss_backward(Tensor e, Tensor c, Tensor targets, Tensor? bias, Tensor? weights, Tensor? class_weights, "
      "Tensor? c_scale, Tensor(a!)? classifier_gradient, Tensor(b!)? bias_gradient, int reduction, int ignore_index, "
      "int shift, int sequence, float softcap, float temperature, float smoothing, float z_factor, float e_threshold, "
      "float c_threshold, int workspace_budget, bool has_statistics, bool is_tf32, Tensor workspace, int rank, int "
      "ranks, int first, int vocabulary, Tensor? by_loss, Tensor? by_log_sum_exp, Tensor? by_entropy, bool of_e, bool "
      "of_c, bool of_bias) -> (Tensor, Tensor, Tensor)");
  m.def(
      "rank_soft_target_bytes(Tensor e, Tensor c, Tensor entries, Tensor entry_weights, Tensor? bias, Tensor? "
      "weights, Tensor? c_scale, int reduction, float softcap, float temperature, float smoothing, float z_factor, "
      "float e_threshold, float c_threshold, int workspace_budget, bool is_tf32, int ranks, bool for_backward) -> int");
  m.def(
      "rank_soft_target_forward(Tensor e, Tensor c, Tensor entries, Tensor entry_weights, Tensor? bias, Tensor? "
      "weights, Tensor? c_scale, int reduction, float softcap, float temperature, float smoothing, float z_factor, "
      "float e_threshold, float c_threshold, int workspace_budget, bool is_tf32, Tensor(a!) workspace, int rank, int "
      "ranks, int first, int vocabulary, int gather) -> (Tensor loss, Tensor log_sum_exp)");
  m.def(
      "rank_soft_target_backward(Tensor e, Tensor c, Tensor entries, Tensor entry_weights, Tensor? bias, Tensor? "
      "weights, Tensor? c_scale, int reduction, float softcap, float temperature, float smoothing, float z_factor, "
      "float e_threshold, float c_threshold, int workspace_budget, bool is_tf32, Tensor workspace, int rank, int "
      "ranks, int first, int vocabulary, Tensor? by_loss, Tensor? by_log_sum_exp, bool of_e, bool of_c, bool of_bias) "
      "-> (Tensor, Tensor, Tensor)");
  m.def(
      "rank_distillation_bytes(Tensor e, Tensor c, Tensor teacher_e, Tensor teacher_c, Tensor? weights, Tensor? "
      "c_scale, Tensor? teacher_c_scale, int divergence, float beta, int reduction, float temperature, float softcap, "
      "float teacher_softcap, int workspace_budget, bool is_tf32, int ranks, bool for_backward) -> int");
  m.def(
      "rank_distillation_forward(Tensor e, Tensor c, Tensor teacher_e, Tensor teacher_c, Tensor? weights, Tensor? "
      "c_scale, Tensor? teacher_c_scale, int divergence, float beta, int reduction, float temperature, float softcap, "
      "float teacher_softcap, int workspace_budget, bool is_tf32, Tensor(a!) workspace, int rank, int ranks, int "
      "first, int vocabulary, int gather) -> Tensor");
  m.def(
      "rank_distillation_backward(Tensor e, Tensor c, Tensor teacher_e, Tensor teacher_c, Tensor? weights, Tensor? "
      "c_scale, Tensor? teacher_c_scale, int divergence, float beta, int reduction, float temperature, float softcap, "
      "float teacher_softcap, int workspace_budget, bool is_tf32, Tensor workspace, int rank, int ranks, int first, "
      "int vocabulary, Tensor? by_loss, bool of_e, bool of_c) -> (Tensor, Tensor)");
  m.def(
      "rank_chosen_bytes(Tensor e, Tensor c, Tensor entries, Tensor log_sum_exp, Tensor? bias, Tensor? c_scale, float "
      "softcap, float temperature, int ranks, bool for_backward) -> int");
  m.def(
      "rank_chosen_forward(Tensor e, Tensor c, Tensor entries, Tensor log_sum_exp, Tensor? bias, Tensor? c_scale, "
      "float softcap, float temperature, Tensor(a!) workspace, int rank, int ranks, int first, int vocabulary, int "
      "gather) -> Tensor");
  m.def(
      "rank_top_bytes(Tensor e, Tensor c, Tensor? bias, Tensor? c_scale, int k, float softcap, float temperature, "
      "bool is_tf32, int ranks, bool for_backward) -> int");
  m.def(
      "rank_top_forward(Tensor e, Tensor c, Tensor? bias, Tensor? c_scale, int k, float softcap, float temperature, "
      "bool is_tf32, Tensor(a!) workspace, int rank, int ranks, int first, int vocabulary, int gather) -> (Tensor "
      "log_probabilities, Tensor entries, Tensor log_sum_exp)");
}
STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CPU, m) {
  m.impl("rank_loss_bytes",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_loss_bytes<tessera_torch::cpu_device>>::call));
  m.impl("rank_loss_forward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_loss_forward<tessera_torch::cpu_device>>::call));
  m.impl("rank_loss_backward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_loss_backward<tessera_torch::cpu_device>>::call));
  m.impl("rank_soft_target_bytes",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_soft_target_bytes<tessera_torch::cpu_device>>::call));
  m.impl("rank_soft_target_forward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_soft_target_forward<tessera_torch::cpu_device>>::call));
  m.impl("rank_soft_target_backward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_soft_target_backward<tessera_torch::cpu_device>>::call));
  m.impl("rank_distillation_bytes",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_distillation_bytes<tessera_torch::cpu_device>>::call));
  m.impl("rank_distillation_forward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_distillation_forward<tessera_torch::cpu_device>>::call));
  m.impl("rank_distillation_backward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_distillation_backward<tessera_torch::cpu_device>>::call));
  m.impl("rank_chosen_bytes",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_chosen_bytes<tessera_torch::cpu_device>>::call));
  m.impl("rank_chosen_forward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_chosen_forward<tessera_torch::cpu_device>>::call));
  m.impl("rank_top_bytes",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_top_bytes<tessera_torch::cpu_device>>::call));
  m.impl("rank_top_forward",
         TORCH_BOX(&tessera_torch::flat<&tessera_torch::rank_top_forward<tessera_torch::cpu_device>>::call));
}
