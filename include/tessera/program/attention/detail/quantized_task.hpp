// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `quantized_task`: what a program of attention over codes is given by a call, whatever products it has: operands,
/// what queries see of keys, and where results go.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/view/attention_mask.hpp>
#include <tessera/view/attention_shape.hpp>
#include <tessera/view/sequence_lengths.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Method: an attention_method. T: the type of results. StoredValue: the element of values.
template <class Method, class T, class StoredValue>
struct quantized_task {
  attention_shape shape;
  quantized_queries<typename Method::score_code> queries;  ///< codes and scales of queries
  quantized_keys<typename Method::score_code> keys;        ///< codes and scales of keys
  quantized_value_heads<StoredValue> values;               ///< codes of values, or their numbers, and scales
  sequence_lengths query_lengths;
  sequence_lengths key_lengths;
  std::int64_t left;   ///< attention_mask::left
  std::int64_t right;  ///< attention_mask::right
  attention_writer<Method, T> writer;
  /// Where splits of the keys leave their results, if there are several.
  attention_partials<typename Method::softmax::state_type> partials;

  /// The place of a block of queries, with what they see. Block: a query_block.
  template <class Block>
  [[nodiscard]] TESSERA_FN Block place_of(std::int64_t which) const {
    Block at = Block::of(shape, which);
    at.mask = {length_of(query_lengths, at.sequence, shape.queries), length_of(key_lengths, at.sequence, shape.keys),
               left, right};
    return at;
  }
};

/// The task of a program whose weights are multiplied by values as Products says (attention/forward_by_warps.cuh).
template <class Products, class T>
using task_of_products = quantized_task<typename Products::method, T, typename Products::sources::stored_type>;

}  // namespace detail
}  // namespace v0
}  // namespace tessera
