// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <type_traits>
#include <vector>

#include <tessera/algorithm/paged_cache/direction_codecs.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("a codec of several is the first of them, and names all until one is taken", "[host]") {
  using codec = direction_codecs<direction_codec<3>, direction_codec<4, 128>, direction_codec<8, 32, 2>>;
  STATIC_REQUIRE(PageCodec<codec>);
  STATIC_REQUIRE((codec::key_bits == 3 && codec::value_group == 64 && codec::value_bits == 3));
  STATIC_REQUIRE(std::is_same_v<shared_codec_t<codec>, direction_codec<>>);
  STATIC_REQUIRE(
      direction_codec<2, 64, 4>::any_codec([](auto one) { return one.key_bits == 2 && one.value_bits == 4; }));
  std::vector<int> bits;
  auto const takes = [&](int key_bits) {
    bits.clear();
    return codec::any_codec([&](auto one) {
      bits.push_back(one.key_bits);
      return one.key_bits == key_bits;
    });
  };
  CHECK((takes(3) && bits == std::vector<int>{3}));
  CHECK((takes(8) && bits == std::vector<int>{3, 4, 8}));
  CHECK((!takes(2) && bits == std::vector<int>{3, 4, 8}));
}
