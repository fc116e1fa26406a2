// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `value_record`: the layout of a chunk's values of one head in the store: one contiguous record of uncoded values, or
/// of a quantizer's codes, so that one transfer fetches all of it.
///
///     using record = value_record<symmetric_quantizer<4, 64>, bfloat16>;
///     record::bytes(8, 128);                                // 576 instead of 2048
///     for (int piece = 0; piece < record::pieces(8, 128); ++piece) {
///       record::put(values, piece, 8, 128, to);             // values(token, channel) is a bfloat16
///     }
///     bfloat16 const value = record::get(from, 8, 128, token, channel);
///
/// A record of uncoded values: tokens x channels. A record of codes: tokens x channels, where 4-bit codes are two a
/// byte with the even channel in the low half; then the parameters of the groups, in the order of the values, 4 or 8
/// bytes each. Groups are neighbouring channels of a token: as many as the quantizer says, or all. The size is a
/// multiple of 64 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/concepts/quantizer.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/quantize/value_codec.hpp>

namespace tessera {
inline namespace v0 {

/// The part of a record that a lane moves at a time.
struct alignas(16) record_words {
  std::uint32_t words[4];  ///< 16 bytes of a record
};

template <ValueCodec Codec, Scalar T>
struct value_record;

/// The record of uncoded values.
template <Scalar T>
struct value_record<exact_values, T> {
  /// The bytes of a record, a multiple of 64.
  TESSERA_FN static constexpr std::int64_t bytes(std::int64_t chunk, std::int64_t channels) {
    return align_up(chunk * channels * static_cast<std::int64_t>(sizeof(T)), std::int64_t{64});
  }
  /// The pieces of a record that can be written at the same time.
  TESSERA_FN static constexpr std::int64_t pieces(std::int64_t chunk, std::int64_t channels) {
    return chunk * channels;
  }
  /// Writes a piece of a record: values(token, channel) is a T.
  template <class Values>
  TESSERA_FN static void put(Values const& values, std::int64_t piece, std::int64_t, std::int64_t channels,
                             std::byte* to) {
    reinterpret_cast<T*>(to)[piece] = values(piece / channels, piece % channels);
  }
  /// One value of a record.
  TESSERA_FN static T get(std::byte const* from, std::int64_t, std::int64_t channels, std::int64_t token,
                          std::int64_t channel) {
    return reinterpret_cast<T const*>(from)[token * channels + channel];
  }
};

/// The record of coded values.
template <ValueCodec Q, Scalar T>
requires Quantizer<Q>
struct value_record<Q, T> {
  using code_type = typename Q::code_type;
  /// The parameters that a group shares.
  using params_type = typename Q::params_type;
  /// The bits of a code in memory: 4 or those of its type.
  static constexpr int code_bits = [] {
    if constexpr (requires { Q::bits; }) {
      return Q::bits;
    } else {
      return 8 * static_cast<int>(sizeof(code_type));
    }
  }();
  static_assert(code_bits == 4 || code_bits == 8 * static_cast<int>(sizeof(code_type)),
                "tessera: codes of a value_record have 4 bits or whole bytes");
  static_assert(sizeof(params_type) % 4 == 0 && alignof(params_type) <= 4,
                "tessera: parameters of a value_record are made of floats");

  /// The number of neighbouring channels that share parameters.
  TESSERA_FN static constexpr std::int64_t neighbours(std::int64_t channels) {
    return Q::group == whole_tensor ? channels : min(std::int64_t{Q::group}, channels);
  }
  /// The bytes of the codes.
  TESSERA_FN static constexpr std::int64_t code_bytes(std::int64_t chunk, std::int64_t channels) {
    return align_up(divide_up(chunk * channels * code_bits, std::int64_t{8}), std::int64_t{4});
  }
  /// The number of groups of values that share parameters: each can be written at the same time.
  TESSERA_FN static constexpr std::int64_t pieces(std::int64_t chunk, std::int64_t channels) {
    return chunk * divide_up(channels, neighbours(channels));
  }
  /// The bytes of a record, a multiple of 64.
  TESSERA_FN static constexpr std::int64_t bytes(std::int64_t chunk, std::int64_t channels) {
    return align_up(
        code_bytes(chunk, channels) + pieces(chunk, channels) * static_cast<std::int64_t>(sizeof(params_type)),
        std::int64_t{64});
  }

  /// Writes one group: values(token, channel) is a T.
  template <class Values>
  TESSERA_FN static void put(Values const& values, std::int64_t piece, std::int64_t chunk, std::int64_t channels,
                             std::byte* to) {
    Q const quantizer;
    std::int64_t const each = divide_up(channels, neighbours(channels));
    std::int64_t const token = piece / each;
    std::int64_t const first = piece % each * neighbours(channels);
    std::int64_t const end = min(first + neighbours(channels), channels);
    auto range = quantizer.range().identity();
    for (std::int64_t channel = first; channel < end; ++channel) {
      quantizer.range().push(range, static_cast<float>(load(values(token, channel))));
    }
    params_type const params = quantizer.fit(range);
    reinterpret_cast<params_type*>(to + code_bytes(chunk, channels))[piece] = params;
    for (std::int64_t channel = first; channel < end; channel += code_bits == 4 ? 2 : 1) {
      std::int64_t const at = token * channels + channel;
      code_type const code = quantizer.encode(static_cast<float>(load(values(token, channel))), params);
      if constexpr (code_bits == 4) {
        code_type const next = quantizer.encode(static_cast<float>(load(values(token, channel + 1))), params);
        to[at / 2] = static_cast<std::byte>((code & 15) | (next & 15) << 4);
      } else {
        reinterpret_cast<code_type*>(to)[at] = code;
      }
    }
  }

  /// One value of a record, decoded and rounded to T.
  TESSERA_FN static T get(std::byte const* from, std::int64_t chunk, std::int64_t channels, std::int64_t token,
                          std::int64_t channel) {
    std::int64_t const at = token * channels + channel;
    std::int64_t const piece = token * divide_up(channels, neighbours(channels)) + channel / neighbours(channels);
    params_type const params = reinterpret_cast<params_type const*>(from + code_bytes(chunk, channels))[piece];
    return store<T>(Q{}.decode(code(from, at), params));
  }

 private:
  TESSERA_FN static code_type code(std::byte const* from, std::int64_t at) {
    if constexpr (code_bits == 4) {
      int const bits = static_cast<int>(from[at / 2]) >> (at % 2 * 4) & 15;
      return static_cast<code_type>(std::is_signed_v<code_type> ? (bits ^ 8) - 8 : bits);
    } else {
      return reinterpret_cast<code_type const*>(from)[at];
    }
  }
};

}  // namespace v0
}  // namespace tessera
