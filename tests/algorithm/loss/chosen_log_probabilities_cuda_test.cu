// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <tessera/algorithm/loss/chosen_log_probabilities.hpp>
#include <tessera/algorithm/loss/with_classifier.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>

#include "algorithm/loss/linear_loss_on_device.cuh"
#include "support/chosen_entries.hpp"
#include "support/loss_maps.hpp"
#include "support/message_of.hpp"
#include "support/stored_classifiers.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

/// How the operands of a call lie in the device's memory.
struct placement {
  std::int64_t offset = 0;   ///< elements before the first row
  std::int64_t padding = 0;  ///< elements after each row
};

template <class T>
std::vector<T> placed(std::vector<T> const& values, std::int64_t rows, std::int64_t columns, placement const& at) {
  std::vector<T> all(static_cast<std::size_t>(at.offset + rows * (columns + at.padding)), store<T>(NAN));
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    std::int64_t const to = at.offset + i / columns * (columns + at.padding) + i % columns;
    all[static_cast<std::size_t>(to)] = values[static_cast<std::size_t>(i)];
  }
  return all;
}

template <class T, class Entry, class Map = identity_logits>
std::vector<float> on_device(tessera::cuda const& exec, loss_problem<T> const& p, chosen_entries<Entry> const& chosen,
                             placement const& at = {}, Map const& map = {}) {
  using algorithm = chosen_log_probabilities<T, Map>;
  auto const hidden = to_device(exec, placed(p.hidden, p.tokens, p.channels, at));
  auto const classifier = to_device(exec, placed(p.classifier, p.vocabulary, p.channels, at));
  auto const bias = to_device(exec, p.bias);
  auto const entries = to_device(exec, chosen.entries);
  auto const sums = to_device(exec, chosen.log_sum_exp);
  auto out = to_device(exec, std::vector<float>(chosen.entries.size(), -77.0F));
  std::int64_t const stride = p.channels + at.padding;
  typename algorithm::template inputs<Entry> const in{
      {hidden.data() + at.offset, {p.tokens, p.channels}, {stride, 1}},
      {classifier.data() + at.offset, {p.vocabulary, p.channels}, {stride, 1}},
      {entries.data(), {p.tokens, chosen.k}},
      sums.view(),
      bias.view(),
      map};
  algorithm::forward(exec, in, p.options, {out.data(), {p.tokens, chosen.k}});
  std::vector<float> found(chosen.entries.size());
  exec.copy(out, found);
  exec.wait();
  return found;
}

template <class T, class Entry = std::int32_t>
void check_chosen(loss_problem<T> const& p, std::int64_t k, placement const& at = {}) {
  CAPTURE(p.tokens, p.vocabulary, p.channels, k, at.offset, at.padding, p.options.softcap);
  tessera::cuda const exec;
  chosen_entries<Entry> const chosen(p, k);
  CHECK(wrong_chosen(p, chosen, on_device(exec, p, chosen, at), 3e-6) == 0);
}

}  // namespace

TEST_CASE("log-probabilities of chosen entries are right on a GPU, whatever the extents", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (std::int64_t const channels : {0, 1, 7, 8, 9, 33, 255, 256, 257, 2304}) {
    check_chosen(make_loss_problem<float>(5, 40, channels, channels % 2 == 1), 6);
    check_chosen(make_loss_problem<bfloat16>(5, 40, channels, channels % 2 == 1), 6);
  }
  for (std::int64_t const tokens : {0, 1, 7, 129}) {
    for (std::int64_t const k : {0, 1, 3, 4, 5, 8, 33}) {
      check_chosen<float16, std::int64_t>(make_loss_problem<float16>(tokens, 11, 24), k);
    }
  }
  check_chosen(make_loss_problem<bfloat16>(3000, 500, 520, true), 8);
}

TEST_CASE("chosen entries are right on a GPU where rows do not begin at multiples of 16 bytes", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  for (placement const& at : {placement{1, 0}, placement{0, 3}, placement{8, 8}, placement{4, 4}}) {
    check_chosen(make_loss_problem<bfloat16>(9, 40, 264, true), 5, at);
    check_chosen(make_loss_problem<float>(9, 40, 264), 5, at);
  }
}

TEST_CASE("chosen entries go through bias, softcap, temperature and a map on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto problem = make_loss_problem<float16>(70, 50, 40, true);
  problem.options.softcap = 2.0F;
  problem.options.temperature = 0.75F;
  check_chosen(problem, 5);
  chosen_entries<std::int64_t> const chosen(problem, 5);
  problem.map = in_double(curved{});
  CHECK(wrong_chosen(problem, chosen, on_device(exec, problem, chosen, {}, curved{}), 3e-6) == 0);
  auto const prior = log_prior_of(problem.vocabulary);
  auto const prior_there = to_device(exec, prior);
  problem.map = in_double(prior, 0.5F);
  adjusted_by_prior const map{prior_there.view(), 0.5F};
  CHECK(wrong_chosen(problem, chosen, on_device(exec, problem, chosen, {}, map), 3e-6) == 0);
}

TEMPLATE_TEST_CASE("chosen entries of rows that a source gives are right on a GPU", "[cuda]", master_rows,
                   row_scaled<bfloat16>) {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  using algorithm = with_classifier<chosen_log_probabilities<bfloat16>, TestType>;
  for (std::int64_t const channels : {9, 264}) {
    auto p = make_stored_problem<TestType>(70, 300, channels, true);
    p.rounded.options.softcap = 3.0F;
    chosen_entries<std::int64_t> const chosen(p.rounded, 5);
    device_problem<bfloat16, std::int64_t> const there(exec, p.rounded);
    auto const codes = to_device(exec, p.codes);
    auto const params = to_device(exec, p.params);
    auto const entries = to_device(exec, chosen.entries);
    auto const sums = to_device(exec, chosen.log_sum_exp);
    auto out = to_device(exec, std::vector<float>(chosen.entries.size(), -77.0F));
    typename algorithm::template inputs<std::int64_t> const in{
        there.inputs().hidden,
        source_memory<TestType>::source(codes.data(), params.data(), 300, channels),
        {entries.data(), {70, 5}},
        sums.view(),
        there.bias.view()};
    algorithm::forward(exec, in, p.rounded.options, {out.data(), {70, 5}});
    exec.wait();
    CHECK(wrong_chosen(p.rounded, chosen, to_host(exec, out), 3e-6) == 0);
  }
}

TEST_CASE("chosen entries of 16-bit operands have the same bits on a GPU as on the CPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  auto const p = make_loss_problem<bfloat16>(40, 90, 1032, true);
  chosen_entries<std::int32_t> const chosen(p, 7);
  std::vector<float> expected(chosen.entries.size());
  chosen_log_probabilities<bfloat16>::forward(
      cpu{.threads = 1},
      chosen_log_probabilities<bfloat16>::inputs<std::int32_t>{{p.hidden.data(), {40, 1032}},
                                                               {p.classifier.data(), {90, 1032}},
                                                               {chosen.entries.data(), {40, 7}},
                                                               chosen.log_sum_exp,
                                                               p.bias},
      p.options, {expected.data(), {40, 7}});
  tessera::cuda const exec;
  auto const found = on_device(exec, p, chosen);
  CHECK(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)) == 0);
}

TEST_CASE("the chosen label has the log-probability that the loss gives it on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto const p = make_loss_problem<bfloat16>(300, 1000, 128, true);
  auto const loss = run_on_device<exact_cross_entropy, bfloat16>(exec, p);
  chosen_entries<std::int64_t> labels(p, 1);
  labels.entries = p.labels;
  labels.log_sum_exp = loss.log_sum_exp;
  auto const found = on_device(exec, p, labels);
  CHECK(wrong_chosen(p, labels, found, 3e-6) == 0);
  std::int64_t apart = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    apart += std::fabs(found[i] - loss.log_probability[i]) <= 4e-6F * (1.0F + loss.log_sum_exp[i]) ? 0 : 1;
  }
  CHECK(apart == 0);
}

TEST_CASE("an entry outside of the vocabulary is reported with its position on a GPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto const p = make_loss_problem<float>(20, 50, 9);
  chosen_entries<std::int64_t> chosen(p, 7);
  chosen.entries[50] = 51;
  chosen.entries[47] = std::int64_t{1} << 40;
  CHECK(message_of([&] { on_device(exec, p, chosen); }) ==
        "chosen_log_probabilities.forward: entry 1099511627776 at position 47 of the chosen ones is none of 50");
  chosen.entries[50] = 3;
  chosen.entries[47] = -1;
  CHECK(wrong_chosen(p, chosen, on_device(exec, p, chosen), 3e-6) == 0);
  chosen_log_probabilities<float>::inputs<std::int64_t> const on_host{
      {p.hidden.data(), {20, 9}}, {p.classifier.data(), {50, 9}}, {chosen.entries.data(), {20, 7}}, chosen.log_sum_exp};
  std::vector<float> out(20 * 7);
  CHECK_THROWS_AS(chosen_log_probabilities<float>::forward(exec, on_host, {}, {out.data(), {20, 7}}), value_error);
}
