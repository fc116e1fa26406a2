// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Soft targets and chosen entries of a classifier that is spread over ranks are those of the whole one.
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <tessera/algorithm/loss/sequence_parallel.hpp>
#include <tessera/algorithm/loss/vocabulary_parallel_entries.hpp>
#include <tessera/comm/loopback.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/on_ranks.hpp>

#include "support/catch.hpp"
#include "support/chosen_entries.hpp"
#include "support/loss_maps.hpp"
#include "support/message_of.hpp"
#include "support/rank_parts.hpp"
#include "support/soft_target_reference.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

template <class T, class Reducer = lse_reducer<float>, class Filter = gradient_filter<0, 64, 64>,
          class Map = identity_logits>
using ranks_loss = linear_loss<gemm_tile<T, shape<64, 64, 32 / static_cast<int>(sizeof(T))>>, Reducer, Filter, Map>;

constexpr int rank_counts[] = {1, 2, 3, 8};

/// A loss whose hidden states are spread, too.
template <class Loss>
struct spread_too {
  using reducer_type = typename Loss::reducer_type;
};
template <class Loss>
struct targets_on_ranks {
  using type = vocabulary_parallel<soft_target_loss<Loss>>;
};
template <class Loss>
struct targets_on_ranks<spread_too<Loss>> {
  using type = sequence_parallel<vocabulary_parallel<soft_target_loss<Loss>>>;
};

/// What a rank has of targets, and what it found.
template <class T, class Entry, class Gradient>
struct rank_of_targets {
  target_problem<T, Entry> own;
  vocabulary_part part;
  loss_results values{0};
  gradient_results<Gradient> found = {};
};

template <class Gradient, class T, class Entry>
std::vector<rank_of_targets<T, Entry, Gradient>> spread(target_problem<T, Entry> const& p, int count) {
  std::vector<rank_of_targets<T, Entry, Gradient>> all;
  for (int rank = 0; rank < count; ++rank) {
    auto own = p;
    own.base = problem_of_rank(p.base, rank, count);
    all.push_back(
        {own, part_of_rank(rank, count, p.base.vocabulary), loss_results(p.base.tokens, p.base.options.reduction)});
    all.back().found = untouched_gradients<Gradient>(own);
  }
  return all;
}

/// Runs both passes on all ranks. `times`: how often the backward pass runs, adding but the first time.
template <class Loss, class Gradient, class Exec, class T, class Entry, class Map>
std::vector<rank_of_targets<T, Entry, Gradient>> run_targets_on_ranks(int count, Exec const& exec,
                                                                      target_problem<T, Entry> const& p,
                                                                      upstream_samples const& upstream, Map const& map,
                                                                      bool has_side, int times = 1) {
  using loss = typename targets_on_ranks<Loss>::type;
  auto all = spread<Gradient>(p, count);
  testing::on_ranks(count, [&](threads& ranks) {
    auto& own = all[static_cast<std::size_t>(ranks.rank())];
    auto const plan = loss::template plan_backward<Gradient>(exec, count, own.own.shape(), p.base.options);
    buffer<std::byte> memory(exec, plan.bytes());
    exec.copy(std::vector<std::byte>(static_cast<std::size_t>(plan.bytes()), std::byte{0xff}), memory);
    workspace const space(plan, memory);
    auto in = own.own.inputs(map);
    in.hidden = hidden_of_rank<loss>(in.hidden, ranks.rank(), count);
    std::int64_t const rows = in.hidden.extent(0);
    own.found.hidden.resize(static_cast<std::size_t>(rows * p.base.channels));
    using reducer = typename Loss::reducer_type;
    loss::forward(exec, ranks, in, own.part, p.base.options, own.values.template outputs<reducer>(), space);
    linear_loss_gradients<Gradient> out{{own.found.hidden.data(), {rows, p.base.channels}},
                                        {own.found.classifier.data(), {own.own.base.vocabulary, p.base.channels}},
                                        own.found.bias};
    side_queue<Exec> const side(exec, loss::side_marks, true);
    for (int time = 0; time < times; ++time) {
      if constexpr (is_spread<loss>) {
        if (has_side) {
          loss::backward(exec, side, ranks, in, own.part, p.base.options, upstream.views(), out, space);
        }
      } else if (has_side) {
        loss::backward(exec, side, ranks, in, own.part, p.base.options, upstream.views(), out, space, 20);
      }
      if (!has_side) {
        loss::backward(exec, ranks, in, own.part, p.base.options, upstream.views(), out, space);
      }
      out.accumulate_hidden = out.accumulate_classifier = out.accumulate_bias = true;
    }
    exec.wait();
  });
  return all;
}

template <class V>
bool have_same_bits(std::vector<V> const& a, std::vector<V> const& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(V)) == 0);
}

/// Compares both passes with the formulas, and ranks with each other. `times`: how often the backward pass runs.
template <class Loss, class Gradient, class T, class Entry, class Exec, class Map = identity_logits>
void check_targets_on_ranks(int count, Exec const& exec, target_problem<T, Entry> const& p, double tolerance,
                            double gradient_tolerance, upstream_samples const& upstream = {}, Map const& map = {},
                            int times = 1) {
  constexpr bool spreads = is_spread<typename targets_on_ranks<Loss>::type>;
  auto expected = reference_targets(p, upstream);
  for (auto* values : {&expected.gradient.hidden, &expected.gradient.classifier, &expected.gradient.bias}) {
    for (double& value : *values) {
      value *= times;
    }
  }
  for (bool const has_side : {false, true}) {
    CAPTURE(count, p.base.tokens, p.base.vocabulary, p.base.channels, p.k, has_side);
    auto const all = run_targets_on_ranks<Loss, Gradient>(count, exec, p, upstream, map, has_side, times);
    std::vector<Gradient> hidden;
    std::vector<Gradient> classifier;
    std::vector<Gradient> bias;
    for (auto const& own : all) {
      bool const is_reduced = p.base.options.reduction != loss_reduction::none;
      CHECK(wrong_targets(expected, own.values, is_reduced, tolerance) == 0);
      CHECK(have_same_bits(own.values.loss, all[0].values.loss));
      CHECK(have_same_bits(own.values.log_sum_exp, all[0].values.log_sum_exp));
      CHECK((spreads || have_same_bits(own.found.hidden, all[0].found.hidden)));
      if (spreads || &own == &all[0]) {
        hidden.insert(hidden.end(), own.found.hidden.begin(), own.found.hidden.end());
      }
      if constexpr (has_reducer<arg_max_reducer<float>, typename Loss::reducer_type>) {
        CHECK(own.values.accuracy[0] == Approx(expected.correct / static_cast<double>(expected.count)));
      }
      classifier.insert(classifier.end(), own.found.classifier.begin(), own.found.classifier.end());
      bias.insert(bias.end(), own.found.bias.begin(), own.found.bias.end());
    }
    CHECK(relative_distance(hidden, expected.gradient.hidden) <= gradient_tolerance);
    CHECK(relative_distance(classifier, expected.gradient.classifier) <= gradient_tolerance);
    CHECK(relative_distance(bias, expected.gradient.bias) <= 2 * gradient_tolerance);
  }
}

upstream_samples upstream_of_all(std::int64_t tokens, loss_reduction reduction, bool with_entropy) {
  return {operand_samples<float>(reduction == loss_reduction::none ? tokens : 1, 71),
          operand_samples<float>(tokens, 72), with_entropy ? operand_samples<float>(tokens, 73) : std::vector<float>()};
}

}  // namespace

TEST_CASE("soft targets on ranks are those of the whole classifier, in extents around its tiles", "[host][threads]") {
  cpu const exec{.threads = 1};
  for (int const count : rank_counts) {
    for (std::int64_t const tokens : {0, 1, 7, 65}) {
      for (std::int64_t const vocabulary : {7, 65, 150}) {
        std::int64_t const k = (tokens + vocabulary) % 6;  // 0 to 5
        check_targets_on_ranks<ranks_loss<float>, float>(
            count, exec, make_target_problem<float>(tokens, vocabulary, 9, k), 4e-6, 4e-6);
      }
    }
  }
}

TEST_CASE("soft targets on ranks take every option, statistic and upstream gradient", "[host][threads]") {
  using loss = ranks_loss<float, loss_statistics>;
  for (int const count : rank_counts) {
    for (loss_reduction const reduction : {loss_reduction::none, loss_reduction::sum, loss_reduction::mean}) {
      auto p = make_target_problem<float, std::int64_t>(90, 200, 24, 6, true, -0.5);
      p.base.options = {
          .reduction = reduction, .softcap = 3.0F, .temperature = 0.7F, .smoothing = 0.15F, .z_factor = 1e-2F};
      check_targets_on_ranks<loss, float>(count, cpu{.threads = 1}, p, 1e-5, 1e-5,
                                          upstream_of_all(90, reduction, true));
    }
  }
  auto p = make_target_problem<float>(40, 90, 24, 6, true);
  p.base.options.smoothing = 1.0F;
  check_targets_on_ranks<loss, float>(3, testing::adversary{.seed = 7}, p, 1e-5, 1e-5);
}

TEST_CASE("soft targets on ranks take 16-bit operands and weights of both signs", "[host][threads]") {
  for (int const count : rank_counts) {
    auto const brain = make_target_problem<bfloat16>(70, 300, 40, 7, true);
    check_targets_on_ranks<ranks_loss<bfloat16>, float>(count, cpu{.threads = 1}, brain, 5e-6, 4e-3);
    check_targets_on_ranks<ranks_loss<bfloat16>, bfloat16>(count, cpu{.threads = 1}, brain, 5e-6, 9e-3);
    auto half = make_target_problem<float16>(70, 200, 24, 6, true);
    half.base.options.reduction = loss_reduction::none;
    for (std::size_t i = 0; i < half.entry_weights.size(); ++i) {
      half.entry_weights[i] = (i % 2 == 0 ? 1.0F : -1.0F) * (1000.0F + static_cast<float>(i % 7));
    }
    check_targets_on_ranks<ranks_loss<float16>, float>(count, cpu{.threads = 1}, half, 2e-5, 1e-3);
  }
}

TEST_CASE("a map and a filter on ranks keep the entries of soft targets", "[host][threads]") {
  auto p = make_target_problem<float>(70, 150, 24, 5, true);
  p.base.map = in_double(curved{});
  p.base.options.reduction = loss_reduction::none;
  using mapped = ranks_loss<float, lse_reducer<float>, gradient_filter<0, 64, 64>, curved>;
  check_targets_on_ranks<mapped, float>(2, cpu{.threads = 1}, p, 4e-6, 4e-6,
                                        upstream_of_all(70, loss_reduction::none, false), curved{});
  auto filtered = make_target_problem<bfloat16>(100, 700, 40, 8);
  filtered.base.options.workspace_budget = std::int64_t{1} << 20;
  check_targets_on_ranks<cut_cross_entropy, bfloat16>(3, cpu{.threads = 1}, filtered, 5e-6, 9e-3);
}

TEST_CASE("gradients of soft targets on ranks are added to those in fp32 that are there, once", "[host][threads]") {
  auto const p = make_target_problem<float>(40, 90, 8, 3, true);
  cpu const exec{.threads = 1};
  auto const one = run_targets_on_ranks<ranks_loss<float>, float>(3, exec, p, {}, identity_logits{}, false);
  auto const two = run_targets_on_ranks<ranks_loss<float>, float>(3, exec, p, {}, identity_logits{}, false, 2);
  for (std::size_t rank = 0; rank < one.size(); ++rank) {
    CHECK(is_twice(two[rank].found.hidden, one[rank].found.hidden));
    CHECK(is_twice(two[rank].found.classifier, one[rank].found.classifier));
    CHECK(is_twice(two[rank].found.bias, one[rank].found.bias));
  }
}

TEST_CASE("an entry that is none of the vocabulary is an error on every rank, and spoils its own token alone",
          "[host][threads]") {
  auto p = make_target_problem<float, std::int64_t>(30, 50, 8, 4);
  p.base.options.reduction = loss_reduction::none;
  p.entries[20 * 4 + 2] = 50;
  using loss = vocabulary_parallel<soft_target_loss<ranks_loss<float>>>;
  auto all = spread<float>(p, 3);
  std::atomic<int> said{0};
  testing::on_ranks(3, [&](threads& ranks) {
    cpu const exec{.threads = 1};
    auto& own = all[static_cast<std::size_t>(ranks.rank())];
    auto const plan = loss::plan_forward(exec, 3, own.own.shape(), p.base.options);
    buffer<std::byte> memory(exec, plan.bytes());
    loss::forward(exec, ranks, own.own.inputs(), own.part, p.base.options, own.values.outputs<lse_reducer<float>>(),
                  workspace(plan, memory));
    bool const is_right = message_of([&] { exec.wait(); }) ==
                          "vocabulary_parallel.forward: entry 50 at position 82 of the chosen ones is none of 50";
    said += is_right && std::isnan(own.values.loss[20]) && std::isfinite(own.values.loss[19]) ? 1 : 0;
  });
  CHECK(said == 3);
}

TEST_CASE("a rank that refuses soft targets leaves no other waiting", "[host][threads]") {
  auto const p = make_target_problem<float>(30, 50, 8, 4);
  using loss = vocabulary_parallel<soft_target_loss<ranks_loss<float>>>;
  auto all = spread<float>(p, 2);
  std::vector<std::string> said(2);
  testing::on_ranks(2, [&](threads& ranks) {
    cpu const exec{.threads = 1};
    auto& own = all[static_cast<std::size_t>(ranks.rank())];
    auto const plan = loss::plan_forward(exec, 2, own.own.shape());
    buffer<std::byte> memory(exec, plan.bytes());
    auto in = own.own.inputs();
    in.entries.extents[0] = ranks.rank() == 1 ? 29 : 30;
    said[static_cast<std::size_t>(ranks.rank())] = message_of([&] {
      loss::forward(exec, ranks, in, own.part, {}, own.values.outputs<lse_reducer<float>>(), workspace(plan, memory));
    });
  });
  CHECK(said[1] == "vocabulary_parallel.forward: there are entries of 29 tokens but hidden states of 30");
  CHECK(said[0].size() > 0);
}

TEST_CASE("soft targets of a backward pass on ranks are those of its forward pass", "[host]") {
  using loss = vocabulary_parallel<soft_target_loss<ranks_loss<float>>>;
  auto const p = make_target_problem<float>(30, 60, 16, 3, true);
  cpu const exec{.threads = 1};
  loopback ranks;
  auto const plan = loss::plan_backward<float>(exec, 1, p.shape());
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  std::vector<float> value(1);
  std::vector<float> hidden(30 * 16);
  linear_loss_gradients<float> const out{.hidden = {hidden.data(), {30, 16}}};
  auto other = p;
  other.entries[40] = (other.entries[40] + 1) % 60;
  for (bool const is_other : {false, true}) {
    loss::forward(exec, ranks, p.inputs(), {0, 60}, {}, {.loss = value}, space);
    loss::backward(exec, ranks, (is_other ? other : p).inputs(), {0, 60}, {}, {}, out, space);
    std::string const message = message_of([&] { exec.wait(); });
    CHECK((message.find("vocabulary_parallel.backward: the forward() in the workspace had other inputs") == 0) ==
          is_other);
    CHECK(std::isnan(hidden[0]) == is_other);
  }
}

TEST_CASE("one entry of weight 1 is a label on ranks, which may have 32 bits", "[host][threads]") {
  auto const labelled = make_loss_problem<float, std::int32_t>(40, 90, 8);
  target_problem<float, std::int32_t> const soft{make_loss_problem<float>(40, 90, 8), 1, labelled.labels,
                                                 std::vector<float>(40, 1.0F)};
  cpu const exec{.threads = 1};
  auto const targets = run_targets_on_ranks<ranks_loss<float>, float>(3, exec, soft, {}, identity_logits{}, false);
  using loss = vocabulary_parallel<ranks_loss<float>>;
  testing::on_ranks(3, [&](threads& ranks) {
    auto const own = problem_of_rank(labelled, ranks.rank(), 3);
    auto const plan = loss::plan_backward<float>(exec, 3, {40, own.vocabulary, 8});
    buffer<std::byte> memory(exec, plan.bytes());
    workspace const space(plan, memory);
    std::vector<float> value(1);
    std::vector<float> hidden(320);
    vocabulary_part const part = part_of_rank(ranks.rank(), 3, 90);
    loss::forward(exec, ranks, own.inputs(), part, {}, {value}, space);
    loss::backward(exec, ranks, own.inputs(), part, {}, {}, linear_loss_gradients<float>{{hidden.data(), {40, 8}}},
                   space);
    exec.wait();
    if (ranks.rank() == 0) {
      CHECK(value[0] == Approx(targets[0].values.loss[0]).epsilon(1e-6));
      CHECK(relative_distance(hidden, doubles_of(targets[0].found.hidden)) <= 2e-6);
    }
  });
}

TEST_CASE("soft targets on ranks whose hidden states are spread, too, are those of the whole", "[host][threads]") {
  using loss = spread_too<ranks_loss<float, loss_statistics>>;
  auto const check = [](auto p, int count, loss_reduction reduction, int times) {
    p.base.options.reduction = reduction;
    p.base.options.smoothing = 0.1F;
    check_targets_on_ranks<loss, float>(count, cpu{.threads = 1}, p, 1e-5, 1e-5, upstream_of_all(24, reduction, true),
                                        identity_logits{}, times);
  };
  for (int const count : rank_counts) {
    check(make_target_problem<float>(24, 90, 8, 3, true), count, loss_reduction::mean, 1);
    check(make_target_problem<float, std::int64_t>(24, 90, 8, 3, true), count, loss_reduction::none, 2);
  }
}

namespace {

/// Runs a chosen_log_probabilities on all ranks. `is_spread`: each has its part of the hidden states alone.
template <class T, class Entry>
std::vector<std::vector<float>> choose_on_ranks(int count, loss_problem<T> const& p,
                                                chosen_entries<Entry> const& chosen, std::vector<std::string>& said,
                                                bool is_spread = false) {
  using call = vocabulary_parallel<chosen_log_probabilities<T>>;
  using spread_call = sequence_parallel<call>;
  std::vector<std::vector<float>> all(static_cast<std::size_t>(count), std::vector<float>(chosen.entries.size(), NAN));
  said.assign(static_cast<std::size_t>(count), "");
  testing::on_ranks(count, [&](threads& ranks) {
    cpu const exec{.threads = 1};
    auto const own = problem_of_rank(p, ranks.rank(), count);
    auto const plan = is_spread ? spread_call::plan_forward(count, p.tokens, chosen.k, p.channels)
                                : call::plan_forward(count, p.tokens, chosen.k);
    buffer<std::byte> memory(exec, plan.bytes());
    std::int64_t const rows = is_spread ? p.tokens / count : p.tokens;
    typename call::template inputs<Entry> const in{
        {own.hidden.data() + (is_spread ? ranks.rank() * rows * p.channels : 0), {rows, own.channels}},
        {own.classifier.data(), {own.vocabulary, own.channels}},
        {chosen.entries.data(), {p.tokens, chosen.k}},
        chosen.log_sum_exp,
        own.bias};
    auto const rank = static_cast<std::size_t>(ranks.rank());
    vocabulary_part const part = part_of_rank(ranks.rank(), count, p.vocabulary);
    matrix_view<float> const found(all[rank].data(), {p.tokens, chosen.k});
    if (is_spread) {
      spread_call::forward(exec, ranks, in, part, p.options, found, workspace(plan, memory));
    } else {
      call::forward(exec, ranks, in, part, p.options, found, workspace(plan, memory));
    }
    said[rank] = message_of([&] { exec.wait(); });
  });
  return all;
}

}  // namespace

TEST_CASE("log-probabilities of chosen entries on ranks are those of the whole classifier", "[host][threads]") {
  std::vector<std::string> said;
  for (int const count : rank_counts) {
    for (std::int64_t const tokens : {0, 1, 7, 33}) {
      auto p = make_loss_problem<float>(tokens, 77, 24, true);
      p.options.softcap = 3.0F;
      p.options.temperature = 0.7F;
      chosen_entries<std::int32_t> const chosen(p, tokens % 5 + 1);
      auto const all = choose_on_ranks(count, p, chosen, said);
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        CHECK(said[rank] == "");
        CHECK(wrong_chosen(p, chosen, all[rank], 3e-6) == 0);
        CHECK(have_same_bits(all[rank], all[0]));
      }
    }
    auto const half = make_loss_problem<bfloat16>(20, 200, 64, true);
    chosen_entries<std::int64_t> chosen(half, 6);
    chosen.entries[9] = 200;
    chosen.entries[10] = std::int64_t{1} << 40;
    for (auto const& found : choose_on_ranks(count, half, chosen, said)) {
      CHECK(wrong_chosen(half, chosen, found, 3e-6) == 0);
    }
    for (std::string const& message : said) {
      CHECK(message == "vocabulary_parallel.forward: entry 200 at position 9 of the chosen ones is none of 200");
    }
  }
}

TEST_CASE("log-probabilities of chosen entries of hidden states that are spread, too, are the same bits",
          "[host][threads]") {
  std::vector<std::string> said;
  for (int const count : rank_counts) {
    for (std::int64_t const tokens : {0, 24, 48}) {
      auto p = make_loss_problem<float>(tokens, 77, 24, true);
      p.options.softcap = 3.0F;
      chosen_entries<std::int64_t> chosen(p, 4);
      auto const whole = choose_on_ranks(count, p, chosen, said);
      auto const all = choose_on_ranks(count, p, chosen, said, true);
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        CHECK(said[rank] == "");
        CHECK(wrong_chosen(p, chosen, all[rank], 3e-6) == 0);
        CHECK(have_same_bits(all[rank], whole[0]));
      }
    }
  }
}

TEST_CASE("chosen entries refuse spread hidden states that do not fit together, with both values", "[host]") {
  using call = sequence_parallel<vocabulary_parallel<chosen_log_probabilities<float>>>;
  auto const p = make_loss_problem<float>(12, 40, 8);
  chosen_entries<std::int32_t> const chosen(p, 2);
  cpu const exec{.threads = 1};
  loopback ranks;
  auto const plan = call::plan_forward(1, 12, 2, 8);
  buffer<std::byte> memory(exec, plan.bytes());
  std::vector<float> found(24);
  auto const run = [&](matrix_view<float const> hidden) {
    call::inputs<std::int32_t> const in{
        hidden, {p.classifier.data(), {40, 8}}, {chosen.entries.data(), {12, 2}}, chosen.log_sum_exp};
    return message_of([&] {
      call::forward(exec, ranks, in, {0, 40}, {}, {found.data(), {12, 2}}, workspace(plan, memory));
    });
  };
  CHECK(run({p.hidden.data(), {12, 8}}) == "");
  CHECK(run({p.hidden.data(), {11, 8}}) ==
        "sequence_parallel.forward: the rank has hidden states of 11 tokens but 1 ranks share chosen entries of 12");
  CHECK(run({p.hidden.data(), {12, 4}, {8, 1}}) ==
        "sequence_parallel.forward: the hidden states have strides of 8 and 1 but must be contiguous, with 4 and 1");
  CHECK(message_of([&] { call::plan_forward(5, 12, 2, 8); }) ==
        "sequence_parallel.forward: there are 12 tokens, which 5 ranks do not share evenly");
  CHECK(message_of([&] { call::plan_forward(0, 12, 2, 8); }) ==
        "vocabulary_parallel.forward: there are 0 ranks but must be 1 or more");
}
