// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/algorithm/paged_cache/paged_cache.hpp>
#include <tessera/core/crc32c.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/merge/slerp.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/reference.hpp>

#include "support/cache_problem.hpp"
#include "support/catch.hpp"
#include "support/vectors.hpp"

using namespace tessera;
using namespace tessera_test;

TEST_CASE("with 8 bits restored directions divide the angle of the pair by the share", "[host][slow]") {
  for (std::int64_t const channels : {64, 96, 128, 256}) {
    auto const pair = make_layer_pair<float16>(1, 2, 192, channels);
    cache_problem<float16> cache({static_cast<int>(channels), 8, 8, 2, 2}, 2, 1, 192, 64, 0);
    cache.append(cpu{.threads = 1}, pair.inputs(), retain_most_different::none());
    for (int which = 0; which < 2; ++which) {
      auto const first = as_floats(pair.part[0][which]);
      auto const second = as_floats(pair.part[1][which]);
      auto const restored_first = cache.restored<float>(0, which, 192);
      auto const restored_second = cache.restored<float>(1, which, 192);
      double worst_angle = 0;
      double worst_norm = 0;
      for (std::int64_t row = 0; row < 2 * 192; ++row) {
        if (row % 192 >= 128) {
          continue;
        }
        auto const a = row_of(first, row, channels);
        auto const b = row_of(second, row, channels);
        double const angle = testing::reference_angle(a, b);
        auto const found_a = row_of(restored_first, row, channels);
        auto const found_b = row_of(restored_second, row, channels);
        // An 8-bit code moves a direction by about 0.004; restored ones lie on either side of where they should.
        worst_angle = std::fmax(worst_angle, std::fabs(testing::reference_angle(found_a, a) - 0.6F * angle));
        worst_angle = std::fmax(worst_angle, std::fabs(testing::reference_angle(found_b, b) - 0.4F * angle));
        worst_norm = std::fmax(worst_norm, std::fabs(norm_of(found_a) / norm_of(a) - 1));
        worst_norm = std::fmax(worst_norm, std::fabs(norm_of(found_b) / norm_of(b) - 1));
      }
      CAPTURE(channels, which);
      CHECK(worst_angle < 0.01);
      CHECK(worst_norm < 0x1p-10);
    }
  }
}

TEST_CASE("codes of fewer bits add no more error than bits are missing", "[host][slow]") {
  constexpr std::int64_t channels = 128;
  auto const pair = make_layer_pair<bfloat16>(1, 2, 192, channels, 0.4, 3);
  for (int bits : {2, 3, 4}) {
    cache_problem<bfloat16> cache({channels, bits, bits, 2, 2}, 2, 1, 192, 64, 0);
    cache.append(cpu{.threads = 1}, pair.inputs(), retain_most_different::none());
    for (int layer = 0; layer < 2; ++layer) {
      for (int which = 0; which < 2; ++which) {
        auto const original = as_floats(pair.part[layer][which]);
        auto const other = as_floats(pair.part[1 - layer][which]);
        auto const restored = cache.restored<float>(layer, which, 192);
        double beyond = 0;
        double worst_norm = 0;
        for (std::int64_t row = 0; row < 2 * 192; ++row) {
          if (row % 192 >= 128) {
            continue;
          }
          auto const x = row_of(original, row, channels);
          auto const found = row_of(restored, row, channels);
          double const angle = testing::reference_angle(x, row_of(other, row, channels));
          double const oracle = 2 * std::sin((layer == 0 ? 0.6 : 0.4) * angle / 2);
          beyond += (relative_error(found, x) - oracle) / 256;
          worst_norm = std::fmax(worst_norm, std::fabs(norm_of(found) / norm_of(x) - 1));
        }
        CAPTURE(bits, layer, which, beyond);
        CHECK(beyond < (bits == 4 ? 0.06 : bits == 3 ? 0.13 : 0.35));
        CHECK(beyond > 0);
        CHECK(worst_norm < 0x1p-10);
      }
    }
  }
}

namespace {

template <class T>
bool same_caches(cache_problem<T> const& a, cache_problem<T> const& b) {
  std::size_t const bytes = as_size(a.memory.page_bytes(a.slots * a.most_pages));
  bool same = std::memcmp(a.memory.pages, b.memory.pages, bytes) == 0 && a.row_counts == b.row_counts &&
              a.refused == b.refused && a.lengths == b.lengths;
  for (std::size_t i = 0; i < a.tail.size(); ++i) {
    same = same && a.tail[i] == b.tail[i];
  }
  for (std::size_t i = 0; i < a.rows.size(); ++i) {
    same = same && a.rows[i] == b.rows[i];
  }
  return same;
}

/// Checks that `exec` makes the same cache from keys and values of two layers as a single thread does.
template <class Executor>
void check_same_cache(Executor const& exec) {
  auto const pair = make_layer_pair<bfloat16>(2, 3, 200, 96);
  for (bool whole_tokens : {false, true}) {
    cache_problem<bfloat16> one({96, 3, 2, 2, 2}, 3, 2, 200);
    cache_problem<bfloat16> other({96, 3, 2, 2, 2}, 3, 2, 200);
    auto const rule = retain_most_different::fraction(0.05F);
    one.append(cpu{.threads = 1}, pair.inputs(), rule, slerp_merger<float>{}, whole_tokens);
    other.append(exec, pair.inputs(), rule, slerp_merger<float>{}, whole_tokens);
    CHECK(one.row_counts[0] > 0);
    CHECK(same_caches(one, other));
  }
}

}  // namespace

TEST_CASE("appending token by token gives the bytes of appending at once", "[host][slow]") {
  constexpr std::int64_t tokens = 333;
  auto const pair = make_layer_pair<float16>(2, 2, tokens, 64);
  cpu const exec{.threads = 1};
  auto const rule = retain_most_different::angle(1.2F);
  cache_problem<float16> bulk({64, 4, 3, 1, 2}, 2, 2, tokens, 128);
  bulk.append(exec, pair.inputs(), rule);
  CHECK(bulk.row_counts[0] > 0);
  for (std::vector<std::int64_t> const& pieces :
       {std::vector<std::int64_t>(333, 1), {1, 63, 64, 65, 127, 13}, {200, 0, 133}}) {
    cache_problem<float16> pieced({64, 4, 3, 1, 2}, 2, 2, tokens, 128);
    std::int64_t first = 0;
    for (std::int64_t piece : pieces) {
      pieced.append(exec, pair.inputs(first, piece), rule);
      first += piece;
    }
    REQUIRE(first == tokens);
    // Blocks of the tail that held tokens of sealed pages still hold them.
    for (std::int64_t slot = 0; slot < 2; ++slot) {
      for (std::int64_t head = 0; head < 2; ++head) {
        for (std::int64_t page = 0; page < sealed_pages(tokens, 128); ++page) {
          CHECK(std::memcmp(bulk.page(slot, page, head).page, pieced.page(slot, page, head).page,
                            as_size(bulk.memory.format.bytes())) == 0);
        }
      }
    }
    CHECK(pieced.row_counts == bulk.row_counts);
    int wrong = 0;
    for (std::size_t i = 0; i < bulk.rows.size(); ++i) {
      wrong += bulk.rows[i] != pieced.rows[i];
    }
    CHECK(wrong == 0);
    for (int layer = 0; layer < 2; ++layer) {
      CHECK(bulk.restored<float>(layer, 0, tokens) == pieced.restored<float>(layer, 0, tokens));
      CHECK(bulk.restored<float>(layer, 1, tokens) == pieced.restored<float>(layer, 1, tokens));
    }
  }
}

TEST_CASE("any number of threads makes the same cache", "[host][threads]") {
  check_same_cache(cpu{.threads = 3});
}

TEST_CASE("appending keeps the rules for programs", "[host]") {
  check_same_cache(testing::adversary{.seed = 5});
}

TEST_CASE("vectors of whole tokens have one angle and one length for all heads", "[host]") {
  constexpr std::int64_t channels = 64;
  auto const pair = make_layer_pair<bfloat16>(1, 3, 192, channels);
  cache_problem<bfloat16> cache({channels, 8, 8, 1, 2}, 3, 1, 192, 64, 64);
  cache.append(cpu{.threads = 1}, pair.inputs(), retain_most_different::fraction(0.1F), slerp_merger<float>{}, true);
  CHECK(cache.page(0, 1, 0).header().retained == cache.page(0, 1, 2).header().retained);
  auto const first = as_floats(pair.part[0][0]);
  auto const second = as_floats(pair.part[1][0]);
  auto const restored = cache.restored<float>(0, 0, 192);
  for (std::int64_t token = 0; token < 128; ++token) {
    std::vector<double> a;
    std::vector<double> b;
    std::vector<double> found;
    for (std::int64_t head = 0; head < 3; ++head) {
      for (std::int64_t c = 0; c < channels; ++c) {
        std::size_t const at = as_size((head * 192 + token) * channels + c);
        a.push_back(first[at]);
        b.push_back(second[at]);
        found.push_back(restored[at]);
      }
    }
    bool const is_retained = cache.page(0, token / 64, 0).is_retained(static_cast<int>(token % 64));
    double const expected = is_retained ? 0.0 : 0.6F * testing::reference_angle(a, b);
    CHECK(std::fabs(testing::reference_angle(found, a) - expected) < 0.01);
    CHECK(std::fabs(norm_of(found) / norm_of(a) - 1) < 0x1p-10);
  }
}

TEST_CASE("a page of one layer is the first part of a page of two equal layers", "[host]") {
  auto pair = make_layer_pair<bfloat16>(1, 2, 192, 128);
  pair.part[1][0] = pair.part[0][0];
  pair.part[1][1] = pair.part[0][1];
  cache_problem<bfloat16> both({128, 4, 4, 2, 2}, 2, 1, 192, 64, 0);
  cache_problem<bfloat16> single({128, 4, 4, 2, 1}, 2, 1, 192, 64, 0);
  both.append(cpu{.threads = 1}, pair.inputs(), retain_most_different::none(), slerp_merger<float>{.share = 0.5F});
  single.append(cpu{.threads = 1}, pair.inputs(), retain_most_different::none());
  auto const of_both = both.restored<float>(0, 0, 192);
  auto const of_single = single.restored<float>(0, 0, 192);
  double apart = 0;
  for (std::size_t i = 0; i < of_both.size(); ++i) {
    apart = std::fmax(apart, std::fabs(double{of_both[i]} - double{of_single[i]}));
  }
  CHECK(apart < 1.5);  // a code may fall to either side
  CHECK(both.restored<float>(1, 0, 192) == of_both);
  CHECK(single.memory.format.bytes() == both.memory.format.bytes() - both.memory.format.layer_bytes());
}

TEST_CASE("turning both layers' keys by the same rotation turns what is restored", "[host]") {
  constexpr std::int64_t channels = 64;
  auto pair = make_layer_pair<float16>(1, 1, 192, channels, 0.6);
  auto turned = pair;
  auto const turn = [&](std::vector<float>& keys) {
    for (std::int64_t token = 0; token < 192; ++token) {
      for (std::int64_t c = 0; c < channels / 2; ++c) {
        double const angle = static_cast<double>(token) * std::pow(1e4, -2.0 * static_cast<double>(c) / channels);
        float& x = keys[as_size(token * channels + c)];
        float& y = keys[as_size(token * channels + c + channels / 2)];
        double const a = x;
        double const b = y;
        x = static_cast<float>(std::cos(angle) * a - std::sin(angle) * b);
        y = static_cast<float>(std::sin(angle) * a + std::cos(angle) * b);
      }
    }
  };
  for (int layer = 0; layer < 2; ++layer) {
    auto keys = as_floats(pair.part[layer][0]);
    turn(keys);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      turned.part[layer][0][i] = store<float16>(keys[i]);
    }
  }
  cache_problem<float16> cache({channels, 8, 8, 1, 2}, 1, 1, 192, 64, 0);
  cache_problem<float16> of_turned({channels, 8, 8, 1, 2}, 1, 1, 192, 64, 0);
  cache.append(cpu{.threads = 1}, pair.inputs(), retain_most_different::none());
  of_turned.append(cpu{.threads = 1}, turned.inputs(), retain_most_different::none());
  auto expected = cache.restored<float>(1, 0, 192);
  turn(expected);
  auto const found = of_turned.restored<float>(1, 0, 192);
  for (std::int64_t token = 0; token < 128; ++token) {
    CHECK(relative_error(row_of(found, token, channels), row_of(expected, token, channels)) < 0.01);
  }
}

TEST_CASE("lengths of new tokens and slots of sequences are honoured", "[host]") {
  auto const pair = make_layer_pair<bfloat16>(3, 1, 200, 64);
  cpu const exec{.threads = 1};
  cache_problem<bfloat16> plain({64, 4, 4, 1, 2}, 1, 3, 200);
  plain.append(exec, pair.inputs(), retain_most_different::angle(1.5F));
  cache_problem<bfloat16> other({64, 4, 4, 1, 2}, 1, 3, 200);
  std::vector<std::int32_t> const counts{200, 0, 130};
  std::vector<std::int32_t> const slots{2, 1, 0};
  cache_append_regions const regions("test", 3, 200, 1);
  buffer<std::byte> memory(exec, regions.plan.bytes());
  workspace const space(regions.plan, memory);
  other.lengths = counts;
  cache_sequences sequences = other.sequences();
  sequences.slots = slots;
  tessera::run(exec, cache_append_call<slerp_merger<float>, bfloat16>{
                         {},
                         retain_most_different::angle(1.5F),
                         false,
                         {other.memory, pair.inputs(), sequences, 200, regions.pages, counts},
                         regions.rows_in(space),
                         regions.marks_in(space)});
  CHECK(other.row_counts[2] == plain.row_counts[0]);
  CHECK(other.row_counts[1] == 0);
  CHECK(std::isnan(other.thresholds[2]));
  for (std::int64_t page : {0, 1}) {  // headers differ in the number of the first row
    auto const bytes = static_cast<std::size_t>(other.memory.format.header());
    CHECK(std::memcmp(plain.page(0, page, 0).page, other.page(0, page, 0).page, bytes) == 0);
  }
  CHECK(std::memcmp(plain.page(2, 0, 0).page, other.page(2, 0, 0).page, 256) == 0);
  CHECK(other.page(2, 1, 0).page[0] == std::byte{0xa5});
  // The tail of the third sequence: tokens 64 to 129 of slot 0.
  CHECK(*other.memory.tail_row(0, 1, value_part, 0, 129) == pair.heads_of(1, 1)(2, 0, 129, 0));
  CHECK(*other.memory.tail_row(0, 1, value_part, 0, 130) == bfloat16{0x7fff});
}

namespace {

/// Keys and values that are the same on every machine.
template <class T>
layer_pair<T> golden_pair(std::int64_t channels) {
  layer_pair<T> made{1, 2, 192, channels, {}};
  for (std::uint64_t list = 0; list < 4; ++list) {
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(2 * 192 * channels); ++i) {
      auto const noise = static_cast<int>(testing::hash(list, i) % 2001) - 1000;
      auto const common = static_cast<int>(testing::hash(8 + list % 2, i) % 2001) - 1000;
      made.part[list / 2][list % 2].push_back(store<T>(static_cast<float>(noise + 2 * common) / 512.0F));
    }
  }
  return made;
}

template <class T>
std::uint32_t golden_checksum(cache_page_format const& format) {
  auto const pair = golden_pair<T>(format.channels);
  cache_problem<T> cache(format, 2, 1, 192, 64);
  cache.append(cpu{.threads = 1}, pair.inputs(), retain_most_different::fraction(0.05F));
  std::uint32_t sum = 0;
  for (std::int64_t page = 0; page < 2; ++page) {
    for (std::int64_t head = 0; head < 2; ++head) {
      sum = crc32c(reinterpret_cast<std::uint8_t const*>(cache.page(0, page, head).page),
                   static_cast<std::size_t>(format.bytes()), sum);
    }
  }
  return sum;
}

}  // namespace

TEST_CASE("the bytes of pages are those of version 1", "[host]") {
  CHECK(golden_checksum<bfloat16>({128, 4, 4, 2, 2}) == 0x2daa38acU);
  CHECK(golden_checksum<float16>({64, 4, 4, 1, 2}) == 0xf601ded4U);
  CHECK(golden_checksum<bfloat16>({96, 3, 8, 2, 2}) == 0x4402a6eaU);
  CHECK(golden_checksum<float16>({256, 2, 3, 4, 1}) == 0xb30f93d0U);
}
