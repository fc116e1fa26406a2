// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How compressed collectives cut a list of weights into a head and chunks, and where streams lie in a rank's memory.
///
///     auto const layout = detail::message_layout<Codec>::of("compressed_broadcast", list.size(), options);
///     ranks.send(exec, layout.body(memory, chunk), rank);
///
/// A sender has a slot with room for the longest stream for each chunk, and a table of the streams' sizes, which lies
/// before the slot of one chunk so that the chunk's body brings it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/weights/compressed_collective_types.hpp>
#include <tessera/algorithm/weights/weight_codec_specs.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

template <class Codec>
struct message_layout {
  using value_type = typename Codec::value_type;
  static constexpr std::int64_t weight_bytes = sizeof(value_type);
  static constexpr std::int64_t most_chunks = 32;
  static constexpr std::int64_t block = 1 << weight_stream_spec::largest_log2_block;
  static constexpr std::int64_t alignment = 256;

  std::int64_t count = 0;   ///< weights of the list
  std::int64_t head = 0;    ///< weights that are sent as they are
  std::int64_t chunk = 0;   ///< weights of every chunk but the last
  std::int64_t chunks = 0;  ///< 0: the whole list is sent as it is
  double body_bits = 0;
  weight_stream_options stream{};

  /// Throws for a number of weights that is negative or too large, and for options out of range.
  static message_layout of(char const* function, std::int64_t count, compressed_collective_options const& options) {
    check_options(function, options);
    check<shape_error>(count >= 0 && count <= most_weights, function, ": the number of weights is ", count,
                       " but must be at least 0 and at most ", most_weights);
    message_layout made;
    made.count = count;
    made.stream.checksums = options.checksums;
    made.body_bits = options.body_bits > 0.0F ? double{options.body_bits} : usual_bits;
    std::int64_t const smallest = options.checksums ? 0 : options.smallest_bytes;
    if (count == 0 || count * weight_bytes < smallest) {
      made.head = count;
      return made;
    }
    std::int64_t const wished = options.checksums ? 0 : options.head_bytes / weight_bytes;
    made.head = min(wished, count / 4) / block * block;
    std::int64_t const rest = count - made.head;
    std::int64_t const least = max(options.chunk_bytes / weight_bytes, divide_up(rest, most_chunks));
    std::int64_t const wanted = divide_up(rest, align_up(max(least, std::int64_t{1}), block));
    made.chunk = align_up(divide_up(rest, wanted), block);
    made.chunks = divide_up(rest, made.chunk);
    return made;
  }

  /// The first weight of a chunk.
  [[nodiscard]] std::int64_t first_of(std::int64_t which) const { return head + which * chunk; }
  /// How many weights a chunk has.
  [[nodiscard]] std::int64_t weights_of(std::int64_t which) const { return min(chunk, count - first_of(which)); }
  /// The layout of a chunk's stream.
  [[nodiscard]] weight_stream_spec spec_of(std::int64_t which) const { return Codec::spec(weights_of(which), stream); }
  /// A chunk of a list.
  template <class T>
  [[nodiscard]] array_view<T> chunk_of(array_view<T> list, std::int64_t which) const {
    return list.slice(0, first_of(which), weights_of(which));
  }

  /// How many chunks are encoded in one call, from this one on: three times as many as in the call before. A call for
  /// many costs little more than one for one, and encoding is several times as fast as any wire.
  [[nodiscard]] std::int64_t group_from(std::int64_t first) const {
    return min(chunks - first, first == 0 ? std::int64_t{1} : 2 * first + 1);
  }
  /// The most chunks that are encoded in one call.
  [[nodiscard]] std::int64_t largest_group() const {
    std::int64_t largest = 0;
    for (std::int64_t first = 0; first < chunks; first += group_from(first)) {
      largest = max(largest, group_from(first));
    }
    return largest;
  }

  /// Bytes of a chunk's slot, which hold its longest stream.
  [[nodiscard]] std::int64_t slot_bytes(std::int64_t which) const {
    return align_up(Codec::largest_bytes(spec_of(which)), alignment);
  }
  /// Bytes of a chunk's stream that are sent first: as many on all ranks, whatever the weights are.
  [[nodiscard]] std::int64_t stream_part(std::int64_t which) const {
    weight_stream_spec const spec = spec_of(which);
    if (spec.coder == weight_coder::stored) {
      return slot_bytes(which);
    }
    constexpr std::int64_t of_sections = 1024;  // header, codebook and the index's padding
    auto const bytes = static_cast<std::int64_t>(body_bits / 8 * static_cast<double>(spec.count)) + of_sections;
    return min(align_up(max(bytes, spec.smallest_bytes()), alignment), slot_bytes(which));
  }
  /// Bytes that follow for a stream of this size.
  [[nodiscard]] std::int64_t tail_bytes(std::int64_t which, std::int64_t size) const {
    return max(size - stream_part(which), std::int64_t{0});
  }
  /// The chunk whose body brings the table: when half of the bodies are sent all chunks have long been encoded. Bodies
  /// that came before are decoded in one call with this one.
  [[nodiscard]] std::int64_t table_chunk() const { return chunks / 2; }
  [[nodiscard]] std::int64_t table_bytes() const {
    return align_up(table_numbers() * std::int64_t{sizeof(std::int64_t)}, alignment);
  }
  /// The sizes of all streams, and their seal.
  [[nodiscard]] std::int64_t table_numbers() const { return chunks + 1; }
  /// Bytes of the table if the chunk's body brings it, else 0.
  [[nodiscard]] std::int64_t table_before(std::int64_t which) const {
    return which == table_chunk() ? table_bytes() : 0;
  }
  /// Bytes of a chunk's body, with the table if it brings that.
  [[nodiscard]] std::int64_t body_bytes(std::int64_t which) const { return table_before(which) + stream_part(which); }

  /// Bytes of the slots and the table of a sender.
  [[nodiscard]] std::int64_t sender_bytes() const { return chunks == 0 ? 0 : table_bytes() + chunks * slot_bytes(0); }
  /// The byte at which a chunk's slot begins.
  [[nodiscard]] std::int64_t slot_of(std::int64_t which) const {
    return which * slot_bytes(0) + (which >= table_chunk() ? table_bytes() : 0);
  }
  /// The byte at which the table begins.
  [[nodiscard]] std::int64_t table_of() const { return table_chunk() * slot_bytes(0); }

  /// A chunk's slot in a sender's memory.
  [[nodiscard]] array_view<std::byte> slot(array_view<std::byte> sender, std::int64_t which) const {
    return sender.slice(0, slot_of(which), slot_bytes(which));
  }
  /// What is sent first of a chunk.
  [[nodiscard]] array_view<std::byte> body(array_view<std::byte> sender, std::int64_t which) const {
    return sender.slice(0, slot_of(which) - table_before(which), body_bytes(which));
  }
  /// What follows in the end for a stream of this size.
  [[nodiscard]] array_view<std::byte> tail(array_view<std::byte> sender, std::int64_t which, std::int64_t size) const {
    return sender.slice(0, slot_of(which) + stream_part(which), tail_bytes(which, size));
  }
  /// The element of the table that has the size of a chunk's stream.
  [[nodiscard]] array_view<std::int64_t> size_of(array_view<std::byte> sender, std::int64_t which) const {
    return {reinterpret_cast<std::int64_t*>(sender.data + table_of()) + which, 1};
  }

  /// The tables of `senders` senders, `stride` bytes from each other; `first` is that of the first one.
  template <class Byte>
  [[nodiscard]] auto tables(Byte* first, std::int64_t senders, std::int64_t stride) const {
    using number = std::conditional_t<std::is_const_v<Byte>, std::int64_t const, std::int64_t>;
    return matrix_view<number>(reinterpret_cast<number*>(first), {senders, table_numbers()},
                               {stride / std::int64_t{sizeof(number)}, 1});
  }

  /// Throws corrupt_data where a rank's stream cannot have this size.
  void check_size(char const* function, std::int64_t rank, std::int64_t which, std::int64_t size) const {
    weight_stream_spec const spec = spec_of(which);
    std::int64_t const least = spec.smallest_bytes();
    std::int64_t const most = Codec::largest_bytes(spec);
    check<corrupt_data>(size >= least && size <= most, function, ": chunk ", which, " of rank ", rank, " has ", size,
                        " bytes, as the rank's message says, but can have from ", least, " to ", most);
  }

  /// What was sent of a list whose streams have these sizes.
  template <class SizeOf>
  [[nodiscard]] compressed_traffic traffic(SizeOf const& size_of_chunk) const {
    compressed_traffic made{count * weight_bytes, head * weight_bytes, head * weight_bytes};
    for (std::int64_t i = 0; i < chunks; ++i) {
      made.sent += body_bytes(i) + tail_bytes(i, size_of_chunk(i));
      made.needed += size_of_chunk(i);
    }
    return made;
  }

 private:
  /// So that chunks are no longer than a stream may be, and no size overflows.
  static constexpr std::int64_t most_weights = std::int64_t{1} << 35;
  static constexpr double usual_bits = scalar_traits<value_type>::mantissa_bits + 1 + 3;

  static void check_options(char const* function, compressed_collective_options const& options) {
    check<value_error>(options.head_bytes >= 0, function, ": head_bytes is ", options.head_bytes,
                       " but must be at least ", 0);
    check<value_error>(options.chunk_bytes > 0, function, ": chunk_bytes is ", options.chunk_bytes,
                       " but must be at least ", 1);
    check<value_error>(options.smallest_bytes >= 0, function, ": smallest_bytes is ", options.smallest_bytes,
                       " but must be at least ", 0);
    constexpr int most = 8 * static_cast<int>(weight_bytes);
    check<value_error>(options.body_bits >= 0.0F && options.body_bits <= static_cast<float>(most), function,
                       ": body_bits is ", options.body_bits, " but must be at least 0 and at most ", most);
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
