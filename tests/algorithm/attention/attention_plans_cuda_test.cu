// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What workspaces of attention hold for devices that need not be there.
#include <cstddef>
#include <cstdint>
#include <string>

#include <tessera/exec/cpu.hpp>
#include <tessera/exec/explain.hpp>
#include <tessera/sage_attention2.hpp>

#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;

namespace {

using every_cuda = basic_cuda<arch_list<800, 890, 900>>;

/// What attention of 8 query heads says of a workspace that `planner` planned.
template <class Planner>
std::string said_of_plan(Planner const& planner, int architecture, std::int64_t queries) {
  auto* const nowhere = reinterpret_cast<bfloat16*>(std::uintptr_t{1} << 30);
  auto const plan = sage_attention2::plan_forward(planner, {1, 8, 2, queries, 16384, 128});
  workspace const space(plan, {reinterpret_cast<std::byte*>(nowhere), plan.bytes()});
  attention_inputs<bfloat16> const in{
      {nowhere, {1, 8, queries, 128}}, {nowhere, {1, 2, 16384, 128}}, {nowhere, {1, 2, 16384, 128}}};
  attention_outputs<bfloat16> const out{{nowhere, {1, 8, queries, 128}}};
  return tessera_test::message_of([&] {
    auto const found = explain(every_cuda::described({.architecture = architecture}),
                               [&](auto const& dry) { sage_attention2::forward(dry, in, {}, out, space); });
    CHECK(!found.choices.empty());
  });
}

}  // namespace

TEST_CASE("attention refuses a workspace that another executor planned, if it is too small, in its own name",
          "[cuda]") {
  for (int const architecture : {800, 890, 900}) {
    CAPTURE(architecture);
    CHECK(said_of_plan(every_cuda::described({.architecture = architecture}), architecture, 4096) == "");
    CHECK(said_of_plan(cpu{}, architecture, 16) == "");  // nothing of it is for the device alone
    std::string const refusal = said_of_plan(cpu{}, architecture, 4096);
    CHECK(refusal.find("attention.forward: the workspace is of a plan of ") == 0);
    CHECK(
        refusal.find(" bytes but 1 sequences of 8 and 2 heads, 4096 queries and 16384 keys, of 128 channels, need ") !=
        std::string::npos);
  }
}
