// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Distillation of a linear classifier: how far a student's distributions are from those of a teacher that is given by
/// its own hidden states and classifier, with the student's gradients. Logits are in memory part by part.
///
///     #include <tessera/algorithm/loss/linear_distillation.hpp>
///     #include <tessera/map/reverse_kl.hpp>
///
///     using loss = tessera::linear_distillation<tessera::bfloat16, tessera::reverse_kl>;
///     auto const plan = loss::plan_backward(exec, {tokens, vocabulary, channels, teacher_channels});
///     tessera::buffer<std::byte> memory(exec, plan.bytes());
///     tessera::workspace const space(plan, memory);
///     loss::inputs const inputs{hidden, classifier, teacher_hidden, teacher_classifier};
///     loss::forward(exec, inputs, {}, {.loss = value}, space);
///     loss::backward(exec, inputs, {}, {}, {hidden_gradient, classifier_gradient}, space);
///     exec.wait();
///
/// For token i with the student's hidden state e_i and classifier rows c_j, and the teacher's f_i and d_j:
///
///     a_ij   = cap(e_i . c_j + bias_j) / temperature              q_i = softmax of a_i
///     b_ij   = teacher's cap(f_i . d_j + bias_j) / temperature    p_i = softmax of b_i
///     D_i    = sum_j value(log p_ij, log q_ij)                of the Divergence
///     loss   = weight_i D_i for each token, their sum, or that / the sum of weights; 0 where that is 0
///     G_ij   = upstream weight_i (s_ij - q_ij sum_k s_ik) * slope of the cap / temperature
///     hidden gradient = G C        classifier gradient = G^T E        bias gradient_j = sum_i G_ij
///
/// Divergences: forward_kl, reverse_kl, jensen_shannon, or a user's own (map/divergence.hpp). With a cross-entropy
/// beside it, call linear_loss, too, and give one of them the other's weight. Classifiers of another type, as fp32 or
/// fp8 with scales: with_classifier.hpp, with_teacher_classifier.hpp. Maps of logits: with_logit_maps.hpp. Classifiers
/// that are spread over ranks: vocabulary_parallel_distillation.hpp.
///
/// Cost: products of tokens x vocabulary x channels, as many as distillation_options::workspace_budget has room for; a
/// gradient that is null costs none. Programs beside them move bytes of each token and entry, here for 16 bits:
///
///     the budget has room for                            products            bytes
///     a part of the vocabulary (0: 384 MiB)              2 + 4 (4 + 4*)      16 + 22 (32 + 22*)
///     logits of 256 tokens, 8 bytes an entry             2 + 4               16 + 22 (24 + 22*)
///     those, and gradients of all tokens, 2 bytes        2 + 2               26 + 4 (34 + 4*)
///
/// * Divergences that are no mean of log-ratios, as jensen_shannon, read logits again once both log-sum-exps are known.
/// With room for gradients by logits of some tokens the others' are made again, and those copied beside them. They are
/// kept for losses that are reduced, whose upstream gradient is one number: without loss_reduction, each token's would
/// be rounded to 16 bits once more. Products are those of algorithm/gemm/linear.hpp, with its speed on each
/// architecture. Those of gradients take 16-bit operands as they lie, where rows of the student's hidden states and
/// classifier and of the gradients begin and end at multiples of 16 bytes and a part's entries are a multiple of 8.
/// Elsewhere, and with 4 bytes, they take transposed copies: for each token and entry two elements more are moved, in
/// memory that had logits before.
///
/// Precision: logits, log-sum-exps and divergences are fp32, sums over tokens double. G is rounded to the type of the
/// operands, after all tokens' factors were divided by the largest; gradients are summed in fp32 and rounded once.
///
/// NaN and infinity: a NaN or a plus infinity among a token's logits makes its divergence and its gradients NaN. A
/// logit of minus infinity is an entry without probability: forward_kl is infinite where only the teacher has one,
/// reverse_kl where only the student has. Hidden states of tokens of weight 0 must be finite: the classifier's gradient
/// multiplies them by 0.
///
/// Errors: shape_error and value_error, which name the function and show both values. If the workspace of a backward()
/// does not hold a forward() of the same extents, reduction, options and inputs, gradients are NaN and exec.wait()
/// throws a value_error that says which differs; of a Divergence the type is compared, and no value. Extents and
/// strides are any. No call waits, allocates or reads from the device, so that each can be captured in a CUDA graph.
/// Results are the same bits each time on one device.
#pragma once

#include <cstdint>
#include <tuple>
#include <type_traits>

#include <tessera/algorithm/loss/detail/distillation_arguments.hpp>
#include <tessera/algorithm/loss/detail/distillation_passes.hpp>
#include <tessera/algorithm/loss/detail/distillation_products.hpp>
#include <tessera/algorithm/loss/detail/distillation_regions.hpp>
#include <tessera/algorithm/loss/detail/loss_with_classifier.hpp>
#include <tessera/algorithm/loss/hidden_progress.hpp>
#include <tessera/algorithm/loss/linear_distillation_types.hpp>
#include <tessera/algorithm/loss/linear_loss_regions.hpp>
#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/concepts/tile_source.hpp>
#include <tessera/config.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/mix_bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/program_name.hpp>
#include <tessera/exec/status_calls.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/map/divergence.hpp>
#include <tessera/map/forward_kl.hpp>
#include <tessera/program/loss/divergence_gradient.hpp>
#include <tessera/program/loss/logit_pairs.hpp>
#include <tessera/program/loss/stamp.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

// clang-format off
template <class Loss> struct vocabulary_parallel;  // of vocabulary_parallel.hpp
// clang-format on

namespace detail {

/// What a distillation of the whole vocabulary exchanges with others: nothing. That of a part of it gives what all
/// ranks together have (vocabulary_parallel_distillation.hpp).
struct no_exchange {
  static constexpr std::int64_t fewest_entries = 1;  ///< of a call's vocabulary
  static constexpr bool has_all_entries = true;      ///< so that parts may be of tokens

  /// Enqueues the merging of states of tokens.
  template <class Exec>
  void merge(Exec const&, array_view<logit_pair_state>) const {}
  /// Enqueues the adding up of values and slopes of tokens.
  template <class Exec>
  void add(Exec const&, array_view<divergence_row>) const {}
};

}  // namespace detail

/// Operand: bfloat16, float16, float or tf32, the type of products. D: how far the student is from the teacher.
/// Student, Teacher: what classifiers are given as, and what their logits go through.
template <class Operand, Divergence D = forward_kl,
          class Student = matrix_view<typename gemm_operand<Operand>::value_type const>,
          class Teacher = matrix_view<typename gemm_operand<Operand>::value_type const>>
struct linear_distillation {
  using value_type = typename gemm_operand<Operand>::value_type;
  static_assert(detail::gives_operands<value_type, detail::rows_type<Student>>() &&
                    detail::gives_operands<value_type, detail::rows_type<Teacher>>(),
                "tessera: a source of a classifier has elements of the type that hidden states have");
  /// The inputs of a call.
  using inputs = distillation_inputs<value_type, D, Student, Teacher>;

  /// The workspace of forward() alone. Throws shape_error or value_error for extents or options that no call takes.
  template <Executor Exec>
  static workspace_plan plan_forward(Exec const&, distillation_shape const& shape,
                                     distillation_options const& options = {}) {
    arguments::check_call(where, shape, options);
    regions<float> const all(where, shape, options, use_of<>);
    workspace_plan plan(where);
    plan.template add<std::byte>("the forward pass", all.forward_bytes);
    return plan;
  }
  /// The workspace that forward() and then backward() share; both must have these options. Gradient: see
  /// linear_loss_gradients.
  template <class Gradient = value_type, Executor Exec>
  static workspace_plan plan_backward(Exec const&, distillation_shape const& shape,
                                      distillation_options const& options = {}) {
    arguments::check_call(back, shape, options);
    return regions<Gradient>(back, shape, options, use_of<>).plan;
  }

  /// Enqueues the loss, in a workspace of plan_forward() or plan_backward(), in which it may keep gradients by logits
  /// (see workspace_budget). `exchange`: what vocabulary_parallel gives, whose ranks have other parts of the
  /// vocabulary.
  template <Executor Exec, class Exchange = detail::no_exchange>
  static void forward(Exec const& exec, inputs const& in, distillation_options const& options,
                      distillation_outputs const& out, workspace const& space, Exchange const& exchange = {}) {
    distillation_shape const shape = arguments::check_inputs(exec, where, in, options, space, Exchange::fewest_entries);
    bool const is_reduced = options.reduction != loss_reduction::none;
    check_memory(where, "losses", out.loss);
    check<shape_error>(out.loss.size() == (is_reduced ? 1 : shape.tokens), where, ": the loss has ", out.loss.size(),
                       " elements but needs ", is_reduced ? 1 : shape.tokens);
    arguments::check_list(where, "divergences", out.divergence, shape.tokens);
    check_reach(exec, where, "losses", out.loss, "divergences", out.divergence);
    regions<float> const at(where, shape, options, use_of<Exchange>, workspace_plan::record::sizes);
    space.check_room(where, at.forward_bytes, shape.tokens, " tokens and ", shape.vocabulary, " entries");
    passes::reduce_parts(detail::distillation_call<Exec, inputs, regions<float>>{exec, in, options, at, space},
                         exchange);
    finish_distillation const finish{
        space[at.rows], in.weights,     is_reduced,     options.reduction == loss_reduction::mean,
        out.loss,       out.divergence, space[at.scale]};
    exec.run(finish, 1);
    stamps const of = stamps_of(shape, options, at.keeps(space) ? at.kept : region<value_type>{});
    exec.run(stamp_loss<value_type, std::int64_t, student_rows>{of.student, student_samples(in), space[at.stamp]}, 1);
    exec.run(
        stamp_loss<value_type, std::int64_t, teacher_rows>{of.teacher, teacher_samples(in), space[at.teacher_stamp]},
        1);
  }

  /// Enqueues the student's gradients, after forward() with the same inputs, options and workspace; it may be called
  /// again. `upstream`: the gradient of the final result by the loss, one element or one for each token; null: ones.
  /// Throws shape_error or value_error. `progress` is told once, of all tokens, before the last part's other products.
  template <Executor Exec, class Gradient = value_type, class Exchange = detail::no_exchange>
  static void backward(Exec const& exec, inputs const& in, distillation_options const& options,
                       array_view<float const> upstream, linear_loss_gradients<Gradient> const& out,
                       workspace const& space, Exchange const& = {}, hidden_progress const& progress = {}) {
    static_assert(std::is_same_v<Gradient, float> || std::is_same_v<Gradient, value_type>,
                  "tessera: gradients of distillation are float or of the type of its inputs");
    distillation_shape const shape = arguments::check_inputs(exec, back, in, options, space, Exchange::fewest_entries);
    arguments::check_gradients(exec, shape, options, upstream, out);
    regions<Gradient> const at(back, shape, options, use_of<Exchange>, workspace_plan::record::sizes);
    space.check_room(back, at.plan.bytes(), shape.tokens, " tokens and ", shape.vocabulary, " entries");
    prepare(exec, in, options, upstream, at, space);
    detail::distillation_products<passes, Gradient>::run(
        detail::distillation_call<Exec, inputs, regions<Gradient>>{exec, in, options, at, space}, out, progress);
  }

 private:
  template <class Loss>
  friend struct vocabulary_parallel;  // which plans a part of the vocabulary
  using student_rows = detail::rows_type<Student>;
  using teacher_rows = detail::rows_type<Teacher>;
  using passes = detail::distillation_passes<Operand, D, Student, Teacher>;
  static constexpr char const* where = "linear_distillation.forward";
  static constexpr char const* back = "linear_distillation.backward";
  template <class Gradient>
  using regions = detail::distillation_regions<value_type, Gradient, passes::has_source, passes::teacher_has_source>;
  using arguments = detail::distillation_arguments<value_type, D, Student, Teacher>;
  template <class Exchange = detail::no_exchange>
  static constexpr detail::distillation_use use_of{Exchange::has_all_entries, passes::ratio == mean_log_ratio::none};

  /// Enqueues the comparison of stamps and the factors of tokens.
  template <class Exec, class Regions>
  static void prepare(Exec const& exec, inputs const& in, distillation_options const& options,
                      array_view<float const> upstream, Regions const& at, workspace const& space) {
    stamps const of = stamps_of(at.shape, options, at.kept);
    array_view<float> const verdicts = space[at.verdicts];
    status_word* const status = status_of(exec, {back});
    loss_token_list const none{{}, {}, {}, space[at.count]};
    check_loss_stamp<value_type, std::int64_t, student_rows> const of_student{
        of.student, student_samples(in), {space[at.stamp], none, space[at.is_marked], {}}, {&verdicts[0], 1}, status};
    exec.run(of_student, 1);
    check_loss_stamp<value_type, std::int64_t, teacher_rows> const of_teacher{
        of.teacher,
        teacher_samples(in),
        {space[at.teacher_stamp], none, space[at.is_marked], {}},
        {&verdicts[1], 1},
        status};
    exec.run(of_teacher, 1);
    if (at.cut.kept > 0) {
      exec.run(scale_kept_gradients{space[at.divisor], space[at.scale], upstream, verdicts, space[at.late_scale]}, 1);
      return;
    }
    exec.run(
        prepare_divergence_gradients{in.weights, upstream, options.reduction != loss_reduction::none, space[at.scale],
                                     verdicts, space[at.factors], space[at.late_scale], in.map.steepest()},
        1);
  }

  /// The stamps of a forward pass, of which the teacher has one for its own inputs.
  struct stamps {
    loss_stamp student;
    loss_stamp teacher;
  };
  /// `kept`: where gradients by logits are, if some were kept.
  static stamps stamps_of(distillation_shape const& shape, distillation_options const& options,
                          region<value_type> kept) {
    loss_stamp stamp;
    stamp.set(loss_stamp::tokens, shape.tokens).set(loss_stamp::entries, shape.vocabulary);
    stamp.set(loss_stamp::channels, shape.channels);
    stamp.set(loss_stamp::reduction, static_cast<std::int64_t>(options.reduction));
    stamp.add(loss_stamp::options, options.temperature, options.softcap);
    stamp.add(loss_stamp::options, options.teacher_softcap, 0.0F);
    for (char const letter : detail::text_with_name<std::tuple<D, Student, Teacher>>()) {
      stamp.add(loss_stamp::plan, std::int64_t{letter});
    }
    if (kept.count > 0) {
      stamp.add(loss_stamp::plan, kept.count).add(loss_stamp::plan, kept.offset);
    }
    loss_stamp of_teacher = stamp;
    return {stamp, of_teacher.set(loss_stamp::channels, shape.teacher_channels)};
  }
  static loss_input_samples<value_type, std::int64_t, student_rows> student_samples(inputs const& in) {
    return {in.hidden, in.classifier, {}, in.bias, in.weights};
  }
  static loss_input_samples<value_type, std::int64_t, teacher_rows> teacher_samples(inputs const& in) {
    return {in.teacher_hidden, in.teacher_classifier, {}, in.teacher_bias, {}};
  }
};

namespace detail {

template <class Operand, Divergence D, class Student, class Teacher, TileSource Source>
struct loss_with_classifier<linear_distillation<Operand, D, Student, Teacher>, Source> {
  using type = linear_distillation<Operand, D, typename classifier_parts<Student>::template with_rows<Source>, Teacher>;
};
template <class Operand, Divergence D, class Student, class Teacher, TileSource Source>
struct loss_with_teacher_classifier<linear_distillation<Operand, D, Student, Teacher>, Source> {
  using type = linear_distillation<Operand, D, Student, typename classifier_parts<Teacher>::template with_rows<Source>>;
};
template <class Operand, Divergence D, class Student, class Teacher, LogitMap Map, LogitMap TeacherMap>
struct loss_with_logit_maps<linear_distillation<Operand, D, Student, Teacher>, Map, TeacherMap> {
  using type = linear_distillation<Operand, D, rows_with_map<rows_type<Student>, Map>,
                                   rows_with_map<rows_type<Teacher>, TeacherMap>>;
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
