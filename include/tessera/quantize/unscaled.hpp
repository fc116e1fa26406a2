// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `unscaled_quantizer<T>`: values rounded to a Scalar, with no parameters: what a checkpoint has whose weights are
/// float8_e4m3 without scales, or in a format of a user's own.
///
///     tessera::unscaled_quantizer<tessera::float8_e4m3> quantizer;
///     auto const code = quantizer.encode(value, {});
///     float const near = quantizer.decode(code, {});
///
/// tile/source/converted.hpp gives matrices of such codes to products.
#pragma once

#include <tessera/concepts/quantizer.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>

namespace tessera {
inline namespace v0 {

/// The parameters of codes that need none.
struct no_params {};

/// The Reducer that looks at nothing.
struct no_range_reducer {
  /// There is nothing to know.
  struct state_type {
    friend constexpr bool operator==(state_type, state_type) = default;
  };
  using input_type = float;

  TESSERA_FN constexpr state_type identity() const { return {}; }
  TESSERA_FN constexpr void push(state_type&, float) const {}
  TESSERA_FN constexpr void merge(state_type&, state_type const&) const {}
};

/// encode() rounds to the nearest T, ties to even; a NaN stays one. Values beyond the largest finite T saturate,
/// infinities too, where scalar_traits<T> has `largest_bits`.
template <Scalar T>
struct unscaled_quantizer {
  using code_type = T;
  using params_type = no_params;

  static constexpr int group = whole_tensor;

  TESSERA_FN constexpr no_range_reducer range() const { return {}; }
  TESSERA_FN constexpr params_type fit(no_range_reducer::state_type) const { return {}; }
  TESSERA_FN constexpr code_type encode(float value, params_type) const {
    if constexpr (requires { scalar_traits<T>::largest_bits; }) {
      constexpr auto highest = static_cast<float>(load(from_bits<T>(scalar_traits<T>::largest_bits)));
      return store<T>(clamp(value, -highest, highest));
    } else {
      return store<T>(value);
    }
  }
  TESSERA_FN constexpr float decode(code_type code, params_type) const { return static_cast<float>(load(code)); }
};

}  // namespace v0
}  // namespace tessera
