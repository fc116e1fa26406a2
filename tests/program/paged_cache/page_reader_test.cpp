// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/program/paged_cache/page_reader.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

std::uint32_t some_code(std::uint64_t seed, int token, int channel, int bits) {
  return static_cast<std::uint32_t>(testing::hash(seed, static_cast<std::uint64_t>(256 * token + channel))) &
         ((1U << bits) - 1U);
}

/// A page that is written element by element; key codes have seed 1 and value codes seed 2.
struct written_page {
  cache_page_format format;
  std::vector<std::uint32_t> memory;

  explicit written_page(cache_page_format const& of)
      : format(of), memory(static_cast<std::size_t>(of.bytes()) / 4, 0xffffffffU) {
    write_codes(format.key_codes(), format.key_bits, [&](int token, int in_strip, int strip) {
      return some_code(1, token, 16 * strip + in_strip, format.key_bits);
    });
    // Values lie with channels as rows and tokens as columns.
    write_codes(format.value_codes(), format.value_bits, [&](int row, int column, int strip) {
      return some_code(2, row / 16 * 16 + column, 16 * strip + row % 16, format.value_bits);
    });
    for (int channel = 0; channel < format.channels; ++channel) {
      put(format.key_scales(), channel_slot(channel), 0.01F * static_cast<float>(channel + 1));
      put(format.key_minima(), channel_slot(channel), -0.5F * static_cast<float>(channel % 9));
    }
    for (int token = 0; token < 64; ++token) {
      for (int layer = 0; layer < format.layers; ++layer) {
        put(format.key_norms(layer), token_slot(token), norm(layer, token));
        for (int group = 0; group < format.value_groups; ++group) {
          put(format.value_scales(layer), group * 64 + token_slot(token), scale(layer, token, group));
        }
      }
      for (int group = 0; group < format.value_groups; ++group) {
        put(format.value_ratios(), group * 64 + token_slot(token), ratio(token, group));
      }
    }
    cache_page_header header{};
    header.retained = (std::uint64_t{1} << 5) | (std::uint64_t{1} << 40) | (std::uint64_t{1} << 63);
    header.first_row = 1000;
    header.rows = 3;
    std::memcpy(bytes() + format.header(), &header, sizeof header);
  }
  static float norm(int layer, int token) { return 1.0F + 0.25F * static_cast<float>(token % 13 + 20 * layer); }
  static float scale(int layer, int token, int group) {
    return 0.5F + 0.125F * static_cast<float>((token + 3 * group) % 7 + 10 * layer);
  }
  static float ratio(int token, int group) { return -0.25F * static_cast<float>((token * 5 + group) % 11); }

  [[nodiscard]] std::byte* bytes() { return reinterpret_cast<std::byte*>(memory.data()); }
  void put(int offset, int index, float value) {
    float16 const half = store<float16>(value);
    std::memcpy(bytes() + offset + 2 * index, &half, sizeof half);
  }
  /// Writes code_at(row, column, strip) for the 64 rows and 16 columns of each strip.
  template <class CodeAt>
  void write_codes(int offset, int bits, CodeAt const& code_at) {
    for (int strip = 0; strip < format.strips(); ++strip) {
      for (int lane = 0; lane < 32; ++lane) {
        lane_codes codes;
        for (int field = 0; field < lane_codes::fields; ++field) {
          for (int half = 0; half < 2; ++half) {
            code_coordinates const at{lane, field, half};
            codes.put(bits, field, half, code_at(16 * at.tile() + at.row(), at.column(), strip));
          }
        }
        for (int word = 0; word < bits; ++word) {
          memory[static_cast<std::size_t>(offset / 4 + lane_codes::slot(bits, strip, lane, word))] = codes.words[word];
        }
      }
    }
  }
  [[nodiscard]] page_reader reader(int layer) { return {format, bytes(), layer}; }

  [[nodiscard]] double key(int layer, int token, int channel) const {
    double const code = some_code(1, token, channel, format.key_bits);
    auto const step = static_cast<double>(load(store<float16>(0.01F * static_cast<float>(channel + 1))));
    return static_cast<double>(norm(layer, token)) * (code * step - 0.5 * (channel % 9));
  }
  [[nodiscard]] double value(int layer, int token, int channel) const {
    int const group = channel / format.group_channels();
    double const code = some_code(2, token, channel, format.value_bits);
    return static_cast<double>(scale(layer, token, group)) / (1 << (format.value_bits - 1)) *
           (code + static_cast<double>(ratio(token, group)));
  }
};

}  // namespace

TEST_CASE("codes and parameters of a page are read element by element", "[host]") {
  for (cache_page_format const& format : {cache_page_format{128, 4, 4, 2, 2}, cache_page_format{32, 2, 3, 1, 1},
                                          cache_page_format{96, 3, 8, 3, 2}, cache_page_format{64, 8, 2, 2, 1}}) {
    CAPTURE(format.channels, format.key_bits, format.value_bits);
    written_page page(format);
    int wrong_codes = 0;
    int wrong_values = 0;
    for (int layer = 0; layer < format.layers; ++layer) {
      page_reader const reader = page.reader(layer);
      for (int token = 0; token < 64; ++token) {
        for (int channel = 0; channel < format.channels; ++channel) {
          wrong_codes += reader.key_code(token, channel) == some_code(1, token, channel, format.key_bits) ? 0 : 1;
          wrong_codes += reader.value_code(token, channel) == some_code(2, token, channel, format.value_bits) ? 0 : 1;
          double const key = page.key(layer, token, channel);
          double const value = page.value(layer, token, channel);
          wrong_values += std::fabs(static_cast<double>(reader.key(token, channel)) - key) <= 1e-4 ? 0 : 1;
          wrong_values += std::fabs(static_cast<double>(reader.value(token, channel)) - value) <= 1e-4 ? 0 : 1;
        }
      }
    }
    CHECK(wrong_codes == 0);
    CHECK(wrong_values == 0);
  }
}

TEST_CASE("a page says which tokens are retained and in which rows", "[host]") {
  written_page page({64, 4, 4, 2, 2});
  page_reader const reader = page.reader(1);
  CHECK(reader.is_retained(5));
  CHECK(reader.is_retained(63));
  CHECK_FALSE(reader.is_retained(6));
  CHECK(reader.row_of(5) == 1000);
  CHECK(reader.row_of(40) == 1001);
  CHECK(reader.row_of(63) == 1002);
}

TEST_CASE("scores and sums of values are those of keys and values that are formed", "[host]") {
  written_page page({64, 4, 4, 2, 2});
  for (int layer = 0; layer < 2; ++layer) {
    page_reader const reader = page.reader(layer);
    std::vector<float> query(64);
    std::vector<float> folded(64);
    float bias = 0;
    testing::fill(testing::gauss(), 4, query.data(), query.size());
    for (int channel = 0; channel < 64; ++channel) {
      auto const at = static_cast<std::size_t>(channel);
      folded[at] = query[at] * reader.key_scale(channel);
      bias += query[at] * reader.key_minimum(channel);
    }
    for (int const token : {0, 17, 62}) {
      double product = 0;
      for (int channel = 0; channel < 64; ++channel) {
        product += static_cast<double>(query[static_cast<std::size_t>(channel)]) * page.key(layer, token, channel);
      }
      CHECK(static_cast<double>(reader.score(token, query.data(), folded.data(), bias)) ==
            Approx(product).margin(2e-3));
      for (int const channel : {0, 31, 32, 63}) {
        double const expected = 2.0 + 0.3 * page.value(layer, token, channel);
        CHECK(static_cast<double>(reader.add(2.0F, 0.3F, token, channel)) == Approx(expected).epsilon(1e-5));
      }
    }
  }
}
