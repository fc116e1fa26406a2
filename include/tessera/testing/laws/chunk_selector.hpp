// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of a ChunkSelector.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <tessera/select/chunk_landmarks.hpp>
#include <tessera/testing/laws/law_report.hpp>
#include <tessera/testing/laws/selector.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {

namespace detail {

/// Rows of floats as keys and queries of a ChunkSelector.
struct float_rows {
  float const* data;
  std::int64_t channels;
  float operator()(std::int64_t row, std::int64_t channel) const { return data[row * channels + channel]; }
  float operator()(std::int64_t channel) const { return data[channel]; }
};

/// The data that a selector keeps of a chunk, in memory that was full of `rubbish`. Its pieces are made from the last
/// to the first, or from the first to the last.
template <ChunkSelector S>
std::vector<typename chunk_landmarks<S>::element_type> kept_of(S const& selector, float_rows keys, int rubbish,
                                                               bool is_reversed) {
  using landmarks = chunk_landmarks<S>;
  std::vector<typename landmarks::element_type> kept(
      static_cast<std::size_t>(landmarks::elements(selector, keys.channels)));
  if (!kept.empty()) {
    std::memset(static_cast<void*>(kept.data()), rubbish, kept.size() * sizeof(kept[0]));
  }
  std::int64_t const pieces = landmarks::pieces(selector, keys.channels);
  for (std::int64_t i = 0; i < pieces; ++i) {
    landmarks::reduce(selector, keys, is_reversed ? pieces - 1 - i : i, keys.channels, kept.data());
  }
  return kept;
}

}  // namespace detail

/// Checks S on the chunks of `keys` and on `queries`, both of which are rows of `channels` floats.
template <ChunkSelector S>
law_report check_chunk_laws(std::vector<float> const& keys, std::vector<float> const& queries, std::int64_t channels,
                            S const& selector = {}) {
  law_report report;
  auto const chunks = static_cast<std::int64_t>(keys.size()) / channels / S::chunk;
  auto const rows = static_cast<std::int64_t>(queries.size()) / channels;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    detail::float_rows const own{keys.data() + chunk * S::chunk * channels, channels};
    auto const kept = detail::kept_of(selector, own, 0x55, false);
    auto const again = detail::kept_of(selector, own, 0xaa, true);
    std::string const name = "chunk " + std::to_string(chunk);
    bool const is_same = kept.empty() || std::memcmp(kept.data(), again.data(), kept.size() * sizeof(kept[0])) == 0;
    report.expect(is_same, "what is kept depends on the keys alone", name);
    for (std::int64_t row = 0; row < rows; ++row) {
      detail::float_rows const query{queries.data() + row * channels, channels};
      scored_chunk const at{chunk, 0, 1000};
      float const score = chunk_landmarks<S>::score(selector, query, kept.data(), channels, at);
      report.expect(std::isfinite(score), "finite keys and queries have a finite score", name);
      report.expect(score == chunk_landmarks<S>::score(selector, query, kept.data(), channels, at),
                    "the same keys and query have the same score", name);
    }
  }
  detail::check_budget(report, selector);
  return report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
