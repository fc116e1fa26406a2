// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The checksums of a stream of weights: of its header, and of each block with all that belongs to it.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/crc32c.hpp>
#include <tessera/core/crc32c_host.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/serial/group.hpp>

namespace tessera {
inline namespace v0 {

/// CRC32C of the header up to its own checksum.
TESSERA_FN inline std::uint32_t checksum_of(weight_stream_header const& header) {
  return crc32c(reinterpret_cast<std::uint8_t const*>(&header), sizeof(header) - sizeof(header.header_checksum));
}

/// Joins the checksums of parts.
struct exclusive_or {
  /// The exclusive or of two words.
  TESSERA_FN constexpr std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return a ^ b; }
};

/// CRC32C of `bytes` bytes that continue those with checksum `seed`. The lanes of a group share the work.
template <Group G>
TESSERA_FN std::uint32_t shared_crc32c(G const& group, std::uint8_t const* data, std::int64_t bytes,
                                       std::uint32_t seed) {
  std::int64_t const piece = divide_up(bytes, std::int64_t{G::size});
  per_lane<std::uint32_t, G> part;
  for (int lane : group) {
    std::int64_t const first = min(bytes, lane * piece);
    std::int64_t const last = min(bytes, first + piece);
    std::uint32_t const own = crc32c(data + first, static_cast<std::size_t>(last - first));
    // The contribution of a part to the checksum of the whole: checksums are linear except for the seed, which the
    // first part carries.
    part[lane] = lane == 0 ? crc32c_combine(seed, own, static_cast<std::uint64_t>(last - first)) : own;
    part[lane] = crc32c_combine(part[lane], 0, static_cast<std::uint64_t>(bytes - last));
  }
  return reduce(group, part, exclusive_or{});
}

/// CRC32C on the host, which has an instruction for it.
inline std::uint32_t shared_crc32c(serial_group<32> const&, std::uint8_t const* data, std::int64_t bytes,
                                   std::uint32_t seed) {
  return crc32c_host(data, static_cast<std::size_t>(bytes), seed);
}

/// CRC32C of the codebook of pairs. Groups that have something faster overload this function.
template <Group G>
TESSERA_FN std::uint32_t codebook_checksum(G const& group, std::uint8_t const* codebook) {
  return shared_crc32c(group, codebook, weight_stream_spec::codebook_bytes, 0);
}

/// A block's checksum: sizes in its index entry, normalizers, planes, payload. The entry must have been checked.
template <Group G>
TESSERA_FN std::uint32_t block_checksum(G const& group, weight_stream_spec const& spec, std::uint8_t const* stream,
                                        std::int64_t block, weight_block_index const& entry) {
  std::uint8_t const sizes[4] = {static_cast<std::uint8_t>(entry.words), static_cast<std::uint8_t>(entry.words >> 8),
                                 static_cast<std::uint8_t>(entry.escapes),
                                 static_cast<std::uint8_t>(entry.escapes >> 8)};
  std::uint32_t checksum = crc32c(sizes, sizeof(sizes));
  checksum = shared_crc32c(group, stream + spec.normalizers_offset() + spec.normalizers_before(block),
                           spec.normalizers_in(block), checksum);
  std::int64_t const coded = spec.coded_in(block);
  checksum = shared_crc32c(group, stream + spec.planes_offset() + spec.planes_before(block),
                           spec.residual_planes().bytes(coded), checksum);
  std::int64_t const begin = spec.payload_begin(entry);
  return shared_crc32c(group, stream + begin, spec.payload_bytes(coded, entry), checksum);
}

}  // namespace v0
}  // namespace tessera
