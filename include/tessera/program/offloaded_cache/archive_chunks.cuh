// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `archive_rows`: a faster archive_chunks (program/offloaded_cache/archive_chunks.hpp) for 16 bits. Four warps load
/// the keys and values of a chunk and head at once, 16 bytes a lane. Then one warp finds the landmark and the chunk's
/// exact slot, while the others code the values. The results have the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/program/offloaded_cache/archive_chunks.hpp>
#include <tessera/tile/cuda/group.cuh>

namespace tessera {
inline namespace v0 {

/// Archives chunks of heads of a multiple of 8 channels, with records of up to 2560 bytes.
template <class T, ChunkSelector S, class Codec>
struct archive_rows {
  /// The portable program, whose members are the arguments.
  using call_type = archive_chunks<T, S, Codec>;
  using record = typename call_type::record;
  static constexpr int lanes = 128;
  static constexpr int words = call_type::most_words;  ///< 16-byte words of the largest record
  static_assert(sizeof(T) == 2, "tessera: archive_rows reads 16 bits");

  struct scratch_type {
    alignas(16) staged_keys<T> staged;          ///< keys of the chunk and head, after their rotation, and their mean
    alignas(16) T values[most_chunk_elements];  ///< values of the chunk and head
    record_words record[words];                 ///< the record of the values
    typename call_type::exact_slot taken;       ///< the exact slot that the chunk takes
  };

  call_type call;  ///< extents, memory, step and selector

  /// Whether the program can take a call: heads have a multiple of 8 channels, and records fit.
  [[nodiscard]] static constexpr bool takes(call_type const& call) {
    offload_extents const& n = call.extents;
    return n.channels % 8 == 0 &&
           record::bytes(n.chunk, n.channels) <= words * static_cast<std::int64_t>(sizeof(record_words));
  }
  [[nodiscard]] std::int64_t groups() const { return call.groups(); }

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t which,
                                             scratch_type& scratch) const {
    offload_extents const& n = call.extents;
    std::int64_t const at = which / n.key_heads;
    std::int64_t const head = which % n.key_heads;
    std::int64_t const sequence = call.step.sequence(n, call.memory.sequences, at);
    if (sequence < 0 || !call.memory.sequences[sequence].archives(n)) {
      return;
    }
    cached_sequence const known = call.memory.sequences[sequence];
    std::int64_t const row = known.first + known.chunks;
    load(sequence, head, known.chunks * n.chunk % n.ring, scratch, group.lane);
    group.sync();
    if (group.lane < 32) {
      cuda_warp const warp;
      auto* const kept = call.memory.landmarks.data + call.memory.landmarks.offset(row, head, 0);
      float const least = summarize_chunk(warp, call.selector, scratch.staged, n.channels, kept);
      auto const taken = call.choose(warp, sequence, head, least, call.step.residuals[at], known.residual);
      if (warp.lane == 0) {
        scratch.taken = taken;
        call.note(sequence, head, known, taken);
      }
    } else {
      staged_values const values{scratch.values, n.channels};
      for (std::int64_t piece = group.lane - 32; piece < record::pieces(n.chunk, n.channels); piece += lanes - 32) {
        record::put(values, piece, n.chunk, n.channels, reinterpret_cast<std::byte*>(scratch.record));
      }
    }
    group.sync();
    write(sequence, head, row, scratch, group.lane);
  }

 private:
  struct staged_values {
    T const* values;
    std::int64_t channels;
    __device__ __forceinline__ T operator()(std::int64_t token, std::int64_t channel) const {
      return values[token * channels + channel];
    }
  };

  [[nodiscard]] __device__ __forceinline__ int pieces() const {
    return static_cast<int>(call.extents.chunk * call.extents.channels) / 8;
  }

  /// Loads the chunk's tokens, which are neighbours in the ring, from `index` on.
  __device__ __forceinline__ void load(std::int64_t sequence, std::int64_t head, std::int64_t index,
                                       scratch_type& scratch, int lane) const {
    auto const* const keys = reinterpret_cast<uint4 const*>(&call.memory.ring_keys(sequence, head, index, 0));
    auto const* const values = reinterpret_cast<uint4 const*>(&call.memory.ring_values(sequence, head, index, 0));
    for (int i = lane; i < words; i += lanes) {
      scratch.record[i] = {};
    }
    for (int i = lane; i < pieces(); i += lanes) {
      uint4 const key = keys[i];
      uint4 const value = values[i];
      reinterpret_cast<uint4*>(scratch.staged.keys)[i] = key;
      reinterpret_cast<uint4*>(scratch.values)[i] = value;
    }
  }

  __device__ __forceinline__ void write(std::int64_t sequence, std::int64_t head, std::int64_t row,
                                        scratch_type const& scratch, int lane) const {
    offload_extents const& n = call.extents;
    auto* const store = reinterpret_cast<record_words*>(&call.memory.values(row, head, 0));
    auto const count = static_cast<int>(record::bytes(n.chunk, n.channels)) / static_cast<int>(sizeof(record_words));
    for (int i = lane; i < count; i += lanes) {
      store[i] = scratch.record[i];
    }
    if (scratch.taken.index >= 0) {
      auto* const keys = reinterpret_cast<uint4*>(&call.memory.exact_keys(sequence, head, scratch.taken.index, 0, 0));
      auto* const values =
          reinterpret_cast<uint4*>(&call.memory.exact_values(sequence, head, scratch.taken.index, 0, 0));
      for (int i = lane; i < pieces(); i += lanes) {
        keys[i] = reinterpret_cast<uint4 const*>(scratch.staged.keys)[i];
        values[i] = reinterpret_cast<uint4 const*>(scratch.values)[i];
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
