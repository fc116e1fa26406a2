// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What every policy of sm_90a's products must be, by the limits of a multiprocessor.
#pragma once

#include <tessera/concepts/tuning.hpp>
#include <tessera/tuning/gemm/linear.hpp>

namespace tessera_test {

/// Adds what a policy of warpgroup_gemm_policy must be to a Tuning: check_laws asks is_valid() for all architectures.
template <tessera::Tuning Chosen>
struct within_gemm_limits : Chosen {
  static constexpr bool is_valid(tessera::warpgroup_gemm_policy const& policy) {
    constexpr int shared_memory = 227 * 1024;
    constexpr int registers_at_entry = 168;  // 65536 registers for 384 threads, a multiple of 8
    bool const has_columns = policy.columns % 64 == 0 && policy.columns > 0 && policy.columns <= 256;
    bool const fits = policy.stages >= 2 && policy.stages * 128 * (128 + policy.columns) <= shared_memory;
    bool const are_budgets = policy.producer_registers % 8 == 0 && policy.consumer_registers % 8 == 0 &&
                             policy.producer_registers >= 24 && policy.consumer_registers <= 256;
    int const registers = policy.producer_registers + 2 * policy.consumer_registers;
    return has_columns && fits && are_budgets && policy.band >= 1 && (policy.blocks == 1 || policy.blocks == 2) &&
           registers <= 3 * registers_at_entry;
  }
};

}  // namespace tessera_test
