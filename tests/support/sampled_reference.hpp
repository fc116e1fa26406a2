// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Attention whose means and ranges are those of a sample of the tokens: methods, problems, and values beyond the
/// range.
#pragma once

#include <cmath>
#include <cstdint>

#include <tessera/core/precision.hpp>
#include <tessera/quantize/token_sample.hpp>
#include <tessera/sage_attention2.hpp>

#include "support/attention_reference.hpp"

namespace tessera_test {

using sampled_keys = tessera::smoothed<tessera::symmetric_quantizer<8, tessera::per_thread>, tessera::sampled_mean>;
using whole_keys = tessera::smoothed<tessera::symmetric_quantizer<8, tessera::per_thread>>;
using whole_values = tessera::float8_quantizer<tessera::float8_e4m3>;
using sampled_values = tessera::sampled_range<whole_values>;
/// The method that subtracts a sampled mean from values, too.
using sampled_all = tessera::attention<sampled_keys, tessera::smoothed<sampled_values, tessera::sampled_mean>>;
using sampled_keys_alone = tessera::attention<sampled_keys, whole_values>;
using sampled_values_alone = tessera::attention<whole_keys, sampled_values>;

/// The first token from `from` on that is in the sample of a sequence, or is not. The sequence has 1024 tokens or more.
inline std::int64_t token_of_sample(std::int64_t length, std::int64_t from, bool is_in_it) {
  std::int64_t const step = tessera::sampled_mean::sample.step(length);
  std::int64_t token = from;
  while ((tessera::token_sample::token(token / step, step) == token) != is_in_it) {
    ++token;
  }
  return token;
}

/// Puts values into head 0 of each sequence that are far beyond the sample's range, or not finite: outside of the
/// sample in channels 1 to 6, of which 5 is zero elsewhere, and in the sample in channels 8 to 10. Other heads stay as
/// they are.
template <class T>
void add_values_beyond(attention_problem<T>& p) {
  tessera::attention_shape const& s = p.shape;
  for (std::int64_t sequence = 0; sequence < s.batch; ++sequence) {
    std::int64_t const length = p.key_lengths.empty() ? s.keys : std::int64_t{p.key_lengths[as_size(sequence)]};
    T* const head = p.values.data() + sequence * s.key_heads * s.keys * s.channels;
    auto const put = [&](std::int64_t near, std::int64_t channel, float value, bool is_in_sample) {
      std::int64_t const token = token_of_sample(length, near, is_in_sample);
      head[token * s.channels + channel] = tessera::store<T>(value);
    };
    for (std::int64_t token = 0; token < s.keys; ++token) {
      head[token * s.channels + 5] = T{0};
      head[token * s.channels + 7] = T{0};
    }
    put(3, 1, 1000.0F, false);
    put(length / 2, 1, -3000.0F, false);
    put(length - 40, 2, -77.0F, false);
    put(140, 3, INFINITY, false);
    put(300, 4, NAN, false);
    put(300, 5, 1e-3F, false);
    put(9, 6, 1000.0F, false);
    put(9, 6, -1000.0F, true);
    put(99, 8, 1000.0F, true);
    put(200, 9, NAN, true);
    put(200, 10, -INFINITY, true);
  }
}

}  // namespace tessera_test
