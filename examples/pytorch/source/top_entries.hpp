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

template <class Device, class Operand>
struct top_entries_of {
  static constexpr std::int64_t most = 48;  ///< entries of a token: the fast program of sm_90a takes no more

  /// Log-probabilities and entries, tokens x k each, from the largest down, and log-sum-exps of tokens.
  static std::tuple<Tensor, Tensor, Tensor> forward(Tensor const& e, Tensor const& c, std::optional<Tensor> const& bias,
                                                    std::int64_t k, tessera::linear_loss_options const& options);
};

}  // namespace tessera_torch
