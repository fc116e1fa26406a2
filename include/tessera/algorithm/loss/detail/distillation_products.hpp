// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `distillation_products`: the backward pass of algorithm/loss/linear_distillation.hpp, part after part of the entries
/// with all tokens: gradients by logits are made again or taken from those that were kept, and multiplied as they lie,
/// or as copies that are transposed.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/algorithm/gemm/materialize.hpp>
#include <tessera/algorithm/loss/detail/distillation_passes.hpp>
#include <tessera/algorithm/loss/detail/distillation_regions.hpp>
#include <tessera/algorithm/loss/detail/forward_regions.hpp>
#include <tessera/algorithm/loss/hidden_progress.hpp>
#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/map/divergence.hpp>
#include <tessera/program/loss/detail/transpose_rows.hpp>
#include <tessera/program/loss/divergence_gradient.hpp>
#include <tessera/program/loss/gradient_products.hpp>
#include <tessera/tile/row_chunks.hpp>
#include <tessera/tile/source/converted.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Gradient: the type of gradients. The others: those of linear_distillation.
template <class Passes, class Gradient>
struct distillation_products {
  using value_type = typename Passes::value_type;
  using layer = typename Passes::layer;
  using gradients = linear_loss_gradients<Gradient>;

  /// Enqueues all gradients, after the factors of tokens.
  template <class Call>
  static void run(Call const& call, gradients const& out, hidden_progress const& progress) {
    auto const& at = call.at;
    matrix_view<float> const sums = hidden_sums(call, out);
    if (at.always_transposes && out.classifier.data != nullptr) {
      transpose(call, call.in.hidden, at.transposed_rows(call.space));
    }
    for (std::int64_t first = 0; first < at.shape.vocabulary; first += at.cut.entries) {
      make_gradient(call, first);
      add_to_hidden(call, out, first, sums);
      if (first + at.cut.entries >= at.shape.vocabulary) {
        end_hidden(call, sums, out, progress);
      }
      write_classifier(call, out, first);
      write_bias(call, out, first);
    }
    if (at.shape.vocabulary == 0 && sums.data != nullptr) {
      clear_unlabelled<float> const clear{{}, call.space[at.late_scale].data, sums, out.accumulate_hidden};
      call.exec.run(clear, clear.groups());
    }
    if (at.shape.vocabulary == 0) {
      end_hidden(call, sums, out, progress);
    }
  }

 private:
  /// Enqueues the gradients by logits of a part, unless those of all tokens are kept: copies of those that are, so that
  /// all are one matrix, and others.
  template <class Call>
  static void make_gradient(Call const& call, std::int64_t first) {
    auto const& at = call.at;
    std::int64_t const kept = at.cut.kept;
    if (at.keeps_all()) {
      return;
    }
    matrix_view<value_type> const gradient = at.gradient_of_part(call.space, first);
    if (kept > 0) {
      dense<value_type> const before{at.kept_part(call.space, first)};
      materialize(call.exec, before, rows_of(gradient, 0, kept));
    }
    distillation_part const part{kept, at.shape.tokens - kept, first, at.width(first)};
    Passes::make_logits(call, at.backward, part);
    Passes::differentiate(call, at.backward, part, rows_of(gradient, kept, at.shape.tokens - kept));
  }

  /// Whether products take rows of a matrix as they lie in memory, and write rows of another: all begin and end at
  /// multiples of 16 bytes. Tensor cores turn operands of 2 bytes (algorithm/gemm/linear.cuh). Elsewhere, and where a
  /// part has another number of entries than a multiple of 8, operands are copied transposed.
  template <class Call, class Output>
  static bool takes_rows(Call const& call, std::int64_t first, matrix_view<value_type const> rows,
                         matrix_view<Output> outputs) {
    return !call.at.always_transposes && call.at.width(first) % 8 == 0 &&
           row_chunks<value_type const>{rows}.is_aligned() && row_chunks<Output>{outputs}.is_aligned();
  }

  /// Enqueues the transposed matrix, with zeros behind it.
  template <class Call>
  static void transpose(Call const& call, matrix_view<value_type const> from, matrix_view<value_type> to) {
    transpose_rows<value_type> const program{from, to};
    call.exec.run(program, program.groups());
  }

  /// Where the hidden states' gradient is summed.
  template <class Call>
  static matrix_view<float> hidden_sums(Call const& call, gradients const& out) {
    if constexpr (!std::is_same_v<Gradient, float>) {
      return out.hidden.data == nullptr ? matrix_view<float>{}
                                        : matrix_view<float>(call.space[call.at.hidden_sums].data,
                                                             {call.at.shape.tokens, call.at.shape.channels});
    } else {
      return out.hidden;
    }
  }

  template <class Call>
  static void add_to_hidden(Call const& call, gradients const& out, std::int64_t first, matrix_view<float> sums) {
    auto const& at = call.at;
    if (sums.data == nullptr) {
      return;
    }
    matrix_view<value_type const> const classifier = Passes::rows_of_student(call, first, !at.keeps_all());
    matrix_view<value_type const> const gradient = at.gradients(call.space, first);
    bool const is_added = first > 0 || out.accumulate_hidden;
    matrix_view<float const> const before = is_added ? matrix_view<float const>(sums) : matrix_view<float const>{};
    scaled_and_added<false> const add{call.space[at.late_scale].data, before};
    if (takes_rows(call, first, classifier, sums)) {
      layer::forward(call.exec, gradient.slice(1, 0, at.width(first)), classifier.transposed(), add, sums);
      return;
    }
    matrix_view<value_type> const transposed(call.space[at.transposed_classifier].data,
                                             {at.shape.channels, gradient.extent(1)});
    transpose(call, classifier, transposed);
    layer::forward(call.exec, gradient, matrix_view<value_type const>(transposed), add, sums);
  }

  /// Enqueues what is left of the hidden states' gradient once all parts are added up, and tells of it.
  template <class Call>
  static void end_hidden(Call const& call, [[maybe_unused]] matrix_view<float> sums, gradients const& out,
                         hidden_progress const& progress) {
    if constexpr (!std::is_same_v<Gradient, float>) {
      if (out.hidden.data != nullptr) {
        materialize(call.exec, converted<float, Gradient>(sums), out.hidden);
      }
    }
    progress.tell(call.at.shape.tokens);
  }

  template <class Call>
  static void write_classifier(Call const& call, gradients const& out, std::int64_t first) {
    auto const& at = call.at;
    if (out.classifier.data == nullptr) {
      return;
    }
    matrix_view<value_type const> const gradient = at.gradients(call.space, first).slice(1, 0, at.width(first));
    matrix_view<Gradient> const rows = rows_of(out.classifier, first, at.width(first));
    matrix_view<float const> before;
    if constexpr (std::is_same_v<Gradient, float>) {
      before = out.accumulate_classifier ? matrix_view<float const>(rows) : before;
    }
    scaled_and_added<true> const add{call.space[at.late_scale].data, before};
    if (takes_rows(call, first, call.in.hidden, rows)) {
      layer::forward(call.exec, gradient.transposed(), call.in.hidden.transposed(), add, rows);
      return;
    }
    matrix_view<value_type> const transposed = at.transposed_of_part(call.space, first);
    matrix_view<value_type> const hidden = at.transposed_rows(call.space);
    transpose(call, gradient, transposed);
    if (!at.always_transposes) {  // else they were transposed once
      transpose(call, call.in.hidden, hidden);
    }
    layer::forward(call.exec, matrix_view<value_type const>(transposed), matrix_view<value_type const>(hidden), add,
                   rows);
  }

  /// Enqueues the gradient of the bias: sums over tokens of what the products are of.
  template <class Call>
  static void write_bias(Call const& call, gradients const& out, std::int64_t first) {
    auto const& at = call.at;
    if (out.bias.data == nullptr) {
      return;
    }
    std::int64_t const width = at.width(first);
    matrix_view<float> const sums(call.space[at.column_sums].data, {at.token_blocks(), width}, {at.cut.entries, 1});
    sum_gradient_columns<value_type> const sum{at.gradients(call.space, first).slice(1, 0, width), sums, {}};
    call.exec.run(sum, sum.groups());
    sum_bias_gradient<Gradient> const write{sums, call.space[at.late_scale].data, some_of(out.bias, first, width),
                                            out.accumulate_bias};
    call.exec.run(write, write.groups());
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
