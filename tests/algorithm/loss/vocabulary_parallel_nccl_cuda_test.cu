// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A classifier that is spread over GPUs, by NCCL. One GPU is one rank; two are two, where they are there.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/loss/vocabulary_parallel.hpp>
#include <tessera/comm/nccl.cuh>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/cuda.cuh>

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

template <class Loss, class Gradient>
device_results<Gradient> run_rank(ncclComm_t comm, int rank, int count, loss_problem<bfloat16> const& p) {
  using loss = vocabulary_parallel<Loss>;
  cuda_ok(cudaSetDevice(rank));
  own_stream const stream;
  cuda exec{.stream = stream.stream};
  exec.options.refuses_slower_programs = true;
  nccl ranks(comm);
  std::int64_t const first = rank == 0 ? 0 : p.vocabulary / 3;
  std::int64_t const end = rank + 1 == count ? p.vocabulary : p.vocabulary / 3;
  auto const own = part_of(p, first, end - first);
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
  vocabulary_part const part{first, p.vocabulary};
  linear_loss_outputs out;
  out.loss = value.view();
  out.log_sum_exp = lse.view();
  out.log_probability = log_probability.view();
  loss::forward(exec, ranks, in.inputs(), part, p.options, out, space);
  linear_loss_gradients<Gradient> const gradients{{hidden.data(), {p.tokens, p.channels}},
                                                  {classifier.data(), {own.vocabulary, p.channels}}};
  loss::backward(exec, ranks, in.inputs(), part, p.options, {}, gradients, space);
  device_results<Gradient> found{to_host(exec, value),  to_host(exec, lse),        to_host(exec, log_probability),
                                 to_host(exec, hidden), to_host(exec, classifier), {}};
  exec.wait();
  ranks.check_now();
  return found;
}

template <class Loss, class Gradient>
std::vector<found_by_rank<Gradient>> run_ranks(int count, loss_problem<bfloat16> const& p) {
  std::vector<found_by_rank<Gradient>> all(static_cast<std::size_t>(count));
  auto const thrown = on_nccl_ranks(count, [&](ncclComm_t comm, int rank) {
    all[static_cast<std::size_t>(rank)].results = run_rank<Loss, Gradient>(comm, rank, count, p);
  });
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    all[rank].thrown = thrown[rank];
  }
  return all;
}

template <class Loss, class Gradient>
void check_ranks(int count, loss_problem<bfloat16> const& p, double tolerance) {
  CAPTURE(count, p.tokens, p.vocabulary, p.channels);
  auto const all = run_ranks<Loss, Gradient>(count, p);
  auto const expected = reference_gradient(p);
  std::vector<Gradient> classifier;
  for (auto const& found : all) {
    REQUIRE(found.thrown == "");
    CHECK(wrong_losses(p, found.results, 1e-5) == 0);
    CHECK(found.results.loss == all[0].results.loss);
    CHECK(relative_distance(found.results.hidden, expected.hidden) <= tolerance);
    classifier.insert(classifier.end(), found.results.classifier.begin(), found.results.classifier.end());
  }
  CHECK(relative_distance(classifier, expected.classifier) <= tolerance);
}

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
  }
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
