// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Program: the body of a kernel, which says what one group does with one tile. Any executor runs it, once for each
/// tile.
///
///     struct doubled {
///       static constexpr int lanes = 32;                    // the size of its group; 32 is a warp on a GPU
///       struct scratch_type {};                             // what the lanes share while they work on a tile
///       array_view<float> values;                           // views and numbers, by value
///
///       template <tessera::Group G>
///       TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
///         for (int lane : group) { values[which * lanes + lane] *= 2.0f; }
///       }
///     };
///     static_assert(tessera::Program<doubled>);
///
/// A GPU asks for more than a CPU does: whole warps, and shared memory that a thread block can have. So that a program
/// which was tried on a CPU does not fail only where nvcc compiles it, say on the host as well:
///
///     static_assert(tessera::DeviceProgram<doubled>);
///
/// What scratch holds may depend on the group, above all on the architecture that it is compiled for: more stages on
/// sm_90a, fewer where a thread block has 99 KiB, the least on a CPU. Such a program has a scratch_for<Group> instead,
/// and is still one program:
///
///     struct staged {
///       static constexpr int lanes = 32;
///       template <class G>
///       using scratch_for = float[tessera::architecture_of<G> == tessera::architecture::host ? 1 : 4][32];
///
///       template <tessera::Group G>
///       TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_for<G>& stages) const;
///     };
///     static_assert(tessera::DeviceProgram<staged>);
///
/// Executors give it the scratch of their group; CUDA's takes the bytes of the architecture whose code runs on the
/// device, without a cost for a launch. The type depends on the size and the architecture of the group alone, there is
/// one for each architecture that the program is for, and results are the same with each.
///
/// Laws: tiles come in any order and at the same time, so no tile reads what another tile writes; scratch is
/// uninitialised; the laws of Group hold. Run a program on `testing::adversary` to see whether it keeps them.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Whether a program has scratch for a kind of group, in place of one scratch_type.
template <class P, class G>
inline constexpr bool has_scratch_for = requires {
  typename P::template scratch_for<G>;
};
template <class P>
inline constexpr bool has_scratch_type = requires {
  typename P::scratch_type;
};

/// The scratch of a program for a kind of group, as `type`, which is missing where the program names none.
template <class P, class G>
struct scratch_of {};
template <class P, class G>
requires(has_scratch_type<P> && !has_scratch_for<P, G>) struct scratch_of<P, G> {
  using type = typename P::scratch_type;
};
template <class P, class G>
requires(has_scratch_for<P, G>) struct scratch_of<P, G> {
  using type = typename P::template scratch_for<G>;
};

}  // namespace detail

/// The scratch that a program has for a kind of group: its own scratch_for<G>, else its scratch_type.
template <class P, class G>
using scratch_for = typename detail::scratch_of<P, G>::type;

// clang-format off
/// A program for one kind of group, which is what an executor asks for.
template <class P, class G>
concept ProgramOn =
    (std::is_trivially_copyable_v<P>
        || because<"a Program is trivially copyable: it holds views and numbers and travels as bytes">) &&
    (requires { requires (P::lanes >= 1); }
        || because<"a Program has the size of its group: static constexpr int lanes = 32">) &&
    (requires { requires std::is_trivially_default_constructible_v<scratch_for<P, G>>; }
        || because<"a Program names its shared memory, a trivial type: struct scratch_type {}">) &&
    (!(detail::has_scratch_type<P> && detail::has_scratch_for<P, G>)
        || because<"a Program has one scratch_type, or a scratch_for<Group> in its place, and not both">) &&
    (requires(P const& p, G const& group, scratch_for<P, G>& scratch) { p(group, std::int64_t{}, scratch); }
        || because<"a Program can be called: void operator()(Group const&, std::int64_t which, scratch_type&) const">);
// clang-format on

namespace detail {

/// `Make<lanes>` with the lanes of a program, or `Make<32>` for a type that has no lanes and so is no Program.
template <class P, template <int> class Make>
struct group_for {
  using type = Make<32>;
};
template <class P, template <int> class Make>
requires(P::lanes >= 1) struct group_for<P, Make> {
  using type = Make<P::lanes>;
};

}  // namespace detail

/// A program for every kind of group.
template <class P>
concept Program = ProgramOn<P, typename detail::group_for<P, detail::group_archetype>::type>;

namespace detail {

/// Whether a program's scratch follows the group, so that each architecture has a size of its own.
template <class P>
inline constexpr bool scratch_follows_group = has_scratch_for<P, typename group_for<P, group_archetype>::type>;

template <class P>
inline constexpr bool says_architectures = requires {
  P::from_architecture;
  P::before_architecture;
};
template <class P>
inline constexpr bool says_specific_architecture = requires {
  P::needs_specific_architecture;
};

/// Whether a program is meant for an architecture. It may say `from_architecture` and `before_architecture` as static
/// ints, and is then compiled for those alone. A program that says `needs_specific_architecture` is compiled for sm_90a
/// but not for sm_90.
template <class P>
[[nodiscard]] TESSERA_FN constexpr bool is_for_architecture(architecture tag) {
  bool is_meant = true;
  if constexpr (says_architectures<P>) {
    is_meant = number_of(tag) >= P::from_architecture && number_of(tag) < P::before_architecture;
  }
  if constexpr (says_specific_architecture<P>) {
    is_meant = is_meant && (is_specific(tag) || !P::needs_specific_architecture);
  }
  return is_meant;
}

}  // namespace detail

/// What CUDA devices from sm_80 on have for a program.
struct device_limits {
  static constexpr int warp = 32;                  ///< lanes of a warp
  static constexpr int lanes = 1024;               ///< the most lanes of a group
  static constexpr int program_bytes = 4000;       ///< the most bytes of a program
  static constexpr int shared_bytes = 227 * 1024;  ///< the most shared memory of a thread block, that of sm_90

  /// The most shared memory of a thread block on devices of an architecture, by the CUDA programming guide's table of
  /// compute capabilities: 163 KiB on sm_80 and sm_87, 99 on other sm_8x and on sm_12x, 227 on those between them.
  [[nodiscard]] TESSERA_FN static constexpr int shared_bytes_on(architecture tag) {
    int const number = number_of(tag);
    return number == 800 || number == 870                      ? 163 * 1024
           : number < 900 || (number >= 1200 && number < 1300) ? 99 * 1024
                                                               : shared_bytes;
  }

  /// The shared memory of a group: the program's scratch, and what a thread block's collectives exchange. Compiled: for
  /// which architecture, where the scratch follows the group.
  template <class P, architecture Compiled = architecture::host>
  static constexpr std::int64_t shared_bytes_of() {
    using scratch = scratch_for<P, detail::group_archetype_on<P::lanes, Compiled>>;
    constexpr std::int64_t alignment = alignof(scratch) > 16 ? static_cast<std::int64_t>(alignof(scratch)) : 16;
    constexpr std::int64_t bytes = std::is_empty_v<scratch> ? 0 : static_cast<std::int64_t>(sizeof(scratch));
    return (bytes + alignment - 1) / alignment * alignment + (P::lanes > warp ? P::lanes : 0);
  }
};

namespace detail {

/// Whether the scratch that a program has on an architecture fits there, if the program is for it.
template <class P, architecture Compiled>
[[nodiscard]] constexpr bool fits_on_one() {
  if constexpr (is_for_architecture<P>(Compiled)) {
    return device_limits::shared_bytes_of<P, Compiled>() <= device_limits::shared_bytes_on(Compiled);
  } else {
    return true;
  }
}
/// Whether it fits on each of these. Scratch that is the same for all need not fit everywhere.
template <class P, architecture... Compiled>
[[nodiscard]] constexpr bool fits_on() {
  if constexpr (scratch_follows_group<P>) {
    return (fits_on_one<P, Compiled>() && ...);
  } else {
    return device_limits::shared_bytes_of<P>() <= device_limits::shared_bytes;
  }
}

}  // namespace detail

// clang-format off
/// A program that CUDA devices can run, as far as its type says; whether it can be called, Program says. Those with
/// less shared memory than 227 KiB refuse a program that needs more than they have when it is launched. Scratch that
/// follows the group must fit on each architecture that the program is for.
template <class P>
concept DeviceProgram =
    (requires { requires (P::lanes >= 1); typename scratch_for<P, detail::group_archetype<P::lanes>>; }
        || because<"a Program has lanes and a scratch_type">) &&
    ((P::lanes % device_limits::warp == 0 && P::lanes <= device_limits::lanes)
        || because<"on CUDA a program has 32, 64, ... 1024 lanes">) &&
    (detail::fits_on<P, architecture::sm_90, architecture::sm_90a, architecture::sm_100, architecture::sm_100a>()
        || because<"the scratch of this program needs more than 227 KiB of shared memory">) &&
    (detail::fits_on<P, architecture::sm_80, architecture::sm_86, architecture::sm_89, architecture::sm_120>()
        || because<"scratch_for has more than 163 KiB on sm_80, or more than 99 KiB on sm_86, sm_89 or sm_120">) &&
    ((sizeof(P) <= device_limits::program_bytes)
        || because<"on CUDA a program has at most 4000 bytes; tables belong into buffers">);
// clang-format on

namespace detail {

/// A program that does nothing, to ask whether a type is an Executor.
struct program_archetype {
  static constexpr int lanes = 32;
  struct scratch_type {};
  template <class G>
  TESSERA_FN void operator()(G const&, std::int64_t, scratch_type&) const {}
};
static_assert(Program<program_archetype>);

}  // namespace detail
}  // namespace v0
}  // namespace tessera
