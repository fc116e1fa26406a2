// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The programs behind algorithm/weights/parameter_store.hpp: they move a newly encoded stream to the slot of its
/// parameter, even when it is too large for the slot, without reading anything back to the host.
///
/// A slot is a stream_record and room for a stream. If the new stream fits, it is copied. If not, the blocks whose
/// payloads fit are copied, and the blocks from there on go to the overflow arena, which all slots share, as plain
/// weights. Their index entries in the slot become those of raw blocks at the start of the payload. So the slot holds a
/// sound stream all the same: it decodes without errors, to the right weights up to that block, and then
/// restore_overflow overwrites the wrong ones. If the arena is full too, the slot keeps its old stream, and
/// full_slot is reported with the number of the parameter.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/status.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/program/weights/checksum.hpp>
#include <tessera/tile/per_lane.hpp>

namespace tessera {
inline namespace v0 {

/// The first 64 bytes of a slot. All zeros before the first stream.
struct alignas(64) stream_record {
  std::int64_t bytes;         ///< bytes of the stream when it was encoded, whether it fitted or not
  std::int64_t first_over;    ///< blocks from this one on are in the arena
  std::int64_t arena_block;   ///< the first block of the parameter's part of the arena
  std::int64_t arena_blocks;  ///< the number of blocks of this part
  std::int64_t moved_bytes;   ///< for move_stream: bytes of the staged stream that go to the slot
  std::int64_t moved_from;    ///< for move_stream: blocks from this one on go to the arena now
};

/// The state of the whole arena. All zeros when it is empty.
struct overflow_state {
  std::int64_t used_blocks;  ///< blocks of the arena that are in use
  std::int64_t overflows;    ///< streams that did not fit their slots
};

/// The memory of one parameter.
template <class T>
struct parameter_stream {
  weight_stream_spec spec;
  stream_record* record = nullptr;             ///< the record of the slot
  std::uint8_t* slot = nullptr;                ///< the stream in the slot, 16-byte aligned
  std::int64_t capacity = 0;                   ///< bytes of room for this stream, a multiple of 16
  std::uint8_t* staged = nullptr;              ///< the new stream, in room for the largest
  std::int64_t const* staged_bytes = nullptr;  ///< one element: bytes of the staged stream
  T* weights = nullptr;                        ///< the decoded weights
  T* arena = nullptr;                          ///< the arena, for blocks that do not fit
  std::int64_t arena_blocks = 0;               ///< blocks that the arena has room for
  overflow_state* overflow = nullptr;          ///< the state of the arena
  std::int64_t number = 0;                     ///< the number that reports name
  status_word* status = nullptr;

  /// The unit in which weights and bytes are copied.
  struct alignas(16) unit {
    std::uint32_t word[4];  ///< 16 bytes
  };

  /// The least capacity of a slot, so that index entries of blocks that are elsewhere have something to point to.
  TESSERA_FN static constexpr std::int64_t smallest_capacity(weight_stream_spec const& spec) {
    return spec.coder == weight_coder::stored || spec.count == 0
               ? spec.smallest_bytes()
               : spec.payload_offset() + spec.raw_payload_bytes(spec.coded_in(0));
  }

  /// The weights of a block in the arena.
  TESSERA_FN T* kept(std::int64_t block) const {
    return arena + (record->arena_block + block - record->first_over) * spec.block_weights();
  }
};

/// Decides where the parts of a staged stream go, and makes a sound stream of the part for the slot. One group.
template <class T>
struct settle_stream {
  static constexpr int lanes = 32;
  struct scratch_type {};
  parameter_stream<T> stream;

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    weight_stream_spec const& spec = stream.spec;
    std::int64_t const bytes = *stream.staged_bytes;
    std::int64_t const blocks = spec.block_count();
    bool const fits = bytes <= stream.capacity;
    std::int64_t const first_over = fits ? blocks : count_fitting(group);
    stream_record record = *stream.record;
    overflow_state overflow = *stream.overflow;
    group.sync();  // all lanes have read what one of them writes below
    bool const kept = fits || claim(record, overflow, blocks - first_over);
    record.bytes = kept ? bytes : record.bytes;
    record.first_over = kept ? first_over : record.first_over;
    record.moved_from = kept ? first_over : blocks;
    record.moved_bytes = kept ? bytes_below(first_over, bytes) : 0;
    overflow.overflows += fits ? 0 : 1;
    if (kept && !fits) {
      patch(group, first_over);
    }
    for (int lane : group) {
      if (is_first(lane)) {
        *stream.record = record;
        *stream.overflow = overflow;
        if (!kept) {
          group.report(stream.status, status_code::full_slot, stream.number, {bytes, stream.capacity});
        }
      }
    }
  }

 private:
  TESSERA_FN weight_block_index* index() const {
    return reinterpret_cast<weight_block_index*>(stream.staged + stream.spec.index_offset());
  }
  TESSERA_FN std::int64_t payload_begin(std::int64_t block) const { return stream.spec.payload_begin(index()[block]); }

  /// The number of blocks that fit. Blocks follow each other in the payload, so these are the first ones.
  template <Group G>
  TESSERA_FN std::int64_t count_fitting(G const& group) const {
    per_lane<std::int64_t, G> fitting;
    for (int lane : group) {
      fitting[lane] = 0;
      for (std::int64_t block = lane; block < stream.spec.block_count(); block += lanes) {
        std::int64_t const end =
            payload_begin(block) + stream.spec.payload_bytes(stream.spec.coded_in(block), index()[block]);
        fitting[lane] += end <= stream.capacity ? 1 : 0;
      }
    }
    return sum(group, fitting);
  }

  /// Claims room for `blocks` blocks in the arena: the parameter's own part if that suffices or can grow, else a new
  /// part. Returns false if there is no room.
  TESSERA_FN bool claim(stream_record& record, overflow_state& overflow, std::int64_t blocks) const {
    if (blocks <= record.arena_blocks) {
      return true;
    }
    bool const is_last = record.arena_blocks > 0 && record.arena_block + record.arena_blocks == overflow.used_blocks;
    std::int64_t const first = is_last ? record.arena_block : overflow.used_blocks;
    if (blocks > stream.arena_blocks - first) {
      return false;
    }
    record.arena_block = first;
    record.arena_blocks = blocks;
    overflow.used_blocks = first + blocks;
    return true;
  }

  TESSERA_FN std::int64_t bytes_below(std::int64_t block, std::int64_t all) const {
    return block < stream.spec.block_count() ? payload_begin(block) : all;
  }

  template <Group G>
  TESSERA_FN void patch(G const& group, std::int64_t first_over) const {
    group.sync();  // bytes_below has read the index
    for (int lane : group) {
      for (std::int64_t block = first_over + lane; block < stream.spec.block_count(); block += lanes) {
        index()[block] = {0, weight_block_index::raw, 0};
      }
      if (is_first(lane)) {
        auto& header = *reinterpret_cast<weight_stream_header*>(stream.staged);
        header.total_bytes = static_cast<std::uint64_t>(stream.capacity);
        header.header_checksum = checksum_of(header);
      }
    }
  }
};

/// Moves a stream after settle_stream: the first groups copy pieces of the staged stream to the slot, then one group
/// for each block copies its weights to the arena, if they go there.
template <class T>
struct move_stream {
  static constexpr int lanes = 32;
  static constexpr std::int64_t piece_bytes = 16384;  ///< bytes that a group copies
  struct scratch_type {};
  parameter_stream<T> stream;

  /// The groups that copy the stream.
  TESSERA_FN std::int64_t pieces() const { return divide_up(stream.capacity, piece_bytes); }
  std::int64_t groups() const { return pieces() + stream.spec.block_count(); }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    if (which < pieces()) {
      copy_piece(group, which);
    } else {
      keep_block(group, which - pieces());
    }
  }

 private:
  using unit = typename parameter_stream<T>::unit;

  template <Group G>
  TESSERA_FN void copy_piece(G const& group, std::int64_t which) const {
    constexpr std::int64_t unit_bytes = sizeof(unit);
    std::int64_t const first = which * (piece_bytes / unit_bytes);
    std::int64_t const last = min(first + piece_bytes / unit_bytes, divide_up(stream.record->moved_bytes, unit_bytes));
    for (int lane : group) {
      for (std::int64_t i = first + lane; i < last; i += lanes) {
        reinterpret_cast<unit*>(stream.slot)[i] = reinterpret_cast<unit const*>(stream.staged)[i];
      }
    }
  }

  template <Group G>
  TESSERA_FN void keep_block(G const& group, std::int64_t block) const {
    if (block < stream.record->moved_from) {
      return;
    }
    T const* const from = stream.weights + block * stream.spec.block_weights();
    T* const to = stream.kept(block);
    for (int lane : group) {
      for (std::int64_t i = lane; i < stream.spec.weights_in(block); i += lanes) {
        to[i] = from[i];
      }
    }
  }
};

/// Restores the weights that are in the arena, after the slot was decoded. One group for each block.
template <class T>
struct restore_overflow {
  static constexpr int lanes = 32;
  struct scratch_type {};
  parameter_stream<T> stream;

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t block, scratch_type&) const {
    if (block < stream.record->first_over) {
      return;
    }
    T const* const from = stream.kept(block);
    T* const to = stream.weights + block * stream.spec.block_weights();
    for (int lane : group) {
      for (std::int64_t i = lane; i < stream.spec.weights_in(block); i += lanes) {
        to[i] = from[i];
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
