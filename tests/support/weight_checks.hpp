// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Checks of codecs of weights on the host, whatever the codec: what comes back, and the same bytes everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/weights/compressed_weights.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "algorithm/weights/weight_samples.hpp"
#include "support/catch.hpp"

namespace tessera_test {

/// Checks that weights come back bit for bit, from a stream no larger than its spec says.
template <class Codec>
void check_round_trip(tessera::cpu const& exec, weight_array<typename Codec::value_type> const& weights,
                      tessera::weight_stream_options options = {}) {
  auto const stream = Codec::encode(exec, weights.view(), options);
  REQUIRE(stream.size() <= Codec::largest_bytes(Codec::spec(weights.count(), options)));
  weight_array<typename Codec::value_type> decoded(weights.count());
  decoded.fill_with_rubbish();
  Codec::decode(exec, stream.view(), decoded.view());
  REQUIRE(decoded == weights);
}

/// The same for weights of every kind and of these numbers, in blocks of every size, some with checksums.
template <class Codec>
void check_kinds_and_counts(tessera::cpu const& exec, std::vector<std::int64_t> const& counts) {
  using type = typename Codec::value_type;
  std::uint64_t seed = 1;
  for (weight_kind kind : weight_kinds) {
    for (std::int64_t count : counts) {
      tessera::weight_stream_options const options{.block = 1024 << (seed % 4), .checksums = seed % 3 == 0};
      ++seed;
      INFO(tessera::scalar_traits<type>::name()
           << ", kind " << static_cast<int>(kind) << ", count " << count << ", blocks of " << options.block
           << ", checksums " << options.checksums);
      check_round_trip<Codec>(exec, weight_array<type>(kind, seed, count), options);
    }
  }
}

/// All patterns of a type with up to sixteen bits, NaNs with every payload among them, `times` times.
template <class T>
weight_array<T> all_patterns(std::int64_t times = 1) {
  constexpr std::int64_t patterns = std::int64_t{1} << tessera::scalar_traits<T>::bits;
  weight_array<T> weights(times * patterns);
  for (std::int64_t i = 0; i < weights.count(); ++i) {
    weights[i] = tessera::from_bits<T>(static_cast<typename tessera::scalar_traits<T>::bits_type>(i % patterns));
  }
  return weights;
}

/// fp32 weights of any bits, with infinities and NaNs of every payload, and with many subnormals.
inline weight_array<float> patterns_of_fp32(std::int64_t count) {
  weight_array<float> weights(count);
  for (std::int64_t i = 0; i < weights.count(); ++i) {
    auto bits = tessera::testing::uniform_bits{}.value(9, static_cast<std::uint64_t>(i));
    bits |= i % 5 == 0 ? 0x7f800000U : 0U;
    bits &= i % 7 == 0 ? 0x807fffffU : ~0U;
    bits &= i % 11 == 0 ? 0xff800000U : ~0U;
    weights[i] = tessera::from_bits<float>(bits);
  }
  return weights;
}

inline std::vector<std::byte> bytes_of(tessera::buffer<std::byte> const& stream) {
  return {stream.begin(), stream.end()};
}

/// Checks that the adversary writes the bytes and reads the weights that the CPU does.
template <class Codec>
void check_adversary(weight_kind kind, std::int64_t count, tessera::weight_stream_options options) {
  using type = typename Codec::value_type;
  INFO(tessera::scalar_traits<type>::name() << ", kind " << static_cast<int>(kind) << ", count " << count);
  tessera::cpu const plain{.threads = 1};
  weight_array<type> const weights(kind, 4, count);
  auto const expected = bytes_of(Codec::encode(plain, weights.view(), options));
  tessera::testing::adversary const exec{.seed = static_cast<std::uint64_t>(count)};
  auto const stream = Codec::encode(exec, weights.view(), options);
  REQUIRE(bytes_of(stream) == expected);
  weight_array<type> decoded(count);
  weight_array<type> wanted(count);
  Codec::decode(exec, stream.view(), decoded.view());
  Codec::decode(plain, stream.view(), wanted.view());
  REQUIRE(decoded == wanted);
}

}  // namespace tessera_test
