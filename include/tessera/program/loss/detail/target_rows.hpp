// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `target_rows`: targets of tokens that are given as entries of the vocabulary with weights. `select_targets` finds
/// the tokens that have some, and gives each the label and the weight with which a loss of labels runs.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/status.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// The weights of a token's targets together.
struct target_weights {
  float sum;        ///< of weights
  float magnitude;  ///< of their magnitudes
};

/// Entry: std::int32_t or std::int64_t.
template <class Entry>
struct target_rows {
  static_assert(std::is_same_v<Entry, std::int32_t> || std::is_same_v<Entry, std::int64_t>,
                "tessera: entries of targets are std::int32_t or std::int64_t");
  static constexpr std::int64_t none = -1;  ///< no entry is given

  matrix_view<Entry const> entries;  ///< tokens x K; negative: none
  matrix_view<float const> weights;  ///< tokens x K
  std::int64_t ignore_index;         ///< this entry is none, too
  std::int64_t vocabulary;           ///< entries of the vocabulary

  /// Names the views that it reads, for check_reach_of().
  template <class Use>
  constexpr void each_view(Use const& use) const {
    use("entries of targets", entries);
    use("weights of targets", weights);
  }
  /// K: how many entries a token may have.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t count() const { return entries.extent(1); }
  /// The entry in a place of a token's row, which need not be one of the vocabulary, or none.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t given(std::int64_t token, std::int64_t place) const {
    auto const entry = static_cast<std::int64_t>(entries(token, place));
    return entry < 0 || entry == ignore_index ? none : entry;
  }
  /// The same, but none where the weight is 0, so that nothing depends on the entry.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t weighted(std::int64_t token, std::int64_t place) const {
    return weights(token, place) == 0.0F ? none : given(token, place);
  }
  /// The weight of an entry in all of its places, added up from the first to the last.
  [[nodiscard]] TESSERA_FN constexpr float weight_of(std::int64_t token, std::int64_t entry) const {
    float sum = 0.0F;
    for (std::int64_t place = 0; place < count(); ++place) {
      sum += weighted(token, place) == entry ? weights(token, place) : 0.0F;
    }
    return sum;
  }
  /// The weights of all entries of a token.
  [[nodiscard]] TESSERA_FN constexpr target_weights weights_of(std::int64_t token) const {
    target_weights all{0.0F, 0.0F};
    for (std::int64_t place = 0; place < count(); ++place) {
      float const weight = weighted(token, place) < 0 ? 0.0F : weights(token, place);
      all.sum += weight;
      all.magnitude += absolute(weight);
    }
    return all;
  }
};

/// Finds for each token the sum of its weights and its heaviest entry. Run with a group for each token. An entry beyond
/// the vocabulary is reported with its position, token * K + place; its token gets no label and a weight of NaN.
template <class Entry>
struct select_targets {
  static constexpr int lanes = 32;
  static constexpr int groups_per_block = 4;
  static constexpr std::int32_t no_label = -1;  ///< the label of tokens without an entry
  struct scratch_type {};

  target_rows<Entry> targets;
  array_view<float const> weights;  ///< weights of tokens, or null for ones
  /// The result, one for each token: the entry of the largest weight, the first of equal ones; one of weight 0 only
  /// where there is no other.
  array_view<std::int32_t> labels;
  array_view<float> masses;  ///< the result: the token's weight times the sum of those of its entries
  status_word* status;

  TESSERA_FN constexpr std::int64_t groups() const { return labels.size(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t token, scratch_type&) const {
    per_lane<summary, G> own;
    per_lane<bool, G> bad;
    for (int lane : group) {
      own[lane] = {0.0F, {0.0F, target_rows<Entry>::none, 0}};
      bad[lane] = false;
      for (std::int64_t place = lane; place < targets.count(); place += lanes) {
        std::int64_t const entry = targets.given(token, place);
        if (entry >= targets.vocabulary) {
          bad[lane] = true;
          group.report(status, status_code::bad_entry, token * targets.count() + place, {entry, targets.vocabulary});
        } else if (entry >= 0) {
          float const weight = targets.weights(token, place);
          own[lane] = own[lane] + summary{weight, {weight, place, weight == 0.0F ? 1 : 2}};
        }
      }
    }
    summary const all = reduce(group, own, plus{});
    bool const is_bad = any(group, bad);
    for (int lane : group) {
      if (lane == 0) {
        std::int64_t const place = all.heaviest.place;
        labels[token] = is_bad || place < 0 ? no_label : static_cast<std::int32_t>(targets.given(token, place));
        float const weight = weights.data != nullptr ? weights[token] : 1.0F;
        masses[token] = is_bad ? not_a_number : place < 0 ? 0.0F : weight * all.sum;
      }
    }
  }

 private:
  struct candidate {
    float weight;
    std::int64_t place;  ///< negative: there is none
    int rank;            ///< 0: there is none, 1: its weight is 0, 2: it is not

    TESSERA_FN constexpr bool is_before(candidate const& other) const {
      if (rank != other.rank) {
        return rank > other.rank;
      }
      return weight > other.weight || (!(weight < other.weight) && place < other.place);
    }
  };
  struct summary {
    float sum;
    candidate heaviest;

    TESSERA_FN friend constexpr summary operator+(summary const& a, summary const& b) {
      return {a.sum + b.sum, b.heaviest.is_before(a.heaviest) ? b.heaviest : a.heaviest};
    }
  };
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
