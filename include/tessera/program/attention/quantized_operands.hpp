// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The operands of quantized attention: the types of a method, extents, and the formats of codes and scales of queries,
/// keys and values in memory. The programs of attention/quantize_heads.hpp write them; attention/quantized_forward.hpp
/// and programs for one architecture read them. An engine may keep the codes of keys and values.
///
/// Tokens are padded to a multiple of 128 with codes of 0; codes and scales are contiguous. With the granularity
/// per_thread, n a token:
///
///     queries   codes   int8      batch x query heads x padded tokens x channels
///               scales  float     batch x query heads x padded tokens / 2; of token n: n / 16 * 8 + n % 8
///     keys      codes   int8      batch x key heads x padded tokens x channels
///               scales  float     batch x key heads x padded tokens / 32; of token n: n / 128 * 4 + n % 8 / 2
///     values    codes   float8_e4m3  batch x key heads x tiles of 128 tokens x channels x slots by value_slot()
///               scales  float     batch x key heads x channels
///
/// Codes of 4 bits may be two_to_a_byte (quantize/two_to_a_byte.hpp): queries and keys then have int4x2, half as many,
/// a pair being two neighbouring channels. Codes of other quantizers of queries and keys are their code_type:
/// float8_e4m3 of a scaled_float_quantizer<float8_e4m3, per_token>.
///
/// A query's scale is multiplied by the softmax's and by log2(e): a sum of products of codes, times the scales of query
/// and key, is a score in base 2. A group or channel of zeros has scale 0. A group or channel with an infinity or a NaN
/// has scale NaN and codes 0: everything that its tokens or its channel take part in is NaN, and nothing else.
#pragma once

#include <cstdint>

#include <tessera/concepts/attention_quantizer.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/int4.hpp>
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/reduce/attention_softmax.hpp>
#include <tessera/tile/codes/value_slot.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/attention_block_list.hpp>
#include <tessera/view/attention_shape.hpp>
#include <tessera/view/head_view.hpp>
#include <tessera/view/sequence_lengths.hpp>
#include <tessera/view/sequence_starts.hpp>

namespace tessera {
inline namespace v0 {

/// A method of quantized attention: its quantizers and its softmax. QK is the quantizer of queries and keys, PV that of
/// weights and values.
template <ScoreQuantizer QK, ScaleQuantizer PV, AttentionSoftmax<PV> Softmax>
struct attention_method {
  /// The quantizer of queries and keys.
  using score_quantizer = QK;
  /// The quantizer of weights and values.
  using value_quantizer = PV;
  using softmax = Softmax;
  /// Queries that share a scale: a token_groups.
  using query_groups = typename QK::granularity_type::queries;
  /// Keys that share a scale: a token_groups.
  using key_groups = typename QK::granularity_type::keys;
  /// The element that codes of queries and keys lie in: std::int8_t, int4x2 or a small float.
  using score_code = stored_code<QK>;
  /// The type of the code of a value and of a weight.
  using value_code = typename PV::code_type;
};

/// The tokens of codes and scales are padded to a multiple of this.
inline constexpr std::int64_t attention_padding = 128;

/// Scales of a tile of 128 keys with the granularity per_thread. Lane n takes scale n % 4.
inline constexpr int lane_scales = 4;

/// Sequences of so many queries or fewer are for the decoding program (attention/quantized_decode.cuh), which is bound
/// by memory and reads keys and values once for as many rows, of all query heads of a key head.
inline constexpr std::int64_t few_queries = 16;

/// The number of tokens, padded to whole tiles of 128.
[[nodiscard]] TESSERA_FN constexpr std::int64_t padded_tokens(std::int64_t tokens) {
  return align_up(tokens, attention_padding);
}

/// How many codes an element of a view of queries' or keys' codes holds: 1 for bytes, 2 for pairs.
template <class Code>
inline constexpr int codes_in = 1;
/// A pair holds two codes.
template <>
inline constexpr int codes_in<int4x2> = 2;

/// The code of a channel, from the byte that holds it.
[[nodiscard]] TESSERA_FN constexpr int code_in(std::int8_t element, std::int64_t) {
  return element;
}
/// The code of a channel, from the pair that holds it: even channels are the first of a pair.
[[nodiscard]] TESSERA_FN constexpr int code_in(int4x2 element, std::int64_t channel) {
  return channel % 2 == 0 ? low(element) : high(element);
}

/// The value of the code of a channel, from the small float that is the code.
template <Scalar Code>
[[nodiscard]] TESSERA_FN constexpr float code_in(Code element, std::int64_t) {
  return load(element);
}

/// The range of the scores of a mean query over a tile of 128 keys: 16 bytes, which bulk copies are multiples of. A
/// program that begins sums of products at these scores learns from it whether all of them are near enough.
struct alignas(16) correction_range {
  float least;   ///< the lowest score; NaN if one is NaN
  float spread;  ///< the highest score less the lowest; infinite or NaN where scores are not all finite, or too large
  float unused[2];  ///< zeros

  /// Scores of this magnitude and more are too large to be begun at: fp32 rounds them to 2^-7.
  static constexpr float most = 131072.0F;
  /// The range from `least` to `highest`.
  TESSERA_FN static constexpr correction_range of(float least, float highest) {
    bool const is_small = least > -most && highest < most;
    return {least, is_small ? highest - least : infinity, {}};
  }
};

/// Codes and scales of queries, with the terms that attention adds to their scores. Code: std::int8_t, int4x2 or a
/// small float.
template <class Code>
struct quantized_queries {
  head_view<Code> codes;  ///< batch x query heads x padded queries x channels / codes_in
  view<float, 3> scales;  ///< batch x query heads x groups; softmax scale and log2(e) included
  view<float, 3> mean_scores =
      {};  ///< batch x query heads x queries: softmax scale * query . mean of keys, natural, in
           ///< fp32; or null. Added to log-sum-exps.
  /// batch x query heads x blocks of 128 queries x slots of padded keys by value_slot(): scores of the mean query of
  /// the block, in base 2, zeros for keys that do not exist; null without a block_mean
  head_view<float> corrections = {};
  /// batch x query heads x blocks of 128 queries x tiles of 128 keys: ranges of `corrections`, zeros of keys that do
  /// not exist included; null without a block_mean
  view<correction_range, 4> correction_ranges = {};

  /// The score of the mean query of a block of 128 queries and a key, in base 2.
  [[nodiscard]] TESSERA_FN constexpr float& correction(std::int64_t sequence, std::int64_t head, std::int64_t block,
                                                       std::int64_t key) const {
    return corrections(sequence, head, block, value_slot(key));
  }

  /// The code of a channel of a token.
  [[nodiscard]] TESSERA_FN constexpr auto code(std::int64_t sequence, std::int64_t head, std::int64_t token,
                                               std::int64_t channel) const {
    return code_in(codes(sequence, head, token, channel / codes_in<Code>), channel);
  }
};

/// Codes, scales and means of keys. Code: std::int8_t, int4x2 or a small float.
template <class Code>
struct quantized_keys {
  head_view<Code> codes;     ///< batch x key heads x padded keys x channels / codes_in
  view<float, 3> scales;     ///< batch x key heads x groups
  view<float, 3> mean = {};  ///< batch x key heads x channels: the mean subtracted before coding; or null

  /// The code of a channel of a token.
  [[nodiscard]] TESSERA_FN constexpr auto code(std::int64_t sequence, std::int64_t head, std::int64_t token,
                                               std::int64_t channel) const {
    return code_in(codes(sequence, head, token, channel / codes_in<Code>), channel);
  }
};

/// Codes, scales and means of values. Codes lie channel after channel.
template <class Code>
struct quantized_value_heads {
  view<Code, 5> codes;       ///< batch x key heads x tiles of 128 x channels x slots of tokens
  view<float, 3> scales;     ///< batch x key heads x channels
  view<float, 3> mean = {};  ///< batch x key heads x channels: the mean to be added to results; or null

  /// The code of a channel of a token.
  [[nodiscard]] TESSERA_FN constexpr Code& code(std::int64_t sequence, std::int64_t head, std::int64_t token,
                                                std::int64_t channel) const {
    return codes(sequence, head, token / attention_padding, channel, value_slot(token % attention_padding));
  }
};

}  // namespace v0
}  // namespace tessera
