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
#include <tessera/program/attention/detail/row_codes.hpp>
#include <tessera/program/attention/head_source.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/quantize/code_scale.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/reduce/absolute_maximum_or_nan.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/serial/group.hpp>
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
  /// Leaves `count` channels of a token, from `first` on, in memory.
  TESSERA_FN void read(std::int64_t sequence, std::int64_t head, std::int64_t token, std::int64_t first, int count,
                       float* to) const {
    source.read(sequence, head, token, first, count, to);
    if (means.data != nullptr) {
      view<float const, 1> const mean = means[sequence][head][token / mean_tokens];
      for (int i = 0; i < count; ++i) {
        to[i] -= mean(first + i);
      }
    }
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
  /// Channels that one thread has in memory at a time.
  static constexpr int channels_at_a_time = 256;
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
    std::int64_t const head = which / blocks % codes.extent(1);
    std::int64_t const sequence = which / blocks / codes.extent(1);
    tokens const at{sequence, head, which % blocks * block, source.length(sequence)};
    if constexpr (is_serial_group<G>) {
      if (codes.strides[3] == 1) {
        return encode_rows(at, scratch);
      }
    }
    encode_by_lanes(group, at, scratch);
  }

 private:
  /// The block of tokens of a group.
  struct tokens {
    std::int64_t sequence;
    std::int64_t head;
    std::int64_t first;   ///< the first token
    std::int64_t length;  ///< tokens of the sequence

    /// Whether a token of the block exists.
    TESSERA_FN bool has(int token) const { return first + token < length; }
  };

  template <Group G>
  TESSERA_FN void encode_by_lanes(G const& group, tokens const& at, scratch_type& scratch) const {
    auto const [sequence, head, first, length] = at;
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

  /// The same by one thread, a token after the other with all channels.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // host only, called from code for both sides
#endif
  TESSERA_FN void encode_rows(tokens const& at, scratch_type& scratch) const {
    float row[channels_at_a_time];
    for (int token = 0; token < block; ++token) {
      scratch.magnitude[token] = 0;
      each_part(at, token, row, [&](int, int count) {
        scratch.magnitude[token] = max(scratch.magnitude[token], detail::largest_magnitude(row, count));
      });
    }
    fit_groups(at, scratch);
    std::int64_t const elements = codes.extent(3);
    for (int token = 0; token < block; ++token) {
      each_part(at, token, row, [&, this](int first, int count) {
        encode_part(at, token, row, first, count, scratch.reciprocal[token]);
      });
      for (std::int64_t element = 0; !at.has(token) && element < elements; ++element) {
        codes(at.sequence, at.head, at.first + token, element) = code_type{};
      }
    }
  }
  /// Calls function(first, count) for all channels of a token that exists, with those from `first` on in `row`.
  template <class Function>
  TESSERA_FN void each_part(tokens const& at, int token, float* row, Function const& function) const {
    auto const channels = static_cast<int>(codes.extent(3)) * codes_in<code_type>;
    for (int first = 0; at.has(token) && first < channels; first += channels_at_a_time) {
      int const count = min(channels - first, channels_at_a_time);
      source.read(at.sequence, at.head, at.first + token, first, count, row);
      function(first, count);
    }
  }
  /// Finds the scales of a block's groups.
  TESSERA_FN void fit_groups(tokens const& at, scratch_type& scratch) const {
    int leaders[block];  // the first token of each token's group
    for (int token = 0; token < block; ++token) {
      leaders[token] = leader_of(at.first, token, leaders);
      std::uint32_t& largest = scratch.magnitude[leaders[token]];
      largest = max(largest, scratch.magnitude[token]);
    }
    for (int token = 0; token < block; ++token) {
      if (leaders[token] < token) {
        scratch.reciprocal[token] = scratch.reciprocal[leaders[token]];
        continue;
      }
      code_scale const fitted = fit(Groups::is_whole ? magnitudes(at.sequence, at.head) : scratch.magnitude[token]);
      scratch.reciprocal[token] = fitted.reciprocal;
      if (!Groups::is_whole || at.first == 0) {
        scales(at.sequence, at.head, Groups::group_of(at.first + token)) = fitted.scale * factor;
      }
    }
  }
  /// The first token of a token's group, given those of the tokens before.
  TESSERA_FN static int leader_of(std::int64_t first, int token, int const* leaders) {
    std::int64_t const group = Groups::group_of(first + token);
    for (int before = token - 1; before >= 0; --before) {
      if (Groups::group_of(first + before) == group) {
        return leaders[before];
      }
    }
    return token;
  }
  /// Makes codes of channels of a token.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // host only, called from code for both sides
#endif
  TESSERA_FN void encode_part(tokens const& at, int token, float const* row, int first, int count,
                              float reciprocal) const {
    code_type* const to = &codes(at.sequence, at.head, at.first + token, first / codes_in<code_type>);
    if constexpr (codes_in<code_type> == 2) {
      typename Q::code_type part[channels_at_a_time];
      detail::encode_row<Q>(row, count, reciprocal, part);
      for (int i = 0; i < count / 2; ++i) {
        to[i] = pack_int4(part[2 * i], part[2 * i + 1]);
      }
    } else {
      detail::encode_row<Q>(row, count, reciprocal, to);
    }
  }

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
    return fit(largest);
  }
  TESSERA_FN static code_scale fit(std::uint32_t largest) {
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
    if constexpr (is_serial_group<G>) {
      if (codes.strides[4] == 1) {
        for (int part = 0; part < block; part += part_tokens) {
          encode_rows(sequence, head, at, part, length);
        }
        return;
      }
    }
    for (int lane : group) {
      for (std::int64_t channel = 0; channel < codes.extent(3); ++channel) {
        std::int64_t const token = at * block + lane;
        float const reciprocal = reciprocal_of(scales(sequence, head, channel));
        codes(sequence, head, at, channel, value_slot(lane)) =
            token < length ? Q::encode_scaled(source(sequence, head, token, channel), reciprocal) : code_type{};
      }
    }
  }

 private:
  static constexpr int part_tokens = 32;          ///< tokens that one thread encodes at a time
  static constexpr int channels_at_a_time = 128;  ///< channels that it encodes at a time

  /// Makes codes of a part of a block's tokens, from number `part` on, by one thread.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // host only, called from code for both sides
#endif
  TESSERA_FN void encode_rows(std::int64_t sequence, std::int64_t head, std::int64_t at, int part,
                              std::int64_t length) const {
    float rows[part_tokens][channels_at_a_time];
    float reciprocals[channels_at_a_time];
    auto const channels = static_cast<int>(codes.extent(3));
    for (int first = 0; first < channels; first += channels_at_a_time) {
      int const count = min(channels - first, channels_at_a_time);
      for (int i = 0; i < count; ++i) {
        reciprocals[i] = reciprocal_of(scales(sequence, head, first + i));
      }
      for (int i = 0; i < part_tokens; ++i) {
        std::int64_t const token = at * block + part + i;
        if (token < length) {
          source.read(sequence, head, token, first, count, rows[i]);
        } else {
          fill_with_zeros(rows[i]);
        }
      }
      detail::encode_slots<Q>(&rows[0][0], channels_at_a_time, reciprocals, count,
                              &codes(sequence, head, at, first, part), codes.strides[3]);
    }
  }
  /// A token that does not exist.
  TESSERA_FN static void fill_with_zeros(float (&row)[channels_at_a_time]) {
    for (float& value : row) {
      value = 0.0F;
    }
  }
};

}  // namespace v0
}  // namespace tessera
