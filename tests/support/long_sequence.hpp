// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A sequence for offloaded caches that is too long to be made on the host. Any token of it can be made alone, on host
/// and device, and attention over some of its tokens computed in double.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/config.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/mix_bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/program/offloaded_cache/summarize_chunk.hpp>
#include <tessera/project/rotary.hpp>
#include <tessera/view/view.hpp>

namespace tessera_test {

/// One key head of 64 channels, chunks of 8 tokens. Two chunks are needles: their keys are the same one before their
/// rotation, and so are their values. Two query heads of the token at `last` are about the needles.
struct long_sequence {
  using T = tessera::bfloat16;
  std::int64_t needles[2];  ///< indices of the needles' chunks
  std::int64_t last;

  /// A number that is about normally distributed.
  TESSERA_FN static float noise(std::uint64_t seed, std::int64_t at) {
    std::uint64_t const bits = tessera::mix_bits(seed, static_cast<std::uint64_t>(at));
    std::int32_t sum = -2 * 65535;
    for (int part = 0; part < 4; ++part) {
      sum += static_cast<std::int32_t>(bits >> (16 * part) & 0xffff);
    }
    return static_cast<float>(sum) * (1.7320508F / 65536.0F);
  }
  [[nodiscard]] TESSERA_FN int needle_of(std::int64_t token) const {
    return token / 8 == needles[0] ? 0 : token / 8 == needles[1] ? 1 : -1;
  }
  /// A channel of a key before its rotation.
  [[nodiscard]] TESSERA_FN T key(std::int64_t token, std::int64_t channel) const {
    int const which = needle_of(token);
    return tessera::store<T>(which >= 0 ? noise(3, which * 64 + channel) : noise(1, token * 64 + channel));
  }
  [[nodiscard]] TESSERA_FN T value(std::int64_t token, std::int64_t channel) const {
    int const which = needle_of(token);
    return tessera::store<T>(which >= 0 ? noise(4, which * 64 + channel) : noise(2, token * 64 + channel));
  }
};

/// A program that writes keys and values; a group for each 4 tokens.
struct make_long_sequence {
  static constexpr int lanes = 256;
  struct scratch_type {};
  long_sequence sequence;
  tessera::view<tessera::bfloat16, 3> keys;    ///< 1 x tokens x 64
  tessera::view<tessera::bfloat16, 3> values;  ///< 1 x tokens x 64

  [[nodiscard]] std::int64_t groups() const { return keys.extent(1) / 4; }
  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      std::int64_t const token = 4 * which + lane / 64;
      keys(0, token, lane % 64) = sequence.key(token, lane % 64);
      values(0, token, lane % 64) = sequence.value(token, lane % 64);
    }
  }
};

namespace long_sequences {

struct row_of {
  float const* data;
  TESSERA_FN float operator()(std::int64_t channel) const { return data[channel]; }
};

inline double number(tessera::bfloat16 stored) {
  return static_cast<double>(tessera::load(stored));
}

inline double dot(std::vector<double> const& a, std::vector<double> const& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

/// A key of the sequence after its rotation, as the cache has it.
inline std::vector<double> turned_key(long_sequence const& s, tessera::rotary_embedding const& rotary,
                                      std::int64_t token) {
  std::vector<float> plain;
  for (std::int64_t c = 0; c < 64; ++c) {
    plain.push_back(tessera::load(s.key(token, c)));
  }
  std::vector<double> made;
  for (std::int64_t c = 0; c < 64; ++c) {
    made.push_back(number(tessera::rotated<tessera::bfloat16>(rotary, token, c, row_of{plain.data()})));
  }
  return made;
}

}  // namespace long_sequences

/// The query whose rotation lies along the key in the middle of needle `which`, and gives that key a score of 12.
/// `backwards`: rotations have the opposite sign.
inline std::vector<tessera::bfloat16> query_about(long_sequence const& s, int which,
                                                  tessera::rotary_embedding const& rotary,
                                                  tessera::rotary_embedding const& backwards) {
  using namespace long_sequences;
  auto const key = turned_key(s, rotary, 8 * s.needles[which] + 4);
  std::vector<float> const turned(key.begin(), key.end());
  float const by = static_cast<float>(12 * 8 / dot(key, key));  // scores are divided by the root of 64
  std::vector<tessera::bfloat16> made;
  for (std::int64_t c = 0; c < 64; ++c) {
    made.push_back(
        tessera::store<tessera::bfloat16>(by * backwards.turn(s.last, c, long_sequences::row_of{turned.data()})));
  }
  return made;
}

/// Attention of a query, after its rotation, over some tokens, in double.
inline std::vector<double> attention_over(long_sequence const& s, tessera::rotary_embedding const& rotary,
                                          std::vector<double> const& query, std::vector<std::int64_t> const& tokens) {
  using namespace long_sequences;
  std::vector<double> result(64);
  double sum = 0;
  for (std::int64_t const token : tokens) {
    double const weight = std::exp(dot(query, turned_key(s, rotary, token)) / 8 - 12);
    sum += weight;
    for (std::int64_t c = 0; c < 64; ++c) {
      result[static_cast<std::size_t>(c)] += weight * number(s.value(token, c));
    }
  }
  for (double& x : result) {
    x /= sum;
  }
  return result;
}

/// The scaled score of a chunk by the mean of its keys.
inline double mean_score(long_sequence const& s, tessera::rotary_embedding const& rotary,
                         std::vector<double> const& query, std::int64_t chunk) {
  double sum = 0;
  for (std::int64_t token = 8 * chunk; token < 8 * chunk + 8; ++token) {
    sum += long_sequences::dot(query, long_sequences::turned_key(s, rotary, token)) / 8;
  }
  return sum / 8;
}

}  // namespace tessera_test
