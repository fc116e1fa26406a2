// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The operator of top entries for a kind of device: it chooses what is compiled elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include "loss_operators.hpp"
#include "operator_arguments.hpp"
#include "top_entries.hpp"

namespace tessera_torch {

template <>
struct schema_of<top_tensors> {
  using type = schema<Tensor, Tensor, std::optional<Tensor>, std::optional<Tensor>>;
};

/// The name of the function, for errors.
inline constexpr char const* top_function = "top_log_probabilities";

template <class Device>
std::tuple<Tensor, Tensor, Tensor> top_log_probabilities(top_tensors const& given, std::int64_t k,
                                                         logit_option_arguments const& of_logits, bool is_tf32) {
  return with_functions<top_entries_of, Device>(
      top_function, given, is_tf32, [&]<class Top>(Top) { return Top::forward(given, k, of_logits.options()); });
}

}  // namespace tessera_torch
