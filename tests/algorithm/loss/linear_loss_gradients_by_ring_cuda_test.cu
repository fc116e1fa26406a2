// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The programs of GPUs without wgmma, on whatever GPU there is: the executor takes them for the only ones that this
// source is compiled for.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>

#include "algorithm/loss/linear_loss_on_device.cuh"
#include "algorithm/loss/strict_executor.cuh"
#include "support/apart_gradients.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

using loss_of_bf16 = exact_cross_entropy_of<bfloat16>;

constexpr double narrow = 1e-5;
constexpr double rounded = 4e-3;  // gradients of bf16

}  // namespace

TEST_CASE("rings take a loss of awkward extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (auto const& extents : {std::vector<std::int64_t>{1, 1, 8},
                              {7, 129, 64},
                              {127, 128, 72},
                              {128, 255, 56},
                              {129, 256, 64},
                              {130, 257, 128},
                              {300, 1000, 200},
                              {1, 3000, 16},
                              {513, 2, 8}}) {
    auto p = make_loss_problem<bfloat16>(extents[0], extents[1], extents[2], true);
    check_on_device<loss_of_bf16, bfloat16>(p, narrow, rounded, strict<ring_executor>());
    check_on_device<loss_of_bf16, float>(p, narrow, rounded, strict<ring_executor>());
  }
}

TEST_CASE("rings go through several parts of a vocabulary", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_loss_problem<bfloat16>(260, 3001, 136);
  p.options.workspace_budget = std::int64_t{1} << 20;  // a few tiles at a time
  check_on_device<loss_of_bf16, bfloat16>(p, narrow, rounded, strict<ring_executor>());
  check_on_device<loss_of_bf16, float>(p, narrow, rounded, strict<ring_executor>());
}

TEST_CASE("rings make gradients of 16 bits without room for lower halves of all tokens", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::vector<std::int64_t> const& extents :
       {std::vector<std::int64_t>{600, 2200, 200}, {600, 1100, 200}, {600, 900, 200}}) {
    check_all_apart<loss_of_bf16, bfloat16>(strict<ring_executor>(), extents, rounded);
  }
}

TEST_CASE("rings take every option of the loss", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_loss_problem<bfloat16>(300, 777, 128, true);
  p.options.z_factor = 1e-2F;
  p.options.temperature = 0.7F;
  p.options.shift = 1;
  p.options.sequence = 50;
  p.options.reduction = loss_reduction::none;
  check_on_device<loss_of_bf16, float>(p, narrow, 3e-3, strict<ring_executor>());
  p.options.softcap = 5.0F;
  p.options.reduction = loss_reduction::mean;
  check_on_device<loss_of_bf16, float>(p, narrow, 3e-3, strict<ring_executor>());
  p.options.smoothing = 0.1F;
  check_on_device<exact_cross_entropy_of<bfloat16, loss_statistics>, float>(p, narrow, 3e-3, strict<ring_executor>());
}

TEST_CASE("class weights count on a GPU, by rings and by the executor's own choice of programs", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (bool const with_all : {false, true}) {
    auto p = make_loss_problem<bfloat16>(300, 777, 128, with_all);
    weigh_classes(p);
    for (loss_reduction const reduction : {loss_reduction::none, loss_reduction::mean}) {
      p.options.reduction = reduction;
      check_on_device<loss_of_bf16, float>(p, narrow, 3e-3, strict<ring_executor>());
      check_on_device<loss_of_bf16, float>(p, narrow, 3e-3);
    }
  }
}

TEST_CASE("rings add gradients to old ones", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (auto const& extents : {std::vector<std::int64_t>{1, 1, 8},
                              {7, 129, 64},
                              {127, 128, 72},
                              {129, 255, 56},
                              {300, 1000, 200},
                              {513, 2, 8}}) {
    auto const p = make_loss_problem<bfloat16>(extents[0], extents[1], extents[2], true);
    check_added_on_device<loss_of_bf16>(p, rounded, true, {}, strict<ring_executor>());
  }
  auto in_parts = make_loss_problem<bfloat16>(260, 3001, 136, true);
  in_parts.options.workspace_budget = std::int64_t{1} << 20;
  check_added_on_device<loss_of_bf16>(in_parts, rounded, true, {}, strict<ring_executor>());
  check_added_on_device<loss_of_bf16>(in_parts, rounded, false, {}, strict<ring_executor>());
}

TEST_CASE("rings that add filtered gradients keep what has none, and repeat bit for bit", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_loss_problem<bfloat16>(700, 3000, 136);
  p.options.workspace_budget = std::int64_t{3} << 20;
  p.options.hidden_threshold = p.options.classifier_threshold = 0.1F;
  auto const old = old_gradients_for(reference_gradient(p));
  auto const run = [&] {
    return run_on_device<cut_cross_entropy, float>(strict<ring_executor>(), p, false, {}, identity_logits{}, &old);
  };
  auto const written = run_on_device<cut_cross_entropy, float>(strict<ring_executor>(), p, false);
  auto const first = run();
  auto const again = run();
  CHECK(std::memcmp(again.hidden.data(), first.hidden.data(), 4 * first.hidden.size()) == 0);
  CHECK(std::memcmp(again.classifier.data(), first.classifier.data(), 4 * first.classifier.size()) == 0);
  CHECK(changed_without_label(p, first.hidden, old.hidden) == 0);
  auto const sum = added_to(old, doubles_of_results(written));
  CHECK(relative_distance(first.hidden, sum.hidden) <= 1e-6);
  CHECK(relative_distance(first.classifier, sum.classifier) <= 1e-6);
  p.options.hidden_threshold = p.options.classifier_threshold = infinity;  // leaves out everything
  auto const nothing = run();
  CHECK(std::memcmp(nothing.hidden.data(), old.hidden.data(), 4 * old.hidden.size()) == 0);
  CHECK(std::memcmp(nothing.classifier.data(), old.classifier.data(), 4 * old.classifier.size()) == 0);
}

TEST_CASE("rings multiply no hidden states of tokens without a label", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_loss_problem<bfloat16>(300, 700, 64);
  auto clean = p;
  for (std::size_t token = 0; token < 300; ++token) {
    for (std::size_t channel = 0; p.labels[token] == -100 && channel < 64; ++channel) {
      p.hidden[token * 64 + channel] = store<bfloat16>(token % 2 == 0 ? NAN : INFINITY);
      clean.hidden[token * 64 + channel] = bfloat16{};
    }
  }
  auto const found = run_on_device<loss_of_bf16, bfloat16>(strict<ring_executor>(), p);
  auto const expected = reference_gradient(clean);
  CHECK(relative_distance(found.hidden, expected.hidden) <= rounded);
  CHECK(relative_distance(found.classifier, expected.classifier) <= rounded);
}

TEST_CASE("a filtered pass by rings leaves out what is small, and repeats bit for bit", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto p = make_loss_problem<bfloat16>(700, 3000, 136);
  p.options.hidden_threshold = p.options.classifier_threshold = 0.1F;  // leaves out 7 of 144 blocks
  p.options.workspace_budget = std::int64_t{3} << 20;
  auto const first = run_on_device<cut_cross_entropy, bfloat16>(strict<ring_executor>(), p, false);
  auto const again = run_on_device<cut_cross_entropy, bfloat16>(strict<ring_executor>(), p, false);
  CHECK(std::memcmp(again.hidden.data(), first.hidden.data(), 2 * first.hidden.size()) == 0);
  CHECK(std::memcmp(again.classifier.data(), first.classifier.data(), 2 * first.classifier.size()) == 0);
  auto const expected = reference_gradient(p);
  CHECK(relative_distance(first.hidden, expected.hidden) <= 0.05);
  p.options.hidden_threshold = p.options.classifier_threshold = 1e-30F;  // leaves out nothing
  auto const whole = run_on_device<cut_cross_entropy, bfloat16>(strict<ring_executor>(), p, false);
  CHECK(std::memcmp(whole.hidden.data(), first.hidden.data(), 2 * first.hidden.size()) != 0);
  CHECK(relative_distance(whole.hidden, expected.hidden) <= rounded);
  CHECK(relative_distance(whole.classifier, expected.classifier) <= rounded);
}

TEST_CASE("rings say why they do not take rows that chunks do not cover", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto const p = make_loss_problem<bfloat16>(20, 30, 63);
  CHECK_THROWS_WITH((run_on_device<loss_of_bf16, bfloat16>(strict<ring_executor>(), p)),
                    contains("multiples of 16 bytes"));
}
