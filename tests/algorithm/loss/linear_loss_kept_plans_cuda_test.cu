// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which devices keep softmaxes, and what they say if not. Devices are described, and need not be there.
#include <cstddef>
#include <cstdint>
#include <string>

#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/explain.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"

using namespace tessera;

namespace {

using without_wgmma = basic_cuda<arch_list<800, 860, 890, 1200>>;
using loss_of_bf16 = exact_cross_entropy_of<bfloat16>;

std::int64_t bytes_of(workspace_plan const& plan, std::string const& name) {
  std::int64_t bytes = 0;
  for (auto const& region : plan.entries()) {
    bytes += region.name == name ? region.bytes : 0;
  }
  return bytes;
}

/// The program that explain() says of the backward pass on a described device, and why others do not run.
template <class Loss>
std::string program_of(linear_loss_options const& options, int architecture) {
  auto* const nowhere = reinterpret_cast<bfloat16*>(std::uintptr_t{1} << 30);
  auto* const number = reinterpret_cast<float*>(std::uintptr_t{1} << 30);
  auto const found = explain(without_wgmma::described({architecture, 108, 99 * 1024}), [&](auto const& dry) {
    linear_loss_shape const shape{8192, 128256, 4096};
    auto const plan = Loss::plan_backward(dry, shape, options);
    workspace const space(plan, array_view<std::byte>(reinterpret_cast<std::byte*>(nowhere), plan.bytes()));
    auto* const labels = reinterpret_cast<std::int64_t const*>(nowhere);
    typename Loss::template inputs<std::int64_t> const in{.hidden = {nowhere, {shape.tokens, shape.channels}},
                                                          .classifier = {nowhere, {shape.vocabulary, shape.channels}},
                                                          .labels = {labels, shape.tokens}};
    Loss::forward(dry, in, options, {.loss = {number, 1}}, space);
    linear_loss_gradients<bfloat16> const out{{nowhere, {shape.tokens, shape.channels}},
                                              {nowhere, {shape.vocabulary, shape.channels}}};
    Loss::backward(dry, in, options, {}, out, space);
  });
  program_choice const& last = found.choices.back();
  std::string text = std::string(last.program);
  for (refused_program const& other : last.refused) {
    text += "; " + std::string(other.program) + ": " + other.why.text();
  }
  return text;
}

}  // namespace

TEST_CASE("explain() says whether rings use kept softmaxes, and why not", "[cuda]") {
  std::int64_t const enough = std::int64_t{4} << 30;
  std::string const kept = "prepare_softmaxes, and gradient_ring (cp.async, mma.sync)";
  std::string const made = "logit_gradient by gemm_ring, and gradient_ring (cp.async, mma.sync)";
  for (int const architecture : {800, 860, 890, 1200}) {
    CAPTURE(architecture);
    auto const says = [&](auto loss, linear_loss_options const& options, std::string const& program,
                          std::string const& why) {
      std::string const found = program_of<decltype(loss)>(options, architecture);
      CAPTURE(found);
      CHECK(found.substr(0, program.size()) == program);
      CHECK(found.find(why) != std::string::npos);
    };
    says(loss_of_bf16{}, {.workspace_budget = enough}, kept, "");
    says(loss_of_bf16{}, {}, made, "workspace_budget has no room for softmaxes");
    says(cut_cross_entropy{}, {.workspace_budget = enough}, made, "small parts of gradients are left out");
    says(exact_cross_entropy_of<bfloat16, paired_reducer<lse_reducer<float>, sum_reducer<float>>>{},
         {.smoothing = 0.1F, .workspace_budget = enough}, made, "labels are smoothed");
    says(exact_cross_entropy_of<bfloat16, loss_statistics>{}, {.workspace_budget = enough}, made, "of this Reducer");
  }
}

TEST_CASE("a budget has room for as many softmaxes on devices without wgmma, whose references take none", "[cuda]") {
  using for_both = basic_cuda<arch_list<800, 900>>;
  auto const on = [](int architecture) { return for_both::described({architecture, 108, 227 * 1024}); };
  for (linear_loss_shape const& s : {linear_loss_shape{8192, 256000, 2304}, linear_loss_shape{8192, 128256, 4096}}) {
    for (std::int64_t const gibibytes : {0, 1, 3, 4}) {
      linear_loss_options const options{.workspace_budget = gibibytes << 30};
      auto const with = loss_of_bf16::plan_backward(on(900), s, options);
      auto const without = loss_of_bf16::plan_backward(on(860), s, options);
      std::int64_t const kept = bytes_of(with, "softmaxes") / (s.tokens * 2);
      bool const are_all = gibibytes == 4 || (gibibytes == 3 && s.channels == 4096);
      CAPTURE(s.channels, gibibytes, kept);
      CHECK((kept == s.vocabulary) == are_all);
      CHECK(bytes_of(with, "references of softmaxes") == (kept + 191) / 192 * s.tokens * 4);
      CHECK(bytes_of(without, "references of softmaxes") == 0);
      if (kept == 0 || are_all) {
        CHECK(bytes_of(without, "softmaxes") == bytes_of(with, "softmaxes"));
        CHECK(without.bytes() == with.bytes() - bytes_of(with, "references of softmaxes"));
      } else {
        CHECK(bytes_of(without, "softmaxes") >= bytes_of(with, "softmaxes"));
        CHECK(without.bytes() <= options.workspace_budget);
      }
    }
  }
}
