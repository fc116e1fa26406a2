// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tuning: an empty type that gives the numbers of a program (tile sizes, stages, lanes) for an architecture.
///
///     struct my_tuning {
///       struct policy_type { int rows; int stages; bool operator==(policy_type const&) const = default; };
///       TESSERA_FN constexpr policy_type operator()(int architecture) const {   // 900 on sm_90, 0 on a CPU
///         return architecture >= 900 ? policy_type{128, 4} : policy_type{64, 2};
///       }
///     };
///     constexpr auto policy = tessera::policy_of<my_tuning>(900);              // exec/policy_of.hpp
///
/// The architecture is numbered as nvcc does in its own macro: 890 is sm_89; it is 0 on a CPU. An
/// algorithm takes the policy of an architecture by policy_of(), and instantiates that architecture's kernel for it.
///
/// Laws, checked by `tessera::testing::check_laws<T>()`:
///   1. Every architecture has a policy, also the CPU's and one that is newer than the Tuning.
///   2. It is the same policy each time.
#pragma once

#include <concepts>
#include <type_traits>

#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

// clang-format off
template <class T>
concept Tuning =
    (requires { requires std::is_empty_v<T>; requires std::default_initializable<T>; }
        || because<"a Tuning is an empty type, because algorithms make it where they need it">) &&
    (requires {
       requires std::is_trivially_copyable_v<typename T::policy_type>;
       requires std::equality_comparable<typename T::policy_type>;
     } || because<"a Tuning names its numbers: a trivially copyable policy_type with operator==">) &&
    (requires(T const& t, int architecture) {
       requires std::is_same_v<decltype(t(architecture)), typename T::policy_type>;
     } || because<"a Tuning has policy_type operator()(int architecture) const">) &&
    (requires { typename std::bool_constant<(T{}(0), true)>; }
        || because<"a Tuning answers at compile time: constexpr policy_type operator()(int architecture) const">);
// clang-format on

}  // namespace v0
}  // namespace tessera
