// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "algorithm/loss/soft_target_loss_on_device.cuh"
#include "support/loss_maps.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

constexpr double rounded = 4e-3;  // gradients by logits in bf16

/// Refuses slower programs, so that a test fails where a fast one would not run.
tessera::cuda strict_executor() {
  tessera::cuda exec;
  exec.options.refuses_slower_programs = true;
  return exec;
}

template <class V>
bool same_bits(std::vector<V> const& a, std::vector<V> const& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(V)) == 0);
}

}  // namespace

TEST_CASE("soft targets of awkward extents are right on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (auto const& extents : {std::vector<std::int64_t>{1, 2, 8, 1},
                              {7, 129, 64, 0},
                              {127, 128, 72, 3},
                              {128, 255, 56, 4},
                              {129, 256, 64, 5},
                              {300, 1000, 200, 33},
                              {1, 3000, 16, 70},
                              {513, 3, 8, 7}}) {
    auto p = make_target_problem<bfloat16>(extents[0], extents[1], extents[2], extents[3], true);
    check_targets_on_device<exact_cross_entropy, float>(strict_executor(), p, rounded);
    p.base.options.reduction = loss_reduction::none;
    check_targets_on_device<exact_cross_entropy, bfloat16>(strict_executor(), p, rounded + 2e-3);
  }
}

TEST_CASE("soft targets are right on a GPU by the portable programs", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto const p = make_target_problem<bfloat16, std::int64_t>(150, 700, 63, 9, true);
  check_targets_on_device<exact_cross_entropy, float>(tessera::cuda{}, p, rounded);
  auto filtered = problem_with_few_blocks<bfloat16>(300, 2500, 63, 5);
  check_targets_on_device<cut_cross_entropy, bfloat16>(tessera::cuda{}, filtered, 6e-3);
}

TEST_CASE("soft targets go through several parts of a vocabulary and kept softmaxes on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const budget : {std::int64_t{2} << 20, std::int64_t{64} << 20}) {  // parts, softmaxes kept
    auto p = make_target_problem<bfloat16>(260, 3001, 136, 8, true);
    p.base.options.workspace_budget = budget;
    check_targets_on_device<exact_cross_entropy, float>(strict_executor(), p, rounded);
    p.base.options.softcap = 4.0F;
    p.base.options.temperature = 0.8F;
    p.base.options.z_factor = 1e-2F;
    check_targets_on_device<exact_cross_entropy, float>(strict_executor(), p, rounded, true,
                                                        upstream_of_targets(260, true, false));
  }
}

TEST_CASE("soft targets are the same on a GPU where gradients are made of some tokens after the others", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_target_problem<bfloat16>(8192, 8000, 512, 8);
  auto const whole = run_targets_on_device<exact_cross_entropy, float>(strict_executor(), p);
  // 8 MiB, for which choose_loss_chunk() takes 2048 tokens at a time, beside what is known of targets.
  p.base.options.workspace_budget = (std::int64_t{8} << 20) + 8192 * 13 * 4 + 4096;
  auto const found = run_targets_on_device<exact_cross_entropy, float>(strict_executor(), p);
  CHECK(found.message == "");
  CHECK(same_bits(found.values.loss, whole.values.loss));
  CHECK(relative_distance(found.gradients.hidden, doubles_of(whole.gradients.hidden)) <= rounded);
  CHECK(relative_distance(found.gradients.classifier, doubles_of(whole.gradients.classifier)) <= rounded);
  CHECK(relative_distance(found.gradients.bias, doubles_of(whole.gradients.bias)) <= rounded);
}

TEST_CASE("targets whose weights add up to 0 have gradients on a GPU, also with kept softmaxes", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const budget : {std::int64_t{0}, std::int64_t{64} << 20}) {
    auto p = make_target_problem<bfloat16>(300, 1000, 72, 2);
    p.base.options.workspace_budget = budget;
    p.base.options.reduction = loss_reduction::none;
    for (std::size_t i = 0; i < p.entries.size(); ++i) {
      p.entries[i] = p.entries[i] < 0 ? static_cast<std::int32_t>(i) : p.entries[i];
      p.entry_weights[i] = i / 2 % 3 == 0 ? 0.4F : i % 2 == 0 ? 0.5F : -0.5F;
    }
    check_targets_on_device<exact_cross_entropy, float>(strict_executor(), p, rounded);
  }
}

TEST_CASE("soft targets go through every option, a map and statistics on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  using loss = exact_cross_entropy_of<bfloat16, loss_statistics, curved>;
  for (loss_reduction const reduction : {loss_reduction::none, loss_reduction::mean}) {
    auto p = make_target_problem<bfloat16>(300, 777, 128, 6, true, -0.4);
    p.base.options = {.reduction = reduction, .temperature = 0.7F, .smoothing = 0.1F, .z_factor = 1e-2F};
    p.base.map = in_double(curved{});
    auto const upstream = upstream_of_targets(300, reduction != loss_reduction::none, true);
    auto const found = check_targets_on_device<loss, float>(strict_executor(), p, 6e-3, true, upstream, curved{});
    auto const expected = reference_targets(p, upstream);
    int wrong = 0;
    for (std::size_t i = 0; i < 300; ++i) {
      auto const& wanted = expected.tokens[i];
      wrong += std::fabs(static_cast<double>(found.values.entropy[i]) - wanted.of.entropy) <= 1e-4 ? 0 : 1;
      wrong += found.values.prediction[i] == wanted.of.prediction ? 0 : 1;
    }
    CHECK(wrong == 0);
    CHECK(found.values.accuracy[0] == Approx(expected.correct / static_cast<double>(expected.count)));
  }
}

TEST_CASE("soft targets in fp16 are right on a GPU, whatever the size and the signs of weights", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  using loss = exact_cross_entropy_of<float16>;
  for (float const size : {1e-6F, 1.0F, 1e5F}) {
    CAPTURE(size);
    auto p = make_target_problem<float16>(300, 1000, 72, 6, true);
    p.base.options.reduction = loss_reduction::none;
    for (std::size_t i = 0; i < p.entry_weights.size(); ++i) {
      p.entry_weights[i] = (i % 2 == 0 ? size : -size) * (1.0F + 0.01F * static_cast<float>(i % 7));
    }
    auto const found = run_targets_on_device<loss, float>(strict_executor(), p);
    auto const expected = reference_targets(p).gradient;
    CHECK(relative_distance(found.gradients.hidden, expected.hidden) <= 1e-3);
    CHECK(relative_distance(found.gradients.classifier, expected.classifier) <= 1e-3);
    CHECK(relative_distance(found.gradients.bias, expected.bias) <= 1e-3);
  }
}

TEST_CASE("a filter on a GPU keeps the entries of soft targets, also in another order of entries", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (bool const with_bias : {false, true}) {  // in another order, in their own
    for (std::int64_t const budget : {std::int64_t{0}, std::int64_t{2} << 20}) {
      auto p = problem_with_few_blocks<bfloat16>(700, 2500, 72, 5);
      p.base.options.workspace_budget = budget;
      check_targets_on_device<cut_cross_entropy, bfloat16>(strict_executor(), p, 6e-3, with_bias);
      p.base.options.hidden_threshold = 0.0F;  // marks would make no difference
      check_targets_on_device<cut_cross_entropy, bfloat16>(strict_executor(), p, 6e-3, with_bias);
    }
  }
}

TEST_CASE("gradients of soft targets are added to old ones on a GPU, and repeat bit for bit", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto const p = make_target_problem<bfloat16>(300, 1000, 200, 9, true);
  auto const expected = reference_targets(p).gradient;
  auto const old = old_gradients_for(expected);
  auto const run = [&](int times) {
    return run_targets_on_device<exact_cross_entropy, float>(strict_executor(), p, true, {}, identity_logits{}, &old,
                                                             times)
        .gradients;
  };
  auto const found = run(1);
  auto const sum = added_to(old, expected);
  CHECK(relative_distance(found.hidden, sum.hidden) <= rounded);
  CHECK(relative_distance(found.classifier, sum.classifier) <= rounded);
  CHECK(relative_distance(found.bias, sum.bias) <= 2 * rounded);
  auto const again = run(1);
  CHECK(same_bits(found.hidden, again.hidden));
  CHECK(same_bits(found.classifier, again.classifier));
  CHECK(same_bits(found.bias, again.bias));
  CHECK(relative_distance(run(2).hidden, added_to(found, expected).hidden) <= rounded);
  for (bool const is_hidden : {true, false}) {  // what is frozen has no memory
    auto frozen = old;
    (is_hidden ? frozen.hidden : frozen.classifier) = std::vector<float>();
    auto const others =
        run_targets_on_device<exact_cross_entropy, float>(strict_executor(), p, true, {}, identity_logits{}, &frozen);
    CHECK(others.message == "");
    CHECK((is_hidden || relative_distance(others.gradients.hidden, sum.hidden) <= rounded));
    CHECK((!is_hidden || relative_distance(others.gradients.classifier, sum.classifier) <= rounded));
    CHECK(relative_distance(others.gradients.bias, sum.bias) <= 2 * rounded);
  }
}

TEST_CASE("soft targets that are wrong or not finite have the verdict of the CPU on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_target_problem<bfloat16>(300, 700, 72, 4);
  p.base.options.reduction = loss_reduction::none;
  auto clean = p;
  float const nan = std::numeric_limits<float>::quiet_NaN();
  p.entries[20 * 4 + 2] = 700;
  p.entries[40 * 4 + 1] = 9;
  p.entry_weights[40 * 4 + 1] = nan;
  p.entries[60 * 4] = 9;
  p.entry_weights[60 * 4] = infinity;
  for (std::size_t i = 0; i < 4; ++i) {
    clean.entries[20 * 4 + i] = clean.entries[40 * 4 + i] = clean.entries[60 * 4 + i] = -1;
  }
  auto const found = run_targets_on_device<exact_cross_entropy, float>(strict_executor(), p);
  CHECK(found.message == "soft_target_loss.forward: entry 700 at position 82 of the chosen ones is none of 700");
  CHECK(std::isnan(found.values.log_sum_exp[20]));
  CHECK(std::isnan(found.values.loss[20]));
  CHECK(std::isnan(found.values.loss[40]));
  CHECK(!std::isfinite(found.values.loss[60]));
  auto const expected = reference_targets(clean);
  int wrong = 0;
  for (std::size_t token = 0; token < 300; ++token) {
    bool const is_bad = token == 40 || token == 60;
    for (std::size_t c = 0; c < 72; ++c) {
      double const value = static_cast<double>(found.gradients.hidden[token * 72 + c]);
      double const difference = std::fabs(value - expected.gradient.hidden[token * 72 + c]);
      wrong += is_bad ? !std::isnan(value) : !(difference <= 0.03);
      wrong += token == 20 ? value != 0.0 : 0;
    }
    bool const is_near =
        std::fabs(static_cast<double>(found.values.loss[token]) - expected.tokens[token].of.loss) <= 1e-4;
    wrong += is_bad || token == 20 || is_near ? 0 : 1;
  }
  for (float const value : found.gradients.classifier) {
    wrong += std::isnan(value) ? 0 : 1;
  }
  CHECK(wrong == 0);
}
