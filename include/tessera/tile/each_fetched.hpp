// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `each_fetched`: a loop whose steps take what was read to registers while earlier steps ran.
///
///     fetched_tile in_flight[2];                                           // two steps are on their way
///     each_fetched(
///         step_range{first, end, by}, in_flight,
///         [&](int step, fetched_tile& to) { source.fetch(group, to, first_row, std::int64_t{step} * depth); },
///         [&](int step, fetched_tile const& from) {                        // tile/source/fetched_source.hpp
///           source.store(group, from, tile);
///           multiply(tile, step);
///         });
///
/// What is on its way takes registers, and neither scratch nor a sync. Laws: fetch() and take() are called in the order
/// of the steps, and a step takes what was fetched for it. Whether there is another step is asked once for as many as
/// are on their way. So steps behind the last one, fewer than these, are taken too, and as many more are fetched. They
/// must change nothing: a source's tiles are zeros there. To ask in each step costs: gemm_few_rows takes on an H200 for
/// 8192 x 8192 weights of 8 bits 32.6 us with one row and 32.2 with 16, and by such a loop 33.4 and 33.6; of 4 bits
/// 26.4 and 28.8, and 27.8 and 30.8.
///
/// Steps that fill stages of a ring have each_fetched() of tile/cuda/sm_90/pipelined_ring.cuh.
#pragma once

#include <tessera/config.hpp>
#include <tessera/core/with_constant.hpp>

namespace tessera {
inline namespace v0 {

/// Steps `first`, `first + by`, ... below `end`. A step takes `by` stages of a ring, of which it uses the first.
struct step_range {
  int first;   ///< the first step
  int end;     ///< one past the last step
  int by = 1;  ///< steps, and stages, from a step to the next

  /// The first step.
  TESSERA_FN constexpr int start() const { return first; }
  /// What is_before() compares with.
  TESSERA_FN constexpr int stop() const { return end; }
  /// Whether a step is one of the range.
  TESSERA_FN static constexpr bool is_before(int index, int stop) { return index < stop; }
  /// The step after another one.
  TESSERA_FN constexpr int after(int index) const { return index + by; }
};

/// Calls fetch(step, registers), which starts to read, and take(step, registers), which waits for what was read, for
/// each step. Registers: of a step on its way; `Ahead` steps are.
template <class Registers, int Ahead, class Fetch, class Take>
TESSERA_FN void each_fetched(step_range const& steps, Registers (&in_flight)[Ahead], Fetch const& fetch,
                             Take const& take) {
  each_constant<Ahead>([&](auto i) { fetch(steps.first + i.value * steps.by, in_flight[i.value]); });
  for (int first = steps.first; first < steps.end; first += Ahead * steps.by) {
    each_constant<Ahead>([&](auto i) {  // known in each step, so that they are registers
      take(first + i.value * steps.by, in_flight[i.value]);
      fetch(first + (Ahead + i.value) * steps.by, in_flight[i.value]);
    });
  }
}

}  // namespace v0
}  // namespace tessera
