// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// A host in C++17 with tensors, an arena and a graph of its own, as inference engines in C have them: extents from the
/// innermost dimension on, strides in bytes, and operations that are callbacks. The library comes in by such callbacks,
/// through tessera_c.h alone. The graph is a layer with a key-value head: weights that stay compressed, attention, a
/// loss; it runs once by plain loops, and once with the library.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "tessera_c.h"

namespace host {

enum class type { f32, f16, i32, bytes };

constexpr std::size_t size_of(type of) {
  return of == type::f16 ? 2 : of == type::bytes ? 1 : 4;
}

struct tensor;

/// An operation: makes the data of its tensor from those of the sources, in memory that is for this call alone.
struct operation {
  void (*run)(tensor& to, void* scratch, std::size_t scratch_bytes, void const* user);
  std::size_t (*scratch_bytes)(tensor const& to, void const* user);
  void const* user;
};

/// Extents from the innermost dimension on; strides in bytes.
struct tensor {
  type of;
  std::int64_t extents[4];
  std::size_t strides[4];
  unsigned char* data;
  tensor const* sources[3];
  operation by;
};

/// One block for all tensors and their scratch.
class arena {
 public:
  explicit arena(std::size_t bytes) : memory_(new unsigned char[bytes + alignment]()), bytes_(bytes) {
    auto const address = reinterpret_cast<std::uintptr_t>(memory_.get());
    first_ = memory_.get() + (alignment - address % alignment) % alignment;
  }
  void* take(std::size_t bytes) {
    std::size_t const rounded = (bytes + alignment - 1) / alignment * alignment;
    if (rounded > bytes_ - used_) {
      std::fprintf(stderr, "the arena has %zu bytes left but %zu are needed\n", bytes_ - used_, rounded);
      std::exit(1);
    }
    void* const taken = first_ + used_;
    used_ += rounded;
    return taken;
  }
  [[nodiscard]] std::size_t used() const { return used_; }
  void give_back_to(std::size_t used) { used_ = used; }

 private:
  static constexpr std::size_t alignment = 256;
  std::unique_ptr<unsigned char[]> memory_;
  unsigned char* first_;
  std::size_t bytes_;
  std::size_t used_ = 0;
};

class graph {
 public:
  explicit graph(arena& memory) : memory_(memory) { nodes_.reserve(64); }

  tensor& make(type of, std::int64_t a, std::int64_t b = 1, std::int64_t c = 1) {
    nodes_.push_back(std::make_unique<tensor>());
    tensor& made = *nodes_.back();
    made.of = of;
    std::int64_t const extents[4] = {a, b, c, 1};
    std::size_t stride = size_of(of);
    for (int i = 0; i < 4; ++i) {
      made.extents[i] = extents[i];
      made.strides[i] = stride;
      stride *= static_cast<std::size_t>(extents[i]);
    }
    made.data = static_cast<unsigned char*>(memory_.take(stride));
    return made;
  }
  /// The same data with other extents and strides, as a permutation or a reshape has them.
  tensor& view(tensor const& from, std::int64_t const (&extents)[4], std::size_t const (&strides)[4]) {
    nodes_.push_back(std::make_unique<tensor>(from));
    tensor& made = *nodes_.back();
    made.by = {};
    std::memcpy(made.extents, extents, sizeof(extents));
    std::memcpy(made.strides, strides, sizeof(strides));
    return made;
  }

  /// Runs all operations in the order in which tensors were made.
  void compute() {
    for (auto const& node : nodes_) {
      if (node->by.run != nullptr) {
        std::size_t const before = memory_.used();
        std::size_t const bytes = node->by.scratch_bytes(*node, node->by.user);
        node->by.run(*node, memory_.take(bytes), bytes, node->by.user);
        memory_.give_back_to(before);
      }
    }
  }

 private:
  arena& memory_;
  std::vector<std::unique_ptr<tensor>> nodes_;
};

float from_half(std::uint16_t bits) {
  int const exponent = bits >> 10 & 31;
  float const fraction = static_cast<float>(bits & 1023) / 1024.0F;
  float const size = exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
  return (bits & 0x8000) != 0 ? -size : size;
}
std::uint16_t to_half(float value) {  // for numbers whose size is from 2^-14 to 65504, to the nearest
  int exponent = 0;
  float const fraction = std::frexp(std::fabs(value), &exponent);
  if (value == 0.0F || exponent < -13) {
    return 0;
  }
  auto const mantissa = static_cast<int>(std::lround(fraction * 2048));
  return static_cast<std::uint16_t>((value < 0 ? 0x8000 : 0) + ((exponent + 14) << 10) + mantissa - 1024);
}

float at(tensor const& from, std::int64_t a, std::int64_t b = 0, std::int64_t c = 0) {
  unsigned char const* const place = from.data + static_cast<std::size_t>(a) * from.strides[0] +
                                     static_cast<std::size_t>(b) * from.strides[1] +
                                     static_cast<std::size_t>(c) * from.strides[2];
  if (from.of == type::f16) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, place, sizeof(bits));
    return from_half(bits);
  }
  float value = 0;
  std::memcpy(&value, place, sizeof(value));
  return value;
}

}  // namespace host

namespace {

constexpr int tokens = 48;
constexpr int channels = 64;
constexpr int heads = 2;
constexpr int width = heads * channels;
constexpr int vocabulary = 211;

void need(tessera_status status) {
  if (status != TESSERA_SUCCESS) {
    std::fprintf(stderr, "%s: %s\n", tessera_status_name(status), tessera_last_error());
    std::exit(1);
  }
}

/// A tensor of the host as one of the library: dimensions from the outermost on, strides in elements. `rank` counts
/// the dimensions that the function takes.
tessera_tensor given(host::tensor const& from, int rank) {
  tessera_tensor to{};
  to.data = from.data;
  to.type = from.of == host::type::f16 ? TESSERA_F16 : from.of == host::type::i32 ? TESSERA_I32 : TESSERA_F32;
  to.rank = rank;
  for (int i = 0; i < rank; ++i) {
    to.extents[i] = from.extents[rank - 1 - i];
    to.strides[i] = static_cast<std::int64_t>(from.strides[rank - 1 - i] / host::size_of(from.of));
  }
  return to;
}

// Operations of the library. `user` is the executor.

std::size_t decode_scratch(host::tensor const& to, void const* user) {
  tessera_weights_options options = TESSERA_WEIGHTS_OPTIONS_INIT;
  options.type = TESSERA_F16;
  std::size_t bytes = 0;
  need(tessera_weights_decode_workspace(static_cast<tessera_executor const*>(user), &options,
                                        to.extents[0] * to.extents[1], &bytes));
  return bytes;
}
void decode_weights(host::tensor& to, void* scratch, std::size_t bytes, void const* user) {
  tessera_weights_options options = TESSERA_WEIGHTS_OPTIONS_INIT;
  options.type = TESSERA_F16;
  tessera_tensor const weights = given(to, 2);
  host::tensor const& stream = *to.sources[0];
  need(tessera_weights_decode(static_cast<tessera_executor const*>(user), &options,
                              {stream.data, static_cast<std::size_t>(stream.extents[0])}, &weights, {scratch, bytes}));
}

tessera_attention_inputs attention_inputs(host::tensor const& to) {
  tessera_attention_inputs in{};
  in.size = sizeof(in);
  in.queries = given(*to.sources[0], 4);
  in.keys = given(*to.sources[1], 4);
  in.values = given(*to.sources[2], 4);
  return in;
}
std::size_t attention_scratch(host::tensor const& to, void const* user) {
  tessera_attention_inputs const in = attention_inputs(to);
  std::size_t bytes = 0;
  need(tessera_attention_workspace(static_cast<tessera_executor const*>(user), &in, nullptr, &bytes));
  return bytes;
}
void attend(host::tensor& to, void* scratch, std::size_t bytes, void const* user) {
  tessera_attention_inputs const in = attention_inputs(to);
  tessera_attention_outputs out{};
  out.size = sizeof(out);
  // The host wants tokens x heads x channels: a view of the result does that.
  out.result = {to.data, TESSERA_F32, 4, {1, heads, tokens, channels}, {tokens * width, channels, width, 1}};
  tessera_attention_options options = TESSERA_ATTENTION_OPTIONS_INIT;
  options.is_causal = 1;
  need(tessera_attention_forward(static_cast<tessera_executor const*>(user), &in, &options, &out, {scratch, bytes}));
}

tessera_loss_inputs loss_inputs(host::tensor const& to) {
  tessera_loss_inputs in{};
  in.size = sizeof(in);
  in.hidden = given(*to.sources[0], 2);
  in.classifier = given(*to.sources[1], 2);
  in.labels = given(*to.sources[2], 1);
  return in;
}
std::size_t loss_scratch(host::tensor const& to, void const* user) {
  tessera_loss_inputs const in = loss_inputs(to);
  std::size_t bytes = 0;
  need(tessera_loss_workspace(static_cast<tessera_executor const*>(user), &in, nullptr, nullptr, &bytes));
  return bytes;
}
void cross_entropy(host::tensor& to, void* scratch, std::size_t bytes, void const* user) {
  tessera_loss_inputs const in = loss_inputs(to);
  tessera_loss_outputs out{};
  out.size = sizeof(out);
  out.loss = given(to, 1);
  need(tessera_loss_forward(static_cast<tessera_executor const*>(user), &in, nullptr, &out, {scratch, bytes}));
}

// Operations of the host, by plain loops.

std::size_t no_scratch(host::tensor const&, void const*) {
  return 0;
}
/// Rows of the first source times rows of the second.
void multiply(host::tensor& to, void*, std::size_t, void const*) {
  host::tensor const& a = *to.sources[0];
  host::tensor const& b = *to.sources[1];
  for (std::int64_t row = 0; row < to.extents[1]; ++row) {
    for (std::int64_t column = 0; column < to.extents[0]; ++column) {
      float sum = 0;
      for (std::int64_t c = 0; c < a.extents[0]; ++c) {
        sum += host::at(a, c, row) * host::at(b, c, column);
      }
      std::memcpy(
          to.data + static_cast<std::size_t>(row) * to.strides[1] + static_cast<std::size_t>(column) * to.strides[0],
          &sum, sizeof(sum));
    }
  }
}
void attend_by_loops(host::tensor& to, void*, std::size_t, void const*) {
  host::tensor const& queries = *to.sources[0];
  host::tensor const& keys = *to.sources[1];
  host::tensor const& values = *to.sources[2];
  auto* const result = reinterpret_cast<float*>(to.data);
  for (int head = 0; head < heads; ++head) {
    for (int i = 0; i < tokens; ++i) {
      double weights[tokens];
      double sum = 0;
      for (int j = 0; j <= i; ++j) {
        double score = 0;
        for (int c = 0; c < channels; ++c) {
          score += double{host::at(queries, c, i, head)} * double{host::at(keys, c, j, head)};
        }
        weights[j] = std::exp(score / std::sqrt(double{channels}));
        sum += weights[j];
      }
      for (int c = 0; c < channels; ++c) {
        double total = 0;
        for (int j = 0; j <= i; ++j) {
          total += weights[j] * double{host::at(values, c, j, head)};
        }
        result[i * width + head * channels + c] = static_cast<float>(total / sum);
      }
    }
  }
}
void cross_entropy_by_loops(host::tensor& to, void*, std::size_t, void const*) {
  double loss = 0;
  for (int t = 0; t < tokens; ++t) {
    std::int32_t label = 0;
    std::memcpy(&label, to.sources[2]->data + 4 * t, sizeof(label));
    double sum = 0;
    double own = 0;
    for (int v = 0; v < vocabulary; ++v) {
      double logit = 0;
      for (int c = 0; c < width; ++c) {
        logit += double{host::at(*to.sources[0], c, t)} * double{host::at(*to.sources[1], c, v)};
      }
      sum += std::exp(logit);
      own = v == label ? logit : own;
    }
    loss += (std::log(sum) - own) / tokens;
  }
  auto const result = static_cast<float>(loss);
  std::memcpy(to.data, &result, sizeof(result));
}

double random_number() {
  static std::uint64_t state = 0x9e3779b97f4a7c15;
  state = state * 6364136223846793005 + 1442695040888963407;
  return static_cast<double>(state >> 11) / 4503599627370496.0 - 1;
}

/// Encodes weights to a tensor of bytes.
host::tensor& encoded(host::graph& in, host::arena& memory, tessera_executor const& executor,
                      host::tensor const& weights) {
  tessera_weights_options options = TESSERA_WEIGHTS_OPTIONS_INIT;
  options.type = TESSERA_F16;
  std::int64_t const count = weights.extents[0] * weights.extents[1];
  std::size_t room = 0;
  std::size_t bytes = 0;
  need(tessera_weights_largest_bytes(&options, count, &room));
  need(tessera_weights_encode_workspace(&executor, &options, count, &bytes));
  host::tensor& stream = in.make(host::type::bytes, static_cast<std::int64_t>(room));
  tessera_tensor const list = given(weights, 2);
  std::size_t const before = memory.used();
  need(tessera_weights_encode(&executor, &options, &list, {stream.data, room}, &stream.extents[0],
                              {memory.take(bytes), bytes}));
  need(tessera_wait(&executor));
  memory.give_back_to(before);
  return stream;
}

int failed(char const* what, double found, double limit) {
  std::printf("%-44s %9.3g <= %g%s\n", what, found, limit, found <= limit ? "" : "   WRONG");
  return found <= limit ? 0 : 1;
}

}  // namespace

int main() {
  host::arena memory(std::size_t{64} << 20);
  tessera_executor executor = TESSERA_EXECUTOR_INIT;
  std::size_t bytes = 0;
  need(tessera_executor_bytes(&executor, &bytes));
  need(tessera_executor_open(&executor, {memory.take(bytes), bytes}));

  host::graph graph(memory);
  host::tensor& hidden = graph.make(host::type::f32, width, tokens);
  host::tensor& classifier = graph.make(host::type::f32, width, vocabulary);
  host::tensor& labels = graph.make(host::type::i32, tokens);
  host::tensor& weights = graph.make(host::type::f16, width, 3 * width);
  for (int i = 0; i < width * tokens; ++i) {
    reinterpret_cast<float*>(hidden.data)[i] = static_cast<float>(random_number());
  }
  for (int i = 0; i < width * vocabulary; ++i) {
    reinterpret_cast<float*>(classifier.data)[i] = static_cast<float>(0.3 * random_number());
  }
  for (int i = 0; i < tokens; ++i) {
    reinterpret_cast<std::int32_t*>(labels.data)[i] = 17 * i % vocabulary;
  }
  for (int i = 0; i < 3 * width * width; ++i) {
    reinterpret_cast<std::uint16_t*>(weights.data)[i] = host::to_half(static_cast<float>(0.2 * random_number()));
  }
  host::tensor& stream = encoded(graph, memory, executor, weights);

  // The same graph twice: [0] with the library's operations, [1] with loops.
  host::tensor* decoded[2];
  host::tensor* attended[2];
  host::tensor* losses[2];
  for (int plain = 0; plain < 2; ++plain) {
    decoded[plain] = plain == 1 ? &weights : &graph.make(host::type::f16, width, 3 * width);
    if (plain == 0) {
      decoded[plain]->sources[0] = &stream;
      decoded[plain]->by = {decode_weights, decode_scratch, &executor};
    }
    host::tensor& projected = graph.make(host::type::f32, 3 * width, tokens);
    projected.sources[0] = &hidden;
    projected.sources[1] = decoded[plain];
    projected.by = {multiply, no_scratch, nullptr};
    attended[plain] = &graph.make(host::type::f32, width, tokens);
    for (std::size_t part = 0; part < 3; ++part) {  // queries, keys and values: channels x tokens x heads, as they lie
      host::tensor& of_heads =
          graph.view(projected, {channels, tokens, heads, 1}, {4, 3 * width * 4, channels * 4, tokens * 3 * width * 4});
      of_heads.data += part * width * 4;
      attended[plain]->sources[part] = &of_heads;
    }
    attended[plain]->by = plain == 1 ? host::operation{attend_by_loops, no_scratch, nullptr}
                                     : host::operation{attend, attention_scratch, &executor};
    losses[plain] = &graph.make(host::type::f32, 1);
    losses[plain]->sources[0] = attended[plain];
    losses[plain]->sources[1] = &classifier;
    losses[plain]->sources[2] = &labels;
    losses[plain]->by = plain == 1 ? host::operation{cross_entropy_by_loops, no_scratch, nullptr}
                                   : host::operation{cross_entropy, loss_scratch, &executor};
  }
  graph.compute();
  need(tessera_wait(&executor));

  double difference = 0;
  double total = 0;
  for (int i = 0; i < tokens; ++i) {
    for (int c = 0; c < width; ++c) {
      difference += std::fabs(double{host::at(*attended[0], c, i)} - double{host::at(*attended[1], c, i)});
      total += std::fabs(double{host::at(*attended[1], c, i)});
    }
  }
  int wrong = 0;
  wrong += failed("weights of f16: bits of a weight",
                  8.0 * static_cast<double>(stream.extents[0]) / (3 * width * width), 15);
  wrong += failed("weights: bytes that differ",
                  std::memcmp(decoded[0]->data, weights.data, std::size_t{3} * width * width * 2) != 0, 0);
  wrong += failed("attention: relative error", difference / total, 0.06);
  wrong += failed("loss: error", std::fabs(double{host::at(*losses[0], 0)} - double{host::at(*losses[1], 0)}), 0.02);
  need(tessera_executor_close(&executor));
  return wrong;
}
