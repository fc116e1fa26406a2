// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/algorithm/paged_cache/quantized_codec.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/program/paged_cache/write_quantized_pages.hpp>
#include <tessera/quantize/asymmetric.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/testing/adversary.hpp>

#include "program/paged_cache/small_cache.hpp"
#include "support/catch.hpp"

using namespace tessera;

namespace {

using key_quantizer = asymmetric_quantizer<3, 32>;
using value_quantizer = symmetric_quantizer<8, 16>;
using plain = quantized_codec<key_quantizer, value_quantizer>;
using directions = quantized_codec<key_quantizer, value_quantizer, page_vectors::directions>;

constexpr float no_number = std::numeric_limits<float>::quiet_NaN();
constexpr std::byte garbage{0xd3};

/// The small cache with pages of a quantized_codec, which were full of garbage. Token 3 of both pages is retained, and
/// token 40 of the first page has a key without weights and lengths, as if it was not finite.
template <class C>
struct written_cache : tessera_test::sealing_cache {
  std::vector<merged_row> measured = std::vector<merged_row>(3 * 2 * heads * 2 * 64);
  std::vector<page_mark> marks = std::vector<page_mark>(3 * 2 * heads, page_mark{~0ULL, 7, 7});
  std::vector<std::byte> bytes;

  explicit written_cache(int layers = 1) {
    memory.format = {channels, 3, 8, 2, layers};
    bytes.assign(static_cast<std::size_t>(6 * heads * C::page_bytes(memory.format) + 32), garbage);
    auto const beyond = reinterpret_cast<std::uintptr_t>(bytes.data()) % 32;
    memory.pages = bytes.data() + (32 - beyond) % 32;
    view<page_mark, 3> const mark(marks.data(), {3, 2, heads});
    view<merged_row, 5> const row(measured.data(), {3, 2, heads, 2, 64});
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t page = 0; page < 2; ++page) {
        mark(2, page, head) = {std::uint64_t{1} << 3, static_cast<std::uint32_t>(2 * head + page), 1};
        for (int which = 0; which < 2; ++which) {
          for (int of = 0; of < 64; ++of) {
            row(2, page, head, which, of) = {weights, lengths(), 0.5F, square(page * 64 + of, head, which)};
          }
        }
      }
      row(2, 0, head, key_part, 40) = {{0.0F, 0.0F}, {no_number, no_number}, no_number, 0.0F};
    }
  }
  static constexpr mix_weights weights{0.5F, 0.25F};
  static constexpr two_lengths<float> lengths() { return {3.0F, 2.0F}; }

  template <class Executor>
  void write(Executor const& exec) {
    auto from = source();
    from.status = exec.status();
    view<merged_row const, 5> const rows_of(measured.data(), {3, 2, heads, 2, 64});
    pages_to_write<bfloat16> const sealed{from, rows_of, {marks.data(), {3, 2, heads}}};
    write_quantized_pages<bfloat16, C> const program{sealed, {}};
    exec.run(program, program.groups());
  }
  /// What is coded of a channel of a token.
  float coded(std::int64_t of, std::int64_t head, int which, int channel) {
    float const first = load(token(of, 0, which, head, channel));
    if (!C::has_lengths) {
      return first;
    }
    float const second = memory.format.layers == 2 ? load(token(of, 1, which, head, channel)) : 0.0F;
    return std::fma(weights.second, second, weights.first * first);
  }
  float square(std::int64_t of, std::int64_t head, int which) {
    double sum = 0;
    for (int channel = 0; channel < channels; ++channel) {
      sum += std::pow(double{coded(of, head, which, channel)}, 2);
    }
    return static_cast<float>(sum);
  }
  [[nodiscard]] quantized_page_reader<C> page(std::int64_t number, std::int64_t head, int layer = 0) const {
    std::int64_t const block = blocks[static_cast<std::size_t>(4 + number)];
    return {{}, memory.format, memory.page_of(C{}, block, head), layer};
  }
  static bool has_codes(std::int64_t number, int which, int of) {
    return of != 3 && !(number == 0 && which == key_part && of == 40);
  }

  /// How many keys of a channel are not what the quantizer makes of groups of 32 tokens without those that have no
  /// codes.
  int wrong_keys(std::int64_t number, std::int64_t head, int channel) {
    key_quantizer const quantizer;
    int wrong = 0;
    for (int first = 0; first < 64; first += 32) {
      auto range = quantizer.range().identity();
      for (int of = first; of < first + 32; ++of) {
        if (has_codes(number, key_part, of)) {
          quantizer.range().push(range, coded(64 * number + of, head, key_part, channel));
        }
      }
      auto const by = quantizer.fit(range);
      for (int of = first; of < first + 32; ++of) {
        float const expected =
            quantizer.decode(quantizer.encode(coded(64 * number + of, head, key_part, channel), by), by);
        bool const is_right = page(number, head).coded_key(of, channel) == expected;
        wrong += is_right || !has_codes(number, key_part, of) ? 0 : 1;
      }
    }
    return wrong;
  }
  /// The same of the values of a token, in groups of 16 channels.
  int wrong_values(std::int64_t number, std::int64_t head, int of) {
    value_quantizer const quantizer;
    int wrong = 0;
    for (int first = 0; first < channels && has_codes(number, value_part, of); first += 16) {
      auto range = quantizer.range().identity();
      for (int channel = first; channel < first + 16; ++channel) {
        quantizer.range().push(range, coded(64 * number + of, head, value_part, channel));
      }
      auto const by = quantizer.fit(range);
      for (int channel = first; channel < first + 16; ++channel) {
        float const expected =
            quantizer.decode(quantizer.encode(coded(64 * number + of, head, value_part, channel), by), by);
        wrong += page(number, head).coded_value(of, channel) == expected ? 0 : 1;
      }
    }
    return wrong;
  }
  /// How many codes, headers and retained rows are wrong.
  int wrong() {
    int count = 0;
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t number = 0; number < 2; ++number) {
        for (int channel = 0; channel < channels; ++channel) {
          count += wrong_keys(number, head, channel);
        }
        for (int of = 0; of < 64; ++of) {
          count += wrong_values(number, head, of);
        }
        quantized_page_header const header = page(number, head).header();
        bool const is_right = header.tokens.retained == std::uint64_t{1} << 3 && header.tokens.rows == 1 &&
                              header.tokens.first_row == 2 * head + number && header.not_finite[value_part] == 0 &&
                              header.not_finite[key_part] == (number == 0 ? std::uint64_t{1} << 40 : 0) &&
                              header.zero[0] == 0 && header.zero[1] == 0;
        count += is_right ? 0 : 1;
        for (int layer = 0; layer < memory.format.layers; ++layer) {
          for (int channel = 0; channel < channels; ++channel) {
            bool const is_kept = memory.retained_row(0, head, 2 * head + number, layer, value_part)[channel] ==
                                 token(64 * number + 3, layer, value_part, head, channel);
            count += is_kept ? 0 : 1;
          }
        }
      }
    }
    return count;
  }
  /// The largest relative error of the length of a restored vector.
  double error_of_lengths() {
    double worst = 0;
    for (int layer = 0; layer < memory.format.layers; ++layer) {
      double const expected = layer == 0 ? 3.0 : 2.0;  // times that of what is coded
      for (std::int64_t number = 0; number < 2; ++number) {
        auto const reader = page(number, 1, layer);
        for (int of = 0; of < 64; ++of) {
          double keys = 0;
          double values = 0;
          for (int channel = 0; channel < channels; ++channel) {
            keys += std::pow(double{reader.key(of, channel)}, 2);
            values += std::pow(double{reader.value(of, channel)}, 2);
          }
          double const of_key = std::sqrt(double{square(64 * number + of, 1, key_part)}) * expected;
          double const of_value = std::sqrt(double{square(64 * number + of, 1, value_part)}) * expected;
          worst = std::max(worst, has_codes(number, key_part, of) ? std::fabs(std::sqrt(keys) / of_key - 1) : 0.0);
          worst =
              std::max(worst, has_codes(number, value_part, of) ? std::fabs(std::sqrt(values) / of_value - 1) : 0.0);
        }
      }
    }
    return worst;
  }
};

}  // namespace

TEST_CASE("pages hold the codes of each group of keys and values, without retained and odd tokens", "[host][threads]") {
  written_cache<plain> cache;
  cache.write(cpu{.threads = 2});
  CHECK(cache.wrong() == 0);
  auto const of_block = static_cast<std::size_t>(2 * plain::page_bytes(cache.memory.format));
  for (std::size_t const block : {0U, 1U, 3U, 5U}) {  // the other sequences' blocks, and those of none
    auto const* const first = cache.memory.pages + block * of_block;
    CHECK(std::all_of(first, first + of_block, [](std::byte byte) { return byte == garbage; }));
  }
}

TEST_CASE("pages of directions hold those of pairs, and restored vectors have their lengths", "[host]") {
  written_cache<directions> pair(2);
  pair.write(cpu{.threads = 1});
  CHECK(pair.wrong() == 0);
  CHECK(pair.error_of_lengths() < 1e-3);  // lengths are in fp16
  written_cache<directions> single(1);
  single.write(cpu{.threads = 1});
  CHECK(single.wrong() == 0);
  CHECK(single.error_of_lengths() < 1e-3);
}

TEST_CASE("writing pages of quantizers keeps the rules for programs", "[host]") {
  written_cache<directions> cache(2);
  cache.write(testing::adversary{.seed = 23});
  CHECK(cache.wrong() == 0);
}

TEST_CASE("a page of codes whose block does not exist is reported and left out, and the others are written", "[host]") {
  cpu const exec{.threads = 1};
  written_cache<plain> cache;
  cache.blocks[5] = 6;
  cache.write(exec);
  CHECK_THROWS_AS(exec.wait(), value_error);
  for (int channel = 0; channel < 32; ++channel) {
    CHECK(cache.wrong_keys(0, 1, channel) == 0);
  }
  auto const of_block = static_cast<std::size_t>(2 * plain::page_bytes(cache.memory.format));
  auto const* const second = cache.memory.pages + 2 * of_block;
  CHECK(std::all_of(second, second + of_block, [](std::byte byte) { return byte == garbage; }));
}
