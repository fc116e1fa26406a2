// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a backward pass tells of its gradient of hidden states is so.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <tessera/algorithm/loss/hidden_progress.hpp>
#include <tessera/algorithm/loss/linear_loss.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"
#include "support/loss_gradient_reference.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

using small_loss = linear_loss<gemm_tile<float, shape<64, 64, 8>>, lse_reducer<float>, gradient_filter<0, 64, 64>>;

/// What was told, and whether rows that were said to be whole were.
struct told_tokens {
  std::vector<std::int64_t> tokens;
  std::vector<std::vector<float>> hidden;  ///< the gradient at that time
  std::vector<float> in_the_end;
};

template <class Exec>
told_tokens run_and_watch(Exec const& exec, loss_problem<float> const& p, std::int64_t step) {
  auto const plan = small_loss::plan_backward<float>(exec, {p.tokens, p.vocabulary, p.channels}, p.options);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  std::vector<float> value(1);
  std::vector<float> hidden(p.hidden.size(), NAN);
  std::vector<float> classifier(p.classifier.size());
  linear_loss_gradients<float> const out{{hidden.data(), {p.tokens, p.channels}},
                                         {classifier.data(), {p.vocabulary, p.channels}}};
  told_tokens found;
  std::function<void(std::int64_t)> const told = [&](std::int64_t tokens) {
    found.tokens.push_back(tokens);
    found.hidden.push_back(hidden);
  };
  small_loss::forward(exec, p.inputs(), p.options, {value}, space);
  small_loss::backward(exec, p.inputs(), p.options, {}, out, space, {}, hidden_progress{&told, step});
  exec.wait();
  found.in_the_end = hidden;
  CHECK(relative_distance(hidden, reference_gradient(p).hidden) <= 3e-6);
  return found;
}

void check_told(told_tokens const& found, std::int64_t channels) {
  for (std::size_t i = 0; i < found.tokens.size(); ++i) {
    CAPTURE(i, found.tokens[i]);
    CHECK((i == 0 || found.tokens[i] >= found.tokens[i - 1]));
    auto const whole = static_cast<std::ptrdiff_t>(found.tokens[i] * channels);
    CHECK(std::equal(found.hidden[i].begin(), found.hidden[i].begin() + whole, found.in_the_end.begin()));
  }
}

}  // namespace

TEST_CASE("a backward pass tells of whole rows in steps, as soon as they are", "[host][threads]") {
  auto p = make_loss_problem<float>(700, 300, 8, true);  // some tokens have no label
  p.options.workspace_budget = std::int64_t{1} << 20;    // several parts of the vocabulary
  auto const found = run_and_watch(cpu{.threads = 2}, p, 256);
  CHECK(found.tokens == std::vector<std::int64_t>{256, 512, 700, 700});
  check_told(found, p.channels);
  auto const by_hundreds = run_and_watch(testing::adversary{.seed = 3}, p, 100);  // steps are of whole tiles
  CHECK(by_hundreds.tokens == std::vector<std::int64_t>{256, 512, 700, 700});
  check_told(by_hundreds, p.channels);
}

TEST_CASE("a backward pass without steps tells of all tokens in the end", "[host]") {
  auto const p = make_loss_problem<float>(300, 90, 8);
  CHECK(run_and_watch(cpu{.threads = 1}, p, 0).tokens == std::vector<std::int64_t>{300});
}

TEST_CASE("what tells of a pass over later tokens counts those before", "[host]") {
  std::int64_t last = 0;
  std::function<void(std::int64_t)> const told = [&](std::int64_t tokens) { last = tokens; };
  hidden_progress const progress{&told, 10};
  CHECK(progress.is_wanted());
  progress.from(30).from(5).tell(7);
  CHECK(last == 42);
  CHECK_FALSE(hidden_progress{}.is_wanted());
  hidden_progress{}.tell(3);  // tells nobody
}
