// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Distillation whose classifiers are sources: the student's, the teacher's, or both.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/loss/linear_distillation.hpp>
#include <tessera/algorithm/loss/with_classifier.hpp>
#include <tessera/algorithm/loss/with_teacher_classifier.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/map/jensen_shannon.hpp>
#include <tessera/map/reverse_kl.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/tile/source/dense.hpp>

#include "support/catch.hpp"
#include "support/message_of.hpp"
#include "support/stored_distillation.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

using in_fp8 = row_scaled<bfloat16>;

template <class T>
distillation_problem<T> full_problem(distillation_shape const& shape) {
  auto p = make_distillation_problem<T>(shape, true);
  add_biases(p);
  p.options.temperature = 1.5F;
  p.options.softcap = 4.0F;
  p.options.teacher_softcap = 5.0F;
  p.options.workspace_budget = 1;  // parts of 128 entries
  p.upstream = {0.625F};
  return p;
}

}  // namespace

TEST_CASE("distillation from an fp8 teacher into fp32 rows is right, whatever the extents", "[host][threads]") {
  cpu const exec{.threads = 2};
  for (distillation_shape const& shape :
       {distillation_shape{1, 1, 1, 1}, {7, 5, 3, 9}, {64, 128, 17, 24}, {65, 129, 8, 16}, {3, 700, 32, 1}}) {
    check_stored_distillation<master_rows, in_fp8, float>(exec, make_distillation_problem<bfloat16>(shape), 4e-3);
  }
}

TEST_CASE("sources take every option of distillation, in several parts, on every executor", "[host][threads]") {
  auto const p = full_problem<bfloat16>({70, 301, 24, 40});
  check_stored_distillation<master_rows, in_fp8, bfloat16, cpu>(cpu{.threads = 2}, p, 4e-3);
  check_stored_distillation<in_fp8, master_rows, float, cpu, reverse_kl>(cpu{.threads = 2}, p, 4e-3);
  check_stored_distillation<in_fp8, in_fp8, float, testing::adversary, jensen_shannon>(testing::adversary{.seed = 4}, p,
                                                                                       4e-3);
  auto by_tokens = full_problem<bfloat16>({300, 301, 48, 96});
  std::int64_t const bands = 256 * (48 + 96) * 2;  // which are shorter than the vocabulary, in two parts of tokens
  by_tokens.options.workspace_budget = 256 * 8 * 320 + bands;
  check_stored_distillation<in_fp8, in_fp8, float, cpu, jensen_shannon>(cpu{.threads = 2}, by_tokens, 4e-3);
  by_tokens.options.workspace_budget = std::int64_t{1} << 30;  // gradients by logits are kept
  check_stored_distillation<in_fp8, in_fp8, float, cpu, jensen_shannon>(cpu{.threads = 2}, by_tokens, 4e-3);
}

TEST_CASE("sources of other types are distilled", "[host][threads]") {
  cpu const exec{.threads = 2};
  check_stored_distillation<row_scaled<float>, converted<bfloat16, float>, float>(
      exec, full_problem<float>({40, 201, 24, 40}), 2e-5);
  check_stored_distillation<converted<float, float16>, row_scaled<float16>, float>(
      exec, full_problem<float16>({40, 201, 24, 40}), 6e-4);
}

TEST_CASE("one of both classifiers may be a source", "[host]") {
  using plain = linear_distillation<bfloat16>;
  CHECK(std::is_same_v<with_classifier<plain, master_rows>,
                       linear_distillation<bfloat16, forward_kl, master_rows, matrix_view<bfloat16 const>>>);
  CHECK(std::is_same_v<with_teacher_classifier<plain, in_fp8>,
                       linear_distillation<bfloat16, forward_kl, matrix_view<bfloat16 const>, in_fp8>>);
  auto p = full_problem<bfloat16>({33, 150, 16, 24});
  stored_rows<in_fp8> const teacher(150, 24, 29);
  p.teacher_classifier = teacher.given;
  cpu const exec{.threads = 1};
  stored_rows<in_fp8>::placed<cpu> const placed(exec, teacher);
  auto const found = run_distillation<with_teacher_classifier<plain, in_fp8>, float>(
      exec, p, {}, 1, plain_classifier<bfloat16>{}, placed);
  auto const expected = reference_distillation(p, divergence_kind::forward);
  CHECK(worst_divergence(p, found, expected) <= 1e-5);
  CHECK(relative_distance(found.hidden, expected.hidden) <= 4e-3);
}

TEST_CASE("a part's rows of sources are in the plan of a distillation, and in its budget", "[host]") {
  using plain = linear_distillation<bfloat16>;
  using both = with_teacher_classifier<with_classifier<plain, master_rows>, in_fp8>;
  cpu const exec{.threads = 1};
  distillation_shape const shape{64, 10000, 256, 512};
  distillation_options options;
  options.workspace_budget = 1;  // parts of 128 entries
  std::int64_t const more =
      both::plan_forward(exec, shape, options).bytes() - plain::plan_forward(exec, shape, options).bytes();
  CHECK(more == 128 * (256 + 512) * 2);
  options.workspace_budget = std::int64_t{4} << 20;
  CHECK(both::plan_backward(exec, shape, options).bytes() <= plain::plan_backward(exec, shape, options).bytes());
}

TEST_CASE("distillation refuses sources that do not fit, and another source than the forward pass had", "[host]") {
  using loss = with_teacher_classifier<linear_distillation<bfloat16>, in_fp8>;
  auto const p = make_distillation_problem<bfloat16>({9, 70, 4, 8});
  stored_rows<in_fp8> const teacher(70, 8, 29);
  cpu const exec{.threads = 1};
  auto const plan = loss::plan_backward<float>(exec, p.shape);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  std::vector<float> value(1);
  auto const inputs_of = [&](std::int64_t rows, std::int64_t columns, std::int64_t scales) {
    return loss::inputs{{p.hidden.data(), {9, 4}},
                        {p.classifier.data(), {70, 4}},
                        {p.teacher_hidden.data(), {9, 8}},
                        in_fp8{{}, {teacher.codes.data(), {rows, columns}}, {teacher.params.data(), {scales, 1}}}};
  };
  auto const said = [&](loss::inputs const& in) {
    return message_of([&] { loss::forward(exec, in, {}, {value}, space); });
  };
  CHECK(said(inputs_of(70, 8, 70)) == "");
  CHECK(said(inputs_of(69, 8, 69)) == "linear_distillation.forward: the student has 70 entries but the teacher has 69");
  CHECK(said(inputs_of(70, 7, 70)) ==
        "linear_distillation.forward: the teacher's hidden states have 8 channels but its classifier has 7");
  CHECK(said(inputs_of(70, 8, 69)) ==
        "linear_distillation.forward: the parameters of the codes of the teacher's classifier are 69 x 1 but must be "
        "70 x 1");
  auto other = teacher;
  other.codes[5] = store<float8_e4m3>(load(other.codes[5]) == 1.0F ? 2.0F : 1.0F);
  std::vector<float> hidden(36);
  linear_loss_gradients<float> const out{{hidden.data(), {9, 4}}};
  loss::backward(exec, inputs_of(70, 8, 70), {}, {}, out, space);
  exec.wait();
  CHECK(std::isfinite(hidden[0]));
  auto in = inputs_of(70, 8, 70);
  in.teacher_classifier = in_fp8{{}, {other.codes.data(), {70, 8}}, {other.params.data(), {70, 1}}};
  loss::backward(exec, in, {}, {}, out, space);
  CHECK_THAT(message_of([&] { exec.wait(); }), contains("linear_distillation.backward"));
  CHECK(std::isnan(hidden[0]));
}
