// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Distillation whose logits go through maps is its formula, and its gradients are those of the mapped logits.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/loss/linear_distillation.hpp>
#include <tessera/algorithm/loss/with_classifier.hpp>
#include <tessera/algorithm/loss/with_logit_maps.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/map/forward_kl.hpp>
#include <tessera/map/identity_logits.hpp>
#include <tessera/map/jensen_shannon.hpp>
#include <tessera/map/reverse_kl.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/tile/source/converted.hpp>

#include "support/catch.hpp"
#include "support/distillation_runs.hpp"
#include "support/loss_maps.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// Compares both passes with the formulas. `change`: sets the maps of inputs.
template <class Loss, class D, class Gradient, class T, class Exec, class Change>
void check_mapped(Exec const& exec, distillation_problem<T> const& p, double tolerance, Change const& change) {
  CAPTURE(p.shape.tokens, p.shape.vocabulary);
  auto const found =
      run_distillation<Loss, Gradient>(exec, p, {}, 1, plain_classifier<T>{}, plain_classifier<T>{}, change);
  auto const expected = reference_distillation(p, divergence_kind_of<D>);
  CHECK(worst_divergence(p, found, expected) <= 1e-5);
  CHECK(relative_distance(found.hidden, expected.hidden) <= tolerance);
  CHECK(relative_distance(found.classifier, expected.classifier) <= tolerance);
  CHECK(relative_distance(found.bias, expected.bias) <= 2 * tolerance);
}

template <class T>
distillation_problem<T> curved_problem(distillation_shape const& shape) {
  auto p = make_distillation_problem<T>(shape, true);
  p.options = {.temperature = 1.5F, .softcap = 4.0F, .workspace_budget = 1};  // parts of 128 entries
  add_biases(p);
  p.map = in_double(curved{});
  p.teacher_map = in_double(curved{});
  return p;
}

void set_curved(auto& in) {
  in.map = curved{};
  in.teacher_map = curved{};
}

}  // namespace

TEMPLATE_TEST_CASE("logits of a student and its teacher go through their maps", "[host][threads]", forward_kl,
                   reverse_kl, jensen_shannon) {
  auto const change = [](auto& in) { set_curved(in); };
  using loss = with_logit_maps<linear_distillation<float, TestType>, curved, curved>;
  for (distillation_shape const& shape : {distillation_shape{1, 9, 3, 4}, {7, 65, 8, 9}, {70, 301, 24, 40}}) {
    check_mapped<loss, TestType, float>(cpu{.threads = 2}, curved_problem<float>(shape), 3e-5, change);
    check_mapped<loss, TestType, float>(testing::adversary{.seed = 5}, curved_problem<float>(shape), 3e-5, change);
  }
  using in_16_bits = with_logit_maps<linear_distillation<bfloat16, TestType>, curved, curved>;
  check_mapped<in_16_bits, TestType, float>(cpu{.threads = 2}, curved_problem<bfloat16>({70, 301, 24, 40}), 5e-3,
                                            change);
}

TEST_CASE("a map of one side alone leaves the other's logits, and reads only entries that there are", "[host]") {
  auto p = make_distillation_problem<float>({9, 131, 8, 8});
  p.options.workspace_budget = 1;
  auto const prior = log_prior_of(131);
  p.map = in_double(prior, 0.5F);
  using of_student = with_logit_maps<linear_distillation<float>, adjusted_by_prior>;
  check_mapped<of_student, forward_kl, float>(cpu{.threads = 1}, p, 2e-5, [&](auto& in) { in.map = {prior, 0.5F}; });
  p.teacher_map = p.map;
  p.map = {};
  using of_teacher = with_logit_maps<linear_distillation<float>, identity_logits, adjusted_by_prior>;
  check_mapped<of_teacher, forward_kl, float>(cpu{.threads = 1}, p, 2e-5, [&](auto& in) {
    in.teacher_map = {prior, 0.5F};
  });
}

TEST_CASE("maps of logits are told of tokens in parts of these, and where gradients are kept", "[host][threads]") {
  auto p = make_distillation_problem<float>({530, 70, 8, 8});
  auto const heat = heat_of(530, 2.0F);
  p.map = p.teacher_map = in_double(heat);
  using loss = with_logit_maps<linear_distillation<float, jensen_shannon>, heated_by_token, heated_by_token>;
  auto const change = [&](auto& in) {
    in.map = {heat, 2.0F};
    in.teacher_map = {heat, 2.0F};
  };
  for (std::size_t const which : {0, 1}) {
    p.options.workspace_budget = budgets_of_tokens<float>(p.shape)[which];
    check_mapped<loss, jensen_shannon, float>(cpu{.threads = 2}, p, 3e-5, change);
  }
}

TEST_CASE("steep maps of logits do not overflow gradients in fp16", "[host]") {
  auto p = make_distillation_problem<float16>({20, 70, 16, 16});
  auto const heat = heat_of(20, 3000.0F);
  p.map = in_double(heat);
  for (float16& value : p.hidden) {
    value = store<float16>(load(value) / 3000.0F);
  }
  using loss = with_logit_maps<linear_distillation<float16>, heated_by_token>;
  check_mapped<loss, forward_kl, float>(cpu{.threads = 1}, p, 2e-3, [&](auto& in) { in.map = {heat, 3000.0F}; });
}

TEST_CASE("maps and sources of a distillation are given in any order", "[host]") {
  using source = converted<float, bfloat16>;
  using plain = linear_distillation<bfloat16>;
  using one = with_classifier<with_logit_maps<plain, curved>, source>;
  using other = with_logit_maps<with_classifier<plain, source>, curved>;
  STATIC_REQUIRE(std::is_same_v<one, other>);
  STATIC_REQUIRE(std::is_same_v<with_logit_maps<plain, identity_logits>, plain>);
}

TEST_CASE("a map without a bound of its slopes is refused with its value", "[host]") {
  auto const p = make_distillation_problem<float>({9, 70, 4, 4});
  auto const heat = heat_of(9, 2.0F);
  using loss = with_logit_maps<linear_distillation<float>, heated_by_token>;
  auto const with = [&](float most) {
    return message_of([&] {
      run_distillation<loss, float>(cpu{}, p, {}, 1, plain_classifier<float>{}, plain_classifier<float>{},
                                    [&](auto& in) {
                                      in.map = {heat, most};
                                    });
    });
  };
  CHECK(with(2.0F) == "");
  CHECK(with(0.0F) ==
        "linear_distillation.forward: the map of logits has slopes up to 0.000000 but its steepest() must be positive "
        "and finite");
}
