// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// SumMap: a function that a sum of a matrix product goes through in a register, before it is stored.
///
///     struct rectified {                                // a user's own: any trivially copyable function object
///       TESSERA_FN float operator()(float sum, std::int64_t, std::int64_t) const { return sum > 0 ? sum : 0; }
///     };
///     linear<bfloat16>::forward(exec, inputs, weights, chained<add_bias<float>, rectified>{{bias}, {}}, outputs);
///     linear<bfloat16>::forward(exec, inputs, weights, soft_capped{30.0F}, outputs);
///
/// A map that reads memory may have check_sums(char const* function, std::int64_t rows, std::int64_t columns) const,
/// which products ask before they enqueue anything (view/check_parts.hpp), and which throws shape_error where it has
/// too few numbers for the outputs.
///
/// A map of products whose operands always lie along the depth, as rows of x and of W do in x W^T, may say so by a
/// member: static constexpr bool operands_lie_along = true. Then programs for others are not compiled: nvcc takes 8 s
/// for a product of 16 bits instead of 19. One whose operands lie across the depth in one way alone may say which:
/// static constexpr bool may_lie(bool inputs_are_across, bool weights_are_across). Programs for that
/// and for operands along the depth are compiled then, in 13 s.
///
/// Models: plain_sum, add_bias, add_matrix, soft_capped, scaled_sum, and chained, which joins two of them.
///
/// Laws, checked by `tessera::testing::check_map_laws(map, sums, columns)`:
///   1. The result depends on the sum, the row and the column alone, in whatever order and however often it is called.
///   2. A copy of its bytes is the same map: programs carry it to a GPU as bytes.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

// clang-format off
/// A map of sums: a trivially copyable function of a sum, its row and its column.
template <class M>
concept SumMap =
    (std::is_trivially_copyable_v<M>
        || because<"a map of sums is trivially copyable, because programs carry it as bytes">) &&
    (requires(M const& map, float sum, std::int64_t row, std::int64_t column) {
       requires std::is_arithmetic_v<decltype(map(sum, row, column))>;
     } || because<"a map of sums gives a number for a sum at (row, column): "
                  "float operator()(float sum, std::int64_t row, std::int64_t column) const">);
// clang-format on

}  // namespace v0
}  // namespace tessera
