// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Decodes lossless streams of weights at the speed of memory: the CUDA kernel for program/weights/decode.hpp, on sm_80
/// and later.
///
/// Bytes: a bf16 weight at 10.7 bits is read once and written once, 3.33 bytes, so that 4.24 TB/s of copy allow at most
/// 2.54 TB/s of output; measured are 2.10 on an H200. Instructions: about 13 a weight, so that 132 x 4 x 1.75e9 issue
/// slots allow at most 4.5 TB/s. The limit is waiting for DRAM: reads and writes of 4224 blocks at once get 82 percent
/// of what a copy gets.
///
/// For each tensor in its part a thread block makes a look-up table of 4096 entries in shared memory. Then each warp
/// takes one block of weights after the other, copies its words to shared memory and pops 32 pairs at a time
/// (program/weights/detail/warp_rans.cuh). Meanwhile the last warp of each thread block verifies the checksums of
/// header and codebook; if they are wrong, the thread block overwrites its weights with zeros.
#pragma once

#include <cstdint>

#include <tessera/core/precision.hpp>
#include <tessera/core/status.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/program/weights/detail/decode_part.cuh>
#include <tessera/program/weights/detail/decode_task.cuh>
#include <tessera/program/weights/detail/decode_warp.cuh>
#include <tessera/program/weights/detail/pair_table.cuh>
#include <tessera/tile/cuda/async_copy.cuh>
#include <tessera/tile/cuda/crc32c.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/thread_index.cuh>
#include <tessera/tile/cuda/warp.cuh>
#include <tessera/tuning/weights/neuzip.hpp>

namespace tessera {
inline namespace v0 {

/// Decodes blocks of up to 32 streams, one block in each warp. Mantissa: the keep_mantissa of the streams, whose
/// rounding does not matter.
template <class T, neuzip_decode_policy Policy, class Mantissa = keep_mantissa<scalar_traits<T>::mantissa_bits>>
struct decode_weights_on_warps {
  /// The part of the weights that a warp decodes.
  using task_type = decode_task<T, Mantissa>;
  /// How a warp decodes it.
  using part_type = decode_part<T, Mantissa>;
  static constexpr int lanes = Policy.threads;
  static constexpr int blocks_per_multiprocessor = Policy.blocks_per_multiprocessor;
  static constexpr int from_architecture = Policy.from;
  static constexpr int before_architecture = Policy.before;
  static constexpr int warps = lanes / 32;
  static constexpr int most_tasks = 32;
  /// How a warp decodes a block.
  using decoder = warp_decoder<T, Mantissa, Policy.words>;

  struct scratch_type {
    pair_table table;  ///< the table of the current tensor
    /// The words of each warp's block.
    alignas(16) std::uint16_t words[warps][Policy.words];
    part_type part;     ///< the part of the current tensor
    int next;           ///< the next block to take
    int is_unfinished;  ///< 1 if finish() has something to do
    int is_refused;     ///< 1 if a checksum of header or codebook is wrong
    int first_broken;   ///< the first of the part's blocks that is corrupt; no_block if all are sound
  };
  static constexpr int no_block = 0x7fffffff;  ///< the value of first_broken if all blocks are sound

  task_type task[most_tasks];  ///< the tensors of the launch
  int tasks;
  int blocks_a_run;             ///< with one task: neighbouring blocks that a thread block takes at a time
  int splits;                   ///< thread blocks among which the blocks are shared
  int longer_splits;            ///< with many tasks: how many thread blocks have one block more than the others
  std::int64_t blocks_a_split;  ///< blocks of each other thread block
  std::int64_t blocks;          ///< blocks of all tasks
  status_word* status;

  __device__ void operator()(cuda_block<lanes> const& group, std::int64_t which, scratch_type& scratch) const {
    if (tasks == 1) {
      // All thread blocks move along the tensor together, which is faster in DRAM than parts far apart.
      std::int64_t const first = which * blocks_a_run;
      if (first < blocks) {
        decode_blocks(group, task[0], task[0].first_block + first, static_cast<int>(blocks - first), blocks_a_run,
                      splits * blocks_a_run, scratch);
      }
      return;
    }
    std::int64_t const begin = split_begin(static_cast<int>(which));
    std::int64_t const end = split_begin(static_cast<int>(which) + 1);
    for (int i = 0; i < tasks; ++i) {
      std::int64_t const before = task[i].blocks_before;
      std::int64_t const after = i + 1 < tasks ? task[i + 1].blocks_before : blocks;
      std::int64_t const first = max(begin, before) - before;
      std::int64_t const last = min(end, after) - before;
      if (first < last) {
        decode_split(group, task[i], task[i].first_block + first, static_cast<int>(last - first), scratch);
      }
    }
  }

 private:
  __device__ __forceinline__ std::int64_t split_begin(int split) const {
    return split * blocks_a_split + min(split, longer_splits);
  }

  /// Decodes `count` neighbouring blocks. Not inline, so that the other path can keep what it needs in registers.
  __device__ __noinline__ void decode_split(cuda_block<lanes> const& group, task_type const& t,
                                            std::int64_t first_block, int count, scratch_type& scratch) const {
    decode_blocks(group, t, first_block, count, warps, warps, scratch);
  }

  /// Decodes blocks first_block + i of a tensor for all i < count that belong to this thread block, see decode_part.
  __device__ __forceinline__ void decode_blocks(cuda_block<lanes> const& group, task_type const& t,
                                                std::int64_t first_block, int count, int run, int stride,
                                                scratch_type& scratch) const {
    int const warp = uniform(static_cast<int>(thread_index() / 32));
    int const first = (warp / run) * stride + warp % run;
    stage_first(t, first_block, first < count ? first : -1, warp, scratch);
    group.sync();  // the scratch of the last part is no longer needed
    if (scratch.table.is_sound != 0 && t.is_rans()) {
      scratch.table.template fill<warps>(warp, cuda_warp{}.lane);
    }
    if (thread_index() == lanes - 1) {
      part_type& part = scratch.part;
      part = t.part(first_block);
      part.count = count;
      part.run = run;
      part.stride = stride;
      scratch.next = warps;
      scratch.is_unfinished = part.is_plain() ? 0 : 1;
      scratch.is_refused = 0;
      scratch.first_broken = no_block;
    }
    group.sync();
    if (scratch.table.is_sound == 0) {
      async_copy_wait_all();
      refuse_part(t, scratch, warp);
      group.sync();  // the next tensor's table says whether that one is sound
      return;
    }
    // The last warp has the least work where there are few blocks.
    if (warp == warps - 1) {
      check_sums(t, scratch);
      decode_broken_block(scratch, first);
    }
    if (scratch.part.is_plain()) {
      if constexpr (part_type::is_lossless) {
        decode_plain_part(scratch, warp);
      } else if (scratch.part.has_normalizers()) {
        decode_normalized_part(scratch, warp);
      } else {
        decode_plain_part(scratch, warp);
      }
    } else if constexpr (!part_type::is_lossless) {
      async_copy_wait_all();  // the words of a first block that stage_first() took for plain
    }
    group.sync();
    if (scratch.is_unfinished != 0) {
      group.sync();  // finish() writes to what others may not have read yet
      finish(group, t, scratch, warp);
    }
  }

  /// Loads header, codebook and index at once; then a warp's first block (none: -1) is loaded while the table is made.
  /// (Prefetching every block's planes to L2 was slower: 1.36 instead of 2.0 TB/s.)
  __device__ __forceinline__ static void stage_first(task_type const& t, std::int64_t first_block, int first, int warp,
                                                     scratch_type& scratch) {
    int const lane = cuda_warp{}.lane;
    uint4 const packed = warp == 0 && t.is_rans() ? t.codebook(lane) : uint4{};
    if (first >= 0) {
      std::int64_t const block = first_block + first;
      uint2 const entry = __ldg(t.index() + block);
      std::int64_t const stream_end = t.stream_end();
      if (lane == 0) {
        prefetch_to_l2(t.planes_of(block), t.weights_in(block) * (1 + Mantissa::kept_bits) / 8);
      }
      auto const parts =
          block_parts::of<T, Mantissa>(entry, 1 << t.log2_block, t.is_rans(), t.payload_offset, stream_end);
      if (t.is_rans() && t.is_aligned()) {
        decoder::stage(t.stream, parts, scratch.words[warp]);
      }
    }
    if (warp == 0) {
      scratch.table.read(lane, packed, t.header_fits(), t.is_rans());
    }
  }

  /// Decodes the tensor's last block, if it is not whole and belongs to this thread block. `first` is staged again.
  __device__ __noinline__ static void decode_broken_block(scratch_type& scratch, int first) {
    part_type const& part = scratch.part;
    int const broken = part.broken_block();
    if (part.is_plain() && broken >= 0) {
      async_copy_wait_all();
      sync_warp();
      decode_any_block(scratch, warps - 1, broken);
      if (first < part.count) {
        decoder::stage(part.stream, part.parts_of(part.index_entry(first), part.block_weights()),
                       scratch.words[warps - 1]);
      }
    }
  }

  /// Reports a block by its number in the tensor, as on the host.
  __device__ void report(status_code code, std::int64_t block) const { cuda_warp{}.report(status, code, block); }

  /// Verifies the checksums of header and codebook. One warp of each thread block.
  __device__ __noinline__ static void check_sums(task_type const& t, scratch_type& scratch) {
    weight_stream_header const header = t.header();
    cuda_warp const warp;
    constexpr int covered = sizeof(weight_stream_header) - sizeof(header.header_checksum);
    bool sound = warp_crc32c<4, covered / 4>(warp.lane, t.stream) == header.header_checksum;
    if (t.is_rans()) {
      std::uint8_t const* const codebook = t.stream + sizeof(weight_stream_header);
      sound = warp_crc32c<16, 32>(warp.lane, codebook) == header.content_checksum && sound;
    }
    if (warp.lane == 0) {
      if (!sound) {
        scratch.is_refused = 1;
        scratch.is_unfinished = 1;
      } else if (t.is_sound != nullptr && scratch.part.first_block == t.first_block) {
        *t.is_sound = 1;
      }
    }
  }

  /// Makes zeros of a part whose header or codebook is corrupt. Nothing else is reported then, whatever the blocks
  /// were.
  __device__ __noinline__ void refuse_part(task_type const& t, scratch_type& scratch, int warp) const {
    part_type const& part = scratch.part;
    for (int taken = warp; part.position_of(taken) < part.count; taken += warps) {
      zero_block(part, part.position_of(taken));
    }
    if (thread_index() == 0) {
      if (t.is_sound != nullptr) {
        *t.is_sound = 0;
      }
      report(status_code::bad_header, 0);
    }
  }

  /// Does what is seldom needed, after the blocks of the fast path. All warps.
  __device__ __noinline__ void finish(cuda_block<lanes> const& group, task_type const& t, scratch_type& scratch,
                                      int warp) const {
    if (scratch.is_refused != 0) {
      refuse_part(t, scratch, warp);
      return;
    }
    decode_other_blocks(scratch, warp);
    group.sync();
    if (thread_index() == 0 && scratch.first_broken != no_block) {
      report(status_code::corrupt_stream, scratch.part.first_block + scratch.first_broken);
    }
  }

  /// Decodes the blocks of a plain part without normalizers.
  __device__ __forceinline__ static void decode_plain_part(scratch_type& scratch, int warp) {
    if (scratch.part.window().is_contiguous()) {
      decode_plain_blocks<true, false>(scratch, warp);
    } else {
      decode_scattered_blocks<false>(scratch, warp);
    }
  }
  /// Decodes the blocks of a plain part with normalizers. Not inline, so that the other path can keep what it needs in
  /// registers.
  __device__ __noinline__ static void decode_normalized_part(scratch_type& scratch, int warp) {
    if (scratch.part.window().is_contiguous()) {
      decode_plain_blocks<true, true>(scratch, warp);
    } else {
      decode_scattered_blocks<true>(scratch, warp);
    }
  }
  /// Decodes blocks of a window with an exponent from elsewhere. Not inline, so that the other path can keep what it
  /// needs in registers.
  template <bool Normalized>
  __device__ __noinline__ static void decode_scattered_blocks(scratch_type& scratch, int warp) {
    decode_plain_blocks<false, Normalized>(scratch, warp);
  }

  /// The fast path, which takes most of the time: whole blocks whose payload fits the scratch, from the warp's first
  /// block on, which is already staged. It calls no functions: what has to survive a call would be spilled for every
  /// block. So it also asks for the first block's position again: one that survived the calls before stayed in memory
  /// through the loop (H200, fp32, TB/s in turns: 1.842; asked for again 1.867; a version that checked less 1.884).
  template <bool Contiguous, bool Normalized>
  __device__ __forceinline__ static void decode_plain_blocks(scratch_type& scratch, int warp) {
    part_type const& part = scratch.part;
    int mine = part.position_of(warp);
    std::uint16_t* const words = scratch.words[warp];
    int const coded = part.block_weights();
    block_parts parts = part.parts_of(part.index_entry(min(mine, part.count - 1)), coded);
    while (mine < part.count) {
      // The tensor's last block may not be whole. Then the last warp has decoded it, and what was staged of it is
      // overwritten.
      if (!part.is_whole(mine)) {
        async_copy_wait_all();
      } else if (!decoder::is_plain(parts)) {
        scratch.is_unfinished = 1;
      } else if (!decoder::template pop_plain_rows<Contiguous>(
                     part.planes_of(mine), normalizers_of<Normalized>(part, mine), part.window(), parts, coded,
                     scratch.table.entries, words, part.weights_of(mine)) ||
                 !patch_rest<Normalized>(part, mine, coded)) {
        refuse_block(scratch, mine);
      }
      mine = part.position_of(take_block(scratch, cuda_warp{}.lane));
      if (mine < part.count) {
        parts = part.parts_of(part.index_entry(mine), coded);
        decoder::stage(part.stream, parts, words);
      }
    }
  }

  /// Patches the escapes of blocks with more escapes than lanes: with it MiniLM decodes at 2.01 TB/s, not at 1.81. It
  /// loads the index entry again: keeping it costs a register in the loop (fp32 1.887 for 1.904 TB/s).
  template <bool Normalized>
  __device__ __forceinline__ static bool patch_rest(part_type const& part, int block, int coded) {
    block_parts const parts = part.parts_of(part.index_entry(block), coded);
    return !decoder::needs_patches(parts) ||
           decoder::patch_rest(part.stream + parts.begin, part.planes_of(block),
                               normalizers_of<Normalized>(part, block), parts, coded, part.weights_of(block));
  }
  /// The normalizers of a block where it is known whether there are any.
  template <bool Normalized>
  __device__ __forceinline__ static auto normalizers_of(part_type const& part, int block) {
    if constexpr (Normalized) {
      return part.normalizers_of(block);
    } else {
      return no_normalizers{};
    }
  }

  /// Makes zeros of a corrupt block, and reports it when header and codebook are known to be sound.
  __device__ __forceinline__ static void refuse_block(scratch_type& scratch, int block) {
    sync_warp();
    zero_block(scratch.part, block);
    if (cuda_warp{}.lane == 0) {
      atomicMin(&scratch.first_broken, block);
      scratch.is_unfinished = 1;
    }
  }
  __device__ __forceinline__ static void zero_block(part_type const& part, int block) {
    T* const weights = part.weights_of(block);
    int const count = part.weights_in(block);
#pragma unroll 1
    for (int i = cuda_warp{}.lane; i < count; i += 32) {
      weights[i] = from_bits<T>(0);
    }
  }

  /// Decodes all blocks that decode_plain_blocks does not take.
  __device__ __noinline__ static void decode_other_blocks(scratch_type& scratch, int warp) {
    part_type const& part = scratch.part;
    for (int taken = warp; part.position_of(taken) < part.count; taken += warps) {
      int const block = part.position_of(taken);
      block_parts const parts = part.parts_of(part.index_entry(block), part.block_weights());
      if (!part.is_plain() || (part.is_whole(block) && !decoder::is_plain(parts))) {
        decode_any_block(scratch, warp, block);
      }
    }
  }

  __device__ __noinline__ static void decode_any_block(scratch_type& scratch, int warp, int block) {
    part_type const& part = scratch.part;
    int const coded = (part.weights_in(block) + decoder::granularity - 1) & ~(decoder::granularity - 1);
    block_parts const parts = part.parts_of(part.index_entry(block), coded);
    if (!parts.fits || !decoder::decode(part, block, parts, coded, scratch.table.entries, scratch.words[warp])) {
      refuse_block(scratch, block);
    }
  }

  __device__ __forceinline__ static int take_block(scratch_type& scratch, int lane) {
    int taken = 0;
    if (lane == 0) {
      taken = atomicAdd(&scratch.next, 1);
    }
    return uniform(taken);
  }
};

}  // namespace v0
}  // namespace tessera
