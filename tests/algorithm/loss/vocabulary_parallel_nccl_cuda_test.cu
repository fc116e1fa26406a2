// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A classifier that is spread over GPUs, by NCCL. One GPU is one rank; two are two, where they are there.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/loss/sequence_parallel.hpp>
#include <tessera/algorithm/loss/vocabulary_parallel.hpp>
#include <tessera/comm/nccl.cuh>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/side_queue.hpp>

#include "algorithm/loss/linear_loss_on_device.cuh"
#include "support/nccl_ranks.cuh"

using namespace tessera;
using namespace tessera_test;

namespace {

/// What a rank has found, and what it threw.
template <class Gradient>
struct found_by_rank {
  device_results<Gradient> results;
  std::string thrown;
};

/// The rows from `first` on of a problem.
loss_problem<bfloat16> part_of(loss_problem<bfloat16> const& p, std::int64_t first, std::int64_t count) {
  auto own = p;
  own.vocabulary = count;
  own.classifier.assign(p.classifier.begin() + first * p.channels, p.classifier.begin() + (first + count) * p.channels);
  if (!p.bias.empty()) {
    own.bias.assign(p.bias.begin() + first, p.bias.begin() + first + count);
  }
  return own;
}

/// How a rank gets the gradient of hidden states.
enum class reduced {
  in_the_end,
  on_the_side,
  of_frozen_classifier,  ///< on the side, where the classifier's gradient is not wanted
};

/// What a rank has: a part of the problem, on its device.
struct rank_problem {
  loss_problem<bfloat16> own;
  vocabulary_part part;

  rank_problem(int rank, int count, loss_problem<bfloat16> const& p)
      : part{rank == 0 ? 0 : p.vocabulary / 3, p.vocabulary} {
    std::int64_t const end = rank + 1 == count ? p.vocabulary : p.vocabulary / 3;
    own = part_of(p, part.first, end - part.first);
  }
};

template <class Loss, class Gradient>
device_results<Gradient> run_rank(ncclComm_t comm, int rank, int count, loss_problem<bfloat16> const& p, reduced how) {
  using loss = vocabulary_parallel<Loss>;
  cuda_ok(cudaSetDevice(rank));
  own_stream const stream;
  cuda exec{.stream = stream.stream};
  exec.options.refuses_slower_programs = true;
  nccl ranks(comm);
  rank_problem const of(rank, count, p);
  auto const& own = of.own;
  device_problem<bfloat16, std::int64_t> const in(exec, own);
  buffer<float> value(exec, 1);
  buffer<float> lse(exec, p.tokens);
  buffer<float> log_probability(exec, p.tokens);
  auto hidden = to_device(exec, std::vector<Gradient>(p.hidden.size(), store<Gradient>(NAN)));
  auto classifier = to_device(exec, std::vector<Gradient>(own.classifier.size(), store<Gradient>(NAN)));
  auto const plan =
      loss::template plan_backward<Gradient>(exec, count, {p.tokens, own.vocabulary, p.channels}, p.options);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  side_queue<cuda> const side(exec, loss::side_marks, true);
  linear_loss_outputs out;
  out.loss = value.view();
  out.log_sum_exp = lse.view();
  out.log_probability = log_probability.view();
  loss::forward(exec, ranks, in.inputs(), of.part, p.options, out, space);
  linear_loss_gradients<Gradient> gradients{{hidden.data(), {p.tokens, p.channels}}};
  if (how != reduced::of_frozen_classifier) {
    gradients.classifier = {classifier.data(), {own.vocabulary, p.channels}};
  }
  if (how == reduced::in_the_end) {
    loss::backward(exec, ranks, in.inputs(), of.part, p.options, {}, gradients, space);
  } else {
    loss::backward(exec, side, ranks, in.inputs(), of.part, p.options, {}, gradients, space, 200);
  }
  device_results<Gradient> found{to_host(exec, value),  to_host(exec, lse),        to_host(exec, log_probability),
                                 to_host(exec, hidden), to_host(exec, classifier), {}};
  exec.wait();
  ranks.check_now();
  return found;
}

template <class Loss, class Gradient>
std::vector<found_by_rank<Gradient>> run_ranks(int count, loss_problem<bfloat16> const& p, reduced how) {
  std::vector<found_by_rank<Gradient>> all(static_cast<std::size_t>(count));
  auto const thrown = on_nccl_ranks(count, [&](ncclComm_t comm, int rank) {
    all[static_cast<std::size_t>(rank)].results = run_rank<Loss, Gradient>(comm, rank, count, p, how);
  });
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    all[rank].thrown = thrown[rank];
  }
  return all;
}

template <class Gradient>
std::vector<unsigned> bits_of(std::vector<Gradient> const& values) {
  std::vector<unsigned> bits;
  for (Gradient const value : values) {
    bits.push_back(scalar_traits<Gradient>::to_bits(value));
  }
  return bits;
}

template <class Loss, class Gradient>
void check_ranks(int count, loss_problem<bfloat16> const& p, double tolerance,
                 std::vector<reduced> const& hows = {reduced::in_the_end, reduced::on_the_side}) {
  auto const expected = reference_gradient(p);
  std::vector<float> loss;
  for (reduced const how : hows) {
    CAPTURE(count, p.tokens, p.vocabulary, p.channels, how == reduced::in_the_end,
            how == reduced::of_frozen_classifier);
    auto const all = run_ranks<Loss, Gradient>(count, p, how);
    std::vector<Gradient> classifier;
    for (auto const& found : all) {
      REQUIRE(found.thrown == "");
      if (how == reduced::in_the_end) {
        CHECK((&found != &all[0] || wrong_losses(p, found.results, 1e-5) == 0));
        loss = all[0].results.loss;
      }
      CHECK(found.results.loss == loss);
      CHECK(bits_of(found.results.hidden) == bits_of(all[0].results.hidden));
      CHECK(relative_distance(found.results.hidden, expected.hidden) <= tolerance);
      classifier.insert(classifier.end(), found.results.classifier.begin(), found.results.classifier.end());
    }
    if (how != reduced::of_frozen_classifier) {
      CHECK(relative_distance(classifier, expected.classifier) <= tolerance);
    }
  }
}

/// Runs a rank whose hidden states are spread, too.
template <class Loss, class Gradient>
std::vector<Gradient> run_spread_rank(ncclComm_t comm, int rank, int count, loss_problem<bfloat16> const& p,
                                      bool has_side) {
  using loss = sequence_parallel<vocabulary_parallel<Loss>>;
  cuda_ok(cudaSetDevice(rank));
  own_stream const stream;
  cuda exec{.stream = stream.stream};
  exec.options.refuses_slower_programs = true;
  nccl ranks(comm);
  rank_problem const of(rank, count, p);
  device_problem<bfloat16, std::int64_t> const whole(exec, of.own);
  std::int64_t const share = p.tokens / count;
  auto in = whole.inputs();
  in.hidden = {in.hidden.data + rank * share * p.channels, {share, p.channels}};
  buffer<float> value(exec, 1);
  auto hidden =
      to_device(exec, std::vector<Gradient>(static_cast<std::size_t>(share * p.channels), store<Gradient>(NAN)));
  auto classifier = to_device(exec, std::vector<Gradient>(of.own.classifier.size(), store<Gradient>(NAN)));
  auto const plan =
      loss::template plan_backward<Gradient>(exec, count, {p.tokens, of.own.vocabulary, p.channels}, p.options);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  side_queue<cuda> const side(exec, loss::side_marks, true);
  linear_loss_gradients<Gradient> const gradients{{hidden.data(), {share, p.channels}},
                                                  {classifier.data(), {of.own.vocabulary, p.channels}}};
  loss::forward(exec, ranks, in, of.part, p.options, {.loss = value.view()}, space);
  if (has_side) {
    loss::backward(exec, side, ranks, in, of.part, p.options, {}, gradients, space);
  } else {
    loss::backward(exec, ranks, in, of.part, p.options, {}, gradients, space);
  }
  auto found = to_host(exec, hidden);
  exec.wait();
  ranks.check_now();
  return found;
}

template <class Loss, class Gradient>
void check_spread_ranks(int count, loss_problem<bfloat16> const& p, double tolerance) {
  for (bool const has_side : {false, true}) {
    CAPTURE(count, p.tokens, has_side);
    std::vector<std::vector<Gradient>> all(static_cast<std::size_t>(count));
    auto const thrown = on_nccl_ranks(count, [&](ncclComm_t comm, int rank) {
      all[static_cast<std::size_t>(rank)] = run_spread_rank<Loss, Gradient>(comm, rank, count, p, has_side);
    });
    std::vector<Gradient> hidden;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      REQUIRE(thrown[rank] == "");
      hidden.insert(hidden.end(), all[rank].begin(), all[rank].end());
    }
    CHECK(relative_distance(hidden, reference_gradient(p).hidden) <= tolerance);
  }
}

constexpr std::int64_t budget_of_parts = std::int64_t{3} << 18;

void check_all(int count) {
  for (auto const& extents : {std::vector<std::int64_t>{1, 9, 8}, {130, 777, 64}, {301, 3001, 136}}) {
    auto p = make_loss_problem<bfloat16>(extents[0], extents[1], extents[2], true);
    weigh_classes(p);
    p.options.z_factor = 1e-2F;
    p.options.softcap = 4.0F;
    p.options.shift = 1;
    check_ranks<exact_cross_entropy, float>(count, p, 4e-3);
    check_ranks<exact_cross_entropy, bfloat16>(count, p, 8e-3);
    p.options.workspace_budget = std::int64_t{64} << 20;  // each rank keeps softmaxes of its entries
    check_ranks<exact_cross_entropy, float>(count, p, 8e-3);
    p.options.workspace_budget = 0;
    p.options.hidden_threshold = p.options.classifier_threshold = 1e-20F;  // marks and orders, and leaves out nothing
    check_ranks<cut_cross_entropy, float>(count, p, 4e-3);
    if (p.tokens % count == 0) {
      check_spread_ranks<exact_cross_entropy, bfloat16>(count, p, 8e-3);
    }
  }
  // Several parts of the vocabulary, of which the shortest comes first; with fp32 gradients several chunks of tokens.
  auto p = make_loss_problem<bfloat16>(600, 1152, 64, true);
  p.options.workspace_budget = budget_of_parts;
  std::vector<reduced> const all{reduced::in_the_end, reduced::on_the_side, reduced::of_frozen_classifier};
  check_ranks<exact_cross_entropy, float>(count, p, 4e-3, all);
  check_ranks<exact_cross_entropy, bfloat16>(count, p, 8e-3, all);
}

}  // namespace

TEST_CASE("a classifier on one GPU is a classifier on ranks of NCCL", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_all(1);
}

TEST_CASE("a classifier that is spread over two GPUs by NCCL has the loss of the whole one", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (device_count() < 2) {
    report_skip("a classifier on several GPUs wants two, and there is one");
    SUCCEED("skipped");
    return;
  }
  check_all(2);
}
