// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A loss whose classifier is spread over ranks is that of the whole classifier, for 1, 2, 3, 8 and 64 ranks.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/loss/vocabulary_parallel.hpp>
#include <tessera/comm/loopback.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/reduce/log_sum_exp.hpp>
#include <tessera/reduce/paired.hpp>
#include <tessera/reduce/sum.hpp>
#include <tessera/reduce/write_top_entries.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/on_ranks.hpp>

#include "support/catch.hpp"
#include "support/loss_gradient_reference.hpp"
#include "support/message_of.hpp"
#include "support/rank_parts.hpp"
#include "support/top_entries.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

template <class T, class Reducer = lse_reducer<float>, int Bits = 0>
using small_loss =
    linear_loss<gemm_tile<T, shape<64, 64, 32 / static_cast<int>(sizeof(T))>>, Reducer, gradient_filter<Bits, 64, 64>>;

/// What a rank has of a problem, and what it found.
template <class T, class Gradient>
struct rank_results {
  loss_problem<T> own;  ///< with its rows of the classifier and of the bias
  vocabulary_part part;
  loss_results values{0};
  std::vector<Gradient> hidden = {};
  std::vector<Gradient> classifier = {};
  std::vector<Gradient> bias = {};
};

template <class T>
loss_problem<T> own_problem(loss_problem<T> const& p, vocabulary_part const& part, std::int64_t end) {
  auto own = p;
  own.vocabulary = end - part.first;
  own.classifier = rows_between(p.classifier, part.first, end, p.channels);
  own.bias = rows_between(p.bias, part.first, end, 1);
  return own;
}

constexpr std::int64_t without_side = -1;

/// Runs both passes on all ranks. `chunk_tokens`: of a reduction on a side queue.
template <class Loss, class Gradient, class Exec, class T>
std::vector<rank_results<T, Gradient>> run_on_ranks(int count, Exec const& exec, loss_problem<T> const& p,
                                                    upstream_samples const& upstream = {}, int times = 1,
                                                    std::int64_t chunk_tokens = without_side) {
  using loss = vocabulary_parallel<Loss>;
  std::vector<rank_results<T, Gradient>> all;
  for (int rank = 0; rank < count; ++rank) {
    vocabulary_part const part{first_entry_of(rank, count, p.vocabulary), p.vocabulary};
    all.push_back({own_problem(p, part, first_entry_of(rank + 1, count, p.vocabulary)), part,
                   loss_results(p.tokens, p.options.reduction)});
    auto const poison = store<Gradient>(NAN);
    all.back().hidden.assign(p.hidden.size(), poison);
    all.back().classifier.assign(all.back().own.classifier.size(), poison);
    all.back().bias.assign(static_cast<std::size_t>(all.back().own.vocabulary), poison);
  }
  testing::on_ranks(count, [&](threads& ranks) {
    auto& own = all[static_cast<std::size_t>(ranks.rank())];
    linear_loss_shape const shape{p.tokens, own.own.vocabulary, p.channels};
    auto const plan = loss::template plan_backward<Gradient>(exec, count, shape, p.options);
    buffer<std::byte> memory(exec, plan.bytes());
    exec.copy(std::vector<std::byte>(static_cast<std::size_t>(plan.bytes()), std::byte{0xff}), memory);
    workspace const space(plan, memory);
    auto const in = own.own.inputs();
    loss::forward(exec, ranks, in, own.part, p.options, own.values.template outputs<typename Loss::reducer_type>(),
                  space);
    linear_loss_gradients<Gradient> out{{own.hidden.data(), {p.tokens, p.channels}},
                                        {own.classifier.data(), {own.own.vocabulary, p.channels}},
                                        own.bias};
    side_queue<Exec> const side(exec, loss::side_marks, true);
    for (int i = 0; i < times; ++i) {
      if (chunk_tokens == without_side) {
        loss::backward(exec, ranks, in, own.part, p.options, upstream.views(), out, space);
      } else {
        loss::backward(exec, side, ranks, in, own.part, p.options, upstream.views(), out, space, chunk_tokens);
      }
      out.accumulate_hidden = out.accumulate_classifier = out.accumulate_bias = true;
    }
    exec.wait();
  });
  return all;
}

/// Compares with the formulas, and ranks with each other.
template <class Loss, class Gradient, class Exec, class T>
void check_on_ranks(int count, Exec const& exec, loss_problem<T> const& p, double tolerance,
                    upstream_samples const& upstream = {}) {
  CAPTURE(count, p.tokens, p.vocabulary, p.channels);
  auto const all = run_on_ranks<Loss, Gradient>(count, exec, p, upstream);
  loss_reference const expected = reference_loss(p);
  gradient_reference const gradient = reference_gradient(p, upstream);
  std::vector<Gradient> classifier;
  std::vector<Gradient> bias;
  for (auto const& own : all) {
    auto const& found = own.values;
    bool const is_reduced = p.options.reduction != loss_reduction::none;
    int wrong = 0;
    auto const count_wrong = [&](float value, double wanted) {
      wrong += std::fabs(static_cast<double>(value) - wanted) <= 2e-5 * (1 + std::fabs(wanted)) ? 0 : 1;
    };
    for (std::size_t i = 0; i < expected.tokens.size(); ++i) {
      count_wrong(found.log_sum_exp[i], expected.tokens[i].log_sum_exp);
      count_wrong(found.log_probability[i], expected.tokens[i].log_probability);
      if (!is_reduced) {
        count_wrong(found.loss[i], expected.tokens[i].loss);
      }
      if constexpr (has_reducer<entropy_reducer<float>, typename Loss::reducer_type>) {
        count_wrong(found.entropy[i], expected.tokens[i].entropy);
      }
      if constexpr (has_reducer<arg_max_reducer<float>, typename Loss::reducer_type>) {
        wrong += found.prediction[i] == expected.tokens[i].prediction ? 0 : 1;
      }
    }
    if (is_reduced) {
      count_wrong(found.loss[0], expected.total);
    }
    CHECK(wrong == 0);
    CHECK(found.count[0] == expected.count);
    CHECK(found.loss == all[0].values.loss);
    CHECK(found.log_sum_exp == all[0].values.log_sum_exp);
    CHECK(std::equal(own.hidden.begin(), own.hidden.end(), all[0].hidden.begin(), [](Gradient a, Gradient b) {
      return scalar_traits<Gradient>::to_bits(a) == scalar_traits<Gradient>::to_bits(b);
    }));
    CHECK(relative_distance(own.hidden, gradient.hidden) <= tolerance);
    classifier.insert(classifier.end(), own.classifier.begin(), own.classifier.end());
    bias.insert(bias.end(), own.bias.begin(), own.bias.end());
  }
  CHECK(relative_distance(classifier, gradient.classifier) <= tolerance);
  if (!p.bias.empty()) {
    CHECK(relative_distance(bias, gradient.bias) <= 2 * tolerance);
  }
}

template <class T>
loss_problem<T> full_problem(std::int64_t tokens, std::int64_t vocabulary, std::int64_t channels) {
  auto p = make_loss_problem<T>(tokens, vocabulary, channels, true);
  weigh_classes(p);
  p.options.softcap = 4.0F;
  p.options.temperature = 0.8F;
  p.options.z_factor = 1e-2F;
  p.options.shift = 1;
  return p;
}

upstream_samples some_upstream(std::int64_t tokens, loss_reduction reduction, bool with_entropy) {
  return {operand_samples<float>(reduction == loss_reduction::none ? tokens : 1, 11),
          operand_samples<float>(tokens, 12), with_entropy ? operand_samples<float>(tokens, 13) : std::vector<float>()};
}

constexpr int counts[] = {1, 2, 3, 8};

}  // namespace

TEST_CASE("a loss on ranks is that of the whole classifier, in extents around its tiles", "[host][threads]") {
  for (int const count : counts) {
    for (auto const& extents : {std::vector<std::int64_t>{0, 70, 8}, {1, 37, 5}, {65, 130, 16}, {7, 1000, 8}}) {
      auto const p = make_loss_problem<float>(extents[0], extents[1], extents[2], true);
      check_on_ranks<small_loss<float>, float>(count, cpu{.threads = 1}, p, 3e-6);
    }
  }
}

TEST_CASE("a loss on 64 ranks is that of the whole classifier", "[host][threads]") {
  auto const p = full_problem<float>(17, 200, 8);
  check_on_ranks<small_loss<float>, float>(64, cpu{.threads = 1}, p, 4e-6);
}

TEST_CASE("ranks take every option of the loss, with upstream gradients of every output", "[host][threads]") {
  using with_all = small_loss<float, loss_statistics>;
  for (int const count : counts) {
    for (loss_reduction const reduction : {loss_reduction::none, loss_reduction::sum, loss_reduction::mean}) {
      auto p = full_problem<float>(70, 131, 24);
      p.options.reduction = reduction;
      check_on_ranks<with_all, float>(count, cpu{.threads = 1}, p, 4e-6);
      p.options.smoothing = 0.2F;
      check_on_ranks<with_all, float>(count, cpu{.threads = 1}, p, 4e-6, some_upstream(70, reduction, true));
    }
  }
  auto p = full_problem<float>(70, 131, 24);
  check_on_ranks<with_all, float>(3, testing::adversary{.seed = 7}, p, 4e-6);
  p.options.smoothing = 1.0F;
  check_on_ranks<with_all, float>(3, testing::adversary{.seed = 7}, p, 4e-6);
}

TEST_CASE("labels are smoothed over the whole vocabulary, whatever a rank's part of it is", "[host][threads]") {
  using smoothed = paired_reducer<lse_reducer<float>, sum_reducer<float>>;
  for (int const count : counts) {
    for (std::int64_t const tokens : {0, 1, 7, 65}) {
      auto p = make_loss_problem<float>(tokens, 131, 8, true);
      p.options.smoothing = 0.3F;
      check_on_ranks<small_loss<float, smoothed>, float>(count, cpu{.threads = 1}, p, 5e-6);
    }
    auto half = full_problem<float16>(70, 300, 64);
    half.options.smoothing = 0.1F;
    check_on_ranks<small_loss<float16, smoothed>, float>(count, cpu{.threads = 1}, half, 8e-4);
    auto brain = full_problem<bfloat16>(70, 300, 64);
    brain.options.smoothing = 0.1F;
    check_on_ranks<small_loss<bfloat16, smoothed>, bfloat16>(count, cpu{.threads = 1}, brain, 9e-3);
  }
}

TEST_CASE("ranks take 16-bit operands, whose parts of gradients are rounded before they are added", "[host][threads]") {
  for (int const count : counts) {
    auto const p = full_problem<bfloat16>(70, 300, 64);
    check_on_ranks<small_loss<bfloat16>, float>(count, cpu{.threads = 1}, p, 4e-3);
    check_on_ranks<small_loss<bfloat16>, bfloat16>(count, cpu{.threads = 1}, p, 8e-3);
    auto half = full_problem<float16>(70, 300, 64);
    half.options.workspace_budget = 0;
    check_on_ranks<small_loss<float16>, float>(count, cpu{.threads = 1}, half, 6e-4);
  }
}

TEST_CASE("a filter on ranks keeps what the whole softmax makes large, and leaves out what it makes small",
          "[host][threads]") {
  auto p = make_loss_problem<float>(128, 640, 32);
  for (float& value : p.classifier) {
    value *= 6.0F;
  }
  p.options.reduction = loss_reduction::sum;
  auto const exact = reference_gradient(p);
  for (int const count : {2, 3}) {
    auto const all = run_on_ranks<small_loss<float, lse_reducer<float>, 7>, float>(count, cpu{.threads = 1}, p);
    double const apart = relative_distance(all[0].hidden, exact.hidden);
    CHECK(apart > 0);
    CHECK(apart <= 0.05);
  }
  // Each rank's own softmax is sure of its best entry here, of which the whole one is not: nothing may be left out.
  loss_problem<float> sure = make_loss_problem<float>(64, 128, 8);
  sure.options.reduction = loss_reduction::sum;
  for (std::size_t i = 0; i < sure.hidden.size(); ++i) {
    sure.hidden[i] = i % 8 == 0 ? 30.0F : 0.0F;
  }
  for (std::size_t j = 0; j < 128; ++j) {
    sure.labels[j / 2] = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      sure.classifier[j * 8 + i] = i == 0 && (j == 0 || j == 127) ? 1.0F : 0.0F;
    }
  }
  sure.classifier[127 * 8 + 1] = 1.0F;  // which changes no logit, but what a gradient of that entry is
  check_on_ranks<small_loss<float, lse_reducer<float>, 7>, float>(2, cpu{.threads = 1}, sure, 1e-5);
}

TEST_CASE("gradients on ranks are added to those in fp32 that are there, once", "[host][threads]") {
  auto const p = full_problem<float>(40, 90, 8);
  for (int const count : {1, 3}) {
    auto const once = run_on_ranks<small_loss<float>, float>(count, cpu{.threads = 1}, p);
    auto const twice = run_on_ranks<small_loss<float>, float>(count, cpu{.threads = 1}, p, {}, 2);
    for (std::size_t rank = 0; rank < once.size(); ++rank) {
      auto const wrong = [](std::vector<float> const& two, std::vector<float> const& one) {
        int found = 0;
        for (std::size_t i = 0; i < one.size(); ++i) {
          found += std::fabs(two[i] - 2.0F * one[i]) <= 1e-6F * (1.0F + std::fabs(one[i])) ? 0 : 1;
        }
        return found;
      };
      CHECK(wrong(twice[rank].hidden, once[rank].hidden) == 0);
      CHECK(wrong(twice[rank].classifier, once[rank].classifier) == 0);
      CHECK(wrong(twice[rank].bias, once[rank].bias) == 0);
    }
  }
}

namespace {

/// Whether both hold the same bits.
template <class Gradient>
bool are_same(std::vector<Gradient> const& a, std::vector<Gradient> const& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](Gradient x, Gradient y) {
    return scalar_traits<Gradient>::to_bits(x) == scalar_traits<Gradient>::to_bits(y);
  });
}

/// Compares gradients that are reduced by chunks beside products with those that are reduced in the end.
template <class Loss, class Gradient, class Exec, class T>
void check_chunks(int count, Exec const& exec, loss_problem<T> const& p, upstream_samples const& upstream = {}) {
  for (int const times : {1, std::is_same_v<Gradient, float> ? 2 : 1}) {
    auto const at_once = run_on_ranks<Loss, Gradient>(count, exec, p, upstream, times);
    for (std::int64_t const chunk : {0, 1, 100, 256, 5000}) {
      CAPTURE(count, times, chunk, p.tokens);
      auto const all = run_on_ranks<Loss, Gradient>(count, exec, p, upstream, times, chunk);
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        CHECK(are_same(all[rank].hidden, at_once[rank].hidden));
        CHECK(are_same(all[rank].classifier, at_once[rank].classifier));
        CHECK(are_same(all[rank].bias, at_once[rank].bias));
      }
    }
  }
}

}  // namespace

TEST_CASE("gradients of hidden states that are reduced by chunks on a side queue have the same bits",
          "[host][threads]") {
  using with_all = small_loss<float, loss_statistics>;
  cpu const exec{.threads = 1};
  for (int const count : counts) {
    auto p = full_problem<float>(600, 131, 8);
    p.options.reduction = loss_reduction::none;
    check_chunks<with_all, float>(count, exec, p, some_upstream(600, p.options.reduction, true));
    check_chunks<small_loss<bfloat16>, bfloat16>(count, exec, full_problem<bfloat16>(520, 90, 16));
  }
  auto p = make_loss_problem<float>(300, 300, 16);
  p.options.reduction = loss_reduction::sum;
  check_chunks<small_loss<float, lse_reducer<float>, 7>, float>(3, exec, p);
  p.options.workspace_budget = std::int64_t{1} << 20;  // several parts
  check_chunks<small_loss<float>, float>(2, testing::adversary{.seed = 5}, p);
  check_chunks<small_loss<float>, float>(2, exec, make_loss_problem<float>(0, 90, 8));
}

TEST_CASE("ranks refuse a side queue's chunks that do not fit, with the value", "[host]") {
  auto const p = make_loss_problem<float>(20, 40, 8);
  using loss = vocabulary_parallel<small_loss<float>>;
  cpu const exec{.threads = 1};
  loopback ranks;
  auto const plan = loss::plan_backward<float>(exec, 1, {20, 40, 8});
  buffer<std::byte> memory(exec, plan.bytes());
  side_queue<cpu> const side(exec, loss::side_marks);
  CHECK(message_of([&] {
          loss::backward(exec, side, ranks, p.inputs(), {0, 40}, {}, {}, linear_loss_gradients<float>{},
                         workspace(plan, memory), -1);
        }) == "vocabulary_parallel.backward: chunk_tokens is -1 but must not be negative");
}

TEST_CASE("a finish gets the states of all ranks' entries together", "[host][threads]") {
  auto const p = make_loss_problem<float>(30, 90, 8);
  loss_reference const expected = reference_loss(p);
  using own = small_loss<float, loss_statistics>;
  using state = loss_statistics::state_type;
  std::vector<std::vector<state>> states(3, std::vector<state>(30));
  testing::on_ranks(3, [&](threads& ranks) {
    cpu const exec{.threads = 1};
    vocabulary_part const part{first_entry_of(ranks.rank(), 3, 90), 90};
    auto const of_rank = own_problem(p, part, first_entry_of(ranks.rank() + 1, 3, 90));
    using loss = vocabulary_parallel<own>;
    auto const plan = loss::plan_forward(exec, 3, {30, of_rank.vocabulary, 8});
    buffer<std::byte> memory(exec, plan.bytes());
    std::vector<float> value(1);
    loss::forward(exec, ranks, of_rank.inputs(), part, {}, {value}, workspace(plan, memory),
                  keep_states<state>{states[static_cast<std::size_t>(ranks.rank())]});
    exec.wait();
  });
  for (auto const& of_rank : states) {
    int wrong = 0;
    for (std::size_t i = 0; i < 30; ++i) {
      token_reference const& token = expected.tokens[i];
      double const lse = static_cast<double>(read_softmax(loss_statistics{}, of_rank[i]).largest) +
                         static_cast<double>(read_softmax(loss_statistics{}, of_rank[i]).above);
      bool const is_right = std::fabs(lse - token.log_sum_exp) <= 1e-5 &&
                            state_of<arg_max_reducer<float>>(loss_statistics{}, of_rank[i]).index == token.prediction;
      wrong += token.label < 0 || is_right ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("a bad label is an error on every rank, and makes the loss NaN", "[host][threads]") {
  auto p = make_loss_problem<float>(20, 40, 8);
  p.labels[6] = 40;
  std::atomic<int> said{0};
  testing::on_ranks(2, [&](threads& ranks) {
    cpu const exec{.threads = 1};
    vocabulary_part const part{20 * ranks.rank(), 40};
    auto const own = own_problem(p, part, part.first + 20);
    using loss = vocabulary_parallel<small_loss<float>>;
    auto const plan = loss::plan_forward(exec, 2, {20, 20, 8});
    buffer<std::byte> memory(exec, plan.bytes());
    std::vector<float> value(1);
    loss::forward(exec, ranks, own.inputs(), part, {}, {value}, workspace(plan, memory));
    std::string const message = message_of([&] { exec.wait(); });
    said += message.find("vocabulary_parallel.forward") != std::string::npos &&
                    message.find("40") != std::string::npos && std::isnan(value[0])
                ? 1
                : 0;
  });
  CHECK(said == 2);
}

TEST_CASE("a backward pass on ranks refuses another forward pass", "[host]") {
  auto p = make_loss_problem<float>(20, 40, 8, true);
  cpu const exec{.threads = 1};
  loopback ranks;
  using loss = vocabulary_parallel<small_loss<float>>;
  auto const plan = loss::plan_backward<float>(exec, 1, {20, 40, 8});
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  std::vector<float> value(1);
  std::vector<float> hidden(160);
  linear_loss_gradients<float> const out{{hidden.data(), {20, 8}}};
  loss::forward(exec, ranks, p.inputs(), {0, 40}, p.options, {value}, space);
  loss::backward(exec, ranks, p.inputs(), {0, 40}, p.options, {}, out, space);
  exec.wait();
  CHECK(std::isfinite(hidden[0]));
  p.options.z_factor = 1.0F;
  loss::backward(exec, ranks, p.inputs(), {0, 40}, p.options, {}, out, space);
  CHECK_THAT(message_of([&] { exec.wait(); }),
             contains("vocabulary_parallel.backward: the forward() in the workspace"));
  int numbers = 0;
  for (float const found : hidden) {
    numbers += std::isnan(found) ? 0 : 1;
  }
  CHECK(numbers == 0);
}

TEST_CASE("ranks refuse what does not fit together, with both values", "[host]") {
  auto const p = make_loss_problem<float>(20, 40, 8);
  using loss = vocabulary_parallel<small_loss<float>>;
  cpu const exec{.threads = 1};
  loopback ranks;
  auto const plan = loss::plan_backward<float>(exec, 1, {20, 40, 8});
  buffer<std::byte> memory(exec, plan.bytes());
  workspace const space(plan, memory);
  std::vector<float> value(1);
  auto const of = [&](vocabulary_part const& part, linear_loss_options const& options = {}) {
    return message_of([&] { loss::forward(exec, ranks, p.inputs(), part, options, {value}, space); });
  };
  CHECK(of({0, 40}) == "");
  CHECK(of({1, 40}) == "vocabulary_parallel.forward: the rank has entries 1 to 40 but there are 40");
  CHECK(of({0, 39}) == "vocabulary_parallel.forward: the rank has entries 0 to 39 but there are 39");
  CHECK(of({-1, 40}) == "vocabulary_parallel.forward: the rank has entries -1 to 38 but there are 40");
  linear_loss_options options;
  options.smoothing = 0.5F;
  CHECK(of({0, 40}, options) ==
        "vocabulary_parallel.forward: the smoothing is 0.500000 but the reducer has no sum_reducer<float>");
  CHECK(message_of([&] {
          loss::plan_forward(exec, 0, {20, 40, 8});
        }) == "vocabulary_parallel.forward: there are 0 ranks but must be 1 or more");
  std::vector<float> hidden(400);
  linear_loss_gradients<float> const apart{{hidden.data(), {20, 8}, {16, 1}}};
  CHECK(message_of([&] {
          loss::backward(exec, ranks, p.inputs(), {0, 40}, {}, {}, apart, space);
        }) ==
        "vocabulary_parallel.backward: the gradient of the hidden states has strides of 16 and 1 but must be "
        "contiguous, with 8 and 1");
  std::vector<float> const short_list(19);
  CHECK(message_of([&] {
          small_loss<float>::replace_softmaxes(exec, {20, 40, 8}, {}, short_list, short_list, space);
        }) == "linear_loss.replace_softmaxes: there are 19 log-sum-exps and 19 entropies but 20 tokens");
  auto in = p.inputs();
  std::vector<float> const classes(39, 1.0F);
  in.class_weights = classes;
  CHECK(message_of([&] {
          loss::forward(exec, ranks, in, {0, 40}, {}, {value}, space);
        }) == "vocabulary_parallel.forward: there are 39 weights of classes but 40 entries of the vocabulary");
}

TEST_CASE("the likeliest entries of all ranks are entries of the whole vocabulary", "[host][threads]") {
  constexpr int k = 6;  // more than the first ranks have
  using finish = write_top_entries<k>;
  using loss = vocabulary_parallel<small_loss<float, finish::reducer>>;
  cpu const exec{.threads = 1};
  auto problem = make_loss_problem<float>(9, 40, 12, true);
  for (bool const are_exact : {false, true}) {
    if (are_exact) {
      round_operands(problem);
    }
    for (int const count : counts) {
      CAPTURE(count, are_exact);
      std::vector<top_results> all(static_cast<std::size_t>(count), top_results(problem.tokens, k));
      testing::on_ranks(count, [&](threads& ranks) {
        std::int64_t const first = first_entry_of(ranks.rank(), count, problem.vocabulary);
        std::int64_t const end = first_entry_of(ranks.rank() + 1, count, problem.vocabulary);
        auto const own = own_problem(problem, {first, problem.vocabulary}, end);
        auto const plan = loss::plan_forward(exec, count, {own.tokens, own.vocabulary, own.channels});
        buffer<std::byte> memory(exec, plan.bytes());
        top_results& found = all[static_cast<std::size_t>(ranks.rank())];
        loss_results results(own.tokens);
        loss::forward(exec, ranks, own.inputs(), {first, problem.vocabulary}, {}, results.outputs<finish::reducer>(),
                      workspace(plan, memory),
                      finish{{found.entries.data(), {9, k}}, {found.log_probabilities.data(), {9, k}}});
        exec.wait();
      });
      for (top_results const& found : all) {
        CHECK(wrong_top_entries(problem, found, k, 1e-5, are_exact) == 0);
      }
    }
  }
}
