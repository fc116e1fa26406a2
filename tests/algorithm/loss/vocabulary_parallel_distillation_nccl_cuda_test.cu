// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Distillation between classifiers that are spread over GPUs, by NCCL. One GPU is one rank; two are two, where they are
// there.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/algorithm/loss/sequence_parallel.hpp>
#include <tessera/algorithm/loss/vocabulary_parallel_distillation.hpp>
#include <tessera/algorithm/loss/with_logit_maps.hpp>
#include <tessera/comm/nccl.cuh>
#include <tessera/core/bfloat16.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/side_queue.hpp>
#include <tessera/map/forward_kl.hpp>
#include <tessera/map/jensen_shannon.hpp>
#include <tessera/map/reverse_kl.hpp>

#include "support/cuda.hpp"
#include "support/device_copies.cuh"
#include "support/distillation_runs.hpp"
#include "support/loss_maps.hpp"
#include "support/nccl_ranks.cuh"
#include "support/rank_parts.hpp"

using namespace tessera;
using namespace tessera_test;

namespace nccl_distillation {

/// The first entry of a rank: a third of the vocabulary and the rest.
std::int64_t first_of(int rank, int count, std::int64_t vocabulary) {
  return rank == 0 ? 0 : rank == count ? vocabulary : vocabulary / 3;
}

/// Hidden states of a rank: all, or its part of the tokens alone.
template <class Loss>
std::vector<bfloat16> own_states(std::vector<bfloat16> const& all, int rank, int count, std::int64_t channels) {
  std::int64_t const rows = static_cast<std::int64_t>(all.size()) / channels / (is_spread<Loss> ? count : 1);
  std::int64_t const first = is_spread<Loss> ? rank * rows : 0;
  return rows_between(all, first, first + rows, channels);
}

/// Runs both passes on a rank. `maps`: sets the maps of inputs, and gives the memory that they read.
template <class Loss, class Gradient, class Maps>
distillation_results<Gradient> run_rank(ncclComm_t comm, int rank, int count, distillation_problem<bfloat16> const& p,
                                        bool has_side, Maps const& maps) {
  using loss = Loss;
  own_stream const stream;
  cuda exec{.stream = stream.stream};
  exec.options.refuses_slower_programs = true;
  nccl ranks(comm);
  std::int64_t const first = first_of(rank, count, p.shape.vocabulary);
  std::int64_t const end = first_of(rank + 1, count, p.shape.vocabulary);
  auto s = p.shape;
  s.vocabulary = end - first;
  std::int64_t const own_tokens = is_spread<loss> ? s.tokens / count : s.tokens;
  auto const own_hidden = own_states<loss>(p.hidden, rank, count, s.channels);
  auto const hidden = to_device(exec, own_hidden);
  auto const teacher_hidden = to_device(exec, own_states<loss>(p.teacher_hidden, rank, count, s.teacher_channels));
  auto const rows = to_device(exec, rows_between(p.classifier, first, end, s.channels));
  auto const teacher_rows = to_device(exec, rows_between(p.teacher_classifier, first, end, s.teacher_channels));
  auto const bias = to_device(exec, rows_between(p.bias, first, end, 1));
  auto const weights = to_device(exec, p.weights);
  typename loss::inputs in{{hidden.data(), {own_tokens, s.channels}},
                           {rows.data(), {s.vocabulary, s.channels}},
                           {teacher_hidden.data(), {own_tokens, s.teacher_channels}},
                           {teacher_rows.data(), {s.vocabulary, s.teacher_channels}},
                           weights.view()};
  in.bias = bias.view();
  auto const held = maps(exec, in);
  static_cast<void>(held);
  auto value = to_device(exec, std::vector<float>(1, NAN));
  auto divergence = to_device(exec, std::vector<float>(static_cast<std::size_t>(s.tokens), NAN));
  auto by_hidden = to_device(exec, std::vector<Gradient>(own_hidden.size(), store<Gradient>(NAN)));
  auto by_rows =
      to_device(exec, std::vector<Gradient>(static_cast<std::size_t>(s.vocabulary * s.channels), store<Gradient>(NAN)));
  auto by_bias = to_device(exec, std::vector<Gradient>(static_cast<std::size_t>(s.vocabulary), store<Gradient>(NAN)));
  auto const plan = loss::template plan_backward<Gradient>(exec, count, s, p.options);
  auto memory = to_device(exec, std::vector<std::byte>(static_cast<std::size_t>(plan.bytes()), std::byte{0xff}));
  workspace const space(plan, memory);
  vocabulary_part const part{first, p.shape.vocabulary};
  loss::forward(exec, ranks, in, part, p.options, {value.view(), divergence.view()}, space);
  linear_loss_gradients<Gradient> const out{
      {by_hidden.data(), {own_tokens, s.channels}}, {by_rows.data(), {s.vocabulary, s.channels}}, by_bias.view()};
  side_queue<cuda> const side(exec, loss::side_marks, true);
  if (has_side) {
    loss::backward(exec, side, ranks, in, part, p.options, {}, out, space);
  } else {
    loss::backward(exec, ranks, in, part, p.options, {}, out, space);
  }
  distillation_results<Gradient> found{to_host(exec, value), to_host(exec, divergence), to_host(exec, by_hidden),
                                       to_host(exec, by_rows), to_host(exec, by_bias)};
  exec.wait();
  ranks.check_now();
  return found;
}

template <class Loss, class D, class Gradient, class Maps>
void check_loss(nccl_communicators const& comms, int count, distillation_problem<bfloat16> const& p, double tolerance,
                Maps const& maps) {
  auto const expected = reference_distillation(p, divergence_kind_of<D>);
  for (bool const has_side : {false, true}) {
    CAPTURE(count, p.shape.tokens, p.shape.vocabulary, has_side);
    std::vector<distillation_results<Gradient>> all(static_cast<std::size_t>(count));
    auto const thrown = on_nccl_ranks(comms, count, [&](ncclComm_t comm, int rank) {
      all[static_cast<std::size_t>(rank)] = run_rank<Loss, Gradient>(comm, rank, count, p, has_side, maps);
    });
    std::vector<Gradient> hidden;
    std::vector<Gradient> classifier;
    std::vector<Gradient> bias;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      REQUIRE(thrown[rank] == "");
      CHECK(worst_divergence(p, all[rank], expected) <= 1e-5);
      CHECK(all[rank].loss == all[0].loss);
      CHECK(all[rank].divergence == all[0].divergence);
      if constexpr (is_spread<Loss>) {
        hidden.insert(hidden.end(), all[rank].hidden.begin(), all[rank].hidden.end());
      } else {
        CHECK(relative_distance(all[rank].hidden, doubles_of(all[0].hidden)) == 0);
        hidden = all[rank].hidden;
      }
      classifier.insert(classifier.end(), all[rank].classifier.begin(), all[rank].classifier.end());
      bias.insert(bias.end(), all[rank].bias.begin(), all[rank].bias.end());
    }
    CHECK(relative_distance(hidden, expected.hidden) <= tolerance);
    CHECK(relative_distance(classifier, expected.classifier) <= tolerance);
    CHECK(relative_distance(bias, expected.bias) <= 2 * tolerance);
  }
}

/// With hidden states on all ranks and, where tokens can be shared, with spread ones.
template <class Whole, class D, class Gradient, class Maps>
void check(nccl_communicators const& comms, int count, distillation_problem<bfloat16> const& p, double tolerance,
           Maps const& maps) {
  using loss = vocabulary_parallel<Whole>;
  check_loss<loss, D, Gradient>(comms, count, p, tolerance, maps);
  if (p.shape.tokens % count == 0) {
    check_loss<sequence_parallel<loss>, D, Gradient>(comms, count, p, tolerance, maps);
  }
}

void check_all(int count) {
  nccl_communicators const comms(count);
  auto const no_maps = [](cuda const&, auto&) { return 0; };
  for (distillation_shape const& shape : {distillation_shape{1, 9, 8, 16}, {130, 777, 64, 40}, {200, 1501, 72, 64}}) {
    auto p = make_distillation_problem<bfloat16>(shape, true);
    add_biases(p);
    p.teacher_bias.clear();
    p.options.temperature = 1.5F;
    p.options.softcap = 4.0F;
    p.options.workspace_budget = shape.tokens == 200 ? std::int64_t{2} << 20 : 0;  // several parts
    check<linear_distillation<bfloat16, forward_kl>, forward_kl, float>(comms, count, p, 5e-3, no_maps);
    check<linear_distillation<bfloat16, reverse_kl>, reverse_kl, bfloat16>(comms, count, p, 9e-3, no_maps);
    check<linear_distillation<bfloat16, jensen_shannon>, jensen_shannon, bfloat16>(comms, count, p, 9e-3, no_maps);
    auto const heat = heat_of(shape.tokens, 2.0F);
    p.map = in_double(heat);
    using mapped = with_logit_maps<linear_distillation<bfloat16, forward_kl>, heated_by_token>;
    check<mapped, forward_kl, float>(comms, count, p, 5e-3, [&](cuda const& exec, auto& in) {
      auto there = to_device(exec, heat);
      in.map = {there.view(), 2.0F};
      return there;
    });
  }
}

}  // namespace nccl_distillation

TEST_CASE("distillation on one GPU is that on ranks of NCCL", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  nccl_distillation::check_all(1);
}

TEST_CASE("distillation between classifiers on two GPUs, by NCCL, is that between the whole ones", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  if (device_count() < 2) {
    report_skip("distillation on several GPUs wants two, and there is one");
    SUCCEED("skipped");
    return;
  }
  nccl_distillation::check_all(2);
}
