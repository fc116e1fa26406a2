// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What quantized attention works on: extents, and the codes and scales of queries, keys and values as they lie in
/// memory. Written by the programs of attention/quantize_heads.hpp, read by attention/quantized_forward.hpp and by
/// programs for one architecture; an engine may keep those of keys and values.
///
/// Tokens are padded to a multiple of 128 with codes of 0; codes and scales are contiguous. With the granularity
/// per_thread, n a token:
///
///     queries   codes   int8      batch x query heads x padded tokens x channels
///               scales  float     batch x query heads x padded tokens / 2; of token n: n / 16 * 8 + n % 8
///     keys      codes   int8      batch x key heads x padded tokens x channels
///               scales  float     batch x key heads x padded tokens / 32; of token n: n / 128 * 4 + n % 8 / 2
///     values    codes   float8_e4m3  batch x key heads x tiles of 128 tokens x channels x places by value_place()
///               scales  float     batch x key heads x channels
///
/// Codes of 4 bits may be two_to_a_byte (quantize/two_to_a_byte.hpp): queries and keys then have int4x2, half as many,
/// a pair being two neighbouring channels.
///
/// A query's scale is multiplied by the softmax's and by log2(e): sums of codes times both scales are scores in base 2.
/// A group or channel of zeros has scale 0. One with an infinity or a NaN has scale NaN and codes 0: everything that
/// its tokens or its channel take part in is NaN, and nothing else.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/int4.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/head_view.hpp>

namespace tessera {
inline namespace v0 {

/// Query head h belongs to key head h / (query_heads / key_heads). Values have as many channels as keys.
struct attention_shape {
  std::int64_t batch;        ///< sequences
  std::int64_t query_heads;  ///< of a sequence
  std::int64_t key_heads;    ///< of a sequence, a divisor of the query heads
  std::int64_t queries;      ///< of a sequence
  std::int64_t keys;         ///< of a sequence
  std::int64_t channels;     ///< of a head

  friend constexpr bool operator==(attention_shape const&, attention_shape const&) = default;
};

/// Tokens of codes and scales are whole multiples of this.
inline constexpr std::int64_t attention_padding = 128;

/// Scales of a tile of 128 keys that are per_thread: a lane's is that of its place among four.
inline constexpr int lane_scales = 4;

/// So many queries or fewer, of a sequence, are for a program that reads keys and values once for as many rows of all
/// query heads of a key head (attention/quantized_decode.cuh): memory is what it waits for.
inline constexpr std::int64_t few_queries = 16;

/// Tokens as codes and scales have them: whole tiles of 128.
[[nodiscard]] TESSERA_FN constexpr std::int64_t padded_tokens(std::int64_t tokens) {
  return align_up(tokens, attention_padding);
}

/// Where token s of every 16 lies among the codes of a channel of values: lanes that hold weights of tokens 2t, 2t + 1,
/// 8 + 2t and 8 + 2t + 1 as sums of one tensor core product hold them as four neighbours for the next.
template <class Integer>
[[nodiscard]] TESSERA_FN constexpr Integer value_place(Integer token) {
  Integer const s = token % 16;
  return token - s + s / 8 * 2 + s / 2 % 4 * 4 + s % 2;
}

/// Lengths of the sequences of a batch that is padded; null: all are whole. A length beyond the extent counts as that.
using sequence_lengths = array_view<std::int32_t const>;

/// Tokens of a sequence, between 0 and `extent`.
[[nodiscard]] TESSERA_FN constexpr std::int64_t length_of(sequence_lengths const& lengths, std::int64_t sequence,
                                                          std::int64_t extent) {
  return lengths.data == nullptr ? extent : clamp(std::int64_t{lengths[sequence]}, std::int64_t{0}, extent);
}

/// Which tiles of 128 keys each 64 queries see, beside the mask: the first counts() of each list. A number that is no
/// tile of keys is passed over; one that is there twice counts twice.
struct attention_block_list {
  view<std::int32_t const, 3> counts = {};  ///< batch x query heads x blocks of 64 queries; null: all tiles
  view<std::int32_t const, 4> tiles = {};   ///< batch x query heads x blocks of 64 queries x at most so many

  /// Tiles in the list of a block of queries.
  [[nodiscard]] TESSERA_FN std::int64_t count(std::int64_t sequence, std::int64_t head, std::int64_t block) const {
    return clamp(std::int64_t{counts(sequence, head, block)}, std::int64_t{0}, tiles.extent(3));
  }
};

/// Where sequences begin that lie one behind the other, so that a head_view's stride from sequence to sequence is 0.
struct sequence_starts {
  array_view<std::int32_t const> first = {};  ///< token of each sequence; null: sequences have strides
  std::int64_t total = 0;                     ///< tokens of all; beyond them nothing is read or written

  /// Where token `token` of a sequence lies; -1 for nowhere.
  [[nodiscard]] TESSERA_FN constexpr std::int64_t place(std::int64_t sequence, std::int64_t token) const {
    if (first.data == nullptr) {
      return token;
    }
    std::int64_t const at = first[sequence] + token;
    return at >= 0 && at < total ? at : -1;
  }
};

/// Codes of queries and keys in an element of their views: of bytes 1, of pairs 2.
template <class Code>
inline constexpr int codes_in = 1;
/// Codes in an element that is a pair.
template <>
inline constexpr int codes_in<int4x2> = 2;

/// The code of a channel, of the element that it lies in.
[[nodiscard]] TESSERA_FN constexpr int code_in(std::int8_t element, std::int64_t) {
  return element;
}
/// The code of a channel, of the pair that it lies in: even channels are the first of a pair.
[[nodiscard]] TESSERA_FN constexpr int code_in(int4x2 element, std::int64_t channel) {
  return channel % 2 == 0 ? low(element) : high(element);
}

/// Codes of queries, which programs for scores read. Code: std::int8_t or int4x2.
template <class Code>
struct quantized_queries {
  head_view<Code> codes;  ///< batch x query heads x padded queries x channels / codes_in
  view<float, 3> scales;  ///< batch x query heads x groups; times softmax scale and log2(e)
  view<float, 3> mean_scores =
      {};  ///< batch x query heads x queries: softmax scale * query . mean of keys, natural, in
           ///< fp32; or null. Added to log-sum-exps.
  head_view<float> corrections = {};  ///< batch x query heads x blocks of 64 queries x padded keys: scores of the mean
                                      ///< query of the block, in base 2; null without a block_mean

  /// The code of a channel of a token.
  [[nodiscard]] TESSERA_FN constexpr int code(std::int64_t sequence, std::int64_t head, std::int64_t token,
                                              std::int64_t channel) const {
    return code_in(codes(sequence, head, token, channel / codes_in<Code>), channel);
  }
};

/// Codes of keys. Code: std::int8_t or int4x2.
template <class Code>
struct quantized_keys {
  head_view<Code> codes;     ///< batch x key heads x padded keys x channels / codes_in
  view<float, 3> scales;     ///< batch x key heads x groups
  view<float, 3> mean = {};  ///< batch x key heads x channels; it has been subtracted before coding; or null

  /// The code of a channel of a token.
  [[nodiscard]] TESSERA_FN constexpr int code(std::int64_t sequence, std::int64_t head, std::int64_t token,
                                              std::int64_t channel) const {
    return code_in(codes(sequence, head, token, channel / codes_in<Code>), channel);
  }
};

/// Codes of values, by channels.
template <class Code>
struct quantized_value_heads {
  view<Code, 5> codes;       ///< batch x key heads x tiles of 128 x channels x places of tokens
  view<float, 3> scales;     ///< batch x key heads x channels
  view<float, 3> mean = {};  ///< batch x key heads x channels; it is to be added to results; or null

  /// The code of a channel of a token.
  [[nodiscard]] TESSERA_FN constexpr Code& code(std::int64_t sequence, std::int64_t head, std::int64_t token,
                                                std::int64_t channel) const {
    return codes(sequence, head, token / attention_padding, channel, value_place(token % attention_padding));
  }
};

}  // namespace v0
}  // namespace tessera
