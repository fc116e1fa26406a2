// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `encode_again`: makes the codes of values again for heads in which encode_tiles met values without room in the scale
/// of their channel's sample. The new scale is fitted to the largest of those values, which is the largest of the
/// channel. A thread block takes some of the tiles of a head, and ends at once where there is nothing to do.
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/fast_divisor.hpp>
#include <tessera/program/attention/quantize_heads.cuh>
#include <tessera/quantize/code_scale.hpp>
#include <tessera/reduce/absolute_maximum_or_nan.hpp>
#include <tessera/tile/cuda/bytes.cuh>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/dependent_launch.cuh>

namespace tessera {
inline namespace v0 {

/// Makes codes of values again. Encode: an encode_tiles.
template <class Encode>
struct encode_again {
  static constexpr int lanes = Encode::lanes;
  static constexpr bool is_persistent = true;
  static constexpr bool waits_for_stream = true;
  static constexpr int blocks_per_multiprocessor = Encode::blocks_per_multiprocessor;
  static constexpr std::int32_t enough_blocks = 512;  ///< thread blocks that saturate any machine's memory
  static constexpr float highest = 448;               ///< the largest e4m3

  using scratch_type = typename Encode::scratch_type;

  Encode encode;             ///< the program of the launch before
  float* value_scales;       ///< batch x key heads x channels
  float* value_reciprocals;  ///< memory of encode_tiles::value_reciprocals
  fast_divisor head_blocks;  ///< thread blocks that share the tiles of a head

  [[nodiscard]] TESSERA_FN std::int32_t count() const { return encode.key_heads * head_blocks.value(); }

  __device__ __forceinline__ void operator()(cuda_block<lanes> const& group, std::int64_t which,
                                             scratch_type& scratch) const {
    let_next_kernel_start();
    wait_for_stream();
    auto const index = static_cast<std::int32_t>(which);
    std::int32_t const head = index / head_blocks;
    if (encode.beyond[std::int64_t{encode.key_heads} * encode.channels + head] == 0) {
      return;
    }
    fit_again(group, head);
    for (std::int32_t at = index - head * head_blocks.value(); at < encode.key_tiles.value();
         at += head_blocks.value()) {
      group.sync();
      encode.encode_values_again(group, head, at, scratch);
    }
  }

 private:
  /// Fits the scales of a head's channels again. All blocks of the head write the same scales.
  __device__ __forceinline__ void fit_again(cuda_block<lanes> const& group, std::int32_t head) const {
    absolute_maximum_or_nan_reducer const known;
    std::int64_t const at = std::int64_t{head} * encode.channels + group.lane;
    std::uint32_t const largest = group.lane < encode.channels ? encode.beyond[at] : 0;
    if (largest != 0) {
      code_scale const fitted = fit_scale(known.value(largest), highest);
      value_scales[at] = fitted.scale;
      value_reciprocals[at] = fitted.reciprocal;
    }
  }
};

}  // namespace v0
}  // namespace tessera
