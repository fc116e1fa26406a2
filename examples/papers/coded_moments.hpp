// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `coded_moments`: an optimizer's state in codes of 8 bits, of which a block of neighbouring parameters shares a
/// scale.
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/concepts/quantizer.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera_examples {

using namespace tessera;

/// `Q` has codes of a byte, and groups of a multiple of 256 values. Each lane has eight of a block's values: chunks of
/// four, one of the first half of the block and one of the second.
template <Quantizer Q>
struct coded_moments {
  using params_type = typename Q::params_type;
  static constexpr int lanes = Q::group / 8;
  static_assert(sizeof(typename Q::code_type) == 1 && Q::group % 256 == 0);
  array_view<std::uint32_t> codes;  ///< four in a word
  array_view<params_type> params;   ///< of each block

  /// Where a lane's chunk is among all of them; `half` is 0 or 1.
  TESSERA_FN static std::int64_t place(std::int64_t which, int lane, int half) {
    return which * (2 * lanes) + half * lanes + lane;
  }
  TESSERA_FN static std::uint8_t code(std::uint32_t word, int k) { return static_cast<std::uint8_t>(word >> (8 * k)); }
  TESSERA_FN static float decode(std::uint8_t code, params_type const& params) {
    return Q{}.decode(bit_cast<typename Q::code_type>(code), params);
  }
  /// Writes what each code of a block stands for.
  template <class G>
  TESSERA_FN void list(G const& group, std::int64_t which, float (&values)[256]) const {
    for (int lane : group) {
      for (int first = 0; first < 256; first += G::size) {
        if (int const code = first + lane; code < 256) {
          values[code] = decode(static_cast<std::uint8_t>(code), params[which]);
        }
      }
    }
  }
  /// Encodes a block's values with a scale of their own. All lanes of the group call it.
  template <class G>
  TESSERA_FN void store(G const& group, std::int64_t which, per_lane<float[8], G> const& values) const {
    auto const range = Q{}.range();
    per_lane<range_state_t<Q>, G> states;
    for (int lane : group) {
      states[lane] = range.identity();
      for (float const value : values[lane]) {
        range.push(states[lane], value);
      }
    }
    auto const joined = [&](auto state, auto const& other) {
      range.merge(state, other);
      return state;
    };
    params_type const fitted = Q{}.fit(reduce(group, states, joined));
    for (int lane : group) {
      if (is_first(lane)) {
        params[which] = fitted;
      }
      for (int half = 0; half < 2; ++half) {
        std::uint32_t word = 0;
        for (int k = 0; k < 4; ++k) {
          word |= std::uint32_t{bit_cast<std::uint8_t>(Q{}.encode(values[lane][4 * half + k], fitted))} << (8 * k);
        }
        if (place(which, lane, half) < codes.size()) {
          codes[place(which, lane, half)] = word;
        }
      }
    }
  }
};

/// Moments of so many parameters, a multiple of 4, in an executor's memory, zeros before the first step.
template <Quantizer Q>
struct moments_memory {
  buffer<std::uint32_t> codes;
  buffer<typename Q::params_type> params;

  template <class Executor>
  moments_memory(Executor const& exec, std::int64_t count)
      : codes(exec, count / 4), params(exec, divide_up(count, std::int64_t{Q::group})) {
    check<shape_error>(count % 4 == 0, "moments_memory: ", count, " parameters are no multiple of ", 4);
    exec.copy(std::vector<std::uint32_t>(static_cast<std::size_t>(codes.size())), codes);
    exec.copy(std::vector<typename Q::params_type>(static_cast<std::size_t>(params.size())), params);
    exec.wait();
  }
  [[nodiscard]] coded_moments<Q> moments() { return {codes, params}; }
};

}  // namespace tessera_examples
