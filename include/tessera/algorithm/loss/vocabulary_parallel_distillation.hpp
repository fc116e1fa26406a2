// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `vocabulary_parallel` of a linear_distillation: the student's and the teacher's classifiers are spread over ranks.
/// Each rank has the same entries of both, all hidden states, and gets the same loss, its own rows of the student's
/// gradient, and the whole gradient of the student's hidden states.
///
///     #include <tessera/algorithm/loss/vocabulary_parallel_distillation.hpp>
///     #include <tessera/comm/loopback.hpp>
///     #include <tessera/map/jensen_shannon.hpp>
///
///     using whole_loss = tessera::linear_distillation<tessera::bfloat16, tessera::jensen_shannon>;
///     using loss = tessera::vocabulary_parallel<whole_loss>;
///     tessera::loopback ranks;                                         // or tessera::nccl of a ncclComm_t
///     auto const plan = loss::plan_backward(exec, ranks.size(), {tokens, own_entries, channels, teacher_channels});
///     tessera::buffer<std::byte> memory(exec, plan.bytes());
///     tessera::workspace const space(plan, memory);
///     loss::inputs const inputs{hidden, own_rows, teacher_hidden, own_teacher_rows};
///     loss::forward(exec, ranks, inputs, {first_entry, vocabulary}, {}, {value}, space);
///     loss::backward(exec, ranks, inputs, {first_entry, vocabulary}, {}, {}, {hidden_gradient, own_gradient}, space);
///
/// Options, divergences, sources as classifiers, maps of logits and programs are those of linear_distillation, run over
/// the rank's own entries. Biases and maps have a rank's own entries, counted from its first one; weights and upstream
/// gradients are of all tokens, and the same on each rank. A rank may have no entries. The hidden states' gradient is
/// contiguous; where it accumulates, the ranks' old gradients are the same.
///
/// Exchanges: the forward pass has one all_gather of a state of 20 bytes for each token, in which both log-sum-exps
/// are, and the divergence of forward_kl and reverse_kl; others need both log-sum-exps first, and a second all_gather
/// of 16 bytes for each token. They are merged in the order of the ranks, so that all ranks get the same bits. The
/// backward pass adds up the ranks' gradients of hidden states by all_reduce, in their own type: after all products, or
/// with a side queue beside those of the last part of the classifier's gradient.
///
/// Memory: that of the distillation of the rank's entries, and for each token (20 or 36) * ranks bytes. Parts are of
/// entries whatever the budget, since ranks exchange states of all tokens at once: a larger one makes larger parts, but
/// no gradients by logits are kept, and the forward pass has its products twice where both log-sum-exps come first.
///
/// Errors: as linear_distillation, with names of vocabulary_parallel where ranks are concerned; one rank that throws
/// leaves the others to its Communicator. What ranks were called with is compared as in vocabulary_parallel.hpp, by
/// another all_gather of 48 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/algorithm/loss/detail/check_ranks.hpp>
#include <tessera/algorithm/loss/detail/reduce_hidden.hpp>
#include <tessera/algorithm/loss/hidden_progress.hpp>
#include <tessera/algorithm/loss/linear_distillation.hpp>
#include <tessera/algorithm/loss/linear_distillation_types.hpp>
#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/algorithm/loss/vocabulary_parallel.hpp>
#include <tessera/concepts/comm/communicator.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/exec/status_calls.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/map/divergence.hpp>
#include <tessera/program/loss/detail/element_of.hpp>
#include <tessera/program/loss/detail/rank_rows.hpp>
#include <tessera/program/loss/logit_pairs.hpp>
#include <tessera/program/loss/stamp.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// What a distillation of a part of the vocabulary exchanges: see no_exchange.
template <mean_log_ratio Ratio, class Ranks>
struct rank_exchange {
  static constexpr std::int64_t fewest_entries = 0;
  static constexpr bool has_all_entries = false;

  Ranks& ranks;
  array_view<logit_pair_state> states;  ///< ranks x tokens
  array_view<divergence_row> rows;      ///< ranks x tokens; of no elements where none are exchanged

  template <class Exec>
  void merge(Exec const& exec, array_view<logit_pair_state> own) const {
    ranks.all_gather(exec, array_view<logit_pair_state const>(own), states);
    if (own.size() > 0) {
      merge_over_ranks<logit_pair_reducer<Ratio>> const merge_states{{states.data, {ranks.size(), own.size()}}, own};
      exec.run(merge_states, merge_states.groups());
    }
  }
  template <class Exec>
  void add(Exec const& exec, array_view<divergence_row> own) const {
    ranks.all_gather(exec, array_view<divergence_row const>(own), rows);
    if (own.size() > 0) {
      merge_over_ranks<divergence_row_merger> const add_rows{{rows.data, {ranks.size(), own.size()}}, own};
      exec.run(add_rows, add_rows.groups());
    }
  }
};

/// Of a backward pass, which exchanges nothing before the gradients.
struct rank_entries_only : no_exchange {
  static constexpr std::int64_t fewest_entries = 0;
  static constexpr bool has_all_entries = false;
};

/// The workspace: what ranks share, then the rank's own distillation.
struct rank_distillation_regions {
  workspace_plan plan;
  region<logit_pair_state> states;
  region<divergence_row> rows;
  region<std::uint32_t> call;
  region<std::uint32_t> calls;
  region<std::byte> own;

  /// `has_rows`: whether values are exchanged after log-sum-exps.
  rank_distillation_regions(char const* where, std::int64_t ranks, std::int64_t tokens, bool has_rows,
                            std::int64_t own_bytes, workspace_plan::record record)
      : plan(where, record),
        states(plan.add<logit_pair_state>("states of all ranks", checked_multiply(where, ranks, tokens))),
        rows(plan.add<divergence_row>("values of all ranks", has_rows ? checked_multiply(where, ranks, tokens) : 0)),
        call(plan.add<std::uint32_t>("what the rank is called with", rank_call::words)),
        calls(plan.add<std::uint32_t>("what all ranks are called with", checked_multiply(where, ranks, call.count))),
        own(plan.add<std::byte>("the rank's own distillation", own_bytes)) {}
};

}  // namespace detail

/// The distillation of classifiers that are spread over ranks.
template <class Operand, Divergence D, class Student, class Teacher>
struct vocabulary_parallel<linear_distillation<Operand, D, Student, Teacher>> {
  /// The distillation that each rank runs over its own entries.
  using own_loss = linear_distillation<Operand, D, Student, Teacher>;
  using value_type = typename own_loss::value_type;
  /// The inputs of a call.
  using inputs = typename own_loss::inputs;

  /// The workspace of forward() alone. `shape` has the rank's own part of the vocabulary, which may be nothing.
  template <Executor Exec>
  static workspace_plan plan_forward(Exec const&, std::int64_t ranks, distillation_shape const& shape,
                                     distillation_options const& options = {}) {
    detail::check_ranks(where, ranks);
    arguments::check_call(where, shape, options, 0);
    typename own_loss::template regions<float> const own(where, shape, options,
                                                         own_loss::template use_of<detail::rank_entries_only>);
    return regions(where, ranks, shape.tokens, has_rows, own.forward_bytes, workspace_plan::record::entries).plan;
  }
  /// The workspace that forward() and then backward() share.
  template <class Gradient = value_type, Executor Exec>
  static workspace_plan plan_backward(Exec const&, std::int64_t ranks, distillation_shape const& shape,
                                      distillation_options const& options = {}) {
    detail::check_ranks(back, ranks);
    arguments::check_call(back, shape, options, 0);
    typename own_loss::template regions<Gradient> const own(back, shape, options,
                                                            own_loss::template use_of<detail::rank_entries_only>);
    return regions(back, ranks, shape.tokens, has_rows, own.plan.bytes(), workspace_plan::record::entries).plan;
  }

  /// Enqueues the loss; all ranks call it.
  template <Executor Exec, Communicator<Exec> Ranks>
  static void forward(Exec const& exec, Ranks& ranks, inputs const& in, vocabulary_part const& part,
                      distillation_options const& options, distillation_outputs const& out, workspace const& space) {
    regions const at = checked_regions(exec, where, ranks.size(), in, part, space);
    detail::rank_exchange<detail::ratio_of<D>, Ranks> const exchange{ranks, space[at.states], space[at.rows]};
    own_loss::forward(exec, in, options, out, own_space(at, space), exchange);
    exec.run(detail::write_rank_call{call_of(in, part, options), space[at.call]}, 1);
    ranks.all_gather(exec, array_view<std::uint32_t const>(space[at.call]), space[at.calls]);
    matrix_view<std::uint32_t const> const calls(space[at.calls].data, {ranks.size(), at.call.count});
    exec.run(detail::compare_rank_calls{{calls, out.loss, status_of(exec, {where, "rank"})}}, 1);
  }

  /// The marks that a side queue needs.
  static constexpr int side_marks = 1;

  /// Enqueues the student's gradients; all ranks call it, after forward() with the same inputs, options and workspace.
  template <Executor Exec, Communicator<Exec> Ranks, class Gradient = value_type>
  static void backward(Exec const& exec, Ranks& ranks, inputs const& in, vocabulary_part const& part,
                       distillation_options const& options, array_view<float const> upstream,
                       linear_loss_gradients<Gradient> const& out, workspace const& space) {
    detail::reduce_after(back, exec, ranks, out, in.hidden.extent(1),
                         [&](linear_loss_gradients<Gradient> const& own, hidden_progress const& progress) {
                           own_backward(exec, ranks, in, part, options, upstream, own, space, progress);
                         });
  }
  /// The same, with the reduction on a side queue of the executor, beside the last products of the classifier's
  /// gradient.
  template <Executor Exec, Communicator<Exec> Ranks, class Gradient = value_type>
  static void backward(Exec const& exec, side_queue<Exec> const& side, Ranks& ranks, inputs const& in,
                       vocabulary_part const& part, distillation_options const& options,
                       array_view<float const> upstream, linear_loss_gradients<Gradient> const& out,
                       workspace const& space) {
    detail::reduce_beside(
        back, exec, side, ranks, out, in.hidden.extent(1), 0,
        [&](std::int64_t) { return max(out.hidden.extent(0), std::int64_t{1}); },
        [&](linear_loss_gradients<Gradient> const& own, hidden_progress const& progress) {
          own_backward(exec, ranks, in, part, options, upstream, own, space, progress);
        });
  }

  /// Enqueues the gradients of the rank's own entries, without any exchange: that of hidden states is the rank's part
  /// of a sum over ranks. `progress`: see linear_distillation.
  template <Executor Exec, class Ranks, class Gradient = value_type>
  static void own_backward(Exec const& exec, Ranks const& ranks, inputs const& in, vocabulary_part const& part,
                           distillation_options const& options, array_view<float const> upstream,
                           linear_loss_gradients<Gradient> const& out, workspace const& space,
                           hidden_progress const& progress) {
    regions const at = checked_regions(exec, back, ranks.size(), in, part, space);
    own_loss::backward(exec, in, options, upstream, out, own_space(at, space), detail::rank_entries_only{}, progress);
  }

 private:
  static constexpr char const* where = "vocabulary_parallel.forward";
  static constexpr char const* back = "vocabulary_parallel.backward";
  static constexpr bool has_rows = detail::ratio_of<D> == mean_log_ratio::none;
  using regions = detail::rank_distillation_regions;
  using arguments = typename own_loss::arguments;

  /// The regions of a workspace, of which the rank's own distillation has all that is left.
  template <class Exec>
  static regions checked_regions(Exec const& exec, char const* function, std::int64_t ranks, inputs const& in,
                                 vocabulary_part const& part, workspace const& space) {
    detail::check_part(function, detail::rows_in(in.classifier), part);
    check_reach(exec, function, "bytes of the workspace", space);
    std::int64_t const tokens = in.hidden.extent(0);
    std::int64_t const before =
        regions(function, ranks, tokens, has_rows, 0, workspace_plan::record::sizes).plan.bytes();
    space.check_room(function, before, ranks, " ranks with ", tokens, " tokens");
    return regions(function, ranks, tokens, has_rows, space.bytes() - before, workspace_plan::record::sizes);
  }
  /// What all ranks have in common, and how many entries this one has. Budgets may differ.
  static detail::rank_call call_of(inputs const& in, vocabulary_part const& part, distillation_options const& options) {
    loss_stamp of_options;
    of_options.add(loss_stamp::options, options.softcap, options.teacher_softcap);
    of_options.add(loss_stamp::options, options.temperature, 0.0F);
    of_options.add(loss_stamp::options, in.teacher_hidden.extent(1));
    auto const number = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
    return {{number(part.vocabulary), number(in.hidden.extent(1)), static_cast<std::uint64_t>(options.reduction),
             of_options.words[loss_stamp::options], number(detail::rows_in(in.classifier)), number(part.first)}};
  }
  /// The memory of the rank's own distillation, which checks that it is large enough.
  static workspace own_space(regions const& at, workspace const& space) {
    workspace_plan plan(where, workspace_plan::record::sizes);
    plan.add<std::byte>("the rank's own distillation", at.own.count);
    return {plan, array_view<std::byte>(space[at.own].data, plan.bytes())};
  }
};

}  // namespace v0
}  // namespace tessera
