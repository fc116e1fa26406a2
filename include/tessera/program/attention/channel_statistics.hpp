// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `summarize_heads` and `finish_summaries`: sums and ranges of the channels of attention heads, over blocks of tokens
/// and then over some blocks each: means, and scales of values. Tokens may be those of a sample (`sampled_heads`); then
/// `settle_scales` makes those scales larger that have no room for all tokens.
///
/// The order of additions is part of the format, for codes depend on means: any program that makes the same codes adds
/// in this order, in fp32. In a block of 64 or 128 tokens, sixteen sums: sum i of tokens i, i + 16, i + 32 ... in
/// order. Over blocks, 32 sums: sum i of blocks i, i + 32, i + 64 ... in order. Either way the sums are then added in
/// pairs at half their number apart, again and again: i + 8, i + 4, i + 2, i + 1. Infinities and NaNs count as zeros.
///
/// A mean that a few tokens far from all others must not move, which is that of keys, is a mean of middles. Of the
/// sums i, i + 4, i + 8 and i + 12 of a block, for i from 0 to 3, the two in the middle are added to each other, of the
/// four results again those two, and four times that is the block's sum. Where three tokens of each block are too large
/// and three too small, whichever they are, it is still one that the other tokens' sums make: at worst one of the four
/// results is too large and one too small. Nothing large is added and subtracted again, which would cost precision.
/// The sixteen sums have to be of equally many tokens: such a mean is of whole rounds of sixteen tokens, and the up to
/// 15 tokens at a sequence's end that make no round have no part in it (tokens_of_middle). Where a sequence has fewer
/// than sixteen tokens, sum i is token i modulo their number, so that the block counts as sixteen tokens
/// (weight_of_middle), and of four tokens or more one may be too large or too small.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/quantize/code_scale.hpp>
#include <tessera/quantize/sampled_range.hpp>
#include <tessera/quantize/token_sample.hpp>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {

/// Of one channel of some tokens. One infinity or NaN makes both ends of the range NaN.
struct channel_summary {
  float sum;      ///< of what is finite
  float lowest;   ///< plus infinity of nothing
  float highest;  ///< minus infinity of nothing

  /// The summary of no tokens.
  TESSERA_FN static constexpr channel_summary of_nothing() { return {0.0F, infinity, -infinity}; }
  /// Takes a value into the range alone.
  TESSERA_FN constexpr void widen(float value) {
    float const known = is_finite(value) ? value : bit_cast<float>(0x7fffffffU);
    lowest = known < lowest || is_nan(known) ? known : lowest;
    highest = known > highest || is_nan(known) ? known : highest;
  }
  /// Takes in the range of another.
  TESSERA_FN constexpr void widen(channel_summary const& other) {
    lowest = other.lowest < lowest || is_nan(other.lowest) ? other.lowest : lowest;
    highest = other.highest > highest || is_nan(other.highest) ? other.highest : highest;
  }
  /// The largest magnitude of a value minus `mean`, rounded as each difference is; 0 for nothing.
  [[nodiscard]] TESSERA_FN constexpr float magnitude(float mean) const {
    if (is_nan(lowest) || is_nan(highest)) {
      return bit_cast<float>(0x7fffffffU);
    }
    float const most = lowest > highest ? 0.0F : max(absolute(highest - mean), absolute(lowest - mean));
    return is_finite(most) ? most : bit_cast<float>(0x7fffffffU);
  }
};

namespace detail {

/// The sum of all parts, in pairs at half their number apart.
template <int Parts>
TESSERA_FN constexpr float add_halves(float (&parts)[Parts]) {
  for (int distance = Parts / 2; distance > 0; distance /= 2) {
    for (int i = 0; i < distance; ++i) {
      parts[i] += parts[i + distance];
    }
  }
  return parts[0];
}

/// Of four numbers, those two that are neither the largest nor the smallest, added up.
TESSERA_FN constexpr float add_middle_two(float a, float b, float c, float d) {
  return maximum(minimum(a, b), minimum(c, d)) + minimum(maximum(a, b), maximum(c, d));
}

/// The sum of sixteen parts as a mean of middles takes it: if all are equal, 16 times that.
TESSERA_FN constexpr float add_middle(float const (&parts)[16]) {
  float middle[4] = {};
  for (int i = 0; i < 4; ++i) {
    middle[i] = add_middle_two(parts[i], parts[i + 4], parts[i + 8], parts[i + 12]);
  }
  return 4.0F * add_middle_two(middle[0], middle[1], middle[2], middle[3]);
}

}  // namespace detail

/// How many of the first tokens of a sequence, or of its sample, have a part in a mean of middles.
template <class Integer>
TESSERA_FN constexpr Integer tokens_of_middle(Integer tokens) {
  return tokens < 16 ? tokens : tokens - tokens % 16;
}
/// As how many tokens the sum of all blocks of such a sequence, or sample, counts.
template <class Integer>
TESSERA_FN constexpr Integer weight_of_middle(Integer tokens) {
  return tokens == 0 ? Integer{0} : max(tokens_of_middle(tokens), Integer{16});
}

/// The tokens of a sample as tokens of sequences that are as long as it. Source: a head_source.
template <class Source>
struct sampled_heads {
  Source source;        ///< as it is read
  token_sample sample;  ///< of each sequence

  /// Sequences.
  TESSERA_FN constexpr std::int64_t batch() const { return source.batch(); }
  /// Heads of a sequence.
  TESSERA_FN constexpr std::int64_t heads() const { return source.heads(); }
  /// Tokens of a sample, at most.
  TESSERA_FN constexpr std::int64_t tokens() const { return sample.most(source.tokens()); }
  /// Channels of a head.
  TESSERA_FN constexpr std::int64_t channels() const { return source.channels(); }
  /// Tokens of a sequence's sample.
  TESSERA_FN std::int64_t length(std::int64_t sequence) const { return sample.count(source.length(sequence)); }
  TESSERA_FN float operator()(std::int64_t sequence, std::int64_t head, std::int64_t token,
                              std::int64_t channel) const {
    std::int64_t const step = sample.step(source.length(sequence));
    return source(sequence, head, token_sample::token(token, step), channel);
  }
};

/// A group takes a block of `block` tokens of a head: a multiple of 16. Source: a head_source, or a sample of one.
template <class Source>
struct summarize_heads {
  static constexpr int lanes = 128;
  static constexpr int parts = 16;  ///< of a block, that lanes take
  struct scratch_type {};

  Source source;                       ///< as it is read
  view<channel_summary, 4> summaries;  ///< batch x heads x blocks x channels
  std::int64_t block;                  ///< tokens of a block
  bool is_of_middle = false;           ///< summaries are for a mean of middles; their ranges, too, are of its tokens

  TESSERA_FN constexpr std::int64_t groups() const {
    return summaries.extent(0) * summaries.extent(1) * summaries.extent(2);
  }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const at = which % summaries.extent(2);
    std::int64_t const head = which / summaries.extent(2) % summaries.extent(1);
    std::int64_t const sequence = which / summaries.extent(2) / summaries.extent(1);
    std::int64_t const length = source.length(sequence);
    std::int64_t const end = min((at + 1) * block, is_of_middle ? tokens_of_middle(length) : length);
    for (int lane : group) {
      for (std::int64_t channel = lane; channel < source.channels(); channel += lanes) {
        summaries(sequence, head, at, channel) = summarize(sequence, head, channel, at * block, end);
      }
    }
  }

 private:
  TESSERA_FN channel_summary summarize(std::int64_t sequence, std::int64_t head, std::int64_t channel,
                                       std::int64_t first, std::int64_t end) const {
    channel_summary summary = channel_summary::of_nothing();
    float sums[parts] = {};
    for (std::int64_t token = first; token < end; token += parts) {
      for (int i = 0; i < parts; ++i) {
        if (token + i < end) {
          float const value = source(sequence, head, token + i, channel);
          sums[i] += is_finite(value) ? value : 0.0F;
          summary.widen(value);
        }
      }
    }
    if (!is_of_middle) {
      summary.sum = detail::add_halves(sums);
      return summary;
    }
    std::int64_t const tokens = end - first;
    for (int i = 0; i < parts; ++i) {
      if (tokens > 0 && i >= tokens) {
        float const value = source(sequence, head, first + i % tokens, channel);
        sums[i] += is_finite(value) ? value : 0.0F;
      }
    }
    summary.sum = detail::add_middle(sums);
    return summary;
  }
};

/// Means and scales, where asked for, of every `blocks_each` blocks. A mean that is not finite is 0.
struct finish_summaries {
  static constexpr int lanes = 128;
  static constexpr int parts = 32;  ///< of the blocks, that lanes take
  struct scratch_type {};

  view<channel_summary const, 4> summaries;  ///< batch x heads x blocks x channels
  sequence_lengths lengths;
  std::int64_t tokens;        ///< of a sequence
  std::int64_t block;         ///< tokens of one
  std::int64_t blocks_each;   ///< at least 1
  view<float, 4> means;       ///< batch x heads x one for every `blocks_each` x channels; or null
  view<float, 4> scales;      ///< extents of `means`, or null; of values less their means, if these are asked for
  float highest;              ///< the largest code
  std::int64_t means_a_head;  ///< so many times `blocks_each`, or less, are the blocks
  token_sample sample = {};   ///< that summaries are of
  float room = 1.0F;          ///< of a scale, in largest magnitudes of a sample
  bool is_of_middle = false;  ///< as of summarize_heads; `blocks_each` are then all blocks

  TESSERA_FN constexpr std::int64_t groups() const { return summaries.extent(0) * summaries.extent(1) * means_a_head; }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const part = which % means_a_head;
    std::int64_t const head = which / means_a_head % summaries.extent(1);
    std::int64_t const sequence = which / means_a_head / summaries.extent(1);
    std::int64_t const first = part * blocks_each;
    std::int64_t const end = min(first + blocks_each, summaries.extent(2));
    std::int64_t const length = length_of(lengths, sequence, tokens);
    std::int64_t const count = clamp(sample.count(length) - first * block, std::int64_t{0}, blocks_each * block);
    bool const is_whole = sample.step(length) == 1;
    for (int lane : group) {
      for (std::int64_t channel = lane; channel < summaries.extent(3); channel += lanes) {
        float const largest = finish(sequence, head, part, channel, first, end, count);
        if (scales.data != nullptr) {
          scales(sequence, head, part, channel) =
              fit_scale(is_whole ? largest : with_room(largest, room), highest).scale;
        }
      }
    }
  }

 private:
  /// Writes the mean. The largest magnitude of what is left.
  TESSERA_FN float finish(std::int64_t sequence, std::int64_t head, std::int64_t part, std::int64_t channel,
                          std::int64_t first, std::int64_t end, std::int64_t count) const {
    channel_summary summary = channel_summary::of_nothing();
    float sums[parts] = {};
    for (std::int64_t at = first; at < end; at += parts) {
      for (int i = 0; i < parts; ++i) {
        if (at + i < end) {
          channel_summary const one = summaries(sequence, head, at + i, channel);
          sums[i] += one.sum;
          summary.widen(one);
        }
      }
    }
    float mean = 0.0F;
    if (means.data != nullptr) {
      auto const weight = static_cast<float>(is_of_middle ? weight_of_middle(count) : count);
      float const found = count > 0 ? detail::add_halves(sums) / weight : 0.0F;
      mean = is_finite(found) ? found : 0.0F;
      means(sequence, head, part, channel) = mean;
    }
    return summary.magnitude(mean);
  }
};

/// Scales of samples become those of all tokens where they are not large enough. Q: a sampled_range. A group takes a
/// head.
template <class Q>
struct settle_scales {
  static constexpr int lanes = 128;
  struct scratch_type {};

  view<channel_summary const, 4> summaries;  ///< batch x heads x blocks x channels, of all tokens
  view<float const, 3> means;                ///< that values lose: batch x heads x channels, or null
  sequence_lengths lengths;
  std::int64_t tokens;    ///< of a sequence
  token_sample sample;    ///< that scales are of
  view<float, 3> scales;  ///< batch x heads x channels: of samples' largest magnitudes

  TESSERA_FN constexpr std::int64_t groups() const { return summaries.extent(0) * summaries.extent(1); }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const head = which % summaries.extent(1);
    std::int64_t const sequence = which / summaries.extent(1);
    bool const is_whole = sample.step(length_of(lengths, sequence, tokens)) == 1;
    for (int lane : group) {
      for (std::int64_t channel = lane; !is_whole && channel < summaries.extent(3); channel += lanes) {
        settle(sequence, head, channel);
      }
    }
  }

 private:
  TESSERA_FN void settle(std::int64_t sequence, std::int64_t head, std::int64_t channel) const {
    channel_summary summary = channel_summary::of_nothing();
    for (std::int64_t at = 0; at < summaries.extent(2); ++at) {
      summary.widen(summaries(sequence, head, at, channel));
    }
    float const most = summary.magnitude(means.data == nullptr ? 0.0F : means(sequence, head, channel));
    float& scale = scales(sequence, head, channel);
    if (!Q::has_room(most, reciprocal_of(scale))) {
      scale = fit_scale(most, static_cast<float>(Q::highest)).scale;
    }
  }
};

}  // namespace v0
}  // namespace tessera
