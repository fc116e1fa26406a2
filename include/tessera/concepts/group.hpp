// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Group: the lanes that work on one tile together. It is the only way in which a program uses threads.
///
///     for (int lane : group) { scratch.values[lane] = from[lane]; }    // each lane once: in a row, or all at a time
///     group.sync();                                                    // what lanes wrote before, all lanes see after
///
/// Laws:
///   1. A loop over the group visits 0 to size - 1, each once, in an order that is not specified.
///   2. What one lane writes to scratch, another may read only after a sync; two lanes write different values to one
///      address only with a sync between, or by atomic_add().
///   3. sync() and the collectives stand outside of loops over lanes, and all lanes reach them.
///   4. Collectives (free functions: reduce, sum, maximum, minimum, exclusive_sum, broadcast, any, all, ballot,
///      count_below) give every lane the same bits on every executor; tile/per_lane.hpp documents the order of sums.
/// `testing::adversary` catches programs that rely on more. Models: serial_group, cuda_warp, cuda_block.
#pragma once

#include <concepts>
#include <cstdint>

#include <tessera/core/because.hpp>
#include <tessera/core/status.hpp>

namespace tessera {
inline namespace v0 {

// clang-format off
template <class G>
concept Group =
    (requires { requires (G::size >= 1); }
        || because<"a Group has its number of lanes: static constexpr int size">) &&
    (requires(G const& g) { { *g.begin() } -> std::convertible_to<int>; g.begin() != g.end(); }
        || because<"a Group can be looped over: for (int lane : group)">) &&
    (requires(G const& g) { g.sync(); }
        || because<"a Group has sync(): void sync() const">) &&
    (requires(G const& g, std::uint32_t& target) { { g.atomic_add(target, 1u) } -> std::same_as<std::uint32_t>; }
        || because<"a Group has atomic_add(): T atomic_add(T& target, T value) const, which gives the value before">) &&
    (requires(G const& g, status_word* w) { g.report(w, status_code{}, std::int64_t{}, status_detail{}); }
        || because<"a Group has report(): void report(status_word*, status_code, std::int64_t, status_detail) const">);
// clang-format on

namespace detail {

/// The least that a Group must have, to ask whether a type is a Program. It is never called.
template <int Lanes>
struct group_archetype {
  static constexpr int size = Lanes;
  TESSERA_FN int const* begin() const;
  TESSERA_FN int const* end() const;
  TESSERA_FN void sync() const;
  template <class T>
  TESSERA_FN T atomic_add(T& target, T value) const;
  TESSERA_FN void report(status_word*, status_code, std::int64_t, status_detail = {}) const;
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
