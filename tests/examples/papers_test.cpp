// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/quantize/scaled_float.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/laws/map/divergence.hpp>
#include <tessera/testing/laws/quantizer.hpp>
#include <tessera/testing/laws/reducer.hpp>

#include "../../examples/papers/distillation_loss_trial.hpp"
#include "../../examples/papers/eight_bit_adam_trial.hpp"
#include "../../examples/papers/float8_attention_trial.hpp"
#include "../../examples/papers/group_scaled_linear_trial.hpp"
#include "../../examples/papers/kivi_decode_trial.hpp"
#include "../../examples/papers/kvtc_trial.hpp"
#include "../../examples/papers/policy_gradient_loss_trial.hpp"
#include "../../examples/papers/preference_loss_trial.hpp"
#include "../../examples/papers/quest_selection_trial.hpp"
#include "../../examples/papers/skew_distillation_trial.hpp"
#include "../../examples/papers/softmax_top_k_trial.hpp"
#include "../../examples/papers/weight_only_linear_trial.hpp"
#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Whether a trial is within its bound for all extents.
template <class Trial, class Executor>
void check_trial(Executor const& exec, std::vector<typename Trial::extents> const& list) {
  for (auto const& extents : list) {
    tessera_examples::paper_finding const found = Trial::run(exec, extents);
    CAPTURE(Trial::name, found.of);
    CHECK(found.error <= Trial::bound);
  }
}

}  // namespace

TEST_CASE("the programs of papers are right whatever the extents", "[host][threads]") {
  using namespace tessera_examples;
  cpu const exec{.threads = 2};
  check_trial<kivi_decode_trial>(exec, {{1, 32, 0}, {2, 96, 1}, {1, 0, 7}, {1, 128, 127}, {3, 160, 129}});
  check_trial<weight_only_linear_trial>(exec, {{1, 1, 2}, {7, 65, 128}, {64, 63, 130}});
  check_trial<quest_selection_trial>(exec, {{1, 1, 1}, {1, 17, 1}, {2, 63, 128}, {1, 1030, 4}});
  check_trial<group_scaled_linear_trial>(exec, {{1, 1, 1}, {7, 128, 128}, {65, 129, 257}});
  check_trial<distillation_loss_trial>(exec, {{1, 1, 1}, {2, 7, 3}, {3, 513, 65}});
  check_trial<skew_distillation_trial>(exec, {{1, 1, 1, 1}, {2, 7, 3, 5}, {9, 513, 65, 16}});
  check_trial<policy_gradient_loss_trial>(exec,
                                          {{1, 1, 0, 1, 1}, {3, 4, 2, 1, 3}, {4, 9, 3, 7, 4}, {2, 130, 1, 129, 65}});
  check_trial<preference_loss_trial>(exec,
                                     {{{1, 1, 0, 1, 1}}, {{3, 4, 2, 1, 3}}, {{4, 9, 3, 7, 4}}, {{1, 300, 1, 129, 65}}});
  check_trial<softmax_top_k_trial>(exec, {{1, 1}, {7, 8}, {2, 7}, {3, 8193}});
  check_trial<float8_attention_trial>(exec, {{1, 1, 16}, {1, 129, 64}});
  check_trial<eight_bit_adam_trial>(exec, {{0, 2}, {4, 1}, {1024, 7}, {2044, 2}, {2048, 1}, {4100, 40}});
  check_trial<kvtc_trial>(exec, {{1, true}, {257, false}});
}

TEST_CASE("the programs of papers keep the rules for programs", "[host]") {
  using namespace tessera_examples;
  testing::adversary const exec{.seed = 5};
  check_trial<kivi_decode_trial>(exec, {{2, 160, 33}});
  check_trial<weight_only_linear_trial>(exec, {{3, 65, 130}});
  check_trial<quest_selection_trial>(exec, {{2, 150, 3}});
  check_trial<group_scaled_linear_trial>(exec, {{3, 129, 130}});
  check_trial<distillation_loss_trial>(exec, {{2, 600, 9}});
  check_trial<skew_distillation_trial>(exec, {{2, 130, 9, 7}});
  check_trial<policy_gradient_loss_trial>(exec, {{2, 9, 3, 300, 9}});
  check_trial<preference_loss_trial>(exec, {{{2, 9, 1, 300, 9}}});
  check_trial<softmax_top_k_trial>(exec, {{2, 300}});
  check_trial<float8_attention_trial>(exec, {{1, 70, 16}});
  check_trial<eight_bit_adam_trial>(exec, {{2052, 2}});
  check_trial<kvtc_trial>(exec, {{258, false}});
}

TEST_CASE("8-bit Adam takes other blocks and quantizers, and dynamic codes keep the laws", "[host]") {
  using namespace tessera_examples;
  using plain = eight_bit_adam<symmetric_quantizer<8, 256>, scaled_float_quantizer<float8_e4m3, 256>>;
  CHECK(eight_bit_adam_trial::run<plain>(cpu{.threads = 1}, {1028, 20}).error <= eight_bit_adam_trial::bound);
  CHECK_THROWS_WITH(moments_memory<plain::first_quantizer>(cpu{}, 1027),
                    "moments_memory: 1027 parameters are no multiple of 4");
  std::vector<float> values{0.0F, 1.0F, 0.1F, 0.099F, 1e-7F, 1e-8F};
  for (std::uint64_t i = 0; i < 500; ++i) {  // of seven decades
    values.push_back(testing::student_t{}.value(3, i) * std::pow(10.0F, -static_cast<float>(i % 8)));
  }
  auto const with_sign = testing::check_laws<dynamic_quantizer<2048, true>>(values);
  CAPTURE(with_sign.text());
  CHECK(with_sign.is_empty());
  for (float& value : values) {
    value = std::fabs(value);
  }
  auto const without = testing::check_laws<dynamic_quantizer<2048, false>>(values);
  CAPTURE(without.text());
  CHECK(without.is_empty());
  dynamic_quantizer<2048, true> const codes;
  auto const params = codes.fit(1.0F);
  CHECK(std::fabs(codes.decode(0x7f, params) - 1.0F) <= 1e-6F);
  CHECK(std::fabs(codes.decode(0x40, params) - (0.1F + 0.45F / 64) / codes.highest) <= 1e-6F);
}

TEST_CASE("policy gradients and preferences are right whatever is optimised", "[host]") {
  using namespace tessera_examples;
  cpu const exec{.threads = 1};
  for (policy_objective const& objective :
       {policy_objective{}, policy_objective{.is_by_sequence = false}, policy_objective{.kl_factor = 0.5F},
        policy_objective{.clip_low = 0.1F, .clip_high = 0.4F, .entropy_factor = 0.5F, .is_by_sequence = false}}) {
    CAPTURE(objective.clip_low, objective.kl_factor, objective.entropy_factor, objective.is_by_sequence);
    auto const found = policy_gradient_loss_trial::run(exec, {3, 20, 4, 300, 16}, objective);
    CHECK(found.error <= policy_gradient_loss_trial::bound);
  }
  for (preference_objective const& objective :
       {preference_objective{.beta = 2.0F}, preference_objective{.beta = 0.3F, .smoothing = 0.1F}}) {
    CAPTURE(objective.beta, objective.smoothing);
    CHECK(preference_loss_trial::run(exec, {{3, 20, 4, 300, 16}}, objective).error <= preference_loss_trial::bound);
  }
}

TEST_CASE("KIVI with 4 bits is right, and codes are of whole groups", "[host]") {
  using namespace tessera_examples;
  cpu const exec{.threads = 1};
  CHECK(kivi_decode_trial::run<cpu, 4>(exec, {2, 96, 5}).error <= kivi_decode_trial::bound);
  std::vector<bfloat16> const values(2 * 31);
  CHECK_THROWS_AS(packed_memory<2>(exec, {values.data(), {1, 2, 31}}), shape_error);
}

TEST_CASE("codes of 2 and 4 bits are the quantizer's", "[host]") {
  using namespace tessera_examples;
  cpu const exec{.threads = 1};
  auto const check = [&]<int Bits>(std::integral_constant<int, Bits>) {
    typename packed_codes<Bits>::quantizer const by_group;
    auto const values = filled<bfloat16>(exec, testing::laplace{}, 7, 3 * 64);
    packed_memory<Bits> const packed(exec, {values.data(), {1, 3, 64}});
    std::vector<bfloat16> decoded(3 * 64);
    materialize(exec, packed.heads[0], matrix_view<bfloat16>(decoded.data(), {3, 64}));
    for (std::int64_t i = 0; i < 3 * 64; ++i) {
      auto range = by_group.range().identity();
      for (std::int64_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j) {
        by_group.range().push(range, load(values[j]));
      }
      auto const params = by_group.fit(range);
      float const near = by_group.decode(by_group.encode(load(values[i]), params), params);
      CAPTURE(Bits, i);
      CHECK(decoded[static_cast<std::size_t>(i)] == store<bfloat16>(near));
    }
  };
  check(std::integral_constant<int, 2>{});
  check(std::integral_constant<int, 4>{});
}

TEST_CASE("the Reducers of papers keep the laws", "[host]") {
  using namespace tessera_examples;
  auto const close = [](float a, float b) { return std::fabs(a - b) <= 1e-5F * (1.0F + std::fabs(a)); };
  auto const divergences = testing::check_laws<divergence>(
      {{1.0F, -2.0F}, {0.0F, 3.0F}, {-50.0F, 60.0F}, {2.5F, 2.5F}}, [&](auto const& a, auto const& b) {
        return a.student.largest == b.student.largest && a.teacher.largest == b.teacher.largest &&
               close(a.student.scaled, b.student.scaled) && close(a.teacher.scaled, b.teacher.scaled) &&
               close(a.weighted, b.weighted);
      });
  CAPTURE(divergences.text());
  CHECK(divergences.is_empty());
}

TEST_CASE("the skewed divergence keeps the laws, and is bounded where the student masks an entry", "[host]") {
  using namespace tessera_examples;
  skewed_kl const skewed;
  auto const broken = testing::check_divergence_laws(
      skewed, {{1.0, -2.0, 0.5, 0.0}, {0.0, 3.0, 0.5, -1.0}, {-14.0, 6.0, 0.0, 2.0}, {6.0, -14.0, 2.0, 2.0}});
  CAPTURE(broken.text());
  CHECK(broken.is_empty());
  CHECK(std::fabs(skewed.value(0.0F, -infinity) + std::log(skewed.skew)) <= 1e-6F);
  CHECK(skewed.slope(0.0F, -infinity) == 0.0F);
}

TEST_CASE("the divergence of masked entries is 0, and infinite where the student alone masks one", "[host]") {
  using namespace tessera_examples;
  divergence const reducer;
  auto state = reducer.identity();
  for (float const logit : {0.5F, 2.0F}) {
    reducer.push(state, {logit, logit});
  }
  reducer.push(state, {-infinity, -infinity});
  reducer.push(state, {-60.0F, -infinity});
  CHECK(std::fabs(reducer.value(state)) <= 1e-6F);
  reducer.push(state, {-infinity, 1.0F});
  CHECK(reducer.value(state) == infinity);
}

TEST_CASE("a NaN among logits makes the log-sum-exp NaN and is no entry", "[host]") {
  using namespace tessera_examples;
  cpu const exec{.threads = 1};
  float const nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> const logits{nan, 1.0F, -infinity, 2.0F};
  std::vector<float> lse(1), probabilities(3);
  std::vector<std::int32_t> entries(3);
  write_top_k<3> const finish{lse, {entries.data(), {1, 3}}, {probabilities.data(), {1, 3}}};
  workspace const none(workspace_plan("test"), {});
  softmax_top_k<3>::reduce(exec, {}, matrix_view<float const>(logits.data(), {1, 4}), finish, none);
  CHECK(std::isnan(lse[0]));
  CHECK(entries == std::vector<std::int32_t>{3, 1, 2});
}

TEST_CASE("the largest error of an example is a NaN's, once there was one", "[host]") {
  using namespace tessera_examples;
  largest_error error;
  error.add(1.5, 1.0);
  error.add(2.0, 2.0);
  CHECK(error.relative() == 0.25);
  error.add(std::nan(""), 1.0);
  error.add(7.0, 1.0);
  CHECK(std::isnan(error.relative()));
}
