// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A call of attention whose types and method are known when it is made, and the methods. Each method is compiled in a
/// source of its own (attention_*.cpp, attention_*.cu), for a Device of tensors.hpp.
#pragma once

#include <cstdint>

#include <tessera/algorithm/attention/attention_types.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/attention_block_list.hpp>
#include <tessera/view/attention_shape.hpp>
#include <tessera/view/head_view.hpp>
#include <tessera/view/sequence_lengths.hpp>
#include <tessera/view/sequence_starts.hpp>
#include <tessera/view/view.hpp>

#include "attention_bias.hpp"
#include "tensors.hpp"

namespace tessera_torch {

/// A tensor of four dimensions, of any strides, which are in elements.
struct heads_in_memory {
  void* data;
  std::int64_t extents[4];
  std::int64_t strides[4];

  template <class T>
  [[nodiscard]] tessera::head_view<T> as() const {
    return tessera::head_view<T>(static_cast<T*>(data), extents, strides);
  }
};

/// Views into tensors that outlive the call. Queries, keys, values and the result are of one type.
struct attention_request {
  torch::stable::Device device;
  ScalarType type;
  tessera::attention_shape shape;
  tessera::attention_options options;
  heads_in_memory queries;
  heads_in_memory keys;
  heads_in_memory values;
  heads_in_memory result = {};
  tessera::view<float, 3> log_sum_exp = {};
  tessera::sequence_lengths query_lengths = {};
  tessera::sequence_lengths key_lengths = {};
  tessera::sequence_starts query_starts = {};
  tessera::sequence_starts key_starts = {};
  tessera::array_view<float const> sinks = {};
  any_bias bias = {};
  tessera::attention_block_list block_list = {};
};

// The methods. Their numbers are those of `methods` in tessera_torch/attention.py.
struct eight_bits;           ///< 0: sage_attention2
struct four_bits;            ///< 1: sage_attention2_int4
struct float8_codes;         ///< 2: float8_attention
struct sixteen_bits;         ///< 3: dense_attention
struct eight_bits_smoothed;  ///< 4: sage_attention2 with smoothed queries

/// Enqueues a call by a method on the device's current stream. Throws tessera's errors.
template <class Device, class Method>
void attend(attention_request const& request);

}  // namespace tessera_torch
