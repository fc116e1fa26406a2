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
///       TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
///         for (int lane : group) { values[which * lanes + lane] *= 2.0f; }
///       }
///     };
///     static_assert(tessera::Program<doubled>);
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
