// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The programs behind algorithm/weights/parameter_store.hpp: how a stream that was just encoded gets into the slot of
/// its parameter, also when it has grown too large for it, with nobody on the host looking.
///
/// A slot is a stream_record and room for a stream. If the new stream fits, it is copied. If not, the blocks whose
/// payloads fit are, and those from there on go to the overflow arena, which all slots share, as plain weights. Their
/// index entries in the slot become those of raw blocks at the start of the payload, so what is in the slot is a sound
/// stream all the same: it decodes without complaint, to the right weights up to that block, and then restore_overflow
/// puts the others over what came out. If the arena is full too, the slot keeps what it held, and capacity_exceeded is
/// reported with the number of the parameter.
#pragma once

#include <cstdint>

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
  std::int64_t bytes;         ///< of the stream when it was encoded, whether it fitted or not
  std::int64_t first_over;    ///< blocks from this one on are in the arena
  std::int64_t arena_block;   ///< where the parameter's part of the arena begins, in blocks
  std::int64_t arena_blocks;  ///< and its size
  std::int64_t moved_bytes;   ///< for move_stream: how much of the staged stream goes into the slot
  std::int64_t moved_from;    ///< for move_stream: blocks from this one on go to the arena now
};

/// Of the whole arena. All zeros when it is empty.
struct overflow_state {
  std::int64_t used_blocks;  ///< of the arena
  std::int64_t overflows;    ///< streams that did not fit their slots
};

/// What the programs know of one parameter.
template <class T>
struct parameter_stream {
  weight_stream_spec spec;
  stream_record* record = nullptr;             ///< in the slot
  std::uint8_t* slot = nullptr;                ///< of the stream; 16-byte aligned
  std::int64_t capacity = 0;                   ///< bytes there, a multiple of 16
  std::uint8_t* staged = nullptr;              ///< the new stream, in room for the largest
  std::int64_t const* staged_bytes = nullptr;  ///< one element
  T* weights = nullptr;                        ///< as they are in plain
  T* arena = nullptr;                          ///< of blocks that do not fit
  std::int64_t arena_blocks = 0;               ///< that it has room for
  overflow_state* overflow = nullptr;          ///< of the arena
  std::int64_t number = 0;                     ///< what reports name
  status_word* status = nullptr;

  /// Copies of weights and bytes in units of this.
  struct alignas(16) unit {
    std::uint32_t word[4];  ///< 16 bytes
  };

  /// The least that a slot must hold so that index entries of blocks that are elsewhere have something to point to.
  TESSERA_FN static constexpr std::int64_t smallest_capacity(weight_stream_spec const& spec) {
    return spec.coder == weight_coder::stored || spec.count == 0
               ? spec.smallest_bytes()
               : spec.payload_offset() + spec.raw_payload_bytes(spec.coded_in(0));
  }

  /// A block in the arena.
  TESSERA_FN T* kept(std::int64_t block) const {
    return arena + (record->arena_block + block - record->first_over) * spec.block_weights();
  }
};

/// One group: decides where the parts of a staged stream go, and makes a sound stream of the part for the slot.
template <class T>
struct settle_stream {
  static constexpr int lanes = 32;
  struct scratch_type {};
  parameter_stream<T> stream;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t, scratch_type&) const {
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
          group.report(stream.status, status_code::capacity_exceeded, stream.number);
        }
      }
    }
  }

 private:
  TESSERA_FN weight_block_index* index() const {
    return reinterpret_cast<weight_block_index*>(stream.staged + stream.spec.index_offset());
  }
  TESSERA_FN std::int64_t payload_begin(std::int64_t block) const {
    return stream.spec.payload_offset() + std::int64_t{index()[block].position} * weight_stream_spec::payload_alignment;
  }

  /// Blocks follow each other in the payload, so those that end inside of the slot are the first ones.
  template <class Group>
  TESSERA_FN std::int64_t count_fitting(Group const& group) const {
    per_lane<std::int64_t, Group> fitting;
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

  /// Room for `blocks` blocks in the arena: the parameter's own part if that suffices or can grow, else a new one.
  /// False if there is none.
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

  template <class Group>
  TESSERA_FN void patch(Group const& group, std::int64_t first_over) const {
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

/// After settle_stream: first groups copy pieces of the staged stream into the slot, then one for each block copies its
/// weights to the arena if that is where it goes.
template <class T>
struct move_stream {
  static constexpr int lanes = 32;
  static constexpr std::int64_t piece_bytes = 16384;  ///< that a group moves
  struct scratch_type {};
  parameter_stream<T> stream;

  /// Groups that move the stream.
  TESSERA_FN std::int64_t pieces() const { return divide_up(stream.capacity, piece_bytes); }
  std::int64_t groups() const { return pieces() + stream.spec.block_count(); }

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    if (which < pieces()) {
      copy_piece(group, which);
    } else {
      keep_block(group, which - pieces());
    }
  }

 private:
  using unit = typename parameter_stream<T>::unit;

  template <class Group>
  TESSERA_FN void copy_piece(Group const& group, std::int64_t which) const {
    constexpr std::int64_t unit_bytes = sizeof(unit);
    std::int64_t const first = which * (piece_bytes / unit_bytes);
    std::int64_t const last = min(first + piece_bytes / unit_bytes, divide_up(stream.record->moved_bytes, unit_bytes));
    for (int lane : group) {
      for (std::int64_t i = first + lane; i < last; i += lanes) {
        reinterpret_cast<unit*>(stream.slot)[i] = reinterpret_cast<unit const*>(stream.staged)[i];
      }
    }
  }

  template <class Group>
  TESSERA_FN void keep_block(Group const& group, std::int64_t block) const {
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

/// After the slot was decoded, one group for each block: the weights of those that are in the arena.
template <class T>
struct restore_overflow {
  static constexpr int lanes = 32;
  struct scratch_type {};
  parameter_stream<T> stream;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t block, scratch_type&) const {
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
