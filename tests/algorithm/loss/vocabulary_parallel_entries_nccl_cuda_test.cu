// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Soft targets, smoothed labels and chosen entries of a classifier that is spread over GPUs, by NCCL, and classifiers
// that are sources. One GPU is one rank; two are two, where they are there.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/loss/sequence_parallel.hpp>
#include <tessera/algorithm/loss/vocabulary_parallel_entries.hpp>
#include <tessera/algorithm/loss/with_classifier.hpp>
#include <tessera/comm/nccl.cuh>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/side_queue.hpp>

#include "algorithm/loss/soft_target_loss_on_device.cuh"
#include "support/chosen_entries.hpp"
#include "support/message_of.hpp"
#include "support/nccl_ranks.cuh"
#include "support/rank_parts.hpp"
#include "support/stored_classifiers.hpp"

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
  std::vector<Gradient> bias;
};

/// What is wanted of a backward pass.
struct wanted {
  bool has_side = false;
  int times = 1;  ///< how often it runs, adding but the first time
  upstream_samples upstream = {};
};

/// Runs both passes of a loss. `inputs`: what is given to it; `shape`: its extents; `p`: what the rank has.
template <class Loss, class Gradient, class Inputs, class Shape, class T>
rank_found<Gradient> run_passes(rank_of_gpu& on, Inputs const& inputs, Shape const& shape, vocabulary_part const& part,
                                loss_problem<T> const& p, wanted const& want) {
  cuda const& exec = on.exec;
  rank_found<Gradient> found{loss_results(p.tokens, p.options.reduction), {}, {}, {}};
  auto loss = to_device(exec, found.values.loss);
  auto lse = to_device(exec, found.values.log_sum_exp);
  auto log_probability = to_device(exec, found.values.log_probability);
  auto count = to_device(exec, found.values.count);
  auto const poisoned = [&](std::int64_t size) {
    return to_device(exec, std::vector<Gradient>(static_cast<std::size_t>(size), store<Gradient>(NAN)));
  };
  std::int64_t const rows = inputs.hidden.extent(0);
  auto hidden = poisoned(rows * p.channels);
  auto classifier = poisoned(p.vocabulary * p.channels);
  auto bias = poisoned(p.vocabulary);
  auto const by_loss = to_device(exec, want.upstream.loss);
  auto const by_lse = to_device(exec, want.upstream.log_sum_exp);
  auto const by_entropy = to_device(exec, want.upstream.entropy);
  loss_upstream const by{view_or_null(by_loss), view_or_null(by_lse), view_or_null(by_entropy)};
  auto const plan = Loss::template plan_backward<Gradient>(exec, on.ranks.size(), shape, p.options);
  auto memory = to_device(exec, std::vector<std::byte>(static_cast<std::size_t>(plan.bytes()), std::byte{0xff}));
  workspace const space(plan, memory);
  side_queue<cuda> const side(exec, Loss::side_marks, true);
  Loss::forward(exec, on.ranks, inputs, part, p.options,
                {.loss = loss, .log_sum_exp = lse, .log_probability = log_probability, .labelled_count = count}, space);
  linear_loss_gradients<Gradient> out{
      {hidden.data(), {rows, p.channels}}, {classifier.data(), {p.vocabulary, p.channels}}, bias.view()};
  for (int time = 0; time < want.times; ++time) {
    if (!want.has_side) {
      Loss::backward(exec, on.ranks, inputs, part, p.options, by, out, space);
    } else if constexpr (is_spread<Loss>) {
      Loss::backward(exec, side, on.ranks, inputs, part, p.options, by, out, space);
    } else {
      Loss::backward(exec, side, on.ranks, inputs, part, p.options, by, out, space, 64);
    }
    out.accumulate_hidden = out.accumulate_classifier = out.accumulate_bias = true;
  }
  found.values.loss = to_host(exec, loss);
  found.values.log_sum_exp = to_host(exec, lse);
  found.values.log_probability = to_host(exec, log_probability);
  found.values.count = to_host(exec, count);
  found.hidden = to_host(exec, hidden);
  found.classifier = to_host(exec, classifier);
  found.bias = to_host(exec, bias);
  exec.wait();
  on.ranks.check_now();
  return found;
}

/// Compares what all ranks have found with the formulas, and with each other.
template <class Loss, class Gradient>
void check_found(std::vector<rank_found<Gradient>> const& all, gradient_reference const& expected, double tolerance,
                 int times = 1) {
  auto const apart = [&](std::vector<double> wanted_once, std::vector<Gradient> rank_found<Gradient>::*of, bool joins) {
    std::vector<Gradient> found;
    for (auto const& rank : all) {
      if (joins || &rank == &all[0]) {
        found.insert(found.end(), (rank.*of).begin(), (rank.*of).end());
      }
    }
    for (double& value : wanted_once) {
      value *= times;
    }
    return relative_distance(found, wanted_once);
  };
  for (auto const& found : all) {
    CHECK(found.values.loss == all[0].values.loss);
    CHECK((is_spread<Loss> || relative_distance(found.hidden, doubles_of(all[0].hidden)) == 0));
  }
  CHECK(apart(expected.hidden, &rank_found<Gradient>::hidden, is_spread<Loss>) <= tolerance);
  CHECK(apart(expected.classifier, &rank_found<Gradient>::classifier, true) <= tolerance);
  CHECK(apart(expected.bias, &rank_found<Gradient>::bias, true) <= 2 * tolerance);
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

/// Loss: of vocabulary_parallel, or of both.
template <class Loss, class Gradient, class Entry>
void check_soft(nccl_communicators const& comms, int count, target_problem<bfloat16, Entry> const& p, double tolerance,
                bool has_empty = false, int times = 1, upstream_samples const& upstream = {}) {
  auto const expected = reference_targets(p, upstream);
  for (bool const has_side : {false, true}) {
    CAPTURE(count, p.base.tokens, p.base.vocabulary, p.k, has_side, has_empty, times, is_spread<Loss>);
    auto const all = on_all<Gradient>(comms, count, [&](rank_of_gpu& on, int rank) {
      auto const own = problem_of(rank, count, p.base, has_empty);
      device_problem<bfloat16, std::int64_t> const in(on.exec, own);
      auto const entries = to_device(on.exec, p.entries);
      auto const weights = to_device(on.exec, p.entry_weights);
      soft_target_inputs<bfloat16, Entry> const inputs{hidden_of_rank<Loss>(in.inputs().hidden, rank, count),
                                                       in.inputs().classifier,
                                                       {entries.data(), {own.tokens, p.k}},
                                                       {weights.data(), {own.tokens, p.k}},
                                                       in.bias.view(),
                                                       in.weights.view()};
      return run_passes<Loss, Gradient>(on, inputs, soft_target_shape{own.tokens, own.vocabulary, own.channels, p.k},
                                        part_of(rank, count, p.base.vocabulary, has_empty), own,
                                        {has_side, times, upstream});
    });
    for (auto const& found : all) {
      CHECK(wrong_targets(expected, found.values, p.base.options.reduction != loss_reduction::none, 1e-5) == 0);
    }
    check_found<Loss>(all, expected.gradient, tolerance, times);
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
                                   part_of(rank, count, p.vocabulary, has_empty), own, {true});
  });
  CHECK(static_cast<double>(all[0].values.loss[0]) == Approx(reference_loss(p).total).epsilon(2e-5));
  check_found<loss>(all, reference_gradient(p), 5e-3);
}

/// Rows of codes with a scale each, for labels. Loss: of vocabulary_parallel, or of both.
template <class Loss, class Source>
void check_source(nccl_communicators const& comms, int count, stored_problem<Source> const& p) {
  CAPTURE(count, is_spread<Loss>);
  auto const all = on_all<float>(comms, count, [&](rank_of_gpu& on, int rank) {
    auto const own = problem_of(rank, count, p.rounded, false);
    std::int64_t const first = part_of(rank, count, p.rounded.vocabulary, false).first;
    device_problem<bfloat16, std::int64_t> const there(on.exec, own);
    auto const codes = to_device(on.exec, rows_between(p.codes, first, first + own.vocabulary, own.channels));
    auto const scales = to_device(on.exec, rows_between(p.params, first, first + own.vocabulary, 1));
    auto const plain = there.inputs();
    typename Loss::template inputs<std::int64_t> const in{
        hidden_of_rank<Loss>(plain.hidden, rank, count),
        source_memory<Source>::source(codes.data(), scales.data(), own.vocabulary, own.channels), plain.labels,
        plain.bias, plain.weights};
    return run_passes<Loss, float>(on, in, linear_loss_shape{own.tokens, own.vocabulary, own.channels},
                                   part_of(rank, count, p.rounded.vocabulary, false), own, {true});
  });
  CHECK(static_cast<double>(all[0].values.loss[0]) == Approx(reference_loss(p.rounded).total).epsilon(2e-5));
  check_found<Loss>(all, reference_gradient(p.rounded), 4e-3);
}

/// Call: of vocabulary_parallel, or of both.
template <class Call>
void check_chosen(nccl_communicators const& comms, int count) {
  auto p = make_loss_problem<bfloat16>(34, 500, 64, true);
  p.options.softcap = 3.0F;
  chosen_entries<std::int64_t> chosen(p, 6);
  chosen.entries[9] = 500;
  std::vector<std::vector<float>> all(static_cast<std::size_t>(count));
  std::vector<std::string> said(all.size());
  auto const thrown = on_nccl_ranks(comms, count, [&](ncclComm_t comm, int rank) {
    rank_of_gpu on(comm);
    auto const own = problem_of(rank, count, p, false);
    device_problem<bfloat16, std::int64_t> const in(on.exec, own);
    auto const entries = to_device(on.exec, chosen.entries);
    auto const lse = to_device(on.exec, chosen.log_sum_exp);
    auto found = to_device(on.exec, std::vector<float>(chosen.entries.size(), NAN));
    workspace_plan const plan = [&] {
      if constexpr (is_spread<Call>) {
        return Call::plan_forward(count, own.tokens, chosen.k, own.channels);
      } else {
        return Call::plan_forward(count, own.tokens, chosen.k);
      }
    }();
    buffer<std::byte> memory(on.exec, plan.bytes());
    typename Call::template inputs<std::int64_t> const inputs{hidden_of_rank<Call>(in.inputs().hidden, rank, count),
                                                              in.inputs().classifier,
                                                              {entries.data(), {own.tokens, chosen.k}},
                                                              lse.view(),
                                                              in.bias.view()};
    Call::forward(on.exec, on.ranks, inputs, part_of(rank, count, p.vocabulary, false), p.options,
                  {found.data(), {own.tokens, chosen.k}}, workspace(plan, memory));
    said[static_cast<std::size_t>(rank)] = message_of([&] { on.exec.wait(); });
    all[static_cast<std::size_t>(rank)] = to_host(on.exec, found);
  });
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    REQUIRE(thrown[rank] == "");
    CHECK(said[rank] == "vocabulary_parallel.forward: entry 500 at position 9 of the chosen ones is none of 500");
    CHECK(wrong_chosen(p, chosen, all[rank], 1e-5) == 0);
  }
}

/// Runs every option that the tests of extents leave out.
void check_options(nccl_communicators const& comms, int count) {
  using exact = vocabulary_parallel<soft_target_loss<exact_cross_entropy>>;
  using statistics = vocabulary_parallel<soft_target_loss<exact_cross_entropy_of<bfloat16, loss_statistics>>>;
  auto const p = make_target_problem<bfloat16>(130, 777, 64, 5, true);
  check_soft<exact, bfloat16>(comms, count, p, 9e-3, true);
  check_soft<exact, float>(comms, count, p, 4e-3, false, 2);
  check_soft<sequence_parallel<exact>, float>(comms, count, p, 4e-3, false, 2);
  auto long_entries = make_target_problem<bfloat16, std::int64_t>(130, 777, 64, 5, true);
  long_entries.base.options.reduction = loss_reduction::none;
  auto const by_all = upstream_of_targets(130, false, true);
  check_soft<statistics, bfloat16>(comms, count, long_entries, 1e-2, false, 1, by_all);
  check_soft<sequence_parallel<statistics>, bfloat16>(comms, count, long_entries, 1e-2, false, 1, by_all);

  using source = row_scaled<bfloat16>;
  using of_source = vocabulary_parallel<with_classifier<exact_cross_entropy, source>>;
  auto const stored = make_stored_problem<source>(130, 777, 64, true);
  check_source<of_source>(comms, count, stored);
  check_source<sequence_parallel<of_source>>(comms, count, stored);

  using chosen = vocabulary_parallel<chosen_log_probabilities<bfloat16>>;
  check_chosen<chosen>(comms, count);
  check_chosen<sequence_parallel<chosen>>(comms, count);
}

void check_all(int count) {
  nccl_communicators const comms(count);
  using exact = vocabulary_parallel<soft_target_loss<exact_cross_entropy>>;
  for (auto const& extents : {std::vector<std::int64_t>{1, 9, 8, 3}, {130, 777, 64, 7}, {201, 1501, 72, 20}}) {
    auto p = make_target_problem<bfloat16>(extents[0], extents[1], extents[2], extents[3], true, -0.2);
    p.base.options.z_factor = 1e-2F;
    p.base.options.softcap = 4.0F;
    check_soft<exact, float>(comms, count, p, 4e-3);
    check_soft<exact, bfloat16>(comms, count, p, 9e-3);
    p.base.options.workspace_budget = std::int64_t{64} << 20;  // each rank keeps softmaxes of its entries
    check_soft<exact, float>(comms, count, p, 8e-3);
    p.base.options.workspace_budget = 0;
    p.base.options.hidden_threshold = p.base.options.classifier_threshold = 1e-20F;  // marks, and leaves out nothing
    check_soft<vocabulary_parallel<soft_target_loss<cut_cross_entropy>>, float>(comms, count, p, 4e-3);
    auto labels = make_loss_problem<bfloat16>(extents[0], extents[1], extents[2], true);
    labels.options = {.smoothing = 0.2F, .hidden_threshold = 1e-20F, .classifier_threshold = 1e-20F};
    check_smoothed(comms, count, labels, false);
    check_smoothed(comms, count, labels, true);
  }
  check_options(comms, count);
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
