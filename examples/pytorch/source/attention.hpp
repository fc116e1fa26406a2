// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Attention for tensors: checks, allocates and dispatches; attend.hpp does the rest. attention_devices.hpp describes a
/// Device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>

#include "attention_request.hpp"
#include "tensors.hpp"

namespace tessera_torch {

/// What attention and attention_packed have in common. Tensors that are not there are null options.
struct attention_extras {
  std::int64_t method;
  bool is_causal;
  std::int64_t window_left;   ///< -1: all
  std::int64_t window_right;  ///< -1: all
  double softmax_scale;       ///< 0: 1 / sqrt(channels)
  std::optional<Tensor> const& sinks;
  std::optional<Tensor> const& bias;
  std::optional<Tensor> const& slopes;
  std::optional<Tensor> const& query_lengths;
  std::optional<Tensor> const& key_lengths;
  std::optional<Tensor> const& block_counts;
  std::optional<Tensor> const& block_tiles;
};

/// The calls of a function for a kind of device.
template <class Device>
class attention_of {
 public:
  using optional = std::optional<Tensor>;

  /// Tensors are batch x heads x tokens x channels in any strides, the result in the order of the queries' strides.
  /// Log-sum-exps: batch x heads x tokens, or empty.
  static std::tuple<Tensor, Tensor> padded(Tensor queries, Tensor keys, Tensor values, std::int64_t method,
                                           bool is_causal, std::int64_t window_left, std::int64_t window_right,
                                           double softmax_scale, optional sinks, optional bias, optional slopes,
                                           optional query_lengths, optional key_lengths, optional block_counts,
                                           optional block_tiles, bool wants_log_sum_exp) {
    attention_of const call("attention", queries);
    attention_request request =
        call.request_of({heads_of(call.heads(queries, "queries", 4)), heads_of(call.heads(keys, "keys", 4)),
                         heads_of(call.heads(values, "values", 4))});
    tessera::attention_shape const& s = request.shape;
    call.add({method, is_causal, window_left, window_right, softmax_scale, sinks, bias, slopes, query_lengths,
              key_lengths, block_counts, block_tiles},
             request);
    bool const is_by_tokens = queries.stride(1) < queries.stride(2);
    std::vector<std::int64_t> const sizes{s.batch, s.query_heads, s.queries, s.channels_of_values()};
    Tensor result = is_by_tokens ? call.by_tokens(sizes) : empty_on(call.device_, sizes, call.type_);
    request.result = heads_of(result);
    Tensor sums = call.sums(wants_log_sum_exp, {s.batch, s.query_heads, s.queries});
    if (wants_log_sum_exp) {
      request.log_sum_exp = writable<float, 3>(sums);
    }
    call.attend_by(method, request);
    return {result, sums};
  }

  /// Tensors are tokens x heads x channels; sequences lie one behind the other. Tokens of the result that belong to no
  /// sequence are zeros. Log-sum-exps: heads x tokens, or empty.
  static std::tuple<Tensor, Tensor> packed(Tensor queries, Tensor keys, Tensor values, Tensor query_starts,
                                           Tensor key_starts, std::int64_t longest_queries, std::int64_t longest_keys,
                                           std::int64_t method, bool is_causal, std::int64_t window_left,
                                           std::int64_t window_right, double softmax_scale, optional sinks,
                                           optional bias, optional slopes, optional query_lengths, optional key_lengths,
                                           optional block_counts, optional block_tiles, bool wants_log_sum_exp) {
    attention_of const call("attention_packed", queries);
    std::int64_t const batch = query_starts.numel();
    std::int64_t const tokens = call.heads(queries, "queries", 3).size(0);
    attention_request request = call.request_of({packed_heads(queries, batch, longest_queries),
                                                 packed_heads(call.heads(keys, "keys", 3), batch, longest_keys),
                                                 packed_heads(call.heads(values, "values", 3), batch, longest_keys)});
    tessera::attention_shape const& s = request.shape;
    tessera::check<tessera::shape_error>(values.size(0) == keys.size(0), call.function_, ": there are ", keys.size(0),
                                         " keys but ", values.size(0), " values");
    request.query_starts = {call.list<std::int32_t>(query_starts, "starts of queries"), tokens};
    request.key_starts = {call.list<std::int32_t>(key_starts, "starts of keys"), keys.size(0)};
    call.add({method, is_causal, window_left, window_right, softmax_scale, sinks, bias, slopes, query_lengths,
              key_lengths, block_counts, block_tiles},
             request);
    Tensor result = empty_on(call.device_, {tokens, s.query_heads, s.channels_of_values()}, call.type_);
    torch::stable::zero_(result);
    request.result = packed_heads(result, batch, longest_queries);
    Tensor sums = call.sums(wants_log_sum_exp, {s.query_heads, tokens});
    if (wants_log_sum_exp) {
      torch::stable::fill_(sums, -static_cast<double>(tessera::infinity));
      request.log_sum_exp = {data_of<float>(sums), {batch, s.query_heads, longest_queries}, {0, tokens, 1}};
    }
    call.attend_by(method, request);
    return {result, sums};
  }

 private:
  char const* function_;
  torch::stable::Device device_;
  ScalarType type_;
  typename Device::guard guard_;

  attention_of(char const* function, Tensor const& queries)
      : function_(function),
        device_(device_of<Device>(queries, {function, "queries"})),
        type_(queries.scalar_type()),
        guard_(device_) {
    tessera::check<tessera::value_error>(
        type_ == ScalarType::BFloat16 || type_ == ScalarType::Half || type_ == ScalarType::Float, function,
        ": the queries are of type ", torch::headeronly::toString(type_),
        " but must be of type BFloat16, Half or Float");
  }

  template <class T>
  [[nodiscard]] tessera::array_view<T const> list(Tensor const& tensor, char const* what) const {
    return list_of<T>(tensor, device_, {function_, what});
  }
  /// Queries, keys or values, after checks.
  [[nodiscard]] Tensor const& heads(Tensor const& tensor, char const* what, int rank) const {
    check_tensor(tensor, type_, device_, {function_, what});
    tessera::check<tessera::shape_error>(tensor.dim() == rank, function_, ": the ", what, " have ", tensor.dim(),
                                         " dimensions but must have ", rank);
    return tensor;
  }
  static heads_in_memory heads_of(Tensor const& tensor) {
    heads_in_memory found{tensor.data_ptr(), {}, {}};
    auto const sizes = tensor.sizes();
    auto const strides = tensor.strides();
    for (std::size_t i = 0; i < 4; ++i) {
      found.extents[i] = sizes[i];
      found.strides[i] = strides[i];
    }
    return found;
  }
  /// tokens x heads x channels as batch x heads x the longest sequence's tokens x channels.
  static heads_in_memory packed_heads(Tensor const& tensor, std::int64_t batch, std::int64_t longest) {
    auto const sizes = tensor.sizes();
    auto const strides = tensor.strides();
    return {tensor.data_ptr(), {batch, sizes[1], longest, sizes[2]}, {0, strides[1], strides[0], strides[2]}};
  }
  struct operands {
    heads_in_memory queries;
    heads_in_memory keys;
    heads_in_memory values;
  };
  [[nodiscard]] attention_request request_of(operands const& of) const {
    auto const& q = of.queries.extents;
    auto const& k = of.keys.extents;
    attention_request request{
        device_, type_, {q[0], q[1], k[1], q[2], k[2], q[3], of.values.extents[3]}, {}, of.queries, of.keys, of.values};
    return request;
  }

  void add(attention_extras const& extras, attention_request& request) const {
    tessera::attention_shape const& s = request.shape;
    request.options = {static_cast<float>(extras.softmax_scale), extras.is_causal, extras.window_left,
                       extras.window_right};
    if (extras.sinks) {
      request.sinks = list<float>(*extras.sinks, "sinks");
    }
    if (extras.query_lengths) {
      request.query_lengths = list<std::int32_t>(*extras.query_lengths, "lengths of queries");
    }
    if (extras.key_lengths) {
      request.key_lengths = list<std::int32_t>(*extras.key_lengths, "lengths of keys");
    }
    if (extras.slopes) {
      request.bias.slopes = list<float>(*extras.slopes, "slopes");
      tessera::check<tessera::shape_error>(request.bias.slopes.size() == s.query_heads, function_, ": there are ",
                                           request.bias.slopes.size(), " slopes for ", s.query_heads, " query heads");
    }
    if (extras.bias) {
      add_bias(*extras.bias, request);
    }
    if (extras.block_counts || extras.block_tiles) {
      tessera::check<tessera::value_error>(extras.block_counts && extras.block_tiles, function_,
                                           ": a block list is a pair of counts and tiles but one of them is missing");
      request.block_list = {view_of<std::int32_t, 3>(*extras.block_counts, device_, {function_, "counts of tiles"}),
                            view_of<std::int32_t, 4>(*extras.block_tiles, device_, {function_, "tiles"})};
    }
  }

  /// Biases may lack leading dimensions, and dimensions of 1 are repeated.
  void add_bias(Tensor const& bias, attention_request& request) const {
    tessera::attention_shape const& s = request.shape;
    ScalarType const type = bias.scalar_type();
    bias_type const found = type == ScalarType::BFloat16 ? bias_type::bfloat16
                            : type == ScalarType::Half   ? bias_type::float16
                            : type == ScalarType::Float  ? bias_type::float32
                            : type == ScalarType::Bool   ? bias_type::seen
                                                         : bias_type::none;
    tessera::check<tessera::value_error>(found != bias_type::none, function_, ": the biases are of type ",
                                         torch::headeronly::toString(type),
                                         " but must be of type BFloat16, Half, Float or Bool");
    check_tensor(bias, type, device_, {function_, "biases"});
    std::int64_t const rank = bias.dim();
    tessera::check<tessera::shape_error>(rank <= 4, function_, ": the biases have ", rank,
                                         " dimensions but must have at most 4");
    std::int64_t const extents[4] = {s.batch, s.query_heads, s.queries, s.keys};
    std::int64_t strides[4] = {0, 0, 0, 0};
    for (std::int64_t i = 4 - rank; i < 4; ++i) {
      std::int64_t const size = bias.size(i - 4 + rank);
      tessera::check<tessera::shape_error>(size == extents[i] || size == 1, function_, ": dimension ", i - 4,
                                           " of the biases has ", size, " elements but needs 1 or ", extents[i]);
      strides[i] = size == 1 ? 0 : bias.stride(i - 4 + rank) * bytes_of(found);
    }
    request.bias.biases = {static_cast<unsigned char const*>(bias.data_ptr()), extents, strides};
    request.bias.type = found;
  }

  /// An uninitialized tensor of batch x heads x tokens x channels in which tokens lie before heads.
  [[nodiscard]] Tensor by_tokens(std::vector<std::int64_t> const& sizes) const {
    Tensor made = empty_on(device_, {sizes[0], sizes[2], sizes[1], sizes[3]}, type_);
    return torch::stable::transpose(made, 1, 2);
  }
  [[nodiscard]] Tensor sums(bool is_wanted, std::vector<std::int64_t> const& sizes) const {
    return empty_on(device_, is_wanted ? sizes : std::vector<std::int64_t>{0}, ScalarType::Float);
  }

  void attend_by(std::int64_t method, attention_request const& request) const {
    switch (method) {
      case 0:
        return attend<Device, eight_bits>(request);
      case 1:
        return attend<Device, four_bits>(request);
      case 2:
        return attend<Device, float8_codes>(request);
      case 3:
        return attend<Device, sixteen_bits>(request);
      case 4:
        return attend<Device, eight_bits_smoothed>(request);
      default:
        throw tessera::value_error(
            tessera::join(function_, ": the method is number ", method, " but numbers go from 0 to ", 4));
    }
  }
};

}  // namespace tessera_torch
