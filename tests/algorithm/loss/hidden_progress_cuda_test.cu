// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a backward pass on a GPU tells of its gradient of hidden states is so, by wgmma and by rings.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <tessera/algorithm/loss/hidden_progress.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>

#include "algorithm/loss/linear_loss_on_device.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

/// Copies the rows that a pass tells of to the same rows of another matrix, in the order of the stream.
template <class Loss, class Gradient, class Exec>
void check_told(Exec runner, loss_problem<bfloat16> const& p, bool is_frozen, double tolerance) {
  CAPTURE(p.tokens, p.vocabulary, p.channels, p.options.workspace_budget, is_frozen);
  runner.options.refuses_slower_programs = true;
  cuda const exec;
  device_problem<bfloat16, std::int64_t> const in(exec, p);
  buffer<float> loss(exec, 1);
  std::vector<Gradient> const poison(p.hidden.size(), store<Gradient>(NAN));
  auto hidden = to_device(exec, poison);
  auto seen = to_device(exec, poison);
  auto classifier = to_device(exec, std::vector<Gradient>(p.classifier.size(), store<Gradient>(NAN)));
  auto const plan = Loss::template plan_backward<Gradient>(runner, {p.tokens, p.vocabulary, p.channels}, p.options);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  linear_loss_gradients<Gradient> out{{hidden.data(), {p.tokens, p.channels}}};
  if (!is_frozen) {
    out.classifier = {classifier.data(), {p.vocabulary, p.channels}};
  }
  std::vector<std::int64_t> tokens{0};
  std::function<void(std::int64_t)> const told = [&](std::int64_t whole) {
    if (whole > tokens.back()) {
      std::int64_t const first = tokens.back() * p.channels;
      std::int64_t const count = (whole - tokens.back()) * p.channels;
      runner.copy(array_view<Gradient const>(hidden.data() + first, count),
                  array_view<Gradient>(seen.data() + first, count));
    }
    CHECK(whole >= tokens.back());
    tokens.push_back(whole);
  };
  Loss::forward(runner, in.inputs(), p.options, {.loss = loss.view()}, space);
  Loss::backward(runner, in.inputs(), p.options, {}, out, space, {}, hidden_progress{&told, 256, 24});
  auto const found = to_host(exec, hidden);
  auto const early = to_host(exec, seen);
  runner.wait();
  CHECK(tokens.back() == p.tokens);
  CHECK(std::equal(found.begin(), found.end(), early.begin(), [](Gradient a, Gradient b) {
    return scalar_traits<Gradient>::to_bits(a) == scalar_traits<Gradient>::to_bits(b);
  }));
  auto const expected = reference_gradient(p);
  CHECK(relative_distance(found, expected.hidden) <= tolerance);
  if (!is_frozen) {
    CHECK(relative_distance(to_host(exec, classifier), expected.classifier) <= tolerance);
  }
}

/// Budgets: of one part; of several, the shortest first; of chunks of tokens, where gradients are fp32; of softmaxes.
constexpr std::int64_t budgets[] = {0, std::int64_t{3} << 18, std::int64_t{1} << 20, std::int64_t{64} << 20};

/// A stream of its own, whose kernels wait for no other stream.
struct one_stream {
  cudaStream_t handle = nullptr;
  one_stream() { cuda_ok(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking)); }
  one_stream(one_stream const&) = delete;
  one_stream& operator=(one_stream const&) = delete;
  ~one_stream() { static_cast<void>(cudaStreamDestroy(handle)); }
};

/// Takes a tenth of a millisecond, and leaves room for kernels that need not wait for it.
struct lingers {
  static constexpr int lanes = 32;
  struct scratch_type {};
  template <class Group>
  __device__ void operator()(Group const&, std::int64_t, scratch_type&) const {
    for (int i = 0; i < 100; ++i) {
      __nanosleep(1000);
    }
  }
};

/// The gradients of a call with those of a bias, in memory that holds no numbers before, enqueued while other work of
/// the stream runs. A launch that takes lists before they are made finds none there.
gradient_results<float> late_gradients(cuda const& exec, loss_problem<bfloat16> const& p,
                                       hidden_progress const& progress) {
  using loss = exact_cross_entropy;
  device_problem<bfloat16, std::int64_t> const in(exec, p);
  auto const poisoned = [&](std::int64_t count) {
    return to_device(exec, std::vector<float>(static_cast<std::size_t>(count), NAN));
  };
  auto value = poisoned(1);
  auto hidden = poisoned(p.tokens * p.channels);
  auto classifier = poisoned(p.vocabulary * p.channels);
  auto bias = poisoned(p.vocabulary);
  auto const plan = loss::plan_backward<float>(exec, {p.tokens, p.vocabulary, p.channels}, p.options);
  auto memory = to_device(exec, std::vector<std::byte>(static_cast<std::size_t>(plan.bytes()), std::byte{0xff}));
  workspace const space(plan, memory);
  loss::forward(exec, in.inputs(), p.options, {.loss = value.view()}, space);
  exec.run(lingers{}, 1);
  linear_loss_gradients<float> const out{
      {hidden.data(), {p.tokens, p.channels}}, {classifier.data(), {p.vocabulary, p.channels}}, bias.view()};
  loss::backward(exec, in.inputs(), p.options, {}, out, space, {}, progress);
  return {to_host(exec, value), to_host(exec, hidden), to_host(exec, classifier), to_host(exec, bias)};
}

}  // namespace

TEST_CASE("the part that is enqueued first waits for its lists, also where it is the shortest", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  one_stream const stream;
  cuda exec{.stream = stream.handle};
  exec.options.refuses_slower_programs = true;
  std::function<void(std::int64_t)> const told = [](std::int64_t) {};
  for (std::int64_t const budget : {std::int64_t{1} << 20, std::int64_t{5} << 18}) {  // the second: tokens in chunks
    auto p = make_loss_problem<bfloat16>(600, 1152, 64, true);
    p.options.workspace_budget = budget;
    auto const usual = late_gradients(exec, p, {});
    auto const expected = reference_gradient(p);
    for (int run = 0; run < 4; ++run) {
      CAPTURE(budget, run);
      auto const found = late_gradients(exec, p, {&told, 256, 24});
      CHECK((found.classifier == usual.classifier));
      CHECK((found.bias == usual.bias));
      CHECK((found.hidden != usual.hidden));  // parts are added up in another order: the shortest is the first
      CHECK(relative_distance(found.hidden, expected.hidden) <= 4e-3);
    }
  }
}

TEST_CASE("a backward pass on a GPU tells of rows that are whole", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const budget : budgets) {
    for (bool const is_frozen : {false, true}) {
      auto p = make_loss_problem<bfloat16>(600, 1152, 64, true);
      p.options.workspace_budget = budget;
      check_told<exact_cross_entropy, bfloat16>(cuda{}, p, is_frozen, 8e-3);
      check_told<exact_cross_entropy, float>(cuda{}, p, is_frozen, 8e-3);
      p.options.hidden_threshold = p.options.classifier_threshold = 1e-20F;  // entries in order of their use
      check_told<cut_cross_entropy, float>(cuda{}, p, is_frozen, 8e-3);
    }
  }
}

TEST_CASE("rings tell of rows that are whole", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const budget : budgets) {
    for (bool const is_frozen : {false, true}) {
      auto p = make_loss_problem<bfloat16>(600, 1152, 64, true);
      p.options.workspace_budget = budget;
      check_told<exact_cross_entropy, float>(basic_cuda<arch_list<800>>{}, p, is_frozen, 4e-3);
    }
  }
}
