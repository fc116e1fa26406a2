// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `attention_splits`: hands out attention's work items to thread blocks so that all blocks end at the same time. The
/// first work items are handed out whole, the last ones in ranges of equal cost, each of which may be the end of one
/// work item and the beginning of the next (stream-K). A work item that is in several ranges is cut into splits along
/// its keys (`attention_split`), whose results are merged (attention/detail/merge_forward_splits.hpp).
///
///     attention_load const load{.work_items = 12, .multiprocessors = 5, .most_ranges = 5, .is_even = true};
///     auto const splits = attention_splits::of(load, [](std::int32_t) { return 400; }, policy);
///     // turns 0 to 9: work items 0 to 9; turns 10 to 14: fifths of work items 10 and 11 together
///     for (std::int32_t id = splits.first(turn); id >= 0; id = splits.next(id)) {
///       attention_split const split = splits.at(id);      // of work split.work
///       tile_range const tiles = split.of(all_its_tiles);
///     }
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/program/attention/detail/forward_band.hpp>
#include <tessera/tuning/attention/attention.hpp>

namespace tessera {
inline namespace v0 {

/// A split of a work item: the part of its cost from `begin` to `end`.
struct attention_split {
  static constexpr std::int32_t most_cost = 65535;  ///< the most cost, and tiles, of a work item that is split

  std::int32_t work;   ///< number of the work item
  std::int32_t begin;  ///< where the split begins, in units of cost
  std::int32_t end;    ///< where the split ends, in units of cost
  std::int32_t cost;   ///< cost of the whole work item
  std::int32_t slot;   ///< the slot for the split's sums; -1: it is the whole work item

  /// The tiles of the split, of all tiles of its work item. These may be more or fewer than the cost was made for: each
  /// tile is in one split.
  [[nodiscard]] TESSERA_FN constexpr tile_range of(tile_range all) const {
    return slot < 0 ? all : all.between(all.begin + tile_at(begin, all.count()), all.begin + tile_at(end, all.count()));
  }

 private:
  [[nodiscard]] TESSERA_FN constexpr std::int32_t tile_at(std::int32_t at, std::int32_t tiles) const {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(at) * static_cast<std::uint32_t>(tiles) /
                                     static_cast<std::uint32_t>(cost));
  }
};

/// What is to be handed out, and to how many multiprocessors.
struct attention_load {
  std::int32_t work_items;       ///< the number of work items
  std::int32_t multiprocessors;  ///< multiprocessors that run at the same time
  std::int32_t most_ranges;      ///< the most ranges that there is memory for, two slots each
  bool is_even;                  ///< whether all work items cost about the same
};

struct attention_splits {
  static constexpr std::int32_t most_work_items = 255;  ///< the most work items that are handed out in ranges

  std::int32_t whole;                        ///< work items that are handed out whole, before the others
  std::int32_t work_items;                   ///< work items that are handed out in ranges
  std::int32_t ranges;                       ///< the number of ranges
  std::int32_t length;                       ///< cost of a range
  std::int32_t starts[most_work_items + 1];  ///< cost of the work items in ranges before each of them

  /// The best way to hand out a load: all work items whole, where that is no worse. `cost_of(work)`: at least 0.
  template <class CostOf>
  [[nodiscard]] static constexpr attention_splits of(attention_load const& load, CostOf const& cost_of,
                                                     attention_split_policy const& policy) {
    attention_splits const all_whole{load.work_items, 0, 0, 1, {}};
    std::int32_t const waves = load.work_items / load.multiprocessors;
    attention_splits found = all_whole;
    found.whole = load.is_even ? waves * load.multiprocessors : 0;
    found.work_items = load.work_items - found.whole;
    if (found.work_items == 0 || found.work_items > most_work_items || !found.add_up(cost_of)) {
      return all_whole;
    }
    std::int32_t const total = found.starts[found.work_items];
    std::int32_t const wanted = min(min(load.multiprocessors * policy.ranges, load.most_ranges), total / policy.least);
    if (wanted < 2) {
      return all_whole;
    }
    found.length = divide_up(total, wanted);
    found.ranges = divide_up(total, found.length);
    std::int64_t const before = load.is_even ? found.largest() : makespan(load, cost_of);
    std::int64_t const saved = before - found.cost_of_ranges(load, policy);
    std::int64_t const all = before + (load.is_even ? std::int64_t{waves} * found.largest() : 0);
    return saved > 0 && saved * policy.least_gain >= all ? found : all_whole;
  }

  /// The number of turns: whole work items and ranges. A thread block takes one turn after the other.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t turns() const { return whole + ranges; }

  /// The id of the first split of a turn; -1: there is no such turn.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t first(std::int32_t turn) const {
    if (turn < whole) {
      return turn;
    }
    std::int32_t const range = turn - whole;
    if (range >= ranges) {
      return -1;
    }
    std::int32_t low = 0;  // starts[low] <= range * length < starts[high]
    std::int32_t high = work_items;
    while (high - low > 1) {
      std::int32_t const middle = (low + high) / 2;
      if (starts[middle] <= range * length) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return whole + low * ranges + range;
  }

  /// The id of the next split of the same turn; -1: there is none.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t next(std::int32_t id) const {
    if (id < whole) {
      return -1;
    }
    std::int32_t const which = (id - whole) / ranges;
    std::int32_t const range = (id - whole) % ranges;
    return which + 1 < work_items && starts[which + 1] < (range + 1) * length ? id + ranges : -1;
  }

  /// The split with this id; its slot is -1 for a whole work item.
  [[nodiscard]] TESSERA_FN constexpr attention_split at(std::int32_t id) const {
    if (id < whole) {
      return {id, 0, 1, 1, -1};
    }
    std::int32_t const which = (id - whole) / ranges;
    std::int32_t const range = (id - whole) % ranges;
    std::int32_t const start = starts[which];
    std::int32_t const cost = starts[which + 1] - start;
    return {whole + which, max(range * length - start, 0), min((range + 1) * length - start, cost), cost,
            is_cut(which) ? slot(which, range) : -1};
  }

  // Below `which` counts the work items that are handed out in ranges; the first of them is work item `whole`.

  /// The range in which a work item begins.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t first_range(std::int32_t which) const {
    return starts[which] / length;
  }
  /// The range in which a work item ends.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t last_range(std::int32_t which) const {
    return (starts[which + 1] - 1) / length;
  }
  /// Whether a work item has more than one split.
  [[nodiscard]] TESSERA_FN constexpr bool is_cut(std::int32_t which) const {
    return first_range(which) != last_range(which);
  }
  /// The slot of a split. A range has at most two work items that are cut: one begins before the range or with it, one
  /// ends behind it.
  [[nodiscard]] TESSERA_FN constexpr std::int32_t slot(std::int32_t which, std::int32_t range) const {
    return 2 * range + (starts[which] > range * length ? 1 : 0);
  }

 private:
  /// Adds up the costs, and returns whether they are small enough. Each work item counts at least 1, so that it is in a
  /// range.
  template <class CostOf>
  [[nodiscard]] constexpr bool add_up(CostOf const& cost_of) {
    for (std::int32_t i = 0; i < work_items; ++i) {
      std::int64_t const cost = cost_of(whole + i);
      if (cost > attention_split::most_cost) {
        return false;
      }
      starts[i + 1] = starts[i] + static_cast<std::int32_t>(max(cost, std::int64_t{1}));
    }
    return true;
  }
  [[nodiscard]] constexpr std::int32_t largest() const {
    std::int32_t found = 0;
    for (std::int32_t i = 0; i < work_items; ++i) {
      found = max(found, starts[i + 1] - starts[i]);
    }
    return found;
  }

  [[nodiscard]] constexpr std::int64_t cost_of_ranges(attention_load const& load,
                                                      attention_split_policy const& policy) const {
    std::int64_t const splits_cost = std::int64_t{policy.split} * (work_items + ranges) / ranges;
    return divide_up(ranges, load.multiprocessors) * (length + splits_cost) + policy.merging;
  }

  /// When the last thread block is done, if each takes the next whole work item whenever it is done with one.
  template <class CostOf>
  [[nodiscard]] static constexpr std::int64_t makespan(attention_load const& load, CostOf const& cost_of) {
    std::int64_t busy[most_work_items] = {};
    std::int32_t const blocks = min(load.multiprocessors, load.work_items);
    std::int64_t latest = 0;
    for (std::int32_t work = 0; work < load.work_items; ++work) {
      std::int32_t next_free = work < blocks ? work : 0;
      for (std::int32_t block = 1; work >= blocks && block < blocks; ++block) {
        next_free = busy[block] < busy[next_free] ? block : next_free;
      }
      busy[next_free] += cost_of(work);
      latest = max(latest, busy[next_free]);
    }
    return latest;
  }
};

}  // namespace v0
}  // namespace tessera
