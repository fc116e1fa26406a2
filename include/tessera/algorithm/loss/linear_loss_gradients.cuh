// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Gradients of the loss of a linear classifier on sm_90a, for operands of 16 bits, filters with blocks of 128 x 128,
/// and rows that begin at multiples of 16 bytes. Else linear_loss_gradients_by_ring.cuh has them, or portable programs.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/loss/detail/counted_parts.cuh>
#include <tessera/algorithm/loss/detail/order_entries.hpp>
#include <tessera/algorithm/loss/detail/part_walk.hpp>
#include <tessera/algorithm/loss/detail/token_chunks.cuh>
#include <tessera/algorithm/loss/detail/write_bias.hpp>
#include <tessera/algorithm/loss/linear_loss_gradients.hpp>
#include <tessera/algorithm/loss/linear_loss_gradients_by_ring.cuh>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/logit_map.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/policy_of.hpp>
#include <tessera/exec/refusal.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/program/gemm/gemm_pingpong.cuh>
#include <tessera/program/loss/block_lists.hpp>
#include <tessera/program/loss/entry_order.hpp>
#include <tessera/program/loss/gradient_products.cuh>
#include <tessera/program/loss/kept_softmaxes.hpp>
#include <tessera/program/loss/logit_gradient.cuh>
#include <tessera/program/loss/token_factors.hpp>
#include <tessera/tile/cuda/gemm_tile.cuh>
#include <tessera/tuning/gemm/linear.hpp>
#include <tessera/tuning/loss/linear_loss.hpp>
#include <tessera/tuning/loss/part_costs.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// The launches of one call.
template <class Architectures, class Call>
struct warpgroup_loss_gradients {
  using value_type = typename Call::value_type;
  using gradient_type = typename Call::gradient_type;
  using regions_type = typename Call::regions_type;
  static constexpr warpgroup_gemm_policy policy = policy_of<warpgroup_loss_gradient_tuning>(900);
  using epilogue_type = write_loss_gradient<value_type, typename Call::map_type>;
  /// Whether parts may be of little memory, which have short sums: launches of fp32 gradients begin early.
  static constexpr bool begins_early = std::is_same_v<gradient_type, float>;
  using schedule_type = std::conditional_t<begins_early, early_loss_tiles, loss_tiles_of_part>;
  using make_gradient = gemm_pingpong<typename Call::layout::operand_name, schedule_type, epilogue_type, policy>;
  static constexpr warpgroup_gemm_policy product_policy = policy_of<warpgroup_loss_product_tuning>(900);
  using multiply =
      loss_gradient_products<typename Call::layout::operand_name, gradient_type, product_policy, begins_early>;
  /// Whether parts may have wider tiles: gradients of 16 bits, of a loss that leaves nothing out.
  static constexpr bool has_wide_tiles = !begins_early && regions_type::filter::threshold == 0.0F;
  static constexpr warpgroup_gemm_policy wide_policy =
      has_wide_tiles ? policy_of<wide_warpgroup_loss_product_tuning>(900) : product_policy;
  using multiply_widely =
      loss_gradient_products<typename Call::layout::operand_name, gradient_type, wide_policy, begins_early>;
  static constexpr char const* where = "linear_loss.backward";

  basic_cuda<Architectures> const& exec;
  Call const& call;
  std::int64_t blocks;  ///< thread blocks of a launch that fills the device
  bool is_ordered;      ///< whether only entries that the forward pass has marked are taken, in order of their use

  /// Why these launches do not take the call, or none.
  [[nodiscard]] refusal refuses() const {
    constexpr std::int64_t most = 0x7fffffff - 512;  // coordinates of tiles are 32-bit
    auto const& shape = call.shape;
    return first_of(
        unless(shape.tokens > 0 && shape.channels > 0, "there are no tokens or no channels"),
        unless(shape.tokens < most && shape.vocabulary < most, "extents exceed 31 bits"),
        unless(can_map(call.hidden), "TMA cannot load hidden states: rows begin at multiples of 16 bytes"),
        unless(can_map(call.classifier_in_memory()),
               "TMA cannot load the classifier: rows begin at multiples of 16 bytes"),
        unless(is_writable(call.out.hidden), "rows of hidden states' gradient do not begin at multiples of 16 bytes"),
        unless(is_writable(call.out.classifier),
               "rows of the classifier's gradient do not begin at multiples of 16 bytes"),
        exec.template lacks<multiply>());
  }

  /// Enqueues all launches: for all tokens together, or where memory is short for some of them after the others.
  void run() const {
    token_chunks<Call> const chunks{call};
    if (!chunks.are_wanted()) {
      return run_tokens();
    }
    chunks.each(chunks.extents(), [&](Call const& some) {
      warpgroup_loss_gradients{exec, some, blocks, false}.run_tokens();
    });
  }

 private:
  using part_type = loss_gradient_part<value_type>;

  void run_tokens() const {
    auto const& regions = call.regions;
    auto const& space = call.space;
    if (is_ordered) {
      order_entries(exec, call);
    }
    prepare_loss_parts<value_type> const prepare{
        {call.tokens, space[regions.rows], call.hidden, is_ordered ? space[regions.slot_of].data : nullptr,
         space[regions.factors], space[regions.unclean], space[regions.kept_blocks()]},
        {range_from(begin(), regions.entries), is_ordered ? alive_blocks_of(call) : matrix_view<std::uint8_t>{},
         regions.token_blocks, make_gradient::columns, policy.band, tile_lists(), space[regions.tile_count]}};
    exec.run(prepare, prepare.groups());
    operand_maps const maps = map_operands();
    if (regions.kept > 0) {
      use_softmaxes(maps);
    }
    part_walk const walk = parts();
    for (std::int64_t first = begin(); first < regions.end_entry; first = walk.end_of(first)) {
      run_part(first_entries_of(regions.part(space, call.shape, first), walk.end_of(first) - first), maps);
    }
  }

  static constexpr box_shape made_box{make_gradient::b_box_rows, make_gradient::depth};
  static constexpr box_shape product_box{multiply::shared_rows, multiply::box};

  /// Tensor maps of operands that all parts have in common; each map is a call of the driver.
  struct operand_maps {
    tensor_map hidden;              ///< for the product that makes logits
    tensor_map gathered;            ///< for that product, where entries are taken in another order
    tensor_map hidden_of_products;  ///< for products with the gradient by the logits
    tensor_map gathered_of_products;
  };
  [[nodiscard]] operand_maps map_operands() const {
    operand_maps maps{};
    maps.hidden = make_tensor_map(where, call.hidden, {warpgroup_gemm_shape::block_rows, make_gradient::depth});
    maps.hidden_of_products = make_tensor_map(where, call.hidden, product_box);
    if (is_ordered) {
      maps.gathered = make_tensor_map(where, gathered(), made_box);
      maps.gathered_of_products = make_tensor_map(where, gathered(), product_box);
    }
    return maps;
  }

  static bool is_writable(matrix_view<gradient_type> target) { return target.data == nullptr || can_map(target); }

  /// Enqueues the part whose softmaxes forward() has kept: its gradient by the logits needs no product.
  void use_softmaxes(operand_maps maps) const {
    auto const& regions = call.regions;
    auto const& space = call.space;
    part_type const part = regions.kept_part(space, call.shape);
    kept_softmaxes<value_type> const kept = regions.kept_in(space, call.shape);
    auto const scaled = regions.scaled_hidden_of(space, call.shape);
    prepare_softmaxes<value_type> const prepare{kept,
                                                space[regions.factors],
                                                call.tokens.row_of,
                                                space[regions.targets],
                                                call.logits.scaling,
                                                {call.hidden},
                                                {scaled},
                                                part.kept_for_hidden,
                                                part.kept_for_classifier,
                                                call.status,
                                                !Call::targets_type::are_labels};
    exec.run(prepare, prepare.groups());
    exec.run(set_softmaxes{kept.state, kept.none}, 1);
    maps.hidden_of_products = make_tensor_map(where, scaled, product_box);
    use_part(range_of(0), part, maps);
  }

  /// Whether somebody waits for the gradient of hidden states. Which part is the last one with a gradient, only the
  /// device knows where entries are taken in order of their use.
  [[nodiscard]] bool is_awaited() const {
    return call.progress.is_wanted() && call.out.hidden.data != nullptr && !is_ordered;
  }
  /// The first entry whose logits are made.
  [[nodiscard]] std::int64_t begin() const { return max(call.regions.kept, call.regions.first_entry); }
  [[nodiscard]] part_walk parts() const {
    return part_walk::of(begin(), call.regions.entries, call.regions.end_entry, is_awaited());
  }

  loss_part_range range_of(std::int64_t first) const {
    part_walk const walk = parts();
    std::int64_t const entries = walk.is_short(first) ? walk.end_of(first) - first : call.regions.entries;
    return range_from(first, first < call.regions.kept ? call.regions.kept : entries);
  }
  loss_part_range range_from(std::int64_t first, std::int64_t entries) const {
    return {first, entries, call.shape.vocabulary, is_ordered ? call.space[call.regions.alive].data : nullptr,
            is_ordered ? call.space[call.regions.in_order].data : nullptr};
  }
  matrix_view<tile_coordinate> tile_lists() const {
    auto const& regions = call.regions;
    return {call.space[regions.tiles].data,
            {regions.parts, regions.hidden_panels(call.shape) * regions.tiles_across()}};
  }

  void run_part(part_type const& part, operand_maps const& maps) const {
    auto const& regions = call.regions;
    auto const& space = call.space;
    loss_part_range const range = range_of(part.first);
    if constexpr (Call::layout::has_source) {
      if (is_ordered) {
        convert_part(exec, call, rows_of_slots{range, space[regions.entry_of]}, regions.entries);
      } else {
        convert_part(exec, call, rows_in_order{part.first}, part.gradient.extent(1));
      }
    } else if (is_ordered) {
      gather_entries<value_type> const gather{range, space[regions.entry_of], call.logits.classifier.matrix,
                                              gathered()};
      exec.run(gather, gather.groups());
    }
    make(range, part, maps);
    use_part(range, part, maps);
  }

  /// Enqueues the products of a part whose gradient by the logits is made, and the sums of its bias gradient.
  void use_part(loss_part_range const& range, part_type const& part, operand_maps const& maps) const {
    auto const& regions = call.regions;
    auto const& space = call.space;
    if constexpr (!Call::targets_type::are_labels) {
      call.targets.correct(exec, call, range, part, is_ordered ? space[regions.slot_of].data : nullptr,
                           is_kept(part) ? space[regions.factors].data : nullptr);
    }
    sum_columns(exec, call, part, is_kept(part));
    if (is_awaited() && is_last(call, part)) {
      return multiply_and_tell(range, part, maps);
    }
    // Where nothing is left out, all whole parts have the same lists.
    bool const needs_lists =
        call.leaves_out() || part.first <= parts().first_whole() || part.gradient.extent(1) != regions.entries;
    multiply_part(
        {range, part, call.out, panels(part.gradient.extent(1)), 0, needs_lists, blocks, multiplies_widely(part)},
        maps);
  }

  /// Products of a part, or of some of its rows or columns.
  struct some_products {
    loss_part_range range;
    part_type part;
    linear_loss_gradients<gradient_type> out;
    std::int32_t classifier_panels;  ///< how many are multiplied, if the gradient of the classifier is wanted
    std::int64_t first_token;
    bool needs_lists;
    std::int64_t blocks;
    bool has_wide_tiles = false;
  };

  /// Enqueues the products of the last part, so that the gradient of hidden states is whole before others end: some of
  /// the classifier's come later, or, where there are none, those of some tokens.
  void multiply_and_tell(loss_part_range const& range, part_type const& part, operand_maps const& maps) const {
    std::int64_t const spared = min(std::int64_t{call.progress.spared_multiprocessors}, blocks / 2) / 2 * 2;
    std::int64_t const tokens = call.shape.tokens;
    std::int64_t const width = part.gradient.extent(1);
    auto const products =
        products_beside_reduction(call, width, channel_tiles(multiply::channels), blocks / 2, (blocks - spared) / 2);
    auto const late = static_cast<std::int32_t>(products.late_panels());
    std::int32_t const all = panels(width);
    std::int64_t const early = early_tokens(call, products);
    multiply_tokens({range, part, call.out, all - late, 0, true, blocks}, early, maps);
    if (early < tokens) {
      multiply_tokens({range, part, call.out, 0, early, true, blocks - spared}, tokens - early, maps);
    }
    if (late > 0) {
      std::int64_t const skipped = std::int64_t{all - late} * 256;
      some_products some{range, later_entries_of(part, skipped), call.out, late, 0, true, blocks - spared};
      some.range.first += skipped;
      some.range.entries -= skipped;
      some.out.hidden = {};
      multiply_part(some, maps);
    }
  }
  /// Enqueues products of which those of hidden states are of `count` tokens, and tells of these.
  void multiply_tokens(some_products some, std::int64_t count, operand_maps const& maps) const {
    some.part = tokens_of(some.part, some.first_token, count);
    some.out.hidden = rows_of(call.out.hidden, some.first_token, count);
    multiply_part(some, maps);
    call.progress.tell(some.first_token + count);
  }

  void multiply_part(some_products const& some, operand_maps const& maps) const {
    auto const& regions = call.regions;
    auto const& space = call.space;
    loss_product_schedule schedule{
        space[regions.list_counts].data,
        space[regions.lists].data,
        some.out.classifier.data != nullptr ? some.classifier_panels : 0,
        some.out.hidden.data != nullptr ? panels(some.part.gradient.extent(0)) : 0,
        channel_tiles(some.has_wide_tiles ? multiply_widely::channels : multiply::channels),
        static_cast<std::int32_t>(regions.token_blocks),
        static_cast<std::int32_t>(regions.entry_blocks()),
        some.has_wide_tiles ? wide_policy.band : product_policy.band,
    };
    order_by_length(some.part, schedule);
    list_loss_blocks const lists{some.range,
                                 schedule,
                                 space[regions.list_counts],
                                 space[regions.lists],
                                 some.part.kept_for_hidden,
                                 some.part.kept_for_classifier,
                                 space[regions.unclean]};
    if (some.needs_lists && schedule.count() > 0) {
      exec.run(lists, lists.groups());
    }
    if (some.has_wide_tiles) {
      add_products<multiply_widely>(some, schedule, maps);
    } else {
      add_products<multiply>(some, schedule, maps);
    }
  }

  /// Whether wide tiles cost less for a part.
  [[nodiscard]] bool multiplies_widely(part_type const& part) const {
    loss_part_extents const extents{call.shape.tokens, call.shape.channels, part.gradient.extent(1)};
    return has_wide_tiles && !call.leaves_out() && v0::multiplies_widely(extents);
  }

  /// Lets the tiles with the longer sums come first, where nothing is left out and some are much longer.
  void order_by_length(part_type const& part, loss_product_schedule& schedule) const {
    std::int64_t const of_classifier = call.regions.token_blocks;
    std::int64_t const of_hidden = divide_up(part.gradient.extent(1), std::int64_t{128});
    std::int64_t const shorter = max(min(of_classifier, of_hidden), std::int64_t{1});
    std::int64_t const ratio = max(of_classifier, of_hidden) / shorter;
    if (!call.leaves_out() && ratio > 1) {
      schedule.turns_of_long = static_cast<std::int32_t>(ratio);
      schedule.is_hidden_first = of_hidden > of_classifier;
    }
  }

  /// Whether a part is the one whose softmaxes are kept.
  [[nodiscard]] bool is_kept(part_type const& part) const { return part.first < call.regions.kept; }

  [[nodiscard]] std::int32_t channel_tiles(int columns) const {
    return static_cast<std::int32_t>(divide_up(call.shape.channels, std::int64_t{columns}));
  }
  static std::int32_t panels(std::int64_t extent) {
    return static_cast<std::int32_t>(divide_up(extent, std::int64_t{256}));
  }

  void make(loss_part_range const& range, part_type const& part, operand_maps const& maps) const {
    auto const& regions = call.regions;
    auto const& space = call.space;
    using boxes = typename epilogue_type::boxes;
    boxes const target{{make_tensor_map(where, part.gradient, {boxes::box_rows, boxes::box_columns}),
                        static_cast<std::int32_t>(part.gradient.extent(0)),
                        static_cast<std::int32_t>(part.gradient.extent(1)),
                        {}}};
    epilogue_type const epilogue{target,
                                 range,
                                 space[regions.factors],
                                 call.logits.map,
                                 call.logits.scaling,
                                 is_ordered ? space[regions.entry_of].data : nullptr,
                                 call.thresholds,
                                 call.smoothing,
                                 1.0F / static_cast<float>(call.shape.vocabulary),
                                 call.has_entropies,
                                 part.kept_for_hidden,
                                 part.kept_for_classifier};
    std::int64_t const number = parts().number_of(part.first);
    tensor_map const classifier = make_tensor_map(where, classifier_of(call, part), made_box);
    loss_tiles_of_part const tiles{
        {&tile_lists()(number, 0), &space[regions.tile_count][number],
         static_cast<std::int32_t>(divide_up(call.shape.channels, std::int64_t{make_gradient::depth}))},
        range,
        classifier};
    auto const schedule = [&] {
      // Lists of tiles come before the part that is enqueued first, which need not be number 0 (part_walk), and rows of
      // the classifier before each.
      if constexpr (begins_early) {
        return early_loss_tiles{tiles, part.first == begin() || is_ordered || Call::layout::has_source};
      } else {
        return tiles;
      }
    }();
    make_gradient const program{maps.hidden, is_ordered ? maps.gathered : classifier, schedule, epilogue};
    exec.run(program, blocks);
  }

  /// Rows of the classifier: those of a source, or copies for a part where entries are taken in another order.
  matrix_view<value_type> gathered() const {
    auto const& regions = call.regions;
    if constexpr (Call::layout::has_source) {
      return regions.band_rows(call.space, call.shape, regions.entries);
    }
    return {
        call.space[regions.gathered].data, {regions.entries, call.shape.channels}, {regions.row_stride(call.shape), 1}};
  }

  template <class Products>
  void add_products(some_products const& some, loss_product_schedule const& schedule, operand_maps const& maps) const {
    auto const& regions = call.regions;
    auto const& space = call.space;
    part_type const& part = some.part;
    constexpr box_shape box{Products::box, Products::box};
    tensor_map const classifier = make_tensor_map(where, classifier_of(call, part), product_box);
    float const* const scale = space[regions.late_scale].data;
    auto remains = regions.remains_of(space, call.shape);
    if (regions.has_remains) {
      remains.data += some.first_token * remains.stride(0);
    }
    auto const factors = space[regions.factors];
    Products const program{make_tensor_map(where, part.gradient, box),
                           maps.hidden_of_products,
                           classifier,
                           is_ordered ? maps.gathered_of_products : classifier,
                           schedule,
                           some.range,
                           {call.out.classifier, is_ordered ? space[regions.entry_of].data : nullptr, scale,
                            call.out.accumulate_classifier},
                           {some.out.hidden, remains, scale, call.out.accumulate_hidden, is_kept(part)},
                           {&factors[some.first_token], part.gradient.extent(0)}};
    exec.run(program, some.blocks);
  }
};

/// Why there is no program for sm_90a that makes these gradients, or none. Blocks: a loss_gradient_tiles.
template <Executor Exec, class Blocks>
constexpr refusal refuses_gradient_types() {
  return first_of(unless(Exec::template is_compiled_for<900>, "this source is not compiled for sm_90a"),
                  unless(sizeof(typename Blocks::value_type) == 2, "operands do not have 16 bits"),
                  unless(Blocks::block_rows == 128 && Blocks::block_columns == 128, "the tile is not of 128 by 128"));
}

}  // namespace detail

/// Whether the executor orders entries by how many blocks of tokens they matter to: on sm_90a, for operands of 16 bits.
template <class Architectures, class Blocks>
constexpr bool orders_entries(basic_cuda<Architectures> const&, std::type_identity<Blocks>) {
  return !detail::refuses_gradient_types<basic_cuda<Architectures>, Blocks>();
}

/// Whether the executor keeps softmaxes where there is memory for them: for operands of 16 bits.
template <class Architectures, class Blocks>
constexpr bool keeps_softmaxes(basic_cuda<Architectures> const&, std::type_identity<Blocks>) {
  return !detail::refuses_ring_gradient_types<Blocks>();
}

namespace detail {

/// The launches of a call, for a model.
template <class Architectures, class Call>
warpgroup_loss_gradients<Architectures, Call> warpgroup_launches(basic_cuda<Architectures> const& exec,
                                                                 Call const& call) {
  return {exec, call, max(exec.state->multiprocessors() / 2, 1) * 2, can_order_entries(call)};
}

}  // namespace detail

/// One launch for all parts of some tokens, where memory is short.
struct loss_gradient_parts_model {
  static constexpr char const* name = "loss_gradient_parts (TMA, wgmma)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return first_of(detail::refuses_gradient_types<Exec, typename Call::blocks>(),
                    detail::refuses_counted_types<Call>());
  }
  template <class Architectures, class Call>
  static refusal refuses(basic_cuda<Architectures> const& exec, Call const& call) {
    refusal const why = detail::warpgroup_launches(exec, call).refuses();
    return why ? why : detail::refuses_counted_parts(exec, call);
  }
  template <class Architectures, class Call>
  static void run(basic_cuda<Architectures> const& exec, Call const& call) {
    detail::run_counted_parts(exec, call, detail::warpgroup_launches(exec, call).blocks);
  }
};

/// The launches for sm_90a, by wgmma, where TMA can load the operands.
struct loss_gradient_model {
  static constexpr char const* name = "logit_gradient and gradient_products (TMA, wgmma)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return detail::refuses_gradient_types<Exec, typename Call::blocks>();
  }
  template <class Architectures, class Call>
  static refusal refuses(basic_cuda<Architectures> const& exec, Call const& call) {
    return detail::warpgroup_launches(exec, call).refuses();
  }
  template <class Architectures, class Call>
  static void run(basic_cuda<Architectures> const& exec, Call const& call) {
    detail::warpgroup_launches(exec, call).run();
  }
};

/// The programs that CUDA devices have for this call.
template <class Architectures, class Regions, LogitMap Map, class Targets>
struct models_for<basic_cuda<Architectures>, loss_gradient_call<Regions, Map, Targets>> {
  /// The list of models.
  using type = model_list<loss_gradient_parts_model, loss_gradient_model, loss_gradient_of_kept_by_ring_model,
                          loss_gradient_by_ring_model>;
};

}  // namespace v0
}  // namespace tessera
