// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// 8-bit Adam (Dettmers et al., arXiv 2110.02861): the step of Adam and AdamW with moments that are codes of 8 bits, of
/// which a block of neighbouring parameters shares a scale (2048 in the paper).
///
///     m = b1 m + (1 - b1) g      v = b2 v + (1 - b2) g^2      w = (1 - rate decay) w - rate m' / (sqrt(v') + epsilon)
///
/// where m' = m / (1 - b1^t), v' = v / (1 - b2^t). A program decodes a block's moments by a list of what codes stand
/// for, moves its weights by the new moments, and encodes these with a new scale. Quantizers are exchangeable. The
/// paper's stable embedding, a layer of a model, is left out. Bytes: 16 a parameter (codes 4, gradient 4, weight 8),
/// where moments in fp32 take 28.
#pragma once

#include <cmath>
#include <cstdint>

#include <tessera/concepts/program.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/math.hpp>
#include <tessera/tile/staged_tile.hpp>

#include "coded_moments.hpp"
#include "dynamic_quantizer.hpp"

namespace tessera_examples {

struct adam_options {
  float rate = 1e-3F, first_decay = 0.9F, second_decay = 0.999F, epsilon = 1e-8F, weight_decay = 0.0F;
};

/// One step. A lane takes two chunks of four parameters.
template <Quantizer First = dynamic_quantizer<2048, true>, Quantizer Second = dynamic_quantizer<2048, false>>
struct eight_bit_adam {
  using first_quantizer = First;
  using second_quantizer = Second;
  static constexpr int block = First::group, lanes = coded_moments<First>::lanes;
  static_assert(block == Second::group);
  static constexpr int blocks_per_multiprocessor = lanes == 256 ? 4 : 1;  ///< 64 registers a lane
  struct scratch_type {
    float first[256], second[256];  ///< what codes stand for
  };
  array_view<tile_chunk<float> const> gradients;  ///< of parameters, four in a chunk
  array_view<tile_chunk<float>> weights;          ///< as gradients
  coded_moments<First> first;
  coded_moments<Second> second;
  adam_options options;
  float rate = 0, root_factor = 0;  ///< rate / (1 - b1^t), 1 / sqrt(1 - b2^t)

  /// Enqueues step number `t`, from 1 on.
  template <class Executor>
  void step(Executor const& exec, int t) {
    rate = static_cast<float>(double{options.rate} / (1 - std::pow(double{options.first_decay}, t)));
    root_factor = static_cast<float>(1 / std::sqrt(1 - std::pow(double{options.second_decay}, t)));
    exec.run(*this, divide_up(4 * weights.size(), std::int64_t{block}));
  }

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    first.list(group, which, scratch.first);
    second.list(group, which, scratch.second);
    group.sync();
    per_lane<float[8], G> m, v;
    for (int lane : group) {
      for (int half = 0; half < 2; ++half) {
        std::int64_t const at = first.place(which, lane, half);
        bool const is_inside = at < weights.size();
        auto const g = is_inside ? gradients[at] : tile_chunk<float>{};
        auto w = is_inside ? weights[at] : tile_chunk<float>{};
        std::uint32_t const old_m = is_inside ? first.codes[at] : 0u, old_v = is_inside ? second.codes[at] : 0u;
        for (int k = 0; k < 4; ++k) {
          float const slope = g.values[k];
          float& new_m = m[lane][4 * half + k];
          float& new_v = v[lane][4 * half + k];
          new_m = slope + options.first_decay * (scratch.first[first.code(old_m, k)] - slope);
          new_v =
              options.second_decay * scratch.second[second.code(old_v, k)] + (1 - options.second_decay) * slope * slope;
          w.values[k] = w.values[k] * (1 - options.rate * options.weight_decay) -
                        rate * (new_m / (tessera::sqrt(new_v) * root_factor + options.epsilon));
        }
        if (is_inside) {
          weights[at] = w;
        }
      }
    }
    first.store(group, which, m);
    second.store(group, which, v);
  }
};

static_assert(DeviceProgram<eight_bit_adam<>>);

}  // namespace tessera_examples
