// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The likeliest entries of tokens and their log-probabilities, for a type of operands. top_entries_programs.hpp
/// defines the function, and one source for each type and device compiles it.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include "loss.hpp"
#include "tensors.hpp"

namespace tessera_torch {

inline constexpr int most_top_entries = 48;  ///< of a token: the fast program of sm_90a takes no more

/// e: tokens x channels, c: vocabulary x channels, bias: vocabulary, of the type of e; c_scale: vocabulary, of codes,
/// float.
struct top_tensors {
  Tensor e;
  Tensor c;
  std::optional<Tensor> bias;
  std::optional<Tensor> c_scale;

  [[nodiscard]] classifier_tensor classifier() const { return {c, c_scale}; }
  [[nodiscard]] bool has_stored() const { return is_stored(e, classifier()); }
};

template <class Device, class Operand>
struct top_entries_of {
  /// Log-probabilities and entries, tokens x k each, from the largest down, and log-sum-exps of tokens.
  static std::tuple<Tensor, Tensor, Tensor> forward(top_tensors const& given, std::int64_t k,
                                                    tessera::linear_loss_options const& options);
};

}  // namespace tessera_torch
