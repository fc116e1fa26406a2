// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What fast programs run for targets of entries with weights, on the CPU.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/program/loss/detail/target_gradients.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>

#include "support/catch.hpp"
#include "support/loss_maps.hpp"

using namespace tessera;

namespace {

/// Targets of tokens, of which every third has no label, and some have an entry twice.
struct target_samples {
  static constexpr std::int64_t vocabulary = 700;
  std::int64_t tokens;
  std::int64_t k;
  std::vector<std::int32_t> entries;
  std::vector<float> weights;
  std::vector<std::int64_t> order;
  std::vector<std::int64_t> row_of;
  std::vector<std::int32_t> labels;
  std::vector<std::int64_t> count = {0};

  target_samples(std::int64_t of_tokens, std::int64_t of_each) : tokens(of_tokens), k(of_each) {
    for (std::int64_t i = 0; i < tokens * k; ++i) {
      std::uint64_t const word = testing::hash(81, static_cast<std::uint64_t>(i));
      auto const entry = static_cast<std::int32_t>((word >> 8) % vocabulary);
      entries.push_back(word % 7 == 0 ? -5 : word % 4 == 0 && i % k > 0 ? entries.back() : entry);
      weights.push_back(word % 11 == 0 ? 0.0F : testing::uniform{-0.5, 1.0}.value(82, static_cast<std::uint64_t>(i)));
    }
    labels.resize(static_cast<std::size_t>(tokens));
    for (std::int64_t token = 0; token < tokens; ++token) {
      row_of.push_back(token % 3 == 1 ? -1 : count[0]);
      if (token % 3 != 1) {
        order.push_back(token);
        ++count[0];
      }
    }
    order.resize(static_cast<std::size_t>(tokens), -1);
  }

  detail::target_rows<std::int32_t> rows() const {
    return {{entries.data(), {tokens, k}}, {weights.data(), {tokens, k}}, -100, vocabulary};
  }
  /// The sum of a token's weights for an entry, and whether there is one that is not 0.
  std::pair<double, bool> wanted(std::int64_t token, std::int64_t entry) const {
    double sum = 0;
    bool is_there = false;
    for (std::int64_t place = 0; place < k; ++place) {
      auto const i = static_cast<std::size_t>(token * k + place);
      bool const is_own = entries[i] == entry && weights[i] != 0.0F;
      sum += is_own ? static_cast<double>(weights[i]) : 0.0;
      is_there = is_there || is_own;
    }
    return {sum, is_there};
  }
};

std::vector<float> samples(std::int64_t count, std::uint64_t seed, double least, double most) {
  std::vector<float> values;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(count); ++i) {
    values.push_back(testing::uniform{least, most}.value(seed, i));
  }
  return values;
}

/// Runs write_target_gradients for a part of 256 slots that begins with `first`, of entries in a turned order, of which
/// the first `alive` have gradients; returns how many elements and blocks are not what they must be.
template <class Exec>
int wrong_gradients(Exec const& exec, target_samples const& t, std::int64_t first, std::int64_t alive, bool is_turned,
                    bool is_kept = false, std::int64_t from = 0) {
  using map_type = tessera_test::curved;
  float const smoothing = 0.125F;
  float const late_scale = 4.0F;
  std::vector<float> const by_entry = samples(target_samples::vocabulary, 83, -3, 3);  // logits
  std::vector<float> scaled;
  for (std::int32_t const entry : t.entries) {
    scaled.push_back(entry < 0 ? 0.0F : by_entry[static_cast<std::size_t>(entry)]);
  }
  std::vector<std::int32_t> slot_of;
  for (std::int32_t entry = 0; entry < target_samples::vocabulary; ++entry) {
    slot_of.push_back(is_turned ? static_cast<std::int32_t>(target_samples::vocabulary) - 1 - entry : entry);
  }
  std::vector<float> const by_target = samples(t.tokens, 84, -2, 2);
  std::vector<loss_row_gradient> rows;
  for (std::int64_t row = 0; row < t.count[0]; ++row) {
    auto const number = static_cast<float>(row % 5);
    rows.push_back({2.0F + 0.25F * number, 1.5F, 0.5F - number, 0.125F * number, 0.0625F * number});
  }
  std::vector<loss_token_factors> of_kept;
  for (std::int64_t token = 0; token < t.tokens; ++token) {
    of_kept.push_back({0.0F, 0.0F, 0.0F, 0, 0.0F, 0.0F, static_cast<float>(1 + token % 4), 0.0F});
  }
  std::int64_t const width = std::min<std::int64_t>(256, target_samples::vocabulary - first);
  float const before = -77.0F;
  std::vector<float> gradient(static_cast<std::size_t>(t.tokens * width), before);
  std::int64_t const blocks = (t.tokens + 127) / 128;
  std::vector<std::uint8_t> for_hidden(static_cast<std::size_t>(2 * blocks), 0);
  std::vector<std::uint8_t> for_classifier(for_hidden);
  detail::write_target_gradients<float, detail::target_rows<std::int32_t>, map_type> const program{
      t.rows(),
      {map_type{}, {scaled.data(), {t.tokens, t.k}}},
      {{}, 0.0F, 2.0F},
      by_target,
      from,
      &late_scale,
      array_view<std::int64_t const>(t.row_of.data() + from, t.tokens - from),
      rows,
      smoothing,
      {first, 256, target_samples::vocabulary, &alive},
      is_turned ? slot_of.data() : nullptr,
      is_kept ? of_kept.data() + from : nullptr,
      {gradient.data() + from * width, {t.tokens - from, width}},
      {for_hidden.data(), {blocks, 2}},
      {for_classifier.data(), {blocks, 2}}};
  exec.run(program, program.groups());
  exec.wait();
  int wrong = 0;
  std::set<std::pair<std::int64_t, std::int64_t>> kept;
  for (std::int64_t token = 0; token < t.tokens; ++token) {
    std::int64_t const row = t.row_of[static_cast<std::size_t>(token)];
    for (std::int64_t at = 0; at < width; ++at) {
      std::int64_t const slot = first + at;
      std::int64_t const entry = is_turned ? target_samples::vocabulary - 1 - slot : slot;
      float const found = gradient[static_cast<std::size_t>(token * width + at)];
      auto const [weight, is_there] = t.wanted(token, entry);
      if (token < from || row < 0 || !is_there || slot >= alive) {
        wrong += found == before ? 0 : 1;
        continue;
      }
      kept.insert({(token - from) / 128, at / 128});
      auto const& factors = rows[static_cast<std::size_t>(row)];
      auto const map = tessera_test::in_double(map_type{});
      auto const logit = static_cast<double>(by_entry[static_cast<std::size_t>(entry)]);
      double const log_softmax = map.value(logit, token, entry) - static_cast<double>(factors.log_sum_exp);
      double const softmax = std::exp(log_softmax);
      double const spread = static_cast<double>(smoothing) / static_cast<double>(target_samples::vocabulary);
      double const by_logit =
          static_cast<double>(factors.by_loss) * (softmax - spread) +
          static_cast<double>(factors.by_log_sum_exp) * softmax -
          static_cast<double>(factors.by_entropy) * softmax * (log_softmax + static_cast<double>(factors.entropy)) -
          static_cast<double>(by_target[static_cast<std::size_t>(token)]) / 4.0 * 0.875 * weight;
      double const expected =
          by_logit * 2.0 * map.slope(logit, token, entry) / (is_kept ? static_cast<double>(1 + token % 4) : 1.0);
      wrong += std::fabs(static_cast<double>(found) - expected) <= 2e-6 * (1 + std::fabs(expected)) ? 0 : 1;
    }
  }
  for (std::int64_t block = 0; block < 2 * blocks; ++block) {
    std::uint8_t const expected = kept.count({block / 2, block % 2}) > 0 ? 1 : 0;
    wrong += for_hidden[static_cast<std::size_t>(block)] == expected ? 0 : 1;
    wrong += for_classifier[static_cast<std::size_t>(block)] == expected ? 0 : 1;
  }
  return wrong;
}

}  // namespace

TEST_CASE("gradients of targets replace those of a part, in any order of entries", "[host]") {
  for (std::int64_t const tokens : {1, 7, 127, 128, 129}) {
    for (std::int64_t const k : {1, 5, 33, 70}) {
      target_samples const t(tokens, k);
      CAPTURE(tokens, k);
      for (std::int64_t const first : {0, 256, 512}) {
        CHECK(wrong_gradients(cpu{.threads = 1}, t, first, target_samples::vocabulary, false) == 0);
        CHECK(wrong_gradients(testing::adversary{.seed = 2}, t, first, 300, true) == 0);
        CHECK(wrong_gradients(cpu{.threads = 1}, t, first, target_samples::vocabulary, false, true) == 0);
        CHECK(wrong_gradients(cpu{.threads = 1}, t, first, target_samples::vocabulary, false, true, tokens / 3) == 0);
      }
    }
  }
}

TEST_CASE("targets without entries change nothing", "[host]") {
  CHECK(wrong_gradients(cpu{.threads = 1}, target_samples(9, 0), 0, target_samples::vocabulary, false) == 0);
}

TEST_CASE("entries of targets are marked for their blocks of tokens", "[host]") {
  for (std::int64_t const k : {0, 1, 6, 40}) {
    target_samples const t(300, k);
    std::int64_t const words = (target_samples::vocabulary + 31) / 32;
    std::vector<std::uint32_t> live(static_cast<std::size_t>(3 * words), 0x10000001U);
    std::vector<std::int32_t> is_marked = {0};
    loss_mark_reader const marks{{live.data(), {3, words}}, is_marked};
    detail::mark_target_entries<detail::target_rows<std::int32_t>> const program{marks, t.rows(), t.row_of};
    testing::adversary const exec{.seed = 4};
    exec.run(program, program.groups());
    CHECK(live == std::vector<std::uint32_t>(live.size(), 0x10000001U));  // there are no marks
    is_marked[0] = 1;
    exec.run(program, program.groups());
    exec.wait();
    int wrong = 0;
    for (std::int64_t block = 0; block < 3; ++block) {
      for (std::int64_t entry = 0; entry < words * 32; ++entry) {
        bool expected = entry % 32 == 0 || entry % 32 == 28;
        for (std::int64_t token = block * 128; token < std::min<std::int64_t>(block * 128 + 128, 300); ++token) {
          expected = expected || (t.row_of[static_cast<std::size_t>(token)] >= 0 && t.wanted(token, entry).second);
        }
        wrong += marks.is_live(block, entry) == expected ? 0 : 1;
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("bounds are raised for tokens whose weights have both signs", "[host]") {
  std::vector<std::int32_t> const entries = {1, 2, 3, 4, 5, -1, 6, 7};  // two for each token
  std::vector<float> const weights = {3.0F, -2.0F, 0.5F, 0.25F, 9.0F, -9.0F, -1.0F, -2.0F};
  std::vector<float> const by_target = {2.0F, 8.0F, 1.0F, 1.0F};
  std::vector<std::int64_t> order = {0, 1, 2, 3};
  std::vector<std::int64_t> count = {4};
  std::vector<float> largest = {0.5F};
  detail::raise_target_bounds<detail::target_rows<std::int32_t>> const raise{
      {{entries.data(), {4, 2}}, {weights.data(), {4, 2}}, -100, 10}, by_target, {order, {}, {}, count}, largest};
  cpu const exec{.threads = 1};
  exec.run(raise, raise.groups());
  exec.wait();
  CHECK(largest[0] == 10.5F);  // 0.5 and 2 * (3 + 2)
}

TEST_CASE("a stamp of targets spoils that of labels where they are others", "[host]") {
  target_samples t(40, 3);
  std::vector<float> of_tokens(40, 1.0F);
  std::vector<std::uint64_t> own = {99};
  std::vector<std::uint64_t> const before = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<std::uint64_t> of_labels = before;
  cpu const exec{.threads = 1};
  auto const is_spoilt = [&](std::uint64_t options) {
    of_labels = before;
    exec.run(detail::stamp_targets<std::int32_t>{t.rows(), of_tokens, options, own, of_labels}, 1);
    exec.wait();
    std::vector<std::uint64_t> spoilt = before;
    ++spoilt[loss_stamp::inputs];
    CHECK((of_labels == before || of_labels == spoilt));
    return of_labels == spoilt;
  };
  CHECK(is_spoilt(17));  // nothing was written
  exec.run(detail::stamp_targets<std::int32_t>{t.rows(), of_tokens, 17, own, {}}, 1);
  exec.wait();
  CHECK(!is_spoilt(17));
  CHECK(!is_spoilt(17));
  CHECK(is_spoilt(18));
  t.entries[50] += 1;
  CHECK(is_spoilt(17));
  t.entries[50] -= 1;
  float const weight = t.weights[50];
  t.weights[50] = weight + 1.0F;
  CHECK(is_spoilt(17));
  t.weights[50] = weight;
  of_tokens[7] = 2.0F;
  CHECK(is_spoilt(17));
  of_tokens[7] = 1.0F;
  CHECK(!is_spoilt(17));
}
