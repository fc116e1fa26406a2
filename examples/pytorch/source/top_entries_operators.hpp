// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The operator of top entries for a kind of device: it names arguments, and chooses what is compiled elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include "loss.hpp"
#include "top_entries.hpp"

namespace tessera_torch {

template <class Device>
std::tuple<Tensor, Tensor, Tensor> top_log_probabilities(Tensor e, Tensor c, std::optional<Tensor> bias,
                                                         std::optional<Tensor> c_scale, std::int64_t k, double softcap,
                                                         double temperature, bool is_tf32) {
  tessera::linear_loss_options const options{.softcap = static_cast<float>(softcap),
                                             .temperature = static_cast<float>(temperature)};
  top_tensors const given{e, c, bias, c_scale};
  return with_functions<top_entries_of, Device>("top_log_probabilities", given, is_tf32,
                                                [&]<class Top>(Top) { return Top::forward(given, k, options); });
}

}  // namespace tessera_torch
