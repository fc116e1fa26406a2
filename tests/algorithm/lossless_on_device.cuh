// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// One check for all types: the device writes the bytes that the host does, and reads the weights back.
#pragma once

#include <tessera/neuzip.hpp>

#include "algorithm/device_weights.cuh"

namespace tessera_test {

template <class Codec>
void check_on_device(tessera::cuda const& exec, weight_kind kind, std::int64_t count,
                     tessera::weight_stream_options options, int shift) {
  using type = typename Codec::value_type;
  INFO(tessera::scalar_traits<type>::name()
       << ", coder " << static_cast<int>(Codec::spec(1 << 20).coder) << ", kind " << static_cast<int>(kind)
       << ", count " << count << ", blocks of " << options.block << ", checksums " << options.checksums << ", shift "
       << shift);
  const weight_array<type> weights(kind, static_cast<std::uint64_t>(count), count);
  const std::vector<std::byte> expected = encode_on_host<Codec>(weights, options);
  REQUIRE((encode_on_device<Codec>(exec, weights, options, shift) == expected));
  const tessera::weight_stream_spec spec = Codec::spec(count, options);
  device_bytes stream(static_cast<std::int64_t>(expected.size()), 0, 0);
  stream.upload(expected.data(), stream.size());
  device_weights<type> decoded(count, shift);
  Codec::decode(exec, spec, stream.view(), decoded.view(), device_space(Codec::decode_plan(exec, spec)));
  exec.wait();
  REQUIRE(decoded.guards_are_intact());
  REQUIRE((decoded.download() == weights));
}

template <class Codec>
void check_kinds_and_counts_on_device() {
  const tessera::cuda exec;
  int turn = 0;
  for (weight_kind kind : weight_kinds) {
    for (std::int64_t count : {1, 7, 255, 256, 257, 2047, 2048, 2049, 8191, 8192, 8193, 100'001}) {
      const tessera::weight_stream_options options{.block = 8192 >> (turn % 4), .checksums = turn % 5 == 0};
      check_on_device<Codec>(exec, kind, count, options, turn % 3 == 2 ? 1 + turn % 7 : 0);
      ++turn;
    }
  }
  // Several tiles of blocks, of which the histogram counts a part.
  check_on_device<Codec>(exec, weight_kind::mixture, 1'100'001, {.block = 1024}, 0);
  check_on_device<Codec>(exec, weight_kind::a_few_escapes, 1'100'000, {.block = 8192, .checksums = true}, 0);
}

template <class T>
void check_both_coders_on_device() {
  check_kinds_and_counts_on_device<tessera::neuzip_of<T>>();
  check_kinds_and_counts_on_device<tessera::neuzip_fixed<T>>();
}

}  // namespace tessera_test
