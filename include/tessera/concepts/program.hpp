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
/// Laws: tiles come in any order and at the same time, so no tile reads what another tile writes; scratch is
/// uninitialised; the laws of Group hold. Run a program on `testing::adversary` to see whether it keeps them.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

// clang-format off
/// A program for one kind of group, which is what an executor asks for.
template <class P, class G>
concept ProgramOn =
    (std::is_trivially_copyable_v<P>
        || because<"a Program is trivially copyable: it holds views and numbers and travels as bytes">) &&
    (requires { requires (P::lanes >= 1); }
        || because<"a Program has the size of its group: static constexpr int lanes = 32">) &&
    (requires { requires std::is_trivially_default_constructible_v<typename P::scratch_type>; }
        || because<"a Program names its shared memory, a trivial type: struct scratch_type {}">) &&
    (requires(P const& p, G const& group, typename P::scratch_type& scratch) { p(group, std::int64_t{}, scratch); }
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

/// What CUDA devices from sm_80 on have for a program.
struct device_limits {
  static constexpr int warp = 32;                  ///< lanes of a warp
  static constexpr int lanes = 1024;               ///< the most lanes of a group
  static constexpr int program_bytes = 4000;       ///< the most bytes of a program
  static constexpr int shared_bytes = 227 * 1024;  ///< the most shared memory of a thread block, that of sm_90

  /// The shared memory of a group: the program's scratch, and what a thread block's collectives exchange.
  template <class P>
  static constexpr std::int64_t shared_bytes_of() {
    using scratch = typename P::scratch_type;
    constexpr std::int64_t alignment = alignof(scratch) > 16 ? static_cast<std::int64_t>(alignof(scratch)) : 16;
    constexpr std::int64_t bytes = std::is_empty_v<scratch> ? 0 : static_cast<std::int64_t>(sizeof(scratch));
    return (bytes + alignment - 1) / alignment * alignment + (P::lanes > warp ? P::lanes : 0);
  }
};

// clang-format off
/// A program that CUDA devices can run, as far as its type says; whether it can be called, Program says. Those with
/// less shared memory than 227 KiB refuse a program that needs more than they have when it is launched.
template <class P>
concept DeviceProgram =
    (requires { requires (P::lanes >= 1); typename P::scratch_type; }
        || because<"a Program has lanes and a scratch_type">) &&
    ((P::lanes % device_limits::warp == 0 && P::lanes <= device_limits::lanes)
        || because<"on CUDA a program has 32, 64, ... 1024 lanes">) &&
    ((device_limits::shared_bytes_of<P>() <= device_limits::shared_bytes)
        || because<"the scratch of this program needs more than 227 KiB of shared memory">) &&
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
