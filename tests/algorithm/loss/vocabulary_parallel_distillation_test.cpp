// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Distillation between classifiers that are spread over ranks is that between the whole ones.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <tessera/algorithm/loss/sequence_parallel.hpp>
#include <tessera/algorithm/loss/vocabulary_parallel_distillation.hpp>
#include <tessera/comm/loopback.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/map/forward_kl.hpp>
#include <tessera/map/jensen_shannon.hpp>
#include <tessera/map/reverse_kl.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/on_ranks.hpp>

#include "support/catch.hpp"
#include "support/counting_rank.hpp"
#include "support/distillation_runs.hpp"
#include "support/message_of.hpp"
#include "support/rank_parts.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

std::vector<int> const distilling_ranks = {1, 2, 3, 8};

/// What a rank has of a distillation, and what it found.
template <class T, class Gradient>
struct rank_of_distillation {
  distillation_problem<T> own;
  vocabulary_part part;
  distillation_results<Gradient> found;

  rank_of_distillation(distillation_problem<T> const& p, int rank, int count)
      : own(p), part(part_of_rank(rank, count, p.shape.vocabulary)) {
    std::int64_t const end = first_entry_of(rank + 1, count, p.shape.vocabulary);
    own.shape.vocabulary = end - part.first;
    own.classifier = rows_between(p.classifier, part.first, end, p.shape.channels);
    own.teacher_classifier = rows_between(p.teacher_classifier, part.first, end, p.shape.teacher_channels);
    own.bias = rows_between(p.bias, part.first, end, 1);
    own.teacher_bias = rows_between(p.teacher_bias, part.first, end, 1);
    auto const losses = static_cast<std::size_t>(p.options.reduction == loss_reduction::none ? p.shape.tokens : 1);
    Gradient const poison = store<Gradient>(NAN);
    found = {std::vector<float>(losses, NAN), std::vector<float>(static_cast<std::size_t>(p.shape.tokens), NAN),
             std::vector<Gradient>(p.hidden.size(), poison), std::vector<Gradient>(own.classifier.size(), poison),
             std::vector<Gradient>(static_cast<std::size_t>(own.shape.vocabulary), poison)};
  }
  template <class Loss>
  typename Loss::inputs inputs() const {
    auto const& s = own.shape;
    typename Loss::inputs in{{own.hidden.data(), {s.tokens, s.channels}},
                             {own.classifier.data(), {s.vocabulary, s.channels}},
                             {own.teacher_hidden.data(), {s.tokens, s.teacher_channels}},
                             {own.teacher_classifier.data(), {s.vocabulary, s.teacher_channels}},
                             own.weights};
    in.bias = own.bias;
    in.teacher_bias = own.teacher_bias;
    return in;
  }
};

/// Runs both passes of a loss on all ranks. `inputs`: makes a rank's. `times`: how often the backward pass runs, adding
/// but the first time.
template <class Loss, class Gradient, class Exec, class T, class MakeInputs>
void distill_all(std::vector<rank_of_distillation<T, Gradient>>& all, Exec const& exec,
                 distillation_problem<T> const& p, bool has_side, int times, MakeInputs const& inputs) {
  auto const count = static_cast<int>(all.size());
  testing::on_ranks(count, [&](threads& ranks) {
    auto& rank = all[static_cast<std::size_t>(ranks.rank())];
    auto const& s = rank.own.shape;
    auto const plan = Loss::template plan_backward<Gradient>(exec, count, s, p.options);
    buffer<std::byte> memory(exec, plan.bytes());
    exec.copy(std::vector<std::byte>(static_cast<std::size_t>(plan.bytes()), std::byte{0xff}), memory);
    workspace const space(plan, memory);
    typename Loss::inputs const in = inputs(rank);
    Loss::forward(exec, ranks, in, rank.part, p.options, {rank.found.loss, rank.found.divergence}, space);
    linear_loss_gradients<Gradient> out{{rank.found.hidden.data(), {in.hidden.extent(0), s.channels}},
                                        {rank.found.classifier.data(), {s.vocabulary, s.channels}},
                                        rank.found.bias};
    side_queue<Exec> const side(exec, Loss::side_marks, true);
    for (int i = 0; i < times; ++i) {
      if (has_side) {
        Loss::backward(exec, side, ranks, in, rank.part, p.options, p.upstream, out, space);
      } else {
        Loss::backward(exec, ranks, in, rank.part, p.options, p.upstream, out, space);
      }
      out.accumulate_hidden = out.accumulate_classifier = out.accumulate_bias = true;
    }
    exec.wait();
  });
}

/// The same of a vocabulary_parallel.
template <class Whole, class Gradient, class Exec, class T>
std::vector<rank_of_distillation<T, Gradient>> distill_on_ranks(int count, Exec const& exec,
                                                                distillation_problem<T> const& p, bool has_side,
                                                                int times = 1) {
  using loss = vocabulary_parallel<Whole>;
  std::vector<rank_of_distillation<T, Gradient>> all;
  for (int rank = 0; rank < count; ++rank) {
    all.emplace_back(p, rank, count);
  }
  distill_all<loss>(all, exec, p, has_side, times, [](auto const& rank) { return rank.template inputs<loss>(); });
  return all;
}

/// Whether both hold the same bits.
template <class V>
bool has_bits_of(std::vector<V> const& a, std::vector<V> const& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(V)) == 0);
}

/// A gradient of which each rank has a part, as a whole.
template <class T, class Gradient>
std::vector<Gradient> of_all(std::vector<rank_of_distillation<T, Gradient>> const& all,
                             std::vector<Gradient> distillation_results<Gradient>::*part) {
  std::vector<Gradient> whole;
  for (auto const& rank : all) {
    whole.insert(whole.end(), (rank.found.*part).begin(), (rank.found.*part).end());
  }
  return whole;
}

/// Compares what ranks found with the formulas, and their losses with each other; but hidden states' gradients.
template <class T, class Gradient, class Expected>
void check_results(distillation_problem<T> const& p, std::vector<rank_of_distillation<T, Gradient>> const& all,
                   Expected const& expected, double tolerance) {
  for (auto const& rank : all) {
    CHECK(worst_divergence(p, rank.found, expected) <= 1e-5);
    CHECK(has_bits_of(rank.found.loss, all[0].found.loss));
    CHECK(has_bits_of(rank.found.divergence, all[0].found.divergence));
  }
  CHECK(relative_distance(of_all(all, &distillation_results<Gradient>::classifier), expected.classifier) <= tolerance);
  if (!p.bias.empty()) {
    CHECK(relative_distance(of_all(all, &distillation_results<Gradient>::bias), expected.bias) <= 2 * tolerance);
  }
}

/// Compares both passes on so many ranks with the formulas, and ranks with each other.
template <class D, class Gradient, class T, class Exec>
void check_distilling(std::vector<int> const& counts, Exec const& exec, distillation_problem<T> const& p,
                      double tolerance) {
  auto const expected = reference_distillation(p, divergence_kind_of<D>);
  for (int const count : counts) {
    for (bool const has_side : {false, true}) {
      CAPTURE(count, p.shape.tokens, p.shape.vocabulary, p.shape.channels, has_side);
      auto const all = distill_on_ranks<linear_distillation<T, D>, Gradient>(count, exec, p, has_side);
      check_results(p, all, expected, tolerance);
      for (auto const& rank : all) {
        CHECK(has_bits_of(rank.found.hidden, all[0].found.hidden));
        CHECK(relative_distance(rank.found.hidden, expected.hidden) <= tolerance);
      }
    }
  }
}

template <class T>
distillation_problem<T> problem_with_all(distillation_shape const& shape, loss_reduction reduction) {
  auto p = make_distillation_problem<T>(shape, true);
  p.options = {.reduction = reduction, .temperature = 1.5F, .softcap = 4.0F, .teacher_softcap = 5.0F};
  p.options.workspace_budget = 1;  // parts of 128 entries
  add_biases(p);
  std::int64_t const losses = reduction == loss_reduction::none ? shape.tokens : 1;
  for (std::int64_t i = 0; i < losses; ++i) {
    p.upstream.push_back(testing::gauss{}.value(31, static_cast<std::uint64_t>(i)) - 0.25F);
  }
  return p;
}

}  // namespace

TEMPLATE_TEST_CASE("distillation on ranks is its formula, in extents around its tiles", "[host][threads]", forward_kl,
                   reverse_kl, jensen_shannon) {
  for (distillation_shape const& shape :
       {distillation_shape{0, 40, 3, 9}, {1, 7, 5, 3}, {7, 65, 3, 9}, {65, 300, 8, 16}}) {
    auto const p = make_distillation_problem<float>(shape);
    check_distilling<TestType, float>(distilling_ranks, cpu{.threads = 1}, p, 2e-5);
  }
}

TEMPLATE_TEST_CASE("distillation on ranks takes every option", "[host][threads]", forward_kl, reverse_kl,
                   jensen_shannon) {
  distillation_shape const shape{70, 501, 24, 40};
  cpu const exec{.threads = 1};
  check_distilling<TestType, float>({2}, exec, problem_with_all<float>(shape, loss_reduction::none), 2e-5);
  auto const by_sum = problem_with_all<float>(shape, loss_reduction::sum);
  check_distilling<TestType, float>({3}, testing::adversary{.seed = 5}, by_sum, 2e-5);
  check_distilling<TestType, float>({8}, exec, problem_with_all<float>(shape, loss_reduction::mean), 2e-5);
  check_distilling<TestType, bfloat16>({3}, cpu{.threads = 1},
                                       problem_with_all<bfloat16>({70, 501, 24, 40}, loss_reduction::mean), 6e-3);
}

TEST_CASE("gradients of distillation on ranks are added to those in fp32 that are there, once", "[host][threads]") {
  auto const p = problem_with_all<float>({30, 301, 8, 8}, loss_reduction::mean);
  cpu const exec{.threads = 1};
  using whole = linear_distillation<float>;
  auto const one = distill_on_ranks<whole, float>(3, exec, p, false);
  auto const two = distill_on_ranks<whole, float>(3, exec, p, false, 2);
  for (std::size_t rank = 0; rank < one.size(); ++rank) {
    CHECK(is_twice(two[rank].found.hidden, one[rank].found.hidden));
    CHECK(is_twice(two[rank].found.classifier, one[rank].found.classifier));
    CHECK(is_twice(two[rank].found.bias, one[rank].found.bias));
  }
}

namespace {

/// Both passes of one rank with everything, of which a test can change something.
struct lone_distiller {
  using loss = vocabulary_parallel<linear_distillation<float>>;
  rank_of_distillation<float, float> rank{make_distillation_problem<float>({9, 70, 4, 8}, true), 0, 1};
  cpu exec{.threads = 1};
  buffer<std::byte> memory{exec, 1 << 20};
  counting_rank ranks;
  workspace space{loss::plan_backward<float>(exec, 1, {9, 70, 4, 8}), memory};

  void forward(vocabulary_part const& part = {0, 70}) {
    loss::forward(exec, ranks, rank.inputs<loss>(), part, {}, {rank.found.loss, rank.found.divergence}, space);
  }
  void backward(linear_loss_gradients<float> const& out) {
    loss::backward(exec, ranks, rank.inputs<loss>(), {0, 70}, {}, {}, out, space);
  }
};

}  // namespace

TEST_CASE("frozen hidden states of distillation cost no reduction over ranks", "[host]") {
  lone_distiller test;
  test.forward();
  test.backward({.classifier = {test.rank.found.classifier.data(), {70, 4}}});
  CHECK(test.ranks.reductions == 0);
  test.backward({.hidden = {test.rank.found.hidden.data(), {9, 4}}});
  CHECK(test.ranks.reductions == 1);
}

TEST_CASE("distillation on ranks refuses what does not fit together, with both values", "[host]") {
  lone_distiller test;
  CHECK(message_of([&] {
          test.forward({1, 70});
        }) == "vocabulary_parallel.forward: the rank has entries 1 to 70 but there are 70");
  CHECK(message_of([&] {
          test.backward({.hidden = {test.rank.found.hidden.data(), {4, 4}, {8, 1}}});
        }) ==
        "vocabulary_parallel.backward: the gradient of the hidden states has strides of 8 and 1 but must be "
        "contiguous, with 4 and 1");
  CHECK(message_of([&] {
          lone_distiller::loss::plan_forward(test.exec, 0, {9, 70, 4, 8});
        }) == "vocabulary_parallel.forward: there are 0 ranks but must be 1 or more");
  test.forward();
  test.rank.own.hidden[3] += 1.0F;
  test.backward({.hidden = {test.rank.found.hidden.data(), {9, 4}}});
  CHECK(message_of([&] { test.exec.wait(); }).find("had other inputs") != std::string::npos);
  CHECK(std::isnan(test.rank.found.hidden[0]));
}

TEST_CASE("a rank that refuses a distillation leaves no other waiting", "[host][threads]") {
  auto const p = make_distillation_problem<float>({9, 70, 4, 8});
  using loss = vocabulary_parallel<linear_distillation<float>>;
  std::vector<std::string> said(2);
  testing::on_ranks(2, [&](threads& ranks) {
    cpu const exec{.threads = 1};
    rank_of_distillation<float, float> rank(p, ranks.rank(), 2);
    auto const plan = loss::plan_forward(exec, 2, rank.own.shape);
    buffer<std::byte> memory(exec, plan.bytes());
    auto in = rank.inputs<loss>();
    in.teacher_hidden.extents[0] = ranks.rank() == 1 ? 8 : 9;
    said[static_cast<std::size_t>(ranks.rank())] =
        message_of([&] { loss::forward(exec, ranks, in, rank.part, {}, {rank.found.loss}, workspace(plan, memory)); });
  });
  CHECK(said[1] == "linear_distillation.forward: the student has 9 tokens but the teacher has 8");
  CHECK(said[0].size() > 0);
}

namespace {

/// What a rank has of a distillation whose hidden states are spread, too: equal parts of the tokens of both.
template <class T, class Gradient>
rank_of_distillation<T, Gradient> with_own_tokens(distillation_problem<T> const& p, int rank, int count) {
  rank_of_distillation<T, Gradient> made(p, rank, count);
  auto const of_rank = [&](std::vector<T> const& rows, std::int64_t channels) {
    return rows_between(rows, p.shape.tokens * rank / count, p.shape.tokens * (rank + 1) / count, channels);
  };
  made.own.hidden = of_rank(p.hidden, p.shape.channels);
  made.own.teacher_hidden = of_rank(p.teacher_hidden, p.shape.teacher_channels);
  made.found.hidden.assign(made.own.hidden.size(), store<Gradient>(NAN));
  return made;
}

template <class Loss, class T, class Gradient>
typename Loss::inputs inputs_of_spread(rank_of_distillation<T, Gradient> const& rank, std::int64_t own_tokens) {
  auto in = rank.template inputs<Loss>();
  in.hidden.extents[0] = in.teacher_hidden.extents[0] = own_tokens;
  return in;
}

/// Runs both passes on all ranks, with the reduction on the side or not. `times`: see distill_on_ranks().
template <class Whole, class Gradient, class Exec, class T>
std::vector<rank_of_distillation<T, Gradient>> distill_spread(int count, Exec const& exec,
                                                              distillation_problem<T> const& p, bool has_side,
                                                              int times = 1) {
  using loss = sequence_parallel<vocabulary_parallel<Whole>>;
  std::vector<rank_of_distillation<T, Gradient>> all;
  for (int rank = 0; rank < count; ++rank) {
    all.push_back(with_own_tokens<T, Gradient>(p, rank, count));
  }
  distill_all<loss>(all, exec, p, has_side, times,
                    [&](auto const& rank) { return inputs_of_spread<loss>(rank, p.shape.tokens / count); });
  return all;
}

template <class D, class Gradient, class T, class Exec>
void check_spread_distilling(std::vector<int> const& counts, Exec const& exec, distillation_problem<T> const& p,
                             double tolerance) {
  auto const expected = reference_distillation(p, divergence_kind_of<D>);
  for (int const count : counts) {
    for (bool const has_side : {false, true}) {
      CAPTURE(count, p.shape.tokens, p.shape.vocabulary, p.shape.channels, has_side);
      auto const all = distill_spread<linear_distillation<T, D>, Gradient>(count, exec, p, has_side);
      check_results(p, all, expected, tolerance);
      CHECK(relative_distance(of_all(all, &distillation_results<Gradient>::hidden), expected.hidden) <= tolerance);
    }
  }
}

}  // namespace

TEMPLATE_TEST_CASE("distillation on ranks whose hidden states are spread, too, is its formula", "[host][threads]",
                   forward_kl, reverse_kl, jensen_shannon) {
  for (distillation_shape const& shape : {distillation_shape{0, 40, 3, 9}, {24, 7, 5, 3}, {72, 300, 8, 16}}) {
    auto const p = make_distillation_problem<float>(shape);
    check_spread_distilling<TestType, float>(distilling_ranks, cpu{.threads = 1}, p, 2e-5);
  }
  for (loss_reduction const reduction : {loss_reduction::none, loss_reduction::mean}) {
    auto const p = problem_with_all<float>({48, 301, 24, 40}, reduction);
    check_spread_distilling<TestType, float>(distilling_ranks, cpu{.threads = 1}, p, 2e-5);
  }
  auto const p = problem_with_all<float>({48, 301, 24, 40}, loss_reduction::sum);
  check_spread_distilling<TestType, float>({3}, testing::adversary{.seed = 6}, p, 2e-5);
  check_spread_distilling<TestType, bfloat16>(
      {3}, cpu{.threads = 1}, problem_with_all<bfloat16>({72, 501, 24, 40}, loss_reduction::mean), 6e-3);
}

TEST_CASE("a gradient of a student's spread hidden states is added to what each rank holds", "[host][threads]") {
  auto const p = problem_with_all<float>({24, 301, 8, 8}, loss_reduction::mean);
  cpu const exec{.threads = 1};
  for (bool const has_side : {false, true}) {
    auto const one = distill_spread<linear_distillation<float>, float>(3, exec, p, has_side);
    auto const two = distill_spread<linear_distillation<float>, float>(3, exec, p, has_side, 2);
    for (std::size_t rank = 0; rank < one.size(); ++rank) {
      auto expected = doubles_of(one[rank].found.hidden);
      for (double& value : expected) {
        value *= 2.0;
      }
      CHECK(relative_distance(two[rank].found.hidden, expected) <= 1e-6);
    }
  }
}

namespace {

/// Both passes of one rank whose hidden states could be spread, of which a test can change something.
struct lone_spread_distiller {
  using loss = sequence_parallel<vocabulary_parallel<linear_distillation<float>>>;
  rank_of_distillation<float, float> rank{make_distillation_problem<float>({9, 70, 4, 8}, true), 0, 1};
  cpu exec{.threads = 1};
  buffer<std::byte> memory{exec, 1 << 20};
  counting_rank ranks;
  workspace space{loss::plan_backward<float>(exec, 1, {9, 70, 4, 8}), memory};
  loss::inputs in = rank.inputs<loss>();

  std::string forward() {
    return message_of([&] { loss::forward(exec, ranks, in, {0, 70}, {}, {rank.found.loss}, space); });
  }
  std::string backward(linear_loss_gradients<float> const& out) {
    return message_of([&] { loss::backward(exec, ranks, in, {0, 70}, {}, {}, out, space); });
  }
};

}  // namespace

TEST_CASE("a frozen student's spread hidden states cost no reduction over ranks", "[host]") {
  lone_spread_distiller test;
  REQUIRE(test.forward() == "");
  CHECK(test.backward({.classifier = {test.rank.found.classifier.data(), {70, 4}}}) == "");
  CHECK(test.ranks.reductions == 0);
  CHECK(test.backward({.hidden = {test.rank.found.hidden.data(), {9, 4}}}) == "");
  CHECK(test.ranks.reductions == 1);
}

TEST_CASE("distillation refuses spread hidden states that do not fit together, with both values", "[host]") {
  lone_spread_distiller test;
  using loss = lone_spread_distiller::loss;
  CHECK(message_of([&] {
          loss::plan_forward(test.exec, 2, {9, 70, 4, 8});
        }) == "sequence_parallel.forward: there are 9 tokens, which 2 ranks do not share evenly");
  test.in.teacher_hidden.extents[0] = 8;
  CHECK(test.forward() == "sequence_parallel.forward: the student has 9 tokens of the rank but the teacher has 8");
  test.in = test.rank.inputs<loss>();
  test.in.weights.extents[0] = 8;
  CHECK(test.forward() ==
        "sequence_parallel.forward: the rank has 9 tokens, and 1 ranks as many each, but there are 8 weights");
  test.in = test.rank.inputs<loss>();
  test.in.teacher_hidden = {test.rank.own.teacher_hidden.data(), {9, 4}, {8, 1}};
  CHECK(test.forward() ==
        "sequence_parallel.forward: the teacher's hidden states have strides of 8 and 1 but must be contiguous, with 4 "
        "and 1");
  test.in = test.rank.inputs<loss>();
  REQUIRE(test.forward() == "");
  CHECK(test.backward({.hidden = {test.rank.found.hidden.data(), {8, 4}}}) ==
        "sequence_parallel.backward: the gradient of the hidden states is 8 x 4 but must be 9 x 4");
}

TEST_CASE("a rank with fewer tokens than others of a spread distillation leaves none waiting", "[host][threads]") {
  auto const p = make_distillation_problem<float>({8, 70, 4, 8});
  using loss = sequence_parallel<vocabulary_parallel<linear_distillation<float>>>;
  std::vector<std::string> said(2);
  testing::on_ranks(2, [&](threads& ranks) {
    cpu const exec{.threads = 1};
    auto rank = with_own_tokens<float, float>(p, ranks.rank(), 2);
    auto const plan = loss::plan_forward(exec, 2, rank.own.shape);
    buffer<std::byte> memory(exec, plan.bytes());
    auto const in = inputs_of_spread<loss>(rank, ranks.rank() == 1 ? 3 : 4);
    said[static_cast<std::size_t>(ranks.rank())] =
        message_of([&] { loss::forward(exec, ranks, in, rank.part, {}, {rank.found.loss}, workspace(plan, memory)); });
  });
  CHECK(said[0].size() > 0);
  CHECK(said[1].size() > 0);
}
