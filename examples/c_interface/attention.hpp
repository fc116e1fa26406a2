// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Options and outputs of attention, for all functions that attend.
#pragma once

#include <cstdint>

#include <tessera/algorithm/attention/attention_types.hpp>

#include "errors.hpp"
#include "tensors.hpp"
#include "tessera_c.h"

namespace tessera_c {

inline tessera::attention_options attention_options_of(tessera_attention_options const* given) {
  constexpr tessera_attention_options defaults = TESSERA_ATTENTION_OPTIONS_INIT;
  tessera_attention_options const from = known_part(given, "options", defaults);
  require(from.is_causal == 0 || from.is_causal == 1, TESSERA_VALUE_ERROR, "is_causal is ", from.is_causal,
          " but must be 0 or 1");
  return {.softmax_scale = from.softmax_scale,
          .is_causal = from.is_causal == 1,
          .window_left = from.window_left,
          .window_right = from.window_right};
}

template <class T>
tessera::attention_outputs<T> attention_outputs_of(tessera_attention_outputs const& from) {
  return {view_of<T, 4>("results", from.result), view_if_given<float, 3>("log-sum-exps", from.log_sum_exp)};
}

}  // namespace tessera_c
