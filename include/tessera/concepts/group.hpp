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
///
/// A Group may say for which architecture it is compiled: `static constexpr tessera::architecture architecture`. The
/// library's do, and a group that does not counts as one of the host. `architecture_of<G>` is the tag: programs choose
/// by it at compile time, and their scratch may follow it (concepts/program.hpp).
///
///     constexpr int ahead = tessera::architecture_of<Group> == tessera::architecture::host ? 0 : 4;
///
/// Tags are ordered by age: the host is before sm_80, and sm_90 before sm_90a. Code with an "a" has the instructions of
/// one architecture alone, which newer ones do not have: ask for wgmma by `== architecture::sm_90a`, not by `>=`.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <tessera/config.hpp>
#include <tessera/core/because.hpp>
#include <tessera/core/status.hpp>

namespace tessera {
inline namespace v0 {

/// What code is compiled for. The value is ten times nvcc's number, plus one for an "a"; architecture_numbered() makes
/// those that have no name here.
enum class architecture : int {
  host = 0,         ///< a CPU
  sm_80 = 8000,     ///< A100
  sm_86 = 8600,     ///< RTX 30, A40
  sm_89 = 8900,     ///< RTX 40, L40
  sm_90 = 9000,     ///< H100, H200, without wgmma
  sm_90a = 9001,    ///< H100, H200
  sm_100 = 10000,   ///< B200
  sm_100a = 10001,  ///< B200, with instructions that sm_100 alone has
  sm_120 = 12000,   ///< RTX 50
};

/// The number of an architecture, as in nvcc's own macro and for a Tuning: 900 is sm_90 and sm_90a, 0 is the host.
[[nodiscard]] TESSERA_FN constexpr int number_of(architecture tag) {
  return static_cast<int>(tag) / 10;
}

/// Whether code for it has instructions of one architecture alone, as sm_90a has.
[[nodiscard]] TESSERA_FN constexpr bool is_specific(architecture tag) {
  return static_cast<int>(tag) % 10 != 0;
}

/// The tag of an architecture that is numbered as nvcc does: 870 is sm_87; `specific`: with an "a".
[[nodiscard]] TESSERA_FN constexpr architecture architecture_numbered(int number, bool specific = false) {
  return static_cast<architecture>(10 * number + (specific ? 1 : 0));
}

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

/// The architecture that a group is compiled for: what it says, else the host.
template <class G>
inline constexpr architecture architecture_of = architecture::host;
/// It says so.
template <class G>
requires requires {
  requires std::same_as<std::remove_cv_t<decltype(G::architecture)>, architecture>;
}
inline constexpr architecture architecture_of<G> = G::architecture;

namespace detail {

/// The least that a Group of an architecture must have, to ask whether a type is a Program. It is never called.
template <int Lanes, architecture Compiled>
struct group_archetype_on {
  static constexpr int size = Lanes;
  static constexpr tessera::architecture architecture = Compiled;
  TESSERA_FN int const* begin() const;
  TESSERA_FN int const* end() const;
  TESSERA_FN void sync() const;
  template <class T>
  TESSERA_FN T atomic_add(T& target, T value) const;
  TESSERA_FN void report(status_word*, status_code, std::int64_t, status_detail = {}) const;
};
template <int Lanes>
using group_archetype = group_archetype_on<Lanes, architecture::host>;

}  // namespace detail
}  // namespace v0
}  // namespace tessera
