// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The two caches of tessera_c.h, which includes this file. A cache is an object in host memory of the caller's, and
/// keys and values in other memory of the caller's. All of it stays the cache's until that is closed.
#ifndef TESSERA_C_CACHES_H
#define TESSERA_C_CACHES_H

#include "tessera_c.h"

#ifdef __cplusplus
extern "C" {
#endif

// MiniCache: keys and values of all layers in pages of 64 tokens (tessera/minicache.hpp), of bf16.
//
// A prompt: for each part, append() of all its layers; then advance() by its tokens. A step: for each layer write()
// and attend(), after the last layer of a part seal(); then advance() by 1. Lengths hold the new tokens from the first
// of these calls on.

typedef struct tessera_minicache tessera_minicache;

typedef struct tessera_minicache_shape {
  size_t size;
  int64_t slots;         ///< sequences at a time
  int64_t tokens;        ///< the most tokens of a sequence
  int64_t blocks;        ///< blocks of 64 tokens, for all sequences together
  int64_t heads;         ///< key heads
  int64_t channels;      ///< channels of a head, a multiple of 32 up to 256
  int64_t window;        ///< newest tokens of a sequence that stay as they are, a multiple of 64
  int32_t const* parts;  ///< the layers of each part: 1, or 2 neighbours that share directions; null: one layer
  int64_t part_count;
} tessera_minicache_shape;
#define TESSERA_MINICACHE_SHAPE_INIT \
  { sizeof(tessera_minicache_shape), 0, 0, 0, 0, 0, 128, NULL, 0 }

/// The sequences of a call, all of i32 and where the executor runs.
typedef struct tessera_minicache_sequences {
  size_t size;
  tessera_tensor blocks;   ///< sequences x pages: the block of each page of 64 tokens, 0 to `blocks` - 1
  tessera_tensor lengths;  ///< tokens of each sequence, with the new ones of a call
  tessera_tensor slots;    ///< the slot of each sequence; missing: its own number
  tessera_tensor pages;    ///< sealed pages of each sequence; missing: as many as there can be
} tessera_minicache_sequences;

typedef struct tessera_minicache_usage {
  size_t size;
  int64_t used;             ///< bytes that the sequences use
  int64_t uncompressed;     ///< bytes of the same tokens in 16 bits an element
  int64_t reserved;         ///< all memory of the cache
  int64_t tokens;           ///< tokens of all sequences
  int64_t retained_tokens;  ///< tokens that are kept unmerged
} tessera_minicache_usage;

/// The bytes of the object, in host memory, and those of keys and values, where the executor runs.
TESSERA_C_API tessera_status tessera_minicache_bytes(tessera_executor const* executor,
                                                     tessera_minicache_shape const* shape, size_t* object_bytes,
                                                     size_t* bytes);
/// Opens an empty cache, and enqueues its preparation.
TESSERA_C_API tessera_status tessera_minicache_open(tessera_executor const* executor,
                                                    tessera_minicache_shape const* shape, tessera_memory object,
                                                    tessera_memory memory, tessera_minicache** cache);
/// Null is closed already. Work that is enqueued may still use the cache's memory.
TESSERA_C_API tessera_status tessera_minicache_close(tessera_minicache* cache);
/// The part that a layer belongs to. Layers and parts count from 0.
TESSERA_C_API tessera_status tessera_minicache_part_of(tessera_minicache const* cache, int32_t layer, int32_t* part);

/// The workspace of append() of at most so many tokens to each of so many sequences; with 0 tokens that of seal().
TESSERA_C_API tessera_status tessera_minicache_append_workspace(tessera_executor const* executor,
                                                                tessera_minicache const* cache, int64_t sequences,
                                                                int64_t tokens, size_t* bytes);
/// Appends tokens of all layers of a part. `keys`, `values`: a tensor of sequences x key heads x tokens x channels for
/// each layer of the part. `new_tokens`: i32, the new tokens of each sequence; null: all of them.
TESSERA_C_API tessera_status tessera_minicache_append(tessera_executor const* executor, tessera_minicache const* cache,
                                                      int32_t part, tessera_tensor const* keys,
                                                      tessera_tensor const* values,
                                                      tessera_minicache_sequences const* sequences,
                                                      tessera_tensor const* new_tokens, tessera_memory workspace);
/// Keeps new tokens of one layer as they are: at most 64 of a sequence before the next seal().
TESSERA_C_API tessera_status tessera_minicache_write(tessera_executor const* executor, tessera_minicache const* cache,
                                                     int32_t layer, tessera_tensor const* keys,
                                                     tessera_tensor const* values,
                                                     tessera_minicache_sequences const* sequences,
                                                     tessera_tensor const* new_tokens);
/// Compresses pages that are complete, of all layers of a part.
TESSERA_C_API tessera_status tessera_minicache_seal(tessera_executor const* executor, tessera_minicache const* cache,
                                                    int32_t part, tessera_minicache_sequences const* sequences,
                                                    tessera_memory workspace);
/// Counts pages that all layers have sealed in `pages`, i32, which holds the counts of the sequences.
TESSERA_C_API tessera_status tessera_minicache_advance(tessera_executor const* executor, tessera_minicache const* cache,
                                                       tessera_minicache_sequences const* sequences,
                                                       tessera_tensor const* pages, int64_t tokens);
TESSERA_C_API tessera_status tessera_minicache_attend_workspace(tessera_executor const* executor,
                                                                tessera_minicache const* cache,
                                                                tessera_tensor const* queries,
                                                                tessera_minicache_sequences const* sequences,
                                                                size_t* bytes);
/// Attends to a layer: queries and results of sequences x query heads x queries x channels. Options: the scale and
/// is_causal; null for defaults; a window is refused.
TESSERA_C_API tessera_status tessera_minicache_attend(tessera_executor const* executor, tessera_minicache const* cache,
                                                      int32_t layer, tessera_tensor const* queries,
                                                      tessera_minicache_sequences const* sequences,
                                                      tessera_attention_options const* options,
                                                      tessera_attention_outputs const* outputs,
                                                      tessera_memory workspace);
/// Prepares slots, i32, for new sequences.
TESSERA_C_API tessera_status tessera_minicache_reset(tessera_executor const* executor, tessera_minicache const* cache,
                                                     tessera_tensor const* slots);
/// Waits, and counts the bytes that sequences use.
TESSERA_C_API tessera_status tessera_minicache_count(tessera_executor const* executor, tessera_minicache const* cache,
                                                     tessera_minicache_sequences const* sequences,
                                                     tessera_minicache_usage* usage);

// ShadowKV: one layer's keys in few directions, its values in host memory (tessera/shadow_kv.hpp), of bf16.

typedef struct tessera_shadow_kv tessera_shadow_kv;

/// Which channels are turned together: i and i + n / 2, or 2 i and 2 i + 1.
enum { TESSERA_ROTARY_HALVES = 0, TESSERA_ROTARY_NEIGHBOURS = 1 };

typedef struct tessera_shadow_kv_shape {
  size_t size;
  int64_t query_heads;
  int64_t key_heads;         ///< divides query_heads, at most 16 of which share a key head
  int64_t channels;          ///< channels of a head, a multiple of 16 up to 256
  int64_t const* tokens;     ///< the tokens that each sequence has room for
  int64_t sequences;         ///< 1 or more, as many as `tokens` has elements
  int64_t chunks;            ///< chunks of 8 tokens that a head selects in a step
  int64_t slots;             ///< chunks of a head that stay on the device; 0: as many as are selected
  int32_t values_on_device;  ///< 1: values lie in the device's memory, too
  float softmax_scale;       ///< 0: 1 / sqrt(channels)
} tessera_shadow_kv_shape;
#define TESSERA_SHADOW_KV_SHAPE_INIT \
  { sizeof(tessera_shadow_kv_shape), 0, 0, 0, NULL, 0, 256, 0, 0, 0.0f }

typedef struct tessera_shadow_kv_sizes {
  size_t size;
  size_t object;   ///< of the object, in host memory
  size_t device;   ///< where the executor runs
  size_t host;     ///< host memory that the device reads: pinned for CUDA; 0 with values_on_device
  size_t prefill;  ///< the workspace of prefill()
  size_t decode;   ///< the workspace of decode()
} tessera_shadow_kv_sizes;

typedef struct tessera_shadow_kv_memory {
  size_t size;
  tessera_memory object;
  tessera_memory device;
  tessera_memory host;
  /// f32, where the executor runs: positions x pairs x (cosine, sine); missing: no channel is turned. With
  /// `block_rotations`, which are those of each 256th position, it has those of 256 positions. Both must stay there
  /// until the cache is closed.
  tessera_tensor rotations;
  tessera_tensor block_rotations;
  int32_t rotary_pairs;  ///< TESSERA_ROTARY_HALVES or TESSERA_ROTARY_NEIGHBOURS
  int32_t reserved;      ///< 0
  void* side_stream;     ///< for CUDA, another cudaStream_t of the caller's, best with high priority
} tessera_shadow_kv_memory;

/// Fills rotations, f32 in host memory: rows x pairs x (cosine, sine) of the positions 0, step, 2 step and so on, with
/// the frequency base^(-i / pairs) of pair i.
TESSERA_C_API tessera_status tessera_rotations(double base, int64_t step, tessera_tensor const* rotations);
TESSERA_C_API tessera_status tessera_shadow_kv_bytes(tessera_executor const* executor,
                                                     tessera_shadow_kv_shape const* shape,
                                                     tessera_shadow_kv_sizes* sizes);
/// Opens a cache; its sequences begin with prefill(). It must be closed before its executor and its side stream.
TESSERA_C_API tessera_status tessera_shadow_kv_open(tessera_executor const* executor,
                                                    tessera_shadow_kv_shape const* shape,
                                                    tessera_shadow_kv_memory const* memory, tessera_shadow_kv** cache);
/// Null is closed already. Work that is enqueued may still use the cache's memory.
TESSERA_C_API tessera_status tessera_shadow_kv_close(tessera_shadow_kv* cache);
/// Caches the prompt of a sequence, and forgets what it held: key heads x tokens x channels, keys before they are
/// turned. The executor's stream must be the one that the cache was opened with, as for decode().
TESSERA_C_API tessera_status tessera_shadow_kv_prefill(tessera_executor const* executor, tessera_shadow_kv const* cache,
                                                       int64_t sequence, tessera_tensor const* keys,
                                                       tessera_tensor const* values, tessera_memory workspace);
/// A step of each sequence: steps x heads x channels, before they are turned. `sequences`: i32, the sequence of each
/// step, -1 for none; null: step i is of sequence i. Outputs: steps x query heads (x channels).
TESSERA_C_API tessera_status tessera_shadow_kv_decode(tessera_executor const* executor, tessera_shadow_kv const* cache,
                                                      tessera_tensor const* queries, tessera_tensor const* keys,
                                                      tessera_tensor const* values, tessera_tensor const* sequences,
                                                      tessera_attention_outputs const* outputs,
                                                      tessera_memory workspace);
/// Waits; the part of the selected chunks that were in a slot already, 0 to 1; 0 if none were selected.
TESSERA_C_API tessera_status tessera_shadow_kv_hit_rate(tessera_executor const* executor,
                                                        tessera_shadow_kv const* cache, double* hit_rate);

#ifdef __cplusplus
}
#endif

#endif
