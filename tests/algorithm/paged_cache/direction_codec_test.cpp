// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/paged_cache/direction_codec.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("a codec of directions takes formats that its programs can make, and no others", "[host]") {
  using codec = direction_codec<>;
  cache_page_format const sound{128, 4, 4, 2, 2};
  auto const takes = [&](auto const& change) {
    cache_page_format format = sound;
    change(format);
    return codec::fault(format).is_none();
  };
  CHECK(takes([](auto&) {}));
  for (int const channels : {32, 64, 96, 256}) {
    CHECK(takes([&](auto& f) { f.channels = channels; }));
  }
  for (int const channels : {0, 16, 31, 33, 100, 288}) {
    CAPTURE(channels);
    CHECK_FALSE(takes([&](auto& f) { f.channels = channels; }));
  }
  for (int bits = 0; bits <= 9; ++bits) {
    bool const is_known = bits == 2 || bits == 3 || bits == 4 || bits == 8;
    CAPTURE(bits);
    CHECK(takes([&](auto& f) { f.key_bits = bits; }) == is_known);
    CHECK(takes([&](auto& f) { f.value_bits = bits; }) == is_known);
  }
  for (int groups = -1; groups <= 17; ++groups) {
    bool const is_known = groups == 1 || groups == 2 || groups == 4 || groups == 8;
    CAPTURE(groups);
    CHECK(takes([&](auto& f) { f.value_groups = groups; }) == is_known);
  }
  CHECK(takes([](auto& f) { f.layers = 1; }));
  CHECK_FALSE(takes([](auto& f) { f.layers = 0; }));
  CHECK_FALSE(takes([](auto& f) { f.layers = 3; }));
}

TEST_CASE("the bytes of a page are those of its codes, parameters, lengths and header", "[host]") {
  for (int const channels : {32, 128, 256}) {
    for (int const bits : {2, 3, 4, 8}) {
      for (int const layers : {1, 2}) {
        cache_page_format const format{channels, bits, 4, channels / 32, layers};
        page_byte_counts const counts = direction_codec<>::counts(format);
        CAPTURE(channels, bits, layers);
        CHECK(counts.codes == 64 * channels * (bits + 4) / 8);
        CHECK(counts.scales == 2 * 2 * channels + 2 * 64 * (channels / 32) * (1 + layers));
        CHECK(counts.lengths == 2 * 64 * layers);
        CHECK(counts.codes + counts.scales + counts.lengths + counts.header == direction_codec<>::page_bytes(format));
      }
    }
  }
}

TEST_CASE("a codec of directions names its numbers, and its reader reads the layer that it is asked for", "[host]") {
  using codec = direction_codec<2, 128, 3>;
  STATIC_REQUIRE(codec::key_bits == 2);
  STATIC_REQUIRE(codec::value_group == 128);
  STATIC_REQUIRE(codec::value_bits == 3);
  STATIC_REQUIRE(direction_codec<8>::value_bits == 8);
  STATIC_REQUIRE(std::is_same_v<decltype(codec::shared()), direction_codec<>>);
  cache_page_format const format{32, 2, 3, 1, 2};
  std::vector<std::uint32_t> const page(static_cast<std::size_t>(format.bytes() / 4));
  page_reader const reader = codec::reader(format, reinterpret_cast<std::byte const*>(page.data()), 1);
  CHECK(reader.format == format);
  CHECK(reader.layer == 1);
  CHECK(static_cast<void const*>(reader.page) == page.data());
}
