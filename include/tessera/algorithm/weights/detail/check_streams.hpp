// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Checks of the lists of weights and of the streams that calls of the weights' algorithms are given.
///
///     detail::check_stream("compressed_linear.forward", stream, spec.smallest_bytes());
#pragma once

#include <cstdint>

#include <tessera/core/check.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Throws shape_error or value_error unless there are `count` weights, in memory and contiguous.
template <class Element>
void check_weights(char const* where, std::int64_t count, array_view<Element> weights) {
  check<shape_error>(weights.size() == count, where, ": there are ", weights.size(), " weights but the spec is for ",
                     count);
  check_memory(where, "weights", weights);
  check<shape_error>(weights.is_contiguous(), where, ": the weights have a stride of ", weights.stride(0),
                     " but must have a stride of ", 1);
}

/// Throws shape_error or value_error unless a stream has at least `needed` bytes, in memory, contiguous and aligned.
template <class Byte>
void check_stream(char const* where, array_view<Byte> stream, std::int64_t needed) {
  check<shape_error>(stream.size() >= needed, where, ": the stream has ", stream.size(), " bytes but needs at least ",
                     needed);
  check_memory(where, "bytes of the stream", stream);
  check<shape_error>(stream.is_contiguous(), where, ": the stream has a stride of ", stream.stride(0),
                     " but must have a stride of ", 1);
  auto const beyond = reinterpret_cast<std::uintptr_t>(stream.data) % 16;
  check<value_error>(beyond == 0, where, ": the stream starts ", beyond, " bytes past a multiple of ", 16);
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
