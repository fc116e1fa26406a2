// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <tessera/program/weights/codebook.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/serial/group.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

using histogram = std::vector<std::uint64_t>;

struct codebook {
  exponent_window window;
  std::vector<std::uint16_t> frequency;
  friend bool operator==(codebook const& a, codebook const& b) {
    return a.window == b.window && a.frequency == b.frequency;
  }
};

/// The frequencies by the documented rule, written once more without groups.
std::vector<std::uint16_t> frequencies_by_the_rule(exponent_window window, histogram const& counts) {
  using model = frequency_model<12>;
  std::uint64_t all = 0;
  std::vector<std::uint64_t> of_code(16);
  for (std::uint32_t exponent = 0; exponent < counts.size(); ++exponent) {
    all += counts[exponent];
    of_code[window.code(exponent)] += counts[exponent];
  }
  std::uint64_t share_sum = 0;
  for (std::uint32_t code = 0; code < 16; ++code) {
    of_code[code] = model::share(of_code[code], all, code);
    share_sum += of_code[code];
  }
  std::vector<std::uint64_t> proportional(256);
  std::vector<std::uint16_t> frequency(256);
  std::uint64_t slots = 4096;
  std::uint64_t proportional_sum = 0;
  for (std::uint32_t symbol = 0; symbol < 256; ++symbol) {
    std::uint64_t const weight = of_code[symbol % 16] * of_code[symbol / 16];
    model::kind const kind = model::classify(symbol, weight, share_sum * share_sum);
    frequency[symbol] = kind == model::kind::one ? 1 : 0;
    slots -= frequency[symbol];
    proportional[symbol] = kind == model::kind::proportional ? weight : 0;
    proportional_sum += proportional[symbol];
  }
  auto left = static_cast<std::int64_t>(slots);
  for (std::uint32_t symbol = 0; symbol < 256; ++symbol) {
    if (proportional[symbol] > 0) {
      frequency[symbol] = static_cast<std::uint16_t>(model::rounded(proportional[symbol], slots, proportional_sum));
      left -= frequency[symbol];
    }
  }
  for (int enough : {64, 8, left < 0 ? 2 : 1}) {
    std::vector<std::size_t> eligible;
    for (std::size_t symbol = 0; symbol < 256; ++symbol) {
      if (frequency[symbol] >= enough) {
        eligible.push_back(symbol);
      }
    }
    auto const needed = static_cast<std::size_t>(left < 0 ? -left : left);
    if (eligible.size() >= needed) {
      for (std::size_t i = 0; i < needed; ++i) {
        frequency[eligible[i]] = static_cast<std::uint16_t>(frequency[eligible[i]] + (left < 0 ? -1 : 1));
      }
      break;
    }
  }
  return frequency;
}

template <int Lanes>
codebook fit_serially(histogram const& counts, std::uint32_t largest_exponent) {
  auto const scratch = std::make_unique<codebook_scratch>();
  std::memset(static_cast<void*>(scratch.get()), 0xa5, sizeof(*scratch));
  codebook result;
  result.window = fit_codebook(serial_group<Lanes>{}, counts.data(), largest_exponent, *scratch);
  result.frequency.assign(scratch->table.frequency, scratch->table.frequency + 256);
  return result;
}

/// Runs fit_codebook and write_encode_table as a program.
struct fitting {
  static constexpr int lanes = 32;
  using scratch_type = codebook_scratch;
  std::uint64_t const* counts;
  std::uint32_t largest_exponent;
  codebook* result;
  pair_coder::encode_table* table;

  template <class Group>
  void operator()(Group const& group, std::int64_t, scratch_type& scratch) const {
    result->window = fit_codebook(group, counts, largest_exponent, scratch);
    for (int lane : group) {
      for (int symbol = lane; symbol < 256; symbol += lanes) {
        result->frequency[static_cast<std::size_t>(symbol)] = scratch.table.frequency[symbol];
      }
    }
    write_encode_table(group, scratch.table, *table);
  }
};

std::vector<histogram> adversarial_histograms() {
  std::vector<histogram> all;
  auto const add = [&all](auto&& count_of) {
    histogram counts(256);
    for (std::size_t i = 0; i < 256; ++i) {
      counts[i] = count_of(i);
    }
    all.push_back(counts);
  };
  constexpr std::uint64_t huge = std::uint64_t{1} << 46;
  add([](std::size_t) { return 0u; });
  for (std::size_t only : {0, 1, 13, 14, 127, 200, 255}) {
    add([=](std::size_t i) { return i == only ? 1u : 0u; });
    add([=](std::size_t i) { return i == only ? huge : 0u; });
  }
  for (std::uint64_t each : {std::uint64_t{1}, std::uint64_t{1000}, huge / 16}) {
    add([=](std::size_t i) { return i >= 100 && i < 115 ? each : 0u; });
    add([=](std::size_t i) { return i >= 100 && i < 116 ? each : 0u; });
  }
  add([](std::size_t) { return huge >> 8; });
  add([](std::size_t i) { return i == 3 || i == 250 ? huge : 0u; });
  add([](std::size_t i) { return i == 0 ? huge : i == 255 ? 1u : 0u; });
  add([](std::size_t i) { return i >= 90 && i < 130 ? huge >> (i - 90) : 0u; });
  add([](std::size_t i) { return i >= 90 && i < 130 ? std::uint64_t{1} << (i - 90) : 0u; });
  add([](std::size_t i) { return i == 120 ? huge : i > 120 && i < 135 ? huge / 450 : 0u; });
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::uint64_t const spread = 1 + testing::hash(seed, 1000) % 40;
    std::uint64_t const width = 1 + testing::hash(seed, 1001) % 60;
    add([=](std::size_t i) { return i >= 80 && i < 80 + width ? testing::hash(seed, i) >> (63 - spread) : 0u; });
  }
  return all;
}

/// A histogram reduced to its last 16 or 32 exponents, as a format with fewer bits counts them.
histogram narrowed(histogram const& counts, std::size_t exponents) {
  histogram narrow(256);
  for (std::size_t i = 0; i < 256; ++i) {
    narrow[i % exponents] += counts[i];
  }
  return narrow;
}

std::string flaw_of(codebook const& found, histogram const& counts, std::uint32_t largest_exponent) {
  pair_coder::model_type model;
  std::copy(found.frequency.begin(), found.frequency.end(), model.frequency);
  if (!model.is_valid()) {
    return "the table is not valid";
  }
  if (found.frequency[escape_pair] == 0) {
    return "two escapes cannot be coded";
  }
  if (!(found.window == fit_exponent_window(counts.data(), largest_exponent))) {
    return "the window is not the best";
  }
  return found.frequency == frequencies_by_the_rule(found.window, counts) ? "" : "not by the rule";
}

}  // namespace

TEST_CASE("codebooks of any histogram are valid, can code two escapes, and follow the documented rule", "[host]") {
  for (std::uint32_t largest_exponent : {255u, 31u, 15u}) {
    for (histogram const& wide : adversarial_histograms()) {
      histogram const counts = narrowed(wide, largest_exponent + 1);
      codebook const found = fit_serially<32>(counts, largest_exponent);
      REQUIRE(flaw_of(found, counts, largest_exponent) == "");
    }
  }
}

TEST_CASE("where nothing was counted, all pairs are alike", "[host]") {
  CHECK(fit_serially<32>(histogram(256), 255).frequency == std::vector<std::uint16_t>(256, 16));
}

TEST_CASE("groups of any size fit the same codebook", "[host]") {
  for (histogram const& counts : adversarial_histograms()) {
    codebook const one = fit_serially<1>(counts, 255);
    REQUIRE(fit_serially<32>(counts, 255) == one);
    REQUIRE(fit_serially<256>(counts, 255) == one);
  }
}

TEST_CASE("an adversary fits the same codebook and encode table as a single lane", "[host]") {
  std::vector<histogram> const all = adversarial_histograms();
  for (std::size_t i = 0; i < all.size(); i += 23) {
    codebook found;
    found.frequency.resize(256);
    pair_coder::encode_table table{};
    testing::adversary{.seed = i + 1}.run(fitting{all[i].data(), 255, &found, &table}, 1);
    codebook const expected = fit_serially<1>(all[i], 255);
    REQUIRE(found == expected);
    pair_coder::model_type model;
    std::copy(expected.frequency.begin(), expected.frequency.end(), model.frequency);
    auto const wanted = pair_coder::make_encode_table(model);
    REQUIRE(std::memcmp(&table, &wanted, sizeof(table)) == 0);
  }
}

TEST_CASE("of up to 1023 blocks all are counted, of more at least 512", "[host]") {
  for (std::int64_t blocks : {1, 511, 512, 1023}) {
    CHECK(histogram_stride(blocks) == 1);
  }
  for (std::int64_t blocks : {1024, 1535, 1536, 100'000, 1 << 30}) {
    std::int64_t const counted = (blocks + histogram_stride(blocks) - 1) / histogram_stride(blocks);
    CHECK(counted >= 512);
    CHECK(counted <= 1024);
  }
}
