// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `value_products`: a warpgroup's products of the weights of a tile of keys with values, which warpgroup_attention
/// adds to outputs in fp32.
#pragma once

#include <tessera/core/float8.hpp>
#include <tessera/program/attention/detail/forward_band.hpp>
#include <tessera/program/attention/detail/forward_shape.cuh>
#include <tessera/tile/cuda/sm_90/warpgroup_mma.cuh>
#include <tessera/tuning/attention/attention.hpp>

namespace tessera {
inline namespace v0 {

/// Channels: of values.
template <int Channels, warpgroup_attention_policy Policy>
struct value_products {
  using shape = warpgroup_attention_shape<Channels, Policy>;
  static constexpr int sets = Policy.product_sets > 0 ? Policy.product_sets : 1;  ///< sets of products
  static constexpr int output_registers = Channels / 2 + 2;                       ///< the last two are sums of weights
  /// Outputs of a lane.
  using outputs_type = float[output_registers];
  /// Products of a lane, some channels at a time.
  using sets_type = float[sets][Policy.value_channels / 2 + 4];

  /// Multiplies a state's weights by the values of a stage, and adds the products to its outputs times its factor.
  /// `is_never` is false, but the compiler does not know that. State: warpgroup_attention's consumer_state.
  template <class State>
  __device__ __forceinline__ static void run(State& state, int stage, bool is_never) {
    float own[shape::value_columns(0) / 2];
    auto& products = products_of<0>(state, own);
    start<0>(state, stage, is_never, products);
    finish<0>(state, stage, is_never, products);
  }

 private:
  /// Multiplies some channels at a time, so that products take fewer registers. The products of the channels that begin
  /// with First have been started.
  template <int First, class State, int Registers>
  __device__ __forceinline__ static void finish(State& state, int stage, bool is_never, float (&products)[Registers]) {
    constexpr int next = First + Policy.value_channels;
    if constexpr (next >= Channels) {
      await_multiply<0>(products);
      add<First>(state, products);
    } else {
      float own[shape::value_columns(next) / 2];
      auto& next_products = products_of<next>(state, own);
      if constexpr (Policy.product_sets > 1) {
        start<next>(state, stage, is_never, next_products);
        await_multiply<1>(products);
        add<First>(state, products);
      } else {
        await_multiply<0>(products);
        add<First>(state, products);
        start<next>(state, stage, is_never, next_products);
      }
      finish<next>(state, stage, is_never, next_products);
    }
  }

  template <int First, class State, int Registers>
  __device__ __forceinline__ static auto& products_of(State& state, float (&own)[Registers]) {
    if constexpr (Policy.product_sets > 0) {
      return reinterpret_cast<float(&)[Registers]>(state.products[First / Policy.value_channels % sets]);
    } else {
      return own;
    }
  }

  /// Starts the products of the weights of 128 keys with some channels of their values, and with the column of ones
  /// behind the last channel. The compiler takes products that reuse the registers of others for dependent on them.
  /// Without `is_never` it would delay the additions of the others, and take more registers than there are.
  template <int First, class State, int Registers>
  __device__ __forceinline__ static void start(State& state, int stage, bool is_never, float (&products)[Registers]) {
    using mma = warpgroup_mma<float8_e4m3, 2 * Registers>;
    matrix_descriptor const values = state.values.further(stage * shape::value_bytes + First * attention_tile_keys);
    constexpr int unused = Policy.product_sets > 0 ? Policy.product_sets * Policy.value_channels : Channels;
    bool const adds_first = First >= unused && is_never;
    begin_multiply(products);
#pragma unroll
    for (int step = 0; step < attention_tile_keys / 32; ++step) {
      mma::multiply(products, state.weights.of_step[step], values.further(32 * step), step != 0 || adds_first);
    }
    commit_multiply();
  }

  template <int First, class State, int Registers>
  __device__ __forceinline__ static void add(State& state, float const (&products)[Registers]) {
#pragma unroll
    for (int i = 0; i < Registers; ++i) {
      int const at = First / 2 + i;
      if (at < Channels / 2) {
        state.outputs[at] = __fmaf_rn(state.outputs[at], state.factor.values[0][i / 2 % 2], products[i]);
      } else if (i % 2 == 0) {  // of the 8 columns behind the values the first is the column of ones
        float& sum = state.outputs[Channels / 2 + i / 2 % 2];
        sum = __fmaf_rn(sum, state.factor.values[0][i / 2 % 2], products[i]);
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
