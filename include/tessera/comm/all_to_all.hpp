// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `all_to_all`: every rank gives every rank a part of its list, by grouped sends and receives of any Communicator.
///
///     tessera::all_to_all(exec, ranks, by_receiver, by_sender);
///
/// Rank b's part of a's source becomes a's part of b's target. Both lists are contiguous, have size() parts of one
/// size, and must not overlap. Throws shape_error where the parts do not divide a list or the lists differ, and what
/// the communicator throws. It refuses arguments within grouped(), so that the ranks of `threads` learn what one of
/// them refused.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/comm/detail/rank_elements.hpp>
#include <tessera/concepts/comm/communicator.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/execution_options.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {

/// Exchanges parts of lists between all ranks; see above.
template <Executor Exec, Communicator<Exec> Ranks, class T>
void all_to_all(Exec const& exec, Ranks& ranks, array_view<std::type_identity_t<T> const> source,
                array_view<T> target) {
  ranks.grouped([&] {
    bool const is_dry = detail::options_of(exec).is_dry;
    detail::check_communicated("all_to_all", "source", source, is_dry);
    detail::check_communicated("all_to_all", "target", target, is_dry);
    detail::check_same_size("all_to_all", source, target);
    std::int64_t const part = source.size() / ranks.size();
    check<shape_error>(part * ranks.size() == source.size(), "all_to_all: the source has ", source.size(),
                       " elements, which ", ranks.size(), " ranks do not share evenly");
    for (int other = 0; other < ranks.size(); ++other) {
      ranks.send(exec, array_view<T const>(source.data + other * part, part), other);
      ranks.receive(exec, other, array_view<T>(target.data + other * part, part));
    }
  });
}

}  // namespace v0
}  // namespace tessera
