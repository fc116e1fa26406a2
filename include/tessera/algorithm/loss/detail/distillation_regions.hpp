// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `distillation_regions`: the workspace of algorithm/loss/linear_distillation.hpp, and into which parts its passes cut
/// tokens and entries. The regions of the forward pass come first. The memory of a pass's parts is that of the other
/// pass's, since gradients by logits that are kept lie elsewhere. Where products need transposed copies these lie where
/// a part's logits were, from which gradients have been made then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/loss/linear_distillation_types.hpp>
#include <tessera/algorithm/loss/linear_loss_types.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/loss/gradient_products.hpp>
#include <tessera/program/loss/logit_pairs.hpp>
#include <tessera/program/loss/stamp.hpp>
#include <tessera/tuning/loss/linear_distillation.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// What a call of distillation is like, beside its shape and options.
struct distillation_use {
  bool has_all_entries;  ///< whether no other ranks have entries, with which parts of tokens would have to be exchanged
  bool reads_twice;      ///< whether the forward pass needs all log-sum-exps before it reads logits again
};

/// Tokens and entries whose logits are in memory at a time.
struct distillation_part {
  std::int64_t first_token;  ///< number of the first token
  std::int64_t tokens;       ///< how many
  std::int64_t first;        ///< number of the first entry
  std::int64_t entries;      ///< how many
};

/// Elements of a list from one on; of no list none.
template <class V>
array_view<V> some_of(array_view<V> list, std::int64_t first, std::int64_t count) {
  return list.data == nullptr ? list : list.slice(0, first, count);
}

/// How many elements rows of so many channels are apart, so that they begin at multiples of 16 bytes.
constexpr std::int64_t band_stride(std::int64_t channels) {
  return align_up(channels, std::int64_t{8});
}

/// How calls of these extents and options are cut into parts. T: the type of operands. HasSource, TeacherHasSource:
/// whether rows of the classifiers are made when needed.
template <class T, bool HasSource, bool TeacherHasSource>
struct distillation_cut {
  static constexpr std::int64_t fewest_entries = 128;  ///< of a part
  static constexpr std::int64_t whole = 64;            ///< entries of parts and extents of products are multiples

  std::int64_t stride;           ///< entries of the vocabulary, rounded up
  std::int64_t kept;             ///< the first tokens, whose gradients by logits are kept
  std::int64_t forward_tokens;   ///< of a part of the forward pass, but that the last one may have fewer
  std::int64_t forward_entries;  ///< the same, of entries
  std::int64_t band;             ///< entries whose rows are made at a time in the forward pass
  std::int64_t entries;          ///< of a part of the backward pass, which has all tokens

  distillation_cut(char const* where, distillation_shape const& of, distillation_options const& options,
                   distillation_use use)
      : stride(align_up(of.vocabulary, whole)) {
    constexpr std::int64_t usual_budget = std::int64_t{384} << 20;
    constexpr std::int64_t most_of_band = std::int64_t{256} << 20;  // enough for a wave of tiles
    std::int64_t const budget = options.workspace_budget > 0 ? options.workspace_budget : usual_budget;
    std::int64_t const of_bands =
        size * ((HasSource ? band_stride(of.channels) : 0) + (TeacherHasSource ? band_stride(of.teacher_channels) : 0));
    std::int64_t const in_bands =
        of_bands == 0 ? stride : min(band_of(of_bands, min(budget / 8, most_of_band)), stride);
    std::int64_t const left = budget - checked_multiply(where, in_bands, of_bands);
    bool const can_keep = options.reduction != loss_reduction::none;
    distillation_token_parts parts{0, 0};
    if (use.has_all_entries && options.workspace_budget > 0 && left > 0) {
      std::int64_t const gradient = checked_multiply(where, stride, size);
      parts = choose_token_parts(
          {of.tokens, checked_multiply(where, stride, 8), can_keep ? gradient : 0, left, use.reads_twice});
    }
    kept = parts.kept;
    std::int64_t const rest = of.tokens - kept;
    std::int64_t const made = rest > 0 ? of.tokens : 0;  // gradients by logits
    std::int64_t const transposed = (align_up(max(of.tokens, std::int64_t{1}), whole) + of.channels) * size;
    std::int64_t const of_entry = made * size + max(rest * 8, transposed) + of_bands;
    std::int64_t const most = max((budget - kept * stride * size) / of_entry, fewest_entries);
    entries = min(distillation_part_entries(of.tokens, of.channels, most), stride);
    bool const takes_tokens = parts.tokens > 0;
    forward_tokens = takes_tokens ? parts.tokens : max(of.tokens, std::int64_t{1});
    forward_entries = takes_tokens ? stride : entries;
    band = takes_tokens ? in_bands : entries;
  }

 private:
  static constexpr auto size = static_cast<std::int64_t>(sizeof(T));
  /// The entries whose rows take so many bytes.
  static constexpr std::int64_t band_of(std::int64_t entry_bytes, std::int64_t bytes) {
    return max(bytes / entry_bytes / fewest_entries * fewest_entries, fewest_entries);
  }
};

/// The memory of the logits of a part, and of rows of classifiers that are made.
template <class T>
struct logit_pair_regions {
  std::int64_t stride;     ///< elements from a token to the next
  std::int64_t in_band;    ///< entries whose rows are made at a time
  region<T> band;          ///< rows of a classifier that is a source
  region<T> teacher_band;  ///< the same of the teacher
  region<float> student;   ///< logits
  region<float> teacher;   ///< logits

  /// A side's logits of a part.
  [[nodiscard]] matrix_view<float> of_part(workspace const& space, region<float> side,
                                           distillation_part const& part) const {
    return {space[side].data, {part.tokens, part.entries}, {stride, 1}};
  }
};

/// Gradient: the type of gradients.
template <class T, class Gradient, bool HasSource = false, bool TeacherHasSource = false>
struct distillation_regions {
  /// Whether sums of the hidden states' gradient lie in the workspace until they are rounded.
  static constexpr bool has_hidden_sums = !std::is_same_v<Gradient, float>;
  using cut_type = distillation_cut<T, HasSource, TeacherHasSource>;
  static constexpr std::int64_t whole = cut_type::whole;

  bool always_transposes;  ///< whether operands of gradients are copied transposed, wherever they lie
  workspace_plan plan;
  distillation_shape shape;
  cut_type cut;
  std::int64_t padded_tokens;  ///< tokens, rounded up so that rows begin and end at multiples of 16 bytes
  region<std::uint64_t> stamp;
  region<std::uint64_t> teacher_stamp;
  region<std::int64_t> count;
  region<std::int32_t> is_marked;
  region<float> scale;
  region<logit_pair_state> states;
  region<divergence_row> rows;
  logit_pair_regions<T> forward;    ///< of parts of the forward pass
  logit_pair_regions<T> backward;   ///< of parts of the backward pass, in the same memory
  region<T> gradient;               ///< by logits, of all tokens unless all are kept
  region<T> transposed_gradient;    ///< where logits were
  region<T> transposed_classifier;  ///< where logits were
  region<T> transposed_hidden;      ///< where logits were, or for all parts
  region<float> column_sums;
  std::int64_t forward_bytes;  ///< of the forward pass alone, which keeps nothing
  region<T> kept;              ///< gradients by logits that the forward pass leaves
  region<float> factors;       ///< of tokens; where some are kept the forward pass makes them
  region<float> divisor;       ///< by which they were divided then
  std::int64_t shared_bytes;   ///< up to here both passes use the workspace
  region<float> verdicts;
  region<float> late_scale;
  region<float> hidden_sums;

  distillation_regions(char const* where, distillation_shape const& of, distillation_options const& options,
                       distillation_use use, workspace_plan::record record = workspace_plan::record::entries)
      : always_transposes(sizeof(T) != 2 || of.channels % 8 != 0),
        plan(where, record),
        shape(of),
        cut(where, of, options, use),
        padded_tokens(align_up(of.tokens, whole)),
        stamp(plan.add<std::uint64_t>("what the forward pass was", loss_stamp::size)),
        teacher_stamp(plan.add<std::uint64_t>("what its teacher was", loss_stamp::size)),
        count(plan.add<std::int64_t>("whether there was one", 1)),
        is_marked(plan.add<std::int32_t>("whether there are marks", 1)),
        scale(plan.add<float>("scale of gradients", 1)),
        states(plan.add<logit_pair_state>("states of rows", of.tokens)),
        rows(plan.add<divergence_row>("log-sum-exps and divergences", of.tokens)) {
    add_parts(where);
    kept = plan.add<T>("gradients by logits that are kept", checked_multiply(where, cut.kept, cut.stride));
    factors = plan.add<float>("factors of tokens", of.tokens);
    divisor = plan.add<float>("what they were divided by", 1);
    shared_bytes = plan.bytes();
    verdicts = plan.add<float>("whether stamps are right", 2);
    late_scale = plan.add<float>("last factor of gradients", 1);
    if (always_transposes) {
      transposed_hidden = plan.add<T>("hidden states, transposed", checked_multiply(where, of.channels, padded_tokens));
    }
    hidden_sums = plan.add<float>("sums of the hidden states' gradient",
                                  has_hidden_sums ? checked_multiply(where, of.tokens, of.channels) : 0);
  }

  /// Whether a forward pass in this workspace keeps gradients by logits: those of its first `cut.kept` tokens.
  [[nodiscard]] bool keeps(workspace const& space) const { return cut.kept > 0 && space.bytes() >= shared_bytes; }
  /// The entries of the backward pass's part that begins with `first`.
  [[nodiscard]] std::int64_t width(std::int64_t first) const { return min(cut.entries, shape.vocabulary - first); }
  /// Blocks of tokens whose gradients by logits are added up first.
  [[nodiscard]] std::int64_t token_blocks() const {
    return divide_up(shape.tokens, std::int64_t{sum_gradient_columns<T>::rows});
  }
  /// Whether gradients by logits of all tokens are kept.
  [[nodiscard]] bool keeps_all() const { return cut.kept > 0 && cut.kept == shape.tokens; }
  /// Rows of a band, of so many entries, which begin at multiples of 16 bytes.
  matrix_view<T> band_rows(workspace const& space, region<T> memory, std::int64_t count_of_entries,
                           std::int64_t channels) const {
    return {space[memory].data, {count_of_entries, channels}, {band_stride(channels), 1}};
  }
  /// Gradients by logits that are kept of some of the tokens, with a whole number of entries, zeros behind the last.
  matrix_view<T> kept_rows(workspace const& space, std::int64_t first_token, std::int64_t tokens) const {
    return matrix_view<T>(space[kept].data, {cut.kept, cut.stride}).slice(0, first_token, tokens);
  }
  /// The same of the backward pass's part that begins with `first`.
  matrix_view<T> kept_part(workspace const& space, std::int64_t first) const {
    return kept_rows(space, 0, cut.kept).slice(1, first, align_up(width(first), whole));
  }
  /// Those of all tokens, which the backward pass makes or copies.
  matrix_view<T> gradient_of_part(workspace const& space, std::int64_t first) const {
    return {space[gradient].data, {shape.tokens, align_up(width(first), whole)}, {cut.entries, 1}};
  }
  /// Those of all tokens, wherever they are.
  matrix_view<T const> gradients(workspace const& space, std::int64_t first) const {
    return keeps_all() ? kept_part(space, first) : gradient_of_part(space, first);
  }
  /// Entries of the part x a whole number of tokens, zeros behind the last.
  matrix_view<T> transposed_of_part(workspace const& space, std::int64_t first) const {
    return {space[transposed_gradient].data, {width(first), padded_tokens}};
  }
  /// Hidden states: channels x a whole number of tokens, zeros behind the last.
  matrix_view<T> transposed_rows(workspace const& space) const {
    return {space[transposed_hidden].data, {shape.channels, padded_tokens}};
  }

 private:
  /// Adds the memory that both passes' parts share.
  void add_parts(char const* where) {
    workspace_plan ahead(where, workspace_plan::record::sizes);
    forward = add_logits(where, ahead, cut.forward_tokens, {cut.forward_entries, cut.band});
    workspace_plan back(where, workspace_plan::record::sizes);
    std::int64_t const made = keeps_all() ? 0 : shape.tokens;
    gradient = back.add<T>("gradient by logits", checked_multiply(where, made, cut.entries));
    column_sums = back.add<float>("column sums", checked_multiply(where, token_blocks(), cut.entries));
    backward = add_logits(where, back, shape.tokens - cut.kept, {cut.entries, cut.entries});
    workspace_plan copies(where, workspace_plan::record::sizes);
    transposed_gradient = copies.add<T>("the same, transposed", checked_multiply(where, padded_tokens, cut.entries));
    transposed_classifier =
        copies.add<T>("a part of the classifier, transposed", checked_multiply(where, shape.channels, cut.entries));
    transposed_hidden = copies.add<T>("hidden states, transposed",
                                      always_transposes ? 0 : checked_multiply(where, shape.channels, padded_tokens));
    std::int64_t const of_logits = backward.student.offset;
    region<std::byte> const both = plan.add<std::byte>(
        "logits and gradients of a part", max(ahead.bytes(), max(back.bytes(), of_logits + copies.bytes())));
    forward_bytes = both.offset + ahead.bytes();
    move(both.offset, forward.student, forward.teacher, forward.band, forward.teacher_band);
    move(both.offset, backward.student, backward.teacher, backward.band, backward.teacher_band);
    move(both.offset, gradient, column_sums);
    move(both.offset + of_logits, transposed_gradient, transposed_classifier, transposed_hidden);
  }
  struct part_width {
    std::int64_t entries;
    std::int64_t in_band;
  };
  logit_pair_regions<T> add_logits(char const* where, workspace_plan& to, std::int64_t tokens, part_width of) const {
    std::int64_t const logits = checked_multiply(where, min(tokens, shape.tokens), of.entries);
    auto const rows_of = [&](bool is_made, std::int64_t channels) {
      return is_made ? checked_multiply(where, of.in_band, band_stride(channels)) : 0;
    };
    return {of.entries,
            of.in_band,
            to.add<T>("a part's rows of the classifier", rows_of(HasSource, shape.channels)),
            to.add<T>("a part's rows of the teacher's classifier", rows_of(TeacherHasSource, shape.teacher_channels)),
            to.add<float>("logits of the student", logits),
            to.add<float>("logits of the teacher", logits)};
  }
  template <class... Regions>
  static void move(std::int64_t offset, Regions&... regions) {
    ((regions.offset += offset), ...);
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
