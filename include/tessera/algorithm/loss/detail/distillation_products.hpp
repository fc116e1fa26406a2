// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `distillation_products`: the backward pass of algorithm/loss/linear_distillation.hpp, part after part of the entries
/// with all tokens: gradients by logits are made again or taken from those that were kept, and multiplied.
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
#include <tessera/program/loss/detail/turn_rows.hpp>
#include <tessera/program/loss/divergence_gradient.hpp>
#include <tessera/program/loss/gradient_products.hpp>
#include <tessera/tile/source/converted.hpp>
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
    if (out.classifier.data != nullptr) {
      turn(call, call.in.hidden, {call.space[at.turned_hidden].data, {at.shape.channels, at.padded_tokens}});
    }
    for (std::int64_t first = 0; first < at.shape.vocabulary; first += at.cut.entries) {
      make_gradient(call, out, first);
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
  /// Enqueues the gradients by logits of a part: of tokens that are kept only their transposition, of others all.
  template <class Call>
  static void make_gradient(Call const& call, gradients const& out, std::int64_t first) {
    auto const& at = call.at;
    std::int64_t const kept = at.cut.kept;
    std::int64_t const width = at.width(first);
    matrix_view<value_type> const turned = at.turned_of_part(call.space, first);
    if (kept > 0 && out.classifier.data != nullptr) {
      bool const are_all = kept == at.shape.tokens;  // then zeros behind the tokens are written here, too
      turn(call, at.kept_part(call.space, first).slice(1, 0, width), are_all ? turned : turned.slice(1, 0, kept));
    }
    if (kept < at.shape.tokens || kept == 0) {
      distillation_part const part{kept, at.shape.tokens - kept, first, width};
      Passes::make_logits(call, at.backward, part);
      Passes::differentiate(call, at.backward, part, at.gradient_of_part(call.space, first),
                            turned.slice(1, kept, at.padded_tokens - kept));
    }
  }

  /// Calls `use` with gradients by logits of a part: those that are kept, then the others, with their first token.
  template <class Call, class Use>
  static void each_gradient(Call const& call, std::int64_t first, Use const& use) {
    auto const& at = call.at;
    if (at.cut.kept > 0) {
      use(at.kept_part(call.space, first), std::int64_t{0});
    }
    if (at.cut.kept < at.shape.tokens) {
      use(at.gradient_of_part(call.space, first), at.cut.kept);
    }
  }

  /// Enqueues the transposed matrix, with zeros behind it.
  template <class Call>
  static void turn(Call const& call, matrix_view<value_type const> from, matrix_view<value_type> to) {
    turn_rows<value_type> const program{from, to};
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
    matrix_view<value_type> const turned(call.space[at.turned_classifier].data,
                                         {at.shape.channels, align_up(at.width(first), at.whole)});
    bool const has_logits = at.cut.kept < at.shape.tokens || at.cut.kept == 0;
    turn(call, Passes::rows_of_student(call, first, has_logits), turned);
    bool const is_added = first > 0 || out.accumulate_hidden;
    each_gradient(call, first, [&](matrix_view<value_type const> gradient, std::int64_t token) {
      matrix_view<float> const target = rows_of(sums, token, gradient.extent(0));
      matrix_view<float const> const before = is_added ? matrix_view<float const>(target) : matrix_view<float const>{};
      layer::forward(call.exec, gradient, matrix_view<value_type const>(turned),
                     scaled_and_added{call.space[at.late_scale].data, before}, target);
    });
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
    matrix_view<value_type const> const gradient = at.turned_of_part(call.space, first);
    matrix_view<value_type const> const hidden(call.space[at.turned_hidden].data,
                                               {at.shape.channels, at.padded_tokens});
    matrix_view<Gradient> const rows = rows_of(out.classifier, first, at.width(first));
    matrix_view<float const> before;
    if constexpr (std::is_same_v<Gradient, float>) {
      before = out.accumulate_classifier ? matrix_view<float const>(rows) : before;
    }
    layer::forward(call.exec, gradient, hidden, scaled_and_added{call.space[at.late_scale].data, before}, rows);
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
    each_gradient(call, first, [&](matrix_view<value_type const> gradient, std::int64_t token) {
      matrix_view<float> const own = rows_of(sums, at.blocks_of(token), at.blocks_of(gradient.extent(0)));
      sum_gradient_columns<value_type> const sum{gradient.slice(1, 0, width), own, {}};
      call.exec.run(sum, sum.groups());
    });
    sum_bias_gradient<Gradient> const write{sums, call.space[at.late_scale].data, some_of(out.bias, first, width),
                                            out.accumulate_bias};
    call.exec.run(write, write.groups());
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
