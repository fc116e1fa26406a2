// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `distillation_regions`: the workspace of algorithm/loss/linear_distillation.hpp. The regions of the forward pass
/// come first.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/loss/linear_distillation_types.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/loss/gradient_products.hpp>
#include <tessera/program/loss/logit_pairs.hpp>
#include <tessera/program/loss/stamp.hpp>
#include <tessera/tuning/loss/linear_distillation.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// T: the type of operands. Gradient: that of gradients. HasSource, TeacherHasSource: whether rows of the classifiers
/// are made when needed.
template <class T, class Gradient, bool HasSource = false, bool TeacherHasSource = false>
struct distillation_regions {
  /// Whether sums of the hidden states' gradient lie in the workspace until they are rounded.
  static constexpr bool has_hidden_sums = !std::is_same_v<Gradient, float>;
  static constexpr std::int64_t fewest_entries = 128;  ///< of a part
  static constexpr std::int64_t whole = 64;            ///< entries of parts and extents of products are multiples

  workspace_plan plan;
  distillation_shape shape;
  std::int64_t entries;        ///< of a part, but that the last one may have fewer
  std::int64_t padded_tokens;  ///< tokens, rounded up so that rows begin and end at multiples of 16 bytes
  region<std::uint64_t> stamp;
  region<std::uint64_t> teacher_stamp;
  region<std::int64_t> count;
  region<std::int32_t> is_marked;
  region<float> scale;
  region<logit_pair_state> states;
  region<divergence_row> rows;
  region<float> student;
  region<float> teacher;
  region<T> band;          ///< a part's rows of a classifier that is a source
  region<T> teacher_band;  ///< the same of the teacher
  std::int64_t forward_bytes;
  region<float> verdicts;
  region<float> late_scale;
  region<float> factors;
  region<T> gradient;
  region<T> turned_gradient;
  region<T> turned_classifier;
  region<T> turned_hidden;
  region<float> hidden_sums;
  region<float> column_sums;

  distillation_regions(char const* where, distillation_shape const& of, distillation_options const& options,
                       workspace_plan::record record = workspace_plan::record::entries)
      : plan(where, record),
        shape(of),
        entries(entries_of(of, options)),
        padded_tokens(align_up(of.tokens, whole)),
        stamp(plan.add<std::uint64_t>("what the forward pass was", loss_stamp::size)),
        teacher_stamp(plan.add<std::uint64_t>("what its teacher was", loss_stamp::size)),
        count(plan.add<std::int64_t>("whether there was one", 1)),
        is_marked(plan.add<std::int32_t>("whether there are marks", 1)),
        scale(plan.add<float>("scale of gradients", 1)),
        states(plan.add<logit_pair_state>("states of rows", of.tokens)),
        rows(plan.add<divergence_row>("log-sum-exps and divergences", of.tokens)),
        student(plan.add<float>("logits of the student", checked_multiply(where, of.tokens, entries))),
        teacher(plan.add<float>("logits of the teacher", checked_multiply(where, of.tokens, entries))),
        band(plan.add<T>("a part's rows of the classifier",
                         HasSource ? checked_multiply(where, entries, row_stride(of.channels)) : 0)),
        teacher_band(
            plan.add<T>("a part's rows of the teacher's classifier",
                        TeacherHasSource ? checked_multiply(where, entries, row_stride(of.teacher_channels)) : 0)),
        forward_bytes(plan.bytes()),
        verdicts(plan.add<float>("whether stamps are right", 2)),
        late_scale(plan.add<float>("last factor of gradients", 1)),
        factors(plan.add<float>("factors of tokens", of.tokens)),
        gradient(plan.add<T>("gradient by logits", checked_multiply(where, of.tokens, entries))),
        turned_gradient(plan.add<T>("the same, transposed", checked_multiply(where, padded_tokens, entries))),
        turned_classifier(
            plan.add<T>("a part of the classifier, transposed", checked_multiply(where, of.channels, entries))),
        turned_hidden(plan.add<T>("hidden states, transposed", checked_multiply(where, of.channels, padded_tokens))),
        hidden_sums(plan.add<float>("sums of the hidden states' gradient",
                                    has_hidden_sums ? checked_multiply(where, of.tokens, of.channels) : 0)),
        column_sums(plan.add<float>("column sums", checked_multiply(where, token_blocks(), entries))) {}

  /// The entries of the part that begins with `first`.
  [[nodiscard]] std::int64_t width(std::int64_t first) const { return min(entries, shape.vocabulary - first); }
  /// Blocks of tokens whose gradients by logits are added up first.
  [[nodiscard]] std::int64_t token_blocks() const {
    return divide_up(shape.tokens, std::int64_t{sum_gradient_columns<T>::rows});
  }
  /// Rows of a band, which begin at multiples of 16 bytes, of the part that begins with `first`.
  matrix_view<T> rows_of_part(workspace const& space, region<T> memory, std::int64_t first,
                              std::int64_t channels) const {
    return {space[memory].data, {width(first), channels}, {row_stride(channels), 1}};
  }
  /// A matrix of tokens x entries of the part that begins with `first`.
  template <class V>
  matrix_view<V> of_part(workspace const& space, region<V> where, std::int64_t first) const {
    return {space[where].data, {shape.tokens, width(first)}, {entries, 1}};
  }
  /// The same with a whole number of entries, zeros behind the last.
  matrix_view<T> gradient_of_part(workspace const& space, std::int64_t first) const {
    return {space[gradient].data, {shape.tokens, align_up(width(first), whole)}, {entries, 1}};
  }
  /// Entries of the part x a whole number of tokens, zeros behind the last.
  matrix_view<T> turned_of_part(workspace const& space, std::int64_t first) const {
    return {space[turned_gradient].data, {width(first), padded_tokens}};
  }

 private:
  static std::int64_t row_stride(std::int64_t channels) { return align_up(channels, std::int64_t{8}); }
  static std::int64_t entries_of(distillation_shape const& of, distillation_options const& options) {
    constexpr auto size = static_cast<std::int64_t>(sizeof(T));
    constexpr std::int64_t usual_budget = std::int64_t{384} << 20;
    std::int64_t const budget = options.workspace_budget > 0 ? options.workspace_budget : usual_budget;
    std::int64_t const of_bands =
        (HasSource ? row_stride(of.channels) : 0) + (TeacherHasSource ? row_stride(of.teacher_channels) : 0);
    std::int64_t const of_entry =
        2 * align_up(max(of.tokens, std::int64_t{1}), whole) * (4 + size) + (of.channels + of_bands) * size;
    std::int64_t const most = max(budget / of_entry, fewest_entries);
    return min(distillation_part_entries(of.tokens, of.channels, most), align_up(of.vocabulary, whole));
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
