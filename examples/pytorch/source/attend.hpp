// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The implementation of attend() (attention_request.hpp): a call's numbers become types. A source that includes this
/// instantiates it for one method and one kind of device.
///
/// Executors with programs of 16-bit biases get linear_bias, dense_bias and listed_tiles as types. The others' only
/// programs call any_bias for each score, which serves for all of these.
#pragma once

#include <type_traits>

#include <tessera/algorithm/attention/dense_attention.hpp>
#include <tessera/algorithm/attention/float8_attention.hpp>
#include <tessera/core/check.hpp>
#include <tessera/map/dense_bias.hpp>
#include <tessera/map/linear_bias.hpp>
#include <tessera/map/listed_tiles.hpp>
#include <tessera/map/no_bias.hpp>
#include <tessera/sage_attention2.hpp>

#include "attention_request.hpp"

namespace tessera_torch {

/// What a method is in tessera. `has_fast_biases`: whether linear and dense biases and lists have programs of their own
/// here; those of the other methods call any_bias, or are the portable ones for lists.
struct eight_bits {
  using type = tessera::sage_attention2;
  static constexpr bool has_fast_biases = true;
};
struct four_bits {
  using type = tessera::sage_attention2_int4;
  static constexpr bool has_fast_biases = false;
};
struct float8_codes {
  using type = tessera::float8_attention;
  static constexpr bool has_fast_biases = false;
};
struct sixteen_bits {
  using type = tessera::dense_attention;
  static constexpr bool has_fast_biases = false;
};
struct eight_bits_smoothed {
  using type = tessera::attention<
      tessera::smoothed<tessera::smoothed<tessera::symmetric_quantizer<8, tessera::per_thread>, tessera::sampled_mean>,
                        tessera::block_mean>,
      tessera::sampled_range<tessera::float8_quantizer<tessera::float8_e4m3>>, tessera::piecewise_linear_softmax>;
  static constexpr bool has_fast_biases = false;
};

namespace detail {

template <class Device, class Method, class T, class Bias>
void attend_with(attention_request const& request, Bias const& bias) {
  using method = typename Method::type;
  auto const& exec = Device::executor(request.device);
  tessera::attention_inputs<T> in{
      request.queries.as<T const>(), request.keys.as<T const>(), request.values.as<T const>(), request.query_lengths,
      request.key_lengths,           request.query_starts,       request.key_starts,           request.sinks};
  if constexpr (!tessera::is_listed<Bias>) {
    in.block_list = request.block_list;
  }
  auto const plan = method::plan_forward(exec, request.shape);
  auto memory = scratch(exec, plan);
  method::forward(exec, in, request.options, tessera::attention_outputs<T>{request.result.as<T>(), request.log_sum_exp},
                  tessera::workspace(plan, memory), tessera::attention_functions<Bias>{bias});
}

/// Whether biases are a dense_bias<T> alone.
template <class T>
bool is_dense(any_bias const& bias) {
  bias_type const type = std::is_same_v<T, tessera::bfloat16> ? bias_type::bfloat16 : bias_type::float16;
  return bias.slopes.data == nullptr && bias.type == type;
}
/// The biases of memory, whose strides are a whole number of elements.
template <class T>
tessera::dense_bias<T> dense_of(any_bias const& bias) {
  auto const& from = bias.biases;
  constexpr auto size = static_cast<std::int64_t>(sizeof(T));
  return {{reinterpret_cast<T const*>(from.data),
           {from.extent(0), from.extent(1), from.extent(2), from.extent(3)},
           {from.stride(0) / size, from.stride(1) / size, from.stride(2) / size, from.stride(3) / size}}};
}

template <class Device, class Method, class T>
void attend_to(attention_request const& request) {
  any_bias const& bias = request.bias;
  bool const has_biases = bias.type != bias_type::none;
  if constexpr (Device::has_fast_biases && Method::has_fast_biases && !std::is_same_v<T, float>) {
    bool const is_listed = request.block_list.counts.data != nullptr;
    if (is_listed && !has_biases && bias.slopes.data == nullptr) {
      return attend_with<Device, Method, T>(request, tessera::listed_tiles<>{request.block_list});
    }
    if (!is_listed && !has_biases && bias.slopes.data != nullptr) {
      return attend_with<Device, Method, T>(request, tessera::linear_bias{bias.slopes});
    }
    if (!is_listed && is_dense<T>(bias)) {
      return attend_with<Device, Method, T>(request, dense_of<T>(bias));
    }
  }
  // A program of any_bias takes calls in fp32 without a bias, too: they have none that is faster.
  if (has_biases || bias.slopes.data != nullptr || (Device::has_fast_biases && std::is_same_v<T, float>)) {
    return attend_with<Device, Method, T>(request, bias);
  }
  if constexpr (!(Device::has_fast_biases && std::is_same_v<T, float>)) {
    attend_with<Device, Method, T>(request, tessera::no_bias{});
  }
}

}  // namespace detail

template <class Device, class Method>
void attend(attention_request const& request) {
  switch (request.type) {
    case ScalarType::BFloat16:
      return detail::attend_to<Device, Method, tessera::bfloat16>(request);
    case ScalarType::Half:
      return detail::attend_to<Device, Method, tessera::float16>(request);
    default:
      if constexpr (std::is_same_v<Method, sixteen_bits>) {
        throw tessera::value_error("attention: queries are of type Float but must be BFloat16 or Half for this method");
      } else {
        return detail::attend_to<Device, Method, float>(request);
      }
  }
}

}  // namespace tessera_torch
