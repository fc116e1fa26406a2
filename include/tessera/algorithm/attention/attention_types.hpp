// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The types of calls of algorithm/attention/attention.hpp: options, inputs and outputs.
///
///     attention_options options;
///     options.is_causal = true;
///     options.window_left = 4096;
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/scalar.hpp>
#include <tessera/core/because.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/attention_shape.hpp>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {

/// The options of a call.
struct attention_options {
  float softmax_scale = 0.0F;      ///< what scores are multiplied by; 0: 1 / sqrt(channels)
  bool is_causal = false;          ///< a query sees no key after its own; the last query's own is the last key
  std::int64_t window_left = -1;   ///< keys before its own that a query sees; -1: all
  std::int64_t window_right = -1;  ///< keys after its own that a query sees; -1: all; with is_causal none

  /// How many keys after its own a query sees, by is_causal and window_right; -1: all.
  [[nodiscard]] constexpr std::int64_t keys_behind() const { return is_causal ? 0 : window_right; }
};

/// Whether attention reads and writes this type.
template <class T>
inline constexpr bool is_attention_type = is_16_bit_float<T> || std::is_same_v<T, float>;

// clang-format off
/// A Scalar that attention reads and writes.
template <class T>
concept AttentionScalar =
    (is_attention_type<T>
        || because<"queries, keys, values and results of attention are bfloat16, float16 or float">) &&
    Scalar<T>;
// clang-format on

/// The inputs of a call. T: bfloat16, float16 or float; any strides. Sequences that lie one behind the other, without
/// padding, are given as views with a stride of 0 from sequence to sequence and as many tokens as the longest has, with
/// starts and lengths. Their results then lie in the same way, and nothing is written beyond a sequence's length.
template <AttentionScalar T>
struct attention_inputs {
  head_view<T const> queries;           ///< batch x query heads x queries x channels
  head_view<T const> keys;              ///< batch x key heads x keys x channels
  head_view<T const> values;            ///< batch x key heads x keys x value channels, which may be others
  sequence_lengths query_lengths = {};  ///< queries of each sequence, where executors run; null: all are whole
  sequence_lengths key_lengths = {};    ///< keys of each sequence, where executors run; null: all are whole
  sequence_starts query_starts = {};    ///< where each sequence's queries begin, if sequences lie one behind the other
  sequence_starts key_starts = {};      ///< where each sequence's keys begin, if sequences lie one behind the other
  array_view<float const> sinks = {};   ///< a score for each query head, which takes weight and has no value; or null
  /// The tiles of 64 queries x 128 keys that are seen; null: all. Lists that are part of the type
  /// (map/listed_tiles.hpp) mean the same, and have faster programs on GPUs.
  attention_block_list block_list = {};
};

/// The outputs of a call. Queries beyond the length of their sequence, and queries that see no key, get results of
/// zeros and a log-sum-exp of minus infinity.
template <AttentionScalar T>
struct attention_outputs {
  head_view<T> result;              ///< batch x query heads x queries x value channels
  view<float, 3> log_sum_exp = {};  ///< batch x query heads x queries: natural, of the scaled scores; or null
};

namespace detail {

/// Throws shape_error unless values have as many channels as keys: for functions that take nothing else.
inline void check_equal_channels(char const* function, attention_shape const& shape) {
  check<shape_error>(shape.has_equal_channels(), function, ": values have ", shape.channels_of_values(),
                     " channels but must have as many as keys, ", shape.channels);
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
