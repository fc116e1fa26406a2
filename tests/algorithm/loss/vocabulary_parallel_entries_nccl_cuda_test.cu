// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Soft targets, smoothed labels and chosen entries of a classifier that is spread over GPUs, by NCCL. One GPU is one
// rank; two are two, where they are there.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/loss/sequence_parallel.hpp>
#include <tessera/algorithm/loss/vocabulary_parallel_entries.hpp>
#include <tessera/comm/nccl.cuh>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/side_queue.hpp>

#include "algorithm/loss/soft_target_loss_on_device.cuh"
#include "support/chosen_entries.hpp"
#include "support/message_of.hpp"
#include "support/nccl_ranks.cuh"
#include "support/rank_parts.hpp"

using namespace tessera;
using namespace tessera_test;

namespace nccl_entries {

/// A rank's executor, which refuses programs that are slower than others.
struct rank_of_gpu {
  own_stream stream;
  cuda exec{.stream = stream.stream};
  nccl ranks;

  explicit rank_of_gpu(ncclComm_t comm) : ranks(comm) { exec.options.refuses_slower_programs = true; }
};

/// The entries of a rank: a third and the rest, or all and none.
vocabulary_part part_of(int rank, int count, std::int64_t vocabulary, bool has_empty) {
  std::int64_t const second = has_empty ? vocabulary : vocabulary / 3;
  return {rank == 0 || count == 1 ? 0 : second, vocabulary};
}
template <class T>
loss_problem<T> problem_of(int rank, int count, loss_problem<T> const& p, bool has_empty) {
  std::int64_t const first = part_of(rank, count, p.vocabulary, has_empty).first;
  std::int64_t const end = rank + 1 == count ? p.vocabulary : part_of(1, count, p.vocabulary, has_empty).first;
  auto own = p;
  own.vocabulary = end - first;
  own.classifier = rows_between(p.classifier, first, end, p.channels);
  own.bias = rows_between(p.bias, first, end, 1);
  return own;
}

/// What a rank finds.
template <class Gradient>
struct rank_found {
  loss_results values{0};
  std::vector<Gradient> hidden;
  std::vector<Gradient> classifier;
};

/// Runs both passes of a loss. `inputs`: what is given to it; `shape`: its extents.
template <class Loss, class Gradient, class Inputs, class Shape, class T>
rank_found<Gradient> run_passes(rank_of_gpu& on, Inputs const& inputs, Shape const& shape, vocabulary_part const& part,
                                loss_problem<T> const& p, std::int64_t own_entries, bool has_side) {
  cuda const& exec = on.exec;
  rank_found<Gradient> found{loss_results(p.tokens, p.options.reduction), {}, {}};
  auto loss = to_device(exec, found.values.loss);
  auto lse = to_device(exec, found.values.log_sum_exp);
  auto log_probability = to_device(exec, found.values.log_probability);
  auto count = to_device(exec, found.values.count);
  auto hidden = to_device(exec, std::vector<Gradient>(p.hidden.size(), store<Gradient>(NAN)));
  auto classifier =
      to_device(exec, std::vector<Gradient>(static_cast<std::size_t>(own_entries * p.channels), store<Gradient>(NAN)));
  auto const plan = Loss::template plan_backward<Gradient>(exec, on.ranks.size(), shape, p.options);
  auto memory = to_device(exec, std::vector<std::byte>(static_cast<std::size_t>(plan.bytes()), std::byte{0xff}));
  workspace const space(plan, memory);
  side_queue<cuda> const side(exec, Loss::side_marks, true);
  Loss::forward(exec, on.ranks, inputs, part, p.options,
                {.loss = loss, .log_sum_exp = lse, .log_probability = log_probability, .labelled_count = count}, space);
  linear_loss_gradients<Gradient> const gradients{{hidden.data(), {p.tokens, p.channels}},
                                                  {classifier.data(), {own_entries, p.channels}}};
  if (has_side) {
    Loss::backward(exec, side, on.ranks, inputs, part, p.options, {}, gradients, space, 64);
  } else {
    Loss::backward(exec, on.ranks, inputs, part, p.options, {}, gradients, space);
  }
  found.values.loss = to_host(exec, loss);
  found.values.log_sum_exp = to_host(exec, lse);
  found.values.log_probability = to_host(exec, log_probability);
  found.values.count = to_host(exec, count);
  found.hidden = to_host(exec, hidden);
  found.classifier = to_host(exec, classifier);
  exec.wait();
  on.ranks.check_now();
  return found;
}

/// Compares what all ranks have found with the formulas, and with each other.
template <class Gradient>
void check_found(std::vector<rank_found<Gradient>> const& all, gradient_reference const& expected, double tolerance) {
  std::vector<Gradient> classifier;
  for (auto const& found : all) {
    CHECK(found.values.loss == all[0].values.loss);
    CHECK(relative_distance(found.hidden, doubles_of(all[0].hidden)) == 0);
    CHECK(relative_distance(found.hidden, expected.hidden) <= tolerance);
    classifier.insert(classifier.end(), found.classifier.begin(), found.classifier.end());
  }
  CHECK(relative_distance(classifier, expected.classifier) <= tolerance);
}

/// Calls run(rank on its GPU) on all ranks.
template <class Gradient, class Run>
std::vector<rank_found<Gradient>> on_all(nccl_communicators const& comms, int count, Run const& run) {
  std::vector<rank_found<Gradient>> all(static_cast<std::size_t>(count));
  auto const thrown = on_nccl_ranks(comms, count, [&](ncclComm_t comm, int rank) {
    rank_of_gpu on(comm);
    all[static_cast<std::size_t>(rank)] = run(on, rank);
  });
  for (std::string const& message : thrown) {
    REQUIRE(message == "");
  }
  return all;
}

template <class Whole, class Gradient>
void check_soft(nccl_communicators const& comms, int count, target_problem<bfloat16> const& p, double tolerance,
                bool has_empty = false) {
  using loss = vocabulary_parallel<soft_target_loss<Whole>>;
  auto const expected = reference_targets(p);
  for (bool const has_side : {false, true}) {
    CAPTURE(count, p.base.tokens, p.base.vocabulary, p.k, has_side, has_empty);
    auto const all = on_all<Gradient>(comms, count, [&](rank_of_gpu& on, int rank) {
      auto const own = problem_of(rank, count, p.base, has_empty);
      device_problem<bfloat16, std::int64_t> const in(on.exec, own);
      auto const entries = to_device(on.exec, p.entries);
      auto const weights = to_device(on.exec, p.entry_weights);
      soft_target_inputs<bfloat16, std::int32_t> const inputs{in.inputs().hidden,
                                                              in.inputs().classifier,
                                                              {entries.data(), {own.tokens, p.k}},
                                                              {weights.data(), {own.tokens, p.k}},
                                                              in.bias.view(),
                                                              in.weights.view()};
      return run_passes<loss, Gradient>(on, inputs, soft_target_shape{own.tokens, own.vocabulary, own.channels, p.k},
                                        part_of(rank, count, p.base.vocabulary, has_empty), own, own.vocabulary,
                                        has_side);
    });
    for (auto const& found : all) {
      CHECK(wrong_targets(expected, found.values, true, 1e-5) == 0);
    }
    check_found(all, expected.gradient, tolerance);
  }
}

void check_smoothed(nccl_communicators const& comms, int count, loss_problem<bfloat16> const& p, bool has_empty) {
  using whole = cut_cross_entropy_of<bfloat16, loss_statistics>;
  using loss = vocabulary_parallel<whole>;
  CAPTURE(count, p.tokens, p.vocabulary, has_empty);
  auto const all = on_all<float>(comms, count, [&](rank_of_gpu& on, int rank) {
    auto const own = problem_of(rank, count, p, has_empty);
    device_problem<bfloat16, std::int64_t> const in(on.exec, own);
    return run_passes<loss, float>(on, in.inputs(), linear_loss_shape{own.tokens, own.vocabulary, own.channels},
                                   part_of(rank, count, p.vocabulary, has_empty), own, own.vocabulary, true);
  });
  CHECK(static_cast<double>(all[0].values.loss[0]) == Approx(reference_loss(p).total).epsilon(2e-5));
  check_found(all, reference_gradient(p), 5e-3);
}

/// `is_spread`: each rank has its part of the hidden states alone.
void check_chosen(nccl_communicators const& comms, int count, bool is_spread) {
  auto p = make_loss_problem<bfloat16>(is_spread ? 34 : 33, 500, 64, true);
  p.options.softcap = 3.0F;
  chosen_entries<std::int64_t> chosen(p, 6);
  chosen.entries[9] = 500;
  using call = vocabulary_parallel<chosen_log_probabilities<bfloat16>>;
  using spread_call = sequence_parallel<call>;
  std::vector<std::vector<float>> all(static_cast<std::size_t>(count));
  std::vector<std::string> said(all.size());
  auto const thrown = on_nccl_ranks(comms, count, [&](ncclComm_t comm, int rank) {
    rank_of_gpu on(comm);
    auto const own = problem_of(rank, count, p, false);
    device_problem<bfloat16, std::int64_t> const in(on.exec, own);
    auto const entries = to_device(on.exec, chosen.entries);
    auto const lse = to_device(on.exec, chosen.log_sum_exp);
    auto found = to_device(on.exec, std::vector<float>(chosen.entries.size(), NAN));
    auto const plan = is_spread ? spread_call::plan_forward(count, own.tokens, chosen.k, own.channels)
                                : call::plan_forward(count, own.tokens, chosen.k);
    buffer<std::byte> memory(on.exec, plan.bytes());
    std::int64_t const rows = is_spread ? own.tokens / count : own.tokens;
    call::inputs<std::int64_t> const inputs{
        {in.inputs().hidden.data + (is_spread ? rank * rows * own.channels : 0), {rows, own.channels}},
        in.inputs().classifier,
        {entries.data(), {own.tokens, chosen.k}},
        lse.view(),
        in.bias.view()};
    vocabulary_part const part = part_of(rank, count, p.vocabulary, false);
    matrix_view<float> const out(found.data(), {own.tokens, chosen.k});
    if (is_spread) {
      spread_call::forward(on.exec, on.ranks, inputs, part, p.options, out, workspace(plan, memory));
    } else {
      call::forward(on.exec, on.ranks, inputs, part, p.options, out, workspace(plan, memory));
    }
    said[static_cast<std::size_t>(rank)] = message_of([&] { on.exec.wait(); });
    all[static_cast<std::size_t>(rank)] = to_host(on.exec, found);
  });
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    REQUIRE(thrown[rank] == "");
    CHECK(said[rank] == "vocabulary_parallel.forward: entry 500 at position 9 of the chosen ones is none of 500");
    CHECK(wrong_chosen(p, chosen, all[rank], 1e-5) == 0);
  }
}

void check_all(int count) {
  nccl_communicators const comms(count);
  for (auto const& extents : {std::vector<std::int64_t>{1, 9, 8, 3}, {130, 777, 64, 7}, {201, 1501, 72, 20}}) {
    auto p = make_target_problem<bfloat16>(extents[0], extents[1], extents[2], extents[3], true, -0.2);
    p.base.options.z_factor = 1e-2F;
    p.base.options.softcap = 4.0F;
    check_soft<exact_cross_entropy, float>(comms, count, p, 4e-3);
    check_soft<exact_cross_entropy, bfloat16>(comms, count, p, 9e-3);
    p.base.options.workspace_budget = std::int64_t{64} << 20;  // each rank keeps softmaxes of its entries
    check_soft<exact_cross_entropy, float>(comms, count, p, 8e-3);
    p.base.options.workspace_budget = 0;
    p.base.options.hidden_threshold = p.base.options.classifier_threshold = 1e-20F;  // marks, and leaves out nothing
    check_soft<cut_cross_entropy, float>(comms, count, p, 4e-3);
    auto labels = make_loss_problem<bfloat16>(extents[0], extents[1], extents[2], true);
    labels.options = {.smoothing = 0.2F, .hidden_threshold = 1e-20F, .classifier_threshold = 1e-20F};
    check_smoothed(comms, count, labels, false);
    check_smoothed(comms, count, labels, true);
  }
  check_soft<exact_cross_entropy, bfloat16>(comms, count, make_target_problem<bfloat16>(130, 777, 64, 5, true), 9e-3,
                                            true);
  check_chosen(comms, count, false);
  check_chosen(comms, count, true);
}

}  // namespace nccl_entries

TEST_CASE("soft targets and chosen entries on one GPU are those on ranks of NCCL", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  nccl_entries::check_all(1);
}

TEST_CASE("soft targets and chosen entries of a classifier on two GPUs, by NCCL, are those of the whole", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (device_count() < 2) {
    report_skip("entries of a classifier on several GPUs want two, and there is one");
    SUCCEED("skipped");
    return;
  }
  nccl_entries::check_all(2);
}
