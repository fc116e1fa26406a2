// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `offload_plan`: how many bytes of device memory and of host memory an offloaded cache takes, and where its regions
/// lie in them; it is made before any memory is allocated.
///
///     auto const plan = shadow_kv::plan<bfloat16>(exec, shape, options);
///     plan.device.bytes();                               // on the device, for good
///     plan.host.bytes();                                 // pinned memory of the host
///     shadow_kv::plan_prefill(exec, plan).bytes();       // workspace of a prompt
///     shadow_kv::plan_decode(exec, plan).bytes();        // workspace of a step
///     plan.describe();                                   // a table for people
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/algorithm/offloaded_cache/key_store.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache_types.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>
#include <tessera/program/offloaded_cache/renew_directions.hpp>
#include <tessera/program/offloaded_cache/value_record.hpp>
#include <tessera/quantize/value_codec.hpp>
#include <tessera/select/chunk_landmarks.hpp>
#include <tessera/select/given_chunks.hpp>

namespace tessera {
inline namespace v0 {

namespace detail {

/// The regions of a cache.
template <class T, class E>
struct offload_regions {
  region<cached_sequence> sequences;
  region<E> landmarks;
  region<std::int16_t> chunk_slots;
  region<T> coefficients;
  region<T> directions;
  region<T> ring_keys;
  region<T> ring_values;
  region<T> ring_sources;
  region<T> exact_keys;
  region<T> exact_values;
  region<std::int32_t> exact_ids;
  region<float> exact_measures;
  region<T> slot_keys;
  region<T> slot_values;
  region<std::int32_t> slot_ids;
  region<std::int32_t> hands;
  region<chunk_usage> usage;
  region<float> gram;
  region<std::byte> values;
};

/// The regions of the workspace of a step.
template <class T>
struct offload_step_regions {
  region<std::int32_t> admitted;
  region<std::int32_t> listed;
  region<T> queries;
  region<float> scores;
  region<scaled_exponentials<float>> score_sums;
  region<std::int32_t> selected;
  region<std::int32_t> selected_slots;
  region<std::int32_t> selected_counts;
  region<missed_chunk> missed;
  region<std::int32_t> missed_counts;
  region<softmax_state<float>> states;
  region<float> totals;
  region<float> residuals;
  region<double> renewal;
};

}  // namespace detail

/// The most parts of a step; a part of more would be too small to fill a device.
inline constexpr int most_offload_parts = 4;

namespace detail {

/// What the key store and the selector of a plan say of themselves.
struct offload_traits {
  bool has_directions;      ///< whether keys are kept in directions
  bool renews;              ///< whether steps renew these
  bool takes_given_chunks;  ///< whether callers list the chunks
};

/// The regions of a cache with elements T and landmarks of elements E, whatever else its types are: plans of many types
/// share this code.
template <Scalar T, class E>
struct offload_plan_of_elements : offload_workspaces {
  offload_extents extents;               ///< heads, channels and chunks
  offload_options options;               ///< the options that were asked for
  std::vector<std::int64_t> first_rows;  ///< the first chunk of each sequence, and the end of the last one
  std::int64_t elements;                 ///< elements of a landmark
  std::int64_t record_bytes;             ///< bytes of a chunk's values and of their parameters
  offload_traits traits;                 ///< what the plan's types say
  offload_regions<T, E> parts;           ///< regions of the cache
  offload_step_regions<T> step_parts;    ///< regions of `step`
  region<float> cosines;                 ///< least cosines of chunks, in `prompt`

  /// Adds the regions. `rows` has the first chunk of each sequence, and the end of the last one.
  offload_plan_of_elements(offload_extents const& n, offload_options const& chosen, std::vector<std::int64_t> rows,
                           std::int64_t landmark_elements, std::int64_t value_bytes, offload_traits const& of_types)
      : extents(n),
        options(chosen),
        first_rows(std::move(rows)),
        elements(landmark_elements),
        record_bytes(value_bytes),
        traits(of_types),
        parts(parts_of_cache()),
        step_parts(parts_of_step()),
        cosines(prompt.add<float>("least cosines of chunks", size(n.key_heads, n.longest))) {}

  /// The number of chunks that a sequence has room for.
  [[nodiscard]] std::int64_t capacity(std::int64_t sequence) const {
    auto const at = static_cast<std::size_t>(sequence);
    return first_rows[at + 1] - first_rows[at];
  }

  /// The rule by which steps renew directions.
  [[nodiscard]] renewal_rule rule() const {
    return {options.renewal_growth, traits.renews ? options.renewal_until : 0.0F};
  }

  /// The number of parts in which a step of so many sequences runs: up to four where values cross the bus, so that one
  /// part crosses while chunks of the next are chosen; one where values are on the device.
  [[nodiscard]] int parts_of(std::int64_t steps) const {
    return options.values == value_store::host
               ? static_cast<int>(clamp(steps, std::int64_t{1}, std::int64_t{most_offload_parts}))
               : 1;
  }

  /// A table of all regions and their bytes, to be read by people.
  [[nodiscard]] std::string describe() const {
    std::string const kept = extents.rank > 0 ? join(" in ", extents.rank, " directions") : std::string(" as they are");
    return join("offloaded_cache: keys of ", extents.width(), " channels of all heads", kept, "\n", device.describe(),
                host.describe(), prompt.describe(), step.describe());
  }

  /// The cache in blocks of at least the planned sizes. `store` holds values: the host's block, or nothing.
  [[nodiscard]] offloaded_memory<T, E> memory(array_view<std::byte> block, array_view<std::byte> store) const {
    workspace const on_device(device, block);
    workspace const on_host(host, store);
    bool const is_offloaded = options.values == value_store::host;
    offload_extents const& n = extents;
    auto const at = [&on_device](auto where) { return on_device[where].data; };
    offloaded_memory<T, E> made;
    made.sequences = on_device[parts.sequences];
    made.landmarks = {at(parts.landmarks), {n.rows, n.key_heads, elements}};
    made.chunk_slots = {at(parts.chunk_slots), {n.rows, n.key_heads}};
    made.coefficients = {at(parts.coefficients), {n.rows * n.chunk, n.rank}};
    made.directions = {at(parts.directions), {n.batch, n.width(), traits.has_directions ? n.rank : 0}};
    made.values = {is_offloaded ? on_host[parts.values].data : at(parts.values), {n.rows, n.key_heads, record_bytes}};
    made.ring_keys = {at(parts.ring_keys), {n.batch, n.key_heads, n.ring, n.channels}};
    made.ring_values = {at(parts.ring_values), {n.batch, n.key_heads, n.ring, n.channels}};
    made.ring_sources = {at(parts.ring_sources), {n.batch, n.ring, n.width()}};
    made.exact_keys = {at(parts.exact_keys), {n.batch, n.key_heads, n.exact(), n.chunk, n.channels}};
    made.exact_values = {at(parts.exact_values), {n.batch, n.key_heads, n.exact(), n.chunk, n.channels}};
    made.exact_ids = {at(parts.exact_ids), {n.batch, n.key_heads, n.exact()}};
    made.exact_measures = {at(parts.exact_measures), {n.batch, n.key_heads, n.exact()}};
    made.slot_keys = {at(parts.slot_keys), {n.batch, n.key_heads, n.slots, n.chunk, n.channels}};
    made.slot_values = {at(parts.slot_values), {n.batch, n.key_heads, n.slots, n.chunk, n.channels}};
    made.slot_ids = {at(parts.slot_ids), {n.batch, n.key_heads, n.slots}};
    made.hands = {at(parts.hands), {n.batch, n.key_heads}};
    made.usage = {at(parts.usage), {n.batch, n.key_heads}};
    made.gram = {options.keeps_products ? at(parts.gram) : nullptr, {n.batch, n.width(), n.width()}};
    return made;
  }

  /// A step of so many sequences in a workspace of plan.step.
  [[nodiscard]] offload_step<T> step_of(workspace const& space, std::int64_t steps,
                                        array_view<std::int32_t const> sequences) const {
    offload_extents const& n = extents;
    std::int64_t const splits = resident_splits(n) + selected_splits(n);
    offload_step<T> made;
    made.sequences = sequences;
    made.admitted = {space[step_parts.admitted].data, steps};
    made.queries = {space[step_parts.queries].data, {steps, n.query_heads, n.channels}};
    made.scores = {space[step_parts.scores].data, {n.rows, n.key_heads, n.group()}, {1, n.group() * n.rows, n.rows}};
    made.score_sums = {space[step_parts.score_sums].data, {steps, score_blocks(), n.query_heads}};
    made.selected = {space[step_parts.selected].data, {steps, n.key_heads, n.budget}};
    made.selected_slots = {space[step_parts.selected_slots].data, {steps, n.key_heads, n.budget}};
    made.selected_counts = {space[step_parts.selected_counts].data, {steps, n.key_heads}};
    made.missed = {space[step_parts.missed].data, {steps, n.key_heads, n.budget}};
    made.missed_counts = {space[step_parts.missed_counts].data, {steps, n.key_heads}};
    made.states = {space[step_parts.states].data, {splits, steps, n.query_heads}};
    made.totals = {space[step_parts.totals].data, {splits, steps, n.query_heads, n.channels}};
    made.residuals = {space[step_parts.residuals].data, steps};
    made.renewal = {space[step_parts.renewal].data, {steps, renewal_elements()}};
    return made;
  }

 private:
  [[nodiscard]] std::int64_t renewal_elements() const {
    return rule().can_be(extents) ? renewal_memory::elements(extents) : 0;
  }
  [[nodiscard]] std::int64_t score_blocks() const { return divide_up(extents.longest, scored_chunks); }

  /// The product of counts.
  template <class... Counts>
  [[nodiscard]] static std::int64_t size(Counts... counts) {
    return checked_multiply("offloaded_cache.plan", counts...);
  }

  [[nodiscard]] detail::offload_regions<T, E> parts_of_cache() {
    detail::offload_regions<T, E> made;
    offload_extents const& n = extents;
    std::int64_t const heads = size(n.batch, n.key_heads);
    std::int64_t const elements_of_chunk = n.chunk * n.channels;
    made.sequences = device.add<cached_sequence>("sequences", n.batch);
    made.landmarks = device.add<E>("landmarks", size(n.rows, n.key_heads, elements));
    made.chunk_slots = device.add<std::int16_t>("slots of chunks", size(n.rows, n.key_heads));
    made.coefficients = device.add<T>("coefficients of keys", size(n.rows, n.chunk, n.rank));
    made.directions = device.add<T>("directions of keys", traits.has_directions ? size(n.batch, n.width(), n.rank) : 0);
    made.ring_keys = device.add<T>("ring, keys", size(heads, n.ring, n.channels));
    made.ring_values = device.add<T>("ring, values", size(heads, n.ring, n.channels));
    made.ring_sources = device.add<T>("ring, keys before their rotation", size(heads, n.ring, n.channels));
    made.exact_keys = device.add<T>("exact chunks, keys", size(heads, n.exact(), elements_of_chunk));
    made.exact_values = device.add<T>("exact chunks, values", size(heads, n.exact(), elements_of_chunk));
    made.exact_ids = device.add<std::int32_t>("exact chunks, numbers", size(heads, n.exact()));
    made.exact_measures = device.add<float>("exact chunks, measures", size(heads, n.exact()));
    made.slot_keys = device.add<T>("slots, keys", size(heads, n.slots, elements_of_chunk));
    made.slot_values = device.add<T>("slots, values", size(heads, n.slots, elements_of_chunk));
    made.slot_ids = device.add<std::int32_t>("slots, numbers of chunks", size(heads, n.slots));
    made.hands = device.add<std::int32_t>("slots, next to be taken", heads);
    made.usage = device.add<chunk_usage>("usage", heads);
    made.gram =
        device.add<float>("products of channels", options.keeps_products ? size(n.batch, n.width(), n.width()) : 0);
    auto& store = options.values == value_store::host ? host : device;
    made.values = store.template add<std::byte>("values", size(n.rows, n.key_heads, record_bytes));
    return made;
  }

  [[nodiscard]] detail::offload_step_regions<T> parts_of_step() {
    detail::offload_step_regions<T> made;
    offload_extents const& n = extents;
    std::int64_t const splits = resident_splits(n) + selected_splits(n);
    std::int64_t const lists = size(n.batch, n.key_heads, n.budget);
    made.admitted = step.add<std::int32_t>("sequences that steps are of", n.batch);
    made.listed = step.add<std::int32_t>("sequences whose lists of chunks have no fault",
                                         traits.takes_given_chunks ? n.batch : 0);
    made.queries = step.add<T>("queries", size(n.batch, n.query_heads, n.channels));
    made.scores = step.add<float>("scores of chunks", size(n.rows, n.query_heads));
    made.score_sums =
        step.add<scaled_exponentials<float>>("sums of scores", size(n.batch, score_blocks(), n.query_heads));
    made.selected = step.add<std::int32_t>("selected chunks", lists);
    made.selected_slots = step.add<std::int32_t>("slots of selected chunks", lists);
    made.selected_counts = step.add<std::int32_t>("numbers of selected chunks", size(n.batch, n.key_heads));
    made.missed = step.add<missed_chunk>("missed chunks", lists);
    made.missed_counts = step.add<std::int32_t>("numbers of missed chunks", size(n.batch, n.key_heads));
    made.states = step.add<softmax_state<float>>("splits of rows, sums", size(splits, n.batch, n.query_heads));
    made.totals = step.add<float>("splits of rows, values", size(splits, n.batch, n.query_heads, n.channels));
    made.residuals = step.add<float>("residuals of archived chunks", n.batch);
    made.renewal = step.add<double>("search for better directions", size(n.batch, renewal_elements()));
    return made;
  }
};

}  // namespace detail

/// The memory of an offloaded cache. Keys: how keys are kept; S: the selector; Codec: how values are kept.
template <Scalar T, KeyStore Keys, ChunkSelector S, ValueCodec Codec>
struct offload_plan : detail::offload_plan_of_elements<T, typename chunk_landmarks<S>::element_type> {
  /// The type of a landmark's elements.
  using element_type = typename chunk_landmarks<S>::element_type;
  /// The record of a chunk's values.
  using record = value_record<Codec, T>;

  Keys keys;                                        ///< the key store that was asked for, with its state
  S selector;                                       ///< the selector that was asked for, with its state
  typename Keys::template parts_type<T> key_parts;  ///< regions of the key store

  /// Adds all regions. `rows` has the first chunk of each sequence, and the end of the last one.
  offload_plan(offload_extents const& n, offload_options const& chosen, Keys const& store, S const& chosen_by,
               std::vector<std::int64_t> rows)
      : detail::offload_plan_of_elements<T, element_type>(
            n, chosen, std::move(rows), chunk_landmarks<S>::elements(chosen_by, n.channels),
            record::bytes(n.chunk, n.channels), {Keys::has_directions, Keys::renews, takes_given_chunks<S>}),
        keys(store),
        selector(chosen_by),
        key_parts(store.template add_to<T>(n, chosen, *this)) {}

  /// Part `which` of a step. The first part of four is small, so that the bus has work soon, and the last part is
  /// smaller than the one before, since its attention overlaps with nothing: that saves 2.5 % of a step. Values in
  /// codes cross so soon that the choice takes longer; their parts are equal, which saves 4 %.
  [[nodiscard]] offload_step<T> part_of(offload_step<T> const& all, int which) const {
    constexpr bool are_values = std::is_same_v<Codec, exact_values>;
    constexpr std::int64_t eighths[most_offload_parts + 1] = {0, 1, 3, 6, 8};
    std::int64_t const steps = all.steps();
    int const count = this->parts_of(steps);
    auto const end_of = [&](int i) {
      return count == most_offload_parts && are_values ? divide_up(eighths[i] * steps, std::int64_t{8})
                                                       : i * steps / count;
    };
    return all.part(end_of(which), end_of(which + 1) - end_of(which));
  }
};

}  // namespace v0
}  // namespace tessera
