// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The loss of a linear classifier on CUDA devices. On sm_90a it runs by warpgroups and TMA, where rows of hidden
/// states, of the classifier and of their gradients begin at multiples of 16 bytes: the forward pass for any Reducer
/// whose state has at most 400 bytes and for all operands but float (linear_loss::is_for_warpgroups says so), the
/// backward pass for operands of 16 bits. Otherwise the portable programs run, with mma.sync.
///
/// Reducers of the library take in a logit with a few instructions, others by their push() (row_fold.hpp). Times on an
/// H200, bf16, 8192 tokens, medians of calls in turn with those of lse_reducer<float>, as multiples of its time:
///
///     V, D                                         128256, 4096            256000, 2304
///                                                  forward   both passes   forward   both passes
///     loss_statistics                              1.011     1.004         1.014     1.005
///     log-sum-exp and a user's top 4, 48 bytes     1.005                   1.316     1.070
///     log-sum-exp and a user's own entropy         1.35                    1.89                  (a prototype's)
///
/// The last one's push() takes two exponentials. States of more than about 72 bytes do not fit into registers.
///
/// linear_loss.hpp includes this header where nvcc compiles: call linear_loss as on the CPU, with a tessera::cuda
/// executor. No call waits or allocates. The programs for warpgroups multiply tokens without a label, too.
#pragma once

#include <cstdint>

#include <tessera/algorithm/loss/linear_loss.hpp>
#include <tessera/algorithm/loss/linear_loss_gradients.cuh>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/policy_of.hpp>
#include <tessera/program/gemm/gemm_pingpong.cuh>
#include <tessera/program/loss/entry_marks.hpp>
#include <tessera/program/loss/kept_softmaxes.hpp>
#include <tessera/program/loss/logit_reducer.hpp>
#include <tessera/program/loss/reduce_logits.cuh>
#include <tessera/tile/cuda/gemm_tile.cuh>
#include <tessera/tile/row_schedule.hpp>
#include <tessera/tuning/loss/linear_loss.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Whether the operands and extents of the forward pass suit its program for warpgroups.
template <class T>
bool suits_loss_on_warpgroups(matrix_view<T const> hidden, matrix_view<T const> classifier) {
  constexpr std::int64_t most = 0x7fffffff - 512;  // coordinates of tiles are 32-bit
  constexpr warpgroup_gemm_policy policy = policy_of<warpgroup_loss_tuning>(900);
  std::int64_t const tiles = divide_up(hidden.extent(0), std::int64_t{warpgroup_gemm_shape::block_rows}) *
                             divide_up(classifier.extent(0), std::int64_t{policy.columns});
  return hidden.extent(1) > 0 && hidden.extent(0) < most && classifier.extent(0) < most && tiles < most / 4 &&
         can_map(hidden) && can_map(classifier);
}

/// The launches of a forward pass that leaves marks: one for each part of the vocabulary. Between launches the workers
/// that share a row learn from each other what they have seen of it. Parts grow, and are rounded up to what keeps all
/// workers busy. Without marks there is one launch.
struct loss_launches {
  static constexpr int most = 8;
  row_schedule schedules[most];
  int count = 0;

  loss_launches(row_schedule const& whole, bool is_marking) {
    constexpr std::int32_t soon = 128;
    std::int32_t first = 0;
    std::int32_t goal = row_schedule::samples;
    while (is_marking && count + 1 < most && goal < whole.columns) {
      std::int64_t const steps = divide_up(std::int64_t{goal - first} * whole.rows, std::int64_t{whole.workers});
      auto const end = max(first + static_cast<std::int32_t>(steps * whole.workers / max(whole.rows, 1)), goal);
      if (end >= whole.columns) {
        break;
      }
      schedules[count++] = whole.of_places(first, end);
      first = end;
      goal = max(goal, end) * (goal < soon ? 4 : 2);
    }
    schedules[count++] = whole.of_places(first, whole.columns);
  }
  [[nodiscard]] std::int64_t states() const {
    std::int32_t states = 1;
    for (int i = 0; i < count; ++i) {
      states = max(states, schedules[i].states());
    }
    return states;
  }
};

/// Enqueues the forward pass's program for warpgroups. `marks` has room for as many bounds as states.
template <class Program, class Architectures, class Tile, LogitReducer Statistics>
loss_tiles_results run_loss_on_warpgroups(basic_cuda<Architectures> const& exec,
                                          loss_tiles<Tile, Statistics> const& portable, loss_marks marks,
                                          kept_softmaxes<typename loss_tile<Tile>::value_type> const& kept) {
  constexpr char const* where = "linear_loss.forward";
  auto const hidden = portable.logits.hidden.matrix;
  auto const classifier = portable.logits.classifier.matrix;
  int const multiprocessors = exec.state->multiprocessors();
  auto const tiles_of = [](std::int64_t extent, int size) {
    return static_cast<std::int32_t>(divide_up(extent, std::int64_t{size}));
  };
  auto const room = static_cast<std::int32_t>(min(portable.states.extent(0), std::int64_t{0x7fffffff}));
  row_schedule const schedule = row_schedule::make(
      tiles_of(hidden.extent(0), Program::rows), tiles_of(classifier.extent(0), Program::columns),
      tiles_of(hidden.extent(1), Program::depth), 2 * max(multiprocessors / Program::blocks_per_cluster, 1), room);
  loss_launches const launches(schedule, marks.are_wanted());
  auto states = portable.states;
  states.extents[0] = launches.states();
  if (marks.are_wanted()) {
    exec.clear(array_view<std::uint32_t>(marks.live.data, marks.live.extent(0) * marks.live.extent(1)));
    marks.bounds.extents[0] = launches.states();
  }
  clear_loss_states<Statistics> const clear{states, marks};
  exec.run(clear, clear.groups());
  Program program{make_tensor_map(where, hidden, {warpgroup_gemm_shape::block_rows, Program::depth}),
                  make_tensor_map(where, classifier, {Program::b_box_rows, Program::depth}),
                  schedule,
                  {schedule, portable.tokens, states, portable.targets, portable.logits.map,
                   static_cast<std::int32_t>(classifier.extent(0)), marks, kept}};
  for (int i = 0; i < launches.count; ++i) {
    if (i > 0) {
      share_loss_bounds<Statistics> const share{states, marks, portable.tokens.count};
      exec.run(share, share.groups());
    }
    program.schedule = launches.schedules[i];
    program.epilogue.schedule = launches.schedules[i];
    exec.run(program, std::int64_t{schedule.workers} / 2 * Program::blocks_per_cluster);
  }
  return {states.extent(0), marks, kept.are_wanted()};
}

}  // namespace detail

/// Enqueues the reduction of rows of logits on CUDA devices: on sm_90a by wgmma where TMA can load the operands and
/// states are not too large, with marks and softmaxes where they are wanted; otherwise by the portable program.
template <int... Architectures, class Tile, LogitReducer Statistics>
loss_tiles_results run_loss_tiles(basic_cuda<arch_list<Architectures...>> const& exec,
                                  loss_tiles<Tile, Statistics> const& program, loss_marks const& marks,
                                  kept_softmaxes<typename loss_tile<Tile>::value_type> const& kept) {
  using operand = typename loss_tile<Tile>::operand_name;
  using value_type = typename loss_tile<Tile>::value_type;
  constexpr bool has_hopper = ((Architectures == 900) || ...);
  if constexpr (has_hopper && reduces_on_warpgroups<Tile, Statistics>) {
    using on_warpgroups = gemm_pingpong<operand, row_schedule, reduce_loss_rows<value_type, Statistics>,
                                        warpgroup_loss_policy<Statistics>>;
    if (detail::suits_loss_on_warpgroups(program.logits.hidden.matrix, program.logits.classifier.matrix) &&
        exec.template has<on_warpgroups>()) {
      return detail::run_loss_on_warpgroups<on_warpgroups>(exec, program, marks, kept);
    }
  }
  exec.run(program, program.groups());
  return {program.states.extent(0), {}, false};
}

}  // namespace v0
}  // namespace tessera
