// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The cross-entropy of a linear classifier whose logits are never in memory.
///
///     using loss = tessera::linear_loss<gemm_tile<bfloat16, shape<64, 64, 16>>, lse_reducer<float>>;
///     auto const plan = loss::plan(exec, {tokens, vocabulary, channels});
///     loss::forward(exec, {hidden, classifier, labels}, options, {value}, tessera::workspace(plan, memory));
///
/// Equations, errors and costs: cut_cross_entropy.hpp, which is this with the paper's parameters. The portable program:
/// any executor, any extents and strides. Nothing waits or allocates.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/linear_loss_types.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/finish_loss.hpp>
#include <tessera/program/loss_tiles.hpp>
#include <tessera/program/loss_tokens.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/reduce/paired.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

/// What a forward pass needs and a backward pass finds again.
template <class Tile, class Reducer>
struct loss_regions {
  using layout = loss_tile<Tile>;
  workspace_plan plan;
  std::int64_t splits;
  region<std::int64_t> order;
  region<std::int64_t> row_of;
  region<std::int32_t> labels;
  region<std::int64_t> count;
  region<float> poison;
  region<float> targets;
  region<float> row_lse;
  region<float> row_entropy;
  region<float> scale;
  region<loss_sums> sums;
  region<typename Reducer::state_type> states;

  loss_regions(char const* where, linear_loss_shape const& shape)
      : plan(where),
        splits(splits_of(shape)),
        order(plan.add<std::int64_t>("tokens with a label", shape.tokens)),
        row_of(plan.add<std::int64_t>("places of tokens", shape.tokens)),
        labels(plan.add<std::int32_t>("their labels", shape.tokens)),
        count(plan.add<std::int64_t>("how many they are", 1)),
        poison(plan.add<float>("bad labels", 1)),
        targets(plan.add<float>("logits of labels", shape.tokens)),
        row_lse(plan.add<float>("log-sum-exps", shape.tokens)),
        row_entropy(plan.add<float>("entropies", shape.tokens)),
        scale(plan.add<float>("scale of gradients", 1)),
        sums(plan.add<loss_sums>("sums over tokens", divide_up(shape.tokens, std::int64_t{256}))),
        states(plan.add<typename Reducer::state_type>("states of rows",
                                                      checked_multiply(where, splits * layout::parts, shape.tokens))) {}

  /// Groups enough to fill any machine, whatever the extents; not a function of the machine, so that results are none.
  static std::int64_t splits_of(linear_loss_shape const& shape) {
    constexpr std::int64_t enough_groups = 1024;
    const std::int64_t rows = max(divide_up(shape.tokens, std::int64_t{layout::rows}), std::int64_t{1});
    const std::int64_t columns = divide_up(shape.vocabulary, std::int64_t{layout::columns});
    return clamp(divide_up(enough_groups, rows), std::int64_t{1}, max(columns, std::int64_t{1}));
  }

  loss_token_list token_list(workspace const& space) const {
    return {space[order], space[row_of], space[labels], space[count]};
  }
  matrix_view<typename Reducer::state_type> state_matrix(workspace const& space, std::int64_t tokens) const {
    return {space[states].data, {splits * layout::parts, tokens}};
  }
};

}  // namespace detail

/// Enqueues the reduction of rows of logits; gives how many states of each row it writes, at most as many as there is
/// room for. An executor with programs of its own overloads this for itself.
template <class Executor, class Tile, class Reducer>
std::int64_t run_loss_tiles(Executor const& exec, loss_tiles<Tile, Reducer> const& program) {
  exec.run(program, program.groups());
  return program.states.extent(0);
}

/// Tile: gemm_tile<T, shape<m, n, k>> with m and n of 64 or 128: what a group computes at a time. Reducer:
/// lse_reducer<float>, entropy_reducer<float>, or a paired_reducer that has one of them and arg_max_reducer<float> (for
/// predictions) or sum_reducer<float> (for smoothed labels).
template <class Tile, class Reducer = lse_reducer<float>, class Filter = gradient_filter<12>>
struct linear_loss {
  using layout = loss_tile<Tile>;
  using value_type = typename layout::value_type;
  template <class Label>
  using inputs = linear_loss_inputs<value_type, Label>;

  /// What forward() needs.
  template <class Executor>
  static workspace_plan plan(Executor const&, linear_loss_shape const& shape) {
    check_extents(shape);
    return regions(where, shape).plan;
  }

  /// Enqueues the loss. A label outside of the vocabulary is reported by exec.wait(). Throws shape_error or value_error
  /// for what does not fit together.
  template <class Executor, class Label>
  static void forward(Executor const& exec, inputs<Label> const& in, linear_loss_options const& options,
                      linear_loss_outputs const& out, workspace const& space) {
    const linear_loss_shape shape = check_inputs(where, in, options);
    check_outputs(shape, options, out);
    const regions places(where, shape);
    const loss_token_list tokens = places.token_list(space);
    const bool is_reduced = options.reduction != loss_reduction::none;
    const loss_token_outputs of_tokens{is_reduced ? array_view<float>{} : out.loss, out.log_sum_exp,
                                       out.log_probability, out.entropy, out.prediction};
    const std::int64_t sequence = max(options.sequence == 0 ? shape.tokens : options.sequence, std::int64_t{1});
    const label_rule rule{options.ignore_index, options.shift, sequence, shape.vocabulary};
    exec.run(select_loss_tokens<Label>{in.labels, rule, tokens, of_tokens, space[places.poison], exec.status()}, 1);
    auto states = places.state_matrix(space, shape.tokens);
    const loss_tiles<Tile, Reducer> tiles{logits_of(in, options, tokens), tokens,       {}, states,
                                          space[places.targets],          places.splits};
    states.extents[0] = shape.tokens > 0 ? run_loss_tiles(exec, tiles) : 0;
    const finish_loss_tokens<Reducer> finish{tokens,
                                             {},
                                             states,
                                             space[places.targets],
                                             in.weights,
                                             {options.smoothing, options.z_factor, shape.vocabulary},
                                             of_tokens,
                                             space[places.row_lse],
                                             space[places.row_entropy],
                                             space[places.sums]};
    exec.run(finish, finish.groups());
    const bool is_mean = options.reduction == loss_reduction::mean;
    const loss_total_outputs totals{is_reduced ? out.loss : array_view<float>{}, out.accuracy, out.labelled_count};
    exec.run(finish_loss{space[places.sums], tokens.count, space[places.poison], is_mean, totals, space[places.scale]},
             1);
  }

 private:
  using regions = detail::loss_regions<Tile, Reducer>;
  static constexpr char const* where = "linear_loss.forward";

  template <class Label>
  static loss_logits<Tile> logits_of(inputs<Label> const& in, linear_loss_options const& options,
                                     loss_token_list const& tokens) {
    return {{in.hidden, tokens.order}, {in.classifier}, {in.bias, options.softcap, 1.0F / options.temperature}};
  }

  static void check_extents(linear_loss_shape const& shape) {
    check<shape_error>(shape.tokens >= 0 && shape.channels >= 0, where, ": there are ", shape.tokens, " tokens of ",
                       shape.channels, " channels but neither must be negative");
    check<shape_error>(shape.vocabulary >= 1 && shape.vocabulary <= 0x7fffffff, where, ": the vocabulary has ",
                       shape.vocabulary, " entries but must have 1 to ", 0x7fffffff);
  }

  template <class Label>
  static linear_loss_shape check_inputs(char const* function, inputs<Label> const& in,
                                        linear_loss_options const& options) {
    const linear_loss_shape shape{in.hidden.extent(0), in.classifier.extent(0), in.hidden.extent(1)};
    check_extents(shape);
    check<shape_error>(in.classifier.extent(1) == shape.channels, function, ": the hidden states have ", shape.channels,
                       " channels but the classifier has ", in.classifier.extent(1));
    check<shape_error>(in.labels.size() == shape.tokens, function, ": there are ", in.labels.size(), " labels but ",
                       shape.tokens, " tokens");
    check<shape_error>(in.bias.data == nullptr || in.bias.size() == shape.vocabulary, function, ": the bias has ",
                       in.bias.size(), " values but the vocabulary has ", shape.vocabulary);
    check_length(function, "weights", in.weights, shape.tokens, "tokens");
    check<value_error>(options.temperature > 0 && options.temperature < infinity, function, ": the temperature is ",
                       options.temperature, " but must be positive and finite");
    check<value_error>(options.softcap >= 0 && options.softcap < infinity, function, ": the softcap is ",
                       options.softcap, " but must be finite and not negative");
    check<value_error>(options.smoothing >= 0 && options.smoothing <= 1, function, ": the smoothing is ",
                       options.smoothing, " but must be from 0 to 1");
    check<value_error>(is_finite(options.z_factor), function, ": the factor of the z-loss is ", options.z_factor,
                       " but must be finite");
    check<value_error>(options.smoothing == 0.0F || has_reducer<sum_reducer<float>, Reducer>, function,
                       ": the smoothing is ", options.smoothing, " but the reducer has no sum_reducer<float>");
    check<value_error>(options.sequence >= 0 && options.shift >= 0, function, ": the shift is ", options.shift,
                       " and the length of sequences ", options.sequence, " but neither must be negative");
    check<shape_error>(options.sequence == 0 || shape.tokens % options.sequence == 0, function, ": there are ",
                       shape.tokens, " tokens, which are no whole number of sequences of ", options.sequence);
    return shape;
  }

  static void check_outputs(linear_loss_shape const& shape, linear_loss_options const& options,
                            linear_loss_outputs const& out) {
    const bool is_reduced = options.reduction != loss_reduction::none;
    check<shape_error>(out.loss.size() == (is_reduced ? 1 : shape.tokens), where, ": the loss has ", out.loss.size(),
                       " elements but needs ", is_reduced ? 1 : shape.tokens);
    check_length(where, "log-sum-exps", out.log_sum_exp, shape.tokens, "tokens");
    check_length(where, "log-probabilities", out.log_probability, shape.tokens, "tokens");
    check_length(where, "entropies", out.entropy, shape.tokens, "tokens");
    check_length(where, "predictions", out.prediction, shape.tokens, "tokens");
    check_length(where, "accuracies", out.accuracy, 1, "results");
    check_length(where, "counts", out.labelled_count, 1, "results");
    check<value_error>(out.entropy.data == nullptr || has_reducer<entropy_reducer<float>, Reducer>, where,
                       ": entropies are asked for but the reducer has no entropy_reducer<float>");
    check<value_error>((out.prediction.data == nullptr && out.accuracy.data == nullptr) ||
                           has_reducer<arg_max_reducer<float>, Reducer>,
                       where, ": predictions are asked for but the reducer has no arg_max_reducer<float>");
  }

  /// A list that is there has the length that it should have.
  template <class T>
  static void check_length(char const* function, char const* what, array_view<T> list, std::int64_t length,
                           char const* of) {
    check<shape_error>(list.data == nullptr || list.size() == length, function, ": there are ", list.size(), " ", what,
                       " but ", length, " ", of);
    check<shape_error>(std::is_const_v<T> || list.size() < 2 || list.stride(0) != 0, function, ": the ", what, " have ",
                       list.size(), " elements with a stride of ", 0);
  }
};

}  // namespace v0
}  // namespace tessera
