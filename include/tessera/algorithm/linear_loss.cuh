// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The loss of a linear classifier on CUDA devices: on sm_90a the forward pass by warpgroups and the copy engine, where
/// the reducer is lse_reducer<float> and rows of hidden states and of the classifier begin at multiples of 16 bytes;
/// else, and for the backward pass, the portable programs with mma.sync.
///
/// Include it and call linear_loss as on the CPU, with a tessera::cuda executor. Nothing waits or allocates. The
/// program for warpgroups multiplies tokens without a label, too.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/linear_loss.hpp>
#include <tessera/algorithm/linear_loss_gradients.cuh>
#include <tessera/exec/cuda.cuh>
#include <tessera/program/gemm_on_warpgroups.cuh>
#include <tessera/program/loss_marks.hpp>
#include <tessera/program/loss_on_warpgroups.cuh>
#include <tessera/tile/cuda/gemm_tile.cuh>
#include <tessera/tile/row_schedule.hpp>
#include <tessera/tuning/linear_loss.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Whether a product's operands and extents suit gemm_on_warpgroups.
template <class T>
bool suits_loss_on_warpgroups(matrix_view<T const> hidden, matrix_view<T const> classifier) {
  constexpr std::int64_t most = 0x7fffffff - 512;  // places of tiles are 32-bit
  constexpr warpgroup_gemm_policy policy = warpgroup_loss_tuning{}(900);
  const std::int64_t tiles = divide_up(hidden.extent(0), std::int64_t{warpgroup_gemm_shape::block_rows}) *
                             divide_up(classifier.extent(0), std::int64_t{policy.columns});
  return hidden.extent(1) > 0 && hidden.extent(0) < most && classifier.extent(0) < most && tiles < most / 4 &&
         can_map(hidden) && can_map(classifier);
}

/// Steps of a schedule after which workers learn of each other how much of the rows they share they have seen: when
/// about 8, 32 and 128 places are done. A launch for fewer steps than it is worth is left out.
struct loss_launches {
  std::int32_t ends[4];
  int count = 0;

  explicit loss_launches(row_schedule const& schedule, bool is_marking) {
    constexpr std::int32_t fewest_steps = 4;
    for (std::int32_t places = row_schedule::samples; is_marking && schedule.turns == 0 && places <= 128; places *= 4) {
      const std::int32_t end = divide_up(places, schedule.splits);
      if (end >= fewest_steps && end + fewest_steps <= schedule.last_step) {
        ends[count++] = end;
      }
    }
    ends[count++] = schedule.last_step;
  }
};

template <class Program, class Architectures, class Tile, class Reducer>
loss_tiles_results run_loss_on_warpgroups(basic_cuda<Architectures> const& exec,
                                          loss_tiles<Tile, Reducer> const& portable, loss_marks marks) {
  constexpr char const* where = "linear_loss.forward";
  const auto hidden = portable.logits.hidden.matrix;
  const auto classifier = portable.logits.classifier.matrix;
  int multiprocessors = 0;
  check_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, exec.state->device()), where,
             "cudaDeviceGetAttribute");
  const auto tiles_of = [](std::int64_t extent, int size) {
    return static_cast<std::int32_t>(divide_up(extent, std::int64_t{size}));
  };
  const auto room = static_cast<std::int32_t>(min(portable.states.extent(0), std::int64_t{0x7fffffff}));
  const row_schedule schedule = row_schedule::make(
      tiles_of(hidden.extent(0), Program::rows), tiles_of(classifier.extent(0), Program::columns),
      tiles_of(hidden.extent(1), Program::depth), max(multiprocessors / Program::blocks_per_cluster, 1), room);
  if (marks.are_wanted()) {
    exec.clear(array_view<std::uint32_t>(marks.live.data, marks.live.extent(0) * marks.live.extent(1)));
    marks.bounds.extents[0] = schedule.states();
  }
  Program program{make_tensor_map(where, hidden, {warpgroup_gemm_shape::block_rows, Program::depth}),
                  make_tensor_map(where, classifier, {Program::b_box_rows, Program::depth}),
                  schedule,
                  {schedule, portable.tokens, portable.states, portable.targets, portable.logits.map,
                   static_cast<std::int32_t>(classifier.extent(0)), marks}};
  const loss_launches launches(schedule, marks.are_wanted());
  for (int i = 0; i < launches.count; ++i) {
    program.schedule.last_step = launches.ends[i];
    program.epilogue.schedule = program.schedule;
    exec.run(program, std::int64_t{schedule.workers} * Program::blocks_per_cluster);
    program.schedule.first_step = launches.ends[i];
  }
  return {schedule.states(), marks};
}

}  // namespace detail

template <int... Architectures, class Tile, class Reducer>
loss_tiles_results run_loss_tiles(basic_cuda<arch_list<Architectures...>> const& exec,
                                  loss_tiles<Tile, Reducer> const& program, loss_marks const& marks) {
  using operand = typename loss_tile<Tile>::operand_name;
  using value_type = typename loss_tile<Tile>::value_type;
  constexpr bool has_hopper = ((Architectures == 900) || ...);
  if constexpr (has_hopper && !std::is_same_v<operand, float> && std::is_same_v<Reducer, lse_reducer<float>>) {
    using on_warpgroups =
        gemm_on_warpgroups<operand, row_schedule, reduce_loss_rows<value_type>, warpgroup_loss_tuning{}(900)>;
    if (detail::suits_loss_on_warpgroups(program.logits.hidden.matrix, program.logits.classifier.matrix) &&
        exec.template has<on_warpgroups>()) {
      return detail::run_loss_on_warpgroups<on_warpgroups>(exec, program, marks);
    }
  }
  exec.run(program, program.groups());
  return {program.states.extent(0), {}};
}

}  // namespace v0
}  // namespace tessera
