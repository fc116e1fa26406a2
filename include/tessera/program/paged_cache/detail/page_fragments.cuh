// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `page_columns`: attention of up to eight rows of queries over a page of codes (program/paged_cache/page_format.hpp)
/// by a warp, with tensor core products of codes in their stored order, and over uncompressed tokens.
///
/// For a page, with q in fp16 relative to a power of two of its own:
///
///     q'_d = q_d * scale_d in fp16        b = sum of q_d * minimum_d        by tensor cores, too
///     x_j  = norm_j * (f * sum of q'_d * code_jd + f' * b)                  f, f': powers of two, the softmax's scale
///     p_j  = 2^(x_j - reference + shift) * value scale_j in fp16            for each group of channels
///     O_d += sum of p_j * code_jd         R_g += sum of p_j * ratio_j       O: in units that rows have, see code_pairs
///
/// `shift` keeps weights times value scales in the middle of fp16's range: at most 2^14, and at least 2^-5 for the
/// largest scale of those so far.
///
/// For each page of 128 channels, 4 bits and 2 groups a lane has about 256 masks and 64 shifts for 512 codes, 72 tensor
/// core products, 16 exponentials and 320 other instructions. These are 730, while four schedulers can issue 2100 in
/// the time in which 132 multiprocessors load a page of 9376 bytes each at 4.1 TB/s.
#pragma once

#include <cstdint>

#include <tessera/core/float16.hpp>
#include <tessera/core/math.hpp>
#include <tessera/program/attention/decode_fragments.cuh>
#include <tessera/program/paged_cache/detail/code_pairs.hpp>
#include <tessera/program/paged_cache/page_format.hpp>
#include <tessera/tile/cuda/convert.cuh>
#include <tessera/tile/cuda/exponential.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/mma.cuh>
#include <tessera/tile/cuda/pairs.cuh>
#include <tessera/tile/cuda/warp.cuh>

namespace tessera {
inline namespace v0 {

/// The softmax of weigh_rows_with_headroom for a page, whose weights are multiplied by value scales in fp16.
struct page_softmax : decode_softmax {
  static constexpr int highest = 6;  ///< weights of 2^8 times scales below 2^(highest + 1) / 2^shift
  static constexpr int wanted = 3;   ///< what takes the place of `highest` when the shift is adapted

  std::int32_t& shift;  ///< weights are multiplied by 2 to this power
  int exponent;         ///< of the page's largest value scale, which the lane knows of
  int more = 0;         ///< what the shift is changed by

  /// Whether a score or a scale is too large.
  __device__ __forceinline__ bool is_beyond(state_type const& state, float largest) const {
    return decode_softmax::is_beyond(state, largest) || exponent + shift > highest;
  }
  /// Adapts the shift to the page's largest scale.
  __device__ __forceinline__ void agree() {
    exponent = largest_of_warp(exponent);
    more = exponent + shift > highest ? wanted - exponent - shift : 0;
    shift += more;
  }
  /// Raises the reference to the row's largest score. Returns the factor of what was added up before.
  __device__ __forceinline__ float raise(state_type& state, float largest) const {
    float const raised = fmaxf(state.reference, largest);
    float const factor = fast_exp2(state.reference - raised + static_cast<float>(more));
    state.reference = raised;
    state.sum *= factor;
    return factor;
  }
  /// The weight of a score, relative to the reference, times 2^shift.
  __device__ __forceinline__ float weight(state_type const& state, float score) const {
    return fast_exp2(score - (state.reference - static_cast<float>(shift)));
  }
};
/// That for uncompressed tokens beside pages, whose weights are not shifted.
struct beside_pages_softmax : decode_softmax {
  float up;  ///< 2 to the power of the pages' shift

  __device__ __forceinline__ void add(state_type& state, float sum) const { state.sum = __fmaf_rn(sum, up, state.sum); }
};

/// Attention over pages by columns of queries. Groups: of a value's channels. KeyBits, ValueBits: bits of codes of keys
/// and of values: 2, 3, 4 or 8.
template <int Channels, int Groups, int KeyBits = 4, int ValueBits = KeyBits>
struct page_columns {
  static constexpr int channels = Channels;
  static constexpr cache_page_format format{Channels, KeyBits, ValueBits, Groups, 2};  ///< the format of the pages
  static constexpr int strips = Channels / 16;
  static constexpr int group_strips = strips / Groups;          ///< strips of a group of a value
  static constexpr int tiles = cache_page_format::tokens / 16;  ///< tiles of 16 tokens
  using columns_type = decode_columns<Channels>;
  using outputs_type = typename columns_type::outputs_type;  ///< the words for outputs
  /// The words for scores of a page.
  using scores_type = typename columns_type::template scores_type<cache_page_format::tokens>;
  using score_tile = typename scores_type::sum_tile;  ///< scores of a page
  /// The product of weights and codes of values.
  using values_product = typename columns_type::template values_product<float16, cache_page_format::tokens>;
  using operands_type = typename values_product::a_tile;  ///< weights, as its operand
  template <class Value>
  using row_values = typename columns_type::template row_values<Value>;  ///< a value for each row
  using seen_type = row_values<std::int32_t>;                            ///< how many tokens rows see
  static constexpr float value_steps =
      1 << (format.value_bits - 1);  ///< the factor by which value scales are too large
  /// The products of codes, which are fp16 operands.
  using codes_mma = warp_mma<float16>;
  /// The unit of codes of so many bits in rows g + 8.
  template <int Bits>
  static constexpr float upper_unit = static_cast<float>(1 << code_pairs<Bits>::upper) * 0x1p-24F;
  static_assert(Channels % 32 == 0 && strips % Groups == 0,
                "tessera: page_columns takes multiples of 32 channels and groups of multiples of 16");

  /// The offsets of parts of a page in the bytes that a layer reads.
  struct parts {
    int header;        ///< cache_page_header
    int norms;         ///< norms of keys
    int value_scales;  ///< value scales of the layer
  };
  /// The offsets for a layer.
  [[nodiscard]] __device__ __forceinline__ static parts parts_of(unsigned char const*, int layer) {
    constexpr int of_layer = format.layer_bytes();
    constexpr int behind = format.read_bytes() - of_layer;
    int const first = layer == 0 ? 0 : behind;
    return {layer == 0 ? of_layer : 0, first, first + 2 * cache_page_format::tokens};
  }

  /// The tokens of a page that count.
  struct page_mask {
    std::uint64_t retained;  ///< bit j: whether token j is retained, and not in the page
    seen_type seen;          ///< each row sees the tokens before this one
    bool is_needed;          ///< whether any token is left out
  };

  columns_type columns;  ///< sums and states of the softmax
  /// Queries as fp16 second operands: the first halves of two strips, then the second.
  std::uint32_t queries[strips / 2][4];
  row_values<float> power;           ///< the units of products of q' with codes of tokens below 8 of 16
  row_values<float> ratios[Groups];  ///< parts of R over the lane's tokens
  std::int32_t shift;                ///< weights times value scales are multiplied by 2 to this power

  /// Begins with queries, as pairs of fp16, and empty sums.
  template <class T>
  __device__ __forceinline__ void begin(std::uint32_t const (&words)[strips][2], float factor, int lane) {
    columns.clear();
    shift = 64;  // any page lowers it
#pragma unroll
    for (auto& group : ratios) {
      outputs_type::each_row(
          cuda_warp{}, [](int, float& ratio) { ratio = 0.0F; }, group);
    }
    float largest = 0.0F;
#pragma unroll
    for (auto const& strip : words) {
#pragma unroll
      for (std::uint32_t word : strip) {
        float2 const pair = unpack_pair<T>(word);
        largest = fmaxf(largest, fmaxf(fabsf(pair.x), fabsf(pair.y)));
      }
    }
    largest = fmaxf(largest, shuffle_xor(largest, 1));
    largest = fmaxf(largest, shuffle_xor(largest, 2));
    int const exponent = min(max(static_cast<int>(__float_as_uint(largest) >> 23), 2), 250);  // biased
    float const shrink = __uint_as_float(static_cast<std::uint32_t>(253 - exponent) << 23);   // to below 1
#pragma unroll
    for (int strip = 0; strip < strips; ++strip) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float2 const pair = unpack_pair<T>(words[strip][i]);
        queries[strip / 2][2 * i + strip % 2] = pack_pair<float16>(pair.x * shrink, pair.y * shrink);
      }
    }
    float const own = __uint_as_float(static_cast<std::uint32_t>(exponent + 1) << 23) * factor;
    outputs_type::each_row(
        cuda_warp{}, [own](int row, float& unit) { unit = shuffle(own, 4 * row) * 0x1p24F; }, power);
  }

  /// Adds the tokens of a page.
  __device__ __forceinline__ void take(unsigned char const* page, parts const& at, page_mask const& mask, int lane) {
    unsigned char const* const both = page + at.header - format.header();
    score_tile scores{};
    row_values<float> bias;
    multiply_keys(both, scores.values[0], bias.values[0], lane);
    make_scores(load_eight(page + at.norms, lane / 4), bias, scores);
    if (mask.is_needed) {
      apply(mask, scores);
    }
    uint4 scales[Groups];
    std::uint32_t widest = 0;
#pragma unroll
    for (int group = 0; group < Groups; ++group) {
      scales[group] = load_eight(page + at.value_scales + 2 * cache_page_format::tokens * group, lane / 4);
      widest = larger_magnitudes_f16x2(widest, widest_of(scales[group]));
    }
    page_softmax softmax{{}, shift, exponent_of(widest)};
    weigh<scores_type>(softmax, scores);
#pragma unroll
    for (int group = 0; group < Groups; ++group) {
      operands_type weights;
      scale_weights(scores, scales[group],
                    load_eight(both + format.value_ratios() + 2 * cache_page_format::tokens * group, lane / 4),
                    ratios[group], weights);
      multiply_values(both + format.value_codes(), weights, group, lane);
    }
  }

  /// The address of uncompressed tokens in shared memory, each key next to its value.
  template <class T>
  struct dense_tokens {
    std::uint32_t base;  ///< the first byte in shared memory
    int bytes;           ///< bytes from token to token

    /// The address of the lane's eight channels of a row.
    __device__ __forceinline__ std::uint32_t operator()(int row, int strip, int half) const {
      return base + static_cast<std::uint32_t>(row * bytes + half * 16) + static_cast<std::uint32_t>(strip * 32);
    }
  };

  /// Adds 16 uncompressed tokens; `tokens` are the numbers of the lane's rows.
  template <class T>
  __device__ __forceinline__ void take_tokens(dense_tokens<T> const& at, std::uint32_t const (&words)[strips][2],
                                              float factor, std::int32_t const (&tokens)[2], seen_type const& seen,
                                              int lane) {
    using few_scores = typename columns_type::template scores_type<16>;
    cuda_warp const group;
    typename few_scores::sum_tile scores{};
    columns_type::template add_keys<T>(scores, words, at, lane);
    few_scores::each_with_row(
        group, scores,
        [&](int, int token, float& score, std::int32_t of_row) {
          score = (token < 8 ? tokens[0] : tokens[1]) < of_row ? score * factor : -infinity;
        },
        seen);
    float const up = power_of_two(shift);
    beside_pages_softmax softmax{{}, up};
    weigh<few_scores>(softmax, scores);
    typename columns_type::template operands_type<T, 16> weights;
    few_scores::template as_operand<typename columns_type::template values_product<T, 16>, 0>(group, scores, weights);
    typename outputs_type::sum_tile outputs{};
    dense_tokens<T> const values{at.base + static_cast<std::uint32_t>(2 * Channels), at.bytes};
    columns_type::template add_values<T, 16>(outputs, weights, values, lane);
    outputs_type::template each_with_both<outputs_type>(
        group, outputs, columns.outputs, [up](int, int channel, float of_tokens, float& output) {
          output = __fmaf_rn(of_tokens, up * value_steps * unit_of_channel(channel), output);
        });
  }

  /// Turns sums into their final units.
  __device__ __forceinline__ void finish() {
    cuda_warp const warp;
    float const down = power_of_two(-shift);
    outputs_type::each_row(
        warp, [down](int, decode_softmax::state_type& state) { state.sum *= down; }, columns.softmax);
    float const value = down / value_steps;
#pragma unroll
    for (int group = 0; group < Groups; ++group) {
      outputs_type::merge_lanes(warp, sum_reducer<float>{}, ratios[group]);
      outputs_type::each_with_row(
          warp, columns.outputs,
          [=](int, int channel, float& output, float ratio) {
            if (channel / (16 * group_strips) == group) {
              output = __fmaf_rn(output, 1.0F / unit_of_channel(channel), ratio) * value;
            }
          },
          ratios[group]);
    }
  }

 private:
  __device__ __forceinline__ static uint4 load_eight(unsigned char const* from, int which) {
    return reinterpret_cast<uint4 const*>(from)[which];
  }
  /// The unit of the output of a channel: codes of 16 channels have two.
  __device__ __forceinline__ static float unit_of_channel(int channel) {
    return channel % 16 < 8 ? 0x1p-24F : upper_unit<ValueBits>;
  }
  __device__ __forceinline__ static float power_of_two(int exponent) {
    return __uint_as_float(static_cast<std::uint32_t>(127 + exponent) << 23);
  }

  __device__ __forceinline__ void multiply_keys(unsigned char const* both, float (&scores)[tiles][4], float (&bias)[2],
                                                int lane) const {
    auto const* const codes = reinterpret_cast<std::uint32_t const*>(both + format.key_codes());
    float first[4] = {};   // with minima of the first halves of strips in rows below 8; other rows are not used
    float second[4] = {};  // with minima of the second halves, in the other rows
#pragma unroll
    for (int pair = 0; pair < strips / 2; ++pair) {
      uint4 const scale = load_eight(both + format.key_scales() + 64 * pair, lane % 4);
      uint4 const minimum = load_eight(both + format.key_minima() + 64 * pair, lane % 4);
      std::uint32_t const(&query)[4] = queries[pair];
      codes_mma::multiply(first, {minimum.x, minimum.y, minimum.z, minimum.w}, {query[0], query[1]});
      codes_mma::multiply(second, {minimum.x, minimum.y, minimum.z, minimum.w}, {query[2], query[3]});
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        std::uint32_t const scaled[2] = {multiply_pairs(query[i], i == 0 ? scale.x : scale.z),
                                         multiply_pairs(query[2 + i], i == 0 ? scale.y : scale.w)};
        lane_words<KeyBits> words;
        load_codes(words, codes, 2 * pair + i, lane);
        multiply_codes(scores, words, scaled);
      }
    }
    bias[0] = first[0] + second[2];
    bias[1] = first[1] + second[3];
  }
  /// The words that a lane has of a strip.
  template <int Bits>
  struct lane_words {
    std::uint32_t of[code_pairs<Bits>::words];
  };
  template <int Bits>
  __device__ __forceinline__ static void load_codes(lane_words<Bits>& words, std::uint32_t const* from, int strip,
                                                    int lane) {
    if constexpr (Bits == 4 || Bits == 8) {
#pragma unroll
      for (int word = 0; word < Bits; word += 4) {
        uint4 const four = *reinterpret_cast<uint4 const*>(from + lane_codes::slot(Bits, strip, lane, word));
        words.of[word] = four.x;
        words.of[word + 1] = four.y;
        words.of[word + 2] = four.z;
        words.of[word + 3] = four.w;
      }
    } else if constexpr (Bits == 2) {
      uint2 const two = *reinterpret_cast<uint2 const*>(from + lane_codes::slot(Bits, strip, lane, 0));
      words.of[0] = two.x;
      words.of[1] = two.y;
    } else {
#pragma unroll
      for (int word = 0; word < Bits; ++word) {
        words.of[word] = from[lane_codes::slot(Bits, strip, lane, word)];
      }
    }
  }
  template <int Bits>
  __device__ __forceinline__ static void find_pairs(std::uint32_t (&pairs)[4], lane_words<Bits> const& words,
                                                    int tile) {
#pragma unroll
    for (int a = 0; a < 4; ++a) {
      pairs[a] = code_pairs<Bits>::of(words.of, tile, a);
    }
  }
  __device__ __forceinline__ static void multiply_codes(float (&sums)[tiles][4], lane_words<KeyBits> const& words,
                                                        std::uint32_t const (&operand)[2]) {
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
      std::uint32_t pairs[4];
      find_pairs(pairs, words, tile);
      codes_mma::multiply(sums[tile], pairs, operand);
    }
  }

  /// A number of each of the lane's tokens of a page.
  struct numbers_of_tokens {
    float values[2 * tiles];

    /// Widens eight numbers in fp16.
    __device__ __forceinline__ explicit numbers_of_tokens(uint4 eight) {
      std::uint32_t const words[tiles] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
        float2 const pair = unpack_pair<float16>(words[tile]);
        values[2 * tile] = pair.x;
        values[2 * tile + 1] = pair.y;
      }
    }
    __device__ __forceinline__ float operator()(int token) const {
      return values[token / 8];
    }
  };

  __device__ __forceinline__ void make_scores(uint4 eight_norms, row_values<float> const& bias,
                                              score_tile& scores) const {
    numbers_of_tokens const norms(eight_norms);
    row_values<float> upper;
    row_values<float> shifted;
    scores_type::each_row(
        cuda_warp{},
        [](int, float unit, float of_row, float& of_upper, float& shift) {
          shift = of_row * (unit * 0x1p-24F);
          of_upper = unit * (0x1p-24F / upper_unit<KeyBits>);
        },
        power, bias, upper, shifted);
    scores_type::each_with_row(
        cuda_warp{}, scores,
        [&](int, int token, float& score, float unit, float of_upper, float shift) {
          score = norms(token) * __fmaf_rn(score, token % 16 < 8 ? unit : of_upper, shift);
        },
        power, upper, shifted);
  }
  __device__ __forceinline__ static void apply(page_mask const& mask, score_tile& scores) {
    scores_type::each_with_row(
        cuda_warp{}, scores,
        [&](int, int token, float& score, std::int32_t seen) {
          score = (mask.retained >> token & 1U) == 0 && token < seen ? score : -infinity;
        },
        mask.seen);
  }

  /// The largest magnitudes of even and of odd elements.
  __device__ __forceinline__ static std::uint32_t widest_of(uint4 eight) {
    constexpr std::uint32_t magnitude = 0x7fff7fffU;
    return larger_magnitudes_f16x2(larger_magnitudes_f16x2(eight.x & magnitude, eight.y & magnitude),
                                   larger_magnitudes_f16x2(eight.z & magnitude, eight.w & magnitude));
  }
  /// The exponent of the larger of two magnitudes.
  __device__ __forceinline__ static int exponent_of(std::uint32_t widest) {
    constexpr int bias_of_exponents = 15;
    return static_cast<int>(max(widest >> 16, widest & 0xffffU) >> 10) - bias_of_exponents;
  }
  /// Turns scores into weights, and adds these to the sums of rows.
  template <class Scores, class Softmax>
  __device__ __forceinline__ void weigh(Softmax& softmax, typename Scores::sum_tile& scores) {
    weigh_rows_with_headroom<Scores>(cuda_warp{}, softmax, scores, columns.softmax, [&](row_values<float>& factors) {
      columns.rescale(factors);
#pragma unroll
      for (auto& group : ratios) {
        outputs_type::each_row(
            cuda_warp{}, [](int, float& ratio, float factor) { ratio *= factor; }, group, factors);
      }
    });
  }

  /// Multiplies weights by the scales of their tokens, and adds what they make of the ratios to the sums of rows.
  __device__ __forceinline__ static void scale_weights(score_tile const& weights, uint4 scales, uint4 ratios,
                                                       row_values<float>& sums, operands_type& operands) {
    numbers_of_tokens const scale(scales);
    numbers_of_tokens const ratio(ratios);
    score_tile scaled;
    scores_type::template each_with_both<scores_type>(
        cuda_warp{}, weights, scaled,
        [&](int, int token, float weight, float& one, float& sum) {
          one = weight * scale(token);
          sum = __fmaf_rn(one, ratio(token), sum);
        },
        sums);
    scores_type::template as_operand<values_product, 0>({}, scaled, operands);
  }
  __device__ __forceinline__ void multiply_values(unsigned char const* codes, operands_type const& weights, int group,
                                                  int lane) {
#pragma unroll
    for (int i = 0; i < group_strips; ++i) {
      int const strip = group * group_strips + i;
      lane_words<ValueBits> words;
      load_codes(words, reinterpret_cast<std::uint32_t const*>(codes), strip, lane);
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
        std::uint32_t pairs[4];
        find_pairs(pairs, words, tile);
        codes_mma::multiply(columns.outputs.values[0][strip], pairs, weights.words[tile][0]);
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
