// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `policy_of<T>(architecture)`: the numbers that a Tuning gives to the programs of an architecture.
///
///     constexpr auto policy = tessera::policy_of<warpgroup_gemm_tuning>(900);
///     using program = gemm_cooperative<bfloat16, dense_schedule, epilogue, policy>;
///     static_assert(policy == tessera::policy_of<warpgroup_gemm_tuning>(tessera::architecture::sm_90a));
///
/// A program whose scratch follows the group has the numbers `policy_of<T>(architecture_of<G>)`.
#pragma once

#include <tessera/concepts/group.hpp>
#include <tessera/concepts/tuning.hpp>
#include <tessera/config.hpp>

namespace tessera {
inline namespace v0 {

/// The policy of `Chosen` for an architecture, numbered as nvcc does: 900 is sm_90, 0 a CPU.
template <Tuning Chosen>
[[nodiscard]] TESSERA_FN constexpr typename Chosen::policy_type policy_of(int architecture) {
  return Chosen{}(architecture);
}
/// The policy of `Chosen` where a Group is compiled, by the number of its architecture: sm_90 has that of sm_90a.
template <Tuning Chosen>
[[nodiscard]] TESSERA_FN constexpr typename Chosen::policy_type policy_of(architecture compiled) {
  return Chosen{}(number_of(compiled));
}

}  // namespace v0
}  // namespace tessera
