// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The five algorithms from C99, each against loops in double. Prints what was found and what is allowed. On the CPU;
/// compiled with PROGRAM_USES_CUDA, on a GPU (program.h).
#include "program.h"

static int failures = 0;

/// Prints a line of the table.
static void report(char const* what, double found, char const* relation, double limit, int holds) {
  printf("%-58s %10.3g %s %g%s\n", what, found, relation, limit, holds ? "" : "   WRONG");
  failures += holds ? 0 : 1;
}
static void at_most(char const* what, double found, double limit) {
  report(what, found, "<=", limit, found <= limit);
}

static double bf16_at(tessera_tensor const* tensor, int64_t i) {
  return from_bf16(((uint16_t const*)tensor->data)[i]);
}

/// Softmax attention of one query over the first `keys` keys of a head, whose rows are doubles.
static void attend(double const* query, double const* keys, double const* values, int64_t count, int64_t channels,
                   double scale, double* result, double* log_sum_exp) {
  double* const weights = (double*)malloc((size_t)count * sizeof(double));
  double largest = -INFINITY;
  double sum = 0;
  int64_t i = 0;
  int64_t c = 0;
  for (i = 0; i < count; ++i) {
    weights[i] = 0;
    for (c = 0; c < channels; ++c) {
      weights[i] += scale * query[c] * keys[i * channels + c];
    }
    largest = weights[i] > largest ? weights[i] : largest;
  }
  for (c = 0; c < channels; ++c) {
    result[c] = 0;
  }
  for (i = 0; i < count; ++i) {
    double const weight = exp(weights[i] - largest);
    sum += weight;
    for (c = 0; c < channels; ++c) {
      result[c] += weight * values[i * channels + c];
    }
  }
  for (c = 0; c < channels; ++c) {
    result[c] /= sum;
  }
  *log_sum_exp = largest + log(sum);
  free(weights);
}

/// All elements of a tensor of bf16 as doubles.
static double* doubles_of(tessera_tensor const* tensor) {
  double* const list = (double*)malloc((size_t)count_of(tensor) * sizeof(double));
  int64_t i = 0;
  for (i = 0; i < count_of(tensor); ++i) {
    list[i] = bf16_at(tensor, i);
  }
  return list;
}

static void compress_weights(tessera_executor const* executor, int32_t mantissa_bits) {
  tessera_weights_options options = TESSERA_WEIGHTS_OPTIONS_INIT;
  tessera_weights_options found = TESSERA_WEIGHTS_OPTIONS_INIT;
  int64_t const count = 100003;
  tessera_tensor const weights = tensor_of(TESSERA_BF16, 1, count, 0, 0, 0);
  tessera_tensor const decoded = tensor_of(TESSERA_BF16, 1, count, 0, 0, 0);
  tessera_memory stream;
  size_t bytes = 0;
  tessera_tensor const stream_bytes = tensor_of(TESSERA_I64, 1, 1, 0, 0, 0);
  int64_t found_count = 0;
  int64_t found_bytes = 0;
  int64_t i = 0;
  double worst = 0;
  fill_bf16(&weights, 0.02);
  options.mantissa_bits = mantissa_bits;
  options.checksums = 1;
  need(tessera_weights_largest_bytes(&options, count, &bytes));
  stream = shared_block_of(bytes);
  need(tessera_weights_encode_workspace(executor, &options, count, &bytes));
  need(tessera_weights_encode(executor, &options, &weights, stream, (int64_t*)stream_bytes.data, block_of(bytes)));
  need(tessera_wait(executor));
  stream.bytes = (size_t)((int64_t const*)stream_bytes.data)[0];
  need(tessera_weights_inspect(stream, &found, &found_count, &found_bytes));
  need(tessera_weights_decode_workspace(executor, &found, found_count, &bytes));
  need(tessera_weights_decode(executor, &found, stream, &decoded, block_of(bytes)));
  need(tessera_wait(executor));
  for (i = 0; i < count; ++i) {
    double const change = fabs(bf16_at(&decoded, i) / bf16_at(&weights, i) - 1);
    worst = change > worst ? change : worst;
  }
  if (mantissa_bits == -1) {
    at_most("NeuZip: weights with other bits", memcmp(weights.data, decoded.data, (size_t)count * 2), 0);
    at_most("NeuZip: bits of a weight", 8.0 * (double)stream.bytes / (double)count, 11.1);
  } else {
    at_most("NeuZip, 3 mantissa bits: largest change of a weight", worst, 0.05883);
    at_most("NeuZip, 3 mantissa bits: bits of a weight", 8.0 * (double)stream.bytes / (double)count, 7.1);
  }
}

enum { TOKENS = 37, VOCABULARY = 301, CHANNELS = 64 };

/// The loss and its gradients by loops: logits capped at 20, labels smoothed by 0.1, the mean over labelled tokens.
static double plain_loss(double const* hidden, double const* rows, int32_t const* labels, double* of_hidden,
                         double* of_rows) {
  double loss = 0;
  double labelled = 0;
  int t = 0;
  int v = 0;
  int c = 0;
  for (t = 0; t < TOKENS; ++t) {
    labelled += labels[t] >= 0;
  }
  for (t = 0; t < TOKENS; ++t) {
    double logits[VOCABULARY];
    double slopes[VOCABULARY];
    double sum = 0;
    for (v = 0; v < VOCABULARY; ++v) {
      double logit = 0;
      for (c = 0; c < CHANNELS; ++c) {
        logit += hidden[t * CHANNELS + c] * rows[v * CHANNELS + c];
      }
      logits[v] = 20 * tanh(logit / 20);
      slopes[v] = 1 - tanh(logit / 20) * tanh(logit / 20);
      sum += exp(logits[v]);
    }
    for (v = 0; v < VOCABULARY && labels[t] >= 0; ++v) {
      double const target = (v == labels[t] ? 0.9 : 0.0) + 0.1 / VOCABULARY;
      double const gradient = (exp(logits[v]) / sum - target) * slopes[v] / labelled;
      loss += target * (log(sum) - logits[v]) / labelled;
      for (c = 0; c < CHANNELS; ++c) {
        of_hidden[t * CHANNELS + c] += gradient * rows[v * CHANNELS + c];
        of_rows[v * CHANNELS + c] += gradient * hidden[t * CHANNELS + c];
      }
    }
  }
  return loss;
}

/// The distance of a list from another, as a part of the length of that.
static double distance(float const* found, double const* expected, int64_t count) {
  double difference = 0;
  double length = 0;
  int64_t i = 0;
  for (i = 0; i < count; ++i) {
    difference += (found[i] - expected[i]) * (found[i] - expected[i]);
    length += expected[i] * expected[i];
  }
  return sqrt(difference / length);
}

static void train_classifier(tessera_executor const* executor, int32_t is_exact) {
  tessera_loss_options options = TESSERA_LOSS_OPTIONS_INIT;
  tessera_loss_inputs inputs = {.size = sizeof(tessera_loss_inputs)};
  tessera_loss_outputs outputs = {.size = sizeof(tessera_loss_outputs)};
  tessera_loss_gradients gradients = {.size = sizeof(tessera_loss_gradients)};
  double* const of_hidden = (double*)calloc(TOKENS * CHANNELS, sizeof(double));
  double* const of_rows = (double*)calloc(VOCABULARY * CHANNELS, sizeof(double));
  tessera_memory workspace;
  size_t bytes = 0;
  double expected = 0;
  int t = 0;
  options.exact = is_exact;
  options.softcap = 20;
  options.smoothing = 0.1f;
  inputs.hidden = tensor_of(TESSERA_BF16, 2, TOKENS, CHANNELS, 0, 0);
  inputs.classifier = tensor_of(TESSERA_BF16, 2, VOCABULARY, CHANNELS, 0, 0);
  inputs.labels = tensor_of(TESSERA_I32, 1, TOKENS, 0, 0, 0);
  fill_bf16(&inputs.hidden, 1);
  fill_bf16(&inputs.classifier, 0.3);
  for (t = 0; t < TOKENS; ++t) {
    ((int32_t*)inputs.labels.data)[t] = t % 7 == 3 ? -100 : 61 * t % VOCABULARY;
  }
  outputs.loss = tensor_of(TESSERA_F32, 1, 1, 0, 0, 0);
  gradients.hidden = tensor_of(TESSERA_F32, 2, TOKENS, CHANNELS, 0, 0);
  gradients.classifier = tensor_of(TESSERA_F32, 2, VOCABULARY, CHANNELS, 0, 0);
  need(tessera_loss_workspace(executor, &inputs, &options, &gradients, &bytes));
  workspace = block_of(bytes);
  need(tessera_loss_forward(executor, &inputs, &options, &outputs, workspace));
  need(tessera_loss_backward(executor, &inputs, &options, &gradients, workspace));
  need(tessera_wait(executor));
  expected = plain_loss(doubles_of(&inputs.hidden), doubles_of(&inputs.classifier), (int32_t const*)inputs.labels.data,
                        of_hidden, of_rows);
  at_most("Cut Cross-Entropy: error of the loss", fabs(((float*)outputs.loss.data)[0] - expected), 1e-4);
  at_most(is_exact ? "Cut Cross-Entropy, exact: error of hidden gradients" : "Cut Cross-Entropy: the same, filtered",
          distance((float const*)gradients.hidden.data, of_hidden, TOKENS * CHANNELS), 4e-3);
  at_most(is_exact ? "Cut Cross-Entropy, exact: error of the classifier's" : "Cut Cross-Entropy: the same, filtered",
          distance((float const*)gradients.classifier.data, of_rows, VOCABULARY * CHANNELS), 4e-3);
}

/// Causal attention of 70 queries over 130 keys, of which each sees 40 before its own.
static void attend_in_8_bits(tessera_executor const* executor) {
  enum { HEADS = 4, KEY_HEADS = 2, QUERIES = 70, KEYS = 130, WINDOW = 40 };
  tessera_attention_options options = TESSERA_ATTENTION_OPTIONS_INIT;
  tessera_attention_inputs inputs = {.size = sizeof(tessera_attention_inputs)};
  tessera_attention_outputs outputs = {.size = sizeof(tessera_attention_outputs)};
  double const* keys = NULL;
  double const* values = NULL;
  double const* queries = NULL;
  double difference = 0;
  double total = 0;
  double worst = 0;
  size_t bytes = 0;
  int head = 0;
  int i = 0;
  int c = 0;
  options.is_causal = 1;
  options.window_left = WINDOW;
  inputs.queries = tensor_of(TESSERA_BF16, 4, 1, HEADS, QUERIES, CHANNELS);
  inputs.keys = tensor_of(TESSERA_BF16, 4, 1, KEY_HEADS, KEYS, CHANNELS);
  inputs.values = tensor_of(TESSERA_BF16, 4, 1, KEY_HEADS, KEYS, CHANNELS);
  outputs.result = tensor_of(TESSERA_BF16, 4, 1, HEADS, QUERIES, CHANNELS);
  outputs.log_sum_exp = tensor_of(TESSERA_F32, 3, 1, HEADS, QUERIES, 0);
  fill_bf16(&inputs.queries, 1);
  fill_bf16(&inputs.keys, 1);
  fill_bf16(&inputs.values, 1);
  need(tessera_attention_workspace(executor, &inputs, &options, &bytes));
  need(tessera_attention_forward(executor, &inputs, &options, &outputs, block_of(bytes)));
  need(tessera_wait(executor));
  queries = doubles_of(&inputs.queries);
  keys = doubles_of(&inputs.keys);
  values = doubles_of(&inputs.values);
  for (head = 0; head < HEADS; ++head) {
    for (i = 0; i < QUERIES; ++i) {
      int const own = KEYS - QUERIES + i;
      int const first = own > WINDOW ? own - WINDOW : 0;
      int64_t const begin = ((int64_t)(head / (HEADS / KEY_HEADS)) * KEYS + first) * CHANNELS;
      int64_t const row = (int64_t)head * QUERIES + i;
      double result[CHANNELS];
      double log_sum_exp = 0;
      attend(queries + row * CHANNELS, keys + begin, values + begin, own - first + 1, CHANNELS, 0.125, result,
             &log_sum_exp);
      for (c = 0; c < CHANNELS; ++c) {
        difference += fabs(bf16_at(&outputs.result, row * CHANNELS + c) - result[c]);
        total += fabs(result[c]);
      }
      worst = fmax(worst, fabs(((float const*)outputs.log_sum_exp.data)[row] - log_sum_exp));
    }
  }
  at_most("SageAttention2: relative error of results", difference / total, 0.05);
  at_most("SageAttention2: largest error of a log-sum-exp", worst, 0.05);
}

/// Three layers, of which the last two share directions: a prompt of 200 tokens, then 5 steps.
static void keep_pages(tessera_executor const* executor) {
  enum { LAYERS = 3, HEADS = 2, PROMPT = 200, STEPS = 5, ALL = PROMPT + STEPS, BLOCKS = 4 };
  int32_t const parts[2] = {1, 2};
  tessera_minicache_shape shape = TESSERA_MINICACHE_SHAPE_INIT;
  tessera_minicache_sequences sequences = {.size = sizeof(tessera_minicache_sequences)};
  tessera_minicache_usage usage = {.size = sizeof(tessera_minicache_usage)};
  tessera_attention_options options = TESSERA_ATTENTION_OPTIONS_INIT;
  tessera_attention_outputs outputs = {.size = sizeof(tessera_attention_outputs)};
  tessera_tensor keys[LAYERS];
  tessera_tensor values[LAYERS];
  tessera_tensor queries = tensor_of(TESSERA_BF16, 4, 1, HEADS, 1, CHANNELS);
  tessera_minicache* cache = NULL;
  tessera_memory append_space;
  tessera_memory attend_space;
  size_t object_bytes = 0;
  size_t bytes = 0;
  double difference[LAYERS] = {0, 0, 0};
  double total[LAYERS] = {0, 0, 0};
  int64_t i = 0;
  int layer = 0;
  int step = 0;
  shape.slots = 1;
  shape.tokens = 512;
  shape.blocks = BLOCKS;
  shape.heads = HEADS;
  shape.channels = CHANNELS;
  shape.window = 64;
  shape.parts = parts;
  shape.part_count = 2;
  for (layer = 0; layer < LAYERS; ++layer) {
    keys[layer] = tensor_of(TESSERA_BF16, 4, 1, HEADS, ALL, CHANNELS);
    values[layer] = tensor_of(TESSERA_BF16, 4, 1, HEADS, ALL, CHANNELS);
    fill_bf16(&keys[layer], 1);
    fill_bf16(&values[layer], 1);
  }
  for (i = 0; i < count_of(&keys[1]); ++i) {  // neighbouring layers have almost the same directions
    ((uint16_t*)keys[2].data)[i] = to_bf16((float)(1.5 * bf16_at(&keys[1], i) + 0.2 * random_number()));
    ((uint16_t*)values[2].data)[i] = to_bf16((float)(0.7 * bf16_at(&values[1], i) + 0.1 * random_number()));
  }
  need(tessera_minicache_bytes(executor, &shape, &object_bytes, &bytes));
  need(tessera_minicache_open(executor, &shape, host_block_of(object_bytes), block_of(bytes), &cache));
  sequences.blocks = tensor_of(TESSERA_I32, 2, 1, BLOCKS, 0, 0);
  sequences.lengths = tensor_of(TESSERA_I32, 1, 1, 0, 0, 0);
  sequences.pages = tensor_of(TESSERA_I32, 1, 1, 0, 0, 0);
  for (i = 0; i < BLOCKS; ++i) {
    ((int32_t*)sequences.blocks.data)[i] = (int32_t)i;
  }
  need(tessera_minicache_append_workspace(executor, cache, 1, PROMPT, &bytes));
  append_space = block_of(bytes);
  need(tessera_minicache_attend_workspace(executor, cache, &queries, &sequences, &bytes));
  attend_space = block_of(bytes);
  ((int32_t*)sequences.lengths.data)[0] = PROMPT;
  for (layer = 0; layer < LAYERS; layer += layer == 0 ? 1 : 2) {
    tessera_tensor part_keys[2] = {keys[layer], keys[layer == 0 ? 0 : layer + 1]};
    tessera_tensor part_values[2] = {values[layer], values[layer == 0 ? 0 : layer + 1]};
    int32_t part = 0;
    part_keys[0].extents[2] = part_keys[1].extents[2] = PROMPT;
    part_values[0].extents[2] = part_values[1].extents[2] = PROMPT;
    need(tessera_minicache_part_of(cache, layer, &part));
    need(tessera_minicache_append(executor, cache, part, part_keys, part_values, &sequences, NULL, append_space));
  }
  need(tessera_minicache_advance(executor, cache, &sequences, &sequences.pages, PROMPT));
  need(tessera_wait(executor));  // the lengths are about to change
  outputs.result = tensor_of(TESSERA_BF16, 4, 1, HEADS, 1, CHANNELS);
  options.is_causal = 1;
  for (step = 0; step < STEPS; ++step) {
    int64_t const token = PROMPT + step;
    ((int32_t*)sequences.lengths.data)[0] = (int32_t)token + 1;
    for (layer = 0; layer < LAYERS; ++layer) {
      tessera_tensor key = keys[layer];
      tessera_tensor value = values[layer];
      int head = 0;
      key.data = (uint16_t*)key.data + token * CHANNELS;
      value.data = (uint16_t*)value.data + token * CHANNELS;
      key.extents[2] = value.extents[2] = 1;
      fill_bf16(&queries, 1);
      need(tessera_minicache_write(executor, cache, layer, &key, &value, &sequences, NULL));
      need(tessera_minicache_attend(executor, cache, layer, &queries, &sequences, &options, &outputs, attend_space));
      if (layer != 1) {
        need(tessera_minicache_seal(executor, cache, layer == 0 ? 0 : 1, &sequences, append_space));
      }
      need(tessera_wait(executor));
      for (head = 0; head < HEADS; ++head) {
        int64_t const begin = (int64_t)head * ALL * CHANNELS;
        double result[CHANNELS];
        double log_sum_exp = 0;
        int c = 0;
        attend(doubles_of(&queries) + head * CHANNELS, doubles_of(&keys[layer]) + begin,
               doubles_of(&values[layer]) + begin, token + 1, CHANNELS, 0.125, result, &log_sum_exp);
        for (c = 0; c < CHANNELS; ++c) {
          difference[layer] += fabs(bf16_at(&outputs.result, head * CHANNELS + c) - result[c]);
          total[layer] += fabs(result[c]);
        }
      }
    }
    need(tessera_minicache_advance(executor, cache, &sequences, &sequences.pages, 1));
    need(tessera_wait(executor));
  }
  need(tessera_minicache_count(executor, cache, &sequences, &usage));
  at_most("MiniCache: relative error of a single layer", difference[0] / total[0], 0.2);
  at_most("MiniCache: relative error of the first of a pair", difference[1] / total[1], 0.25);
  at_most("MiniCache: relative error of the second of a pair", difference[2] / total[2], 0.25);
  at_most("MiniCache: tokens that were not kept", (double)(ALL - usage.tokens), 0);
  at_most("MiniCache: pages that were not sealed",
          (double)((ALL - 64) / 64 - ((int32_t const*)sequences.pages.data)[0]), 0);
  need(tessera_minicache_close(cache));
}

/// The keys of a head, turned by their positions: channels c and c + 32 are a pair.
static double* turned(tessera_tensor const* keys, int head, int64_t count, int64_t first) {
  double* const list = (double*)malloc((size_t)count * CHANNELS * sizeof(double));
  int64_t i = 0;
  int c = 0;
  for (i = 0; i < count; ++i) {
    for (c = 0; c < CHANNELS / 2; ++c) {
      int64_t const at = (head * keys->extents[1] + i) * CHANNELS + c;
      double const angle = (double)(first + i) * pow(10000.0, -2.0 * c / CHANNELS);
      double const a = bf16_at(keys, at);
      double const b = bf16_at(keys, at + CHANNELS / 2);
      list[i * CHANNELS + c] = cos(angle) * a - sin(angle) * b;
      list[i * CHANNELS + c + CHANNELS / 2] = sin(angle) * a + cos(angle) * b;
    }
  }
  return list;
}

/// A prompt of 900 tokens, and a step that selects all chunks: as exact as its directions, of which there are enough.
static void offload_values(tessera_executor const* executor) {
  enum { HEADS = 4, KEY_HEADS = 2, PROMPT = 900 };
  int64_t const room = 1024;
  tessera_shadow_kv_shape shape = TESSERA_SHADOW_KV_SHAPE_INIT;
  tessera_shadow_kv_sizes sizes = {.size = sizeof(tessera_shadow_kv_sizes)};
  tessera_shadow_kv_memory memory = {.size = sizeof(tessera_shadow_kv_memory)};
  tessera_attention_outputs outputs = {.size = sizeof(tessera_attention_outputs)};
  tessera_tensor const keys = tensor_of(TESSERA_BF16, 3, KEY_HEADS, PROMPT, CHANNELS, 0);
  tessera_tensor const values = tensor_of(TESSERA_BF16, 3, KEY_HEADS, PROMPT, CHANNELS, 0);
  tessera_tensor const queries = tensor_of(TESSERA_BF16, 3, 1, HEADS, CHANNELS, 0);
  tessera_tensor const key = tensor_of(TESSERA_BF16, 3, 1, KEY_HEADS, CHANNELS, 0);
  tessera_tensor const value = tensor_of(TESSERA_BF16, 3, 1, KEY_HEADS, CHANNELS, 0);
  tessera_shadow_kv* cache = NULL;
  double difference = 0;
  double total = 0;
  double hit_rate = -1;
  int head = 0;
  int c = 0;
  shape.query_heads = HEADS;
  shape.key_heads = KEY_HEADS;
  shape.channels = CHANNELS;
  shape.tokens = &room;
  shape.sequences = 1;
  need(tessera_shadow_kv_bytes(executor, &shape, &sizes));
  memory.object = host_block_of(sizes.object);
  memory.device = block_of(sizes.device);
  memory.host = shared_block_of(sizes.host);
  memory.side_stream = new_stream();
  memory.rotations = tensor_of(TESSERA_F32, 3, 256, CHANNELS / 2, 2, 0);
  memory.block_rotations = tensor_of(TESSERA_F32, 3, 5, CHANNELS / 2, 2, 0);
  need(tessera_rotations(10000.0, 1, &memory.rotations));
  need(tessera_rotations(10000.0, 256, &memory.block_rotations));
  need(tessera_shadow_kv_open(executor, &shape, &memory, &cache));
  fill_bf16(&keys, 1);
  fill_bf16(&values, 1);
  fill_bf16(&queries, 1);
  fill_bf16(&key, 1);
  fill_bf16(&value, 1);
  outputs.result = tensor_of(TESSERA_BF16, 3, 1, HEADS, CHANNELS, 0);
  outputs.log_sum_exp = tensor_of(TESSERA_F32, 2, 1, HEADS, 0, 0);
  need(tessera_shadow_kv_prefill(executor, cache, 0, &keys, &values, block_of(sizes.prefill)));
  need(tessera_shadow_kv_decode(executor, cache, &queries, &key, &value, NULL, &outputs, block_of(sizes.decode)));
  need(tessera_shadow_kv_hit_rate(executor, cache, &hit_rate));
  for (head = 0; head < HEADS; ++head) {
    int const own = head / (HEADS / KEY_HEADS);
    double* const all_keys = (double*)malloc((PROMPT + 1) * CHANNELS * sizeof(double));
    double* const all_values = (double*)malloc((PROMPT + 1) * CHANNELS * sizeof(double));
    tessera_tensor one_query = queries;
    tessera_tensor one_key = key;
    double result[CHANNELS];
    double log_sum_exp = 0;
    one_query.extents[1] = one_key.extents[1] = 1;
    memcpy(all_keys, turned(&keys, own, PROMPT, 0), PROMPT * CHANNELS * sizeof(double));
    memcpy(all_keys + PROMPT * CHANNELS, turned(&one_key, own, 1, PROMPT), CHANNELS * sizeof(double));
    memcpy(all_values, doubles_of(&values) + (int64_t)own * PROMPT * CHANNELS, PROMPT * CHANNELS * sizeof(double));
    memcpy(all_values + PROMPT * CHANNELS, doubles_of(&value) + own * CHANNELS, CHANNELS * sizeof(double));
    attend(turned(&one_query, head, 1, PROMPT), all_keys, all_values, PROMPT + 1, CHANNELS, 0.125, result,
           &log_sum_exp);
    for (c = 0; c < CHANNELS; ++c) {
      difference += fabs(bf16_at(&outputs.result, head * CHANNELS + c) - result[c]);
      total += fabs(result[c]);
    }
    at_most("ShadowKV: error of a head's log-sum-exp",
            fabs(((float const*)outputs.log_sum_exp.data)[head] - log_sum_exp), 0.02);
  }
  at_most("ShadowKV: relative error of results", difference / total, 0.05);
  at_most("ShadowKV: part of the chunks that were there already", hit_rate, 0);
  need(tessera_shadow_kv_close(cache));
}

int main(void) {
  tessera_executor executor = open_executor(0);
  compress_weights(&executor, -1);
  compress_weights(&executor, 3);
  train_classifier(&executor, 1);
  train_classifier(&executor, 0);
  attend_in_8_bits(&executor);
  keep_pages(&executor);
  offload_values(&executor);
  need(tessera_executor_close(&executor));
  if (failures > 0) {
    printf("%d lines are WRONG\n", failures);
  }
  return failures > 0 ? 1 : 0;
}
