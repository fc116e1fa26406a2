// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `order_entries`: the ordering of a vocabulary by marks of a forward pass, as a filtered backward pass on sm_90a
/// takes it.
#pragma once

#include <cstdint>

#include <tessera/concepts/executor.hpp>
#include <tessera/config.hpp>
#include <tessera/program/loss/entry_marks.hpp>
#include <tessera/program/loss/entry_order.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Which blocks of tokens and of slots have gradients. Call: a loss_gradient_call.
template <class Call>
matrix_view<std::uint8_t> alive_blocks_of(Call const& call) {
  return {call.space[call.regions.alive_blocks].data,
          {call.regions.token_blocks, call.regions.slot_blocks(call.shape)}};
}

/// Enqueues the ordering of entries by their marks. Clears the classifier's gradient first, unless it accumulates: rows
/// that no part writes are zeros.
template <Executor Exec, class Call>
void order_entries(Exec const& exec, Call const& call) {
  auto const& regions = call.regions;
  auto const& space = call.space;
  if (call.out.classifier.data != nullptr && !call.out.accumulate_classifier) {
    exec.clear(array_view<typename Call::gradient_type>(call.out.classifier.data,
                                                        call.shape.vocabulary * call.shape.channels));
  }
  loss_mark_reader const marks{{space[regions.live].data, {regions.token_blocks, regions.words}},
                               space[regions.is_marked]};
  loss_entry_order const order{space[regions.entry_of],     space[regions.slot_of], space[regions.class_of],
                               space[regions.class_counts], space[regions.alive],   space[regions.dead_blocks],
                               space[regions.in_order]};
  mark_labels const labels{marks, call.tokens};
  exec.run(labels, labels.groups());
  if constexpr (!Call::targets_type::are_labels) {
    call.targets.mark(exec, marks, call.tokens);
  }
  class_entries const classes{marks, order};
  exec.run(classes, classes.groups());
  scatter_entries const entries{order};
  exec.run(entries, entries.groups());
  find_alive_blocks const blocks_of_marks{marks, order, alive_blocks_of(call)};
  exec.run(blocks_of_marks, blocks_of_marks.groups());
  choose_order const choose{order, alive_blocks_of(call)};
  exec.run(choose, choose.groups());
}

/// Whether a call can take entries in another order: no gradient of the bias is wanted, which would need all entries,
/// and the classifier's gradient is contiguous, since it is cleared at once.
template <class Call>
bool can_order_entries(Call const& call) {
  auto const& classifier = call.out.classifier;
  return call.space[call.regions.alive].size() > 0 && call.out.bias.data == nullptr &&
         (classifier.data == nullptr || (classifier.stride(0) == classifier.extent(1) && classifier.stride(1) == 1));
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
