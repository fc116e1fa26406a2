// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `warpgroup_attention`: attention over quantized queries, keys and values by sm_90a's tensor cores: int8 for
/// scores and e4m3 for products with values (SageAttention2, arXiv 2411.10958), or e4m3 for both (FlashAttention-3,
/// arXiv 2407.08608, section 3.3).
///
/// The kernel is persistent and warp-specialised. A work item (`attention_work_item`) is a block of queries of one
/// head, or a split of its keys (attention/detail/forward_splits.hpp). One thread, the producer, loads the queries'
/// codes, and tiles of 128 keys and values through pipelines in shared memory, by TMA; or the three other warps of its
/// warpgroup make codes of queries (attention/detail/forward_queries.cuh). Three consumer warpgroups (four for 64
/// channels, two for 256) take 64 rows of queries each through all tiles that their rows see, from the last to the
/// first. For each tile a warpgroup
///
///  * multiplies queries by keys: S, 64 x 128 sums of products, in 64 registers of each thread;
///  * makes weights P of them (attention/detail/forward_softmax.cuh), four to a register, in the registers where the
///    tensor cores take them as the left operand: values are permuted so that no lane needs another lane's weights;
///  * multiplies P by values, with sums that begin at zero, and adds these to O in fp32 (two-level accumulation).
///
/// These steps follow each other; meanwhile the other warpgroups keep the tensor cores busy. Cycles of a multiprocessor
/// for a tile of a warpgroup without a mask, 64 x 128 scores (8192 8-bit operations a cycle, an instruction of a warp a
/// cycle on each of four schedulers), with a column of ones, by piecewise_linear_softmax. online_softmax takes 528
/// cycles more for exponentials, 16 a cycle. e4m3 queries and keys take fewer instructions:
///
///     channels   tensor cores   instructions   with e4m3
///     256        512 + 528      494            438
///     128        256 + 272      368            307
///      64        192 + 144      250            286 (128 + 144)
///
/// With 64 channels sums begin at 1.5 2^23, which tensor cores make in 64 cycles (attention/detail/line_products.cuh).
/// Terms (attention/detail/score_terms.cuh) are what sums begin at, where that is possible: about 110 instructions more
/// for a dense_bias; 30 fewer for scores of mean queries (attention/detail/correction_products.cuh) and a LinearBias.
///
/// Bytes: a thread block of 192 rows loads 256 bytes of each channel for 192 x 128 scores, which is 21 bytes a cycle
/// through L2 at the tensor cores' full speed; a block of 128 rows of 256 channels loads 31.
/// Queries and keys may have more channels than values (score_channels). Where a head has fewer channels than the
/// program, TMA fills queries and keys with zeros; values of the missing channels are whatever lies in shared memory.
/// Extents of sequences, which may differ, are looked up once for a work item and kept in shared memory. Work items
/// without a tile load nothing and write zeros. Tiles that need a mask have separate loops.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/bits.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/program/attention/detail/forward_band.hpp>
#include <tessera/program/attention/detail/forward_output.cuh>
#include <tessera/program/attention/detail/forward_pipeline.cuh>
#include <tessera/program/attention/detail/forward_queries.cuh>
#include <tessera/program/attention/detail/forward_softmax.cuh>
#include <tessera/program/attention/detail/forward_steps.cuh>
#include <tessera/program/attention/detail/line_products.cuh>
#include <tessera/program/attention/detail/listed_steps.cuh>
#include <tessera/program/attention/detail/score_terms.cuh>
#include <tessera/program/attention/detail/value_products.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/barrier.cuh>
#include <tessera/tile/cuda/sm_90/bulk_tensor.cuh>
#include <tessera/tile/cuda/sm_90/message_ring.cuh>
#include <tessera/tile/cuda/sm_90/pipelined_ring.cuh>
#include <tessera/tile/cuda/sm_90/register_budget.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tuning/attention/attention.hpp>

namespace tessera {
inline namespace v0 {

/// Attends over quantized operands. Channels: of values. Weighing: attention_weighing. Output: the type of results.
template <int Channels, class Weighing, class Output, warpgroup_attention_policy Policy>
struct warpgroup_attention {
  /// What is added to scores.
  using terms_type = typename Weighing::terms_type;
  using shape = warpgroup_attention_shape<Channels, Policy>;
  using pipeline_type = attention_pipeline<Channels, Policy, terms_type, Weighing::is_listed>;
  using scratch_type = typename pipeline_type::scratch_type;
  static constexpr int lanes = shape::lanes;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool needs_specific_architecture = true;
  static constexpr bool is_persistent = true;
  static constexpr bool waits_for_stream = true;

  pipeline_type pipeline;               ///< extents and maps of the operands
  attention_output<Output> output;      ///< where results of whole work items go
  attention_split_output split_output;  ///< where splits of the keys leave their results
  /// Queries whose codes the program makes; null: `pipeline` has their codes.
  uncoded_queries<Output, typename Weighing::score_code> queries;
  terms_type terms;  ///< what is added to scores

  /// Runs the thread block's work items. A launch has as many blocks as run at a time, or fewer.
  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t,
                                             scratch_type& scratch) const {
    pipeline.prepare(group, scratch);
    if constexpr (shape::makes_query_codes) {
      if (pipeline.query_coders > 0) {
        queries.encode_first_block(pipeline, group, scratch);
      }
    }
    int const warpgroup = uniform(group.lane / shape::warpgroup);
    if (warpgroup == Policy.consumers) {
      lower_registers<Policy.producer_registers>();
      int const warp = uniform(group.lane / 32) - 4 * Policy.consumers;
      if (group.lane == shape::warpgroup * Policy.consumers) {
        pipeline.produce(scratch);
      } else if (warp > 0) {
        help_producer(scratch, warp);
      }
    } else {
      raise_registers<Policy.consumer_registers>();
      consume(scratch);
    }
    group.sync();
  }

 private:
  /// What the other warps of the producer's warpgroup do: number 1 merges lists, 2 and 3 make operands of the scores of
  /// mean queries, or all of them make codes of queries.
  __device__ __forceinline__ void help_producer(scratch_type& scratch, int warp) const {
    if constexpr (Weighing::is_listed) {
      if (warp == 1) {
        pipeline.merge(scratch);
      }
    }
    if constexpr (pipeline_type::begins_at_corrections) {
      static_assert(decltype(scratch.begun)::converters == 2, "tessera: warps 2 and 3 make operands");
      if (warp > 1) {
        scratch.begun.convert(warp - 2, scratch.terms, scratch.key_scales, scratch.key_ring);
      }
    } else if constexpr (!Weighing::is_listed && shape::makes_query_codes) {
      if (pipeline.query_coders > 0) {
        queries.encode_next_blocks(pipeline, scratch, warp - 1);
      }
    }
  }

  using rows_type = typename Weighing::rows_type;
  using tile_reader = std::conditional_t<Policy.joins_rings, joined_reader<Policy.stages>,
                                         pair_reader<Policy.stages, 0, release_for_lane, release_for_warp>>;
  using query_step = read_step<shape::query_stages>;
  using warp_work_item = typename pipeline_type::warp_work_item;
  using score_mma = warpgroup_mma<typename Weighing::score_code, attention_tile_keys>;
  using products_type = value_products<Channels, Policy>;

  /// The state of a consumer warpgroup, in registers.
  struct consumer_state {
    int warp;                                   ///< number of the warp among the consumers
    pair_state<Policy.stages, 0> tile;          ///< stage in the pipelines of keys and of values
    typename pipeline_type::group_count group;  ///< how many groups of steps there were
    matrix_descriptor queries;                  ///< codes of this warpgroup's rows
    matrix_descriptor keys;                     ///< the first stage's codes of keys
    matrix_descriptor values;                   ///< the first stage's codes of values
    matrix_descriptor begun;                    ///< right operand of what sums begin at without terms
    /// Scales of the rows of all warpgroups, or that of the lane's rows.
    std::conditional_t<pipeline_type::keeps_query_scale, float, float const*> query_scales;
    typename score_mma::sum_type scores[score_mma::registers];
    typename rows_type::operands_type weights;
    typename products_type::outputs_type outputs;
    typename products_type::sets_type products;
    score_row_values<float> factor;  ///< what outputs are multiplied by before the products of `weights` are added
    rows_type rows;
  };

  __device__ __forceinline__ void consume(scratch_type& scratch) const {
    consumer_state state;
    state.warp = uniform(static_cast<int>(thread_index() / 32));
    state.keys = prepared(matrix_descriptor::rows_of<shape::row_bytes>(detail::plain_shared_address(scratch.key[0])));
    state.values = prepared(matrix_descriptor::rows_of<128>(detail::plain_shared_address(scratch.value[0])));
    if constexpr (pipeline_type::begins_at_base) {
      state.begun = prepared(scratch.begun.right_operand());
    }
    typename pipeline_type::query_state query;
    for (query_step const at : pipelined(late_reader(query), received_by_warp(scratch.work, query))) {
      attend(scratch, state, at);
    }
  }

  /// The descriptor, in a register if the policy keeps it there.
  __device__ __forceinline__ static matrix_descriptor prepared(matrix_descriptor const& operand) {
    if constexpr (Policy.keeps_descriptors) {
      return operand.kept();
    } else {
      return operand;
    }
  }

  /// Attends over a work item, which `at` has the number of.
  __device__ __forceinline__ void attend(scratch_type& scratch, consumer_state& state, query_step const& at) const {
    tile_reader const reads(scratch.key_ring, scratch.value_ring, state.tile);
    look_up(scratch, at.index, state.warp);
    shared_barrier& queries_are_read = begin_work(scratch, state, at);
    if constexpr (Weighing::is_listed) {
      attend_listed(scratch, state, reads);
      queries_are_read.arrive();
    } else {
      pass_over(reads, uniform(own(scratch, state).end - own(scratch, state).own_end));
      if (uniform(own(scratch, state).own_end - own(scratch, state).own_begin) > 0) {
        attend_tiles(scratch, state, reads);
      }
      queries_are_read.arrive();
      pass_over(reads, uniform(own(scratch, state).own_begin - own(scratch, state).begin));
    }
    finish(scratch, state);
  }

  /// Looks up what a warp needs of a work item and leaves it in shared memory, for registers are scarce. The warp's
  /// lanes no longer need what was there.
  __device__ __forceinline__ void look_up(scratch_type& scratch, std::int32_t index, int warp) const {
    sync_warp();
    warp_work_item found = pipeline.look_up(index, warp, row_of_warp(warp));
    if constexpr (!terms_type::is_none) {
      std::int32_t const sequence = found.head / pipeline.query_heads;
      std::int32_t const head = found.head % pipeline.query_heads;
      found.sequence = sequence;
      found.head_of_sequence = head;
      found.slope = terms.slope_of(sequence, head);
    }
    scratch.looked_up[warp] = found;  // at once: all lanes write it, and none may write an unfinished one after another
    sync_warp();
  }
  /// What look_up() has left for this warp; volatile, so that nothing of it stays in a register.
  __device__ __forceinline__ static warp_work_item const volatile& own(scratch_type const& scratch,
                                                                       consumer_state const& state) {
    return scratch.looked_up[state.warp];
  }

  /// Begins a work item, when its queries are there. Returns the barrier at which they are released.
  __device__ __forceinline__ shared_barrier& begin_work(scratch_type& scratch, consumer_state& state,
                                                        query_step const& query) const {
    state.queries = prepared(matrix_descriptor::rows_of<shape::row_bytes>(
        detail::plain_shared_address(scratch.query[query.stage]) +
        static_cast<std::uint32_t>(state.warp / 4 * shape::warpgroup_rows * shape::row_bytes)));
    float const* const query_scales = scratch.query_scales[query.stage];
    state.rows = {};
#pragma unroll
    for (float& output : state.outputs) {
      output = 0.0F;
    }
    shared_barrier& queries_are_read = query.when_full(scratch.query_ring);
    if constexpr (pipeline_type::keeps_query_scale) {
      state.query_scales = query_scales[thread_index_here() / 4];
    } else {
      state.query_scales = query_scales;
    }
    if constexpr (pipeline_type::begins_at_corrections) {
      std::int32_t const row = uniform(own(scratch, state).row);
      scratch.begun.set_rows(state.warp, query_scales, row / shape::warpgroup_rows,
                             uniform(own(scratch, state).queries) - row);
    }
    pipeline.route_large_scales(scratch, state.warp, query_scales,
                                rows_type::template most_scale<!terms_type::is_none>);
    return queries_are_read;
  }

  /// Attends from the last tile to the first, so that the masked tiles of causal attention come first. From the first
  /// full tile on no key is hidden because it lies before the keys that a row sees.
  __device__ __forceinline__ void attend_tiles(scratch_type& scratch, consumer_state& state,
                                               tile_reader const& reads) const {
    steps_from_last left{0, uniform(own(scratch, state).own_end)};
    for (pipeline_step const at : pipelined(reads, left.take_from(uniform(own(scratch, state).full_end)))) {
      do_tile<tile_mask::behind, tile_scales::small>(scratch, state, reads, known_tile{at.index});
    }
    attend_full_tiles(scratch, state, reads, left);
    for (pipeline_step const at : pipelined(reads, left.take_from(uniform(own(scratch, state).own_begin)))) {
      do_tile<tile_mask::both, tile_scales::any>(scratch, state, reads, known_tile{at.index});
    }
  }

  /// Attends over the tiles without a mask, and takes them from those that are left.
  __device__ __forceinline__ void attend_full_tiles(scratch_type& scratch, consumer_state& state,
                                                    tile_reader const& reads, steps_from_last& left) const {
    static_assert(terms_type::is_none || !Policy.has_first_tile_apart, "tessera: terms need the number of their tile");
    std::int32_t const full_begin = uniform(own(scratch, state).full_begin);
    if constexpr (Policy.has_first_tile_apart) {
      std::int32_t const others = left.take_from(max(full_begin, 1)).count();
      for (pipeline_step const at : pipelined(reads, steps_from_last{0, others})) {
        static_cast<void>(at);
        do_tile<tile_mask::none, tile_scales::small>(scratch, state, reads, known_tile{1});  // any tile but the first
      }
      if (full_begin > 0) {
        return;
      }
    }
    for (pipeline_step const at : pipelined(reads, left.take_from(full_begin))) {
      do_tile<tile_mask::none, tile_scales::small>(scratch, state, reads, known_tile{at.index});
    }
  }

  /// Takes the warpgroup's part in the steps through lists of tiles.
  __device__ __forceinline__ void attend_listed(scratch_type& scratch, consumer_state& state,
                                                tile_reader const& reads) const {
    walk_over_lists(
        scratch.steps, state.group, state.warp / 4, state.tile,
        [&] { return own(scratch, state).full_begin >= own(scratch, state).full_end; },
        [&](auto const& tile) {
          static_cast<void>(reads.begin_step(0));
          do_tile<tile_mask::none, tile_scales::small>(scratch, state, reads, tile);
        },
        [&](auto const& tile) {
          static_cast<void>(reads.begin_step(0));
          do_tile<tile_mask::both, tile_scales::any>(scratch, state, reads, tile);
        },
        [&] { pass_over_listed(reads, scratch.key_ring, scratch.value_ring, state.tile); });
  }

  /// Attends over the tile at `state.tile`, of which the keys are there. Tile: a known_tile or a listed_tile.
  template <tile_mask Mask, tile_scales Scales, class Tile>
  __device__ __forceinline__ void do_tile(scratch_type& scratch, consumer_state& state, tile_reader const& reads,
                                          Tile const& tile) const {
    if constexpr (terms_type::is_none) {
      constexpr bool has_begun = pipeline_type::begins_at_base;
      [[maybe_unused]] line_products::mma::a_tile left;
      if constexpr (has_begun) {
        line_products::make_left_of_base(left);
        line_products::start(state.scores, left, state.begun);
      }
      start_scores<has_begun>(state);
      lane_scales_read const scales = scales_of_lane(state.query_scales, scratch.key_scales[state.tile.stage]);
      std::int32_t const number = Mask == tile_mask::none ? 0 : tile.number();
      await_multiply<0>(state.scores);
      if constexpr (has_begun) {
        pin_registers(left);
      }
      float const scale = Weighing::is_listed ? scales.behind(state.scores[0], pipeline.keys < 0) : scales.product();
      reads.release_first(Mask == tile_mask::none ? scale : tile.behind(number, scale));
      key_limits const limits = limits_in_tile<Mask>(own(scratch, state), number);
      state.rows.template take<Mask, Scales, has_begun>(state.scores, scale, limits, tile.is_first(), state.factor);
    } else if constexpr (pipeline_type::begins_at_corrections && Scales == tile_scales::small) {
      take_begun<Mask>(scratch, state, reads, tile);
    } else if constexpr (pipeline_type::begins_at_line && Scales == tile_scales::small) {
      take_line<Mask>(scratch, state, reads, tile);
    } else {
      take_with_terms<Mask, Scales>(scratch, state, tile.number());
      reads.release_first(state.rows.reference(0) + state.rows.reference(1));  // they follow from all terms
    }
    state.rows.pack(state.scores, state.weights);
    if constexpr (!Weighing::is_listed) {  // else values are there when keys are
      static_cast<void>(reads.await_second());
    }
    products_type::run(state, state.tile.stage, pipeline.keys < 0);
    reads.release_second();
  }

  /// Makes weights of a tile's scores, whose sums begin at the scores of mean queries if these are not too far apart.
  template <tile_mask Mask, class Tile>
  __device__ __forceinline__ void take_begun(scratch_type& scratch, consumer_state& state, tile_reader const& reads,
                                             Tile const& tile) const {
    using correction_mma = warpgroup_mma<bfloat16, attention_tile_keys>;
    int const warpgroup = state.warp / 4;
    begin_multiply(state.scores);
    correction_mma::multiply(reinterpret_cast<float(&)[score_mma::registers]>(state.scores),
                             scratch.begun.left_of(warpgroup), scratch.begun.right_of(state.tile.stage), false);
    start_scores<true>(state);  // begins with a fence, as products of another type need (PTX ISA, wgmma.fence)
    auto const limits_of_tile = scratch.begun.limits[state.tile.stage][warpgroup];
    float const units = scratch.begun.units[state.warp];
    float const scale = scale_of_lane(state.query_scales, scratch.key_scales[state.tile.stage]);
    std::int32_t const number = Mask == tile_mask::none ? 0 : tile.number();
    await_multiply<0>(state.scores);
    key_limits const limits = limits_in_tile<Mask>(own(scratch, state), number);
    if (limits_of_tile.reach * units < scratch.begun.widest) {
      float const read = __fmaf_rn(scale, limits_of_tile.middle, limits_of_tile.reach);
      reads.release_first(Mask == tile_mask::none ? read : tile.behind(number, read));
      score_row_values<float> const offset{{{limits_of_tile.middle, limits_of_tile.middle}}};
      state.rows.template take_begun<Mask, terms_type>(state.scores, scale, offset, limits, tile.is_first(),
                                                       state.factor);
      return;
    }
    start_scores<false>(state);
    await_multiply<0>(state.scores);
    add_terms<Mask, tile_scales::small>(scratch, state, tile.number(), scale, limits);
    reads.release_first(state.rows.reference(0) + state.rows.reference(1));  // they follow from all terms
  }

  /// Makes weights of a tile's scores, whose sums begin at terms on a line if these are not too far apart.
  template <tile_mask Mask, class Tile>
  __device__ __forceinline__ void take_line(scratch_type& scratch, consumer_state& state, tile_reader const& reads,
                                            Tile const& tile) const {
    float const scale = scale_of_lane(state.query_scales, scratch.key_scales[state.tile.stage]);
    std::int32_t const number = tile.number();
    line_in_tile const line = terms.line_of(own(scratch, state), state.warp, number);
    float const quotient = line.slope * fast_reciprocal(scale);
    bool const has_begun = all_of_warp((line_products::has_room(quotient) & rows_type::has_room(line.offset)) != 0);
    line_products::mma::a_tile left;
    line_products::make_left(has_begun ? quotient : 0.0F, left);
    line_products::start(state.scores, left, scratch.begun.right_operand());
    start_scores<true>(state);
    await_multiply<0>(state.scores);
    pin_registers(left);
    reads.release_first(Mask == tile_mask::none ? scale : tile.behind(number, scale));
    key_limits const limits = limits_in_tile<Mask>(own(scratch, state), number);
    if (has_begun) {
      state.rows.template take_begun<Mask, terms_type>(state.scores, scale, line.offset, limits, tile.is_first(),
                                                       state.factor);
      return;
    }
    rows_type::end_at_base(state.scores);
    add_terms<Mask, tile_scales::small>(scratch, state, number, scale, limits);
  }

  /// Makes weights of a tile's scores, to which terms are added: before the products where that is possible, since it
  /// takes fewer instructions.
  template <tile_mask Mask, tile_scales Scales>
  __device__ __forceinline__ void take_with_terms(scratch_type& scratch, consumer_state& state,
                                                  std::int32_t tile) const {
    float const scale = scale_of_lane(state.query_scales, scratch.key_scales[state.tile.stage]);
    // Tiles with a mask are few: begun sums of these, too, would have ptxas spill more registers in all tiles.
    constexpr bool begins = Mask == tile_mask::none && Scales == tile_scales::small && Channels <= 128 &&
                            rows_type::begins_at_terms && !Policy.begins_at_products;
    score_row_values<float> offset;
    if constexpr (begins) {
      terms.template begin<rows_type>(own(scratch, state), state.warp, tile, staged(scratch, state), scale,
                                      state.scores, offset);
    }
    start_scores<begins>(state);
    await_multiply<0>(state.scores);
    if constexpr (begins) {
      score_row_values<std::int32_t> most;
      rows_type::largest_begun(state.scores, most);
      if (all_of_warp(rows_type::is_in_window(most, scale, offset)) || begins_inside(scratch, state, tile, scale)) {
        state.rows.template take_begun_from<Mask, terms_type>(state.scores, most, scale, offset, tile == 0,
                                                              state.factor);
        return;
      }
    }
    key_limits const limits = limits_in_tile<Mask>(own(scratch, state), tile);
    add_terms<Mask, Scales, begins>(scratch, state, tile, scale, limits);
  }
  /// Makes weights of a tile's sums of products, to which terms are added then. HasBegun: the sums began at terms.
  template <tile_mask Mask, tile_scales Scales, bool HasBegun = false>
  __device__ __forceinline__ void add_terms(scratch_type& scratch, consumer_state& state, std::int32_t tile,
                                            float scale, key_limits const& limits) const {
    row_terms added;
    make_terms<Mask>(scratch, state, tile, added);
    if constexpr (HasBegun) {
      rows_type::template end<terms_type>(state.scores, scale, added);
    }
    state.rows.template take<Mask, Scales>(state.scores, scale, added, limits, tile == 0, state.factor);
  }
  /// Whether the sums of a tile without a mask have begun where take_begun() may take them, which is found by making
  /// again what they began at.
  [[nodiscard]] __device__ __forceinline__ bool begins_inside(scratch_type const& scratch, consumer_state const& state,
                                                              std::int32_t tile, float scale) const {
    row_terms added;
    make_terms<tile_mask::none>(scratch, state, tile, added);
    typename rows_type::bits_type begun;
    rows_type::template begin<terms_type>(begun, scale, added);
    return all_of_warp(rows_type::is_begun(begun, added.first()));
  }
  /// Makes the terms of a tile. The compiler does not know that a second call makes the same as the first, whose terms
  /// it would otherwise keep in registers.
  template <tile_mask Mask>
  __device__ __forceinline__ void make_terms(scratch_type const& scratch, consumer_state const& state,
                                             std::int32_t tile, row_terms& added) const {
    std::int32_t own_tile[1] = {tile};
    pin_registers(own_tile);
    terms.template of_lane<Mask != tile_mask::none>(own(scratch, state), state.warp, own_tile[0],
                                                    staged(scratch, state), added);
  }
  /// The terms of the tile at `state.tile`.
  __device__ __forceinline__ static auto const& staged(scratch_type const& scratch, consumer_state const& state) {
    return scratch.terms[term_loader<terms_type>::is_none ? 0 : state.tile.stage];
  }

  /// Starts the products of this warpgroup's queries with 128 keys. With `Adds` they are added to the scores.
  template <bool Adds>
  __device__ __forceinline__ void start_scores(consumer_state& state) const {
    matrix_descriptor const keys = state.keys.further(state.tile.stage * shape::key_bytes);
    begin_multiply(state.scores);
#pragma unroll
    for (int step = 0; step < shape::depth_steps; ++step) {
      score_mma::multiply(state.scores, state.queries.further(shape::step_bytes(step, shape::rows)),
                          keys.further(shape::step_bytes(step, attention_tile_keys)), Adds || step != 0);
    }
    commit_multiply();
  }

  __device__ __forceinline__ void finish(scratch_type const& scratch, consumer_state& state) const {
    weighted_row rows[2];
    weighted_row::read(state.outputs, state.rows, rows);
    std::int32_t const slot = uniform(own(scratch, state).slot);
    if (slot >= 0) {
      split_output.template write_rows<Channels>(state.outputs, rows, slot,
                                                 state.warp / 4 * shape::warpgroup_rows + row_of_warp(state.warp));
      return;
    }
    std::int32_t const heads = pipeline.query_heads;
    std::int32_t const head = own(scratch, state).head;
    warp_rows const own_rows{head / heads, head % heads, pipeline.key_head_of(head),
                             own(scratch, state).row + row_of_warp(state.warp), own(scratch, state).queries};
    output.template write<Channels>(state.outputs, rows, own_rows);
  }

  /// The first row of a warp among its warpgroup's rows.
  __device__ __forceinline__ static std::int32_t row_of_warp(int warp) {
    return warp % 4 * 16;
  }
};

}  // namespace v0
}  // namespace tessera
