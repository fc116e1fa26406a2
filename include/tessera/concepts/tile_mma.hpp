// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// TileMma: the block matrix product `sums += a * b` that a group of lanes carries out together.
///
/// The tiles are opaque: registers of a warp, shared memory of a block, or plain arrays on a CPU. A program fills them,
/// multiplies, and stores the sums, and does not know where an element is.
///
///     M::clear(group, sums);
///     for (step = 0; step < depth; step += M::depth) {
///       M::load_a(group, a_tile, a + step, a_stride);            // M::rows x M::depth, row after row
///       M::load_b(group, b_tile, b + step * b_stride, b_stride); // M::depth x M::columns, row after row; or
///       M::load_b_transposed(group, b_tile, b + step, b_stride); // M::columns x M::depth, row after row
///       M::multiply(group, a_tile, b_tile, sums);
///     }
///     M::store(group, sums, c, c_stride);                         // M::rows x M::columns
///
/// Laws, checked by `tessera::testing::check_laws<M>()` where the group runs on the host:
///   1. multiply is the matrix product, exactly, for small whole numbers.
///   2. multiply adds to the sums that are there; clear makes them zero.
///   3. load_b_transposed gives the tile that load_b gives, from M::columns rows of M::depth elements.
///   4. load and store honour the stride and touch nothing between the rows.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

// clang-format off
template <class M>
concept TileMma =
    (requires { typename M::group_type; typename M::operand_type; typename M::sum_type; }
        || because<"a TileMma names who multiplies what: "
           "using group_type = ...; using operand_type = ...; using sum_type = ...;">) &&
    (requires { requires M::rows > 0; requires M::columns > 0; requires M::depth > 0; }
        || because<"a TileMma names its shape: static constexpr int rows, columns, depth;">) &&
    (requires {
       requires std::default_initializable<typename M::a_tile>;
       requires std::default_initializable<typename M::b_tile>;
       requires std::default_initializable<typename M::sum_tile>;
     } || because<"a TileMma names its tiles: "
                  "a_tile (rows x depth), b_tile (depth x columns) and sum_tile (rows x columns)">) &&
    (requires(typename M::group_type const& group, typename M::a_tile& a, typename M::b_tile& b,
              typename M::sum_tile& sums, typename M::operand_type const* from, typename M::sum_type* to,
              std::int64_t stride) {
       M::load_a(group, a, from, stride);
       M::load_b(group, b, from, stride);
       M::load_b_transposed(group, b, from, stride);
       M::clear(group, sums);
       M::store(group, sums, to, stride);
     } || because<"a TileMma moves tiles: static load_a(group, a_tile&, from, stride), "
                  "load_b(group, b_tile&, from, stride), load_b_transposed(group, b_tile&, from, stride), "
                  "clear(group, sum_tile&), "
                  "store(group, sum_tile const&, to, stride)">) &&
    (requires(typename M::group_type const& group, typename M::a_tile const& a, typename M::b_tile const& b,
              typename M::sum_tile& sums) {
       M::multiply(group, a, b, sums);
     } || because<"a TileMma has multiply(), which adds to the sums: "
                  "static void multiply(group, a_tile const&, b_tile const&, sum_tile& sums)">);
// clang-format on

}  // namespace v0
}  // namespace tessera
