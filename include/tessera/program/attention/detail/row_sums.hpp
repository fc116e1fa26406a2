// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Sums and ranges of channels over rows of floats that one thread has in memory: what the host does instead of the
/// lanes of channel_statistics.hpp, which take a channel each.
///
///     detail::row_sums<16> sums;                  // of up to 64 channels, 16 sums each
///     sums.clear();
///     int const done = sums.add(row, 64, part);   // to sum number `part` of each; others than these are the caller's
#pragma once

#include <cstdint>

#include <tessera/config.hpp>
#include <tessera/core/math.hpp>
#include <tessera/tile/serial/clear_vectors.hpp>
#include <tessera/tile/serial/vectors.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Parts: sums of a channel.
template <int Parts>
struct row_sums {
  static constexpr int channels = 64;  ///< the most channels

  float sums[Parts][channels];  ///< of finite values
  float lowest[channels];       ///< the lowest values, or NaN: see channel_summary::widen()
  float highest[channels];      ///< the highest values, or NaN

  /// Begins without rows.
  TESSERA_FN void clear() {
    for (int channel = 0; channel < channels; ++channel) {
      lowest[channel] = infinity;
      highest[channel] = -infinity;
      for (auto& part : sums) {
        part[channel] = 0.0F;
      }
    }
  }
  /// Adds a row's channels, and widens their ranges by them, as far as vectors take them; gives the number of these.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // host only, called from code for both sides
#endif
  TESSERA_FN int add([[maybe_unused]] float const* row, [[maybe_unused]] int count, [[maybe_unused]] int part) {
#if defined(TESSERA_HAS_VECTORS)
    if (has_vectors()) {
      add_eights(row, count / 8 * 8, sums[part]);
      return count / 8 * 8;
    }
#endif
    return 0;
  }

 private:
#if defined(TESSERA_HAS_VECTORS)
  [[gnu::target("avx2")]] void add_eights(float const* row, int count, float* to) {
    detail::clear_vectors const at_end;
    for (int i = 0; i < count; i += 8) {
      eight_words const bits = vector_at<eight_words>(row + i).value;
      auto const is_finite = reinterpret_cast<eight_words>((bits & INT32_MAX) < 0x7f800000);
      vector_at<eight_floats>(to + i).value += reinterpret_cast<eight_floats>(bits & is_finite);
      eight_words const known = (bits & is_finite) | (~is_finite & INT32_MAX);
      auto const value = reinterpret_cast<eight_floats>(known);
      auto& low = vector_at<eight_words>(lowest + i);
      auto& high = vector_at<eight_words>(highest + i);
      eight_words const is_lower =
          reinterpret_cast<eight_words>(value < reinterpret_cast<eight_floats>(low.value)) | ~is_finite;
      eight_words const is_higher =
          reinterpret_cast<eight_words>(value > reinterpret_cast<eight_floats>(high.value)) | ~is_finite;
      low.value = (is_lower & known) | (~is_lower & low.value);
      high.value = (is_higher & known) | (~is_higher & high.value);
    }
  }
#endif
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
