// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The interface of the extension for a kind of device. One implementation (weights.hpp, loss.hpp, attention.hpp,
/// caches.hpp) serves CPUs and GPUs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <torch/types.h>
#include <tuple>
#include <vector>

namespace tessera_torch {

/// Keys and values of all layers of a batch, compressed (tessera/minicache.hpp).
class kv_cache {
 public:
  virtual ~kv_cache() = default;
  /// Appends keys and values of each layer: sequences x key heads x tokens x channels.
  virtual void append(std::vector<torch::Tensor> const& keys, std::vector<torch::Tensor> const& values) = 0;
  /// Makes room for a token; call write_and_attend() for each layer in turn afterwards.
  virtual void begin_token() = 0;
  /// Writes a token's keys and values, and attends with its queries: sequences x query heads x 1 x channels.
  virtual torch::Tensor write_and_attend(std::int64_t layer, torch::Tensor const& keys, torch::Tensor const& values,
                                         torch::Tensor const& queries) = 0;
  virtual void end_token() = 0;
  /// For all sequences: the bytes in use, and the bytes of the same tokens in 16 bits an element. Waits.
  [[nodiscard]] virtual std::tuple<std::int64_t, std::int64_t> bytes() const = 0;
};

/// A layer's keys in few directions, its values elsewhere (tessera/shadow_kv.hpp).
class long_cache {
 public:
  virtual ~long_cache() = default;
  /// Caches the prompt of one sequence: key heads x tokens x channels, keys before their rotation.
  virtual void prefill(std::int64_t sequence, torch::Tensor const& keys, torch::Tensor const& values) = 0;
  /// Decodes a token of each sequence: sequences x heads x channels, queries and keys before their rotation.
  virtual torch::Tensor decode(torch::Tensor const& queries, torch::Tensor const& keys,
                               torch::Tensor const& values) = 0;
  /// Bytes on the device and on the host.
  [[nodiscard]] virtual std::tuple<std::int64_t, std::int64_t> bytes() const = 0;
  /// The part of the selected chunks that were on the device already. Waits.
  [[nodiscard]] virtual double hit_rate() const = 0;
};

struct kv_cache_shape {
  std::int64_t sequences;
  std::int64_t tokens;
  std::int64_t heads;
  std::int64_t channels;
  std::vector<std::int64_t> parts;  ///< 1: a single layer, 2: a pair that shares directions
};

struct long_cache_shape {
  std::int64_t query_heads;
  std::int64_t key_heads;
  std::int64_t channels;
  std::vector<std::int64_t> tokens;  ///< tokens that each sequence has room for
  std::int64_t chunks;               ///< chunks that each head selects
  double rotary_base;
};

/// NeuZip's functions.
class weights_backend {
 public:
  virtual ~weights_backend() = default;
  /// The stream of bytes of the weights, on the device. Waits.
  virtual torch::Tensor compress(torch::Tensor const& weights) = 0;
  virtual void decompress(torch::Tensor const& stream, torch::Tensor const& weights) = 0;
};

/// Says for which inputs gradients are wanted.
struct wanted_gradients {
  bool hidden;
  bool classifier;  ///< false where it is frozen
};

/// Functions of Cut Cross-Entropy.
class loss_backend {
 public:
  virtual ~loss_backend() = default;
  /// The loss and the workspace. backward() needs the workspace of a forward pass with `for_backward`, which is larger.
  virtual std::tuple<torch::Tensor, torch::Tensor> forward(torch::Tensor const& hidden, torch::Tensor const& classifier,
                                                           torch::Tensor const& labels, std::int64_t ignore_index,
                                                           bool exact, bool for_backward) = 0;
  /// The gradients. Those that are not wanted are undefined, and not computed.
  virtual std::tuple<torch::Tensor, torch::Tensor> backward(torch::Tensor const& hidden,
                                                            torch::Tensor const& classifier,
                                                            torch::Tensor const& labels, std::int64_t ignore_index,
                                                            bool exact, torch::Tensor const& workspace,
                                                            torch::Tensor const& upstream, wanted_gradients wanted) = 0;
};

/// SageAttention2's functions.
class attention_backend {
 public:
  virtual ~attention_backend() = default;
  /// Attends; tensors are batch x heads x tokens x channels in any strides. Gives the result and log-sum-exps.
  virtual std::tuple<torch::Tensor, torch::Tensor> forward(torch::Tensor const& queries, torch::Tensor const& keys,
                                                           torch::Tensor const& values, bool is_causal,
                                                           double scale) = 0;
};

/// Functions of MiniCache and ShadowKV.
class caches_backend {
 public:
  virtual ~caches_backend() = default;
  virtual std::shared_ptr<kv_cache> make_kv_cache(kv_cache_shape const& shape, torch::Device device) = 0;
  virtual std::shared_ptr<long_cache> make_long_cache(long_cache_shape const& shape, torch::Device device) = 0;
};

/// All functions for a kind of device. All tensors of a call are on that device. wait() throws the errors that programs
/// find on the device.
struct backend {
  weights_backend& weights;
  loss_backend& loss;
  attention_backend& attention;
  caches_backend& caches;
  /// Waits for the device's current stream, and throws what programs reported since the last call.
  void (*wait)(torch::Device device);
};

backend& cpu_backend();
/// There is one where the extension was built with CUDA.
backend& cuda_backend();

}  // namespace tessera_torch
