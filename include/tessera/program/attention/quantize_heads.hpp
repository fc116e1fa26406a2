// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `encode_tokens` and `encode_values`: make codes and scales of attention heads, in the formats of
/// attention/quantized_operands.hpp. `measure_heads` runs first where a whole head has one scale.
///
/// A code is the nearest one, ties to even, to (value - mean) * reciprocal_of(scale), each operation rounded to fp32.
/// The scale is the largest magnitude of value - mean in the group, divided by the largest code. Every program that
/// follows these rules makes the same bits.
#pragma once

#include <cstdint>

#include <tessera/concepts/attention_quantizer.hpp>
#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/int4.hpp>
#include <tessera/program/attention/head_source.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/quantize/code_scale.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/reduce/absolute_maximum_or_nan.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/view/head_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {

/// The tokens of a head_source, minus a mean.
template <class Source>
struct smoothed_heads {
  Source source;               ///< the tokens before the mean is subtracted
  view<float const, 4> means;  ///< batch x heads x means x channels, or null
  std::int64_t mean_tokens;    ///< tokens that share a mean

  /// How many tokens a sequence has.
  TESSERA_FN std::int64_t length(std::int64_t sequence) const { return source.length(sequence); }
  TESSERA_FN float operator()(std::int64_t sequence, std::int64_t head, std::int64_t token,
                              std::int64_t channel) const {
    float const value = source(sequence, head, token, channel);
    return means.data == nullptr ? value : value - means(sequence, head, token / mean_tokens, channel);
  }
  /// The bits of the largest magnitude of a token: see absolute_maximum_or_nan_reducer.
  TESSERA_FN std::uint32_t magnitude(std::int64_t sequence, std::int64_t head, std::int64_t token) const {
    absolute_maximum_or_nan_reducer const reducer;
    auto state = reducer.identity();
    for (std::int64_t channel = 0; channel < source.channels(); ++channel) {
      reducer.push(state, (*this)(sequence, head, token, channel));
    }
    return state;
  }
};

/// Finds the largest magnitude of each head. A group takes a head.
template <class Source>
struct measure_heads {
  static constexpr int lanes = 128;
  struct scratch_type {};

  smoothed_heads<Source> source;
  matrix_view<std::uint32_t> magnitudes;  ///< batch x heads

  TESSERA_FN constexpr std::int64_t groups() const { return magnitudes.extent(0) * magnitudes.extent(1); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const head = which % magnitudes.extent(1);
    std::int64_t const sequence = which / magnitudes.extent(1);
    per_lane<std::uint32_t, G> largest;
    for (int lane : group) {
      largest[lane] = 0;
      for (std::int64_t token = lane; token < source.length(sequence); token += lanes) {
        largest[lane] = max(largest[lane], source.magnitude(sequence, head, token));
      }
    }
    std::uint32_t const most = maximum(group, largest);
    for (int lane : group) {
      if (is_first(lane)) {
        magnitudes(sequence, head) = most;
      }
    }
  }
};

/// Makes codes and scales of queries or keys; stored_code<Q> is the element that Q's codes lie in. Groups: those of
/// queries or of keys in Q's granularity. A group takes a block of 128 tokens.
template <ScoreQuantizer Q, TokenGroups Groups, class Source>
struct encode_tokens {
  /// The element that codes lie in.
  using code_type = stored_code<Q>;
  static constexpr int lanes = 128;
  /// Tokens that a group takes.
  static constexpr int block = static_cast<int>(attention_padding);
  static_assert(Groups::is_whole || block % (Groups::is_whole ? 1 : Groups::tokens) == 0,
                "tessera: tokens that share a scale lie within 128, or are a whole head");
  struct scratch_type {
    std::uint32_t magnitude[block];  ///< the largest magnitude of each token, as bits
    float reciprocal[block];         ///< the reciprocal of each token's scale
  };

  smoothed_heads<Source> source;
  matrix_view<std::uint32_t const> magnitudes;  ///< largest magnitudes of whole heads, for Groups::is_whole
  float factor;                                 ///< what scales are multiplied by after codes are made
  head_view<code_type> codes;                   ///< batch x heads x padded tokens x channels / codes_in
  view<float, 3> scales;                        ///< batch x heads x groups

  TESSERA_FN constexpr std::int64_t groups() const {
    return codes.extent(0) * codes.extent(1) * (codes.extent(2) / block);
  }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    std::int64_t const blocks = codes.extent(2) / block;
    std::int64_t const first = which % blocks * block;
    std::int64_t const head = which / blocks % codes.extent(1);
    std::int64_t const sequence = which / blocks / codes.extent(1);
    std::int64_t const length = source.length(sequence);
    for (int token : group) {
      scratch.magnitude[token] = first + token < length ? source.magnitude(sequence, head, first + token) : 0;
    }
    group.sync();
    for (int token : group) {
      code_scale const fitted = fit(sequence, head, first, token, scratch);
      scratch.reciprocal[token] = fitted.reciprocal;
      if (is_first_of_group(first, token)) {
        scales(sequence, head, Groups::group_of(first + token)) = fitted.scale * factor;
      }
    }
    group.sync();
    std::int64_t const elements = codes.extent(3);
    for (int lane : group) {
      for (std::int64_t i = lane; i < block * elements; i += lanes) {
        std::int64_t const token = i / elements;
        std::int64_t const element = i % elements;
        codes(sequence, head, first + token, element) =
            first + token < length ? encode(sequence, head, first + token, element, scratch.reciprocal[token])
                                   : code_type{};
      }
    }
  }

 private:
  TESSERA_FN code_type encode(std::int64_t sequence, std::int64_t head, std::int64_t token, std::int64_t element,
                              float reciprocal) const {
    if constexpr (codes_in<code_type> == 2) {
      std::int64_t const channel = 2 * element;
      return pack_int4(Q::encode_scaled(source(sequence, head, token, channel), reciprocal),
                       Q::encode_scaled(source(sequence, head, token, channel + 1), reciprocal));
    } else {
      return Q::encode_scaled(source(sequence, head, token, element), reciprocal);
    }
  }
  TESSERA_FN code_scale fit(std::int64_t sequence, std::int64_t head, std::int64_t first, int token,
                            scratch_type const& scratch) const {
    std::uint32_t largest = 0;
    if constexpr (Groups::is_whole) {
      largest = magnitudes(sequence, head);
    } else {
      for (int other = 0; other < block; ++other) {
        bool const is_together = Groups::group_of(first + other) == Groups::group_of(first + token);
        largest = is_together ? max(largest, scratch.magnitude[other]) : largest;
      }
    }
    return fit_scale(absolute_maximum_or_nan_reducer{}.value(largest), static_cast<float>(Q::highest));
  }
  TESSERA_FN static bool is_first_of_group(std::int64_t first, int token) {
    if constexpr (Groups::is_whole) {
      return first == 0 && token == 0;
    } else {
      for (int before = 0; before < token; ++before) {
        if (Groups::group_of(first + before) == Groups::group_of(first + token)) {
          return false;
        }
      }
      return true;
    }
  }
};

/// Makes codes of values, channel after channel, by scales that are made already. A group takes a block of 128 tokens.
template <ScaleQuantizer Q, class Source>
struct encode_values {
  using code_type = typename Q::code_type;
  static constexpr int lanes = 128;
  /// Tokens that a group takes.
  static constexpr int block = static_cast<int>(attention_padding);
  struct scratch_type {};

  smoothed_heads<Source> source;
  view<float const, 3> scales;  ///< batch x heads x channels
  view<code_type, 5> codes;     ///< batch x heads x tiles x channels x slots of 128 tokens

  TESSERA_FN constexpr std::int64_t groups() const { return codes.extent(0) * codes.extent(1) * codes.extent(2); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const blocks = codes.extent(2);
    std::int64_t const at = which % blocks;
    std::int64_t const head = which / blocks % codes.extent(1);
    std::int64_t const sequence = which / blocks / codes.extent(1);
    std::int64_t const length = source.length(sequence);
    for (int lane : group) {
      for (std::int64_t channel = 0; channel < codes.extent(3); ++channel) {
        std::int64_t const token = at * block + lane;
        float const reciprocal = reciprocal_of(scales(sequence, head, channel));
        codes(sequence, head, at, channel, value_slot(lane)) =
            token < length ? Q::encode_scaled(source(sequence, head, token, channel), reciprocal) : code_type{};
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
