// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Compresses the weights of a tensor into a stream of bytes and gets them back, on any executor.
///
///     using codec = tessera::compressed_weights<tessera::exponent_split<tessera::bfloat16>, tessera::rans_coder<12>,
///                                               tessera::keep_mantissa<7>>;
///     tessera::cpu exec;
///     auto stream = codec::encode(exec, weights);               // two thirds of the bytes
///     codec::decode(exec, stream, weights);                     // the same bits
///
/// On a GPU include compressed_weights.cuh and keep the spec, from which all sizes follow without looking at the stream:
///
///     auto spec = codec::spec(count);
///     auto plan = codec::encode_plan(spec);                     // plan.bytes() of workspace
///     codec::encode(exec, spec, weights, stream, stream_bytes, tessera::workspace(plan, memory));
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include <tessera/core/check.hpp>
#include <tessera/core/cpu_features.hpp>
#include <tessera/entropy/fixed_coder.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/decode_weights.hpp>
#include <tessera/program/encode_weights.hpp>
#include <tessera/program/store_weights.hpp>
#include <tessera/program/weight_block_avx2.hpp>
#include <tessera/program/weight_block_avx512.hpp>

namespace tessera {
inline namespace v0 {

/// What a caller may choose about a stream.
struct weight_stream_options {
  /// Weights in a block: 1024 to 8192, a power of two. A block costs 1,100 bits on top of its entropy and decodes on its own.
  int block = 8192;
  /// CRC32C of every block; costs 4 bytes a block and reading the stream once more. For files.
  bool checksums = false;
  /// Weights that share a normalizer, 32 to 1024, a power of two; 0 for none. Only where mantissa bits are dropped.
  int normalizer_block = 0;
};

namespace detail {

template <class T>
inline constexpr weight_type weight_type_of = weight_type::bf16;
template <>
inline constexpr weight_type weight_type_of<float16> = weight_type::fp16;
template <>
inline constexpr weight_type weight_type_of<float> = weight_type::fp32;
template <>
inline constexpr weight_type weight_type_of<float8_e4m3> = weight_type::fp8_e4m3;
template <>
inline constexpr weight_type weight_type_of<float8_e5m2> = weight_type::fp8_e5m2;

template <class Coder>
inline constexpr weight_coder weight_coder_of = weight_coder::stored;
template <>
inline constexpr weight_coder weight_coder_of<rans_coder<12>> = weight_coder::rans_pairs;
template <>
inline constexpr weight_coder weight_coder_of<fixed_coder> = weight_coder::fixed_codes;

}  // namespace detail

/// Runs the programs that touch every weight, on any executor. An executor with faster programs overloads these three.
template <class Mantissa, class T, class Executor>
void run_count_exponents(Executor const& exec, weight_encoding<T> const& encoding) {
  using program = count_exponents<T, Mantissa>;
  exec.run(program{encoding}, program::groups(encoding.spec));
}
template <class Mantissa, class T, class Executor>
void run_encode_blocks(Executor const& exec, weight_encoding<T> const& encoding) {
  exec.run(encode_weights<T, Mantissa>{encoding}, encoding.spec.block_count());
  exec.run(place_blocks<T>{encoding}, 1);
  exec.run(move_payloads<T>{encoding}, encoding.spec.block_count());
}
template <class Mantissa, class T, class Executor>
void run_decode_blocks(Executor const& exec, weight_decoding<T> const& decoding, std::int64_t blocks) {
  exec.run(read_codebook<T>{decoding}, 1);
  exec.run(decode_weights<T, Mantissa>{decoding}, blocks);
}

namespace detail {

/// Calls use(steps) with the fastest block steps that this processor has.
template <class Mantissa, class T, class Use>
void with_block_steps(Use&& use) {
  switch (best_simd_level()) {
    case simd_level::avx512:
      return use(weight_block_steps_avx512<T, Mantissa>{});
    case simd_level::avx2:
      return use(weight_block_steps_avx2<T, Mantissa>{});
    default:
      return use(weight_block_steps<T, Mantissa>{});
  }
}

}  // namespace detail

template <class Mantissa, class T>
void run_count_exponents(cpu const& exec, weight_encoding<T> const& encoding) {
  detail::with_block_steps<Mantissa, T>([&](auto steps) {
    using program = count_exponents<T, Mantissa, decltype(steps)>;
    exec.run(program{encoding}, program::groups(encoding.spec));
  });
}
template <class Mantissa, class T>
void run_encode_blocks(cpu const& exec, weight_encoding<T> const& encoding) {
  detail::with_block_steps<Mantissa, T>([&](auto steps) {
    exec.run(encode_weights<T, Mantissa, decltype(steps)>{encoding}, encoding.spec.block_count());
  });
  exec.run(place_blocks<T>{encoding}, 1);
  exec.run(move_payloads<T>{encoding}, encoding.spec.block_count());
}
template <class Mantissa, class T>
void run_decode_blocks(cpu const& exec, weight_decoding<T> const& decoding, std::int64_t blocks) {
  exec.run(read_codebook<T>{decoding}, 1);
  detail::with_block_steps<Mantissa, T>(
      [&](auto steps) { exec.run(decode_weights<T, Mantissa, decltype(steps)>{decoding}, blocks); });
}

/// Reads and checks the header of a stream that the host can read, of any type and coder. Throws corrupt_data, naming what does
/// not fit; after it all sections lie within `bytes` bytes.
inline weight_stream_spec inspect_weight_stream(std::byte const* stream, std::int64_t bytes) {
  constexpr char const* where = "inspect_weight_stream";
  weight_stream_header header;
  check<corrupt_data>(bytes >= std::int64_t{sizeof(header)}, where, ": the stream has ", bytes,
                      " bytes but a header has ", sizeof(header));
  std::memcpy(&header, stream, sizeof(header));
  check<corrupt_data>(header.magic == weight_stream_header::expected_magic, where, ": the stream starts with ", header.magic,
                      " but should with ", weight_stream_header::expected_magic);
  check<corrupt_data>(header.version == weight_stream_header::expected_version, where, ": the stream has version ",
                      header.version, " but this library reads version ", weight_stream_header::expected_version);
  check<corrupt_data>(checksum_of(header) == header.header_checksum, where, ": the header's checksum is ",
                      header.header_checksum, " but should be ", checksum_of(header));
  check<corrupt_data>(header.type < weight_types, where, ": the element type is ", int{header.type}, " but must be below ",
                      weight_types);
  check<corrupt_data>(header.coder < weight_coders, where, ": the coder is ", int{header.coder}, " but must be below ",
                      weight_coders);
  check<corrupt_data>((header.flags & ~weight_stream_header::known_flags) == 0, where, ": the flags are ", header.flags,
                      " but only these are known: ", weight_stream_header::known_flags);
  weight_stream_spec spec;
  spec.type = static_cast<weight_type>(header.type);
  spec.coder = static_cast<weight_coder>(header.coder);
  check<corrupt_data>(header.log2_block >= weight_stream_spec::smallest_log2_block &&
                          header.log2_block <= weight_stream_spec::largest_log2_block,
                      where, ": blocks have 2^", int{header.log2_block}, " weights but must have at least 2^",
                      weight_stream_spec::smallest_log2_block, " and at most 2^", weight_stream_spec::largest_log2_block);
  spec.log2_block = header.log2_block;
  const int mantissa_bits = spec.traits().mantissa_bits;
  check<corrupt_data>(header.mantissa_kept == 0 || header.mantissa_kept == 1 || header.mantissa_kept == 3 ||
                          header.mantissa_kept == 7 || header.mantissa_kept == mantissa_bits,
                      where, ": ", int{header.mantissa_kept}, " mantissa bits are kept but the format has ", mantissa_bits);
  check<corrupt_data>(header.mantissa_kept <= mantissa_bits, where, ": ", int{header.mantissa_kept},
                      " mantissa bits are kept but the format has ", mantissa_bits);
  spec.mantissa_kept = header.mantissa_kept;
  check<corrupt_data>(header.log2_normalizer_block == 0 ||
                          (header.log2_normalizer_block >= 5 && header.log2_normalizer_block <= 10),
                      where, ": normalizers belong to 2^", int{header.log2_normalizer_block},
                      " weights but must to 2^5 to 2^", 10);
  check<corrupt_data>(header.log2_normalizer_block == 0 || header.mantissa_kept < mantissa_bits, where,
                      ": there are normalizers of 2^", int{header.log2_normalizer_block},
                      " weights but nothing is dropped of the mantissa's bits, ", mantissa_bits);
  spec.log2_normalizer_block = header.log2_normalizer_block;
  spec.block_checksums = (header.flags & weight_stream_header::flag_block_checksums) != 0;
  // Every weight takes at least one bit, so larger counts than this cannot be right, and no size below can overflow.
  check<corrupt_data>(header.count / 8 <= static_cast<std::uint64_t>(bytes), where, ": the header says ", header.count,
                      " weights but the stream has only bytes: ", bytes);
  spec.count = static_cast<std::int64_t>(header.count);
  check<corrupt_data>(header.block_count == spec.block_count(), where, ": the header says ", header.block_count,
                      " blocks but the weights make ", spec.block_count());
  check<corrupt_data>(header.total_bytes <= static_cast<std::uint64_t>(bytes), where, ": the header says ",
                      header.total_bytes, " bytes but the stream has ", bytes);
  check<corrupt_data>(header.total_bytes >= static_cast<std::uint64_t>(spec.smallest_bytes()), where, ": the header says ",
                      header.total_bytes, " bytes but its sections take ", spec.smallest_bytes());
  return spec;
}

/// The codec: a split of the values, a coder for exponents (rans_coder<12> or fixed_coder) and what is kept of mantissas.
///
/// Lossless if Mantissa keeps all bits, for every pattern. Determinism: the stream's bytes depend on the weights, the spec and the
/// seed alone, never on the executor or the number of threads. Nothing here waits or allocates, save the two functions marked so.
template <class Split, class Coder, class Mantissa>
struct compressed_weights {
  using value_type = typename Split::value_type;
  using coder_type = Coder;
  using mantissa_type = Mantissa;
  static constexpr bool is_lossless = Mantissa::template is_lossless<value_type>;

  static_assert(detail::weight_coder_of<Coder> != weight_coder::stored,
                "tessera: compressed_weights takes rans_coder<12> or fixed_coder as its coder");
  static_assert(is_lossless || Mantissa::kept_bits == 0 || Mantissa::kept_bits == 1 || Mantissa::kept_bits == 3 ||
                    Mantissa::kept_bits == 7,
                "tessera: compressed_weights keeps all mantissa bits, or 0, 1, 3 or 7 of them, so that sign and mantissa pack");

  /// Tensors of fewer bytes than this are stored as they are.
  static constexpr std::int64_t smallest_coded_bytes = 4096;

  /// The layout of a tensor's stream. Throws value_error for options out of range.
  static weight_stream_spec spec(std::int64_t count, weight_stream_options options = {}) {
    constexpr char const* where = "neuzip.spec";
    check<shape_error>(count >= 0 && count < (std::int64_t{1} << 40), where, ": the number of weights is ", count,
                       " but must be at least 0 and below ", std::int64_t{1} << 40);
    check<value_error>(options.block >= 1 << weight_stream_spec::smallest_log2_block &&
                           options.block <= 1 << weight_stream_spec::largest_log2_block &&
                           is_power_of_two(static_cast<std::uint32_t>(options.block)),
                       where, ": blocks have ", options.block, " weights but must have a power of two from 1024 to ",
                       1 << weight_stream_spec::largest_log2_block);
    check<value_error>(options.normalizer_block == 0 || !is_lossless, where, ": normalizers of ", options.normalizer_block,
                       " weights make no sense where all mantissa bits are kept: ", Mantissa::kept_bits);
    check<value_error>(options.normalizer_block == 0 || (options.normalizer_block >= 32 && options.normalizer_block <= 1024 &&
                                                         is_power_of_two(static_cast<std::uint32_t>(options.normalizer_block))),
                       where, ": normalizers belong to ", options.normalizer_block,
                       " weights but must to a power of two from 32 to ", 1024);
    weight_stream_spec result;
    result.type = detail::weight_type_of<value_type>;
    result.coder = detail::weight_coder_of<Coder>;
    result.log2_block = log2_floor(static_cast<std::uint32_t>(options.block));
    result.mantissa_kept = Mantissa::kept_bits;
    result.block_checksums = options.checksums;
    result.count = count;
    if (options.normalizer_block > 0) {
      result.log2_normalizer_block = log2_floor(static_cast<std::uint32_t>(options.normalizer_block));
    }
    if (is_lossless && count * std::int64_t{sizeof(value_type)} < smallest_coded_bytes) {
      result.coder = weight_coder::stored;
    }
    return result;
  }

  /// Bytes that hold any stream of this spec.
  static std::int64_t largest_bytes(weight_stream_spec const& spec) { return spec.largest_bytes(); }

  /// What encode needs beyond its arguments.
  static workspace_plan encode_plan(weight_stream_spec const& spec) { return encode_regions(spec).plan; }
  /// What decode needs beyond its arguments.
  static workspace_plan decode_plan(weight_stream_spec const& spec) { return decode_regions(spec).plan; }

  /// Writes the stream of `weights` (contiguous) to `stream` (16-byte aligned, at most largest_bytes(spec) are needed) and its size
  /// to stream_bytes[0]. A stream that does not fit is reported when exec.wait() is called; its planes are written all the same.
  template <class Executor>
  static void encode(Executor const& exec, weight_stream_spec const& spec, array_view<value_type const> weights,
                     array_view<std::byte> stream, array_view<std::int64_t> stream_bytes, workspace const& space,
                     std::uint64_t seed = 0) {
    check_weights("neuzip.encode", spec, weights);
    check_stream("neuzip.encode", stream, spec.smallest_bytes());
    check<shape_error>(stream_bytes.size() >= 1, "neuzip.encode: stream_bytes has ", stream_bytes.size(),
                       " elements but must have ", 1);
    const auto regions = encode_regions(spec);
    weight_encoding<value_type> encoding;
    encoding.spec = spec;
    encoding.weights = weights.data;
    encoding.stream = reinterpret_cast<std::uint8_t*>(stream.data);
    encoding.capacity = stream.size();
    encoding.stream_bytes = stream_bytes.data;
    encoding.seed = seed;
    encoding.status = exec.status();
    if (spec.coder == weight_coder::stored) {
      exec.run(store_weights<value_type>{encoding}, 1);
      return;
    }
    encoding.counts = space[regions.counts].data;
    encoding.table = space[regions.table].data;
    encoding.slots = space[regions.slots].data;
    exec.clear(space[regions.counts]);
    exec.clear(array_view<std::byte>(stream.data, spec.planes_offset()));
    const std::int64_t end_of_planes = spec.planes_offset() + planes_bytes(spec);
    exec.clear(array_view<std::byte>(stream.data + end_of_planes, spec.payload_offset() - end_of_planes));
    if (spec.log2_normalizer_block > 0) {
      exec.run(normalize_weights<value_type>{encoding},
               divide_up(spec.count, std::int64_t{1} << spec.log2_normalizer_block));
    }
    run_count_exponents<Mantissa>(exec, encoding);
    exec.run(write_codebook<value_type>{encoding}, 1);
    run_encode_blocks<Mantissa>(exec, encoding);
  }

  /// Writes the weights of a stream of this spec. What is wrong with the stream is reported when exec.wait() is called, with the
  /// number of the first block that is not sound; such blocks become zeros.
  template <class Executor>
  static void decode(Executor const& exec, weight_stream_spec const& spec, array_view<std::byte const> stream,
                     array_view<value_type> weights, workspace const& space) {
    check_weights("neuzip.decode", spec, weights);
    if (spec.coder == weight_coder::stored) {
      exec.run(load_stored_weights<value_type>{decoding_of(exec, spec, stream, 0, weights.data)}, 1);
      return;
    }
    decode_blocks(exec, spec, stream, 0, spec.block_count(), weights, space);
  }

  /// As decode, for the weights of `blocks` blocks from `first_block` on; `weights` starts with those of the first.
  template <class Executor>
  static void decode_blocks(Executor const& exec, weight_stream_spec const& spec, array_view<std::byte const> stream,
                            std::int64_t first_block, std::int64_t blocks, array_view<value_type> weights,
                            workspace const& space) {
    check<shape_error>(spec.coder != weight_coder::stored, "neuzip.decode_blocks: the stream has coder ", int{0},
                       ", stored, which has no blocks; use decode, as for all tensors below bytes: ", smallest_coded_bytes);
    check<shape_error>(first_block >= 0 && blocks >= 0 && first_block <= spec.block_count() - blocks,
                       "neuzip.decode_blocks: blocks ", first_block, " and on, ", blocks, " of them, but there are ",
                       spec.block_count());
    const std::int64_t first = first_block * spec.block_weights();
    const std::int64_t needed = min(spec.count, first + blocks * spec.block_weights()) - first;
    check<shape_error>(weights.size() >= needed && weights.is_contiguous(), "neuzip.decode_blocks: the output has ",
                       weights.size(), " elements but needs, one after the other, ", needed);
    weight_decoding<value_type> decoding = decoding_of(exec, spec, stream, first_block, weights.data);
    decoding.table = space[decode_regions(spec).table].data;
    run_decode_blocks<Mantissa>(exec, decoding, blocks);
  }

  /// The stream of `weights`, of exactly the size needed. Allocates, and waits for the executor (one whose memory the host reads).
  template <class Executor>
  static buffer<std::byte> encode(Executor const& exec, array_view<value_type const> weights,
                                  weight_stream_options options = {}) {
    const weight_stream_spec layout = spec(weights.size(), options);
    const workspace_plan plan = encode_plan(layout);
    buffer<std::byte> memory(exec, plan.bytes());
    buffer<std::byte> room(exec, largest_bytes(layout));
    buffer<std::int64_t> bytes(exec, 1);
    encode(exec, layout, weights, room, bytes, workspace(plan, memory));
    exec.wait();
    buffer<std::byte> stream(exec, bytes[0]);
    std::memcpy(stream.data(), room.data(), stream.bytes());
    return stream;
  }

  /// Decodes a stream that the host can read, whatever its options were. Allocates, and waits. Throws corrupt_data.
  template <class Executor>
  static void decode(Executor const& exec, array_view<std::byte const> stream, array_view<value_type> weights) {
    check_stream("neuzip.decode", stream, 0);
    const weight_stream_spec layout = inspect_weight_stream(stream.data, stream.size());
    check<value_error>(layout.type == detail::weight_type_of<value_type>, "neuzip.decode: the stream holds elements of type ",
                       static_cast<int>(layout.type), " but the output has type ",
                       static_cast<int>(detail::weight_type_of<value_type>));
    check<value_error>(layout.coder == weight_coder::stored || layout.coder == detail::weight_coder_of<Coder>,
                       "neuzip.decode: the stream has coder ", static_cast<int>(layout.coder), " but the codec has ",
                       static_cast<int>(detail::weight_coder_of<Coder>));
    check<value_error>(layout.mantissa_kept == Mantissa::kept_bits, "neuzip.decode: the stream keeps ", layout.mantissa_kept,
                       " mantissa bits but the codec ", Mantissa::kept_bits);
    const workspace_plan plan = decode_plan(layout);
    buffer<std::byte> memory(exec, plan.bytes());
    decode(exec, layout, stream, weights, workspace(plan, memory));
    exec.wait();
  }

 private:
  struct encode_workspace {
    workspace_plan plan{"neuzip.encode"};
    region<std::uint64_t> counts;
    region<pair_coder::encode_table> table;
    region<std::uint8_t> slots;
  };
  static encode_workspace encode_regions(weight_stream_spec const& spec) {
    encode_workspace regions;
    if (spec.coder != weight_coder::stored) {
      regions.counts = regions.plan.template add<std::uint64_t>("histogram of exponents", 256);
      regions.table = regions.plan.template add<pair_coder::encode_table>("encode table", 1);
      regions.slots = regions.plan.template add<std::uint8_t>(
          "coded blocks", spec.block_count() * spec.raw_payload_bytes(spec.block_weights()));
    }
    return regions;
  }

  struct decode_workspace {
    workspace_plan plan{"neuzip.decode"};
    region<weight_decode_table> table;
  };
  static decode_workspace decode_regions(weight_stream_spec const& spec) {
    decode_workspace regions;
    if (spec.coder != weight_coder::stored) {
      regions.table = regions.plan.template add<weight_decode_table>("decode table", 1);
    }
    return regions;
  }

  template <class Executor>
  static weight_decoding<value_type> decoding_of(Executor const& exec, weight_stream_spec const& spec,
                                                 array_view<std::byte const> stream, std::int64_t first_block,
                                                 value_type* weights) {
    check_stream("neuzip.decode", stream, spec.smallest_bytes());
    weight_decoding<value_type> decoding;
    decoding.spec = spec;
    decoding.stream = reinterpret_cast<std::uint8_t const*>(stream.data);
    decoding.stream_bytes = stream.size();
    decoding.first_block = first_block;
    decoding.weights = weights;
    decoding.status = exec.status();
    return decoding;
  }

  static std::int64_t planes_bytes(weight_stream_spec const& spec) {
    const std::int64_t last = spec.block_count() - 1;
    return last < 0 ? 0 : spec.planes_before(last) + spec.residual_planes().bytes(spec.coded_in(last));
  }

  template <class Element>
  static void check_weights(char const* where, weight_stream_spec const& spec, array_view<Element> weights) {
    check<shape_error>(weights.size() == spec.count, where, ": there are ", weights.size(), " weights but the spec is for ",
                       spec.count);
    check<shape_error>(weights.is_contiguous(), where, ": the weights have a stride of ", weights.stride(0),
                       " but must have a stride of ", 1);
  }

  template <class Byte>
  static void check_stream(char const* where, array_view<Byte> stream, std::int64_t needed) {
    check<shape_error>(stream.size() >= needed, where, ": the stream has ", stream.size(), " bytes but needs at least ",
                       needed);
    check<shape_error>(stream.is_contiguous(), where, ": the stream has a stride of ", stream.stride(0),
                       " but must have a stride of ", 1);
    const auto beyond = reinterpret_cast<std::uintptr_t>(stream.data) % 16;
    check<value_error>(beyond == 0, where, ": the stream starts ", beyond, " bytes past a multiple of ", 16);
  }
};

}  // namespace v0
}  // namespace tessera
