// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A program of a pipelined loop, and what it gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/tile/copies_in_flight.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/pipelined.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera_test {

using namespace tessera;

/// Adds up a list, 32 numbers a step, which each lane reads from another lane's copy.
template <int Stages>
struct pipelined_sum {
  static constexpr int lanes = 32;
  struct scratch_type {
    alignas(16) tile_chunk<float> chunks[Stages][8];
  };
  array_view<float const> numbers;
  array_view<float> sums;          ///< of each lane
  array_view<std::int32_t> order;  ///< steps in the order in which they ran

  template <class G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type& scratch) const {
    per_lane<float, G> sum;
    for (int lane : group) {
      sum[lane] = 0.0F;
    }
    auto const begin = [&, this](int step, int stage) {
      for (int lane : group) {
        if (lane < 8) {
          auto const* const from = reinterpret_cast<tile_chunk<float> const*>(numbers.data + 32 * step + 4 * lane);
          copies_in_flight<G>::begin(scratch.chunks[stage][lane], from, step % 5 != 3);
        }
      }
    };
    for (pipeline_step const at : pipelined<Stages>(group, static_cast<int>(numbers.size() / 32), begin)) {
      for (int lane : group) {
        int const other = 31 - lane;
        sum[lane] += scratch.chunks[at.stage][other / 4].values[other % 4];
        if (is_first(lane)) {
          order[at.index] = at.index;
        }
      }
    }
    for (int lane : group) {
      sums[lane] = sum[lane];
    }
  }
};

/// The same sums by rings whose lanes fill again what they have read: by a late_refiller, or by two ring_refillers that
/// take turns, one of even and one of odd steps.
template <bool IsLate>
struct refilled_sum {
  static constexpr int lanes = 32;
  static constexpr int stages = IsLate ? 3 : 2;
  struct scratch_type {
    alignas(16) tile_chunk<float> chunks[IsLate ? 1 : 2][stages][8];
  };
  array_view<float const> numbers;
  array_view<float> sums;
  array_view<std::int32_t> order;

  template <class G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type& scratch) const {
    per_lane<float, G> sum;
    for (int lane : group) {
      sum[lane] = 0.0F;
    }
    auto const steps = static_cast<int>(numbers.size() / 32);
    if constexpr (IsLate) {
      int next = 0;
      auto const fill = [&, this](int stage) { begin_copies(group, next++, scratch.chunks[0][stage]); };
      late_refiller<stages, G, decltype(fill)> ring(group, fill);
      ring.fill_all();
      for (int step = 0; step < steps; ++step) {
        pipeline_step const at = ring.begin_step(step);
        add(group, at.index, scratch.chunks[0][at.stage], sum);
        ring.end_step(step, 1);
      }
    } else {
      int next[2] = {0, 1};
      int stage[2] = {0, 0};
      auto const fill_even = [&, this](int to) { begin_copies(group, after(next[0]), scratch.chunks[0][to]); };
      auto const fill_odd = [&, this](int to) { begin_copies(group, after(next[1]), scratch.chunks[1][to]); };
      ring_refiller<stages, G, decltype(fill_even), 2> const even(group, stage[0], fill_even);
      ring_refiller<stages, G, decltype(fill_odd), 2> const odd(group, stage[1], fill_odd);
      for (int i = 0; i < stages; ++i) {
        even.fill(i);
        odd.fill(i);
      }
      for (int step = 0; step < steps; ++step) {
        if (step % 2 == 0) {
          add(group, step, scratch.chunks[0][even.begin_step(step).stage], sum);
          even.end_step();
        } else {
          add(group, step, scratch.chunks[1][odd.begin_step(step).stage], sum);
          odd.end_step();
        }
      }
    }
    copies_in_flight<G>::template await<0>();
    for (int lane : group) {
      sums[lane] = sum[lane];
    }
  }

 private:
  TESSERA_FN static int after(int& step) {
    step += 2;
    return step - 2;
  }
  template <class G>
  TESSERA_FN void begin_copies(G const& group, int step, tile_chunk<float> (&to)[8]) const {
    for (int lane : group) {
      if (lane < 8 && step < static_cast<int>(numbers.size() / 32)) {
        auto const* const from = reinterpret_cast<tile_chunk<float> const*>(numbers.data + 32 * step + 4 * lane);
        copies_in_flight<G>::begin(to[lane], from, step % 5 != 3);
      }
    }
  }
  template <class G>
  TESSERA_FN void add(G const& group, int step, tile_chunk<float> const (&from)[8], per_lane<float, G>& sum) const {
    for (int lane : group) {
      int const other = 31 - lane;
      sum[lane] += from[other / 4].values[other % 4];
      if (is_first(lane)) {
        order[step] = step;
      }
    }
  }
};

/// The same sums by each_fetched_in_rounds: numbers are on their way to registers, and zeros behind the last step.
/// `order` says which steps were taken once.
template <int Ahead>
struct fetched_sum {
  static constexpr int lanes = 32;
  struct scratch_type {};
  array_view<float const> numbers;
  array_view<float> sums;
  array_view<std::int32_t> order;

  template <class G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    per_lane<float, G> sum;
    for (int lane : group) {
      sum[lane] = 0.0F;
    }
    auto const steps = static_cast<int>(numbers.size() / 32);
    per_lane<float, G> in_flight[Ahead];
    each_fetched_in_rounds(
        step_range{0, steps}, in_flight,
        [&, this](int step, per_lane<float, G>& to) {
          for (int lane : group) {
            to[lane] = step < steps && step % 5 != 3 ? numbers[32 * step + 31 - lane] : 0.0F;
          }
        },
        [&, this](int step, per_lane<float, G> const& from) {
          for (int lane : group) {
            sum[lane] += from[lane];
            if (is_first(lane) && step < steps) {
              order[step] += step + 1;
            }
          }
        });
    for (int lane : group) {
      sums[lane] = sum[lane];
    }
  }
};

/// The numbers of so many steps, and the sums of each lane.
struct pipelined_sum_problem {
  std::vector<float> numbers;
  std::vector<float> sums = std::vector<float>(32, 0.0F);
  std::vector<std::int32_t> order;

  explicit pipelined_sum_problem(int steps) {
    for (int i = 0; i < 32 * steps; ++i) {
      numbers.push_back(static_cast<float>(i * 7 % 23));
      sums[static_cast<std::size_t>(31 - i % 32)] += i / 32 % 5 != 3 ? numbers.back() : 0.0F;
    }
    for (int step = 0; step < steps; ++step) {
      order.push_back(step);
    }
  }
};

}  // namespace tessera_test
