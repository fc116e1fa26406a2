// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Makes the layouts of the streams of a weight codec, and checks that a layout is not that of another codec.
///
///     using coder = tessera::rans_coder<12>;
///     using specs = tessera::weight_codec_specs<tessera::bfloat16, coder, tessera::keep_mantissa<7>>;
///     auto spec = specs::make(1'000'000, {.block = 4096});
///     specs::check_own("load", spec);                           // throws for any other codec's
#pragma once

#include <cstdint>

#include <tessera/algorithm/weights/weight_coder.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/entropy/weight_stream.hpp>

namespace tessera {
inline namespace v0 {

/// The options of a stream.
struct weight_stream_options {
  /// Weights in a block: 1024 to 8192, a power of two. A block takes 1,100 bits more than its entropy, and can be
  /// decoded alone.
  int block = 8192;
  /// Whether every block has a CRC32C, for files; costs 4 bytes a block and reading the stream once more.
  bool checksums = false;
  /// Weights that share a normalizer, 32 to 1024, a power of two; 0 for none. Only where mantissa bits are dropped.
  int normalizer_block = 0;
};

namespace detail {

/// The number of a type in streams; -1 for types that streams cannot have.
template <class T>
inline constexpr int weight_type_number = -1;
template <>
inline constexpr int weight_type_number<bfloat16> = static_cast<int>(weight_type::bf16);
template <>
inline constexpr int weight_type_number<float16> = static_cast<int>(weight_type::fp16);
template <>
inline constexpr int weight_type_number<float> = static_cast<int>(weight_type::fp32);
template <>
inline constexpr int weight_type_number<float8_e4m3> = static_cast<int>(weight_type::fp8_e4m3);
template <>
inline constexpr int weight_type_number<float8_e5m2> = static_cast<int>(weight_type::fp8_e5m2);

/// Units of 64 bytes of a coder's codebook; 0 for coders of pairs, whose streams do not say how long it is.
template <WeightCoder Coder>
TESSERA_FN constexpr std::uint8_t codebook_units_of() {
  if constexpr (codes_exponent_pairs<Coder>) {
    return 0;
  } else {
    return static_cast<std::uint8_t>(divide_up(Coder::codebook_bytes, weight_stream_spec::section_alignment));
  }
}

}  // namespace detail

/// The layouts of streams of values of type T, whose exponents `Coder` codes and of whose mantissas `Mantissa` keeps a
/// part.
template <class T, WeightCoder Coder, class Mantissa>
struct weight_codec_specs {
  /// Whether every weight is decoded bit for bit.
  static constexpr bool is_lossless = Mantissa::template is_lossless<T>;

  static_assert(
      detail::weight_type_number<T> >= 0,
      "tessera: compressed_weights has streams of bfloat16, float16, float, float8_e4m3 and float8_e5m2; split "
      "one of these");
  static_assert(codes_exponent_pairs<Coder> || Coder::alphabet >= 1 << scalar_traits<T>::exponent_bits,
                "tessera: compressed_weights needs a coder whose alphabet has a symbol for every exponent of the type");
  static_assert(
      is_lossless || Mantissa::kept_bits == 0 || Mantissa::kept_bits == 1 || Mantissa::kept_bits == 3 ||
          Mantissa::kept_bits == 7,
      "tessera: compressed_weights keeps all mantissa bits, or 0, 1, 3 or 7 of them, so that sign and mantissa pack");

  /// Tensors of fewer bytes than this are stored as they are.
  static constexpr std::int64_t smallest_coded_bytes = 4096;
  /// The most weights of a stream. Payloads, of up to nine bits a weight, have 32-bit positions in units of 16 bytes.
  static constexpr std::int64_t most_weights = std::int64_t{1} << 35;
  /// The number of T in streams.
  static constexpr weight_type type = static_cast<weight_type>(detail::weight_type_number<T>);

  /// The layout of a tensor's stream. Throws shape_error for a count and value_error for options out of range.
  static weight_stream_spec make(std::int64_t count, weight_stream_options options = {}) {
    constexpr char const* where = "compressed_weights.spec";
    check<shape_error>(count >= 0 && count <= most_weights, where, ": the number of weights is ", count,
                       " but must be at least 0 and at most ", most_weights);
    check<value_error>(options.block >= 1 << weight_stream_spec::smallest_log2_block &&
                           options.block <= 1 << weight_stream_spec::largest_log2_block &&
                           is_power_of_two(static_cast<std::uint32_t>(options.block)),
                       where, ": blocks have ", options.block, " weights but must have a power of two from 1024 to ",
                       1 << weight_stream_spec::largest_log2_block);
    check<value_error>(options.normalizer_block == 0 || !is_lossless, where, ": normalizers of ",
                       options.normalizer_block,
                       " weights make no sense where all mantissa bits are kept: ", Mantissa::kept_bits);
    check<value_error>(
        options.normalizer_block == 0 || (options.normalizer_block >= 32 && options.normalizer_block <= 1024 &&
                                          is_power_of_two(static_cast<std::uint32_t>(options.normalizer_block))),
        where, ": normalizers belong to ", options.normalizer_block, " weights but must to a power of two from 32 to ",
        1024);
    weight_stream_spec result;
    result.type = type;
    result.coder = weight_coder_of<Coder>;
    result.codebook_units = detail::codebook_units_of<Coder>();
    result.log2_block = log2_floor(static_cast<std::uint32_t>(options.block));
    result.mantissa_kept = Mantissa::kept_bits;
    result.block_checksums = options.checksums;
    result.count = count;
    if (options.normalizer_block > 0) {
      result.log2_normalizer_block = log2_floor(static_cast<std::uint32_t>(options.normalizer_block));
    }
    if (is_lossless && count * std::int64_t{sizeof(T)} < smallest_coded_bytes) {
      result.coder = weight_coder::stored;
      result.codebook_units = 0;
    }
    return result;
  }

  /// Throws value_error, or shape_error for the number of weights, if streams of this spec are not the codec's.
  static void check_own(char const* where, weight_stream_spec const& spec) {
    check<value_error>(spec.type == type, where, ": the stream holds elements of type ", static_cast<int>(spec.type),
                       " but the codec has type ", static_cast<int>(type));
    check<value_error>((spec.coder == weight_coder::stored && is_lossless) || spec.coder == weight_coder_of<Coder>,
                       where, ": the stream has coder ", static_cast<int>(spec.coder), " but the codec has ",
                       static_cast<int>(weight_coder_of<Coder>));
    int const units = spec.coder == weight_coder::stored ? 0 : detail::codebook_units_of<Coder>();
    check<value_error>(spec.codebook_units == units, where, ": the stream's codebook has ", int{spec.codebook_units},
                       " times 64 bytes but the codec's has ", units);
    check<value_error>(spec.mantissa_kept == Mantissa::kept_bits, where, ": the stream keeps ", spec.mantissa_kept,
                       " mantissa bits but the codec ", Mantissa::kept_bits);
    check<value_error>(spec.log2_block >= weight_stream_spec::smallest_log2_block &&
                           spec.log2_block <= weight_stream_spec::largest_log2_block,
                       where, ": blocks have 2^", spec.log2_block, " weights but must have 2^10 to 2^",
                       weight_stream_spec::largest_log2_block);
    check<value_error>(spec.log2_normalizer_block == 0 || !is_lossless, where, ": normalizers belong to 2^",
                       spec.log2_normalizer_block, " weights but the codec has none and keeps all mantissa bits, ",
                       Mantissa::kept_bits);
    check<value_error>(
        spec.log2_normalizer_block == 0 || (spec.log2_normalizer_block >= 5 && spec.log2_normalizer_block <= 10), where,
        ": normalizers belong to 2^", spec.log2_normalizer_block, " weights but must to 2^5 to 2^", 10);
    check<shape_error>(spec.count >= 0 && spec.count <= most_weights, where, ": the number of weights is ", spec.count,
                       " but must be at least 0 and at most ", most_weights);
  }
};

}  // namespace v0
}  // namespace tessera
