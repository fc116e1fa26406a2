// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The three products of a pair of vectors, which determine their lengths and the angle between them.
///
///     tessera::pair_products_reducer reducer;
///     auto products = reducer.identity();
///     for (int i = 0; i < n; ++i) { reducer.push(products, {a[i], b[i]}); }
///     // products.first == |a|^2, products.second == |b|^2, products.cross == a.b
#pragma once

#include <tessera/concepts/merger.hpp>
#include <tessera/concepts/reducer.hpp>
#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

struct pair_products {
  double first;   ///< |a|^2
  double second;  ///< |b|^2
  double cross;   ///< a.b
};

/// The sums are in double, where products of floats are exact. So the angle survives the cancellation in
/// |a|^2 |b|^2 - (a.b)^2, to about 3e-8 radians, in a single pass over the data.
struct pair_products_reducer {
  using state_type = pair_products;
  using input_type = couple;

  TESSERA_FN constexpr state_type identity() const { return {0, 0, 0}; }
  TESSERA_FN constexpr void push(state_type& state, input_type value) const {
    double const a = value.first;
    double const b = value.second;
    merge(state, {a * a, b * b, a * b});
  }
  TESSERA_FN constexpr void merge(state_type& into, state_type const& other) const {
    into.first += other.first;
    into.second += other.second;
    into.cross += other.cross;
  }
};

static_assert(Reducer<pair_products_reducer>);

}  // namespace v0
}  // namespace tessera
