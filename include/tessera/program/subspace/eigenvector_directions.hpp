// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The programs before and after a library that finds eigenvectors of products of channels: `widen_products` and
/// `keep_eigenvectors`.
#pragma once

#include <cstdint>
#include <math.h>  // not <cmath>: as in core/math.hpp

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/subspace/iterate.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Converts products to double. A group for each row.
struct widen_products {
  static constexpr int lanes = 256;
  struct scratch_type {};

  matrix_view<float const> gram;  ///< width x width
  matrix_view<double> target;     ///< width x width

  TESSERA_FN constexpr std::int64_t groups() const { return gram.extent(0); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      for (std::int64_t i = lane; i < gram.extent(1); i += lanes) {
        target(which, i) = static_cast<double>(gram(which, i));
      }
    }
  }
};

/// Writes the last rows of eigenvectors, beginning with the last, as columns of directions, and the sums of their
/// eigenvalues and of all. A group for each channel.
template <class T>
struct keep_eigenvectors {
  static constexpr int lanes = 64;
  struct scratch_type {};

  matrix_view<double const> vectors;    ///< eigenvectors as rows, in the order of rising eigenvalues
  array_view<double const> values;      ///< eigenvalues of the vectors
  array_view<std::int32_t const> info;  ///< status of the library; if not 0, there are no eigenvectors
  matrix_view<T> directions;            ///< width x rank
  array_view<subspace_measures> measures;

  TESSERA_FN constexpr std::int64_t groups() const { return directions.extent(0); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const last = vectors.extent(0) - 1;
    bool const is_found = info[0] == 0;
    double const nothing = ::nan("");
    for (int lane : group) {
      for (std::int64_t k = lane; k < directions.extent(1); k += lanes) {
        directions(which, k) = store<T>(static_cast<float>(is_found ? vectors(last - k, which) : nothing));
      }
      if (which == 0 && is_first(lane)) {
        double trace = 0.0;
        double held = 0.0;
        for (std::int64_t k = 0; k <= last; ++k) {
          trace += values[last - k];
          held = k < directions.extent(1) ? trace : held;
        }
        measures[0].trace = is_found ? trace : nothing;
        measures[0].held = is_found ? held : nothing;
        measures[0].shift = 0.0F;
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
