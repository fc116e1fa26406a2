// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// SumEpilogue: takes the sums of a matrix product (program/gemm/gemm_tiles.hpp), each once and in any order.
///
///     struct add_to_result {
///       matrix_view<float> result;
///       template <class Sum>
///       TESSERA_FN void operator()(std::int64_t row, std::int64_t column, Sum sum) const {
///         result(row, column) += sum;
///       }
///     };
///
/// Laws, checked by `tessera::testing::check_epilogue_laws(memory, make, sums, columns)`:
///   1. What it leaves in memory does not depend on the order in which sums come: tiles come in any order.
///   2. Sums of different elements may come at the same time: no two of them write one address, unless by atomic_add.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

// clang-format off
/// What a product does with its sums.
template <class E>
concept SumEpilogue =
    (std::is_trivially_copyable_v<E>
        || because<"an epilogue is trivially copyable, because programs carry it as bytes">) &&
    (requires(E const& epilogue, std::int64_t row, std::int64_t column, float sum) { epilogue(row, column, sum); }
        || because<"an epilogue takes the sum at (row, column): "
                   "void operator()(std::int64_t row, std::int64_t column, Sum sum) const">);
// clang-format on

}  // namespace v0
}  // namespace tessera
