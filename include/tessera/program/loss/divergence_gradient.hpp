// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Programs of distillation's gradients: `prepare_divergence_gradients` makes the factors of tokens, and
/// `scale_kept_gradients` the last factor where those are used by a forward pass; `differentiate_divergence` turns
/// logits into gradients by sums, for the two products that follow; and `scaled_and_added` is what happens to the sums
/// of these.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/map/divergence.hpp>
#include <tessera/map/identity_logits.hpp>
#include <tessera/program/loss/logit_pairs.hpp>
#include <tessera/program/loss/logits.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/row_chunks.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// Makes the factors of tokens. Run with one group. All are divided by one number, so that the largest is 64: gradients
/// by logits then fill the range of fp16, and sums of products are multiplied by the number again.
struct prepare_divergence_gradients {
  static constexpr int lanes = 1024;
  static constexpr float largest_factor = 64.0F;  ///< what the largest factor becomes
  struct scratch_type {};

  array_view<float const> weights;   ///< a value for each token, or null for ones
  array_view<float const> upstream;  ///< of the reduced loss, or of each token's; null: ones
  bool is_reduced;                   ///< whether the losses of tokens are reduced to one
  array_view<float const> scale;     ///< one element: finish_distillation::scale
  array_view<float const> verdicts;  ///< 1 for each stamp that is right, else NaN
  array_view<float> factors;         ///< the result, one for each token
  array_view<float> late_scale;      ///< the result, one element, by which sums of products are multiplied
  float steepest = 1.0F;             ///< a bound of the slopes of the student's map of logits

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    per_lane<float, G> top;
    for (int lane : group) {
      top[lane] = 0.0F;
      for (std::int64_t token = lane; token < factors.size(); token += lanes) {
        top[lane] = maximum(top[lane], absolute(factor_of(token)));
      }
    }
    float const largest = maximum(group, top);
    float const divisor = largest > 0.0F && largest < infinity ? largest * steepest / largest_factor : 1.0F;
    for (int lane : group) {
      for (std::int64_t token = lane; token < factors.size(); token += lanes) {
        factors[token] = factor_of(token) / divisor;
      }
      if (is_first(lane)) {
        late_scale[0] = divisor;
        for (std::int64_t i = 0; i < verdicts.size(); ++i) {
          late_scale[0] *= verdicts[i];
        }
      }
    }
  }

 private:
  TESSERA_FN float factor_of(std::int64_t token) const {
    float const given = upstream.data != nullptr ? upstream[is_reduced ? 0 : token] : 1.0F;
    float const weight = weights.data != nullptr ? weights[token] : 1.0F;
    return weight == 0.0F ? 0.0F : (is_reduced ? scale[0] : 1.0F) * given * weight;
  }
};

/// Makes the last factor of gradients by logits that the forward pass has made and kept: without the upstream gradient
/// and the scale of a mean, which are one number for all tokens. Run with one group.
struct scale_kept_gradients {
  static constexpr int lanes = 32;
  struct scratch_type {};

  array_view<float const> divisor;   ///< one element: prepare_divergence_gradients::late_scale of the forward pass
  array_view<float const> scale;     ///< one element: finish_distillation::scale
  array_view<float const> upstream;  ///< one element, or null for 1
  array_view<float const> verdicts;  ///< 1 for each stamp that is right, else NaN
  array_view<float> late_scale;      ///< the result, one element

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    for (int lane : group) {
      if (is_first(lane)) {
        float product = divisor[0] * (scale[0] * (upstream.data != nullptr ? upstream[0] : 1.0F));
        for (std::int64_t i = 0; i < verdicts.size(); ++i) {
          product *= verdicts[i];
        }
        late_scale[0] = product;
      }
    }
  }
};

/// Turns the logits of a part into gradients by the sums that became the student's logits, times the factors of tokens.
/// A token with a factor of 0 has gradients of 0, whatever its logits are. T: the type of the products' operands. Map:
/// what the student's logits go through.
template <Divergence D, class T, LogitMap Map = identity_logits>
struct differentiate_divergence {
  static constexpr int lanes = 128;
  static constexpr int blocks_per_multiprocessor = 6;  ///< with up to 80 registers for each lane
  struct scratch_type {};

  D divergence;                           ///< of the teacher's and the student's distributions
  logit_scaling<T> scaling;               ///< how sums became the student's logits
  matrix_view<float const> student;       ///< tokens x entries of the part
  matrix_view<float const> teacher;       ///< tokens x entries of the part
  array_view<divergence_row const> rows;  ///< one for each token
  array_view<float const> factors;        ///< one for each token
  matrix_view<T> gradient;      ///< the result: tokens x entries, whose number is rounded up; zeros beyond the part
  mapped_logits<Map> map = {};  ///< of the student

  /// How many groups a token has.
  TESSERA_FN constexpr std::int64_t across() const { return divide_up(gradient.extent(1), std::int64_t{in_group}); }
  TESSERA_FN constexpr std::int64_t groups() const { return across() * gradient.extent(0); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const token = which / across();
    for (int lane : group) {
      std::int64_t const entry = which % across() * in_group + lane * size;
      if (entry < gradient.extent(1)) {
        row_chunks<T>{gradient}.store(token, entry, by_sums(token, entry));
      }
    }
  }

 private:
  static constexpr int size = tile_chunk<T>::size;  ///< elements of a chunk of 16 bytes
  static constexpr int in_group = lanes * size;     ///< entries of a group

  /// The gradients of a chunk of entries; zeros beyond the part.
  TESSERA_FN tile_chunk<T> by_sums(std::int64_t token, std::int64_t entry) const {
    tile_chunk<T> found{};
    if (factors[token] == 0.0F) {
      return found;
    }
    divergence_row const row = rows[token];
    float const factor = factors[token];
    float const of_cap = scaling.of_cap();
    row_chunks<float const> const of_student{student};
    row_chunks<float const> const of_teacher{teacher};
    constexpr int quad = tile_chunk<float>::size;
    for (int first = 0; first < size; first += quad) {
      auto const s = of_student.load(token, entry + first);
      auto const t = of_teacher.load(token, entry + first);
      for (int k = 0; k < quad; ++k) {
        std::int64_t const column = entry + first + k;
        bool const is_there = column < student.extent(1);
        bool const is_mapped = leaves_logits<Map> || is_there;  // a map may read memory, of entries that there are
        float const log_q = (is_mapped ? map(s.values[k], token, column) : 0.0F) - row.student;
        float const slope = divergence.slope(t.values[k] - row.teacher, log_q);
        float const by_logit = factor * (slope - exp(log_q) * row.slope_sum);
        float const by_sum = by_logit * (scaling.slope(s.values[k], of_cap) *
                                         (is_mapped ? map.slope(s.values[k], token, column) : 0.0F));
        found.values[first + k] = store<T>(is_there ? by_sum : 0.0F);
      }
    }
    return found;
  }
};

/// A map of sums (concepts/sum_map.hpp): multiplies them by a number that is in memory, and adds what was there before.
/// A number of 0 makes 0 of any sum, since factors of 0 mean that logits do not count.
/// IsOfClassifier: whether the sums are the classifier's gradient, of two matrices that both lie across the depth, or
/// the hidden states', of which only the second one does.
template <bool IsOfClassifier>
struct scaled_and_added {
  /// Whether operands lie so, other than along the depth.
  static constexpr bool may_lie(bool inputs_are_across, bool weights_are_across) {
    return inputs_are_across == IsOfClassifier && weights_are_across;
  }

  float const* scale;               ///< the number
  matrix_view<float const> before;  ///< rows x columns, or null for zeros

  /// Names the views that it reads, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    use("sums to be added", before);
  }
  /// The value that is stored for a sum.
  TESSERA_FN constexpr float operator()(float sum, std::int64_t row, std::int64_t column) const {
    float const product = *scale == 0.0F ? 0.0F : sum * *scale;
    return before.data != nullptr ? product + before(row, column) : product;
  }
};

}  // namespace v0
}  // namespace tessera
