// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `summarize_heads` and `finish_summaries`: make the means of attention heads' channels, and the scales of values. The
/// first sums and ranges channels over blocks of tokens, the second merges blocks. The tokens may be those of a sample
/// (`sampled_heads`); then `settle_scales` enlarges the scales whose range does not hold all tokens.
///
/// The order of additions is part of the format, because codes depend on means: any program that makes the same codes
/// adds in this order, in fp32. A block of 64 or 128 tokens has sixteen sums: sum i adds tokens i, i + 16, i + 32 ...
/// in order (a block_mean of 128 queries has two blocks of 64). Over blocks there are 32 sums: sum i adds blocks i, i +
/// 32, i + 64 ... in order. In both cases the sums are then added in pairs at half their number apart, again and again:
/// i + 8, i + 4, i + 2, i + 1. Infinities and NaNs count as zeros.
///
/// A few tokens far from all others must not move the mean of keys, so it is a robust mean, called mean of middles: of
/// the sums i, i + 4, i + 8 and i + 12 of a block, for i from 0 to 3, the two in the middle are added to each other. Of
/// the four results the two in the middle are added again, and four times that is the block's sum. If any three tokens
/// of each block are too large and any three too small, the block's sum is still made of other tokens' sums: at worst
/// one of the four results is too large and one too small. Nothing large is added and subtracted again, which would
/// cost precision. The sixteen sums must have equally many tokens: a mean of middles takes whole rounds of sixteen
/// tokens, and leaves out the up to 15 tokens at a sequence's end that make no round (tokens_of_middle). Where a
/// sequence has fewer than sixteen tokens, sum i is token i modulo their number, so that the block counts as sixteen
/// tokens (weight_of_middle); of four tokens or more, one may then be too large or too small.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/attention/detail/row_sums.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/quantize/code_scale.hpp>
#include <tessera/quantize/sampled_range.hpp>
#include <tessera/quantize/token_sample.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {

/// The sum and the range of one channel of some tokens. An infinity or a NaN makes both ends of the range NaN.
struct channel_summary {
  float sum;      ///< sum of the finite values
  float lowest;   ///< the lowest value; plus infinity without tokens
  float highest;  ///< the highest value; minus infinity without tokens

  /// The summary of no tokens.
  TESSERA_FN static constexpr channel_summary of_nothing() { return {0.0F, infinity, -infinity}; }
  /// Takes a value into the range, but not into the sum.
  TESSERA_FN constexpr void widen(float value) {
    float const known = is_finite(value) ? value : bit_cast<float>(0x7fffffffU);
    lowest = known < lowest || is_nan(known) ? known : lowest;
    highest = known > highest || is_nan(known) ? known : highest;
  }
  /// Takes the range of another summary into the range, but not into the sum.
  TESSERA_FN constexpr void widen(channel_summary const& other) {
    lowest = other.lowest < lowest || is_nan(other.lowest) ? other.lowest : lowest;
    highest = other.highest > highest || is_nan(other.highest) ? other.highest : highest;
  }
  /// The largest magnitude of a value minus `mean`, rounded as each difference is; 0 without tokens.
  [[nodiscard]] TESSERA_FN constexpr float magnitude(float mean) const {
    if (is_nan(lowest) || is_nan(highest)) {
      return bit_cast<float>(0x7fffffffU);
    }
    float const most = lowest > highest ? 0.0F : max(absolute(highest - mean), absolute(lowest - mean));
    return is_finite(most) ? most : bit_cast<float>(0x7fffffffU);
  }
};

namespace detail {

/// The sum of all parts, which are added in pairs at half their number apart.
template <int Parts>
TESSERA_FN constexpr float add_halves(float (&parts)[Parts]) {
  for (int distance = Parts / 2; distance > 0; distance /= 2) {
    for (int i = 0; i < distance; ++i) {
      parts[i] += parts[i + distance];
    }
  }
  return parts[0];
}

/// The sum of the two of four numbers that are neither the largest nor the smallest.
TESSERA_FN constexpr float add_middle_two(float a, float b, float c, float d) {
  return maximum(minimum(a, b), minimum(c, d)) + minimum(maximum(a, b), maximum(c, d));
}

/// The sum of sixteen parts for a mean of middles: 16 times a part if all are equal.
TESSERA_FN constexpr float add_middle(float const (&parts)[16]) {
  float middle[4] = {};
  for (int i = 0; i < 4; ++i) {
    middle[i] = add_middle_two(parts[i], parts[i + 4], parts[i + 8], parts[i + 12]);
  }
  return 4.0F * add_middle_two(middle[0], middle[1], middle[2], middle[3]);
}

}  // namespace detail

/// How many tokens of a sequence, or of its sample, a mean of middles takes: the first ones.
template <detail::Integer I>
TESSERA_FN constexpr I tokens_of_middle(I tokens) {
  return tokens < 16 ? tokens : tokens - tokens % 16;
}
/// The number of tokens that the sum of all blocks of such a sequence, or sample, counts as.
template <detail::Integer I>
TESSERA_FN constexpr I weight_of_middle(I tokens) {
  return tokens == 0 ? I{0} : max(tokens_of_middle(tokens), I{16});
}

/// The tokens of samples, as the tokens of sequences that are as long as the samples. Source: a head_source.
template <class Source>
struct sampled_heads {
  Source source;        ///< all tokens
  token_sample sample;  ///< the sample of each sequence

  /// Sequences of the batch.
  TESSERA_FN constexpr std::int64_t batch() const { return source.batch(); }
  /// Heads of a sequence.
  TESSERA_FN constexpr std::int64_t heads() const { return source.heads(); }
  /// The most tokens that a sample has.
  TESSERA_FN constexpr std::int64_t tokens() const { return sample.most(source.tokens()); }
  /// Channels of a head.
  TESSERA_FN constexpr std::int64_t channels() const { return source.channels(); }
  /// How many tokens the sample of a sequence has.
  TESSERA_FN std::int64_t length(std::int64_t sequence) const { return sample.count(source.length(sequence)); }
  TESSERA_FN float operator()(std::int64_t sequence, std::int64_t head, std::int64_t token,
                              std::int64_t channel) const {
    std::int64_t const step = sample.step(source.length(sequence));
    return source(sequence, head, token_sample::token(token, step), channel);
  }
  /// Leaves `count` channels of a token, from `first` on, in memory.
  TESSERA_FN void read(std::int64_t sequence, std::int64_t head, std::int64_t token, std::int64_t first, int count,
                       float* to) const {
    std::int64_t const step = sample.step(source.length(sequence));
    source.read(sequence, head, token_sample::token(token, step), first, count, to);
  }
};

/// Makes the summaries of blocks of tokens. A group takes a block of `block` tokens of a head, a multiple of 16.
/// Source: a head_source, or a sample of one.
template <class Source>
struct summarize_heads {
  static constexpr int lanes = 128;
  static constexpr int parts = 16;  ///< sums of a block
  struct scratch_type {};

  Source source;                       ///< the tokens
  view<channel_summary, 4> summaries;  ///< batch x heads x blocks x channels
  std::int64_t block;                  ///< tokens of a block
  bool is_of_middle = false;           ///< whether summaries, ranges included, are for a mean of middles

  TESSERA_FN constexpr std::int64_t groups() const {
    return summaries.extent(0) * summaries.extent(1) * summaries.extent(2);
  }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const at = which % summaries.extent(2);
    std::int64_t const head = which / summaries.extent(2) % summaries.extent(1);
    std::int64_t const sequence = which / summaries.extent(2) / summaries.extent(1);
    std::int64_t const length = source.length(sequence);
    std::int64_t const end = min((at + 1) * block, is_of_middle ? tokens_of_middle(length) : length);
    if constexpr (is_serial_group<G>) {
      detail::row_sums<parts> sums;
      for (std::int64_t channel = 0; channel < source.channels(); channel += sums.channels) {
        auto const count = static_cast<int>(min(source.channels() - channel, std::int64_t{sums.channels}));
        add_rows(sequence, head, channel, count, at * block, end, sums);
        for (int i = 0; i < count; ++i) {
          summaries(sequence, head, at, channel + i) = summary_of(sums, i);
        }
      }
    } else {
      summarize_by_lanes(group, sequence, head, at, end);
    }
  }

 private:
  template <Group G>
  TESSERA_FN void summarize_by_lanes(G const& group, std::int64_t sequence, std::int64_t head, std::int64_t at,
                                     std::int64_t end) const {
    for (int lane : group) {
      for (std::int64_t channel = lane; channel < source.channels(); channel += lanes) {
        summaries(sequence, head, at, channel) = summarize(sequence, head, channel, at * block, end);
      }
    }
  }
  /// Sums `count` channels from `channel` on by one thread, a token after the other.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // host only, called from code for both sides
#endif
  TESSERA_FN void add_rows(std::int64_t sequence, std::int64_t head, std::int64_t channel, int count,
                           std::int64_t first, std::int64_t end, detail::row_sums<parts>& sums) const {
    float row[detail::row_sums<parts>::channels];
    sums.clear();
    auto const tokens = static_cast<int>(max(end - first, std::int64_t{0}));
    int const all = is_of_middle && tokens > 0 ? max(tokens, parts) : tokens;  // a few tokens are summed again
    for (int i = 0; i < all; ++i) {
      source.read(sequence, head, first + i % tokens, channel, count, row);
      for (int at = sums.add(row, count, i % parts); at < count; ++at) {
        channel_summary summary{0.0F, sums.lowest[at], sums.highest[at]};
        summary.widen(row[at]);
        sums.sums[i % parts][at] += is_finite(row[at]) ? row[at] : 0.0F;
        sums.lowest[at] = summary.lowest;
        sums.highest[at] = summary.highest;
      }
    }
  }
  TESSERA_FN channel_summary summary_of(detail::row_sums<parts> const& sums, int channel) const {
    float of_channel[parts];
    for (int i = 0; i < parts; ++i) {
      of_channel[i] = sums.sums[i][channel];
    }
    return {is_of_middle ? detail::add_middle(of_channel) : detail::add_halves(of_channel), sums.lowest[channel],
            sums.highest[channel]};
  }
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

/// Makes means and scales, where they are wanted, of every `blocks_each` blocks. A mean that is not finite becomes 0.
/// Mean: the type that means are rounded to.
template <class Mean = float>
struct finish_summaries {
  static constexpr int lanes = 128;
  static constexpr int parts = 32;  ///< sums of blocks
  struct scratch_type {};

  view<channel_summary const, 4> summaries;  ///< batch x heads x blocks x channels
  sequence_lengths lengths;
  std::int64_t tokens;        ///< tokens of the longest sequence
  std::int64_t block;         ///< tokens of a block
  std::int64_t blocks_each;   ///< blocks that a mean or scale is made of, at least 1
  view<float, 4> means;       ///< batch x heads x means_a_head x channels; or null
  view<float, 4> scales;      ///< extents of `means`, or null; for values minus their means, if means are wanted
  float highest;              ///< the largest code
  std::int64_t means_a_head;  ///< means or scales of a head: the number of blocks by `blocks_each`, rounded up
  token_sample sample = {};   ///< the sample that was summarized
  float room = 1.0F;          ///< how many times a sample's largest magnitude a scale has room for
  bool is_of_middle = false;  ///< summarize_heads::is_of_middle; `blocks_each` then covers all blocks

  TESSERA_FN constexpr std::int64_t groups() const { return summaries.extent(0) * summaries.extent(1) * means_a_head; }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
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
  /// Writes the mean, and returns the largest magnitude of values minus it.
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
      mean = load(store<Mean>(is_finite(found) ? found : 0.0F));
      means(sequence, head, part, channel) = mean;
    }
    return summary.magnitude(mean);
  }
};

/// Fits a sample's scales to all tokens where they are not large enough. Q: a sampled_range. A group takes a head.
template <class Q>
struct settle_scales {
  static constexpr int lanes = 128;
  struct scratch_type {};

  view<channel_summary const, 4> summaries;  ///< summaries of all tokens: batch x heads x blocks x channels
  view<float const, 3> means;                ///< means that values lose: batch x heads x channels, or null
  sequence_lengths lengths;
  std::int64_t tokens;    ///< tokens of the longest sequence
  token_sample sample;    ///< the sample that scales are fitted to
  view<float, 3> scales;  ///< batch x heads x channels, fitted to samples

  TESSERA_FN constexpr std::int64_t groups() const { return summaries.extent(0) * summaries.extent(1); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
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
