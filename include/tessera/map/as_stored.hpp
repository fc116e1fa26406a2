// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `as_stored`: the function that reads queries and keys of attention as they are stored. A user's own is a trivially
/// copyable function object of the stored heads, a sequence, a head, a token and a channel.
///
///     struct rotated {                                                       // a user's function: a rotary embedding
///       view<float const, 2> cosines;                                        // tokens x channels / 2
///       view<float const, 2> sines;
///       template <class Stored>
///       TESSERA_FN float operator()(Stored const& x, std::int64_t sequence, std::int64_t head, std::int64_t token,
///                                   std::int64_t channel) const {
///         std::int64_t const half = cosines.extent(1);
///         std::int64_t const i = channel % half;
///         float const other = x(sequence, head, token, (channel + half) % (2 * half));
///         return x(sequence, head, token, channel) * cosines(token, i) +
///                (channel < half ? -other : other) * sines(token, i);
///       }
///     };
#pragma once

#include <cstdint>

#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// The function that changes nothing.
struct as_stored {
  /// Returns the stored channel.
  template <class Heads>
  TESSERA_FN float operator()(Heads const& stored, std::int64_t sequence, std::int64_t head, std::int64_t token,
                              std::int64_t channel) const {
    return stored(sequence, head, token, channel);
  }
};

}  // namespace v0
}  // namespace tessera
