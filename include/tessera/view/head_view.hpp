// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `head_view<T>`: the heads of an attention layer: batch x heads x tokens x channels, of any strides.
///
///     head_view<bfloat16 const> queries(data, {batch, heads, tokens, channels});
///     head_view<bfloat16 const> keys(data, {batch, tokens, heads, channels});     // tokens before heads in memory:
///     keys = keys.transposed(1, 2);
///     matrix_view<bfloat16 const> one = queries[sequence][head];                  // tokens x channels
#pragma once

#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// A tensor of sequences x heads x tokens x channels.
template <class T>
using head_view = view<T, 4>;

}  // namespace v0
}  // namespace tessera
