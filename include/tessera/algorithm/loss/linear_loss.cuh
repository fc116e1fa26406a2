// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The loss of a linear classifier on CUDA devices. On sm_90a it runs by warpgroups and TMA, where rows of hidden
/// states, of the classifier and of their gradients begin at multiples of 16 bytes: the forward pass for any Reducer
/// whose state has at most 400 bytes and for all operands but float (linear_loss::is_for_warpgroups says so), the
/// backward pass for operands of 16 bits. From sm_80 on it runs by mma.sync from a ring of stages (gemm_ring.cuh),
/// where such rows begin and end at multiples of 16 bytes. Otherwise the portable programs run, with mma.sync.
///
/// Reducers of the library take a few instructions for each logit, others call their push() (row_fold.hpp). Times on an
/// H200, for bf16 and 8192 tokens, as multiples of the time of lse_reducer<float> (medians of alternating calls):
///
///     V, D                                         128256, 4096            256000, 2304
///                                                  forward   both passes   forward   both passes
///     loss_statistics                              1.011     1.004         1.014     1.005
///     log-sum-exp and a user's top 4, 48 bytes     1.005                   1.316     1.070
///     log-sum-exp and a user's own entropy         1.35                    1.89                  (a prototype's)
///
/// The push() of the last Reducer computes two exponentials. States of more than about 72 bytes do not fit into
/// registers.
///
/// linear_loss.hpp includes this header where nvcc compiles: call linear_loss as on the CPU, with a tessera::cuda
/// executor. No call waits or allocates. The programs for warpgroups also compute the logits of tokens without a label.
#pragma once

#include <cstdint>

#include <tessera/algorithm/loss/linear_loss.hpp>
#include <tessera/algorithm/loss/linear_loss_gradients.cuh>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/policy_of.hpp>
#include <tessera/exec/refusal.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/map/identity_logits.hpp>
#include <tessera/program/gemm/gemm_pingpong.cuh>
#include <tessera/program/gemm/gemm_ring.cuh>
#include <tessera/program/loss/detail/convert_entries.hpp>
#include <tessera/program/loss/detail/keep_rows.cuh>
#include <tessera/program/loss/entry_marks.hpp>
#include <tessera/program/loss/kept_softmaxes.hpp>
#include <tessera/program/loss/reduce_logits.cuh>
#include <tessera/reduce/logit_reducer.hpp>
#include <tessera/tile/cuda/gemm_tile.cuh>
#include <tessera/tile/row_schedule.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tuning/loss/linear_loss.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Why the forward pass's program for warpgroups does not take operands and extents, or none.
template <class T>
refusal refuses_loss_operands(matrix_view<T const> hidden, matrix_view<T const> classifier, std::int64_t vocabulary) {
  constexpr std::int64_t most = 0x7fffffff - 512;  // coordinates of tiles are 32-bit
  constexpr warpgroup_gemm_policy policy = policy_of<warpgroup_loss_tuning>(900);
  std::int64_t const tiles = divide_up(hidden.extent(0), std::int64_t{warpgroup_gemm_shape::block_rows}) *
                             divide_up(vocabulary, std::int64_t{policy.columns});
  return first_of(unless(hidden.extent(1) > 0, "there are no channels"),
                  unless(hidden.extent(0) < most && vocabulary < most && tiles < most / 4, "extents exceed 31 bits"),
                  unless(can_map(hidden), "TMA cannot load hidden states: rows begin at multiples of 16 bytes"),
                  unless(can_map(classifier), "TMA cannot load the classifier: rows begin at multiples of 16 bytes"));
}

/// The launches of a forward pass that leaves marks: one for each part of the vocabulary. Between launches the workers
/// that share a row exchange what they know of its log-sum-exp. Parts grow, and are rounded up so that all workers are
/// busy. Without marks there is one launch.
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
      schedules[count++] = whole.of_positions(first, end);
      first = end;
      goal = max(goal, end) * (goal < soon ? 4 : 2);
    }
    schedules[count++] = whole.of_positions(first, whole.columns);
  }
  [[nodiscard]] std::int64_t states() const {
    std::int32_t states = 1;
    for (int i = 0; i < count; ++i) {
      states = max(states, schedules[i].states());
    }
    return states;
  }
};

/// Calls use(schedule) for each launch of a program whose tiles have so many columns: once for a matrix in memory, and
/// else for each band, whose rows of the source it enqueues before.
template <class Exec, class Call, class Use>
void each_band_of(Exec const& exec, Call const& call, row_schedule const& launch, std::int32_t columns,
                  Use const& use) {
  if constexpr (loss_tile<typename Call::tile>::has_source) {
    auto const& source = call.portable.logits.classifier;
    auto const most = static_cast<std::int32_t>(min(call.band.extent(0) / columns, std::int64_t{launch.columns}));
    loss_bands::make(launch, most).each([&](row_schedule const& schedule) {
      matrix_view<typename Call::value_type> band = call.band;
      band.extents[0] = std::int64_t{schedule.positions} * columns;
      convert_entries<std::remove_cvref_t<decltype(source)>, rows_of_positions> const convert{
          source, {schedule, columns, source.rows()}, band};
      exec.run(convert, convert.groups());
      use(schedule);
    });
  } else {
    use(launch);
  }
}

/// How many states rows have at most in such launches.
template <class Call>
std::int64_t states_of_bands(Call const& call, row_schedule const& launch, std::int32_t columns) {
  std::int32_t states = launch.states();
  if constexpr (loss_tile<typename Call::tile>::has_source) {
    auto const most = static_cast<std::int32_t>(min(call.band.extent(0) / columns, std::int64_t{launch.columns}));
    loss_bands::make(launch, most).each([&](row_schedule const& schedule) { states = max(states, schedule.states()); });
  }
  return states;
}

/// The schedule of a program of the forward pass.
template <class Tile>
using loss_schedule = std::conditional_t<loss_tile<Tile>::has_source, band_schedule, row_schedule>;

/// The matrix in memory that a program reads the classifier from.
template <class Call>
matrix_view<typename Call::value_type const> classifier_in_memory(Call const& call) {
  if constexpr (loss_tile<typename Call::tile>::has_source) {
    return call.band;
  } else {
    return call.portable.logits.classifier.matrix;
  }
}

/// Enqueues the forward pass's program for warpgroups. The marks of the call have room for as many bounds as states.
template <class Kernel, class Architectures, class Call>
loss_tiles_results run_warpgroup_loss(basic_cuda<Architectures> const& exec, Call const& call) {
  using statistics = typename Call::reducer;
  auto const& portable = call.portable;
  loss_marks marks = call.marks;
  constexpr char const* where = "linear_loss.forward";
  auto const hidden = portable.logits.hidden.matrix;
  auto const classifier = classifier_in_memory(call);
  std::int64_t const vocabulary = portable.logits.classifier.rows();
  int const multiprocessors = exec.state->multiprocessors();
  auto const tiles_of = [](std::int64_t extent, int size) {
    return static_cast<std::int32_t>(divide_up(extent, std::int64_t{size}));
  };
  auto const room = static_cast<std::int32_t>(min(portable.states.extent(0), std::int64_t{0x7fffffff}));
  row_schedule const schedule = row_schedule::make(
      tiles_of(hidden.extent(0), Kernel::rows), tiles_of(vocabulary, Kernel::columns),
      tiles_of(hidden.extent(1), Kernel::depth), 2 * max(multiprocessors / Kernel::blocks_per_cluster, 1), room);
  loss_launches const launches(schedule, marks.are_wanted());
  auto states = portable.states;
  states.extents[0] = 1;
  for (int i = 0; i < launches.count; ++i) {
    states.extents[0] = max(states.extent(0), states_of_bands(call, launches.schedules[i], Kernel::columns));
  }
  if (marks.are_wanted()) {
    marks.bounds.extents[0] = states.extent(0);
  }
  clear_loss_states<statistics> const clear{states, marks};
  exec.run(clear, clear.groups());
  Kernel program{make_tensor_map(where, hidden, {warpgroup_gemm_shape::block_rows, Kernel::depth}),
                 make_tensor_map(where, classifier, {Kernel::b_box_rows, Kernel::depth}),
                 {schedule},
                 {schedule, portable.tokens, states, portable.targets, portable.logits.scaling,
                  static_cast<std::int32_t>(vocabulary), portable.logits.map, marks, call.kept}};
  for (int i = 0; i < launches.count; ++i) {
    if (i > 0) {
      share_loss_bounds<statistics> const share{states, marks, portable.tokens.count};
      exec.run(share, share.groups());
    }
    each_band_of(exec, call, launches.schedules[i], Kernel::columns, [&](row_schedule const& band) {
      program.schedule = {band};
      program.epilogue.schedule = band;
      exec.run(program, std::int64_t{schedule.workers} / 2 * Kernel::blocks_per_cluster);
    });
  }
  return {states.extent(0), marks, call.kept.are_wanted()};
}

}  // namespace detail

/// gemm_pingpong with reduce_loss_rows: sm_90a, operands that TMA can load and states that are not too large.
struct reduce_logits_model {
  static constexpr char const* name = "reduce_logits (TMA, wgmma)";
  /// The program for a tile, a Reducer and a map of logits.
  template <class Tile, LogitReducer Statistics, LogitMap Map = identity_logits>
  using program = gemm_pingpong<typename loss_tile<Tile>::operand_name, detail::loss_schedule<Tile>,
                                reduce_loss_rows<typename loss_tile<Tile>::value_type, Statistics, Map>,
                                warpgroup_loss_policy<Statistics>>;

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    using tile = typename Call::tile;
    constexpr bool is_float = std::is_same_v<typename loss_tile<tile>::operand_name, float>;
    return first_of(unless(Exec::template is_compiled_for<900>, "this source is not compiled for sm_90a"),
                    unless(!is_float, "wgmma does not multiply fp32"),
                    unless(has_warpgroup_loss<tile, typename Call::reducer>,
                           "shared memory has no room for states of this Reducer beside the pipeline"));
  }
  template <class Architectures, class Tile, LogitReducer Statistics, LogitMap Map>
  static refusal refuses(basic_cuda<Architectures> const& exec, logit_reduction<Tile, Statistics, Map> const& call) {
    auto const& logits = call.portable.logits;
    return first_of(detail::refuses_loss_operands(logits.hidden.matrix, detail::classifier_in_memory(call),
                                                  logits.classifier.rows()),
                    exec.template lacks<program<Tile, Statistics, Map>>());
  }
  template <class Architectures, class Tile, LogitReducer Statistics, LogitMap Map>
  static void run(basic_cuda<Architectures> const& exec, logit_reduction<Tile, Statistics, Map> const& call) {
    *call.results = detail::run_warpgroup_loss<program<Tile, Statistics, Map>>(exec, call);
  }
};

/// gemm_ring with reduce_loss_rows: sm_80 and later, rows that begin and end at multiples of 16 bytes and states that
/// are not too large. It leaves no marks, and softmaxes where its backward pass can use them.
struct reduce_logits_by_ring_model {
  static constexpr char const* name = "reduce_logits by gemm_ring (cp.async, mma.sync)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    constexpr bool is_float = std::is_same_v<typename loss_tile<typename Call::tile>::operand_name, float>;
    return first_of(unless(!is_float, "mma.sync does not multiply fp32, only tf32"),
                    unless(policy_for<typename Call::reducer>.stages > 0,
                           "shared memory has no room for states of this Reducer beside the ring"));
  }
  template <class Architectures, class Tile, LogitReducer Statistics, LogitMap Map>
  static refusal refuses(basic_cuda<Architectures> const& exec, logit_reduction<Tile, Statistics, Map> const& call) {
    constexpr std::int64_t most = 0x7fffffff - 512;  // coordinates of tiles are 32-bit
    using chunks = dense_chunks<typename loss_tile<Tile>::value_type>;
    auto const hidden = call.portable.logits.hidden.matrix;
    auto const classifier = detail::classifier_in_memory(call);
    std::int64_t const vocabulary = call.portable.logits.classifier.rows();
    std::int64_t const tiles =
        divide_up(hidden.extent(0), std::int64_t{128}) * divide_up(vocabulary, std::int64_t{128});
    return first_of(
        exec.template lacks<program<logit_reduction<Tile, Statistics, Map>>>(),
        unless(hidden.extent(1) > 0, "there are no channels"),
        unless(hidden.extent(0) < most && vocabulary < most && hidden.extent(1) < most && tiles < most / 4,
               "extents exceed 31 bits"),
        unless(chunks::suits(hidden), "rows of hidden states do not begin and end at multiples of 16 bytes"),
        unless(chunks::suits(classifier), "rows of the classifier do not begin and end at multiples of 16 bytes"));
  }
  template <class Architectures, class Tile, LogitReducer Statistics, LogitMap Map>
  static void run(basic_cuda<Architectures> const& exec, logit_reduction<Tile, Statistics, Map> const& call) {
    using call_type = logit_reduction<Tile, Statistics, Map>;
    if constexpr (can_keep<call_type> && detail::may_keep_by_rings<basic_cuda<Architectures>>) {
      if (call.kept.are_wanted() && has_references_in_signs(exec)) {
        return run_largest<true>(exec, call);
      }
    }
    run_largest<false>(exec, call);
  }

 private:
  /// Whether softmaxes may be kept of such a call.
  template <class Call>
  static constexpr bool can_keep = sizeof(typename Call::value_type) == 2 && leaves_logits<typename Call::map_type> &&
                                   !loss_tile<typename Call::tile>::has_source &&
                                   !has_reducer<entropy_reducer<float>, typename Call::reducer>;

  /// Runs the program with the largest tiles that the device has the shared memory for.
  template <bool Keeps, class Exec, class Call>
  static void run_largest(Exec const& exec, Call const& call) {
    if constexpr (policy_for<typename Call::reducer, true>.stages > 0) {
      if (!exec.template lacks<program<Call, true, Keeps>>()) {
        return run_by<program<Call, true, Keeps>, Keeps>(exec, call);
      }
    }
    run_by<program<Call, false, Keeps>, Keeps>(exec, call);
  }
  template <class Ring, bool Keeps, class Exec, class Call>
  static void run_by(Exec const& exec, Call const& call) {
    auto const& portable = call.portable;
    auto const hidden = portable.logits.hidden.matrix;
    auto const classifier = detail::classifier_in_memory(call);
    std::int64_t const vocabulary = portable.logits.classifier.rows();
    auto const tiles_of = [](std::int64_t extent, int size) {
      return static_cast<std::int32_t>(divide_up(extent, std::int64_t{size}));
    };
    auto const room = static_cast<std::int32_t>(min(portable.states.extent(0), std::int64_t{0x7fffffff}));
    row_schedule const schedule = row_schedule::make(
        tiles_of(hidden.extent(0), Ring::rows), tiles_of(vocabulary, Ring::columns),
        tiles_of(hidden.extent(1), Ring::depth), exec.state->multiprocessors() * Ring::blocks_per_multiprocessor, room);
    auto states = portable.states;
    states.extents[0] = detail::states_of_bands(call, schedule, Ring::columns);
    clear_loss_states<typename Call::reducer> const clear{states, {}};
    exec.run(clear, clear.groups());
    detail::each_band_of(exec, call, schedule, Ring::columns, [&](row_schedule const& band) {
      reduce_rows<Call, Ring::row_warps> const reduce{band,
                                                      portable.tokens,
                                                      states,
                                                      portable.targets,
                                                      portable.logits.scaling,
                                                      static_cast<std::int32_t>(vocabulary),
                                                      portable.logits.map,
                                                      {},
                                                      Keeps ? call.kept : kept_softmaxes<typename Call::value_type>{}};
      Ring const whole{{hidden}, {classifier}, {band}, {reduce}};
      exec.run(whole, band.workers);
    });
    *call.results = {states.extent(0), {}, Keeps};
  }

  template <LogitReducer Statistics, bool IsWide = false>
  static constexpr gemm_ring_policy policy_for = IsWide ? wide_loss_ring_policy(sizeof(loss_row_memory<Statistics, 1>))
                                                        : loss_ring_policy(sizeof(loss_row_memory<Statistics, 1>));
  /// The epilogue that reduces rows, of which so many warps have 64 columns each.
  template <class Call, int RowWarps>
  using reduce_rows =
      reduce_loss_rows<typename Call::value_type, typename Call::reducer, typename Call::map_type, RowWarps>;
  template <class Call, int RowWarps, bool Keeps>
  struct epilogue_of {
    using type = reduce_rows<Call, RowWarps>;
  };
  template <class Call, int RowWarps>
  struct epilogue_of<Call, RowWarps, true> {
    using type = keep_loss_rows<typename Call::value_type, typename Call::reducer, RowWarps>;
  };
  template <class Call, bool IsWide = false, bool Keeps = false>
  using program =
      gemm_ring<typename loss_tile<typename Call::tile>::operand_name, detail::loss_schedule<typename Call::tile>,
                typename epilogue_of<Call, policy_for<typename Call::reducer, IsWide>.columns / 64, Keeps>::type,
                policy_for<typename Call::reducer, IsWide>>;
};

/// The programs that CUDA devices have for this call.
template <class Architectures, class Tile, LogitReducer Statistics, LogitMap Map>
struct models_for<basic_cuda<Architectures>, logit_reduction<Tile, Statistics, Map>> {
  /// The list of models.
  using type = model_list<reduce_logits_model, reduce_logits_by_ring_model>;
};

}  // namespace v0
}  // namespace tessera
