// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The backward pass for some tokens by loss_gradient_parts: one launch for all parts of the vocabulary, whose tiles
/// wait for each other by counters.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/loss/detail/token_chunks.cuh>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/policy_of.hpp>
#include <tessera/exec/refusal.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/program/loss/detail/gradient_parts.cuh>
#include <tessera/program/loss/detail/part_items.hpp>
#include <tessera/program/loss/logit_gradient.cuh>
#include <tessera/program/loss/token_factors.hpp>
#include <tessera/tile/cuda/gemm_tile.cuh>
#include <tessera/tile/cuda/sm_90/tensor_map.cuh>
#include <tessera/tuning/loss/linear_loss.hpp>
#include <tessera/tuning/loss/part_costs.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Why loss_gradient_parts makes no gradients of these types, or none.
template <class Call>
constexpr refusal refuses_counted_types() {
  return first_of(unless(std::is_same_v<typename Call::gradient_type, float>, "gradients are not fp32"),
                  unless(leaves_logits<typename Call::map_type>, "logits go through a map"),
                  unless(Call::targets_type::are_labels, "targets are no labels"),
                  unless(!Call::layout::has_source, "the classifier is not in memory"));
}

/// The tiles of a call for so many tokens and entries of a part.
template <class Call>
loss_part_schedule schedule_of_parts(Call const& call, loss_chunk const& chunk) {
  return {static_cast<std::int32_t>(call.shape.vocabulary),
          static_cast<std::int32_t>(chunk.entries),
          static_cast<std::int32_t>(chunk.tokens),
          static_cast<std::int32_t>(call.shape.channels),
          call.out.hidden.data != nullptr,
          call.out.classifier.data != nullptr};
}

/// Whether 32 bits count the warps of all tiles.
inline bool can_count(loss_part_schedule const& schedule) {
  constexpr std::int64_t most = 0x7fffffff / loss_part_schedule::warps_of_tile;
  std::int64_t const of_channels = divide_up(std::int64_t{schedule.channels}, std::int64_t{schedule.columns});
  std::int64_t const across = divide_up(std::int64_t{schedule.entries}, std::int64_t{schedule.columns});
  return (across + of_channels) * schedule.token_panels() + across * 2 * of_channels < most / schedule.parts();
}

/// The launches for the types that there are such ones for.
template <class Architectures, class Call>
struct counted_parts {
  using value_type = typename Call::value_type;
  using boxes = loss_gradient_boxes_of_parts<value_type>;
  using epilogue_type = write_loss_gradient<value_type, typename Call::map_type, boxes>;
  using program_type = loss_gradient_parts<typename Call::layout::operand_name, epilogue_type,
                                           policy_of<warpgroup_loss_parts_tuning>(900)>;
  using product = typename program_type::product;
  static constexpr char const* where = "linear_loss.backward";

  basic_cuda<Architectures> const& exec;
  Call const& call;
  loss_part_schedule schedule;

  void run(std::int64_t blocks) const {
    auto const& regions = call.regions;
    auto const& space = call.space;
    prepare_counted_parts<value_type> const prepare{
        {call.tokens, space[regions.rows], call.hidden, nullptr, space[regions.factors], space[regions.unclean], {}},
        space[regions.counters]};
    exec.run(prepare, prepare.groups());
    matrix_view<value_type> const gradient{space[regions.gradient].data, {schedule.tokens, schedule.entries}};
    matrix_view<value_type const> const classifier = call.logits.classifier.matrix;
    constexpr box_shape product_box{product::shared_rows, product::box};
    float const* const scale = space[regions.late_scale].data;
    program_type const program{make_tensor_map(where, call.hidden, {warpgroup_gemm_shape::block_rows, product::box}),
                               make_tensor_map(where, classifier, {program_type::b_box_rows, product::box}),
                               make_tensor_map(where, gradient, {product::box, product::box}),
                               make_tensor_map(where, last_of(gradient), {product::box, product::box}),
                               make_tensor_map(where, call.hidden, product_box),
                               make_tensor_map(where, classifier, product_box),
                               schedule,
                               {space[regions.counters].data, schedule.token_panels()},
                               epilogue(gradient),
                               {call.out.classifier, nullptr, scale, call.out.accumulate_classifier},
                               {call.out.hidden, {}, scale, call.out.accumulate_hidden, false},
                               space[regions.unclean]};
    exec.run(program, blocks);
  }

 private:
  matrix_view<value_type> last_of(matrix_view<value_type> gradient) const {
    gradient.extents[1] = schedule.entries_of(schedule.parts() - 1);
    return gradient;
  }
  epilogue_type epilogue(matrix_view<value_type> gradient) const {
    return {{{{make_tensor_map(where, gradient, {boxes::box_rows, boxes::box_columns}),
               schedule.tokens,
               schedule.vocabulary,
               {}}},
             schedule.entries},
            {0, schedule.vocabulary, schedule.vocabulary, nullptr},
            call.space[call.regions.factors],
            call.logits.map,
            call.logits.scaling,
            nullptr,
            call.thresholds,
            call.smoothing,
            1.0F / static_cast<float>(schedule.vocabulary),
            call.has_entropies,
            {},
            {}};
  }
};

/// Why there are no such launches for a call of types that there are some for, or none.
template <class Architectures, class Call>
refusal refuses_counted_parts(basic_cuda<Architectures> const& exec, Call const& call) {
  loss_chunk const chunk = token_chunks<Call>{call}.extents();
  return first_of(unless(chunk.tokens < call.shape.tokens, "parts have all tokens"),
                  unless(call.out.bias.data == nullptr, "the gradient of a bias is wanted"),
                  unless(can_count(schedule_of_parts(call, chunk)), "counters of tiles exceed 32 bits"),
                  exec.template lacks<typename counted_parts<Architectures, Call>::program_type>());
}

/// Enqueues the launches.
template <class Architectures, class Call>
void run_counted_parts(basic_cuda<Architectures> const& exec, Call const& call, std::int64_t blocks) {
  token_chunks<Call> const chunks{call};
  chunks.each(chunks.extents(), [&](Call const& some) {
    counted_parts<Architectures, Call>{exec, some, schedule_of_parts(some, {some.shape.tokens, some.regions.entries})}
        .run(blocks);
  });
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
