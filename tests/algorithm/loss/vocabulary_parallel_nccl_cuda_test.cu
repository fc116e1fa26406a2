// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A classifier that is spread over GPUs, by NCCL. One GPU is one rank; two are two, where they are there.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/algorithm/loss/sequence_parallel.hpp>
#include <tessera/algorithm/loss/vocabulary_parallel.hpp>
#include <tessera/comm/nccl.cuh>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/side_queue.hpp>
#include <tessera/reduce/write_top_entries.hpp>

#include "algorithm/loss/linear_loss_on_device.cuh"
#include "support/nccl_ranks.cuh"
#include "support/rank_parts.hpp"
#include "support/top_entries.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// The rows from `first` on of a problem.
template <class Label>
loss_problem<bfloat16, Label> part_of(loss_problem<bfloat16, Label> const& p, std::int64_t first, std::int64_t count) {
  auto own = p;
  own.vocabulary = count;
  own.classifier = rows_between(p.classifier, first, first + count, p.channels);
  own.bias = rows_between(p.bias, first, first + count, 1);
  return own;
}

/// How a rank gets the gradient of hidden states.
enum class reduced {
  in_the_end,
  on_the_side,
  of_frozen_classifier,  ///< on the side, where the gradients of the classifier and of the bias are not wanted
};

/// What is wanted of a backward pass.
struct wanted {
  reduced how = reduced::in_the_end;
  bool has_bias = true;  ///< without, a filter may take the vocabulary in another order
  int times = 1;         ///< how often it runs, adding but the first time
};

/// What a rank has: a part of the problem, on its device.
template <class Label>
struct rank_problem {
  loss_problem<bfloat16, Label> own;
  vocabulary_part part;

  rank_problem(int rank, int count, loss_problem<bfloat16, Label> const& p)
      : part{rank == 0 ? 0 : p.vocabulary / 3, p.vocabulary} {
    std::int64_t const end = rank + 1 == count ? p.vocabulary : p.vocabulary / 3;
    own = part_of(p, part.first, end - part.first);
  }
};

template <class Loss, class Gradient, class Label>
device_results<Gradient> run_rank(ncclComm_t comm, int rank, int count, loss_problem<bfloat16, Label> const& p,
                                  wanted const& want, upstream_samples const& upstream) {
  own_stream const stream;
  cuda exec{.stream = stream.stream};
  exec.options.refuses_slower_programs = true;
  nccl ranks(comm);
  rank_problem<Label> const of(rank, count, p);
  auto const& own = of.own;
  device_problem<bfloat16, Label> const there(exec, own);
  auto in = there.inputs();
  in.hidden = hidden_of_rank<Loss>(in.hidden, rank, count);
  std::int64_t const rows = in.hidden.extent(0);
  buffer<float> value(exec, p.options.reduction == loss_reduction::none ? p.tokens : 1);
  buffer<float> lse(exec, p.tokens);
  buffer<float> log_probability(exec, p.tokens);
  auto const poisoned = [&](std::int64_t size) {
    return to_device(exec, std::vector<Gradient>(static_cast<std::size_t>(size), store<Gradient>(NAN)));
  };
  auto hidden = poisoned(rows * p.channels);
  auto classifier = poisoned(own.vocabulary * p.channels);
  auto bias = poisoned(own.vocabulary);
  auto const by_loss = to_device(exec, upstream.loss);
  auto const by_lse = to_device(exec, upstream.log_sum_exp);
  auto const by_entropy = to_device(exec, upstream.entropy);
  loss_upstream const by{view_or_null(by_loss), view_or_null(by_lse), view_or_null(by_entropy)};
  auto const plan =
      Loss::template plan_backward<Gradient>(exec, count, {p.tokens, own.vocabulary, p.channels}, p.options);
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  side_queue<cuda> const side(exec, Loss::side_marks, true);
  Loss::forward(exec, ranks, in, of.part, p.options,
                {.loss = value.view(), .log_sum_exp = lse.view(), .log_probability = log_probability.view()}, space);
  linear_loss_gradients<Gradient> out{{hidden.data(), {rows, p.channels}}};
  if (want.how != reduced::of_frozen_classifier) {
    out.classifier = {classifier.data(), {own.vocabulary, p.channels}};
    out.bias = want.has_bias ? bias.view() : array_view<Gradient>{};
  }
  for (int time = 0; time < want.times; ++time) {
    if (want.how == reduced::in_the_end) {
      Loss::backward(exec, ranks, in, of.part, p.options, by, out, space);
    } else if constexpr (is_spread<Loss>) {
      Loss::backward(exec, side, ranks, in, of.part, p.options, by, out, space);
    } else {
      Loss::backward(exec, side, ranks, in, of.part, p.options, by, out, space, 200);
    }
    out.accumulate_hidden = out.accumulate_classifier = out.accumulate_bias = true;
  }
  device_results<Gradient> found{to_host(exec, value),  to_host(exec, lse),        to_host(exec, log_probability),
                                 to_host(exec, hidden), to_host(exec, classifier), to_host(exec, bias)};
  exec.wait();
  ranks.check_now();
  return found;
}

template <class Gradient>
std::vector<unsigned> bits_of(std::vector<Gradient> const& values) {
  std::vector<unsigned> bits;
  for (Gradient const value : values) {
    bits.push_back(scalar_traits<Gradient>::to_bits(value));
  }
  return bits;
}

/// Adds a rank's results to those of the ranks before it.
template <class T>
void append(std::vector<T>& all, std::vector<T> const& more) {
  all.insert(all.end(), more.begin(), more.end());
}

std::vector<double> times_over(std::vector<double> values, int times) {
  for (double& value : values) {
    value *= times;
  }
  return values;
}

std::vector<wanted> both_ways(bool has_bias = true, int times = 1) {
  return {{reduced::in_the_end, has_bias, times}, {reduced::on_the_side, has_bias, times}};
}

/// Compares both passes on ranks with the formulas, and ranks with each other.
template <class Loss, class Gradient, class Label>
void check_ranks(nccl_communicators const& comms, int count, loss_problem<bfloat16, Label> const& p, double tolerance,
                 std::vector<wanted> const& wants = both_ways(), upstream_samples const& upstream = {}) {
  auto const expected = reference_gradient(p, upstream);
  for (wanted const& want : wants) {
    CAPTURE(count, p.tokens, p.vocabulary, p.channels, static_cast<int>(want.how), want.has_bias, want.times,
            is_spread<Loss>);
    std::vector<device_results<Gradient>> all(static_cast<std::size_t>(count));
    auto const thrown = on_nccl_ranks(comms, count, [&](ncclComm_t comm, int rank) {
      all[static_cast<std::size_t>(rank)] = run_rank<Loss, Gradient>(comm, rank, count, p, want, upstream);
    });
    std::vector<Gradient> hidden;
    std::vector<Gradient> classifier;
    std::vector<Gradient> bias;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      REQUIRE(thrown[rank] == "");
      auto const& found = all[rank];
      CHECK(found.loss == all[0].loss);
      CHECK((is_spread<Loss> || bits_of(found.hidden) == bits_of(all[0].hidden)));
      if (is_spread<Loss> || rank == 0) {
        append(hidden, found.hidden);
      }
      append(classifier, found.classifier);
      append(bias, found.bias);
    }
    CHECK(wrong_losses(p, all[0], 1e-5) == 0);
    CHECK(relative_distance(hidden, times_over(expected.hidden, want.times)) <= tolerance);
    if (want.how != reduced::of_frozen_classifier) {
      CHECK(relative_distance(classifier, times_over(expected.classifier, want.times)) <= tolerance);
      if (want.has_bias) {
        CHECK(relative_distance(bias, times_over(expected.bias, want.times)) <= 2 * tolerance);
      }
    }
  }
}

/// Compares the likeliest entries of tokens with the formulas. Loss: of vocabulary_parallel, or of both.
template <class Loss, class Finish, int K>
void check_top(nccl_communicators const& comms, int count, loss_problem<bfloat16> const& p) {
  CAPTURE(count, is_spread<Loss>);
  std::vector<top_results> all(static_cast<std::size_t>(count), top_results(p.tokens, K));
  auto const thrown = on_nccl_ranks(comms, count, [&](ncclComm_t comm, int rank) {
    own_stream const stream;
    cuda exec{.stream = stream.stream};
    exec.options.refuses_slower_programs = true;
    nccl ranks(comm);
    rank_problem<std::int64_t> const of(rank, count, p);
    device_problem<bfloat16, std::int64_t> const there(exec, of.own);
    auto in = there.inputs();
    in.hidden = hidden_of_rank<Loss>(in.hidden, rank, count);
    top_results& found = all[static_cast<std::size_t>(rank)];
    auto entries = to_device(exec, found.entries);
    auto log_probabilities = to_device(exec, found.log_probabilities);
    buffer<float> value(exec, 1);
    auto const plan = Loss::plan_forward(exec, count, {p.tokens, of.own.vocabulary, p.channels}, p.options);
    buffer<std::byte> memory(exec, plan.bytes());
    Loss::forward(exec, ranks, in, of.part, p.options, {.loss = value.view()}, workspace(plan, memory),
                  Finish{{entries.data(), {p.tokens, K}}, {log_probabilities.data(), {p.tokens, K}}});
    found.entries = to_host(exec, entries);
    found.log_probabilities = to_host(exec, log_probabilities);
    exec.wait();
    ranks.check_now();
  });
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    REQUIRE(thrown[rank] == "");
    CHECK(wrong_top_entries(p, all[rank], K, 1e-5, false) == 0);
    CHECK(all[rank].entries == all[0].entries);
  }
}

constexpr std::int64_t budget_of_parts = std::int64_t{3} << 18;

/// Runs every option that the tests of extents leave out.
void check_options(nccl_communicators const& comms, int count) {
  using exact = vocabulary_parallel<exact_cross_entropy>;
  using statistics = vocabulary_parallel<exact_cross_entropy_of<bfloat16, loss_statistics>>;
  auto p = make_loss_problem<bfloat16>(130, 777, 64, true);
  check_ranks<exact, float>(comms, count, p, 4e-3, both_ways(true, 2));
  check_ranks<sequence_parallel<exact>, float>(comms, count, p, 4e-3, both_ways(true, 2));
  using top = write_top_entries<4>;
  using top_loss = vocabulary_parallel<exact_cross_entropy_of<bfloat16, top::reducer>>;
  check_top<top_loss, top, 4>(comms, count, p);
  check_top<sequence_parallel<top_loss>, top, 4>(comms, count, p);
  // Log-probabilities and entropies, with gradients by each of them.
  p.options.reduction = loss_reduction::none;
  upstream_samples const by_all{operand_samples<float>(130, 11), operand_samples<float>(130, 12),
                                operand_samples<float>(130, 13)};
  check_ranks<statistics, bfloat16>(comms, count, p, 1e-2, both_ways(), by_all);
  check_ranks<sequence_parallel<statistics>, bfloat16>(comms, count, p, 1e-2, both_ways(), by_all);
}

void check_all(int count) {
  nccl_communicators const comms(count);
  using exact = vocabulary_parallel<exact_cross_entropy>;
  for (auto const& extents : {std::vector<std::int64_t>{1, 9, 8}, {130, 777, 64}, {301, 3001, 136}}) {
    auto p = make_loss_problem<bfloat16>(extents[0], extents[1], extents[2], true);
    weigh_classes(p);
    p.options.z_factor = 1e-2F;
    p.options.softcap = 4.0F;
    p.options.shift = 1;
    check_ranks<exact, float>(comms, count, p, 4e-3);
    check_ranks<exact, bfloat16>(comms, count, p, 8e-3);
    p.options.workspace_budget = std::int64_t{64} << 20;  // each rank keeps softmaxes of its entries
    check_ranks<exact, float>(comms, count, p, 8e-3);
    p.options.workspace_budget = 0;
    p.options.hidden_threshold = p.options.classifier_threshold = 1e-20F;  // marks and orders, and leaves out nothing
    check_ranks<vocabulary_parallel<cut_cross_entropy>, float>(comms, count, p, 4e-3, both_ways(false));
    if (p.tokens % count == 0) {
      check_ranks<sequence_parallel<exact>, bfloat16>(comms, count, p, 8e-3);
    }
  }
  check_options(comms, count);
  // Several parts of the vocabulary, of which the shortest comes first; with fp32 gradients several chunks of tokens.
  auto p = make_loss_problem<bfloat16, std::int32_t>(600, 1152, 64, true);
  p.options.workspace_budget = budget_of_parts;
  std::vector<wanted> all = both_ways();
  all.push_back({reduced::of_frozen_classifier});
  check_ranks<exact, float>(comms, count, p, 4e-3, all);
  check_ranks<exact, bfloat16>(comms, count, p, 8e-3, all);
  check_ranks<sequence_parallel<exact>, bfloat16>(comms, count, p, 8e-3, all);
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
