// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A bias of attention's scores whose form is known when a call is made: slopes of heads (ALiBi), a tensor of biases of
/// one of four types, or both. tessera's own biases, linear_bias and dense_bias, are types; programs of theirs are
/// faster, and this one serves whatever has none.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/head_view.hpp>

namespace tessera_torch {

/// The type of biases in memory. `seen` is PyTorch's boolean mask: a byte, 0 where the key is hidden.
enum class bias_type : std::int32_t { none, bfloat16, float16, float32, seen };

/// How many bytes a bias of a type has.
constexpr std::int64_t bytes_of(bias_type type) {
  return type == bias_type::float32 ? 4 : type == bias_type::seen ? 1 : 2;
}

/// Adds slopes[head] * (key - query) and biases(sequence, head, query, key), or what there is of them.
struct any_bias {
  tessera::array_view<float const> slopes = {};  ///< a slope for each query head, or null
  /// batch x query heads x queries x keys; the strides are in bytes, and elements have `type`.
  tessera::head_view<unsigned char const> biases = {};
  bias_type type = bias_type::none;  ///< none: there are no biases in memory

  /// Names the views that it reads, for tessera's checks.
  template <class Use>
  constexpr void each_view(Use const& use) const {
    use("slopes of biases", slopes);
    use("biases", biases);
  }
  TESSERA_FN float operator()(std::int64_t sequence, std::int64_t head, std::int32_t query, std::int32_t key) const {
    float const line = slopes.data != nullptr ? slopes[head] * static_cast<float>(key - query) : 0.0F;
    return type == bias_type::none ? line : line + of_memory(&biases(sequence, head, query, key));
  }

 private:
  [[nodiscard]] TESSERA_FN float of_memory(void const* at) const {
    switch (type) {
      case bias_type::bfloat16:
        return tessera::load(*static_cast<tessera::bfloat16 const*>(at));
      case bias_type::float16:
        return tessera::load(*static_cast<tessera::float16 const*>(at));
      case bias_type::float32:
        return *static_cast<float const*>(at);
      default:
        return *static_cast<unsigned char const*>(at) != 0 ? 0.0F : -tessera::infinity;
    }
  }
};

}  // namespace tessera_torch
