// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <vector>

#include <tessera/algorithm/gemm/linear.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/observer.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

struct noting_observer : observer {
  void launched(launch const& what) override { launches.push_back(what); }
  void chose(program_choice const& what) override { choices.push_back(what); }
  void moved(std::int64_t bytes) override { sizes.push_back(bytes); }
  std::vector<launch> launches;
  std::vector<program_choice> choices;
  std::vector<std::int64_t> sizes;
};

struct adds_one {
  static constexpr int lanes = 32;
  struct scratch_type {};
  array_view<float> values;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      values[which * lanes + lane] += 1.0F;
    }
  }
};

}  // namespace

TEST_CASE("an observer is told of launches and choices", "[host]") {
  noting_observer watching;
  cpu const exec{.threads = 1, .options = {.watched_by = &watching}};
  std::vector<float> values(96, 1.0F);
  exec.run(adds_one{values}, 3);
  REQUIRE(watching.launches.size() == 1);
  CHECK(watching.launches[0].program == "adds_one");
  CHECK(watching.launches[0].groups == 3);
  CHECK(watching.launches[0].lanes == 32);
  CHECK(watching.choices.empty());
  CHECK(watching.sizes.empty());
  exec.clear(array_view<float>(values.data(), 5));
  exec.copy(array_view<float>(values.data(), 7), array_view<float>(values.data() + 32, 7));
  CHECK(watching.sizes == std::vector<std::int64_t>{20, 28});

  std::vector<float> const inputs(6, 1.0F);
  std::vector<float> const weights(6, 2.0F);
  std::vector<float> outputs(4, -1.0F);
  linear<float>::forward(exec, {inputs.data(), {2, 3}}, {weights.data(), {2, 3}},
                         matrix_view<float>(outputs.data(), {2, 2}));
  REQUIRE(watching.choices.size() == 1);
  CHECK(watching.choices[0].text() == "linear.forward: portable program");
  CHECK_FALSE(watching.choices[0].is_slower());
  CHECK(watching.launches.back().program == "gemm_tiles");
  CHECK(outputs == std::vector<float>(4, 6.0F));
}
