// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Distillation of a linear classifier: how far a student's distributions are from those of a teacher that is given by
/// its own hidden states and classifier, with the student's gradients. Neither's logits are ever in memory as a whole.
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
/// Cost: products of tokens x vocabulary x channels: two in the forward pass (four where the Divergence is no mean of
/// log-ratios) and four in the backward pass, of which two make the logits again; a gradient that is null costs none.
/// Beside the products each part's logits are written and read once in fp32 and gradients by logits twice in 16 bits:
/// 16 bytes of each token and entry in the forward pass, 24 in the backward pass. Products are those of
/// algorithm/gemm/linear.hpp, with its speed on each architecture.
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

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/algorithm/gemm/materialize.hpp>
#include <tessera/algorithm/loss/detail/distillation_arguments.hpp>
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
#include <tessera/core/bits.hpp>
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
#include <tessera/map/identity_logits.hpp>
#include <tessera/program/loss/detail/convert_entries.hpp>
#include <tessera/program/loss/divergence_gradient.hpp>
#include <tessera/program/loss/gradient_products.hpp>
#include <tessera/program/loss/logit_pairs.hpp>
#include <tessera/program/loss/logits.hpp>
#include <tessera/program/loss/stamp.hpp>
#include <tessera/tile/source/converted.hpp>
#include <tessera/tile/source/dense.hpp>
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
    regions<float> const all(where, shape, options);
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
    return regions<Gradient>(back, shape, options).plan;
  }

  /// Enqueues the loss, in a workspace of plan_forward() or plan_backward(). `exchange`: what vocabulary_parallel
  /// gives, whose ranks have other parts of the vocabulary.
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
    regions<float> const at(where, shape, options, workspace_plan::record::sizes);
    space.check_room(where, at.forward_bytes, shape.tokens, " tokens and ", shape.vocabulary, " entries");
    reduce_parts(exec, in, options, at, space, exchange);
    finish_distillation const finish{
        space[at.rows], in.weights,     is_reduced,     options.reduction == loss_reduction::mean,
        out.loss,       out.divergence, space[at.scale]};
    exec.run(finish, 1);
    stamps const of = stamps_of(shape, options);
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
    regions<Gradient> const at(back, shape, options, workspace_plan::record::sizes);
    space.check_room(back, at.plan.bytes(), shape.tokens, " tokens and ", shape.vocabulary, " entries");
    prepare(exec, in, options, upstream, at, space);
    matrix_view<float> const sums = hidden_sums(out, at, space);
    if (out.classifier.data != nullptr) {
      turn(exec, in.hidden, space[at.turned_hidden], at.padded_tokens);
    }
    for (std::int64_t first = 0; first < shape.vocabulary; first += at.entries) {
      make_logits(exec, in, options, at, space, first);
      differentiate_divergence<D, value_type, map_type> const differentiate{in.divergence,
                                                                            scaling_of({}, options.softcap, options),
                                                                            at.of_part(space, at.student, first),
                                                                            at.of_part(space, at.teacher, first),
                                                                            space[at.rows],
                                                                            space[at.factors],
                                                                            at.gradient_of_part(space, first),
                                                                            at.turned_of_part(space, first),
                                                                            {in.map, first}};
      exec.run(differentiate, differentiate.groups());
      add_to_hidden(exec, in, at, space, first, sums, out.accumulate_hidden);
      if (first + at.entries >= shape.vocabulary) {
        end_hidden(exec, at, sums, out, progress);
      }
      write_classifier(exec, at, space, first, out);
      write_bias(exec, at, space, first, out);
    }
    if (shape.vocabulary == 0 && sums.data != nullptr) {
      clear_unlabelled<float> const clear{{}, space[at.late_scale].data, sums, out.accumulate_hidden};
      exec.run(clear, clear.groups());
    }
    if (shape.vocabulary == 0) {
      end_hidden(exec, at, sums, out, progress);
    }
  }

 private:
  template <class Loss>
  friend struct vocabulary_parallel;  // which plans a part of the vocabulary
  using student_rows = detail::rows_type<Student>;
  using teacher_rows = detail::rows_type<Teacher>;
  using map_type = detail::map_type<Student>;
  using teacher_map_type = detail::map_type<Teacher>;
  static constexpr char const* where = "linear_distillation.forward";
  static constexpr char const* back = "linear_distillation.backward";
  static constexpr mean_log_ratio ratio = detail::ratio_of<D>;
  static constexpr bool has_source = detail::is_classifier_source<value_type, student_rows>;
  static constexpr bool teacher_has_source = detail::is_classifier_source<value_type, teacher_rows>;
  template <class Gradient>
  using regions = detail::distillation_regions<value_type, Gradient, has_source, teacher_has_source>;
  using layer = linear<Operand>;
  using arguments = detail::distillation_arguments<value_type, D, Student, Teacher>;

  static logit_scaling<value_type> scaling_of(array_view<value_type const> bias, float cap,
                                              distillation_options const& options) {
    return {bias, cap, 1.0F / options.temperature};
  }
  /// The elements of a list for the part that begins with `first`, if there is a list.
  template <class V>
  static array_view<V> of_entries(array_view<V> list, std::int64_t first, std::int64_t count) {
    return list.data == nullptr ? array_view<V>{} : array_view<V>(&list[first], {count}, {list.stride(0)});
  }

  /// The student's rows of a part, after make_logits().
  template <class Regions>
  static matrix_view<value_type const> rows_of_student(inputs const& in, Regions const& at, workspace const& space,
                                                       std::int64_t first) {
    if constexpr (has_source) {
      return at.rows_of_part(space, at.band, first, at.shape.channels);
    } else {
      return detail::rows_of(in.classifier, first, at.width(first));
    }
  }
  template <class Regions>
  static matrix_view<value_type const> rows_of_teacher(inputs const& in, Regions const& at, workspace const& space,
                                                       std::int64_t first) {
    if constexpr (teacher_has_source) {
      return at.rows_of_part(space, at.teacher_band, first, at.shape.teacher_channels);
    } else {
      return detail::rows_of(in.teacher_classifier, first, at.width(first));
    }
  }
  /// Enqueues the making of a source's rows.
  template <class Exec, class Source>
  static void convert(Exec const& exec, Source const& source, std::int64_t first, matrix_view<value_type> rows) {
    detail::convert_entries<Source, detail::rows_in_order> const make{source, {first}, rows};
    exec.run(make, make.groups());
  }

  /// Enqueues the logits of the part that begins with `first`.
  template <class Exec, class Regions>
  static void make_logits(Exec const& exec, inputs const& in, distillation_options const& options, Regions const& at,
                          workspace const& space, std::int64_t first) {
    std::int64_t const width = at.width(first);
    if constexpr (has_source) {
      convert(exec, in.classifier, first, at.rows_of_part(space, at.band, first, at.shape.channels));
    }
    if constexpr (teacher_has_source) {
      convert(exec, in.teacher_classifier, first,
              at.rows_of_part(space, at.teacher_band, first, at.shape.teacher_channels));
    }
    make_logits_of(exec, in.hidden, rows_of_student(in, at, space, first),
                   scaling_of(of_entries(in.bias, first, width), options.softcap, options), identity_logits{}, first,
                   at.of_part(space, at.student, first));
    make_logits_of(exec, in.teacher_hidden, rows_of_teacher(in, at, space, first),
                   scaling_of(of_entries(in.teacher_bias, first, width), options.teacher_softcap, options),
                   in.teacher_map, first, at.of_part(space, at.teacher, first));
  }
  /// Logits that nothing bends have a product of their own, in which sums are only multiplied. Those of the student go
  /// through their map where they are read, since its slope depends on what it is given.
  template <class Exec, LogitMap Map>
  static void make_logits_of(Exec const& exec, matrix_view<value_type const> hidden,
                             matrix_view<value_type const> classifier, logit_scaling<value_type> const& scaling,
                             Map const& map, std::int64_t first, matrix_view<float> logits) {
    if (leaves_logits<Map> && scaling.only_multiplies()) {
      layer::forward(exec, hidden, classifier, multiplied_logits{{scaling.inverse_temperature}}, logits);
    } else {
      layer::forward(exec, hidden, classifier, scaled_logits<value_type, Map>{scaling, {map, first}}, logits);
    }
  }

  /// Enqueues log-sum-exps and divergences of all tokens.
  template <class Exec, class Regions, class Exchange>
  static void reduce_parts(Exec const& exec, inputs const& in, distillation_options const& options, Regions const& at,
                           workspace const& space, Exchange const& exchange) {
    if (at.shape.vocabulary == 0) {
      clear_logit_pairs const clear{space[at.states]};
      exec.run(clear, clear.groups());
    }
    for (std::int64_t first = 0; first < at.shape.vocabulary; first += at.entries) {
      make_logits(exec, in, options, at, space, first);
      reduce_logit_pairs<ratio, map_type> const reduction{at.of_part(space, at.student, first),
                                                          at.of_part(space, at.teacher, first),
                                                          space[at.states],
                                                          first == 0,
                                                          {in.map, first}};
      exec.run(reduction, reduction.groups());
    }
    exchange.merge(exec, space[at.states]);
    finish_logit_pairs<ratio> const finish{space[at.states], space[at.rows]};
    exec.run(finish, finish.groups());
    if constexpr (ratio == mean_log_ratio::none) {
      for (std::int64_t first = 0; first < at.shape.vocabulary; first += at.entries) {
        if (at.entries < at.shape.vocabulary) {  // else the logits are still there
          make_logits(exec, in, options, at, space, first);
        }
        add_divergences<D, map_type> const add{in.divergence,
                                               at.of_part(space, at.student, first),
                                               at.of_part(space, at.teacher, first),
                                               space[at.rows],
                                               {in.map, first}};
        exec.run(add, add.groups());
      }
      exchange.add(exec, space[at.rows]);
    }
  }

  /// Enqueues the comparison of stamps and the factors of tokens.
  template <class Exec, class Regions>
  static void prepare(Exec const& exec, inputs const& in, distillation_options const& options,
                      array_view<float const> upstream, Regions const& at, workspace const& space) {
    stamps const of = stamps_of(at.shape, options);
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
    exec.run(
        prepare_divergence_gradients{in.weights, upstream, options.reduction != loss_reduction::none, space[at.scale],
                                     verdicts, space[at.factors], space[at.late_scale], in.map.steepest()},
        1);
  }

  /// Enqueues the transposed matrix, in rows of `length` elements, zeros behind the last.
  template <class Exec>
  static void turn(Exec const& exec, matrix_view<value_type const> matrix, array_view<value_type> memory,
                   std::int64_t length) {
    std::int64_t const rows = matrix.extent(1);
    if (matrix.extent(0) < length) {
      exec.clear(array_view<value_type>(memory.data, rows * length));
    }
    materialize(exec, dense<value_type>{matrix.transposed()},
                matrix_view<value_type>(memory.data, {rows, matrix.extent(0)}, {length, 1}));
  }

  /// Where the hidden states' gradient is summed.
  template <class Gradient>
  static matrix_view<float> hidden_sums(linear_loss_gradients<Gradient> const& out, regions<Gradient> const& at,
                                        workspace const& space) {
    if constexpr (regions<Gradient>::has_hidden_sums) {
      return out.hidden.data == nullptr
                 ? matrix_view<float>{}
                 : matrix_view<float>(space[at.hidden_sums].data, {at.shape.tokens, at.shape.channels});
    } else {
      return out.hidden;
    }
  }

  template <class Exec, class Gradient>
  static void add_to_hidden(Exec const& exec, inputs const& in, regions<Gradient> const& at, workspace const& space,
                            std::int64_t first, matrix_view<float> sums, bool accumulates) {
    if (sums.data == nullptr) {
      return;
    }
    matrix_view<value_type const> const gradient = at.gradient_of_part(space, first);
    turn(exec, rows_of_student(in, at, space, first), space[at.turned_classifier], gradient.extent(1));
    matrix_view<value_type const> const turned(space[at.turned_classifier].data,
                                               {at.shape.channels, gradient.extent(1)});
    bool const is_added = first > 0 || accumulates;
    matrix_view<float const> const before = is_added ? matrix_view<float const>(sums) : matrix_view<float const>{};
    layer::forward(exec, gradient, turned, scaled_and_added{space[at.late_scale].data, before}, sums);
  }

  /// Enqueues what is left of the hidden states' gradient once all parts are added up, and tells of it.
  template <class Exec, class Gradient>
  static void end_hidden(Exec const& exec, regions<Gradient> const& at, [[maybe_unused]] matrix_view<float> sums,
                         linear_loss_gradients<Gradient> const& out, hidden_progress const& progress) {
    if constexpr (regions<Gradient>::has_hidden_sums) {
      if (out.hidden.data != nullptr) {
        materialize(exec, converted<float, Gradient>(sums), out.hidden);
      }
    }
    progress.tell(at.shape.tokens);
  }

  template <class Exec, class Gradient>
  static void write_classifier(Exec const& exec, regions<Gradient> const& at, workspace const& space,
                               std::int64_t first, linear_loss_gradients<Gradient> const& out) {
    if (out.classifier.data == nullptr) {
      return;
    }
    matrix_view<value_type const> const gradient = at.turned_of_part(space, first);
    matrix_view<value_type const> const hidden(space[at.turned_hidden].data, {at.shape.channels, at.padded_tokens});
    matrix_view<Gradient> const rows = detail::rows_of(out.classifier, first, at.width(first));
    matrix_view<float const> before;
    if constexpr (std::is_same_v<Gradient, float>) {
      before = out.accumulate_classifier ? matrix_view<float const>(rows) : before;
    }
    layer::forward(exec, gradient, hidden, scaled_and_added{space[at.late_scale].data, before}, rows);
  }

  /// Enqueues the gradient of the bias: sums over tokens of what the products are of.
  template <class Exec, class Gradient>
  static void write_bias(Exec const& exec, regions<Gradient> const& at, workspace const& space, std::int64_t first,
                         linear_loss_gradients<Gradient> const& out) {
    if (out.bias.data == nullptr) {
      return;
    }
    matrix_view<value_type const> const gradient = at.of_part(space, at.gradient, first);
    matrix_view<float> const sums(space[at.column_sums].data, {at.token_blocks(), at.width(first)}, {at.entries, 1});
    sum_gradient_columns<value_type> const sum{gradient, sums, {}};
    exec.run(sum, sum.groups());
    sum_bias_gradient<Gradient> const write{sums, space[at.late_scale].data,
                                            of_entries(out.bias, first, at.width(first)), out.accumulate_bias};
    exec.run(write, write.groups());
  }

  /// The stamps of a forward pass, of which the teacher has one for its own inputs.
  struct stamps {
    loss_stamp student;
    loss_stamp teacher;
  };
  static stamps stamps_of(distillation_shape const& shape, distillation_options const& options) {
    loss_stamp stamp;
    stamp.set(loss_stamp::tokens, shape.tokens).set(loss_stamp::entries, shape.vocabulary);
    stamp.set(loss_stamp::channels, shape.channels);
    stamp.set(loss_stamp::reduction, static_cast<std::int64_t>(options.reduction));
    stamp.add(loss_stamp::options, options.temperature, options.softcap);
    stamp.add(loss_stamp::options, options.teacher_softcap, 0.0F);
    for (char const letter : detail::text_with_name<std::tuple<D, Student, Teacher>>()) {
      stamp.add(loss_stamp::plan, std::int64_t{letter});
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
