// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How compressed collectives cut a list of weights into a head and chunks, and where streams lie in a rank's memory.
///
///     auto const layout = detail::message_layout<Codec>::of("compressed_broadcast", list.size(), options);
///     ranks.send(exec, layout.body(memory, chunk), rank);
///
/// Sizes of chunks grow from the first one on, so that the wire soon has something to send, to the longest ones, which
/// cost the fewest messages, and shrink to the last one, so that little is left to decode when it has come. A body
/// brings a table of the sizes of all streams.
///
/// A sender has a slot for each chunk, and the table before the slot of one chunk. A slot has room for the longest
/// stream, or only for the chunk's body.
#pragma once

#include <array>
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
  static constexpr std::int64_t line = 128;

  std::int64_t count = 0;   ///< weights of the list
  std::int64_t head = 0;    ///< weights that are sent as they are
  std::int64_t chunks = 0;  ///< 0: the whole list is sent as it is
  /// The weight at which each chunk begins, and where the last one ends; all but the last are whole blocks from head.
  std::array<std::int64_t, most_chunks + 1> bounds{};
  std::int64_t first_group = 0;  ///< weights that are encoded in the first call
  /// The chunk whose body brings the table: the first of the last call that encodes. Bodies that came before are
  /// decoded in one call with this one.
  std::int64_t table_chunk = 0;
  double body_bits = 0;
  bool sends_to_each = false;
  int spared_multiprocessors = 0;
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
    made.sends_to_each = options.sends_to_each;
    made.spared_multiprocessors = options.spared_multiprocessors;
    std::int64_t const smallest = options.checksums ? 0 : options.smallest_bytes;
    if (count == 0 || count * weight_bytes < smallest) {
      made.head = count;
      return made;
    }
    std::int64_t const wished = options.checksums ? 0 : options.head_bytes / weight_bytes;
    made.head = min(wished, count / 4) / block * block;
    made.cut(whole_blocks(options.chunk_bytes), whole_blocks(options.longest_bytes));
    return made;
  }

  /// The first weight of a chunk.
  [[nodiscard]] std::int64_t first_of(std::int64_t which) const { return bounds[static_cast<std::size_t>(which)]; }
  /// How many weights a chunk has.
  [[nodiscard]] std::int64_t weights_of(std::int64_t which) const { return first_of(which + 1) - first_of(which); }
  /// The longest chunk.
  [[nodiscard]] std::int64_t longest() const {
    std::int64_t found = 0;
    for (std::int64_t i = 1; i < chunks; ++i) {
      found = weights_of(i) > weights_of(found) ? i : found;
    }
    return found;
  }
  /// The layout of a chunk's stream.
  [[nodiscard]] weight_stream_spec spec_of(std::int64_t which) const { return Codec::spec(weights_of(which), stream); }
  /// A chunk of a list.
  template <class T>
  [[nodiscard]] array_view<T> chunk_of(array_view<T> list, std::int64_t which) const {
    return list.slice(0, first_of(which), weights_of(which));
  }

  /// How many chunks are encoded in one call, from this one on: with twice as many weights as have been encoded before.
  /// A call for many costs little more than one for one, and encoding is several times as fast as any wire. What
  /// remains is taken too if it is at most half of that.
  [[nodiscard]] std::int64_t group_from(std::int64_t first) const {
    std::int64_t const wanted = first == 0 ? first_group : 2 * (first_of(first) - head);
    std::int64_t end = first + 1;
    while (end < chunks && first_of(end + 1) - first_of(first) <= wanted) {
      ++end;
    }
    bool const is_nearly_all = 2 * (count - first_of(end)) <= first_of(end) - first_of(first);
    return (is_nearly_all ? chunks : end) - first;
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
  /// The byte of a stream at which its tail begins. An encoder leaves out a payload that lies only in part in the room
  /// that it has: the tail begins by the longest payload before the end of the body. It also leaves out checksums of
  /// blocks that are not there: with checksums the tail is the whole stream.
  [[nodiscard]] std::int64_t tail_begin(std::int64_t which) const {
    weight_stream_spec const spec = spec_of(which);
    std::int64_t const payload = align_up(spec.raw_payload_bytes(spec.block_weights()), alignment);
    return stream.checksums ? 0 : max(stream_part(which) - payload, std::int64_t{0});
  }
  /// Bytes that follow for a stream of this size.
  [[nodiscard]] std::int64_t tail_bytes(std::int64_t which, std::int64_t size) const {
    return size > stream_part(which) ? size - tail_begin(which) : 0;
  }
  [[nodiscard]] std::int64_t table_bytes() const {
    return align_up(table_numbers() * std::int64_t{sizeof(std::int64_t)}, alignment);
  }
  /// The sizes of all streams, and their seal.
  [[nodiscard]] std::int64_t table_numbers() const { return chunks + 1; }
  /// Bytes of the table if the chunk's body brings it, else 0.
  [[nodiscard]] std::int64_t table_before(std::int64_t which) const { return which == table_chunk ? table_bytes() : 0; }
  /// Bytes of a chunk's body, with the table if it brings that.
  [[nodiscard]] std::int64_t body_bytes(std::int64_t which) const { return table_before(which) + stream_part(which); }

  /// Bytes of the slots and the table of a sender.
  [[nodiscard]] std::int64_t sender_bytes() const { return chunks == 0 ? 0 : slot_of(chunks); }
  /// The byte at which a chunk's slot begins.
  [[nodiscard]] std::int64_t slot_of(std::int64_t which) const {
    std::int64_t before = which >= table_chunk ? table_bytes() : 0;
    for (std::int64_t i = 0; i < which; ++i) {
      before += slot_bytes(i);
    }
    return before;
  }
  /// The byte at which the table begins.
  [[nodiscard]] std::int64_t table_of() const { return slot_of(table_chunk) - table_bytes(); }
  /// Bytes of the bodies before a chunk's, with the table if one of them brings that.
  [[nodiscard]] std::int64_t bodies_before(std::int64_t which) const {
    std::int64_t before = 0;
    for (std::int64_t i = 0; i < which; ++i) {
      before += body_bytes(i);
    }
    return before;
  }

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
    return sender.slice(0, slot_of(which) + tail_begin(which), tail_bytes(which, size));
  }
  /// The element of a table that has the size of a chunk's stream.
  [[nodiscard]] static array_view<std::int64_t> size_in(std::byte* table, std::int64_t which) {
    return {reinterpret_cast<std::int64_t*>(table) + which, 1};
  }

  /// The tables of `senders` senders, `stride` bytes from each other; `first` is that of the first one.
  template <class Byte>
  [[nodiscard]] auto tables(Byte* first, std::int64_t senders, std::int64_t stride) const {
    using number = std::conditional_t<std::is_const_v<Byte>, std::int64_t const, std::int64_t>;
    return matrix_view<number>(reinterpret_cast<number*>(first), {senders, table_numbers()},
                               {stride / std::int64_t{sizeof(number)}, 1});
  }

  /// The byte at which a chunk's stream begins where another rank stores it: its planes then lie at multiples of a line,
  /// since each part of a line that is stored over NVLink is a packet.
  [[nodiscard]] std::int64_t stored_at(std::int64_t which) const {
    weight_stream_spec const spec = spec_of(which);
    std::int64_t const planes = spec.coder == weight_coder::stored ? 0 : spec.planes_offset();
    return stored_bytes_before(which) + align_up(planes, line) - planes;
  }
  /// Bytes of the streams of chunks before this one, where another rank stores them.
  [[nodiscard]] std::int64_t stored_bytes_before(std::int64_t which) const {
    std::int64_t before = 0;
    for (std::int64_t i = 0; i < which; ++i) {
      before += slot_bytes(i) + alignment;
    }
    return before;
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

  /// The weights of a chunk of so many bytes, in whole blocks.
  static std::int64_t whole_blocks(std::int64_t bytes) {
    return align_up(clamp(bytes / weight_bytes, std::int64_t{1}, most_weights), block);
  }
  /// Cuts what follows the head: `shortest` weights, twice as many, and so on up to `longest`, then thirds of what was
  /// before down to `shortest`; of the fewest chunks of such sizes that suffice, each is made shorter by one factor. If
  /// most_chunks do not suffice, longer.
  void cut(std::int64_t shortest, std::int64_t longest) {
    std::int64_t const rest = count - head;
    std::int64_t wanted = 0;
    std::int64_t sum = 0;
    while (wanted < most_chunks && sum < rest) {
      ++wanted;
      sum = 0;
      for (std::int64_t i = 0; i < wanted; ++i) {
        sum += wished_weights(shortest, longest, i, wanted);
      }
    }
    double const scale = static_cast<double>(rest) / static_cast<double>(sum);
    bounds[0] = head;
    std::int64_t before = 0;
    for (std::int64_t i = 0; i < wanted; ++i) {
      before += wished_weights(shortest, longest, i, wanted);
      auto const scaled = static_cast<std::int64_t>(scale * static_cast<double>(before));
      std::int64_t const end = i + 1 == wanted ? count : min(head + align_up(scaled, block), count);
      if (end > bounds[static_cast<std::size_t>(chunks)]) {
        bounds[static_cast<std::size_t>(++chunks)] = end;
      }
    }
    first_group = 2 * shortest;
    while (table_chunk + group_from(table_chunk) < chunks) {
      table_chunk += group_from(table_chunk);
    }
  }
  static std::int64_t wished_weights(std::int64_t shortest, std::int64_t longest, std::int64_t which,
                                     std::int64_t wanted) {
    std::int64_t from_first = shortest;
    for (std::int64_t i = 0; i < which && from_first < longest; ++i) {
      from_first *= 2;
    }
    std::int64_t from_last = shortest;
    for (std::int64_t i = which + 1; i < wanted && from_last < longest; ++i) {
      from_last *= 3;
    }
    return min(min(from_first, from_last), max(shortest, longest));
  }

  static void check_options(char const* function, compressed_collective_options const& options) {
    check<value_error>(options.head_bytes >= 0, function, ": head_bytes is ", options.head_bytes,
                       " but must be at least ", 0);
    check<value_error>(options.chunk_bytes > 0, function, ": chunk_bytes is ", options.chunk_bytes,
                       " but must be at least ", 1);
    check<value_error>(options.longest_bytes > 0, function, ": longest_bytes is ", options.longest_bytes,
                       " but must be at least ", 1);
    check<value_error>(options.spared_multiprocessors >= 0, function, ": spared_multiprocessors is ",
                       options.spared_multiprocessors, " but must be at least ", 0);
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
