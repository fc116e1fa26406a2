// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/paged_cache/direction_codec.hpp>
#include <tessera/concepts/page_codec.hpp>
#include <tessera/program/paged_cache/finish_pages.hpp>

#include "support/catch.hpp"
#include "support/coded_part.hpp"

using namespace tessera;
using namespace tessera_test;

namespace page_codec_test {

/// A user's own codec: the upper byte of each bfloat16, times a factor that is the codec's state.
struct upper_bytes {
  static constexpr int most_layers = 1;
  static constexpr int key_bits = 8;
  static constexpr int value_bits = 8;
  static constexpr int value_group = 256;
  static constexpr bool has_page_format = false;

  float factor = 1.0F;

  /// The byte of {keys, values}, token and channel.
  TESSERA_FN static constexpr int byte_of(int channels, int part, int token, int channel) {
    return 32 + (part * 64 + token) * channels + channel;
  }

  struct reader_type {
    float factor;
    cache_page_format format;
    std::byte const* page;

    cache_page_header const& header() const { return *reinterpret_cast<cache_page_header const*>(page); }
    bool is_retained(int token) const { return header().is_retained(token); }
    std::int64_t row_of(int token) const { return header().row_of(token); }
    float at(int part, int token, int channel) const {
      auto const upper = static_cast<std::uint32_t>(page[byte_of(format.channels, part, token, channel)]);
      return factor * bit_cast<float>(upper << 24);
    }
    float key(int token, int channel) const { return at(key_part, token, channel); }
    float value(int token, int channel) const { return at(value_part, token, channel); }
    float key_scale(int) const { return 2.0F; }  // any will do, as long as score() knows
    float key_minimum(int) const { return 0.0F; }
    float score(int token, float const*, float const* folded, float) const {
      float sum = 0.0F;
      for (int channel = 0; channel < format.channels; ++channel) {
        sum += folded[channel] * 0.5F * key(token, channel);
      }
      return sum;
    }
    float add(float sum, float weight, int token, int channel) const { return sum + weight * value(token, channel); }
  };

  template <class T>
  struct writer_type {
    static constexpr int lanes = 32;
    struct scratch_type {};
    pages_to_write<T> pages;

    std::int64_t groups() const { return pages.marks.size(); }
    template <class Group>
    void operator()(Group const& group, std::int64_t which, scratch_type&) const {
      cache_source<T> const& source = pages.source;
      std::int64_t const head = which % pages.marks.extent(2);
      std::int64_t const page = source.first_page(0) + which / pages.marks.extent(2);
      if (page >= source.end_page(0)) {
        return;
      }
      cache_page_format const& format = source.memory.format;
      std::byte* const to = source.memory.page_of(upper_bytes{}, source.sequences.blocks(0, page), head);
      sealed_page const sealed{0, head, page * 64, pages.marks(0, which / pages.marks.extent(2), head), to};
      write_page_header(group, source, sealed, [](cache_page_format const&) { return 0; });
      for (int lane : group) {
        for (int i = lane; i < 2 * 64 * format.channels; i += lanes) {
          int const token = i / format.channels % 64;
          T const given = source.stored(0, 0, i / format.channels / 64, head, page * 64 + token, i % format.channels);
          to[32 + i] = static_cast<std::byte>(given.bits >> 8);
        }
      }
      retain_tokens<lanes>(group, source, sealed);
      group.sync();
    }
  };

  static constexpr page_format_fault fault(cache_page_format const&) { return {}; }
  static constexpr int page_bytes(cache_page_format const& f) { return 32 + 2 * 64 * f.channels; }
  static constexpr page_byte_counts counts(cache_page_format const& f) { return {2 * 64 * f.channels, 0, 0, 32}; }
  reader_type reader(cache_page_format const& format, std::byte const* page, int) const {
    return {factor, format, page};
  }
  template <int, class T>
  writer_type<T> writer(pages_to_write<T> const& pages) const {
    return {pages};
  }
  upper_bytes shared() const { return *this; }
};

static_assert(PageCodec<upper_bytes> && PageCodec<direction_codec<3>>);
static_assert(!PageCodec<int>);

using cache_type = cross_layer_cache<slerp_merger<float>, retain_most_different, upper_bytes>;

/// Says that GPUs' kernels read its bytes, and not which.
struct unnamed_bytes : upper_bytes {
  static constexpr bool has_page_format = true;
};
/// Says which.
struct named_bytes : unnamed_bytes {
  template <class Use>
  static constexpr bool any_codec(Use const& use) {
    return use(direction_codec<8, 256>{});
  }
};
static_assert(PageCodec<upper_bytes> && !PageCodec<unnamed_bytes> && PageCodec<named_bytes>);

}  // namespace page_codec_test

using namespace page_codec_test;

TEST_CASE("a user's own codec writes and reads pages, with the state that it has", "[host]") {
  auto const data = make_layer_pair<bfloat16>(1, 2, 200, 64);
  auto const queries = attention_samples<bfloat16>(testing::gauss{}, 3, 1, 4 * 64);
  for (float factor : {1.0F, 1.25F}) {
    coded_part<cache_type> part(2, 64, cache_type::single(), 64, slerp_merger<float>{}, upper_bytes{factor});
    part.append(data, 0, 200);
    REQUIRE(part.pages[0] == 2);
    for (int which : {key_part, value_part}) {
      auto const found = part.restored(0, which);
      int wrong = 0;
      for (std::size_t i = 0; i < found.size(); ++i) {
        bfloat16 const given = data.part[0][which][i];
        bool const is_sealed = i / 64 % 200 < 128;
        float const upper = load(bfloat16{static_cast<std::uint16_t>(given.bits & 0xff00U)});
        wrong += found[i] != (is_sealed ? factor * upper : load(given)) ? 1 : 0;
      }
      CHECK(wrong == 0);
    }
    auto const expected = part.attended_by_formula(queries, 1, as_doubles(part.restored(0, key_part)),
                                                   as_doubles(part.restored(0, value_part)));
    CHECK(error_of(as_doubles(part.attended(0, queries, 1)), expected).relative_l1 < 1e-5);
    auto const used = part.cache.wait_for_statistics(part.exec, part.sequences());
    CHECK(used.codes == 2 * 2 * 2 * 64 * 64);
    CHECK(used.headers == 2 * 2 * 32);
  }
}

TEST_CASE("codecs that differ only in numbers of formats share programs", "[host]") {
  static_assert(std::is_same_v<shared_codec_t<direction_codec<2, 128, 3>>, direction_codec<>>);
  static_assert(std::is_same_v<page_writer_t<direction_codec<3>, bfloat16, 128>, encode_pages<bfloat16, 128>>);
  static_assert(std::is_same_v<page_reader_t<direction_codec<3>>, page_reader>);
  for (cache_page_format const& format :
       {cache_page_format{64, 8, 2, 4, 1}, cache_page_format{128, 4, 4, 2, 2}, cache_page_format{96, 3, 3, 1, 2}}) {
    CHECK(direction_codec<>::counts(format).total() == format.bytes());
    CHECK(direction_codec<>::page_bytes(format) == format.bytes());
  }
}
