// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The programs by which a parameter_store updates a parameter of several parts: all of them, or none.
///
/// There is room to stage one part only. So the parts are encoded twice: the first time each of them is tried, which
/// changes the trial alone, the second time each of them is settled, unless the trial has found that one does not fit.
/// Both times the streams are the same, and room in the arena is claimed in the same order.
///
///     for (auto const& part : parts) {
///       encode(part);
///       exec.run(detail::try_part<T>{stream_of(part), trial, part.first == 0}, 1);
///     }
///     for (auto const& part : parts) {
///       encode(part);
///       exec.run(detail::settle_part<T>{stream_of(part), trial}, 1);
///       move(part);
///     }
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/program/weights/parameter_slots.hpp>
#include <tessera/tile/per_lane.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// What an update in parts would do.
struct update_trial {
  stream_record record;     ///< the record of the part that is tried
  overflow_state overflow;  ///< the state of the arena after the parts that were tried
  std::int64_t refused;     ///< the number of parts that nothing has room for
};

/// Finds out whether a staged part can be settled after those that were tried before it. Reports a part that cannot.
/// One group.
template <class T>
struct try_part {
  static constexpr int lanes = settle_stream<T>::lanes;
  using scratch_type = typename settle_stream<T>::scratch_type;
  parameter_stream<T> stream;
  update_trial* trial;
  bool is_first_part;  ///< begins a trial

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type& scratch) const {
    for (int lane : group) {
      if (tessera::is_first(lane)) {
        trial->record = *stream.record;
        if (is_first_part) {
          trial->overflow = *stream.overflow;
          trial->refused = 0;
        }
      }
    }
    group.sync();
    settle_stream<T> settle{stream};
    settle.stream.record = &trial->record;
    settle.stream.overflow = &trial->overflow;
    settle(group, 0, scratch);
    for (int lane : group) {
      if (tessera::is_first(lane)) {
        trial->refused += trial->record.moved_bytes == 0 ? 1 : 0;
      }
    }
  }
};

/// Does what settle_stream does, unless a part was refused: then the part keeps its old stream. One group.
template <class T>
struct settle_part {
  static constexpr int lanes = settle_stream<T>::lanes;
  using scratch_type = typename settle_stream<T>::scratch_type;
  parameter_stream<T> stream;
  update_trial const* trial;

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type& scratch) const {
    if (trial->refused == 0) {
      settle_stream<T>{stream}(group, 0, scratch);
      return;
    }
    for (int lane : group) {
      if (tessera::is_first(lane)) {
        stream.record->moved_bytes = 0;
        stream.record->moved_from = stream.spec.block_count();
      }
    }
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
