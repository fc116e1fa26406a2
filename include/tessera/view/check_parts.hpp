// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `check_source` and `check_map`: let the parts of a call, a source of tiles and a map of sums, refuse it before
/// anything is enqueued, in the name of the function that was called.
///
///     check_source("my_product", "weights", weights);                  // asks weights.check("my_product", "weights")
///     check_map("my_product", map, outputs.extent(0), outputs.extent(1));            // asks map.check_sums(...)
#pragma once

#include <cstdint>

#include <tessera/core/check.hpp>
#include <tessera/view/visit_views.hpp>

namespace tessera {
inline namespace v0 {

/// Throws for a source whose extents are negative, that says by check() that its parts do not fit together, or that has
/// a view of elements without memory. `what` is its name in the message.
template <class Source>
void check_source(char const* function, char const* what, Source const& source) {
  check<shape_error>(source.rows() >= 0 && source.columns() >= 0, function, ": the extents of the ", what, " are ",
                     source.rows(), " x ", source.columns(), " but neither must be negative");
  if constexpr (requires { source.check(function, what); }) {
    source.check(function, what);
  }
  visit_views(source, [&](char const* of_view, auto const& view) { check_memory(function, of_view, view); });
}

/// Lets a map of sums that has check_sums() refuse outputs of so many rows and columns.
template <class Map>
void check_map([[maybe_unused]] char const* function, [[maybe_unused]] Map const& map,
               [[maybe_unused]] std::int64_t rows, [[maybe_unused]] std::int64_t columns) {
  if constexpr (requires { map.check_sums(function, rows, columns); }) {
    map.check_sums(function, rows, columns);
  }
}

}  // namespace v0
}  // namespace tessera
