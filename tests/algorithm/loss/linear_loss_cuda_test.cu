// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <tessera/cut_cross_entropy.hpp>

#include "algorithm/loss/linear_loss_on_device.cuh"

using namespace tessera;
using namespace tessera_test;
using tessera::detail::loss_entry_use;

namespace {

constexpr double narrow = 1e-5;
constexpr double rounded = 4e-3;  // gradients of bf16
using loss_of_bf16 = exact_cross_entropy_of<bfloat16>;

/// What forward() leaves for backward().
struct marks_found {
  bool is_marked;
  std::int64_t words;  ///< of a block of 128 tokens
  std::vector<std::uint32_t> live;
  std::vector<float> log_sum_exp;

  bool at(std::int64_t token, std::int64_t entry) const {
    return (live[static_cast<std::size_t>(token / 128 * words + entry / 32)] >> (entry % 32) & 1) != 0;
  }
  std::int64_t count() const {
    std::int64_t bits = 0;
    for (std::uint32_t const word : live) {
      bits += std::popcount(word);
    }
    return bits;
  }
};

template <class Loss>
marks_found find_marks(tessera::cuda const& exec, loss_problem<bfloat16, std::int64_t> const& p,
                       loss_entry_use use = loss_entry_use::marked) {
  linear_loss_shape const shape{p.tokens, p.vocabulary, p.channels};
  tessera::detail::loss_mark_regions<loss_gemm_tile<bfloat16>, lse_reducer<float>> const layout("test", shape, use);
  device_problem<bfloat16, std::int64_t> const in(exec, p);
  auto const plan = Loss::plan_backward(exec, shape, p.options);
  buffer<std::byte> memory(exec, plan.bytes());
  std::vector<std::byte> bytes(static_cast<std::size_t>(plan.bytes()), std::byte{0xee});
  exec.copy(bytes, memory);  // forward() is to find nothing that it can use
  buffer<float> loss(exec, 1);
  buffer<float> lse(exec, p.tokens);
  Loss::forward(exec, in.inputs(), p.options, {.loss = loss.view(), .log_sum_exp = lse.view()},
                workspace(plan, memory));
  exec.copy(memory, bytes);
  marks_found found{false, layout.words, {}, to_host(exec, lse)};
  exec.wait();
  std::int32_t is_marked = 0;
  std::memcpy(&is_marked, bytes.data() + layout.is_marked.offset, sizeof is_marked);
  found.is_marked = is_marked == 1;
  found.live.resize(static_cast<std::size_t>(layout.live.count));
  std::memcpy(found.live.data(), bytes.data() + layout.live.offset, 4 * found.live.size());
  CHECK((is_marked == 0 || is_marked == 1));
  return found;
}

std::vector<double> as_doubles(std::vector<float> const& values) {
  return {values.begin(), values.end()};
}

/// How many marks are absent that must be there. `exact`: how many must, in blocks of 128 tokens.
std::int64_t absent_marks(loss_problem<bfloat16, std::int64_t> const& p, marks_found const& found,
                          std::int64_t& exact) {
  loss_operands const operands(p);
  std::int64_t absent = 0;
  exact = 0;
  std::vector<bool> is_counted(static_cast<std::size_t>((p.tokens + 127) / 128 * p.vocabulary));
  for (std::int64_t token = 0; token < p.tokens; ++token) {
    token_reference const reference = reference_token(p, operands, token);
    for (std::int64_t entry = 0; reference.label >= 0 && entry < p.vocabulary; ++entry) {
      double const softmax = std::exp(reference.logits[static_cast<std::size_t>(entry)] - reference.log_sum_exp);
      if (softmax >= 1.0001 / 4096) {
        absent += found.at(token, entry) ? 0 : 1;
        auto const index = static_cast<std::size_t>(token / 128 * p.vocabulary + entry);
        exact += is_counted[index] ? 0 : 1;
        is_counted[index] = true;
      }
    }
  }
  return absent;
}

}  // namespace

TEST_CASE("the loss and its gradients on a GPU are right, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_on_device<loss_of_bf16, bfloat16>(make_loss_problem<bfloat16>(0, 40, 72), narrow, rounded);
  for (std::int64_t const tokens : {1, 127, 128, 129, 255, 256, 257, 600}) {
    check_on_device<loss_of_bf16, bfloat16>(make_loss_problem<bfloat16>(tokens, 300, 72), narrow, rounded);
  }
  for (std::int64_t const vocabulary : {2, 64, 255, 256, 257, 513, 5000}) {
    check_on_device<loss_of_bf16, bfloat16>(make_loss_problem<bfloat16>(130, vocabulary, 64), narrow, rounded);
  }
  for (std::int64_t const channels : {8, 63, 64, 65, 200, 321}) {  // those that are no multiple of 8: portably
    check_on_device<loss_of_bf16, bfloat16>(make_loss_problem<bfloat16>(130, 300, channels), narrow, rounded);
  }
}

TEST_CASE("every option of the loss works on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (loss_reduction const reduction : {loss_reduction::none, loss_reduction::sum, loss_reduction::mean}) {
    auto problem = make_loss_problem<bfloat16>(300, 777, 128, true);
    problem.options.reduction = reduction;
    problem.options.z_factor = 1e-2F;
    problem.options.temperature = 0.7F;
    problem.options.shift = 1;
    problem.options.sequence = 50;
    check_on_device<loss_of_bf16, float>(problem, narrow, 3e-3);
    problem.options.softcap = 5.0F;
    check_on_device<loss_of_bf16, float>(problem, narrow, 3e-3);
  }
}

TEST_CASE("a softcap makes minus infinities -softcap on a GPU, too", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {72, 63}) {
    auto problem = make_loss_problem<bfloat16>(300, 777, channels, true);
    for (std::size_t entry = 300; entry < 777; ++entry) {
      problem.bias[entry] = store<bfloat16>(-infinity);
    }
    problem.options.softcap = 5.0F;
    check_on_device<loss_of_bf16, float>(problem, narrow, 3e-3);
  }
}

TEST_CASE("gradients on a GPU add up over parts of the vocabulary", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto problem = make_loss_problem<bfloat16>(700, 3000, 136);
  problem.options.reduction = loss_reduction::sum;
  for (std::int64_t const mebibytes : {2, 3, 5}) {
    problem.options.workspace_budget = mebibytes << 20;
    check_on_device<loss_of_bf16, bfloat16>(problem, narrow, rounded);
    check_on_device<loss_of_bf16, float>(problem, narrow, 3e-3);
  }
  auto halves = make_loss_problem<float16>(300, 2000, 72);
  halves.options.workspace_budget = std::int64_t{1} << 20;
  check_on_device<exact_cross_entropy_of<float16>, float16>(halves, narrow, 1e-3);
}

TEST_CASE("gradients are added to old ones on a GPU, whatever the extents and the programs", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (auto const& extents : {std::vector<std::int64_t>{0, 90, 16},
                              {1, 1, 8},
                              {7, 129, 64},
                              {127, 255, 7},
                              {128, 256, 72},
                              {129, 257, 191},
                              {255, 191, 192},
                              {256, 192, 200},
                              {257, 193, 63},
                              {513, 1000, 400}}) {
    auto const problem = make_loss_problem<bfloat16>(extents[0], extents[1], extents[2], true);
    check_added_on_device<loss_of_bf16>(problem, 3e-3, true);
    check_added_on_device<loss_of_bf16>(problem, 3e-3, false);
  }
  for (std::int64_t const channels : {136, 63}) {
    auto in_parts = make_loss_problem<bfloat16>(700, 3000, channels, true);
    in_parts.options.workspace_budget = std::int64_t{3} << 20;
    check_added_on_device<loss_of_bf16>(in_parts, 3e-3);
  }
}

TEST_CASE("with memory for all softmaxes a backward pass on a GPU makes no logits again, and is as exact", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  constexpr std::int64_t mebibyte = std::int64_t{1} << 20;
  for (std::int64_t const tokens : {1, 127, 128, 129, 600}) {
    for (std::int64_t const vocabulary : {1, 7, 191, 192, 193, 3001}) {
      auto problem = make_loss_problem<bfloat16>(tokens, vocabulary, 72, tokens == 129);
      problem.options.workspace_budget = 64 * mebibyte;
      problem.options.temperature = tokens == 600 ? 0.5F : 1.0F;
      problem.options.softcap = tokens == 127 ? 5.0F : 0.0F;
      problem.options.reduction = tokens == 128 ? loss_reduction::none : loss_reduction::mean;
      check_on_device<exact_cross_entropy, bfloat16>(problem, narrow, rounded);
      check_on_device<exact_cross_entropy, float>(problem, narrow, 4e-3);
    }
  }
  auto halves = make_loss_problem<float16>(300, 2000, 72);
  halves.options.workspace_budget = 64 * mebibyte;
  check_on_device<exact_cross_entropy_of<float16>, float16>(halves, narrow, 1e-3);
  auto unaligned = make_loss_problem<bfloat16>(200, 300, 63);
  unaligned.options.workspace_budget = 64 * mebibyte;
  check_on_device<exact_cross_entropy, bfloat16>(unaligned, narrow, rounded);
}

TEST_CASE("with memory for some softmaxes logits of the other entries are made again on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!is_hopper()) {
    TESSERA_SKIP("no device of sm_90; other programs have linear_loss_kept_softmaxes_by_ring_cuda_test");
  }
  tessera::cuda const exec;
  auto problem = make_loss_problem<bfloat16>(2048, 60000, 64);
  auto const expected = run_on_device<exact_cross_entropy, float>(exec, problem);
  for (std::int64_t const mebibytes : {170, 200, 220}) {
    CAPTURE(mebibytes);
    problem.options.workspace_budget = mebibytes << 20;
    auto const plan = exact_cross_entropy::plan_backward<float>(exec, {2048, 60000, 64}, problem.options);
    CHECK(plan.bytes() <= problem.options.workspace_budget);
    CHECK(plan.bytes() > (mebibytes - 10) << 20);
    auto const found = run_on_device<exact_cross_entropy, float>(exec, problem);
    CHECK(found.log_sum_exp == expected.log_sum_exp);
    CHECK(relative_distance(found.hidden, as_doubles(expected.hidden)) <= 4e-3);
    CHECK(relative_distance(found.classifier, as_doubles(expected.classifier)) <= 4e-3);
    CHECK(relative_distance(found.bias, as_doubles(expected.bias)) <= 8e-3);
  }
}

TEST_CASE("a loss with more than 2^31 logits works on a GPU, in parts and with all softmaxes kept", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto problem = make_loss_problem<bfloat16>(16500, 132000, 8);
  auto const in_parts = run_on_device<exact_cross_entropy, float>(exec, problem);
  problem.options.workspace_budget = std::int64_t{5} << 30;
  auto const kept = run_on_device<exact_cross_entropy, float>(exec, problem);
  CHECK(kept.log_sum_exp == in_parts.log_sum_exp);
  loss_operands const operands(problem);
  for (std::int64_t token = 16490; token < 16500; ++token) {
    double const expected = reference_token(problem, operands, token).log_sum_exp;
    CHECK(std::fabs(static_cast<double>(kept.log_sum_exp[static_cast<std::size_t>(token)]) - expected) < 1e-4);
  }
  CHECK(relative_distance(kept.hidden, as_doubles(in_parts.hidden)) <= 4e-3);
  CHECK(relative_distance(kept.classifier, as_doubles(in_parts.classifier)) <= 4e-3);
}

TEST_CASE("softmaxes that a forward pass has kept are good for one backward pass on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!is_hopper()) {
    TESSERA_SKIP("no device of sm_90; other programs have linear_loss_kept_softmaxes_by_ring_cuda_test");
  }
  tessera::cuda const exec;
  auto problem = make_loss_problem<bfloat16>(200, 300, 64);
  problem.options.workspace_budget = std::int64_t{64} << 20;
  device_problem<bfloat16, std::int64_t> const in(exec, problem);
  buffer<float> loss(exec, 1);
  buffer<float> hidden(exec, 200 * 64);
  linear_loss_gradients<float> const out{{hidden.data(), {200, 64}}};
  auto const plan = exact_cross_entropy::plan_backward<float>(exec, {200, 300, 64}, problem.options);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  for (int i = 0; i < 2; ++i) {
    exact_cross_entropy::forward(exec, in.inputs(), problem.options, {.loss = loss.view()}, space);
    exact_cross_entropy::backward(exec, in.inputs(), problem.options, {}, out, space);
    CHECK_NOTHROW(exec.wait());
    CHECK(!std::isnan(to_host(exec, hidden)[0]));
  }
  exact_cross_entropy::backward(exec, in.inputs(), problem.options, {}, out, space);
  CHECK_THROWS_AS(exec.wait(), value_error);
  CHECK(std::isnan(to_host(exec, hidden)[0]));
}

TEST_CASE("gradients by log-sum-exps and entropies reach hidden states and the classifier on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto problem = make_loss_problem<bfloat16>(300, 700, 72, true);
  problem.options.reduction = loss_reduction::none;
  problem.options.softcap = 8.0F;
  upstream_samples upstream;
  for (std::uint64_t token = 0; token < 300; ++token) {
    upstream.loss.push_back(testing::uniform{-1.0, 1.0}.value(11, token));
    upstream.log_sum_exp.push_back(testing::uniform{-1.0, 1.0}.value(12, token));
    upstream.entropy.push_back(testing::uniform{-1.0, 1.0}.value(13, token));
  }
  tessera::cuda const exec;
  using loss = exact_cross_entropy_of<bfloat16, loss_statistics>;
  auto const found = run_on_device<loss, float>(exec, problem, true, upstream);
  auto const expected = reference_gradient(problem, upstream);
  CHECK(relative_distance(found.hidden, expected.hidden) <= 3e-3);
  CHECK(relative_distance(found.classifier, expected.classifier) <= 3e-3);
  CHECK(relative_distance(found.bias, expected.bias) <= 6e-3);
}

TEST_CASE("hidden states of tokens without a label may be anything on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto problem = make_loss_problem<bfloat16>(300, 700, 64);
  auto clean = problem;
  for (std::size_t token = 0; token < 300; ++token) {
    if (problem.labels[token] == -100) {
      for (std::size_t channel = 0; channel < 64; ++channel) {
        problem.hidden[token * 64 + channel] = store<bfloat16>(token % 2 == 0 ? NAN : INFINITY);
        clean.hidden[token * 64 + channel] = bfloat16{};
      }
    }
  }
  tessera::cuda const exec;
  auto const found = run_on_device<loss_of_bf16, bfloat16>(exec, problem);
  auto const expected = reference_gradient(clean);
  CHECK(relative_distance(found.hidden, expected.hidden) <= rounded);
  CHECK(relative_distance(found.classifier, expected.classifier) <= rounded);
  CHECK(relative_distance(found.bias, expected.bias) <= rounded);
}

TEST_CASE("a worker of the loss's program goes from row to row of tiles", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  // More rows of tiles than there are clusters.
  auto problem = make_loss_problem<bfloat16>(20000, 600, 8);
  tessera::cuda const exec;
  CHECK(wrong_losses(problem, run_on_device<loss_of_bf16, bfloat16>(exec, problem), narrow) == 0);
}

TEST_CASE("a forward pass on a GPU marks all entries that matter to a block of tokens, and not many more", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!is_hopper()) {
    TESSERA_SKIP("no device of sm_90, whose program alone marks entries");
  }
  tessera::cuda const exec;
  for (std::int64_t const tokens : {1, 127, 128, 129, 600}) {
    for (std::int64_t const vocabulary : {2, 31, 33, 255, 257, 3001}) {
      auto problem = make_loss_problem<bfloat16>(tokens, vocabulary, 72, tokens == 129);
      problem.options.temperature = tokens == 600 ? 0.5F : 1.0F;
      problem.options.softcap = tokens == 127 ? 5.0F : 0.0F;
      marks_found const found = find_marks<cut_cross_entropy>(exec, problem);
      std::int64_t exact = 0;
      CAPTURE(tokens, vocabulary, found.count());
      REQUIRE(found.is_marked);
      CHECK(absent_marks(problem, found, exact) == 0);
      CHECK(found.count() >= exact);
      for (std::int64_t entry = vocabulary; entry < found.words * 32; ++entry) {
        CHECK(!found.at(0, entry));
      }
      CHECK(find_marks<cut_cross_entropy>(exec, problem).live == found.live);
    }
  }
  auto problem = make_loss_problem<bfloat16>(200, 100000, 16);
  problem.options.temperature = 2.0F;
  marks_found const found = find_marks<cut_cross_entropy>(exec, problem);
  std::int64_t exact = 0;
  CHECK(absent_marks(problem, found, exact) == 0);
  CAPTURE(exact, found.count());
  CHECK(found.count() < 6 * exact + 2 * 140 * 192);  // first columns count that all workers compute at once
}

TEST_CASE("marks of a forward pass are of tokens with a label; a NaN sets those of its block", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!is_hopper()) {
    TESSERA_SKIP("no device of sm_90, whose program alone marks entries");
  }
  tessera::cuda const exec;
  auto problem = make_loss_problem<bfloat16>(300, 5000, 64);
  for (std::size_t i = 128; i < 256; ++i) {
    problem.labels[i] = -100;
  }
  problem.labels[3] = -100;
  marks_found const before = find_marks<cut_cross_entropy>(exec, problem);
  constexpr bfloat16 nan{0x7fc0};
  problem.hidden[3 * 64 + 5] = nan;
  problem.hidden[200 * 64] = nan;
  CHECK(find_marks<cut_cross_entropy>(exec, problem).live == before.live);
  problem.labels[290] = 17;
  problem.hidden[290 * 64] = nan;
  marks_found const after = find_marks<cut_cross_entropy>(exec, problem);
  std::int64_t wrong = 0;
  for (std::int64_t entry = 0; entry < 5000; ++entry) {
    wrong += after.at(0, entry) != before.at(0, entry) || after.at(128, entry) || !after.at(290, entry) ? 1 : 0;
  }
  CHECK(wrong == 0);
}

TEST_CASE("a forward pass leaves no marks where nothing may be left out or the portable program runs", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (!is_hopper()) {
    TESSERA_SKIP("no device of sm_90, whose program alone marks entries");
  }
  tessera::cuda const exec;
  auto problem = make_loss_problem<bfloat16>(200, 300, 64);
  CHECK(!find_marks<exact_cross_entropy>(exec, problem, loss_entry_use::all).is_marked);
  problem.options.classifier_threshold = 0.0F;
  CHECK(!find_marks<cut_cross_entropy>(exec, problem, loss_entry_use::all).is_marked);
  problem.options.classifier_threshold = 0.25F;
  CHECK(find_marks<cut_cross_entropy>(exec, problem).is_marked);
  CHECK(!find_marks<cut_cross_entropy>(exec, make_loss_problem<bfloat16>(200, 300, 63)).is_marked);
}

TEST_CASE("a bad label is reported on a GPU and poisons its token and the total", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto problem = make_loss_problem<bfloat16>(200, 300, 64);
  tessera::cuda const exec;
  for (std::int64_t const bad : {std::int64_t{-1}, std::int64_t{300}, std::int64_t{1} << 40}) {
    problem.labels[7] = bad;
    CHECK_THROWS_AS((run_on_device<loss_of_bf16, bfloat16>(exec, problem)), value_error);
    CHECK_THROWS_WITH((run_on_device<loss_of_bf16, bfloat16>(exec, problem)),
                      "linear_loss.forward: label " + std::to_string(bad) + " of token 7 is no entry of 300");
  }
}

TEST_CASE("a loss on a GPU repeats bit for bit, also from a graph", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto const problem = make_loss_problem<bfloat16>(700, 3000, 128, true);
  cudaStream_t stream{};
  cuda_ok(cudaStreamCreate(&stream));
  {
    tessera::cuda const exec{.stream = stream};
    auto const first = run_on_device<cut_cross_entropy, bfloat16>(exec, problem);
    for (int i = 0; i < 5; ++i) {
      auto const again = run_on_device<cut_cross_entropy, bfloat16>(exec, problem);
      CHECK(again.log_sum_exp == first.log_sum_exp);
      CHECK(again.loss == first.loss);
      CHECK(std::memcmp(again.hidden.data(), first.hidden.data(), 2 * first.hidden.size()) == 0);
      CHECK(std::memcmp(again.classifier.data(), first.classifier.data(), 2 * first.classifier.size()) == 0);
    }
    device_problem<bfloat16, std::int64_t> const in(exec, problem);
    buffer<float> loss(exec, 1);
    auto const plan = cut_cross_entropy::plan_backward(exec, {700, 3000, 128}, problem.options);
    buffer<std::byte> memory(exec, plan.bytes());
    workspace const space(plan, memory);
    buffer<bfloat16> hidden(exec, 700 * 128);
    buffer<bfloat16> classifier(exec, 3000 * 128);
    linear_loss_gradients<bfloat16> const out{{hidden.data(), {700, 128}}, {classifier.data(), {3000, 128}}};
    cudaGraph_t graph{};
    cudaGraphExec_t executable{};
    cuda_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    cut_cross_entropy::forward(exec, in.inputs(), problem.options, {.loss = loss.view()}, space);
    cut_cross_entropy::backward(exec, in.inputs(), problem.options, {}, out, space);
    cuda_ok(cudaStreamEndCapture(stream, &graph));
    cuda_ok(cudaGraphInstantiate(&executable, graph, 0));
    auto const expected = run_on_device<cut_cross_entropy, bfloat16>(exec, problem, false);
    for (int i = 0; i < 2; ++i) {
      cuda_ok(cudaGraphLaunch(executable, stream));
      CHECK(to_host(exec, loss) == first.loss);
      CHECK(std::memcmp(to_host(exec, hidden).data(), expected.hidden.data(), 2 * 700 * 128) == 0);
      CHECK(std::memcmp(to_host(exec, classifier).data(), expected.classifier.data(), 2 * 3000 * 128) == 0);
    }
    exec.wait();
    cuda_ok(cudaGraphExecDestroy(executable));
    cuda_ok(cudaGraphDestroy(graph));
  }
  cuda_ok(cudaStreamDestroy(stream));
}

TEST_CASE("where memory is short, fp32 gradients are made of some tokens after the others on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (auto const& [tokens, budget] : {std::pair<std::int64_t, std::int64_t>{1290, 1 << 20}, {1280, 1 << 20}}) {
    for (bool const with_all : {false, true}) {
      auto problem = make_loss_problem<bfloat16>(tokens, 3000, 72, with_all);
      problem.options.workspace_budget = budget;
      auto const plan = exact_cross_entropy::plan_backward<float>(tessera::cuda{}, {tokens, 3000, 72}, problem.options);
      auto const part = std::find_if(plan.entries().begin(), plan.entries().end(), [](auto const& region) {
        return region.name == "gradient of a part of the logits";
      });
      REQUIRE(part != plan.entries().end());
      CHECK(choose_loss_chunk(tokens, 3000, 72, part->bytes / (2 * tokens)).tokens < tokens);
      check_on_device<exact_cross_entropy, float>(problem, 1e-5, 4e-3);
      check_added_on_device<exact_cross_entropy>(problem, 4e-3, true);
      check_added_on_device<exact_cross_entropy>(problem, 4e-3, false);
    }
  }
}
