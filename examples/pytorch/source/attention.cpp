// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention.hpp"

#include <torch/csrc/stable/library.h>

#include "attention_devices.hpp"

#define TESSERA_TORCH_OPTIONS                                                                                 \
  "int method, bool is_causal, SymInt window_left, SymInt window_right, float softmax_scale, Tensor? sinks, " \
  "Tensor? bias, Tensor? slopes, Tensor? query_lengths, Tensor? key_lengths, Tensor? block_counts, "          \
  "Tensor? block_tiles, bool wants_log_sum_exp) -> (Tensor, Tensor)"

STABLE_TORCH_LIBRARY_FRAGMENT(tessera_torch, m) {
  m.def("attention(Tensor queries, Tensor keys, Tensor values, " TESSERA_TORCH_OPTIONS);
  m.def(
      "attention_packed(Tensor queries, Tensor keys, Tensor values, Tensor query_starts, Tensor key_starts, "
      "SymInt longest_queries, SymInt longest_keys, " TESSERA_TORCH_OPTIONS);
}
STABLE_TORCH_LIBRARY_IMPL(tessera_torch, CPU, m) {
  using calls = tessera_torch::attention_of<tessera_torch::attention_on_cpu>;
  m.impl("attention", TORCH_BOX(&calls::padded));
  m.impl("attention_packed", TORCH_BOX(&calls::packed));
}
