// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `distillation_passes`: what both passes of algorithm/loss/linear_distillation.hpp do with logits of a part, some
/// tokens and some entries; and the forward pass's walk over parts.
#pragma once

#include <cstdint>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/algorithm/loss/detail/distillation_regions.hpp>
#include <tessera/algorithm/loss/detail/forward_regions.hpp>
#include <tessera/algorithm/loss/detail/loss_with_classifier.hpp>
#include <tessera/algorithm/loss/linear_distillation_types.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/map/divergence.hpp>
#include <tessera/map/identity_logits.hpp>
#include <tessera/program/loss/detail/convert_entries.hpp>
#include <tessera/program/loss/divergence_gradient.hpp>
#include <tessera/program/loss/logit_pairs.hpp>
#include <tessera/program/loss/logits.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// A call of a pass, as its steps take it.
template <class Exec, class Inputs, class Regions>
struct distillation_call {
  Exec const& exec;
  Inputs const& in;
  distillation_options const& options;
  Regions const& at;
  workspace const& space;
};

/// Operand, D, Student, Teacher: those of linear_distillation.
template <class Operand, Divergence D, class Student, class Teacher>
struct distillation_passes {
  using value_type = typename gemm_operand<Operand>::value_type;
  using layer = linear<Operand>;
  using map_type = detail::map_type<Student>;
  static constexpr mean_log_ratio ratio = ratio_of<D>;
  static constexpr bool has_source = is_classifier_source<value_type, rows_type<Student>>;
  static constexpr bool teacher_has_source = is_classifier_source<value_type, rows_type<Teacher>>;

  /// Enqueues log-sum-exps and divergences of all tokens, and the gradients by logits that are kept.
  template <class Call, class Exchange>
  static void reduce_parts(Call const& call, Exchange const& exchange) {
    auto const& at = call.at;
    bool const keeps = at.keeps(call.space);
    if (keeps) {
      prepare_kept(call);
    }
    if (at.shape.vocabulary == 0) {
      clear_logit_pairs const clear{call.space[at.states]};
      call.exec.run(clear, clear.groups());
    }
    for (std::int64_t token = 0; token == 0 || token < at.shape.tokens; token += at.cut.forward_tokens) {
      std::int64_t const tokens = min(at.cut.forward_tokens, at.shape.tokens - token);
      reduce_tokens(call, exchange, token, tokens);
      if (keeps && token < at.cut.kept) {
        differentiate(call, at.forward, {token, tokens, 0, at.shape.vocabulary},
                      at.kept_rows(call.space, token, tokens));
      }
    }
  }

  /// The student's rows of a part of the backward pass, which a source makes unless they are there with the logits.
  template <class Call>
  static matrix_view<value_type const> rows_of_student(Call const& call, std::int64_t first, bool are_there) {
    std::int64_t const width = call.at.width(first);
    if (has_source && are_there) {
      return call.at.band_rows(call.space, call.at.backward.band, width, call.at.shape.channels);
    }
    return rows_made<has_source>(call, call.in.classifier, call.at.backward.band, {first, width});
  }

  /// Enqueues the logits of a part. `memory`: where its pass has them.
  template <class Call>
  static void make_logits(Call const& call, logit_pair_regions<value_type> const& memory,
                          distillation_part const& part) {
    auto const& in = call.in;
    auto const& options = call.options;
    for (std::int64_t done = 0; done < part.entries; done += memory.in_band) {
      entry_range const some{part.first + done, min(memory.in_band, part.entries - done)};
      distillation_part const band{part.first_token, part.tokens, some.first, some.count};
      make_logits_of(call, in.hidden, rows_made<has_source>(call, in.classifier, memory.band, some),
                     scaling_of(some_of(in.bias, some.first, some.count), options.softcap, options),
                     mapped_logits<identity_logits>{}, band,
                     memory.of_part(call.space, memory.student, part).slice(1, done, some.count));
      make_logits_of(call, in.teacher_hidden,
                     rows_made<teacher_has_source>(call, in.teacher_classifier, memory.teacher_band, some),
                     scaling_of(some_of(in.teacher_bias, some.first, some.count), options.teacher_softcap, options),
                     mapped_logits<detail::map_type<Teacher>>{in.teacher_map, some.first, part.first_token}, band,
                     memory.of_part(call.space, memory.teacher, part).slice(1, done, some.count));
    }
  }

  /// Enqueues the gradients by sums of a part whose logits are in memory.
  template <class Call>
  static void differentiate(Call const& call, logit_pair_regions<value_type> const& memory,
                            distillation_part const& part, matrix_view<value_type> gradient) {
    differentiate_divergence<D, value_type, map_type> const program{
        call.in.divergence,
        scaling_of({}, call.options.softcap, call.options),
        memory.of_part(call.space, memory.student, part),
        memory.of_part(call.space, memory.teacher, part),
        some_of(call.space[call.at.rows], part.first_token, part.tokens),
        some_of(call.space[call.at.factors], part.first_token, part.tokens),
        gradient,
        {call.in.map, part.first, part.first_token}};
    call.exec.run(program, program.groups());
  }

 private:
  struct entry_range {
    std::int64_t first;
    std::int64_t count;
  };

  static logit_scaling<value_type> scaling_of(array_view<value_type const> bias, float cap,
                                              distillation_options const& options) {
    return {bias, cap, 1.0F / options.temperature};
  }

  /// Enqueues the factors of tokens that kept gradients by logits are multiplied by: weights.
  template <class Call>
  static void prepare_kept(Call const& call) {
    auto const& at = call.at;
    call.exec.run(
        prepare_divergence_gradients{
            call.in.weights, {}, false, {}, {}, call.space[at.factors], call.space[at.divisor], call.in.map.steepest()},
        1);
  }

  /// Enqueues log-sum-exps and divergences of some tokens.
  template <class Call, class Exchange>
  static void reduce_tokens(Call const& call, Exchange const& exchange, std::int64_t token, std::int64_t tokens) {
    auto const& at = call.at;
    auto const& memory = at.forward;
    std::int64_t const step = at.cut.forward_entries;
    array_view<logit_pair_state> const states = some_of(call.space[at.states], token, tokens);
    array_view<divergence_row> const rows = some_of(call.space[at.rows], token, tokens);
    for (std::int64_t first = 0; first < at.shape.vocabulary; first += step) {
      distillation_part const part{token, tokens, first, min(step, at.shape.vocabulary - first)};
      make_logits(call, memory, part);
      reduce_logit_pairs<ratio, map_type> const reduction{
          memory.of_part(call.space, memory.student, part), memory.of_part(call.space, memory.teacher, part), states,
          first == 0, mapped_logits<map_type>{call.in.map, first, token}};
      call.exec.run(reduction, reduction.groups());
    }
    exchange.merge(call.exec, states);
    finish_logit_pairs<ratio> const finish{states, rows};
    call.exec.run(finish, finish.groups());
    if constexpr (ratio == mean_log_ratio::none) {
      for (std::int64_t first = 0; first < at.shape.vocabulary; first += step) {
        distillation_part const part{token, tokens, first, min(step, at.shape.vocabulary - first)};
        if (step < at.shape.vocabulary) {  // else the logits are still there
          make_logits(call, memory, part);
        }
        add_divergences<D, map_type> const add{call.in.divergence, memory.of_part(call.space, memory.student, part),
                                               memory.of_part(call.space, memory.teacher, part), rows,
                                               mapped_logits<map_type>{call.in.map, first, token}};
        call.exec.run(add, add.groups());
      }
      exchange.add(call.exec, rows);
    }
  }

  /// The rows of a classifier, which a source makes in a band of memory.
  template <bool IsMade, class Call, class Rows>
  static matrix_view<value_type const> rows_made(Call const& call, Rows const& classifier, region<value_type> memory,
                                                 entry_range const& some) {
    if constexpr (IsMade) {
      auto const rows = call.at.band_rows(call.space, memory, some.count, columns_in(classifier));
      convert_entries<Rows, rows_in_order> const make{classifier, {some.first}, rows};
      call.exec.run(make, make.groups());
      return rows;
    } else {
      return rows_of(classifier, some.first, some.count);
    }
  }

  /// Logits that nothing bends have a product of their own, in which sums are only multiplied. Those of the student go
  /// through their map where they are read, since its slope depends on what it is given.
  template <class Call, LogitMap Map>
  static void make_logits_of(Call const& call, matrix_view<value_type const> hidden,
                             matrix_view<value_type const> classifier, logit_scaling<value_type> const& scaling,
                             mapped_logits<Map> const& map, distillation_part const& part, matrix_view<float> logits) {
    auto const tokens = rows_of(hidden, part.first_token, part.tokens);
    if (leaves_logits<Map> && scaling.only_multiplies()) {
      layer::forward(call.exec, tokens, classifier, multiplied_logits{{scaling.inverse_temperature}}, logits);
    } else {
      layer::forward(call.exec, tokens, classifier, scaled_logits<value_type, Map>{scaling, map}, logits);
    }
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
