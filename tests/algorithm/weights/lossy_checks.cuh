// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Checks of lossy codecs on CUDA devices: the bytes and the weights are those of the host.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <vector>

#include <tessera/core/precision.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/testing/generators.hpp>

#include "algorithm/weights/device_weights.cuh"

namespace tessera_test {

template <class Codec>
void check_kinds() {
  for (weight_kind kind : {weight_kind::gauss, weight_kind::mixture, weight_kind::all_nan, weight_kind::random_bits}) {
    check_same_as_host<Codec>(kind, 20'001, {});
    check_same_as_host<Codec>(kind, 20'001, {.block = 2048, .checksums = true, .normalizer_block = 512});
    check_same_as_host<Codec>(kind, 33, {.normalizer_block = 32});
  }
}

/// Kinds of blocks and windows: with and without escapes and exponents from elsewhere, whole blocks and one that is
/// not; normalizers of fewer weights than a lane row has, and of more.
template <class Codec>
void check_blocks() {
  for (weight_kind kind : weight_kinds) {
    check_same_as_host<Codec>(kind, 3 * 8192, {});
    check_same_as_host<Codec>(kind, 3 * 8192 + 1, {.normalizer_block = 1024});
    check_same_as_host<Codec>(kind, 5 * 1024 - 7, {.block = 1024, .checksums = true});
    check_same_as_host<Codec>(kind, 4 * 1024, {.block = 1024, .normalizer_block = 32});
  }
}

/// Decodes weights around `scale` on the device, to places that are aligned and not, and compares them with those of
/// the host. Normalized weights whose exponents are at the end of the type's are decoded in another way.
template <class Codec>
void check_scale(float scale, int normalizer_block) {
  using type = typename Codec::value_type;
  CAPTURE(scale, normalizer_block, tessera::scalar_traits<type>::name(), Codec::mantissa_type::kept_bits);
  constexpr std::int64_t count = 4 * 2048 + 3;
  tessera::weight_stream_options const options{.block = 2048, .normalizer_block = normalizer_block};
  weight_array<type> weights(count);
  for (std::int64_t i = 0; i < count; ++i) {
    float const value = tessera::testing::gauss{.sigma = 1.0}.value(5, static_cast<std::uint64_t>(i));
    weights[i] = tessera::store<type>(value * scale);
  }
  auto const stream = encode_on_host<Codec>(weights, options);
  tessera::buffer<std::byte> aligned(std::ssize(stream));
  std::copy(stream.begin(), stream.end(), aligned.begin());
  weight_array<type> expected(count);
  Codec::decode(tessera::cpu{}, aligned.view(), expected.view());
  tessera::cuda const exec;
  device_bytes there(std::ssize(stream), 0, 0);
  there.upload(stream.data(), there.size());
  auto const spec = Codec::spec(count, options);
  for (int const shift : {0, 1}) {
    device_weights<type> decoded(count, shift);
    Codec::decode(exec, spec, there.view(), decoded.view(), device_space(Codec::plan_decode(exec, spec)));
    exec.wait();
    CHECK((decoded.download() == expected));
    CHECK(decoded.guards_are_intact());
  }
}

/// Scales from subnormal numbers to infinities.
template <class Codec>
void check_scales(std::initializer_list<float> scales) {
  for (float const scale : scales) {
    for (int const normalizer_block : {0, 32, 512}) {
      check_scale<Codec>(scale, normalizer_block);
    }
  }
}

}  // namespace tessera_test
