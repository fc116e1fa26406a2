// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Classifiers that are sources, spread over ranks, give what the rows that the sources give would, for labels, soft
// targets, chosen entries and distillation.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/algorithm/loss/sequence_parallel.hpp>
#include <tessera/algorithm/loss/vocabulary_parallel_distillation.hpp>
#include <tessera/algorithm/loss/vocabulary_parallel_entries.hpp>
#include <tessera/algorithm/loss/with_classifier.hpp>
#include <tessera/algorithm/loss/with_teacher_classifier.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/on_ranks.hpp>

#include "support/catch.hpp"
#include "support/chosen_entries.hpp"
#include "support/rank_parts.hpp"
#include "support/soft_target_reference.hpp"
#include "support/stored_classifiers.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

constexpr std::int64_t source_tokens = 48;
constexpr std::int64_t source_entries = 150;
constexpr std::int64_t source_channels = 24;

/// What a call leaves on a rank.
struct rank_values {
  std::vector<float> forward = std::vector<float>(1, NAN);
  std::vector<float> hidden = std::vector<float>(source_tokens * source_channels, NAN);
  std::vector<float> classifier;

  linear_loss_gradients<float> gradients() {
    return {{hidden.data(), {source_tokens, source_channels}},
            {classifier.data(), {static_cast<std::int64_t>(classifier.size()) / source_channels, source_channels}}};
  }
};

/// A rank's rows, as a source and as what the source gives.
template <class Source>
struct both_rows {
  stored_problem<Source> const& p;
  std::int64_t first;
  std::int64_t count;

  both_rows(stored_problem<Source> const& of, int rank, int ranks)
      : p(of),
        first(first_entry_of(rank, ranks, source_entries)),
        count(first_entry_of(rank + 1, ranks, source_entries) - first) {}
  [[nodiscard]] Source rows(Source const*) const {
    auto const scales = static_cast<std::int64_t>(p.params.size()) / source_entries;
    return source_memory<Source>::source(p.codes.data() + first * source_channels, p.params.data() + first * scales,
                                         count, source_channels);
  }
  [[nodiscard]] matrix_view<bfloat16 const> rows(matrix_view<bfloat16 const> const*) const {
    return {p.rounded.classifier.data() + first * source_channels, {count, source_channels}};
  }
};

/// Runs call(ranks, rows of the rank, part, results) on ranks.
template <class Source, class Call>
std::vector<rank_values> on_rows(stored_problem<Source> const& p, int count, Call const& call) {
  std::vector<rank_values> all(static_cast<std::size_t>(count));
  testing::on_ranks(count, [&](threads& ranks) {
    both_rows<Source> const own(p, ranks.rank(), count);
    rank_values& results = all[static_cast<std::size_t>(ranks.rank())];
    results.classifier.assign(static_cast<std::size_t>(own.count * source_channels), NAN);
    call(ranks, own, part_of_rank(ranks.rank(), count, source_entries), results);
  });
  return all;
}

/// Compares what two calls leave, the one with sources, the other with the rows that they give.
template <class Source, class OfSource, class OfRows>
void check_sources(stored_problem<Source> const& p, OfSource const& of_source, OfRows const& of_rows) {
  for (int const count : {1, 2, 3, 8}) {
    CAPTURE(count);
    auto const found = on_rows(p, count, of_source);
    auto const expected = on_rows(p, count, of_rows);
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
      CHECK(relative_distance(found[rank].forward, doubles_of(expected[rank].forward)) <= 1e-6);
      CHECK(relative_distance(found[rank].hidden, doubles_of(expected[rank].hidden)) <= 1e-6);
      CHECK(relative_distance(found[rank].classifier, doubles_of(expected[rank].classifier)) <= 1e-6);
    }
  }
}

using rows_loss = linear_loss<gemm_tile<bfloat16, shape<64, 64, 16>>, loss_statistics, gradient_filter<0, 64, 64>>;

/// Both passes of a loss of labels. Loss: with or without a source. IsSpread: each rank has its part of the hidden
/// states alone.
template <class Loss, bool IsSpread = false, class Source>
auto label_call(stored_problem<Source> const& p, linear_loss_options const& options) {
  return [&p, options](threads& ranks, auto const& own, vocabulary_part const& part, rank_values& results) {
    using all_tokens = vocabulary_parallel<Loss>;
    using loss = std::conditional_t<IsSpread, sequence_parallel<all_tokens>, all_tokens>;
    using classifier = typename Loss::layout::classifier_type;
    cpu const exec{.threads = 1};
    auto const plan =
        loss::template plan_backward<float>(exec, ranks.size(), {source_tokens, own.count, source_channels}, options);
    buffer<std::byte> memory(exec, plan.bytes());
    workspace const space(plan, memory);
    auto const plain = p.rounded.inputs();
    typename loss::template inputs<std::int64_t> const in{
        hidden_of_rank<loss>(plain.hidden, ranks.rank(), ranks.size()),
        own.rows(static_cast<classifier const*>(nullptr)), plain.labels};
    std::int64_t const tokens = in.hidden.extent(0);
    results.hidden.resize(static_cast<std::size_t>(tokens * source_channels));
    auto gradients = results.gradients();
    gradients.hidden.extents[0] = tokens;
    loss::forward(exec, ranks, in, part, options, {.loss = results.forward}, space);
    loss::backward(exec, ranks, in, part, options, {}, gradients, space);
    exec.wait();
  };
}

/// Both passes of a loss of soft targets.
template <class Loss>
auto target_call(target_problem<bfloat16> const& p) {
  return [&p](threads& ranks, auto const& own, vocabulary_part const& part, rank_values& results) {
    using loss = vocabulary_parallel<soft_target_loss<Loss>>;
    using classifier = typename Loss::layout::classifier_type;
    cpu const exec{.threads = 1};
    auto const plan =
        loss::template plan_backward<float>(exec, ranks.size(), {source_tokens, own.count, source_channels, p.k});
    buffer<std::byte> memory(exec, plan.bytes());
    workspace const space(plan, memory);
    auto const plain = p.inputs();
    typename loss::template inputs<std::int32_t> const in{
        plain.hidden, own.rows(static_cast<classifier const*>(nullptr)), plain.entries, plain.entry_weights};
    loss::forward(exec, ranks, in, part, {}, {.loss = results.forward}, space);
    loss::backward(exec, ranks, in, part, {}, {}, results.gradients(), space);
    exec.wait();
  };
}

/// Both passes of a distillation from itself, turned: the teacher's hidden states are those of the token before.
/// IsSpread: each rank has its part of both hidden states alone.
template <class Loss, class Rows, bool IsSpread = false>
auto distillation_call(loss_problem<bfloat16> const& p, std::vector<bfloat16> const& teacher_hidden) {
  return [&p, &teacher_hidden](threads& ranks, auto const& own, vocabulary_part const& part, rank_values& results) {
    using all_tokens = vocabulary_parallel<Loss>;
    using loss = std::conditional_t<IsSpread, sequence_parallel<all_tokens>, all_tokens>;
    cpu const exec{.threads = 1};
    auto const plan = loss::template plan_backward<float>(exec, ranks.size(),
                                                          {source_tokens, own.count, source_channels, source_channels});
    buffer<std::byte> memory(exec, plan.bytes());
    workspace const space(plan, memory);
    Rows const rows = own.rows(static_cast<Rows const*>(nullptr));
    std::int64_t const tokens = IsSpread ? source_tokens / ranks.size() : source_tokens;
    std::int64_t const before = IsSpread ? ranks.rank() * tokens * source_channels : 0;
    typename loss::inputs const in{{p.hidden.data() + before, {tokens, source_channels}},
                                   rows,
                                   {teacher_hidden.data() + before, {tokens, source_channels}},
                                   rows};
    results.hidden.resize(static_cast<std::size_t>(tokens * source_channels));
    auto gradients = results.gradients();
    gradients.hidden.extents[0] = tokens;
    loss::forward(exec, ranks, in, part, {}, {results.forward}, space);
    loss::backward(exec, ranks, in, part, {}, {}, gradients, space);
    exec.wait();
  };
}

/// Log-probabilities of chosen entries, in place of hidden states' gradients.
template <class Call, class Rows>
auto chosen_call(loss_problem<bfloat16> const& p, chosen_entries<std::int32_t> const& chosen) {
  return [&p, &chosen](threads& ranks, auto const& own, vocabulary_part const& part, rank_values& results) {
    using call = vocabulary_parallel<Call>;
    cpu const exec{.threads = 1};
    auto const plan = call::plan_forward(ranks.size(), source_tokens, chosen.k);
    buffer<std::byte> memory(exec, plan.bytes());
    typename call::template inputs<std::int32_t> const in{p.inputs().hidden,
                                                          own.rows(static_cast<Rows const*>(nullptr)),
                                                          {chosen.entries.data(), {source_tokens, chosen.k}},
                                                          chosen.log_sum_exp};
    results.hidden.assign(results.hidden.size(), 0.0F);
    results.classifier.assign(results.classifier.size(), 0.0F);
    results.forward[0] = 0.0F;
    call::forward(exec, ranks, in, part, {}, {results.hidden.data(), {source_tokens, chosen.k}},
                  workspace(plan, memory));
    exec.wait();
  };
}

}  // namespace

TEMPLATE_TEST_CASE("rows of ranks are sources for everything that ranks do", "[host][threads]", master_rows,
                   row_scaled<bfloat16>) {
  using rows = matrix_view<bfloat16 const>;
  using of_source = with_classifier<rows_loss, TestType>;
  auto const p = make_stored_problem<TestType>(source_tokens, source_entries, source_channels);
  check_sources(p, label_call<of_source>(p, {}), label_call<rows_loss>(p, {}));
  linear_loss_options const smoothed{.smoothing = 0.2F};
  check_sources(p, label_call<of_source>(p, smoothed), label_call<rows_loss>(p, smoothed));
  check_sources(p, label_call<of_source, true>(p, smoothed), label_call<rows_loss, true>(p, smoothed));

  auto const targets = make_target_problem<bfloat16>(source_tokens, source_entries, source_channels, 4);
  check_sources(p, target_call<of_source>(targets), target_call<rows_loss>(targets));

  chosen_entries<std::int32_t> const chosen(p.rounded, 5);
  using choose = chosen_log_probabilities<bfloat16>;
  check_sources(p, chosen_call<with_classifier<choose, TestType>, TestType>(p.rounded, chosen),
                chosen_call<choose, rows>(p.rounded, chosen));

  std::vector<bfloat16> before(p.rounded.hidden);
  std::rotate(before.begin(), before.begin() + source_channels, before.end());
  using distill = linear_distillation<bfloat16>;
  using distill_sources = with_teacher_classifier<with_classifier<distill, TestType>, TestType>;
  check_sources(p, distillation_call<distill_sources, TestType>(p.rounded, before),
                distillation_call<distill, rows>(p.rounded, before));
  check_sources(p, distillation_call<distill_sources, TestType, true>(p.rounded, before),
                distillation_call<distill, rows, true>(p.rounded, before));
}
