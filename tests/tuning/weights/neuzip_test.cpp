// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>

#include <tessera/entropy/weight_stream.hpp>
#include <tessera/testing/laws/tuning.hpp>
#include <tessera/tuning/weights/neuzip.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// The architectures of a policy include the one that it is for, and its blocks fit a multiprocessor.
template <class Chosen>
bool is_for(int architecture) {
  auto const policy = Chosen{}(architecture);
  bool const fits = policy.threads % 32 == 0 && policy.threads >= 32 && policy.threads <= 1024 &&
                    policy.blocks_per_multiprocessor * policy.threads <= 2048;
  return policy.from <= architecture && architecture < policy.before && fits;
}

}  // namespace

TEST_CASE("tunings of compressed weights keep the laws", "[host]") {
  CHECK(testing::check_laws<neuzip_decode_tuning>().text().empty());
  CHECK(testing::check_laws<neuzip_encode_tuning>().text().empty());
}

TEST_CASE("each architecture is in one range of policies of compressed weights", "[host]") {
  for (int const architecture : {0, 750, 800, 860, 890, 899, 900, 1000, 1199, 1200, 1210}) {
    CAPTURE(architecture);
    CHECK(is_for<neuzip_decode_tuning>(architecture));
    CHECK(is_for<neuzip_encode_tuning>(architecture));
  }
  CHECK(neuzip_decode_tuning{}(800).before == neuzip_decode_tuning{}(900).from);
  CHECK(neuzip_encode_tuning{}(800).before == neuzip_encode_tuning{}(900).from);
  CHECK(neuzip_decode_tuning{}(900).before == neuzip_decode_tuning{}(1200).from);
  CHECK(neuzip_encode_tuning{}(900).before == neuzip_encode_tuning{}(1200).from);
}

TEST_CASE("words of states and codes of all warps fit the shared memory of an architecture", "[host]") {
  auto const decoding = [](int architecture) {
    auto const policy = neuzip_decode_tuning{}(architecture);
    return policy.blocks_per_multiprocessor * (policy.threads / 32) * policy.words * 2;
  };
  // A thread block; a multiprocessor may have room for fewer of them than a policy launches.
  auto const encoding = [](int architecture) {
    constexpr std::int64_t bytes_of_warp =
        2 * weight_stream_spec::largest_words + 4 * weight_stream_spec::largest_escapes;
    return neuzip_encode_tuning{}(architecture).threads / 32 * bytes_of_warp;
  };
  for (int const architecture : {800, 860, 890, 1200, 1210}) {
    CAPTURE(architecture);
    CHECK(decoding(architecture) <= 99 * 1024);
    CHECK(encoding(architecture) <= 99 * 1024);
  }
  for (int const architecture : {900, 1000}) {
    CAPTURE(architecture);
    CHECK(decoding(architecture) <= 227 * 1024);
    CHECK(encoding(architecture) <= 227 * 1024);
  }
}
