// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `reduce_bands`: the forward pass of a loss whose classifier is a source, by the portable program.
#pragma once

#include <cstdint>

#include <tessera/concepts/executor.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/loss/detail/convert_entries.hpp>
#include <tessera/program/loss/logits.hpp>
#include <tessera/program/loss/reduce_logits.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Enqueues, for one band after the other, the making of its rows and the reduction of their logits, which adds to what
/// the bands before have left. Call: a logit_reduction.
template <Executor Exec, class Call>
void reduce_bands(Exec const& exec, Call const& call) {
  using source = typename loss_tile<typename Call::tile>::classifier_source;
  auto const& whole = call.portable;
  std::int64_t const vocabulary = whole.logits.classifier.rows();
  for (std::int64_t first = 0; first < vocabulary; first += call.band.extent(0)) {
    matrix_view<typename Call::value_type> band = call.band;
    band.extents[0] = min(band.extent(0), vocabulary - first);
    convert_entries<source, rows_in_order> const convert{whole.logits.classifier, {first}, band};
    exec.run(convert, convert.groups());
    loss_tiles<tile_with_band<typename Call::tile>, typename Call::reducer, typename Call::map_type> const some{
        banded_logits(whole.logits, band, first),
        whole.tokens,
        whole.reducer,
        whole.states,
        whole.targets,
        whole.splits};
    exec.run(some, some.groups());
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
