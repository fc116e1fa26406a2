// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `smoothed<Q, Mean>`: a quantizer of the difference between tokens and a mean of them. Adaptors nest.
///
///     using eight = smoothed<symmetric_quantizer<8, per_thread>>;                           // of keys: their mean
///     using four = smoothed<smoothed<symmetric_quantizer<4, per_thread>>, block_mean>;      // and that of 128 queries
///     using values = smoothed<float8_quantizer<float8_e4m3>>;                               // of values: their mean
///     using quick = smoothed<symmetric_quantizer<8, per_thread>, sampled_mean>;             // of a sample of the keys
///
/// Channels whose values lie far from zero, all on one side, cost every other channel its precision. Subtracting the
/// mean removes that offset. The offset is known exactly, and is added back elsewhere. SageAttention2 (arXiv
/// 2411.10958), section 3.1, with q and k means of queries and keys, and s the softmax's scale:
///
///     token_mean of keys      S_ij = s Q_i . (K_j - k)                softmax is the same; log-sum-exp gets s Q_i . k
///     block_mean of queries   S_ij = s (Q_i - q) . K_j + s q . K_j    the last term is added before the softmax
///     token_mean of values    O_i  = sum_j P_ij (V_j - v) + v         for the weights P_ij add up to 1
///
/// All three hold for any vector in the mean's place, since any constant may be added to a row of scores. The mean of
/// keys is a mean of middles (program/attention/channel_statistics.hpp), which a few tokens far from all others do not
/// move: in a plain mean one key of 1e5 among 300 would cost all other keys their precision, not only those of its own
/// scale. A sampled_mean is the mean of n >= 512 of the tokens (token_sample.hpp). It differs from the mean of all by
/// about the deviation / sqrt(n), which is little beside the deviations that are coded, and tokens need not be read
/// twice.
///
/// Codes, scales and laws are Q's, applied to the differences.
#pragma once

#include <type_traits>

#include <tessera/concepts/quantizer.hpp>
#include <tessera/config.hpp>
#include <tessera/quantize/token_sample.hpp>

namespace tessera {
inline namespace v0 {

/// The mean of all tokens of a head, of keys (a mean of middles) or of values: a number for each channel.
struct token_mean {
  static constexpr token_sample sample{};  ///< the sample of the tokens: all of them
};

/// The mean of a sample of the tokens of a head.
struct sampled_mean {
  static constexpr token_sample sample{16};  ///< the sample of the tokens
};

/// The mean of each block of 128 queries of a head, as many as in SageAttention2, rounded to the type of queries.
struct block_mean {
  static constexpr int tokens = 128;  ///< queries of a block, which share a mean
  static constexpr int part = 64;     ///< queries that are added first; then the sums of a block's parts are added
};

template <Quantizer Q, class Mean = token_mean>
struct smoothed : Q {
  static_assert(std::is_same_v<Mean, token_mean> || std::is_same_v<Mean, sampled_mean> ||
                    std::is_same_v<Mean, block_mean>,
                "tessera: a quantizer is smoothed by a token_mean, a sampled_mean or a block_mean");
  /// The quantizer of the differences.
  using quantizer_type = Q;
};

/// Whether a quantizer is smoothed by `Mean`, on the outside or further in.
template <class Mean, class Q>
inline constexpr bool is_smoothed_by = false;
/// The search through nested adaptors.
template <class Mean, class Q, class Outer>
inline constexpr bool is_smoothed_by<Mean, smoothed<Q, Outer>> = std::is_same_v<Mean, Outer> || is_smoothed_by<Mean, Q>;

/// Whether a quantizer is smoothed by a mean of tokens of a head: all of them, or a sample.
template <class Q>
inline constexpr bool has_mean_of_tokens = is_smoothed_by<token_mean, Q> || is_smoothed_by<sampled_mean, Q>;
/// The sample of tokens of that mean.
template <class Q>
inline constexpr token_sample mean_sample = is_smoothed_by<sampled_mean, Q> ? sampled_mean::sample : token_mean::sample;

}  // namespace v0
}  // namespace tessera
