// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Gradients of the loss of a linear classifier by mma.sync, from sm_80 on: for operands of 16 bits, filters with
/// blocks of 128 x 128, and rows of hidden states, of the classifier and of their gradients that begin and end at
/// multiples of 16 bytes. Entries keep their order. Where the forward pass has kept softmaxes, their part of the
/// vocabulary has no product but those with the gradient by the logits.
#pragma once

#include <cstdint>

#include <tessera/algorithm/loss/detail/part_walk.hpp>
#include <tessera/algorithm/loss/detail/token_chunks.cuh>
#include <tessera/algorithm/loss/detail/write_bias.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/refusal.hpp>
#include <tessera/program/gemm/gemm_ring.cuh>
#include <tessera/program/loss/block_lists.hpp>
#include <tessera/program/loss/detail/signed_references.hpp>
#include <tessera/program/loss/gradient_ring.cuh>
#include <tessera/program/loss/kept_softmaxes.hpp>
#include <tessera/program/loss/logit_gradient.cuh>
#include <tessera/program/loss/token_factors.hpp>
#include <tessera/tile/cuda/sm_80/row_boxes.cuh>
#include <tessera/tile/gemm_schedule.hpp>
#include <tessera/tile/row_chunks.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tuning/loss/linear_loss.hpp>
#include <tessera/tuning/loss/part_costs.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// The launches of one call. UsesSoftmaxes: whether the forward pass has kept softmaxes for them.
template <class Architectures, class Call, bool UsesSoftmaxes>
struct ring_loss_gradients {
  using value_type = typename Call::value_type;
  using gradient_type = typename Call::gradient_type;
  using operand = typename Call::layout::operand_name;
  using boxes = row_boxes<value_type>;
  using epilogue_type = write_loss_gradient<value_type, typename Call::map_type, boxes>;
  /// The program that makes gradients by logits.
  using make_gradient =
      gemm_ring<operand, dense_schedule, epilogue_type, loss_ring_policy(sizeof(typename boxes::scratch_type) / 64)>;
  /// The program that multiplies them.
  using multiply = gradient_ring<operand, gradient_type, loss_ring_policy(sizeof(sum_staging) / 64)>;
  /// The same for kept softmaxes, whose part has sums of very different lengths.
  using multiply_by_length = gradient_ring<operand, gradient_type, loss_ring_policy(sizeof(sum_staging) / 64), true>;

  basic_cuda<Architectures> const& exec;
  Call const& call;

  /// Why these launches do not take the call, or none.
  [[nodiscard]] refusal refuses() const {
    constexpr std::int64_t most = 0x7fffffff - 512;  // coordinates of tiles are 32-bit
    auto const& shape = call.shape;
    return first_of(
        exec.template lacks<make_gradient>(), exec.template lacks<multiply>(),
        unless(shape.tokens > 0 && shape.channels > 0, "there are no tokens or no channels"),
        unless(shape.tokens < most && shape.vocabulary < most && shape.channels < most, "extents exceed 31 bits"),
        unless(dense_chunks<value_type>::suits(call.hidden),
               "rows of hidden states do not begin and end at multiples of 16 bytes"),
        unless(dense_chunks<value_type>::suits(call.classifier_in_memory()),
               "rows of the classifier do not begin and end at multiples of 16 bytes"),
        unless(is_writable(call.out.hidden), "rows of hidden states' gradient do not begin at multiples of 16 bytes"),
        unless(is_writable(call.out.classifier),
               "rows of the classifier's gradient do not begin at multiples of 16 bytes"));
  }

  /// Enqueues all launches: for all tokens together, or where memory is short for some of them after the others.
  void run() const {
    if (!call.regions.is_apart) {
      return run_tokens();
    }
    token_chunks<Call> const chunks{call};
    chunks.each(chunks.extents(), [&](Call const& some) { ring_loss_gradients{exec, some}.run_tokens(); });
  }

 private:
  using part_type = loss_gradient_part<value_type>;

  void run_tokens() const {
    auto const& regions = call.regions;
    auto const& space = call.space;
    make_loss_factors<value_type> const prepare{call.tokens,
                                                space[regions.rows],
                                                call.hidden,
                                                nullptr,
                                                space[regions.factors],
                                                space[regions.unclean],
                                                space[regions.kept_blocks()]};
    exec.run(prepare, prepare.groups());
    if constexpr (UsesSoftmaxes) {
      use_softmaxes();
    }
    std::int64_t const begin = UsesSoftmaxes ? regions.kept : regions.first_entry;
    part_walk const walk = part_walk::of(begin, entries_of_part(), regions.end_entry, is_awaited());
    for (std::int64_t first = begin; first < regions.end_entry; first = walk.end_of(first)) {
      std::int64_t const count = walk.end_of(first) - first;
      bool const is_short = walk.is_short(first) || first + count < call.shape.vocabulary;
      std::int64_t const entries = is_short ? count : walk.entries;
      bool const is_like_last_one = first > walk.first_whole() && count == walk.entries;
      run_part({first, entries, call.shape.vocabulary, nullptr, nullptr},
               first_entries_of(regions.part(space, call.shape, first), count), is_like_last_one);
    }
  }

  static bool is_writable(matrix_view<gradient_type> target) {
    return target.data == nullptr || row_chunks<gradient_type const>{target}.is_aligned();
  }
  [[nodiscard]] std::int64_t workers() const {
    return std::int64_t{exec.state->multiprocessors()} * make_gradient::blocks_per_multiprocessor;
  }
  static std::int32_t tiles_of(std::int64_t extent, int size) {
    return static_cast<std::int32_t>(divide_up(extent, std::int64_t{size}));
  }

  /// Where the workspace has room for the whole vocabulary, it has none for sums between parts.
  [[nodiscard]] std::int64_t entries_of_part() const {
    std::int64_t const most = call.regions.entries;
    loss_part_extents const largest{call.shape.tokens, call.shape.channels, most};
    auto const costs = loss_part_costs::of_rings(multiply::channels, workers());
    return most >= call.shape.vocabulary ? most : costs.cheapest_entries(largest, multiply::rows);
  }

  /// Whether somebody waits for the gradient of hidden states.
  [[nodiscard]] bool is_awaited() const { return call.progress.is_wanted() && call.out.hidden.data != nullptr; }

  /// `is_like_last_one`: whether the part before has as many entries, so that it has the same lists where nothing is
  /// left out.
  void run_part(loss_part_range const& range, part_type const& part, bool is_like_last_one) const {
    convert_part(exec, call, rows_in_order{part.first}, part.gradient.extent(1));
    make(range, part);
    use_part(range, part, call.leaves_out() || !is_like_last_one);
  }

  /// Enqueues the part whose softmaxes forward() has kept: its gradient by the logits needs no product.
  void use_softmaxes() const {
    auto const& regions = call.regions;
    auto const& space = call.space;
    part_type const part = regions.kept_part(space, call.shape);
    kept_softmaxes<value_type> const kept = regions.kept_in(space, call.shape);
    prepare_softmaxes<value_type, references_in_signs> const prepare{kept,
                                                                     space[regions.factors],
                                                                     call.tokens.row_of,
                                                                     space[regions.targets],
                                                                     call.logits.scaling,
                                                                     {call.hidden},
                                                                     {regions.scaled_hidden_of(space, call.shape)},
                                                                     part.kept_for_hidden,
                                                                     part.kept_for_classifier,
                                                                     call.status,
                                                                     !Call::targets_type::are_labels};
    exec.run(prepare, prepare.groups());
    exec.run(set_softmaxes{kept.state, kept.none}, 1);
    use_part({0, regions.kept, call.shape.vocabulary, nullptr, nullptr}, part, true);
  }
  /// Whether a part is the one whose softmaxes are kept.
  [[nodiscard]] bool is_kept(part_type const& part) const { return UsesSoftmaxes && part.first < call.regions.kept; }

  /// Enqueues the products of a part whose gradient by the logits is made, and the sums of its bias gradient.
  void use_part(loss_part_range const& range, part_type const& part, bool needs_lists) const {
    if constexpr (!Call::targets_type::are_labels) {
      call.targets.correct(exec, call, range, part, nullptr,
                           is_kept(part) ? call.space[call.regions.factors].data : nullptr);
    }
    sum_columns(exec, call, part, is_kept(part));
    std::int32_t const of_classifier = call.out.classifier.data != nullptr ? tiles_of(part.gradient.extent(1), 256) : 0;
    std::int32_t const of_hidden = call.out.hidden.data != nullptr ? tiles_of(call.shape.tokens, 256) : 0;
    if (!is_awaited() || !is_last(call, part)) {
      multiply_part(range, part, of_classifier, of_hidden, needs_lists, workers());
      return;
    }
    multiply_part(range, part, 0, of_hidden, true, workers());
    call.progress.tell(call.shape.tokens);
    std::int64_t const spared =
        std::int64_t{call.progress.spared_multiprocessors} * make_gradient::blocks_per_multiprocessor;
    multiply_part(range, part, of_classifier, 0, true, max(workers() - spared, workers() / 2));
  }

  /// Enqueues products of a part: of so many panels of the classifier and of hidden states.
  void multiply_part(loss_part_range const& range, part_type const& part, std::int32_t classifier_panels,
                     std::int32_t hidden_panels, bool needs_lists, std::int64_t most_workers) const {
    auto const& regions = call.regions;
    auto const& space = call.space;
    loss_product_schedule schedule{
        space[regions.list_counts].data,
        space[regions.lists].data,
        classifier_panels,
        hidden_panels,
        tiles_of(call.shape.channels, multiply::channels),
        static_cast<std::int32_t>(regions.token_blocks),
        static_cast<std::int32_t>(regions.entry_blocks()),
        band,
    };
    if (schedule.count() == 0) {
      return;
    }
    if (is_kept(part)) {
      constexpr std::int64_t most_turns = 1 << 16;  // so that places, turns of all workers, are 32-bit
      std::int64_t const of_hidden = divide_up(part.gradient.extent(1), std::int64_t{128});
      std::int64_t const longer = max(of_hidden, regions.token_blocks);
      schedule.turns_of_long =
          static_cast<std::int32_t>(min(longer / min(of_hidden, regions.token_blocks), most_turns));
      schedule.is_hidden_first = of_hidden > regions.token_blocks;
    }
    if (needs_lists) {
      list_loss_blocks const lists{range,
                                   schedule,
                                   space[regions.list_counts],
                                   space[regions.lists],
                                   part.kept_for_hidden,
                                   part.kept_for_classifier,
                                   space[regions.unclean]};
      exec.run(lists, lists.groups());
    }
    if constexpr (UsesSoftmaxes) {
      if (is_kept(part)) {
        return add_products<multiply_by_length>(range, part, schedule, most_workers);
      }
    }
    add_products<multiply>(range, part, schedule, most_workers);
  }

  void make(loss_part_range const& range, part_type const& part) const {
    epilogue_type const epilogue{{part.gradient},
                                 range,
                                 call.space[call.regions.factors],
                                 call.logits.map,
                                 call.logits.scaling,
                                 nullptr,
                                 call.thresholds,
                                 call.smoothing,
                                 1.0F / static_cast<float>(call.shape.vocabulary),
                                 call.has_entropies,
                                 part.kept_for_hidden,
                                 part.kept_for_classifier};
    dense_schedule const schedule{{tiles_of(call.shape.tokens, make_gradient::rows),
                                   tiles_of(part.gradient.extent(1), make_gradient::columns), band},
                                  tiles_of(call.shape.channels, make_gradient::depth)};
    make_gradient const program{{call.hidden}, {classifier_of(call, part)}, schedule, epilogue};
    exec.run(program, min(workers(), schedule.order.count()));
  }

  template <class Products>
  void add_products(loss_part_range const& range, part_type const& part, loss_product_schedule const& schedule,
                    std::int64_t most_workers) const {
    auto const& space = call.space;
    matrix_view<value_type const> gradient = part.gradient;
    gradient.extents[1] = divide_up(gradient.extent(1), std::int64_t{8}) * 8;  // with zeros, see row_boxes
    float const* const scale = space[call.regions.late_scale].data;
    Products const program{
        {gradient},
        {is_kept(part) ? call.regions.scaled_hidden_of(space, call.shape) : call.hidden},
        {classifier_of(call, part)},
        schedule,
        range,
        {call.out.classifier, nullptr, scale, call.out.accumulate_classifier},
        {call.out.hidden, call.regions.remains_of(space, call.shape), scale, call.out.accumulate_hidden, is_kept(part)},
        space[call.regions.factors]};
    exec.run(program, min(most_workers, std::int64_t{2} * schedule.count()));
  }

  static constexpr std::int32_t band = 8;  ///< rows of tiles that are taken together
};

/// Why there is no program by mma.sync that makes these gradients, or none. Blocks: a loss_gradient_tiles.
template <class Blocks>
constexpr refusal refuses_ring_gradient_types() {
  return first_of(unless(sizeof(typename Blocks::value_type) == 2, "operands do not have 16 bits"),
                  unless(Blocks::block_rows == 128 && Blocks::block_columns == 128, "the tile is not of 128 by 128"));
}

/// Whether a source is compiled for other GPUs than those of sm_90, whose own programs keep softmaxes.
template <Executor Exec>
inline constexpr bool may_keep_by_rings = false;
template <class Architectures>
inline constexpr bool may_keep_by_rings<basic_cuda<Architectures>> = may_have_architecture(Architectures{}, 0, 900) ||
                                                                     may_have_architecture(Architectures{}, 901,
                                                                                           0x7fffffff);

}  // namespace detail

/// Whether the device's forward pass writes references of kept softmaxes into signs: where sm_90a's programs do not
/// run.
template <class Architectures>
bool has_references_in_signs(basic_cuda<Architectures> const& exec) {
  using executor = basic_cuda<Architectures>;
  return detail::may_keep_by_rings<executor> &&
         (!executor::template is_compiled_for<900> || exec.state->architecture() != 900);
}

/// The launches by mma.sync, from sm_80 on, where softmaxes are kept.
struct loss_gradient_of_kept_by_ring_model {
  static constexpr char const* name = "prepare_softmaxes, and gradient_ring (cp.async, mma.sync)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return first_of(detail::refuses_ring_gradient_types<typename Call::blocks>(),
                    unless(detail::may_keep_by_rings<Exec>, "this source is compiled for sm_90 alone"),
                    unless(leaves_logits<typename Call::map_type>, "a map changes logits: no softmaxes are kept"),
                    unless(!Call::layout::has_source, "the classifier is a source: no softmaxes are kept"));
  }
  template <class Architectures, class Call>
  static refusal refuses(basic_cuda<Architectures> const& exec, Call const& call) {
    return first_of(
        unless(!call.leaves_out(), "small parts of gradients are left out: no softmaxes are kept"),
        unless(call.smoothing == 0.0F, "labels are smoothed: no softmaxes are kept"),
        unless(call.regions.kept > 0, "workspace_budget has no room for softmaxes, or none are kept of this Reducer"),
        unless(has_references_in_signs(exec), "softmaxes are kept by another program"),
        detail::ring_loss_gradients<Architectures, Call, true>{exec, call}.refuses());
  }
  template <class Architectures, class Call>
  static void run(basic_cuda<Architectures> const& exec, Call const& call) {
    detail::ring_loss_gradients<Architectures, Call, true>{exec, call}.run();
  }
};

/// The launches by mma.sync, from sm_80 on.
struct loss_gradient_by_ring_model {
  static constexpr char const* name = "logit_gradient by gemm_ring, and gradient_ring (cp.async, mma.sync)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return detail::refuses_ring_gradient_types<typename Call::blocks>();
  }
  template <class Architectures, class Call>
  static refusal refuses(basic_cuda<Architectures> const& exec, Call const& call) {
    return detail::ring_loss_gradients<Architectures, Call, false>{exec, call}.refuses();
  }
  template <class Architectures, class Call>
  static void run(basic_cuda<Architectures> const& exec, Call const& call) {
    detail::ring_loss_gradients<Architectures, Call, false>{exec, call}.run();
  }
};

}  // namespace v0
}  // namespace tessera
