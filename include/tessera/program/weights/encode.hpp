// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The programs that encode weights to a stream (entropy/weight_stream.hpp), in the order in which they run:
/// normalize_weights (if there are normalizers), count_exponents, write_codebook, encode_weights, locate_payloads,
/// move_payloads, checksum_blocks (if there are checksums).
///
/// Blocks are coded in parallel into slots of the workspace, because the position of a block's payload is known only
/// when all blocks before it are coded.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/little_endian.hpp>
#include <tessera/core/status.hpp>
#include <tessera/entropy/block_normalizer.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/program/weights/block.hpp>
#include <tessera/program/weights/checksum.hpp>
#include <tessera/program/weights/codebook.hpp>

namespace tessera {
inline namespace v0 {

/// The arguments and workspace that the programs of one encoding share. Coder is the one whose table they use.
template <class T, class Coder = pair_coder>
struct weight_encoding {
  weight_stream_spec spec;
  T const* weights = nullptr;       ///< spec.count weights
  std::uint8_t* stream = nullptr;   ///< where the stream goes, at a multiple of 16 bytes
  std::uint64_t* counts = nullptr;  ///< workspace: 256 counts, zero at first
  /// Workspace of executors that store tiles at their positions as they are coded, zero at first.
  std::uint64_t* tile_sums = nullptr;
  typename Coder::encode_table* table = nullptr;  ///< workspace: the codebook's table for pushing
  std::uint8_t* slots = nullptr;                  ///< workspace of all other executors: slot_bytes() for each block
  std::int64_t capacity = 0;                      ///< bytes of room at `stream`
  std::int64_t* stream_bytes = nullptr;           ///< the result: bytes of the stream
  std::uint64_t seed = 0;                         ///< for stochastic rounding
  status_word* status = nullptr;
  bool reports_full = true;  ///< whether a stream that does not fit is reported

  /// The bytes of a slot, in which a coded block is until it is moved.
  TESSERA_FN constexpr std::int64_t slot_bytes() const { return spec.raw_payload_bytes(spec.block_weights()); }

  /// A block of the tensor.
  TESSERA_FN constexpr weight_block<T> block(std::int64_t which) const {
    weight_block<T> result;
    std::int64_t const first = which * spec.block_weights();
    result.weights = weights + first;
    if (spec.log2_normalizer_block > 0) {
      result.normalizers = stream + spec.normalizers_offset() + spec.normalizers_before(which);
      result.log2_normalizer_block = spec.log2_normalizer_block;
    }
    result.count = static_cast<int>(spec.weights_in(which));
    result.coded = static_cast<int>(spec.coded_in(which));
    result.first = static_cast<std::uint64_t>(first);
    result.seed = seed;
    return result;
  }

  /// The index entries of the blocks in the stream.
  TESSERA_FN weight_block_index* index() const {
    return reinterpret_cast<weight_block_index*>(stream + spec.index_offset());
  }
  /// The header, which is the stream's first 64 bytes.
  TESSERA_FN weight_stream_header* header() const { return reinterpret_cast<weight_stream_header*>(stream); }
};

/// Writes normalizers. One group for each normalizer block, which has one byte.
template <class T, class Coder = pair_coder>
struct normalize_weights {
  static constexpr int lanes = 32;
  struct scratch_type {};
  weight_encoding<T, Coder> encoding;

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    using reducer = block_normalizer<T>;
    std::int64_t const first = which << encoding.spec.log2_normalizer_block;
    std::int64_t const last =
        min(first + (std::int64_t{1} << encoding.spec.log2_normalizer_block), encoding.spec.count);
    per_lane<std::uint32_t, G> largest;
    for (int lane : group) {
      largest[lane] = reducer::identity();
      for (std::int64_t i = first + lane; i < last; i += lanes) {
        largest[lane] = reducer::push(largest[lane], to_bits(encoding.weights[i]));
      }
    }
    std::uint32_t const of_all = maximum(group, largest);
    for (int lane : group) {
      if (is_first(lane)) {
        encoding.stream[encoding.spec.normalizers_offset() + which] =
            static_cast<std::uint8_t>(reducer::normalizer(of_all));
      }
    }
  }
};

/// Counts exponents. One group for each counted block.
template <class T, class Mantissa, class Steps = weight_block_steps<T, Mantissa>>
struct count_exponents {
  static constexpr int lanes = 32;
  struct scratch_type {};
  weight_encoding<T, typename Steps::coder_type> encoding;

  /// The groups that count: for large tensors about 512 blocks are sampled.
  TESSERA_FN static constexpr std::int64_t groups(weight_stream_spec const& spec) {
    return divide_up(spec.block_count(), histogram_stride(spec.block_count()));
  }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    Steps::count(group, encoding.block(which * histogram_stride(encoding.spec.block_count())), encoding.counts);
  }
};

/// The ends of the sections before the payload in a stream, in bytes.
struct weight_section_ends {
  static constexpr int sections = 4;  ///< index, checksums, normalizers, planes
  std::int64_t of[sections];          ///< in the order of the sections

  /// The ends in streams of this spec.
  TESSERA_FN static constexpr weight_section_ends in(weight_stream_spec const& spec) {
    return {{spec.index_end(), spec.checksums_end(), spec.normalizers_end(), spec.planes_end()}};
  }
};

/// Writes zeros between the end of each section and the start of the next, which is at a multiple of
/// section_alignment.
template <Group G>
TESSERA_FN void clear_gaps(G const& group, std::uint8_t* stream, weight_section_ends const& ends) {
  constexpr int alignment = weight_stream_spec::section_alignment;
  for (int lane : group) {
    for (int i = lane; i < weight_section_ends::sections * alignment; i += G::size) {
      std::int64_t const end = ends.of[i / alignment];
      if (i % alignment < (-end & (alignment - 1))) {
        stream[end + i % alignment] = 0;
      }
    }
  }
  group.sync();
}

/// The work of write_codebook for one stream. The host computes all that follows from the spec: on a device that was
/// most of the program's instructions, each of which is fetched for one use.
struct codebook_writing {
  std::uint64_t const* counts;      ///< 256 counts of exponents
  pair_coder::encode_table* table;  ///< the table for pushing
  std::uint8_t* stream;             ///< where header and codebook go
  weight_stream_header header;      ///< the header without window and checksums
  weight_section_ends ends;         ///< ends of the sections in the stream

  /// The work for an encoding.
  template <class T>
  static codebook_writing of(weight_encoding<T> const& encoding) {
    weight_stream_spec const& spec = encoding.spec;
    return {encoding.counts, encoding.table, encoding.stream, spec.header(), weight_section_ends::in(spec)};
  }

  /// Whether there is a codebook; else exponents have codes of a fixed length.
  TESSERA_FN constexpr bool has_codebook() const {
    return header.coder == static_cast<std::uint8_t>(weight_coder::rans_pairs);
  }
  /// The largest exponent of the weights' type.
  TESSERA_FN constexpr std::uint32_t largest_exponent() const {
    return (1U << weight_type_traits::of(static_cast<weight_type>(header.type)).exponent_bits) - 1;
  }
};

/// Finds window and frequencies, and writes header and codebook. One group.
struct write_codebook {
  static constexpr int lanes = 32;
  using scratch_type = codebook_scratch;
  codebook_writing writing;  ///< the work for the stream

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type& scratch) const {
    exponent_window const window = fit_codebook(group, writing.counts, writing.largest_exponent(), scratch);
    std::uint8_t* const codebook = writing.stream + weight_stream_spec::section_alignment;
    for (int lane : group) {
      for (int symbol = lane; writing.has_codebook() && symbol < 256; symbol += G::size) {
        codebook[2 * symbol] = static_cast<std::uint8_t>(scratch.table.frequency[symbol]);
        codebook[2 * symbol + 1] = static_cast<std::uint8_t>(scratch.table.frequency[symbol] >> 8);
      }
    }
    write_encode_table(group, scratch.table, *writing.table);
    clear_gaps(group, writing.stream, writing.ends);
    std::uint32_t const checksum = writing.has_codebook() ? codebook_checksum(group, codebook) : 0;
    for (int lane : group) {
      if (is_first(lane)) {
        weight_stream_header header = writing.header;
        header.window_base = window.base;
        header.window_extra = window.extra;
        header.content_checksum = checksum;
        *reinterpret_cast<weight_stream_header*>(writing.stream) = header;
      }
    }
  }
};

/// Encodes blocks: writes planes to the stream, the payload to the block's slot, and its size to the index. One group
/// for each block.
template <class T, class Mantissa, class Steps = weight_block_steps<T, Mantissa>>
struct encode_weights {
  static constexpr int lanes = 32;
  using scratch_type = typename Steps::scratch_type;
  weight_encoding<T, typename Steps::coder_type> encoding;

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    using steps = weight_block_steps<T, Mantissa>;
    weight_stream_spec const& spec = encoding.spec;
    exponent_window const window{encoding.header()->window_base, encoding.header()->window_extra};
    weight_block<T> const block = encoding.block(which);
    std::uint8_t* const planes = encoding.stream + spec.planes_offset() + spec.planes_before(which);
    bool const has_words = Steps::has_words(spec);
    int const escapes = Steps::split(group, block, window, has_words ? encoding.table : nullptr, planes, scratch);
    packed_block<G> packed;
    if (has_words) {
      packed = Steps::pack(group, block.coded, *encoding.table, scratch);
    }
    weight_block_index entry{0, static_cast<std::uint16_t>(packed.words), static_cast<std::uint16_t>(escapes)};
    bool const fits = escapes <= spec.largest_escapes && packed.words <= Steps::most_words &&
                      spec.payload_bytes(block.coded, entry) <= spec.raw_payload_bytes(block.coded);
    if (!fits) {
      entry = {0, weight_block_index::raw, 0};
    }
    std::uint8_t* const slot = encoding.slots + which * encoding.slot_bytes();
    steps::clear(group, slot, spec.payload_bytes(block.coded, entry));
    if (!fits) {
      store_raw(group, block, slot);
    } else {
      if (has_words) {
        store_words(group, packed, scratch, slot);
      } else if constexpr (std::is_same_v<scratch_type, weight_block_scratch>) {
        store_codes(group, block.coded, scratch, slot);
      }
      for (int lane : group) {
        for (int i = lane; i < escapes; i += lanes) {
          store_little_endian(slot + spec.escapes_offset(block.coded, entry.words) + 4 * i, scratch.escapes[i]);
        }
      }
    }
    for (int lane : group) {
      if (is_first(lane)) {
        encoding.index()[which] = entry;
      }
    }
  }

  /// Writes states and words of a coded block to its slot.
  template <Group G>
  TESSERA_FN static void store_words(G const& group, packed_block<G> const& packed, scratch_type const& scratch,
                                     std::uint8_t* slot) {
    for (int lane : group) {
      store_little_endian(slot + 4 * lane, packed.state[lane]);
      for (int i = lane; i < packed.words; i += lanes) {
        store_little_endian(slot + weight_stream_spec::states_bytes + 2 * i,
                            scratch.words[Steps::words_end - packed.words + i]);
      }
    }
  }

  /// Writes codes of a fixed length, four bits each, to the slot.
  template <Group G>
  TESSERA_FN static void store_codes(G const& group, int coded, weight_block_scratch const& scratch,
                                     std::uint8_t* slot) {
    using steps = weight_block_steps<T, Mantissa>;
    store_numbers<steps::code_planes>(group, coded, slot, code_reader{&scratch});
  }

  /// Writes the exponents themselves to the slot, as planes.
  template <Group G>
  TESSERA_FN static void store_raw(G const& group, weight_block<T> const& block, std::uint8_t* slot) {
    using steps = weight_block_steps<T, Mantissa>;
    store_numbers<steps::exponent_planes>(group, block.coded, slot, exponent_reader{&block});
  }

  /// Reads codes of the block.
  struct code_reader {
    weight_block_scratch const* scratch;  ///< the scratch of the group
    /// The code at a position.
    TESSERA_FN std::uint32_t operator()(int position) const {
      return weight_block_steps<T, Mantissa>::code_at(*scratch, position);
    }
  };
  /// Reads exponents of the block.
  struct exponent_reader {
    weight_block<T> const* block;  ///< the block of weights
    /// The exponent at a position, with a bit for NaNs where no mantissa bit is kept.
    TESSERA_FN std::uint32_t operator()(int position) const {
      kept_value const kept = position < block->count ? block->template keep<Mantissa>(position) : kept_value{};
      return kept.exponent | (kept.lost_nan ? exponent_split<T>::largest_exponent + 1 : 0);
    }
  };

  /// Writes numbers to their planes.
  template <bit_planes Layout, Group G, class Read>
  TESSERA_FN static void store_numbers(G const& group, int coded, std::uint8_t* planes, Read read) {
    using steps = weight_block_steps<T, Mantissa>;
    for (int row = 0; row < coded / steps::row_weights; ++row) {
      for (int lane : group) {
        for (int i = 0; i < steps::weights_per_lane; ++i) {
          int const position = (row * lanes + lane) * steps::weights_per_lane + i;
          store_planes<Layout>(planes, coded, row, lane, i, read(position));
        }
      }
    }
    group.sync();
  }
};

/// Finds the positions of payloads, the stream's size and the header's checksum. Reports capacity_exceeded. One group.
template <class T, class Coder = pair_coder>
struct locate_payloads {
  static constexpr int lanes = 32;
  struct scratch_type {};
  weight_encoding<T, Coder> encoding;

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    weight_stream_spec const& spec = encoding.spec;
    weight_block_index* const index = encoding.index();
    std::int64_t below = 0;
    for (std::int64_t first = 0; first < spec.block_count(); first += lanes) {
      per_lane<std::int64_t, G> position;
      for (int lane : group) {
        std::int64_t const block = first + lane;
        position[lane] = block < spec.block_count() ? spec.payload_bytes(spec.coded_in(block), index[block]) : 0;
      }
      std::int64_t const total = exclusive_sum(group, position);
      for (int lane : group) {
        if (first + lane < spec.block_count()) {
          index[first + lane].position =
              static_cast<std::uint32_t>((below + position[lane]) / weight_stream_spec::payload_alignment);
        }
      }
      below += total;
    }
    std::int64_t const bytes = spec.payload_offset() + below;
    for (int lane : group) {
      if (is_first(lane)) {
        weight_stream_header header = *encoding.header();
        header.total_bytes = static_cast<std::uint64_t>(bytes);
        header.header_checksum = checksum_of(header);
        *encoding.header() = header;
        *encoding.stream_bytes = bytes;
        if (encoding.reports_full && bytes > encoding.capacity) {
          group.report(encoding.status, status_code::capacity_exceeded, bytes);
        }
      }
    }
  }
};

/// Moves payloads from their slots to the stream, if they fit. One group for each block.
template <class T, class Coder = pair_coder>
struct move_payloads {
  static constexpr int lanes = 32;
  struct scratch_type {};
  weight_encoding<T, Coder> encoding;

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    weight_stream_spec const& spec = encoding.spec;
    weight_block_index const entry = encoding.index()[which];
    std::int64_t const bytes = spec.payload_bytes(spec.coded_in(which), entry);
    std::int64_t const begin = spec.payload_begin(entry);
    if (begin + bytes > encoding.capacity) {
      return;
    }
    std::uint8_t const* const slot = encoding.slots + which * encoding.slot_bytes();
    for (int lane : group) {
      copy_lane(lane, slot, encoding.stream + begin, bytes);
    }
  }

 private:
  /// Copies a lane's part. Payloads are whole units of 16 bytes on both sides.
  TESSERA_FN static void copy_lane(int lane, std::uint8_t const* from, std::uint8_t* to, std::int64_t bytes) {
    struct alignas(16) unit {
      std::uint32_t word[4];
    };
    for (std::int64_t i = lane; i < bytes / 16; i += lanes) {
      reinterpret_cast<unit*>(to)[i] = reinterpret_cast<unit const*>(from)[i];
    }
  }
};

/// Writes the checksums of blocks whose payloads are in the stream. One group for each block.
template <class T, class Coder = pair_coder>
struct checksum_blocks {
  static constexpr int lanes = 32;
  struct scratch_type {};
  weight_encoding<T, Coder> encoding;

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    weight_stream_spec const& spec = encoding.spec;
    weight_block_index const entry = encoding.index()[which];
    std::int64_t const begin = spec.payload_begin(entry);
    if (begin + spec.payload_bytes(spec.coded_in(which), entry) > encoding.capacity) {
      return;
    }
    std::uint32_t const checksum = block_checksum(group, spec, encoding.stream, which, entry);
    for (int lane : group) {
      if (is_first(lane)) {
        reinterpret_cast<std::uint32_t*>(encoding.stream + spec.checksums_offset())[which] = checksum;
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
