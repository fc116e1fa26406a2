// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What ranks say that call a loss with different arguments: all of them the same, and none waits for ever.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/loss/linear_distillation.hpp>
#include <tessera/algorithm/loss/vocabulary_parallel.hpp>
#include <tessera/algorithm/loss/vocabulary_parallel_distillation.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/on_ranks.hpp>

#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using tessera_test::message_of;

namespace {

using one_loss = linear_loss<gemm_tile<bfloat16, shape<64, 64, 16>>, loss_statistics, gradient_filter<0>>;
using loss = vocabulary_parallel<one_loss>;

/// What a rank is called with: 40 of 120 entries.
struct rank_arguments {
  std::int64_t channels = 32;
  std::int64_t tokens = 7;
  std::int64_t own_entries = 40;
  vocabulary_part part;
  linear_loss_options options = {};
};

/// What each of three ranks says of a forward pass, where `change` changes the arguments of some.
template <class Change>
std::vector<std::string> said_by_ranks(Change const& change) {
  std::vector<bfloat16> numbers(120 * 64);
  testing::fill(testing::gauss{}, 1, numbers.data(), std::ssize(numbers));
  std::vector<std::int64_t> const labels{0, 119, 40, 7, 80, 3, 60};
  std::vector<std::string> said(3);
  testing::on_ranks(3, [&](threads& ranks) {
    int const rank = ranks.rank();
    rank_arguments of{.part = {40 * rank, 120}};
    change(rank, of);
    cpu const exec{.threads = 1};
    float value = 0;
    std::string message = message_of([&] {
      auto const plan = loss::plan_forward(exec, ranks.size(), {of.tokens, of.own_entries, of.channels}, of.options);
      buffer<std::byte> memory(exec, plan.bytes());
      loss::inputs<std::int64_t> const in{{numbers.data(), {of.tokens, of.channels}},
                                          {numbers.data() + 40 * of.channels * rank, {of.own_entries, of.channels}},
                                          {labels.data(), of.tokens}};
      loss::forward(exec, ranks, in, of.part, of.options, {.loss = {&value, 1}}, workspace(plan, memory));
      exec.wait();
    });
    bool const is_poisoned = std::isnan(value) || of.tokens == 0;
    said[static_cast<std::size_t>(rank)] = message.empty() || is_poisoned ? message : "a loss, and " + message;
  });
  return said;
}

std::vector<std::string> three(std::string const& text) {
  return {3, "vocabulary_parallel.forward: " + text};
}

}  // namespace

TEST_CASE("ranks that agree have a loss", "[host][threads]") {
  CHECK(said_by_ranks([](int, auto&) {}) == std::vector<std::string>(3));
  CHECK(said_by_ranks([](int, auto& of) { of.tokens = 0; }) == std::vector<std::string>(3));
  CHECK(said_by_ranks([](int rank, auto& of) { of.part.first = 80 - 40 * rank; }) == std::vector<std::string>(3));
  CHECK(said_by_ranks([](int rank, auto& of) {  // the thresholds of a filter are a rank's own
          of.options.hidden_threshold = rank == 1 ? 0.5F : 0.0F;
        }) == std::vector<std::string>(3));
}

TEST_CASE("where a rank has other extents or options, each rank says which, and the loss is NaN", "[host][threads]") {
  CHECK(said_by_ranks([](int rank, auto& of) { of.part.vocabulary = rank == 1 ? 200 : 120; }) ==
        three("rank 1 has a vocabulary of 200 entries but rank 0 has another"));
  CHECK(said_by_ranks([](int rank, auto& of) { of.channels = rank == 2 ? 16 : 32; }) ==
        three("rank 2 has hidden states of 16 channels but rank 0 has others"));
  CHECK(said_by_ranks([](int rank, auto& of) {
          of.options.reduction = rank == 0 ? loss_reduction::sum : loss_reduction::mean;
        })[2]
            .find("has the reduction of number 2 but rank 0 has another") != std::string::npos);
  for (int which = 0; which < 6; ++which) {
    CAPTURE(which);
    CHECK(said_by_ranks([&](int rank, auto& of) {
            linear_loss_options& to = of.options;
            if (rank == 1) {
              to.softcap = which == 0 ? 30.0F : 0.0F;
              to.temperature = which == 1 ? 2.0F : 1.0F;
              to.z_factor = which == 2 ? 0.5F : 0.0F;
              to.ignore_index = which == 3 ? -1 : -100;
              to.shift = which == 4 ? 1 : 0;
              to.sequence = which == 5 ? 1 : 0;
            }
          }) == three("rank 1 has other options than rank 0"));
  }
}

TEST_CASE("parts of a vocabulary that leave entries out, or have some twice, are refused on each rank",
          "[host][threads]") {
  CHECK(said_by_ranks([](int rank, auto& of) { of.own_entries = rank == 1 ? 39 : 40; }) ==
        three("the ranks have 119 entries in all but the vocabulary has 120"));
  CHECK(said_by_ranks([](int rank, auto& of) { of.part.first = rank == 1 ? 30 : 40 * rank; }) ==
        three("the ranks have 120 entries in all, as the vocabulary, but some of them are the same"));
}

TEST_CASE("where a rank has other tokens, or refuses the call, no rank waits for it", "[host][threads]") {
  auto const tokens = said_by_ranks([](int rank, auto& of) { of.tokens = rank == 1 ? 6 : 7; });
  for (std::string const& text : tokens) {
    CHECK(text.find("rank 0 gives 11 elements") != std::string::npos);
    CHECK(text.find("rank 1 gives 10") != std::string::npos);
  }
  auto const refused = said_by_ranks([](int rank, auto& of) { of.options.temperature = rank == 1 ? -2.0F : 1.0F; });
  CHECK(refused[1].find("the temperature is -2.000000 but must be positive and finite") != std::string::npos);
  CHECK(refused[0].find("rank 0 waits for rank ") != std::string::npos);
  CHECK(refused[2].find("rank 2 waits for rank ") != std::string::npos);
}

TEST_CASE("ranks of a distillation that were called with different arguments say so, too", "[host][threads]") {
  using distillation = vocabulary_parallel<linear_distillation<float>>;
  std::vector<float> numbers(80 * 16);
  testing::fill(testing::gauss{}, 1, numbers.data(), std::ssize(numbers));
  auto const said = [&](float temperature_of_one, std::int64_t vocabulary_of_one, std::int64_t first_of_one) {
    std::vector<std::string> messages(2);
    testing::on_ranks(2, [&](threads& ranks) {
      int const rank = ranks.rank();
      cpu const exec{.threads = 1};
      distillation_options const options{.temperature = rank == 1 ? temperature_of_one : 1.0F};
      vocabulary_part const part{rank == 1 ? first_of_one : 0, rank == 1 ? vocabulary_of_one : 80};
      float value = 0;
      std::string const message = message_of([&] {
        auto const plan = distillation::plan_forward(exec, ranks.size(), {5, 40, 16, 8}, options);
        buffer<std::byte> memory(exec, plan.bytes());
        distillation::inputs const in{{numbers.data(), {5, 16}},
                                      {numbers.data() + 640 * rank, {40, 16}},
                                      {numbers.data() + 9, {5, 8}},
                                      {numbers.data() + 320 * rank, {40, 8}}};
        distillation::forward(exec, ranks, in, part, options, {.loss = {&value, 1}}, workspace(plan, memory));
        exec.wait();
      });
      messages[static_cast<std::size_t>(rank)] = std::isnan(value) == message.empty() ? "another loss" : message;
    });
    return messages;
  };
  auto const two = [](std::string const& text) {
    return std::vector<std::string>(2, "vocabulary_parallel.forward: " + text);
  };
  CHECK(said(1.0F, 80, 40) == std::vector<std::string>(2));
  CHECK(said(2.0F, 80, 40) == two("rank 1 has other options than rank 0"));
  CHECK(said(1.0F, 90, 40) == two("rank 1 has a vocabulary of 90 entries but rank 0 has another"));
  CHECK(said(1.0F, 80, 20) ==
        two("the ranks have 80 entries in all, as the vocabulary, but some of them are the same"));
}
