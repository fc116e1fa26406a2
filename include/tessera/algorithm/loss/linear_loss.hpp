// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The cross-entropy of a linear classifier whose logits are never in memory.
///
///     #include <tessera/algorithm/loss/linear_loss.hpp>
///     #include <tessera/reduce/log_sum_exp.hpp>
///     #include <tessera/tile/gemm_tile.hpp>
///
///     using loss = tessera::linear_loss<gemm_tile<bfloat16, shape<64, 64, 16>>, lse_reducer<float>>;
///     auto const plan = loss::plan_forward(exec, {tokens, vocabulary, channels}, options);
///     loss::forward(exec, loss::inputs<std::int64_t>{hidden, classifier, labels}, options, {value},
///                   tessera::workspace(plan, memory));
///
/// Equations, errors and costs: cut_cross_entropy.hpp, an alias of linear_loss with the paper's parameters. The
/// portable program runs on any executor, with any extents and strides. No call waits or allocates.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include <tessera/algorithm/loss/detail/reduce_bands.hpp>
#include <tessera/algorithm/loss/hidden_progress.hpp>
#include <tessera/algorithm/loss/linear_loss_arguments.hpp>
#include <tessera/algorithm/loss/linear_loss_gradients.hpp>
#include <tessera/algorithm/loss/linear_loss_regions.hpp>
#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/concepts/refused_call.hpp>
#include <tessera/config.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/mix_bits.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/program_name.hpp>
#include <tessera/exec/status_calls.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/map/identity_logits.hpp>
#include <tessera/program/loss/detail/rank_rows.hpp>
#include <tessera/program/loss/end_loss_forward.hpp>
#include <tessera/program/loss/entry_marks.hpp>
#include <tessera/program/loss/finish_loss.hpp>
#include <tessera/program/loss/gradient_products.hpp>
#include <tessera/program/loss/kept_softmaxes.hpp>
#include <tessera/program/loss/logit_gradient.hpp>
#include <tessera/program/loss/reduce_logits.hpp>
#include <tessera/program/loss/stamp.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/reduce/logit_reducer.hpp>
#include <tessera/reduce/paired.hpp>
#include <tessera/reduce/row_finish.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tuning/loss/linear_loss.hpp>

namespace tessera {
inline namespace v0 {

/// What the program that reduced the rows of logits has written to memory beside the states.
struct loss_tiles_results {
  std::int64_t states;  ///< the number of states of each row, at most as many as there is room for
  loss_marks marks;     ///< the marks that were made, to be checked; null if none were made
  bool has_softmaxes;   ///< whether the program kept the softmaxes that were wanted
};

/// The tiles and pipeline stages of sm_90a's program of the forward pass, for a Reducer.
template <LogitReducer Statistics>
inline constexpr warpgroup_gemm_policy warpgroup_loss_policy =
    warpgroup_loss_tuning{}.beside(sizeof(loss_row_memory<Statistics>));

/// Whether there is a program for sm_90a for a Tile and a Reducer: operands must not be float, and shared memory must
/// have room for enough pipeline stages beside the states of rows, which may have up to 400 bytes each.
template <class Tile, LogitReducer Statistics>
inline constexpr bool has_warpgroup_loss =
    !std::is_same_v<typename loss_tile<Tile>::operand_name, float> &&
    warpgroup_loss_policy<Statistics>.stages >= warpgroup_loss_tuning::fewest_stages;

/// The reduction of rows of logits, as run() takes it. Programs may also write marks and softmaxes for the backward
/// pass, if there is memory for them.
template <class Tile, LogitReducer Statistics, LogitMap Map = identity_logits>
struct logit_reduction {
  using tile = Tile;           ///< the tile of logits
  using reducer = Statistics;  ///< the Reducer that runs over rows of logits
  using map_type = Map;        ///< the map that logits go through
  using value_type = typename loss_tile<Tile>::value_type;
  static constexpr char const* function = "linear_loss.forward";

  loss_tiles<Tile, Statistics, Map> portable;  ///< the portable program with the operands
  loss_marks marks;                            ///< memory for marks, or null
  kept_softmaxes<value_type> kept;             ///< memory for softmaxes, or null
  loss_tiles_results* results;                 ///< on the host; the call describes there what its program has written
  /// Memory for rows of a classifier that is a source; of no rows where it is a matrix.
  matrix_view<value_type> band = {};
};

/// Enqueues the reduction by the portable program; run() (exec/run.hpp) may have a faster one.
template <Executor Exec, class Tile, LogitReducer Statistics, LogitMap Map>
void run_portably(Exec const& exec, logit_reduction<Tile, Statistics, Map> const& call) {
  if constexpr (loss_tile<Tile>::has_source) {
    detail::reduce_bands(exec, call);
  } else {
    exec.run(call.portable, call.portable.groups());
  }
  *call.results = {call.portable.states.extent(0), {}, false};
}

/// The loss and its gradients. Tile: gemm_tile<T, shape<m, n, k>> with m and n of 64 or 128, the tile that a group
/// computes at a time. Statistics: any LogitReducer, which is paired with an lse_reducer<float> unless it has a
/// log-sum-exp. entropy_reducer<float> gives entropies, arg_max_reducer<float> predictions, sum_reducer<float> smoothed
/// labels; paired_reducer joins them. Filter: a gradient_filter. Map: a LogitMap, which changes logits before the
/// softmax; its object is among the inputs.
template <class Tile, LogitReducer Statistics = lse_reducer<float>,
          class Filter = gradient_filter_for<typename loss_tile<Tile>::value_type>, LogitMap Map = identity_logits>
struct linear_loss {
  /// The tile of logits.
  using layout = loss_tile<Tile>;
  using value_type = typename layout::value_type;
  /// The Reducer that runs over rows of logits: `Statistics`, with a log-sum-exp beside it if it has none.
  using reducer_type = loss_reducer<Statistics>;
  /// The inputs of a call, with labels of type Label.
  template <class Label>
  using inputs = linear_loss_inputs<value_type, Label, Map, typename layout::classifier_type>;

  /// Whether forward() runs by warpgroups on sm_90a where TMA can load the operands (has_warpgroup_loss). Otherwise the
  /// program for sm_80 and later runs, in about twice the time, or the portable one (figures: program/loss/logits.hpp).
  static constexpr bool is_for_warpgroups = has_warpgroup_loss<Tile, reducer_type>;

  /// The workspace of forward() alone; plan_backward() plans one for both passes. Throws for wrong extents or options.
  template <Executor Exec>
  static workspace_plan plan_forward(Exec const&, linear_loss_shape const& shape,
                                     linear_loss_options const& options = {}) {
    arguments::check_extents(where, shape);
    arguments::check_options(where, shape, options);
    return forward_regions(where, shape, workspace_plan::record::entries, 0, options.workspace_budget).plan;
  }

  /// Enqueues the loss. exec.wait() reports a label outside of the vocabulary. Throws shape_error or value_error for
  /// arguments that do not fit together. In a workspace of plan_backward() the forward pass may also mark the entries
  /// that matter to backward(), or keep softmaxes for it. finish(row, token, state) is called where the executor runs,
  /// once for each token with a label, with the state of `Statistics` after all of the token's logits; `row` counts the
  /// tokens with a label.
  template <Executor Exec, class Label = std::int64_t,
            RowFinish<typename Statistics::state_type> Finish = keep_no_state>
  static void forward(Exec const& exec, inputs<Label> const& in, linear_loss_options const& options,
                      linear_loss_outputs const& out, workspace const& space, Finish const& finish = {}) {
    linear_loss_shape const shape = arguments::check_inputs(where, in, options);
    arguments::check_outputs(shape, options, out);
    mark_regions const regions =
        regions_of_forward(shape, options, entry_use(exec, options), kept_entries(exec, shape, options));
    arguments::check_room(where, space, regions.forward_bytes(), shape);
    arguments::check_input_places(exec, where, in, space);
    arguments::check_output_places(exec, out);
    check_finish(where, shape.tokens, finish);
    check_reach_of(exec, where, finish);
    loss_token_list const tokens = regions.token_list(space);
    bool const is_reduced = options.reduction != loss_reduction::none;
    loss_token_outputs const of_tokens{is_reduced ? array_view<float>{} : out.loss, out.log_sum_exp,
                                       out.log_probability, out.entropy, out.prediction};
    std::int64_t const sequence = max(options.sequence == 0 ? shape.tokens : options.sequence, std::int64_t{1});
    label_rule const rule{options.ignore_index, options.shift, sequence, shape.vocabulary};
    exec.run(select_loss_tokens<Label>{in.labels, rule, tokens, of_tokens, space[regions.poison],
                                       status_of(exec, {where, "token"})},
             1);
    auto states = regions.state_matrix(space, shape.tokens);
    loss_tiles<Tile, reducer_type, Map> const tiles{logits_of(in, options, tokens), tokens,        {}, states,
                                                    space[regions.targets],         regions.splits};
    loss_marks const marks = marks_of(exec, regions, shape, options, space);
    kept_softmaxes<value_type> const kept =
        regions.has_softmaxes(space) ? regions.kept_in(space, shape) : kept_softmaxes<value_type>{};
    loss_tiles_results reduced{0, {}, false};
    share_references(exec, in, tiles, kept);
    if (shape.tokens > 0) {
      auto const band = regions.band_rows(space, shape, regions.band_entries);
      run(exec, logit_reduction<Tile, reducer_type, Map>{tiles, marks, kept, &reduced, band});
    }
    if (kept.are_wanted()) {
      exec.run(set_softmaxes{kept.state, reduced.has_softmaxes ? kept.there : kept.none}, 1);
    }
    states.extents[0] = reduced.states;
    finish_loss_tokens<reducer_type, Statistics, Finish> const finish_tokens{
        tokens,
        {},
        states,
        space[regions.targets],
        {in.weights, in.class_weights},
        {options.smoothing, options.z_factor, shape.vocabulary},
        of_tokens,
        space[regions.row_lse],
        space[regions.row_entropy],
        finish,
        space[regions.sums]};
    exec.run(finish_tokens, finish_tokens.groups());
    bool const is_mean = options.reduction == loss_reduction::mean;
    loss_total_outputs const totals{is_reduced ? out.loss : array_view<float>{}, out.accuracy, out.labelled_count};
    loss_stamp const stamp =
        stamp_of(shape, options, regions.is_for_both(space), detail::kept_form(exec, kept.values.extent(1)));
    end_loss_forward<value_type, Label, typename layout::classifier_type> const end{
        {space[regions.sums], tokens.count, space[regions.poison], is_mean, totals, space[regions.scale]},
        {stamp, samples_of(in), space[regions.stamp]},
        {reduced.marks.are_wanted() ? reduced.marks : loss_marks{}, tokens, space[regions.row_lse], shape.vocabulary}};
    exec.run(end, end.groups());
  }

  /// The workspace that forward() and then backward() share; both must have these options. Gradient: see
  /// linear_loss_gradients. Throws as plan_forward() does.
  template <class Gradient = value_type, Executor Exec>
  static workspace_plan plan_backward(Exec const& exec, linear_loss_shape const& shape,
                                      linear_loss_options const& options = {}) {
    arguments::check_extents(back, shape);
    arguments::check_options(back, shape, options);
    return gradient_regions<Gradient>(back, shape, options, entry_use(exec, options),
                                      kept_entries(exec, shape, options))
        .plan;
  }

  /// Enqueues the gradients of a loss, after forward() with the same inputs, options and workspace. The results of
  /// forward() in the workspace stay valid, so that backward() may be called again, except for kept softmaxes (see
  /// workspace_budget): if there were any, forward() must run again before the next backward(). If the workspace holds
  /// another forward() or none, or its softmaxes are used up, gradients are NaN and exec.wait() throws value_error
  /// (program/loss/stamp.hpp). `upstream`: gradients of the final result by the outputs of forward(). `targets`: what
  /// soft_target_loss gives, whose tokens want more than a label. `progress`: who is told of whole hidden gradients.
  template <Executor Exec, class Label = std::int64_t, class Gradient = value_type, class Targets = label_targets>
  static void backward(Exec const& exec, inputs<Label> const& in, linear_loss_options const& options,
                       loss_upstream const& upstream, linear_loss_gradients<Gradient> const& out,
                       workspace const& space, Targets const& targets = {}, hidden_progress const& progress = {}) {
    static_assert(std::is_same_v<Gradient, float> || std::is_same_v<Gradient, value_type>,
                  "tessera: gradients of a loss are float or of the type of its inputs");
    linear_loss_shape const shape = arguments::check_inputs(back, in, options);
    arguments::check_gradients(shape, options, upstream, out);
    gradient_regions<Gradient> const regions =
        regions_of_backward<Gradient>(shape, options, entry_use(exec, options), kept_entries(exec, shape, options));
    arguments::check_room(back, space, regions.plan.bytes(), shape);
    arguments::check_input_places(exec, back, in, space);
    arguments::check_gradient_places(exec, upstream, out);
    loss_token_list const tokens = regions.token_list(space);
    array_view<float> const late_scale = space[regions.late_scale];
    check_loss_stamp<value_type, Label, typename layout::classifier_type> const check_stamp{
        stamp_of(shape, options, true, detail::kept_form(exec, regions.kept)), samples_of(in), regions.leavings(space),
        late_scale, status_of(exec, {back})};
    exec.run(check_stamp, 1);
    constexpr bool is_narrow = gradient_regions<Gradient>::has_narrow_gradient;
    prepare_loss_gradients const prepare{tokens,
                                         {in.weights, in.class_weights},
                                         space[regions.row_lse],
                                         space[regions.row_entropy],
                                         upstream,
                                         options.z_factor,
                                         options.reduction != loss_reduction::none,
                                         space[regions.scale],
                                         space[regions.rows],
                                         is_narrow ? space[regions.largest_factors] : array_view<float>{}};
    exec.run(prepare, prepare.groups());
    if constexpr (is_narrow && !Targets::are_labels) {
      targets.raise_bounds(exec, tokens, prepare.largest);
    }
    if constexpr (is_narrow) {
      scale_loss_gradients const scale{tokens.count, prepare.largest, in.map.steepest() / options.temperature,
                                       prepare.rows, late_scale};
      exec.run(scale, scale.groups());
    }
    detail::run_gradients(exec, loss_gradient_call<gradient_regions<Gradient>, Map, Targets>{
                                    shape, logits_of(in, options, tokens), in.hidden, tokens, options.smoothing,
                                    upstream.entropy.data != nullptr, thresholds_of(options), out, regions, space,
                                    status_of(exec, {back}), targets, progress});
    progress.tell(shape.tokens);
  }

  /// Enqueues, after forward(), other log-sum-exps and entropies for backward() than those that forward() has found:
  /// those of all logits, where this classifier is a part of another. Lists of an element for each token, of which the
  /// first are of the tokens with a label, in their order. Throws shape_error for other lists or too small a workspace.
  template <Executor Exec>
  static void replace_softmaxes(Exec const& exec, linear_loss_shape const& shape, linear_loss_options const& options,
                                array_view<float const> log_sum_exp, array_view<float const> entropy,
                                workspace const& space) {
    constexpr char const* function = "linear_loss.replace_softmaxes";
    check<shape_error>(log_sum_exp.size() == shape.tokens && entropy.size() == shape.tokens, function, ": there are ",
                       log_sum_exp.size(), " log-sum-exps and ", entropy.size(), " entropies but ", shape.tokens,
                       " tokens");
    check_reach(exec, function, "log-sum-exps", log_sum_exp, "entropies", entropy, "bytes of the workspace", space);
    mark_regions const regions =
        regions_of_forward(shape, options, entry_use(exec, options), kept_entries(exec, shape, options));
    arguments::check_room(function, space, regions.forward_bytes(), shape);
    detail::copy_rows const copy{space[regions.count], log_sum_exp, entropy, space[regions.row_lse],
                                 space[regions.row_entropy]};
    exec.run(copy, copy.groups());
  }

  /// Refuses calls of forward() with arguments that it does not take, and says at compile time what it takes.
  template <class Exec, class In = anything, class Options = linear_loss_options, class Out = linear_loss_outputs,
            class... More>
  requires(!(MadeOrBraces<In, linear_loss_inputs, value_type> && IsFirst<linear_loss_options, Options> &&
             IsFirst<linear_loss_outputs, Out> &&
             IsSpaceAndFinish<workspace, Statistics, More...>)) static void forward(Exec const&, In const&,
                                                                                    Options const&, Out const&,
                                                                                    More const&...) {
    refuse_forward<In>();
  }
  /// Refuses calls of forward() that give outputs before options, and says at compile time what it takes.
  template <class Exec, class In = anything, class Out = linear_loss_outputs, class... More>
  requires IsFirst<linear_loss_outputs, Out>
  static void forward(Exec const&, In const&, Out const&, linear_loss_options const&, More const&...) {
    refuse_forward<In>();
  }
  /// Refuses calls of forward() with braces that hold other things, and says at compile time what it takes.
  template <class... None>
  static void forward(anything, anything, linear_loss_options const&, linear_loss_outputs const&, anything) {
    refuse_forward<None...>();
  }

  /// Refuses calls of backward() with arguments that it does not take, and says at compile time what it takes.
  template <class Exec, class In = anything, class Options = linear_loss_options, class Upstream = loss_upstream,
            class Out = anything, class... More>
  requires(!(MadeOrBraces<In, linear_loss_inputs, value_type> && IsFirst<linear_loss_options, Options> &&
             IsFirst<loss_upstream, Upstream> && MadeOrBraces<Out, linear_loss_gradients> &&
             IsFirst<workspace, More...>)) static void backward(Exec const&, In const&, Options const&, Upstream const&,
                                                                Out const&, More const&...) {
    refuse_backward<In>();
  }
  /// Refuses calls of backward() with braces that hold other things, and says at compile time what it takes.
  template <class... None>
  static void backward(anything, anything, linear_loss_options const&, loss_upstream const&, anything, anything) {
    refuse_backward<None...>();
  }

 private:
  /// Enqueues choosing the references of tokens, where softmaxes that are kept share them.
  template <Executor Exec, class Label, class Tiles>
  static void share_references(Exec const& exec, inputs<Label> const& in, Tiles const& tiles,
                               kept_softmaxes<value_type> const& kept) {
    if constexpr (!layout::has_source) {
      if (kept.shares_references && kept.are_wanted()) {
        choose_references<value_type> const choose{
            tiles.tokens, {in.hidden}, {in.classifier}, tiles.logits.scaling, kept.shared_references, kept.is_uneven};
        exec.run(choose, choose.groups());
      }
    }
  }
  template <class... Given>
  static void refuse_forward() {
    static_assert(never<Given...>,
                  "tessera: linear_loss.forward takes an executor, inputs<Label>, linear_loss_options, "
                  "linear_loss_outputs, a workspace of plan_forward(), and perhaps a RowFinish, which is called with "
                  "the state of Statistics; in braces without a type Label is std::int64_t");
  }
  template <class... Given>
  static void refuse_backward() {
    static_assert(never<Given...>,
                  "tessera: linear_loss.backward takes an executor, inputs<Label>, linear_loss_options, loss_upstream, "
                  "linear_loss_gradients<Gradient> and a workspace of plan_backward(); in braces without a type Label "
                  "is std::int64_t, and Gradient what hidden states are");
  }

  using arguments = detail::linear_loss_arguments<value_type, reducer_type>;
  using forward_regions = detail::loss_regions<Tile, reducer_type>;
  using mark_regions = detail::loss_mark_regions<Tile, reducer_type>;
  template <class Gradient>
  using gradient_regions = detail::loss_gradient_regions<Tile, reducer_type, Filter, Gradient>;
  static constexpr char const* where = "linear_loss.forward";
  static constexpr char const* back = "linear_loss.backward";

  /// The budget counts where rows of a source have a band.
  static mark_regions regions_of_forward(linear_loss_shape const& shape, linear_loss_options const& options,
                                         detail::loss_entry_use use, detail::kept_entries kept) {
    thread_local detail::remembered_regions<mark_regions> last;
    std::int64_t const budget = layout::has_source ? options.workspace_budget : 0;
    return last.get({shape, kept, budget, use},
                    [&] { return mark_regions(where, shape, use, kept, workspace_plan::record::sizes, budget); });
  }
  template <class Gradient>
  static gradient_regions<Gradient> regions_of_backward(linear_loss_shape const& shape,
                                                        linear_loss_options const& options, detail::loss_entry_use use,
                                                        detail::kept_entries kept) {
    thread_local detail::remembered_regions<gradient_regions<Gradient>> last;
    return last.get({shape, kept, options.workspace_budget, use}, [&] {
      return gradient_regions<Gradient>(back, shape, options, use, kept, workspace_plan::record::sizes);
    });
  }

  static gradient_thresholds thresholds_of(linear_loss_options const& options) {
    return {options.hidden_threshold < 0 ? Filter::threshold : options.hidden_threshold,
            options.classifier_threshold < 0 ? Filter::threshold : options.classifier_threshold};
  }

  /// Whether something may be left out of gradients, and the executor takes entries in another order then.
  template <Executor Exec>
  static detail::loss_entry_use entry_use(Exec const& exec, linear_loss_options const& options) {
    gradient_thresholds const thresholds = thresholds_of(options);
    if (min(thresholds.hidden, thresholds.classifier) <= 0) {
      return leaves_logits<Map> ? detail::loss_entry_use::all : detail::loss_entry_use::mapped;
    }
    bool const orders = orders_entries(exec, std::type_identity<loss_gradient_tiles<Tile, Filter>>{});
    return orders ? detail::loss_entry_use::ordered : detail::loss_entry_use::marked;
  }

  /// The entries whose softmaxes a forward pass keeps: some only if nothing is left out, labels are not smoothed, no
  /// entropy can have a gradient, no map changes logits, the classifier is a matrix in memory and there is room.
  template <Executor Exec>
  static detail::kept_entries kept_entries(Exec const& exec, linear_loss_shape const& shape,
                                           linear_loss_options const& options) {
    gradient_thresholds const thresholds = thresholds_of(options);
    bool const in_signs = has_references_in_signs(exec);
    bool const can_keep = (in_signs ? has_ring_loss<Tile, reducer_type> : is_for_warpgroups) && leaves_logits<Map> &&
                          !layout::has_source && !has_reducer<entropy_reducer<float>, reducer_type> &&
                          options.smoothing == 0.0F && max(thresholds.hidden, thresholds.classifier) == 0 &&
                          options.workspace_budget > 0 && shape.tokens > 0 &&
                          keeps_softmaxes(exec, std::type_identity<loss_gradient_tiles<Tile, Filter>>{});
    return can_keep ? gradient_regions<value_type>::kept_within(back, shape, options.workspace_budget, in_signs)
                    : detail::kept_entries{};
  }
  /// Memory for marks, cleared, if the workspace has it and something may be left out of gradients. Notes there that no
  /// marks are made yet.
  template <Executor Exec>
  static loss_marks marks_of(Exec const& exec, mark_regions const& regions, linear_loss_shape const& shape,
                             linear_loss_options const& options, workspace const& space) {
    if (!regions.is_for_both(space)) {
      return {};
    }
    gradient_thresholds const thresholds = thresholds_of(options);
    loss_marks const marks = regions.marks(space, shape, min(thresholds.hidden, thresholds.classifier));
    if (marks.are_wanted()) {
      exec.clear(space[regions.marks_with_note()]);
    } else {
      exec.clear(space[regions.is_marked]);
    }
    return marks;
  }

  template <class Label>
  static loss_logits<Tile, Map> logits_of(inputs<Label> const& in, linear_loss_options const& options,
                                          loss_token_list const& tokens) {
    return {{in.hidden, tokens.order},
            typename layout::classifier_source{in.classifier},
            in.map,
            {in.bias, options.softcap, 1.0F / options.temperature}};
  }

  template <class Label>
  static loss_input_samples<value_type, Label, typename layout::classifier_type> samples_of(inputs<Label> const& in) {
    return {in.hidden, in.classifier, in.labels, in.bias, in.weights, in.class_weights};
  }

  /// A number for the types of the map and of a source: 0, or a hash of their names. A map's values are among the
  /// inputs, but not in the stamp.
  static constexpr std::int64_t number_of_names() {
    std::uint64_t number = 0;
    for (char const letter : leaves_logits<Map> ? std::string_view() : detail::text_with_name<Map>()) {
      number = mix_bits(number, static_cast<std::uint64_t>(letter));
    }
    using source = typename layout::classifier_source;
    for (char const letter : !layout::has_source ? std::string_view() : detail::text_with_name<source>()) {
      number = mix_bits(number, static_cast<std::uint64_t>(letter));
    }
    return static_cast<std::int64_t>(number);
  }

  /// A hash of the loss's types.
  static constexpr std::int64_t number_of_loss() {
    using traits = scalar_traits<value_type>;
    loss_stamp stamp;
    for (std::int64_t const number : {std::int64_t{traits::bits}, std::int64_t{traits::mantissa_bits},
                                      std::int64_t{std::is_same_v<typename layout::operand_name, value_type>},
                                      std::int64_t{layout::rows}, std::int64_t{layout::columns}, number_of_names(),
                                      std::int64_t{has_reducer<entropy_reducer<float>, reducer_type>},
                                      static_cast<std::int64_t>(sizeof(typename reducer_type::state_type))}) {
      stamp.add(loss_stamp::plan, number);
    }
    return static_cast<std::int64_t>(stamp.words[loss_stamp::plan]);
  }

  /// The stamp of a forward pass. `is_for_backward`: its workspace has room for what backward() needs, including
  /// softmaxes of `kept` entries, a detail::kept_form().
  static loss_stamp stamp_of(linear_loss_shape const& shape, linear_loss_options const& options, bool is_for_backward,
                             std::int64_t kept) {
    constexpr std::int64_t number_of_types = number_of_loss();
    loss_stamp stamp;
    stamp.set(loss_stamp::tokens, shape.tokens).set(loss_stamp::entries, shape.vocabulary);
    stamp.set(loss_stamp::channels, shape.channels);
    stamp.set(loss_stamp::reduction, static_cast<std::int64_t>(options.reduction));
    for (std::int64_t const number : {options.ignore_index, options.shift, options.sequence}) {
      stamp.add(loss_stamp::options, number);
    }
    gradient_thresholds const thresholds = thresholds_of(options);
    stamp.add(loss_stamp::options, options.softcap, options.temperature);
    stamp.add(loss_stamp::options, options.smoothing, options.z_factor);
    stamp.add(loss_stamp::options, thresholds.hidden, thresholds.classifier);
    stamp.add(loss_stamp::plan, std::int64_t{is_for_backward}).add(loss_stamp::plan, kept);
    stamp.add(loss_stamp::plan, number_of_types);
    if constexpr (layout::has_source) {
      stamp.add(loss_stamp::plan, options.workspace_budget);  // by which the regions after the band lie
    }
    return stamp;
  }
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/algorithm/loss/linear_loss.cuh>
#endif
