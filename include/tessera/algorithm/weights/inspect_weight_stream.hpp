// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Reads and checks the header of a stream of compressed weights that is not trusted yet.
///
///     auto const found = tessera::inspect_weight_stream(bytes.data(), std::ssize(bytes));
///     found.spec().count;                                      // weights, all sections of which lie in the bytes
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tessera/core/check.hpp>
#include <tessera/entropy/tans_coder.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/program/weights/checksum.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {

/// What inspect_weight_stream found in a stream. Only that function makes such an object, so that its contents are
/// always checked. A decoder that is given one refuses any stream but the one that was inspected.
class inspected_weight_stream {
 public:
  /// The layout of the stream.
  [[nodiscard]] weight_stream_spec const& spec() const { return spec_; }
  /// The layout of the stream, for functions that take only a layout.
  operator weight_stream_spec const&() const { return spec_; }  // NOLINT: it is what was inspected for
  /// Bytes of the stream, as its header says; those after them are not read.
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  /// The checksum of the header that was read, which covers its window, its size and the codebook's checksum.
  [[nodiscard]] std::uint32_t header_checksum() const { return header_checksum_; }

 private:
  friend inspected_weight_stream inspect_weight_stream(std::byte const* stream, std::int64_t bytes);
  inspected_weight_stream(weight_stream_spec const& spec, weight_stream_header const& header)
      : spec_(spec), bytes_(static_cast<std::int64_t>(header.total_bytes)), header_checksum_(header.header_checksum) {}

  weight_stream_spec spec_;
  std::int64_t bytes_;
  std::uint32_t header_checksum_;
};

/// What a decoder expects of a stream: the layout that the codec's spec() gave for encoding, or what
/// inspect_weight_stream found in it.
class expected_weight_stream {
 public:
  /// Expects any stream of this layout.
  expected_weight_stream(weight_stream_spec const& spec) : spec_(spec) {}  // NOLINT: what callers have
  /// Expects this stream and no other.
  expected_weight_stream(inspected_weight_stream const& stream)  // NOLINT: what callers have
      : spec_(stream.spec()),
        smallest_bytes_(stream.bytes()),
        header_checksum_(stream.header_checksum()),
        is_inspected_(true) {}

  /// The layout of the stream.
  [[nodiscard]] weight_stream_spec const& spec() const { return spec_; }
  /// The fewest bytes that an expected stream can have.
  [[nodiscard]] std::int64_t smallest_bytes() const { return is_inspected_ ? smallest_bytes_ : spec_.smallest_bytes(); }
  /// Whether only the stream whose header has this checksum is expected.
  [[nodiscard]] bool is_inspected() const { return is_inspected_; }
  /// The checksum of the header that was inspected.
  [[nodiscard]] std::uint32_t header_checksum() const { return header_checksum_; }

 private:
  weight_stream_spec spec_;
  std::int64_t smallest_bytes_ = 0;
  std::uint32_t header_checksum_ = 0;
  bool is_inspected_ = false;
};

namespace detail {

/// Throws corrupt_data if there is no such coder, or if its codebook is not that long.
inline void check_coder(char const* where, weight_stream_header const& header) {
  check<corrupt_data>(header.coder < weight_coders || header.coder >= first_user_coder, where, ": the coder is ",
                      int{header.coder}, " but must be below ", weight_coders, ", or a user's coder from ",
                      first_user_coder, " on");
  bool const is_user = header.coder >= first_user_coder;
  check<corrupt_data>(!is_user || header.codebook_units <= weight_stream_spec::largest_codebook_units, where,
                      ": the header says ", header.codebook_units, " times 64 bytes of codebook but there are at most ",
                      weight_stream_spec::largest_codebook_units);
  bool const is_tans = header.coder == static_cast<std::uint8_t>(weight_coder::tans_exponents);
  std::uint32_t const units = is_tans ? tans_coder::codebook_bytes / weight_stream_spec::section_alignment : 0;
  check<corrupt_data>(is_user || header.codebook_units == units, where, ": the header says ", header.codebook_units,
                      " times 64 bytes of codebook but coder ", int{header.coder}, " has ", units);
}

}  // namespace detail

/// Reads and checks the header of a stream of any type and coder, in memory of the host. Throws corrupt_data, which
/// names what does not fit, and value_error where there are bytes but `stream` is null; when it returns, all sections
/// lie within `bytes` bytes.
inline inspected_weight_stream inspect_weight_stream(std::byte const* stream, std::int64_t bytes) {
  constexpr char const* where = "inspect_weight_stream";
  weight_stream_header header;
  check_memory(where, "bytes of the stream", array_view<std::byte const>(stream, bytes));
  check<corrupt_data>(bytes >= std::int64_t{sizeof(header)}, where, ": the stream has ", bytes,
                      " bytes but a header has ", sizeof(header));
  std::memcpy(&header, stream, sizeof(header));
  check<corrupt_data>(header.magic == weight_stream_header::expected_magic, where, ": the stream starts with ",
                      header.magic, " but should with ", weight_stream_header::expected_magic);
  check<corrupt_data>(header.version == weight_stream_header::expected_version, where, ": the stream has version ",
                      header.version, " but this library reads version ", weight_stream_header::expected_version);
  check<corrupt_data>(checksum_of(header) == header.header_checksum, where, ": the header's checksum is ",
                      header.header_checksum, " but should be ", checksum_of(header));
  check<corrupt_data>(header.type < weight_types, where, ": the element type is ", int{header.type},
                      " but must be below ", weight_types);
  detail::check_coder(where, header);
  check<corrupt_data>((header.flags & ~weight_stream_header::known_flags) == 0, where, ": the flags are ", header.flags,
                      " but only these are known: ", weight_stream_header::known_flags);
  weight_stream_spec spec;
  spec.type = static_cast<weight_type>(header.type);
  spec.coder = static_cast<weight_coder>(header.coder);
  spec.codebook_units = static_cast<std::uint8_t>(header.codebook_units);
  check<corrupt_data>(header.log2_block >= weight_stream_spec::smallest_log2_block &&
                          header.log2_block <= weight_stream_spec::largest_log2_block,
                      where, ": blocks have 2^", int{header.log2_block}, " weights but must have at least 2^",
                      weight_stream_spec::smallest_log2_block, " and at most 2^",
                      weight_stream_spec::largest_log2_block);
  spec.log2_block = header.log2_block;
  int const mantissa_bits = spec.traits().mantissa_bits;
  check<corrupt_data>(header.mantissa_kept == 0 || header.mantissa_kept == 1 || header.mantissa_kept == 3 ||
                          header.mantissa_kept == 7 || header.mantissa_kept == mantissa_bits,
                      where, ": ", int{header.mantissa_kept}, " mantissa bits are kept but the format has ",
                      mantissa_bits);
  check<corrupt_data>(header.mantissa_kept <= mantissa_bits, where, ": ", int{header.mantissa_kept},
                      " mantissa bits are kept but the format has ", mantissa_bits);
  spec.mantissa_kept = header.mantissa_kept;
  check<corrupt_data>(
      header.log2_normalizer_block == 0 || (header.log2_normalizer_block >= 5 && header.log2_normalizer_block <= 10),
      where, ": normalizers belong to 2^", int{header.log2_normalizer_block}, " weights but must to 2^5 to 2^", 10);
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
  check<corrupt_data>(header.total_bytes >= static_cast<std::uint64_t>(spec.smallest_bytes()), where,
                      ": the header says ", header.total_bytes, " bytes but its sections take ", spec.smallest_bytes());
  return {spec, header};
}

/// The same for a list of bytes, such as a container's.
inline inspected_weight_stream inspect_weight_stream(array_view<std::byte const> stream) {
  check<shape_error>(stream.is_contiguous(), "inspect_weight_stream: bytes have a stride of ", stream.stride(0),
                     " but must have a stride of 1");
  return inspect_weight_stream(stream.data, stream.size());
}

}  // namespace v0
}  // namespace tessera
