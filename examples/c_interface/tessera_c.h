// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The five algorithms for C, and for whatever calls C: C99, C++11 and later, Rust, Zig, Python's ctypes.
///
///     tessera_executor executor = TESSERA_EXECUTOR_INIT;           // the CPU; a stream of CUDA by two members
///     size_t bytes;
///     tessera_executor_bytes(&executor, &bytes);
///     tessera_executor_open(&executor, memory_of(bytes));          // memory_of: yours, gives a block of host memory
///     tessera_attention_workspace(&executor, &inputs, NULL, &bytes);
///     if (tessera_attention_forward(&executor, &inputs, NULL, &outputs, workspace_of(bytes)) != TESSERA_SUCCESS) {
///       puts(tessera_last_error());                                // workspace_of: yours, where the executor runs
///     }
///     tessera_wait(&executor);
///     tessera_executor_close(&executor);
///
/// Memory: the caller gives all of it. For each call there is a function that says how many bytes of workspace it
/// needs, from extents and types alone (data may be null there). Executors and caches lie in blocks of the caller's.
/// What a call takes from malloc for its own duration are lists of host memory: names and offsets of regions, and on
/// the CPU a program's scratch, up to 227 KiB for each thread. An open cache keeps some lists of about 100 bytes for
/// each layer or sequence there. No call allocates memory of a device, except that opening an executor of CUDA takes
/// two pages for reports of errors. Later calls on the same stream may use the same workspace, but a loss's backward
/// pass needs what its forward pass has left there.
///
/// Tensors: extents and strides in elements, of any strides that the function does not refuse. Data lie where the
/// executor runs, at a multiple of their element's size; a workspace, and the memory of a cache, at a multiple of 256.
/// Results may not overlap inputs. A structure and what it points to (lists of tokens, of parts) are read during the
/// call alone; data of tensors until the work is done.
///
/// Calls enqueue work and return; on the CPU the work is done then. tessera_wait() waits, and reports what programs
/// found: a label that is no entry of the vocabulary, a damaged stream. Functions that wait say so. Calls with a stream
/// that is being captured are recorded in its CUDA graph; those that wait are refused.
///
/// Errors: each function returns a status, and tessera_last_error() then has a sentence that names the function and
/// both values. Nothing is thrown to the caller. With an error from a call nothing has been enqueued, unless the status
/// is TESSERA_DEVICE_ERROR. A cache that could not be opened is null.
///
/// Determinism: the same bits each time on the same device. Compressed weights, and pages of MiniCache, have the same
/// bytes on every device; sums differ between devices by rounding.
///
/// Growth: structures begin with their size, which TESSERA_..._INIT sets with the defaults; those without such a macro
/// are zeros but for the size. A library that knows more members takes the defaults for those that are missing; one
/// that knows fewer refuses others than zeros. What breaks callers raises TESSERA_C_VERSION, and with it the number in
/// the shared library's name (libtessera_c.so.1): compare it with tessera_c_version() where a library is loaded at run
/// time. Take a status that you do not know for an error.
///
/// Threads: an executor may be used by several at once, as may a cache whose calls do not depend on each other. Opening
/// and closing are for one thread, while no other uses the object. Each thread has its own tessera_last_error().
#ifndef TESSERA_C_H
#define TESSERA_C_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#error "tessera_c.h has no export of symbols for Windows yet"
#else
#define TESSERA_C_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/// Grows when a function or a structure changes in a way that breaks callers; new functions and members do not.
#define TESSERA_C_VERSION 1

typedef enum tessera_status {
  TESSERA_SUCCESS = 0,
  TESSERA_NULL_POINTER = 1,   ///< a pointer that must be given is null
  TESSERA_WRONG_TYPE = 2,     ///< a tensor has another type of elements, or another number of dimensions
  TESSERA_SHAPE_ERROR = 3,    ///< extents, strides or sizes do not fit together; a workspace is too small
  TESSERA_VALUE_ERROR = 4,    ///< a value is outside of its range
  TESSERA_CORRUPT_DATA = 5,   ///< bytes that no encoder wrote
  TESSERA_DEVICE_ERROR = 6,   ///< a call of the CUDA runtime failed
  TESSERA_NOT_BUILT = 7,      ///< the library was built without this device, or without this type
  TESSERA_OUT_OF_MEMORY = 8,  ///< malloc has nothing left for a call's own lists
  TESSERA_OTHER_ERROR = 9
} tessera_status;

/// Devices: what tessera_executor::device holds.
enum { TESSERA_CPU = 0, TESSERA_CUDA = 1 };

/// Types of elements: what tessera_tensor::type holds.
enum { TESSERA_F32 = 0, TESSERA_F16 = 1, TESSERA_BF16 = 2, TESSERA_I32 = 3, TESSERA_I64 = 4 };

enum { TESSERA_MOST_DIMENSIONS = 4 };

/// Elements in memory. A tensor that is not given has null data and rank 0.
typedef struct tessera_tensor {
  void* data;
  int32_t type;
  int32_t rank;
  int64_t extents[TESSERA_MOST_DIMENSIONS];
  int64_t strides[TESSERA_MOST_DIMENSIONS];  ///< in elements
} tessera_tensor;

/// A block of memory.
typedef struct tessera_memory {
  void* data;
  size_t bytes;
} tessera_memory;

/// Where calls run.
typedef struct tessera_executor {
  size_t size;
  /// TESSERA_CPU or TESSERA_CUDA: the device that is current when the executor is opened; any may be later.
  int32_t device;
  int32_t threads;  ///< threads of the CPU, with the caller's; 0: as many as there are processors
  void* stream;     ///< a cudaStream_t of the caller's, who may change it between calls; null: the default stream
  void* state;      ///< set by tessera_executor_open()
} tessera_executor;
#define TESSERA_EXECUTOR_INIT \
  { sizeof(tessera_executor), TESSERA_CPU, 0, NULL, NULL }

/// The version that the library was built as, TESSERA_C_VERSION.
TESSERA_C_API int32_t tessera_c_version(void);
/// 1 if the library was built for a device (TESSERA_CPU or TESSERA_CUDA), else 0.
TESSERA_C_API int32_t tessera_has_device(int32_t device);
/// What went wrong in the last call of this thread that failed; "" if none did. Valid until the next one fails.
TESSERA_C_API char const* tessera_last_error(void);
/// The name of a status, such as "TESSERA_SHAPE_ERROR".
TESSERA_C_API char const* tessera_status_name(int32_t status);

/// The bytes of host memory that an executor lies in.
TESSERA_C_API tessera_status tessera_executor_bytes(tessera_executor const* executor, size_t* bytes);
/// Opens an executor in host memory, which stays the executor's until it is closed. Threads start when they are needed.
TESSERA_C_API tessera_status tessera_executor_open(tessera_executor* executor, tessera_memory memory);
/// Ends the executor's threads. Does nothing for one that is not open. Work that is enqueued must be done.
TESSERA_C_API tessera_status tessera_executor_close(tessera_executor* executor);
/// Waits for the executor's stream, and reports what programs found since the last call.
TESSERA_C_API tessera_status tessera_wait(tessera_executor const* executor);

// NeuZip: compressed weights (tessera/neuzip.hpp). Streams have the same bytes on every device.

typedef struct tessera_weights_options {
  size_t size;
  int32_t type;              ///< TESSERA_BF16, TESSERA_F16 or TESSERA_F32
  int32_t mantissa_bits;     ///< mantissa bits that are kept; -1: all; bf16 can keep 3
  int32_t block;             ///< weights of a block: 1024, 2048, 4096 or 8192
  int32_t checksums;         ///< 1: every block has a checksum, for files; 0: none
  int32_t normalizer_block;  ///< where bits are dropped, weights that share a factor: 32 to 1024, a power of 2; 0: none
} tessera_weights_options;
#define TESSERA_WEIGHTS_OPTIONS_INIT \
  { sizeof(tessera_weights_options), TESSERA_BF16, -1, 8192, 0, 0 }

/// The most bytes of a stream of so many weights.
TESSERA_C_API tessera_status tessera_weights_largest_bytes(tessera_weights_options const* options, int64_t count,
                                                           size_t* bytes);
TESSERA_C_API tessera_status tessera_weights_encode_workspace(tessera_executor const* executor,
                                                              tessera_weights_options const* options, int64_t count,
                                                              size_t* bytes);
/// Encodes weights, which lie one behind the other (strides of row-major order), to `stream`. `stream_bytes`: where the
/// executor runs, the size of the stream. A stream that does not fit is reported by tessera_wait().
TESSERA_C_API tessera_status tessera_weights_encode(tessera_executor const* executor,
                                                    tessera_weights_options const* options,
                                                    tessera_tensor const* weights, tessera_memory stream,
                                                    int64_t* stream_bytes, tessera_memory workspace);
/// Reads the header of a stream in host memory, whose first 64 bytes are enough if `stream.bytes` is that of all: sets
/// the options that decode it, the number of weights, and the stream's bytes.
TESSERA_C_API tessera_status tessera_weights_inspect(tessera_memory stream, tessera_weights_options* options,
                                                     int64_t* count, int64_t* stream_bytes);
TESSERA_C_API tessera_status tessera_weights_decode_workspace(tessera_executor const* executor,
                                                              tessera_weights_options const* options, int64_t count,
                                                              size_t* bytes);
/// Decodes a stream that was encoded with these options, as tessera_weights_inspect() tells them. tessera_wait()
/// reports one that is damaged; without checksums a damaged sign or mantissa may be another weight and no error.
TESSERA_C_API tessera_status tessera_weights_decode(tessera_executor const* executor,
                                                    tessera_weights_options const* options, tessera_memory stream,
                                                    tessera_tensor const* weights, tessera_memory workspace);

// Cut Cross-Entropy: the loss of a classifier without its logits in memory (tessera/cut_cross_entropy.hpp).

/// How the losses of tokens are reduced.
enum { TESSERA_LOSS_NONE = 0, TESSERA_LOSS_SUM = 1, TESSERA_LOSS_MEAN = 2 };

typedef struct tessera_loss_options {
  size_t size;
  int32_t reduction;     ///< TESSERA_LOSS_NONE, _SUM, or _MEAN over the tokens with a label, by their weights
  int32_t exact;         ///< 1: gradients leave nothing out; 0: they leave out what the thresholds below say
  int64_t ignore_index;  ///< tokens with this label do not count
  int64_t shift;         ///< token t of a sequence has label t + shift, and the last ones none; 0 or more
  int64_t sequence;      ///< tokens of a sequence, of which there is a whole number; 0: all tokens are one
  float softcap;         ///< logits become softcap * tanh(logit / softcap); 0: no softcap
  float temperature;     ///< what logits are divided by after the cap; above 0
  float smoothing;       ///< label smoothing: the probability that is spread over the vocabulary, 0 to 1
  float z_factor;        ///< factor of the squared log-sum-exp, which is added to the loss
  /// Blocks of 128 tokens x 128 entries whose probabilities all differ by less than this from the targets are left out
  /// of the gradient of hidden states; 0: none; -1: the type's own threshold: 2^-12 for bf16, 2^-15 for f16, 2^-28 for
  /// f32.
  float hidden_threshold;
  float classifier_threshold;  ///< the same for the gradient of the classifier
  int64_t workspace_budget;    ///< the most bytes of a workspace for gradients; 0: about 160 MiB
} tessera_loss_options;
#define TESSERA_LOSS_OPTIONS_INIT \
  { sizeof(tessera_loss_options), TESSERA_LOSS_MEAN, 0, -100, 0, 0, 0.0f, 1.0f, 0.0f, 0.0f, -1.0f, -1.0f, 0 }

typedef struct tessera_loss_inputs {
  size_t size;
  tessera_tensor hidden;         ///< tokens x channels; bf16, f16 or f32, which the next and the bias are, too
  tessera_tensor classifier;     ///< vocabulary x channels
  tessera_tensor labels;         ///< i32 or i64 for each token: an entry of the vocabulary, or ignore_index
  tessera_tensor bias;           ///< for each entry of the vocabulary; may be missing, as may what follows
  tessera_tensor weights;        ///< f32: for each token; missing: ones
  tessera_tensor class_weights;  ///< f32: for each entry of the vocabulary, of tokens with this label; missing: ones
} tessera_loss_inputs;

/// Logarithms are natural. Tokens without a label get zeros and the prediction -1; those whose label is no entry of the
/// vocabulary get NaN, as does the reduced loss, and tessera_wait() reports them.
typedef struct tessera_loss_outputs {
  size_t size;
  tessera_tensor loss;             ///< f32: one element, or one for each token with TESSERA_LOSS_NONE
  tessera_tensor log_sum_exp;      ///< f32, for each token: of its logits; may be missing, as may what follows
  tessera_tensor log_probability;  ///< f32, for each token: that of its label
  tessera_tensor entropy;          ///< f32, for each token: that of its probabilities
  tessera_tensor prediction;       ///< i32, for each token: its likeliest entry, of equal ones the first
  tessera_tensor accuracy;         ///< f32, one element: the part of labelled tokens whose prediction is their label
  tessera_tensor labelled_count;   ///< i64, one element: the tokens with a label
} tessera_loss_outputs;

typedef struct tessera_loss_gradients {
  size_t size;
  // Gradients to write: f32, or all of the type of the hidden states; each may be missing.
  tessera_tensor hidden;      ///< tokens x channels
  tessera_tensor classifier;  ///< vocabulary x channels
  tessera_tensor bias;        ///< for each entry of the vocabulary
  // Upstream gradients, f32, where the executor runs; missing: 1 for losses, else 0.
  tessera_tensor of_loss;         ///< one element, or one for each token with TESSERA_LOSS_NONE
  tessera_tensor of_log_sum_exp;  ///< for each token
  tessera_tensor of_entropy;      ///< for each token
  int32_t accumulate_hidden;      ///< 1: adds to what the gradient, of f32, holds; 0: overwrites it
  int32_t accumulate_classifier;  ///< the same for the classifier's
  int32_t accumulate_bias;        ///< the same for the bias's
  int32_t reserved;               ///< 0
} tessera_loss_gradients;

/// The workspace of a forward pass, or, with `gradients`, of both passes, which use the same one.
TESSERA_C_API tessera_status tessera_loss_workspace(tessera_executor const* executor, tessera_loss_inputs const* inputs,
                                                    tessera_loss_options const* options,
                                                    tessera_loss_gradients const* gradients, size_t* bytes);
/// `options` may be null everywhere.
TESSERA_C_API tessera_status tessera_loss_forward(tessera_executor const* executor, tessera_loss_inputs const* inputs,
                                                  tessera_loss_options const* options,
                                                  tessera_loss_outputs const* outputs, tessera_memory workspace);
/// Needs the workspace of a forward pass of the same inputs and options, which it uses up. With another one gradients
/// are NaN, and tessera_wait() says what differs.
TESSERA_C_API tessera_status tessera_loss_backward(tessera_executor const* executor, tessera_loss_inputs const* inputs,
                                                   tessera_loss_options const* options,
                                                   tessera_loss_gradients const* gradients, tessera_memory workspace);

// SageAttention2: attention in 8 bits (tessera/sage_attention2.hpp).

typedef struct tessera_attention_options {
  size_t size;
  float softmax_scale;   ///< what scores are multiplied by; 0: 1 / sqrt(channels)
  int32_t is_causal;     ///< 1: a query sees no key after its own; the last query's own is the last key; 0: all keys
  int64_t window_left;   ///< keys before its own that a query sees; -1: all
  int64_t window_right;  ///< keys after its own that a query sees; -1: all
} tessera_attention_options;
#define TESSERA_ATTENTION_OPTIONS_INIT \
  { sizeof(tessera_attention_options), 0.0f, 0, -1, -1 }

/// Heads have a multiple of 16 channels up to 256, for queries and keys the same number. Tokens beyond the length of a
/// sequence are never read.
typedef struct tessera_attention_inputs {
  size_t size;
  tessera_tensor queries;        ///< batch x query heads x queries x channels; bf16, f16 or f32, as keys and values
  tessera_tensor keys;           ///< batch x key heads x keys x channels; key heads divide the query heads
  tessera_tensor values;         ///< batch x key heads x keys x channels of values
  tessera_tensor query_lengths;  ///< i32, for each sequence; may be missing, as may what follows
  tessera_tensor key_lengths;    ///< i32, for each sequence
  tessera_tensor sinks;          ///< f32, for each query head: a score that takes weight and has no value
} tessera_attention_inputs;

/// A query without keys gets zeros, and a log-sum-exp of minus infinity.
typedef struct tessera_attention_outputs {
  size_t size;
  tessera_tensor result;       ///< batch x query heads x queries x channels of values, of the type of the queries
  tessera_tensor log_sum_exp;  ///< f32: batch x query heads x queries: the natural logarithm of the sum of exp(scores)
} tessera_attention_outputs;

TESSERA_C_API tessera_status tessera_attention_workspace(tessera_executor const* executor,
                                                         tessera_attention_inputs const* inputs,
                                                         tessera_attention_options const* options, size_t* bytes);
/// `options` may be null, as for the workspace; log_sum_exp may be missing.
TESSERA_C_API tessera_status tessera_attention_forward(tessera_executor const* executor,
                                                       tessera_attention_inputs const* inputs,
                                                       tessera_attention_options const* options,
                                                       tessera_attention_outputs const* outputs,
                                                       tessera_memory workspace);

#ifdef __cplusplus
}
#endif

#include "tessera_c_caches.h"

#endif
