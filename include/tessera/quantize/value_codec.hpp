// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// ValueCodec: how an offloaded cache stores values: `exact_values`, which does not code them, or a Quantizer without
/// state, a user's own as well.
///
///     using selector = landmark_selector<8>;
///     using method = offloaded_cache<low_rank<160>, selector, keep_outliers<48>, symmetric_quantizer<4, 64>>;
#pragma once

#include <type_traits>

#include <tessera/concepts/quantizer.hpp>
#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

/// The codec that does not code values.
struct exact_values {};

// clang-format off
/// A codec of the values of a cache: exact_values or a Quantizer, which programs make where they need it.
template <class C>
concept ValueCodec =
    (std::is_same_v<C, exact_values> || Quantizer<C>
        || because<"a codec of values is exact_values or a Quantizer: symmetric_quantizer<4, 64>">) &&
    (std::is_empty_v<C>
        || because<"a codec of values has no state, which a cache would not keep">);
// clang-format on

}  // namespace v0
}  // namespace tessera
