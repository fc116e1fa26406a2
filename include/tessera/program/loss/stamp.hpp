// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `loss_stamp`: identifies a forward pass of a loss. It is at the start of the workspace, so that a backward pass can
/// check that the workspace holds its own forward pass. `stamp_loss` is in the last launch of the forward pass,
/// `check_loss_stamp` in the first one of the backward pass.
///
/// A stamp holds the extents, the reduction, and 64-bit hashes of the options, the plan and the inputs. The hash of the
/// inputs covers 1024 elements of each list and matrix, spread evenly, or all of them where there are fewer: it detects
/// other data, but not the change of a single element of a large matrix.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/mix_bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/core/status.hpp>
#include <tessera/program/loss/detail/element_of.hpp>
#include <tessera/program/loss/kept_softmaxes.hpp>
#include <tessera/program/loss/tokens.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// The identity of a forward pass, in eight words.
struct loss_stamp {
  /// What a word stands for; also the position that is reported where two stamps differ.
  enum part {
    mark,       ///< whether there was a forward pass
    tokens,     ///< number of tokens
    entries,    ///< entries of the vocabulary
    channels,   ///< channels of a hidden state
    reduction,  ///< the loss_reduction, as a number
    options,    ///< hash of all other options that a gradient depends on
    inputs,     ///< hash of samples of the inputs
    plan,       ///< hash of what the workspace has room for, and for which loss
  };
  static constexpr int size = 8;  ///< words of a stamp

  /// The first word in the workspace of a forward pass.
  static constexpr std::uint64_t made = 0x74736c6f73736d61ULL;

  std::uint64_t words[size] = {made};  ///< one for each part

  /// Sets a word to a number.
  TESSERA_FN constexpr loss_stamp& set(part which, std::int64_t value) {
    words[which] = static_cast<std::uint64_t>(value);
    return *this;
  }
  /// Mixes a number into a word, which then depends on the order of numbers.
  TESSERA_FN constexpr loss_stamp& add(part which, std::int64_t value) {
    words[which] = mix_bits(words[which], static_cast<std::uint64_t>(value));
    return *this;
  }
  /// Mixes two floats into a word.
  TESSERA_FN constexpr loss_stamp& add(part which, float a, float b) {
    return add(which, static_cast<std::int64_t>(bits_of(a) << 32 | bits_of(b)));
  }

 private:
  TESSERA_FN static constexpr std::uint64_t bits_of(float value) {
    return bit_cast<std::uint32_t>(value + 0.0F);  // -0 counts as 0
  }
};

/// The inputs of a loss, sampled by a group of 1024 lanes: each lane takes one element of each list and matrix.
/// Classifier: a view, or a TileSource, whose elements are sampled as they are multiplied.
template <class T, class Label, class Classifier = matrix_view<T const>>
struct loss_input_samples {
  static constexpr int lanes = 1024;  ///< lanes of the group that samples

  matrix_view<T const> hidden;                 ///< tokens x channels
  Classifier classifier;                       ///< vocabulary x channels
  array_view<Label const> labels;              ///< labels of tokens
  array_view<T const> bias;                    ///< bias of entries, or null
  array_view<float const> weights;             ///< weights of tokens, or null
  array_view<float const> class_weights = {};  ///< weights of entries, or null

  /// The hash of all samples.
  template <Group G>
  TESSERA_FN std::uint64_t number(G const& group) const {
    static_assert(G::size == lanes, "tessera: inputs are sampled by groups of 1024 lanes");
    per_lane<std::uint64_t, G> own;
    for (int lane : group) {
      own[lane] = of_matrix(lane, 1, hidden) + of_matrix(lane, 2, classifier) + of_list(lane, 3, labels) +
                  of_list(lane, 4, bias) + of_list(lane, 5, weights) + of_list(lane, 6, class_weights);
    }
    return sum(group, own);
  }

 private:
  TESSERA_FN static std::uint64_t bits_of(std::int32_t label) { return static_cast<std::uint64_t>(label); }
  TESSERA_FN static std::uint64_t bits_of(std::int64_t label) { return static_cast<std::uint64_t>(label); }
  template <class V>
  TESSERA_FN static std::uint64_t bits_of(V value) {
    return scalar_traits<V>::to_bits(value);
  }

  /// The element that a lane samples. Elements are cut into as many pieces as there are lanes, and a lane takes one
  /// element of its piece, at random but always the same. -1: there are fewer elements than lanes, and none for this
  /// one.
  TESSERA_FN static constexpr std::int64_t element_of(int lane, std::uint64_t which, std::int64_t elements) {
    if (elements <= lanes) {
      return lane < elements ? lane : -1;
    }
    std::int64_t const longer = elements % lanes;
    auto const length = static_cast<std::uint64_t>(elements / lanes + (lane < longer ? 1 : 0));
    std::uint64_t const within = (mix_bits(which, static_cast<std::uint64_t>(lane)) >> 40) * length >> 24;
    return lane * (elements / lanes) + min(std::int64_t{lane}, longer) + static_cast<std::int64_t>(within);
  }
  TESSERA_FN static constexpr std::uint64_t mixed(int lane, std::uint64_t which, std::uint64_t bits) {
    return mix_bits(which << 56 | static_cast<std::uint64_t>(lane), bits);
  }

  template <class V>
  TESSERA_FN static std::uint64_t of_list(int lane, std::uint64_t which, array_view<V const> list) {
    std::int64_t const at = list.data != nullptr ? element_of(lane, which, list.size()) : -1;
    return at < 0 ? 0 : mixed(lane, which, bits_of(list[at]));
  }
  template <class Matrix>
  TESSERA_FN static std::uint64_t of_matrix(int lane, std::uint64_t which, Matrix const& matrix) {
    std::int64_t const columns = detail::columns_in(matrix);
    std::int64_t const at = element_of(lane, which, detail::rows_in(matrix) * columns);
    return at < 0 ? 0 : mixed(lane, which, bits_of(detail::element_of(matrix, at / columns, at % columns)));
  }
};

/// Writes the stamp. Run with one group, in the forward pass's last launch.
template <class T, class Label, class Classifier = matrix_view<T const>>
struct stamp_loss {
  /// Samples of the inputs.
  using samples_type = loss_input_samples<T, Label, Classifier>;
  static constexpr int lanes = samples_type::lanes;
  struct scratch_type {};

  loss_stamp stamp;                  ///< the stamp, without the hash of the inputs
  samples_type samples;              ///< inputs to be sampled
  array_view<std::uint64_t> target;  ///< loss_stamp::size words

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    std::uint64_t const of_inputs = samples.number(group);
    for (int lane : group) {
      if (lane < loss_stamp::size) {
        target[lane] = lane == loss_stamp::inputs ? of_inputs : stamp.words[lane];
      }
    }
  }
};

static_assert(kept_softmaxes<float>::used_up == loss_stamp::size, "the next position of status_code::other_forward");

/// What a forward pass leaves for its own backward pass, and another backward pass must not use.
struct loss_leavings {
  array_view<std::uint64_t> stamp;     ///< loss_stamp::size words
  loss_token_list tokens;              ///< the tokens with a label
  array_view<std::int32_t> is_marked;  ///< one element: whether there are marks
  array_view<std::int32_t> softmaxes;  ///< one element, or none: whether there are softmaxes
};

/// Compares the stamps. Run with one group, before all else of the backward pass. If the workspace has another forward
/// pass, or none, it says so in the status word and clears what that pass left: no token has a label then, and the last
/// factor makes all gradients NaN.
template <class T, class Label, class Classifier = matrix_view<T const>>
struct check_loss_stamp {
  /// Samples of the inputs.
  using samples_type = loss_input_samples<T, Label, Classifier>;
  static constexpr int lanes = samples_type::lanes;
  struct scratch_type {};

  loss_stamp stamp;              ///< the expected stamp, without the hash of the inputs
  samples_type samples;          ///< inputs to be sampled
  loss_leavings leavings;        ///< what the forward pass in the workspace has left
  array_view<float> late_scale;  ///< one element, the last factor of all gradients: 1, or NaN
  status_word* status;

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    std::uint64_t const of_inputs = samples.number(group);
    int const differs = first_difference(of_inputs);
    group.sync();  // all lanes have read the stamp
    bool const is_own = differs == loss_stamp::size;
    for (int lane : group) {
      if (is_first(lane)) {
        late_scale[0] = is_own ? 1.0F : detail::not_a_number;
        if (!is_own) {
          group.report(status, status_code::other_forward, differs, values_of(differs));
          forget();
        }
      }
      for (std::int64_t token = lane; !is_own && token < tokens().order.size(); token += lanes) {
        tokens().order[token] = -1;
        tokens().row_of[token] = -1;
      }
    }
  }

 private:
  TESSERA_FN loss_token_list const& tokens() const { return leavings.tokens; }

  TESSERA_FN int first_difference(std::uint64_t of_inputs) const {
    int part = 0;
    while (part < loss_stamp::size &&
           leavings.stamp[part] == (part == loss_stamp::inputs ? of_inputs : stamp.words[part])) {
      ++part;
    }
    return part;
  }
  /// The values of both stamps for a part, if it is stored as it is and not as a hash.
  TESSERA_FN status_detail values_of(int part) const {
    if (part < loss_stamp::tokens || part > loss_stamp::reduction) {
      return {};
    }
    return {static_cast<std::int64_t>(leavings.stamp[part]), static_cast<std::int64_t>(stamp.words[part])};
  }
  TESSERA_FN void forget() const {
    leavings.stamp[loss_stamp::mark] = 0;
    leavings.tokens.count[0] = 0;
    leavings.is_marked[0] = 0;
    if (leavings.softmaxes.size() > 0) {
      leavings.softmaxes[0] = kept_softmaxes<T>::there;  // so that differentiate_softmaxes reports no second error
    }
  }
};

}  // namespace v0
}  // namespace tessera
