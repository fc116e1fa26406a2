// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Projector: writes rows as a few coefficients in a basis that was fitted to them, and reconstructs the rows.
///
/// Fitting happens once for each tensor, on the host's side of the call; `project` and `reconstruct` work on one row.
///
///     tessera::low_rank_projector<16> projector;
///     auto const basis = projector.fit(rows, count, width);          // rows: count x width floats, row after row
///     projector.project(basis, row, coefficients);                    // width floats to 16
///     projector.reconstruct(basis, coefficients, again);              // 16 floats to width
///
/// Laws, checked by `tessera::testing::check_laws<P>(rows, width, tolerance)`:
///   1. project undoes reconstruct: coefficients survive the round trip.
///   2. Reconstruction is a projection: doing it twice is doing it once.
///   3. Rows that lie in a space of `rank` dimensions are reconstructed without loss.
///   4. project is linear.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

// clang-format off
template <class P>
concept Projector =
    (requires { requires std::same_as<decltype(P::rank), int const>; requires P::rank > 0; }
        || because<"a Projector says how many coefficients a row gets: static constexpr int rank = ...;">) &&
    (requires { typename P::basis_type; requires std::movable<typename P::basis_type>; }
        || because<"a Projector names what it fits: using basis_type = ...;">) &&
    (requires(P const& p, float const* rows, std::int64_t count, int width) {
       requires std::is_same_v<decltype(p.fit(rows, count, width)), typename P::basis_type>;
     } || because<"a Projector has fit(): basis_type fit(float const* rows, std::int64_t count, int width) const">) &&
    (requires(P const& p, typename P::basis_type const& basis, float const* row, float* coefficients) {
       p.project(basis, row, coefficients);
     } || because<"a Projector has project(): "
                  "void project(basis_type const&, float const* row, float* coefficients) const">) &&
    (requires(P const& p, typename P::basis_type const& basis, float const* coefficients, float* row) {
       p.reconstruct(basis, coefficients, row);
     } || because<"a Projector has reconstruct(): "
                  "void reconstruct(basis_type const&, float const* coefficients, float* row) const">);
// clang-format on

}  // namespace v0
}  // namespace tessera
