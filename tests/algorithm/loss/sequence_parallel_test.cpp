// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A loss whose hidden states and classifier are spread over ranks is that of the whole, for 1, 2, 3 and 8 ranks.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/loss/sequence_parallel.hpp>
#include <tessera/comm/loopback.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/reduce/write_top_entries.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/on_ranks.hpp>

#include "support/catch.hpp"
#include "support/counting_rank.hpp"
#include "support/loss_gradient_reference.hpp"
#include "support/message_of.hpp"
#include "support/top_entries.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

template <class T, class Reducer = lse_reducer<float>>
using spread_loss = sequence_parallel<vocabulary_parallel<
    linear_loss<gemm_tile<T, shape<64, 64, 32 / static_cast<int>(sizeof(T))>>, Reducer, gradient_filter<0, 64, 64>>>>;

/// What a loss of both computes of each row of logits.
template <class Loss>
struct statistics_of;
template <class Whole>
struct statistics_of<sequence_parallel<vocabulary_parallel<Whole>>> {
  using type = typename Whole::reducer_type;
};
template <class Loss>
using reducer_of = typename statistics_of<Loss>::type;

/// What a rank of equal parts of tokens and of almost equal parts of the vocabulary has, and what it found.
template <class T, class Label, class Gradient>
struct rank_of_both {
  loss_problem<T, Label> own;
  vocabulary_part part;
  loss_results values;
  std::vector<Gradient> hidden;
  std::vector<Gradient> classifier;
  std::vector<Gradient> bias;
};

template <class T, class Label, class Gradient>
rank_of_both<T, Label, Gradient> part_of_both(loss_problem<T, Label> const& p, int rank, int ranks, Gradient before) {
  std::int64_t const first = p.vocabulary * rank / ranks;
  std::int64_t const end = p.vocabulary * (rank + 1) / ranks;
  std::int64_t const share = p.tokens / ranks * p.channels;
  rank_of_both<T, Label, Gradient> made{p, {first, p.vocabulary}, loss_results(p.tokens, p.options.reduction), {}, {},
                                        {}};
  made.own.vocabulary = end - first;
  made.own.hidden.assign(p.hidden.begin() + rank * share, p.hidden.begin() + (rank + 1) * share);
  made.own.classifier.assign(p.classifier.begin() + first * p.channels, p.classifier.begin() + end * p.channels);
  if (!p.bias.empty()) {
    made.own.bias.assign(p.bias.begin() + first, p.bias.begin() + end);
  }
  made.hidden.assign(made.own.hidden.size(), before);
  made.classifier.assign(made.own.classifier.size(), store<Gradient>(NAN));
  made.bias.assign(static_cast<std::size_t>(end - first), store<Gradient>(NAN));
  return made;
}

/// The inputs of a rank: loss_problem's own are of as many hidden states as labels.
template <class T, class Label>
auto inputs_of(loss_problem<T, Label> const& own) {
  auto in = own.inputs();
  in.hidden = {own.hidden.data(), {static_cast<std::int64_t>(own.hidden.size()) / own.channels, own.channels}};
  return in;
}

template <class Loss, class Gradient, class Exec, class T, class Label>
std::vector<rank_of_both<T, Label, Gradient>> run_both(int count, Exec const& exec, loss_problem<T, Label> const& p,
                                                       bool has_side, bool accumulates = false,
                                                       upstream_samples const& upstream = {}) {
  std::vector<rank_of_both<T, Label, Gradient>> all;
  for (int rank = 0; rank < count; ++rank) {
    all.push_back(part_of_both(p, rank, count, store<Gradient>(accumulates ? 0.5F : NAN)));
  }
  testing::on_ranks(count, [&](threads& ranks) {
    auto& own = all[static_cast<std::size_t>(ranks.rank())];
    auto const plan =
        Loss::template plan_backward<Gradient>(exec, count, {p.tokens, own.own.vocabulary, p.channels}, p.options);
    buffer<std::byte> memory(exec, plan.bytes());
    exec.copy(std::vector<std::byte>(static_cast<std::size_t>(plan.bytes()), std::byte{0xff}), memory);
    workspace const space(plan, memory);
    auto const in = inputs_of(own.own);
    Loss::forward(exec, ranks, in, own.part, p.options, own.values.template outputs<reducer_of<Loss>>(), space);
    linear_loss_gradients<Gradient> out{{own.hidden.data(), {p.tokens / count, p.channels}},
                                        {own.classifier.data(), {own.own.vocabulary, p.channels}},
                                        own.bias};
    out.accumulate_hidden = accumulates;
    side_queue<Exec> const side(exec, Loss::side_marks, true);
    if (has_side) {
      Loss::backward(exec, side, ranks, in, own.part, p.options, upstream.views(), out, space);
    } else {
      Loss::backward(exec, ranks, in, own.part, p.options, upstream.views(), out, space);
    }
    exec.wait();
  });
  return all;
}

template <class Loss, class Gradient, class Exec, class T, class Label>
void check_both(int count, Exec const& exec, loss_problem<T, Label> const& p, double tolerance,
                upstream_samples const& upstream = {}) {
  CAPTURE(count, p.tokens, p.vocabulary, p.channels);
  loss_reference const expected = reference_loss(p);
  gradient_reference const gradient = reference_gradient(p, upstream);
  for (bool const has_side : {false, true}) {
    std::vector<Gradient> hidden;
    std::vector<Gradient> classifier;
    std::vector<Gradient> bias;
    for (auto const& own : run_both<Loss, Gradient>(count, exec, p, has_side, false, upstream)) {
      int wrong = 0;
      auto const compare = [&](float found, double wanted) {
        wrong += std::fabs(static_cast<double>(found) - wanted) <= 2e-5 * (1 + std::fabs(wanted)) ? 0 : 1;
      };
      bool const is_reduced = p.options.reduction != loss_reduction::none;
      if (is_reduced) {
        compare(own.values.loss[0], expected.total);
      }
      for (std::size_t i = 0; i < expected.tokens.size(); ++i) {
        compare(is_reduced ? 0.0F : own.values.loss[i], is_reduced ? 0.0 : expected.tokens[i].loss);
        compare(own.values.log_probability[i], expected.tokens[i].log_probability);
        if constexpr (has_reducer<entropy_reducer<float>, reducer_of<Loss>>) {
          compare(own.values.entropy[i], expected.tokens[i].entropy);
        }
      }
      CHECK(wrong == 0);
      hidden.insert(hidden.end(), own.hidden.begin(), own.hidden.end());
      classifier.insert(classifier.end(), own.classifier.begin(), own.classifier.end());
      bias.insert(bias.end(), own.bias.begin(), own.bias.end());
    }
    CHECK(relative_distance(hidden, gradient.hidden) <= tolerance);
    CHECK(relative_distance(classifier, gradient.classifier) <= tolerance);
    CHECK(relative_distance(bias, gradient.bias) <= 2 * tolerance);
  }
}

template <class T, class Label = std::int64_t>
loss_problem<T, Label> problem_of_both(std::int64_t tokens, std::int64_t vocabulary, std::int64_t channels) {
  auto p = make_loss_problem<T, Label>(tokens, vocabulary, channels, true);
  weigh_classes(p);
  p.options.softcap = 4.0F;
  p.options.z_factor = 1e-2F;
  p.options.shift = 1;
  return p;
}

}  // namespace

TEST_CASE("hidden states and a classifier that are spread over ranks have the loss and the gradients of the whole",
          "[host][threads]") {
  cpu const exec{.threads = 1};
  for (int const count : {1, 2, 3, 8}) {
    check_both<spread_loss<float>, float>(count, exec, problem_of_both<float>(72, 131, 24), 4e-6);
    check_both<spread_loss<bfloat16>, float>(count, exec, problem_of_both<bfloat16>(48, 300, 64), 4e-3);
    check_both<spread_loss<bfloat16>, bfloat16>(count, exec, problem_of_both<bfloat16>(48, 300, 64), 8e-3);
    // Log-probabilities and entropies, with gradients by each of them, of labels of 32 bits.
    auto tokens = problem_of_both<float, std::int32_t>(48, 90, 8);
    tokens.options.reduction = loss_reduction::none;
    check_both<spread_loss<float, loss_statistics>, float>(
        count, exec, tokens, 4e-6,
        {operand_samples<float>(48, 11), operand_samples<float>(48, 12), operand_samples<float>(48, 13)});
  }
  check_both<spread_loss<float>, float>(3, testing::adversary{.seed = 9}, problem_of_both<float>(330, 131, 8), 4e-6);
}

TEST_CASE("a gradient of spread hidden states is added to what each rank holds", "[host][threads]") {
  auto const p = problem_of_both<float>(48, 90, 8);
  cpu const exec{.threads = 1};
  for (int const count : {1, 3}) {
    for (bool const has_side : {false, true}) {
      auto const fresh = run_both<spread_loss<float>, float>(count, exec, p, has_side);
      auto const added = run_both<spread_loss<float>, float>(count, exec, p, has_side, true);
      for (std::size_t rank = 0; rank < fresh.size(); ++rank) {
        int wrong = 0;
        for (std::size_t i = 0; i < fresh[rank].hidden.size(); ++i) {
          wrong += std::fabs(added[rank].hidden[i] - fresh[rank].hidden[i] - 0.5F) <= 1e-6F ? 0 : 1;
        }
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("the likeliest entries of hidden states and a classifier that are spread are those of the whole",
          "[host][threads]") {
  using finish = write_top_entries<6>;
  using loss = spread_loss<float, finish::reducer>;
  cpu const exec{.threads = 1};
  auto const p = make_loss_problem<float>(24, 40, 12, true);
  for (int const count : {1, 2, 3, 8}) {
    std::vector<top_results> all(static_cast<std::size_t>(count), top_results(24, 6));
    testing::on_ranks(count, [&](threads& ranks) {
      auto const own = part_of_both(p, ranks.rank(), count, 0.0F);
      auto const plan = loss::plan_forward(exec, count, {24, own.own.vocabulary, 12});
      buffer<std::byte> memory(exec, plan.bytes());
      top_results& found = all[static_cast<std::size_t>(ranks.rank())];
      std::vector<float> value(1);
      loss::forward(exec, ranks, inputs_of(own.own), own.part, {}, {value}, workspace(plan, memory),
                    finish{{found.entries.data(), {24, 6}}, {found.log_probabilities.data(), {24, 6}}});
      exec.wait();
    });
    for (top_results const& found : all) {
      CHECK(wrong_top_entries(p, found, 6, 1e-5, false) == 0);
    }
  }
}

TEST_CASE("spread hidden states whose gradient is not wanted cost no reduction", "[host]") {
  auto const p = make_loss_problem<float>(20, 40, 8);
  using loss = spread_loss<float>;
  cpu const exec{.threads = 1};
  auto const plan = loss::plan_backward<float>(exec, 1, {20, 40, 8});
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  side_queue<cpu> const side(exec, loss::side_marks);
  for (bool const has_hidden : {true, false}) {
    counting_rank ranks;
    std::vector<float> value(1);
    std::vector<float> hidden(160, NAN);
    std::vector<float> classifier(320, NAN);
    linear_loss_gradients<float> out{{}, {classifier.data(), {40, 8}}};
    if (has_hidden) {
      out.hidden = {hidden.data(), {20, 8}};
    }
    loss::forward(exec, ranks, p.inputs(), {0, 40}, {}, {value}, space);
    CHECK(ranks.reductions == 0);
    loss::backward(exec, side, ranks, p.inputs(), {0, 40}, {}, {}, out, space);
    exec.wait();
    CHECK((ranks.reductions > 0) == has_hidden);
    CHECK(relative_distance(classifier, reference_gradient(p).classifier) <= 4e-6);
  }
}

TEST_CASE("a workspace of the forward pass alone is enough for it", "[host]") {
  auto const p = make_loss_problem<float>(20, 40, 8);
  using loss = spread_loss<float>;
  cpu const exec{.threads = 1};
  loopback ranks;
  auto const plan = loss::plan_forward(exec, 1, {20, 40, 8});
  buffer<std::byte> memory(exec, plan.bytes());
  std::vector<float> value(1);
  loss::forward(exec, ranks, p.inputs(), {0, 40}, {}, {value}, workspace(plan, memory));
  exec.wait();
  CHECK(std::fabs(static_cast<double>(value[0]) - reference_loss(p).total) <= 1e-5);
}

TEST_CASE("ranks refuse spread hidden states that do not fit together, with both values", "[host]") {
  auto const p = make_loss_problem<float>(20, 40, 8);
  using loss = spread_loss<float>;
  cpu const exec{.threads = 1};
  loopback ranks;
  auto const plan = loss::plan_backward<float>(exec, 1, {20, 40, 8});
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  std::vector<float> value(1);
  CHECK(message_of([&] {
          loss::plan_forward(exec, 3, {20, 40, 8});
        }) == "sequence_parallel.forward: there are 20 tokens, which 3 ranks do not share evenly");
  auto in = p.inputs();
  in.hidden = {p.hidden.data(), {10, 8}};
  CHECK(message_of([&] {
          loss::forward(exec, ranks, in, {0, 40}, {}, {value}, space);
        }) == "sequence_parallel.forward: the rank has hidden states of 10 tokens but 1 ranks share 20 labels");
  in.hidden = {p.hidden.data(), {20, 4}, {8, 1}};
  CHECK(message_of([&] {
          loss::forward(exec, ranks, in, {0, 40}, {}, {value}, space);
        }) ==
        "sequence_parallel.forward: the hidden states have strides of 8 and 1 but must be contiguous, with 4 and 1");
  std::vector<float> hidden(320);
  auto const of = [&](linear_loss_gradients<float> const& out) {
    return message_of([&] { loss::backward(exec, ranks, p.inputs(), {0, 40}, {}, {}, out, space); });
  };
  CHECK(of({{hidden.data(), {19, 8}}}) ==
        "sequence_parallel.backward: the gradient of the hidden states is 19 x 8 but must be 20 x 8");
  CHECK(of({{hidden.data(), {20, 8}, {16, 1}}}) ==
        "sequence_parallel.backward: the gradient of the hidden states has strides of 16 and 1 but must be contiguous, "
        "with 8 and 1");
}
