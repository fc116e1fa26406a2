// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What calls refuse, from C99: each error has its status, and a sentence that names the function and both values.
#include "program.h"

static int checked = 0;
static int failures = 0;

/// Checks that a call was refused with this status, in a text with these parts.
static void refused(int line, tessera_status status, tessera_status expected, char const* function, char const* part) {
  char const* const text = tessera_last_error();
  size_t const length = strlen(function);
  int const is_named = strncmp(text, function, length) == 0 && text[length] == ':';
  ++checked;
  if (status != expected || !is_named || strstr(text, part) == NULL) {
    printf("errors.c:%d: %s, \"%s\"; expected %s, \"%s: ...%s...\"\n", line, tessera_status_name(status), text,
           tessera_status_name(expected), function, part);
    ++failures;
  }
}
#define REFUSED(status, function, part, ...) refused(__LINE__, function(__VA_ARGS__), status, #function, part)

static tessera_memory const nothing = {NULL, 0};

static void executors(void) {
  tessera_executor executor = TESSERA_EXECUTOR_INIT;
  tessera_executor copy = TESSERA_EXECUTOR_INIT;
  tessera_memory memory;
  size_t bytes = 0;
  int other = 0;
  need(tessera_executor_bytes(&executor, &bytes));
  memory = host_block_of(bytes);
  REFUSED(TESSERA_NULL_POINTER, tessera_executor_bytes, "executor is null", NULL, &bytes);
  REFUSED(TESSERA_NULL_POINTER, tessera_executor_bytes, "bytes is null", &executor, NULL);
  REFUSED(TESSERA_NULL_POINTER, tessera_executor_open, "is null", &executor, nothing);
  REFUSED(TESSERA_NULL_POINTER, tessera_wait, "state is null", &executor);
  memory.bytes = bytes - 1;
  REFUSED(TESSERA_SHAPE_ERROR, tessera_executor_open, "bytes but needs", &executor, memory);
  memory.bytes = bytes;
  executor.size = 8;
  REFUSED(TESSERA_VALUE_ERROR, tessera_executor_open, "says that it has 8 bytes", &executor, memory);
  executor.size = SIZE_MAX;
  REFUSED(TESSERA_VALUE_ERROR, tessera_executor_open, "at most 4096 can be", &executor, memory);
  executor.size = sizeof(executor);
  executor.threads = -2;
  REFUSED(TESSERA_VALUE_ERROR, tessera_executor_open, "-2 threads", &executor, memory);
  executor.threads = 1;
  executor.device = 7;
  REFUSED(TESSERA_VALUE_ERROR, tessera_executor_open, "device is 7 but must be 0", &executor, memory);
  executor.device = TESSERA_CUDA;
  if (!tessera_has_device(TESSERA_CUDA)) {
    REFUSED(TESSERA_NOT_BUILT, tessera_executor_open, "was built for 0 (the CPU) alone", &executor, memory);
  }
  executor.device = TESSERA_CPU;
  executor.stream = &other;
  REFUSED(TESSERA_VALUE_ERROR, tessera_executor_open, "stream is not null", &executor, memory);
  executor.stream = NULL;
  need(tessera_executor_open(&executor, memory));
  need(tessera_wait(&executor));
  REFUSED(TESSERA_VALUE_ERROR, tessera_executor_open, "state is not null", &executor, memory);
  executor.stream = &other;
  REFUSED(TESSERA_VALUE_ERROR, tessera_wait, "stream is not null", &executor);
  executor.stream = (void*)(intptr_t)-1;
  REFUSED(TESSERA_VALUE_ERROR, tessera_wait, "stream is not null", &executor);
  executor.stream = NULL;
  copy = executor;
  need(tessera_executor_close(&executor));
  need(tessera_executor_close(&executor));
  REFUSED(TESSERA_VALUE_ERROR, tessera_wait, "not closed", &copy);
  REFUSED(TESSERA_NULL_POINTER, tessera_wait, "state is null", &executor);
}

static void weights(tessera_executor const* executor) {
  tessera_weights_options options = TESSERA_WEIGHTS_OPTIONS_INIT;
  tessera_tensor list = tensor_of(TESSERA_BF16, 2, 3, 1000, 0, 0);
  tessera_memory stream;
  tessera_memory space;
  tessera_tensor const size = tensor_of(TESSERA_I64, 1, 1, 0, 0, 0);
  int64_t* const stream_bytes = (int64_t*)size.data;
  int64_t count = 0;
  size_t bytes = 0;
  fill_bf16(&list, 1);
  need(tessera_weights_largest_bytes(&options, 3000, &bytes));
  stream = shared_block_of(bytes);
  need(tessera_weights_encode_workspace(executor, &options, 3000, &bytes));
  space = block_of(bytes);
  REFUSED(TESSERA_SHAPE_ERROR, tessera_weights_largest_bytes, "-1", &options, -1, &bytes);
  REFUSED(TESSERA_NULL_POINTER, tessera_weights_encode, "weights is null", executor, &options, NULL, stream,
          stream_bytes, space);
  REFUSED(TESSERA_NULL_POINTER, tessera_weights_encode, "stream_bytes is null", executor, &options, &list, stream, NULL,
          space);
  REFUSED(TESSERA_VALUE_ERROR, tessera_weights_encode, "stream_bytes is 1 bytes past a multiple of 8", executor,
          &options, &list, stream, (int64_t*)(void*)((char*)size.data + 1), space);
  REFUSED(TESSERA_NULL_POINTER, tessera_weights_encode, "executor is null", NULL, &options, &list, stream, stream_bytes,
          space);
  space.bytes -= 1;
  REFUSED(TESSERA_SHAPE_ERROR, tessera_weights_encode, "but the plan needs", executor, &options, &list, stream,
          stream_bytes, space);
  space.bytes += 1;
  space.data = NULL;
  REFUSED(TESSERA_NULL_POINTER, tessera_weights_encode, "workspace is null but has", executor, &options, &list, stream,
          stream_bytes, space);
  space = block_of(bytes);
  list.strides[1] = 2;
  REFUSED(TESSERA_SHAPE_ERROR, tessera_weights_encode, "stride of 2 but must have 1", executor, &options, &list, stream,
          stream_bytes, space);
  list.strides[1] = 1;
  list.rank = 5;
  REFUSED(TESSERA_WRONG_TYPE, tessera_weights_encode, "5 dimensions but must have at most 4", executor, &options, &list,
          stream, stream_bytes, space);
  list.rank = -1;
  REFUSED(TESSERA_WRONG_TYPE, tessera_weights_encode, "-1 dimensions", executor, &options, &list, stream, stream_bytes,
          space);
  list.rank = 2;
  list.type = TESSERA_F16;
  REFUSED(TESSERA_WRONG_TYPE, tessera_weights_encode, "1 (f16) but must be of type 2 (bf16)", executor, &options, &list,
          stream, stream_bytes, space);
  list.type = TESSERA_BF16;
  list.extents[0] = INT64_MAX;
  REFUSED(TESSERA_SHAPE_ERROR, tessera_weights_encode, "which no memory has", executor, &options, &list, stream,
          stream_bytes, space);
  list.extents[0] = 3;
  list.data = (char*)list.data + 1;
  REFUSED(TESSERA_VALUE_ERROR, tessera_weights_encode, "1 bytes past a multiple of 2", executor, &options, &list,
          stream, stream_bytes, space);
  list.data = (char*)list.data - 1;
  options.type = TESSERA_I64;
  REFUSED(TESSERA_WRONG_TYPE, tessera_weights_encode, "type 4 (i64)", executor, &options, &list, stream, stream_bytes,
          space);
  options.type = TESSERA_BF16;
  options.mantissa_bits = 5;
  REFUSED(TESSERA_NOT_BUILT, tessera_weights_encode, "keep 5 mantissa bits", executor, &options, &list, stream,
          stream_bytes, space);
  options.mantissa_bits = -1;
  options.block = 1000;
  REFUSED(TESSERA_VALUE_ERROR, tessera_weights_encode, "blocks have 1000 weights", executor, &options, &list, stream,
          stream_bytes, space);
  options.block = 8192;
  options.checksums = 2;
  REFUSED(TESSERA_VALUE_ERROR, tessera_weights_encode, "checksums is 2", executor, &options, &list, stream,
          stream_bytes, space);
  options.checksums = 1;
  need(tessera_weights_encode(executor, &options, &list, stream, stream_bytes, space));
  need(tessera_wait(executor));
  REFUSED(TESSERA_CORRUPT_DATA, tessera_weights_inspect, "the stream has 0 bytes", nothing, &options, &count,
          stream_bytes);
  ((unsigned char*)stream.data)[*stream_bytes - 1] ^= 1;
  ((unsigned char*)stream.data)[*stream_bytes / 2] ^= 1;
  need(tessera_weights_decode_workspace(executor, &options, 3000, &bytes));
  need(tessera_weights_decode(executor, &options, stream, &list, block_of(bytes)));
  REFUSED(TESSERA_CORRUPT_DATA, tessera_wait, "compressed_weights.decode", executor);
  need(tessera_wait(executor));  // it is reported once
  ((unsigned char*)stream.data)[0] ^= 1;
  REFUSED(TESSERA_CORRUPT_DATA, tessera_weights_inspect, "the stream starts with", stream, &options, &count,
          stream_bytes);
}

static void loss(tessera_executor const* executor) {
  tessera_loss_options options = TESSERA_LOSS_OPTIONS_INIT;
  tessera_loss_inputs inputs = {.size = sizeof(tessera_loss_inputs)};
  tessera_loss_outputs outputs = {.size = sizeof(tessera_loss_outputs)};
  tessera_loss_gradients gradients = {.size = sizeof(tessera_loss_gradients)};
  tessera_memory space;
  tessera_memory small;
  size_t bytes = 0;
  struct {
    tessera_loss_options options;
    int32_t unknown[2];
  } later = {TESSERA_LOSS_OPTIONS_INIT, {0, 0}};
  inputs.hidden = tensor_of(TESSERA_BF16, 2, 5, 32, 0, 0);
  inputs.classifier = tensor_of(TESSERA_BF16, 2, 9, 32, 0, 0);
  inputs.labels = tensor_of(TESSERA_I64, 1, 5, 0, 0, 0);
  outputs.loss = tensor_of(TESSERA_F32, 1, 1, 0, 0, 0);
  gradients.hidden = tensor_of(TESSERA_F32, 2, 5, 32, 0, 0);
  need(tessera_loss_workspace(executor, &inputs, NULL, &gradients, &bytes));
  space = block_of(bytes);
  need(tessera_loss_workspace(executor, &inputs, NULL, NULL, &bytes));
  small = block_of(bytes);
  REFUSED(TESSERA_NULL_POINTER, tessera_loss_forward, "inputs is null", executor, NULL, NULL, &outputs, space);
  REFUSED(TESSERA_NULL_POINTER, tessera_loss_forward, "outputs is null", executor, &inputs, NULL, NULL, space);
  REFUSED(TESSERA_NULL_POINTER, tessera_loss_backward, "gradients is null", executor, &inputs, NULL, NULL, space);
  REFUSED(TESSERA_SHAPE_ERROR, tessera_loss_forward, "the workspace has 0 bytes", executor, &inputs, NULL, &outputs,
          nothing);
  inputs.labels.type = TESSERA_F32;
  REFUSED(TESSERA_WRONG_TYPE, tessera_loss_forward, "labels are of type 0 (f32)", executor, &inputs, NULL, &outputs,
          space);
  inputs.labels.type = TESSERA_I64;
  inputs.labels.extents[0] = 4;
  REFUSED(TESSERA_SHAPE_ERROR, tessera_loss_forward, "there are 4 labels but 5 tokens", executor, &inputs, NULL,
          &outputs, space);
  inputs.labels.extents[0] = 5;
  inputs.classifier.extents[1] = 31;
  REFUSED(TESSERA_SHAPE_ERROR, tessera_loss_forward, "32 channels but the classifier has 31", executor, &inputs, NULL,
          &outputs, space);
  inputs.classifier.extents[1] = 32;
  inputs.classifier.type = TESSERA_F32;
  REFUSED(TESSERA_WRONG_TYPE, tessera_loss_workspace, "rows of the classifier are of type 0 (f32)", executor, &inputs,
          NULL, NULL, &bytes);
  inputs.classifier.type = TESSERA_BF16;
  outputs.loss.data = NULL;
  REFUSED(TESSERA_NULL_POINTER, tessera_loss_forward, "losses have no memory but 1 elements", executor, &inputs, NULL,
          &outputs, space);
  outputs.loss = tensor_of(TESSERA_F32, 1, 1, 0, 0, 0);
  options.temperature = 0;
  REFUSED(TESSERA_VALUE_ERROR, tessera_loss_forward, "temperature is 0", executor, &inputs, &options, &outputs, space);
  options.temperature = 1;
  options.softcap = NAN;
  REFUSED(TESSERA_VALUE_ERROR, tessera_loss_forward, "softcap is", executor, &inputs, &options, &outputs, space);
  options.softcap = 0;
  options.reduction = 3;
  REFUSED(TESSERA_VALUE_ERROR, tessera_loss_forward, "reduction is 3 but must be from 0 to 2", executor, &inputs,
          &options, &outputs, space);
  later.options.size = sizeof(later);
  need(tessera_loss_forward(executor, &inputs, &later.options, &outputs, space));
  later.unknown[1] = 1;
  REFUSED(TESSERA_VALUE_ERROR, tessera_loss_forward, "the others are not zeros", executor, &inputs, &later.options,
          &outputs, space);
  gradients.hidden.type = TESSERA_I32;
  REFUSED(TESSERA_WRONG_TYPE, tessera_loss_backward, "gradients are of type 3 (i32)", executor, &inputs, NULL,
          &gradients, space);
  gradients.hidden.type = TESSERA_F32;
  gradients.accumulate_bias = -1;
  REFUSED(TESSERA_VALUE_ERROR, tessera_loss_backward, "accumulate_bias is -1", executor, &inputs, NULL, &gradients,
          space);
  gradients.accumulate_bias = 0;
  REFUSED(TESSERA_SHAPE_ERROR, tessera_loss_backward, "but the plan needs", executor, &inputs, NULL, &gradients, small);
  ((int64_t*)inputs.labels.data)[3] = 9;
  need(tessera_loss_forward(executor, &inputs, NULL, &outputs, space));
  REFUSED(TESSERA_VALUE_ERROR, tessera_wait, "label 9 of token 3 is no entry of 9", executor);
  ((int64_t*)inputs.labels.data)[3] = 0;
  // Without a forward pass:
  need(tessera_loss_backward(executor, &inputs, NULL, &gradients, block_of(space.bytes)));
  REFUSED(TESSERA_VALUE_ERROR, tessera_wait, "linear_loss.backward", executor);
}

static void attention(tessera_executor const* executor) {
  tessera_attention_options options = TESSERA_ATTENTION_OPTIONS_INIT;
  tessera_attention_inputs inputs = {.size = sizeof(tessera_attention_inputs)};
  tessera_attention_outputs outputs = {.size = sizeof(tessera_attention_outputs)};
  tessera_memory space;
  size_t bytes = 0;
  inputs.queries = tensor_of(TESSERA_F16, 4, 1, 3, 4, 64);
  inputs.keys = tensor_of(TESSERA_F16, 4, 1, 1, 4, 64);
  inputs.values = tensor_of(TESSERA_F16, 4, 1, 1, 4, 64);
  outputs.result = tensor_of(TESSERA_F16, 4, 1, 3, 4, 64);
  need(tessera_attention_workspace(executor, &inputs, NULL, &bytes));
  space = block_of(bytes);
  need(tessera_attention_forward(executor, &inputs, NULL, &outputs, space));
  inputs.keys.extents[1] = inputs.values.extents[1] = 2;
  REFUSED(TESSERA_SHAPE_ERROR, tessera_attention_workspace, "3", executor, &inputs, NULL, &bytes);
  inputs.keys.extents[1] = inputs.values.extents[1] = 1;
  inputs.values.type = TESSERA_BF16;
  REFUSED(TESSERA_WRONG_TYPE, tessera_attention_forward, "values are of type 2 (bf16) but must be of type 1 (f16)",
          executor, &inputs, NULL, &outputs, space);
  inputs.values.type = TESSERA_F16;
  inputs.queries.rank = 3;
  REFUSED(TESSERA_WRONG_TYPE, tessera_attention_forward, "queries have 3 dimensions but must have 4", executor, &inputs,
          NULL, &outputs, space);
  inputs.queries.rank = 4;
  outputs.result.extents[2] = 3;
  REFUSED(TESSERA_SHAPE_ERROR, tessera_attention_forward, "result", executor, &inputs, NULL, &outputs, space);
  outputs.result.extents[2] = 4;
  outputs.result.strides[3] = 0;
  REFUSED(TESSERA_SHAPE_ERROR, tessera_attention_forward, "stride of 0", executor, &inputs, NULL, &outputs, space);
  outputs.result.strides[3] = 1;
  options.is_causal = 7;
  REFUSED(TESSERA_VALUE_ERROR, tessera_attention_forward, "is_causal is 7", executor, &inputs, &options, &outputs,
          space);
  options.is_causal = 0;
  options.softmax_scale = -1;
  REFUSED(TESSERA_VALUE_ERROR, tessera_attention_forward, "scale of the softmax", executor, &inputs, &options, &outputs,
          space);
  space.data = (char*)space.data + 16;
  REFUSED(TESSERA_SHAPE_ERROR, tessera_attention_forward, "16 bytes past a multiple of 256", executor, &inputs, NULL,
          &outputs, space);
}

static void minicache(tessera_executor const* executor) {
  int32_t parts[2] = {2, 3};
  tessera_minicache_shape shape = TESSERA_MINICACHE_SHAPE_INIT;
  tessera_minicache_sequences sequences = {.size = sizeof(tessera_minicache_sequences)};
  tessera_minicache_usage usage = {.size = sizeof(tessera_minicache_usage)};
  tessera_minicache* cache = NULL;
  tessera_minicache* closed = NULL;
  tessera_tensor heads[2];
  tessera_memory object;
  tessera_memory memory;
  size_t object_bytes = 0;
  size_t bytes = 0;
  int32_t part = 0;
  shape.slots = 1;
  shape.tokens = 256;
  shape.blocks = 4;
  shape.heads = 1;
  shape.channels = 64;
  shape.parts = parts;
  shape.part_count = 2;
  heads[0] = heads[1] = tensor_of(TESSERA_BF16, 4, 1, 1, 8, 64);
  sequences.blocks = tensor_of(TESSERA_I32, 2, 1, 4, 0, 0);
  sequences.lengths = tensor_of(TESSERA_I32, 1, 1, 0, 0, 0);
  REFUSED(TESSERA_VALUE_ERROR, tessera_minicache_bytes, "part 1 has 3 layers", executor, &shape, &object_bytes, &bytes);
  parts[1] = 1;
  shape.part_count = -1;
  REFUSED(TESSERA_SHAPE_ERROR, tessera_minicache_bytes, "there are -1 parts", executor, &shape, &object_bytes, &bytes);
  shape.part_count = 2;
  shape.channels = 20;
  REFUSED(TESSERA_SHAPE_ERROR, tessera_minicache_bytes, "heads have 20 channels", executor, &shape, &object_bytes,
          &bytes);
  shape.channels = 64;
  need(tessera_minicache_bytes(executor, &shape, &object_bytes, &bytes));
  object = host_block_of(object_bytes);
  memory = block_of(bytes);
  REFUSED(TESSERA_NULL_POINTER, tessera_minicache_open, "object's memory is null", executor, &shape, nothing, memory,
          &cache);
  REFUSED(TESSERA_SHAPE_ERROR, tessera_minicache_open, "the workspace has 0 bytes", executor, &shape, object, nothing,
          &cache);
  REFUSED(TESSERA_NULL_POINTER, tessera_minicache_part_of, "cache is null", cache, 0, &part);
  need(tessera_minicache_open(executor, &shape, object, memory, &cache));
  REFUSED(TESSERA_VALUE_ERROR, tessera_minicache_part_of, "layer 3 is none of 3", cache, 3, &part);
  REFUSED(TESSERA_VALUE_ERROR, tessera_minicache_append, "part -1 is none of 2", executor, cache, -1, heads, heads,
          &sequences, NULL, nothing);
  REFUSED(TESSERA_NULL_POINTER, tessera_minicache_append, "keys is null", executor, cache, 0, NULL, heads, &sequences,
          NULL, nothing);
  REFUSED(TESSERA_SHAPE_ERROR, tessera_minicache_append, "the workspace has 0 bytes", executor, cache, 0, heads, heads,
          &sequences, NULL, nothing);
  REFUSED(TESSERA_VALUE_ERROR, tessera_minicache_advance, "0 new tokens", executor, cache, &sequences,
          &sequences.lengths, 0);
  REFUSED(TESSERA_VALUE_ERROR, tessera_minicache_seal, "counts of sealed pages are null", executor, cache, 0,
          &sequences, block_of(1 << 20));
  ((int32_t*)sequences.lengths.data)[0] = 1000;
  need(tessera_minicache_write(executor, cache, 0, &heads[0], &heads[0], &sequences, NULL));
  REFUSED(TESSERA_VALUE_ERROR, tessera_wait, "cross_layer_cache.write", executor);
  ((int32_t*)sequences.lengths.data)[0] = 8;
  usage.size = 1;
  REFUSED(TESSERA_VALUE_ERROR, tessera_minicache_count, "usage says that it has 1 bytes", executor, cache, &sequences,
          &usage);
  closed = cache;
  need(tessera_minicache_close(cache));
  need(tessera_minicache_close(NULL));
  REFUSED(TESSERA_VALUE_ERROR, tessera_minicache_part_of, "not closed", closed, 0, &part);
}

static void shadow_kv(tessera_executor const* executor) {
  int64_t const rooms[2] = {256, -1};
  tessera_shadow_kv_shape shape = TESSERA_SHADOW_KV_SHAPE_INIT;
  tessera_shadow_kv_sizes sizes = {.size = sizeof(tessera_shadow_kv_sizes)};
  tessera_shadow_kv_memory memory = {.size = sizeof(tessera_shadow_kv_memory)};
  tessera_attention_outputs outputs = {.size = sizeof(tessera_attention_outputs)};
  tessera_shadow_kv* cache = NULL;
  tessera_tensor heads = tensor_of(TESSERA_BF16, 3, 1, 300, 64, 0);
  tessera_tensor step = tensor_of(TESSERA_BF16, 3, 1, 1, 64, 0);
  tessera_tensor numbers;
#if defined(PROGRAM_USES_CUDA)
  tessera_executor other = *executor;
#endif
  shape.query_heads = 1;
  shape.key_heads = 1;
  shape.channels = 64;
  shape.tokens = rooms;
  shape.sequences = 2;
  REFUSED(TESSERA_SHAPE_ERROR, tessera_shadow_kv_bytes, "room for -1 tokens", executor, &shape, &sizes);
  shape.sequences = 0;
  REFUSED(TESSERA_SHAPE_ERROR, tessera_shadow_kv_bytes, "0 sequences", executor, &shape, &sizes);
  shape.sequences = 1;
  shape.chunks = -1;
  REFUSED(TESSERA_VALUE_ERROR, tessera_shadow_kv_bytes, "-1 chunks", executor, &shape, &sizes);
  shape.chunks = 8;
  need(tessera_shadow_kv_bytes(executor, &shape, &sizes));
  memory.object = host_block_of(sizes.object);
  memory.device = block_of(sizes.device);
  REFUSED(TESSERA_SHAPE_ERROR, tessera_shadow_kv_open, "has 0 bytes", executor, &shape, &memory, &cache);
  memory.host = shared_block_of(sizes.host);
  memory.side_stream = new_stream();
  memory.rotary_pairs = 2;
  REFUSED(TESSERA_VALUE_ERROR, tessera_shadow_kv_open, "rotary_pairs is 2", executor, &shape, &memory, &cache);
  memory.rotary_pairs = 0;
  memory.rotations = tensor_of(TESSERA_F32, 3, 10, 32, 2, 0);
  REFUSED(TESSERA_SHAPE_ERROR, tessera_shadow_kv_open, "the embedding has 10 positions", executor, &shape, &memory,
          &cache);
  memory.rotations = tensor_of(TESSERA_F32, 3, 1024, 32, 2, 0);
  REFUSED(TESSERA_VALUE_ERROR, tessera_rotations, "the step is 0", 1e4, 0, &memory.rotations);
  REFUSED(TESSERA_VALUE_ERROR, tessera_rotations, "the base is", -1, 1, &memory.rotations);
  need(tessera_rotations(1e4, 1, &memory.rotations));
#if defined(PROGRAM_USES_CUDA)
  memory.side_stream = executor->stream;
  REFUSED(TESSERA_VALUE_ERROR, tessera_shadow_kv_open, "are the same but must be two", executor, &shape, &memory,
          &cache);
  memory.side_stream = new_stream();
#endif
  need(tessera_shadow_kv_open(executor, &shape, &memory, &cache));
#if defined(PROGRAM_USES_CUDA)
  other.stream = new_stream();
  REFUSED(TESSERA_VALUE_ERROR, tessera_shadow_kv_prefill, "another one than the cache was opened with", &other, cache,
          0, &heads, &heads, nothing);
#endif
  REFUSED(TESSERA_SHAPE_ERROR, tessera_shadow_kv_prefill, "300 tokens but sequence 0 has room for", executor, cache, 0,
          &heads, &heads, block_of(sizes.prefill));
  REFUSED(TESSERA_VALUE_ERROR, tessera_shadow_kv_prefill, "1", executor, cache, 1, &heads, &heads,
          block_of(sizes.prefill));
  outputs.result = tensor_of(TESSERA_BF16, 3, 1, 1, 64, 0);
  REFUSED(TESSERA_SHAPE_ERROR, tessera_shadow_kv_decode, "but the plan needs", executor, cache, &step, &step, &step,
          NULL, &outputs, block_of(sizes.decode - 256));
  numbers = tensor_of(TESSERA_I32, 1, 1, 0, 0, 0);
  ((int32_t*)numbers.data)[0] = 5;
  need(tessera_shadow_kv_decode(executor, cache, &step, &step, &step, &numbers, &outputs, block_of(sizes.decode)));
  REFUSED(TESSERA_VALUE_ERROR, tessera_wait, "offloaded_cache.decode", executor);  // there is no sequence 5
  need(tessera_shadow_kv_close(cache));
  REFUSED(TESSERA_VALUE_ERROR, tessera_shadow_kv_prefill, "not closed", executor, cache, 0, &heads, &heads,
          block_of(sizes.prefill));
}

/// What an executor of CUDA refuses.
static void streams(tessera_executor const* executor) {
#if defined(PROGRAM_USES_CUDA)
  tessera_executor other = *executor;
  cudaGraph_t graph;
  other.device = TESSERA_CPU;
  other.stream = NULL;
  REFUSED(TESSERA_VALUE_ERROR, tessera_wait, "device is the CPU but it was opened for CUDA", &other);
  need_cuda(cudaStreamBeginCapture((cudaStream_t)executor->stream, cudaStreamCaptureModeRelaxed));
  REFUSED(TESSERA_VALUE_ERROR, tessera_wait, "is being captured", executor);
  need_cuda(cudaStreamEndCapture((cudaStream_t)executor->stream, &graph));
  need_cuda(cudaGraphDestroy(graph));
#else
  (void)executor;
#endif
}

int main(void) {
  tessera_executor executor = open_executor(2);
  if (tessera_c_version() != TESSERA_C_VERSION || tessera_has_device(TESSERA_CPU) != 1 || tessera_has_device(9) != 0 ||
      strcmp(tessera_last_error(), "") != 0 || strcmp(tessera_status_name(99), "an unknown status") != 0) {
    printf("the library says something else of itself\n");
    return 1;
  }
  executors();
  weights(&executor);
  loss(&executor);
  attention(&executor);
  minicache(&executor);
  shadow_kv(&executor);
  streams(&executor);
  need(tessera_executor_close(&executor));
  printf("%d of %d errors are as expected\n", checked - failures, checked);
  return failures > 0 ? 1 : 0;
}
