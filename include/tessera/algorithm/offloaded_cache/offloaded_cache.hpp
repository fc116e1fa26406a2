// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `offloaded_cache`: a key-value cache that keeps keys in a low-rank basis or uncompressed, and values in host or
/// device memory. Each step reads the ring of latest tokens, a few exact chunks, and the chunks that a selector
/// chooses.
///
///     using method = tessera::offloaded_cache<low_rank<160>, landmark_selector<8>, keep_outliers<48>>;
///     auto const plan = method::plan<bfloat16>(exec, shape, options);
///     auto const cache = method::open(exec, plan, device_block, pinned_block, rotary);
///     side_queue<Executor> const side(exec, method::side_marks, true);
///     tessera::workspace const prompt_space(method::plan_prefill(exec, plan), memory);
///     method::prefill(exec, side, cache, sequence, keys, values, prompt_space);
///     tessera::workspace const step_space(method::plan_decode(exec, plan), memory);
///     method::decode(exec, side, cache, {queries, keys, values}, offload_outputs<bfloat16>{result}, step_space);
///     exec.wait();
///
/// Purpose, costs and accuracy: shadow_kv.hpp, which is this cache with the paper's parameters. The layout of its
/// memory: program/offloaded_cache/cache_memory.hpp. The portable programs take any executor and any strides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <math.h>  // not <cmath>: as in core/math.hpp
#include <utility>
#include <vector>

#include <tessera/algorithm/offloaded_cache/detail/step_checks.hpp>
#include <tessera/algorithm/offloaded_cache/exact_keys.hpp>
#include <tessera/algorithm/offloaded_cache/key_store.hpp>
#include <tessera/algorithm/offloaded_cache/low_rank_keys.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache_plan.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache_types.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/refused_call.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/config.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/exec/status_calls.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/offloaded_cache/append_tokens.hpp>
#include <tessera/program/offloaded_cache/archive_chunks.hpp>
#include <tessera/program/offloaded_cache/assign_slots.hpp>
#include <tessera/program/offloaded_cache/attend_chunks.hpp>
#include <tessera/program/offloaded_cache/detail/given_chunks.hpp>
#include <tessera/program/offloaded_cache/prefill.hpp>
#include <tessera/program/offloaded_cache/rebuild_keys.hpp>
#include <tessera/program/offloaded_cache/score_chunks.hpp>
#include <tessera/program/offloaded_cache/select_chunks.hpp>
#include <tessera/quantize/value_codec.hpp>
#include <tessera/select/chunk_landmarks.hpp>
#include <tessera/select/given_chunks.hpp>
#include <tessera/select/keep_outliers.hpp>
#include <tessera/view/chunk_lists.hpp>

namespace tessera {
inline namespace v0 {

/// An opened cache: views of its memory, as programs get them. A copy is the same cache.
template <Scalar T, KeyStore Keys, ChunkSelector S, ValueCodec Codec>
struct open_cache {
  using value_type = T;
  /// The type of a landmark's elements.
  using element_type = typename chunk_landmarks<S>::element_type;

  offload_plan<T, Keys, S, Codec> plan;         ///< extents, regions of memory, and the key store
  offloaded_memory<T, element_type> memory;     ///< views of the cache
  typename Keys::template store_type<T> store;  ///< the key store's own data
  rotary_embedding rotary;                      ///< the rotation of keys and queries
  S selector;                                   ///< chooses chunks
  float scale;                                  ///< the factor of scores
};

/// Keys: a KeyStore, which says how keys of archived chunks are kept: low_rank<rank>, low_rank_keys<Projector> or
/// exact_keys. S: a ChunkSelector. Outliers: keep_outliers<n>, a number. Codec: how values are kept, exact_values or a
/// Quantizer.
template <KeyStore Keys, ChunkSelector S, OutlierCount Outliers, ValueCodec Codec = exact_values>
struct offloaded_cache {
  /// The key store, which keeps the keys of archived chunks.
  using key_store_type = Keys;
  /// The selector, which chooses the chunks that a step attends to.
  using selector_type = S;
  /// The codec of values, which says how they are kept.
  using codec_type = Codec;
  /// The type of a plan().
  template <Scalar T>
  using plan_type = offload_plan<T, Keys, S, Codec>;
  /// The type of an opened cache.
  template <Scalar T>
  using cache_type = open_cache<T, Keys, S, Codec>;
  static constexpr int side_marks = most_offload_parts;  ///< marks that the side queue of a step must have

  /// Plans the memory of a cache: plan.device on the device and plan.host, which is pinned memory of the host. T: the
  /// type of keys and values: bfloat16, float16 or float. The plan holds the selector and the key store with their
  /// state. Throws shape_error or value_error.
  template <Scalar T, Executor Exec>
  static plan_type<T> plan(Exec const&, offload_shape const& shape, offload_options const& options = {},
                           S const& selector = {}, Keys const& keys = {}) {
    constexpr char const* here = "offloaded_cache.plan";
    check_shape(here, shape);
    offload_extents n{};
    n.batch = static_cast<std::int64_t>(shape.tokens.size());
    n.query_heads = shape.query_heads;
    n.key_heads = shape.key_heads;
    n.channels = shape.channels;
    n.rank = keys.rank(n.width());
    n.chunk = S::chunk;
    n.ring = options.ring;
    n.outliers = Outliers::count;
    n.strays = options.strays;
    check<value_error>(n.ring >= 2 * n.chunk && n.ring % n.chunk == 0, here, ": the ring has ", n.ring,
                       " tokens but needs a multiple of the chunk of ", n.chunk, ", and at least two of them");
    check<value_error>(n.strays >= 0, here, ": there are ", n.strays, " slots for strays but that is no number");
    check<value_error>(n.ring <= 0x7fffffff && n.strays <= 0x7fffffff / n.chunk, here, ": the ring has ", n.ring,
                       " tokens and there are slots for ", n.strays, " strays but numbers of tokens have 31 bits");
    std::vector<std::int64_t> rows{0};
    for (std::int64_t const tokens : shape.tokens) {
      check<shape_error>(tokens >= 0, here, ": a sequence has room for ", tokens, " tokens but that is no number");
      std::int64_t const chunks = n.archived(tokens);
      rows.push_back(checked_add(here, rows.back(), chunks));
      n.longest = max(n.longest, chunks);
    }
    n.rows = rows.back();
    check<shape_error>(n.rows <= 0x7fffffff / n.chunk, here, ": sequences have ", n.rows, " chunks of ", n.chunk,
                       " tokens but numbers of tokens have 31 bits");
    n.budget = selector.budget(n.longest);
    n.slots = options.slots == 0 ? n.budget : options.slots;
    check<value_error>(n.slots >= n.budget && n.slots <= most_slots, here, ": there are ", n.slots,
                       " slots but at least ", n.budget, " are selected, and at most ", most_slots, " can be");
    check<value_error>(options.renewal_growth >= 1, here, ": directions are renewed at ", options.renewal_growth,
                       " times the tokens that they were fitted to but at least 1 is needed");
    check<value_error>(options.renewal_until >= 0, here, ": directions are renewed up to ", options.renewal_until,
                       " tokens for each of them, which is no number of tokens");
    check<value_error>(options.residual_limit >= 0, here, ": chunks are strays above ", options.residual_limit,
                       " times the usual residual, which is no factor");
    check<value_error>(options.softmax_scale >= 0 && options.softmax_scale < infinity, here,
                       ": the scale of the softmax is ", options.softmax_scale, " but must be finite and not negative");
    return plan_type<T>(n, options, keys, selector, std::move(rows));
  }

  /// The workspace of a prompt in a cache of this plan, which has the shape and the options. It is for prefill(), or
  /// for begin(), take() and finish().
  template <Executor Exec, class T>
  static workspace_plan plan_prefill(Exec const&, plan_type<T> const& plan) {
    return plan.prompt;
  }
  /// The workspace of a step in a cache of this plan, for a token of each sequence.
  template <Executor Exec, class T>
  static workspace_plan plan_decode(Exec const&, plan_type<T> const& plan) {
    return plan.step;
  }
  /// The workspace of refit() in a cache of this plan, which is also that of a prompt.
  template <Executor Exec, class T>
  static workspace_plan plan_refit(Exec const&, plan_type<T> const& plan) {
    return plan.prompt;
  }

  /// Opens a cache in the caller's blocks, which begin at multiples of 256 bytes. Enqueues nothing: sequences begin
  /// with begin() or prefill(). `host`: pinned memory; empty if everything is kept on the device.
  template <Executor Exec, class T>
  static cache_type<T> open(Exec const& exec, plan_type<T> const& plan, array_view<std::byte> device,
                            array_view<std::byte> host, rotary_embedding const& rotary = {}) {
    return open(exec, plan, device, host, rotary, plan.selector);
  }
  /// Opens a cache with another selector than the plan's. It must take at most as many chunks, and its landmarks must
  /// have as many elements.
  template <Executor Exec, class T>
  static cache_type<T> open(Exec const& exec, plan_type<T> const& plan, array_view<std::byte> device,
                            array_view<std::byte> host, rotary_embedding const& rotary, S const& selector) {
    constexpr char const* here = "offloaded_cache.open";
    offload_extents const& n = plan.extents;
    std::int64_t const positions = n.longest * n.chunk + n.ring;
    check_memory(here, "angles of positions", rotary.within);
    check_memory(here, "angles of blocks", rotary.blocks);
    check<shape_error>(rotary.channels() <= n.channels, here, ": the embedding turns ", rotary.channels(),
                       " channels but heads have ", n.channels);
    check<shape_error>(rotary.channels() == 0 || rotary.positions() >= positions, here, ": the embedding has ",
                       rotary.positions(), " positions but the longest sequence has room for ", positions);
    check<value_error>(selector.budget(n.longest) <= n.budget, here, ": the selector takes ",
                       selector.budget(n.longest), " chunks but the plan has room for ", n.budget);
    std::int64_t const elements = chunk_landmarks<S>::elements(selector, n.channels);
    check<value_error>(elements == plan.elements, here, ": the selector keeps ", elements,
                       " elements of a chunk but the plan has room for ", plan.elements);
    float const chosen = plan.options.softmax_scale;
    float const scale = chosen > 0 ? chosen : static_cast<float>(1.0 / ::sqrt(static_cast<double>(n.channels)));
    workspace const on_device(plan.device, device);
    workspace const on_host(plan.host, host);
    check_reach(exec, here, "bytes of the device's block", on_device, "bytes of the host's block", on_host);
    check_reach_of(exec, here, rotary);
    auto const store = plan.keys.template open<T>(n, plan.options, plan.key_parts, on_device, on_host);
    return {plan, plan.memory(device, host), store, rotary, selector, scale};
  }

  // Prompts. Keys and values are key heads x tokens x channels, of any strides; keys are those before their rotation.

  /// Enqueues a whole prompt at once: begin(), take(), finish(). Where it throws, the sequence is as it was.
  template <Executor Exec, class Side, class T>
  static void prefill(Exec const& exec, Side const& side, cache_type<T> const& cache, std::int64_t sequence,
                      view<std::type_identity_t<T> const, 3> keys, view<std::type_identity_t<T> const, 3> values,
                      workspace const& space) {
    check_take("offloaded_cache.prefill", exec, side, cache, {sequence, 0}, keys, values, space);
    offload_prompt prompt = begin(exec, cache, sequence, space);
    take(exec, side, cache, prompt, keys, values, space);
    finish(exec, side, cache, prompt, keys, values, space);
  }

  /// Begins a prompt, and forgets the tokens that the sequence had. All calls of one prompt, up to finish(), take the
  /// same workspace.
  template <Executor Exec, class T>
  static offload_prompt begin(Exec const& exec, cache_type<T> const& cache, std::int64_t sequence,
                              workspace const& space) {
    constexpr char const* here = "offloaded_cache.begin";
    auto const& plan = cache.plan;
    detail::check_sequence(here, plan.extents, sequence);
    check_prompt_room(here, plan, space);
    check_reach(exec, here, "bytes of the workspace", space);
    auto const first = static_cast<std::int32_t>(plan.first_rows[static_cast<std::size_t>(sequence)]);
    auto const capacity = static_cast<std::int32_t>(plan.capacity(sequence));
    run(exec, open_sequence<T, element_of<T>>{plan.extents, cache.memory, sequence, first, capacity});
    plan.keys.begin(exec, cache, sequence, space);
    return {sequence, 0};
  }

  /// Takes the next tokens of the prompt: a multiple of the chunk, except for the last ones; parts of multiples of 2048
  /// tokens give the same bits as the whole prompt in one call. Values are copied to the store on the side queue at the
  /// same time, so that their memory must stay valid until finish() has joined that queue.
  template <Executor Exec, class Side, class T>
  static void take(Exec const& exec, Side const& side, cache_type<T> const& cache, offload_prompt& prompt,
                   view<std::type_identity_t<T> const, 3> keys, view<std::type_identity_t<T> const, 3> values,
                   workspace const& space) {
    check_take("offloaded_cache.take", exec, side, cache, prompt, keys, values, space);
    offload_extents const& n = cache.plan.extents;
    std::int64_t const count = keys.extent(1);
    auto const first_row = cache.plan.first_rows[static_cast<std::size_t>(prompt.sequence)];
    std::int64_t const before = prompt.tokens / n.chunk;
    // Chunks that the ring will hold have no row, if there is no room for one.
    std::int64_t const chunks =
        max(std::int64_t{0}, min(count / n.chunk, cache.plan.capacity(prompt.sequence) - before));
    side.follow();
    run(side.executor(), put_values<T, Codec>{values, n.chunk, first_row + before, chunks, cache.memory.values});
    run(exec, summarize_prompt<T, S>{keys, cache.rotary, cache.selector, prompt.tokens, first_row + before, chunks,
                                     cache.memory.landmarks, cosines_of(cache, space)});
    cache.plan.keys.take(exec, cache, prompt, view<T const, 3>(keys), space);
    prompt.tokens += count;
  }

  /// Ends a prompt, all of whose tokens must be given once more: finds directions, projects keys, and keeps outliers
  /// and the latest tokens.
  template <Executor Exec, class Side, class T>
  static void finish(Exec const& exec, Side const& side, cache_type<T> const& cache, offload_prompt const& prompt,
                     view<std::type_identity_t<T> const, 3> keys, view<std::type_identity_t<T> const, 3> values,
                     workspace const& space) {
    constexpr char const* here = "offloaded_cache.finish";
    detail::check_side(here, exec, side);
    offload_extents const& n = cache.plan.extents;
    detail::check_sequence(here, n, prompt.sequence);
    check_prompt_room(here, cache.plan, space);
    detail::check_heads(here, "keys", keys, {n.key_heads, prompt.tokens, n.channels});
    detail::check_heads(here, "values", values, {n.key_heads, prompt.tokens, n.channels});
    check_reach(exec, here, "keys", keys, "values", values, "bytes of the workspace", space);
    check_room(here, cache, prompt.sequence, prompt.tokens);
    auto const& memory = cache.memory;
    std::int64_t const row = cache.plan.first_rows[static_cast<std::size_t>(prompt.sequence)];
    std::int64_t const chunks = n.archived(prompt.tokens);
    auto const measures = cache.plan.keys.finish(exec, cache, prompt, view<T const, 3>(keys), space);
    view<float const, 2> const cosines = cosines_of(cache, space);
    run(exec, choose_outliers<T, element_of<T>>{n, memory, prompt.sequence, row, chunks, cosines});
    run(exec, copy_exact<T, element_of<T>>{n, memory, cache.rotary, prompt.sequence, keys, values});
    run(exec, fill_ring<T, element_of<T>>{n, memory, cache.rotary, prompt.sequence, keys, values, chunks * n.chunk});
    side.mark(0);
    side.join(0);
    run(exec, finish_prompt{memory.sequences, prompt.sequence, static_cast<std::int32_t>(prompt.tokens),
                            static_cast<std::int32_t>(chunks), measures});
  }

  /// Enqueues a step: appends one token to each of some sequences, and attends with it to itself and to the cached
  /// tokens before it. Sequences that are full, never begun, not of the batch, or named by two steps are reported to
  /// exec.wait() and left as they are. Nothing waits or allocates.
  template <Executor Exec, class Side, class T, class Result = T>
  static void decode(Exec const& exec, Side const& side, cache_type<T> const& cache,
                     offload_tokens<std::type_identity_t<T>> const& in, offload_outputs<Result> const& out,
                     workspace const& space) {
    detail::check_side("offloaded_cache.decode", exec, side);
    offload_extents const& n = cache.plan.extents;
    detail::check_step(n, in, out);
    detail::check_given(n, cache.selector, in);
    using element = element_of<T>;
    space.check_room("offloaded_cache.decode", cache.plan.step.bytes(), "steps of ", n.batch, " sequences");
    detail::check_step_places(exec, in, out, space);
    auto const& memory = cache.memory;
    offload_step<T> step = cache.plan.step_of(space, in.queries.extent(0), in.sequences);
    if constexpr (takes_given_chunks<S>) {
      admit(exec, cache, in.given, step, space);
    }
    run(exec, append_tokens<T, element>{n, memory, step, cache.rotary, in.queries, in.keys, in.values,
                                        status_of(exec, {"offloaded_cache.decode", "step"})});
    side.follow();
    cache.plan.keys.archive(side.executor(), cache, step);
    if (cache.plan.options.values == value_store::host) {
      attend_across_bus(exec, side, cache, step, in.given);
    } else {
      attend_on_device(exec, side, cache, step, in.given);
    }
    run(exec, merge_chunks<T, element, Result>{n, memory.sequences, step, out.result, out.log_sum_exp});
    run(exec, archive_chunks<T, S, Codec>{n, memory, step, cache.selector, cache.plan.options.residual_limit});
    run(exec, finish_steps<T, element>{n, memory, step, cache.plan.rule()});
  }
  /// Refuses calls of decode() with arguments that it does not take, and says at compile time what it takes.
  template <class Exec, class Side, class Cache, class In = anything, class Out = anything, class... More>
  requires(!(Made<Cache, open_cache> && MadeOrBraces<In, offload_tokens> && MadeOrBraces<Out, offload_outputs> &&
             IsFirst<workspace, More...>)) static void decode(Exec const&, Side const&, Cache const&, In const&,
                                                              Out const&, More const&...) {
    refuse_decode<In>();
  }
  /// Refuses calls of decode() with other types in braces, and says at compile time what it takes.
  template <class... None>
  static void decode(anything, anything, anything, anything, anything, anything) {
    refuse_decode<None...>();
  }

  /// Finds new directions, from all keys so far, and writes the coefficients of archived chunks in these directions.
  /// Call it, for a cache that keeps products, when a larger part of generated keys than of the prompt's keys lies
  /// outside of the directions (cached_sequence). The workspace is that of plan_refit().
  template <Executor Exec, class T>
  static void refit(Exec const& exec, cache_type<T> const& cache, std::int64_t sequence, workspace const& space) {
    static_assert(Keys::renews,
                  "tessera: offloaded_cache.refit finds directions of low_rank<rank> anew; other keys have none");
    constexpr char const* here = "offloaded_cache.refit";
    auto const& plan = cache.plan;
    detail::check_sequence(here, plan.extents, sequence);
    check_prompt_room(here, plan, space);
    check_reach(exec, here, "bytes of the workspace", space);
    check<value_error>(cache.memory.gram.data != nullptr, here,
                       ": the cache keeps no products of keys; its option keeps_products is 0");
    plan.keys.refit(exec, cache, sequence, space);
  }

  /// Waits for enqueued work and returns lengths and counts of the sequences.
  template <Executor Exec, class T>
  static offload_statistics wait_for_statistics(Exec const& exec, cache_type<T> const& cache) {
    auto const& memory = cache.memory;
    offload_statistics found;
    found.sequences.resize(static_cast<std::size_t>(memory.sequences.size()));
    found.usage.resize(static_cast<std::size_t>(memory.usage.size()));
    exec.copy(memory.sequences, found.sequences);
    exec.copy(array_view<chunk_usage>(memory.usage.data, memory.usage.size()), found.usage);
    exec.wait();
    return found;
  }

 private:
  /// Throws for a part of a prompt that does not fit the cache, or that programs do not reach.
  template <class Exec, class Side, class T>
  static void check_take(char const* here, Exec const& exec, Side const& side, cache_type<T> const& cache,
                         offload_prompt const& prompt, view<std::type_identity_t<T> const, 3> keys,
                         view<std::type_identity_t<T> const, 3> values, workspace const& space) {
    detail::check_side(here, exec, side);
    offload_extents const& n = cache.plan.extents;
    std::int64_t const count = keys.extent(1);
    detail::check_sequence(here, n, prompt.sequence);
    check_prompt_room(here, cache.plan, space);
    detail::check_heads(here, "keys", keys, {n.key_heads, count, n.channels});
    detail::check_heads(here, "values", values, {n.key_heads, count, n.channels});
    check_reach(exec, here, "keys", keys, "values", values, "bytes of the workspace", space);
    check<shape_error>(prompt.tokens >= 0 && prompt.tokens % n.chunk == 0, here, ": ", prompt.tokens,
                       " tokens came before, which are no whole chunks of ", n.chunk);
    check_room(here, cache, prompt.sequence, prompt.tokens + count);
  }
  template <class T>
  using element_of = typename plan_type<T>::element_type;

  template <class... Given>
  static void refuse_decode() {
    static_assert(never<Given...>,
                  "tessera: offloaded_cache.decode takes an executor, its side_queue, the cache of open(), "
                  "offload_tokens<T>, offload_outputs<Result> and a workspace of the plan's step; in braces without a "
                  "type Result is what the cache holds");
  }

  // Parts of decode().

  template <Executor Exec, class T>
  static void attend(Exec const& exec, cache_type<T> const& cache, offload_step<T> const& step, std::int64_t first,
                     std::int64_t count) {
    run(exec, attend_chunks<T, element_of<T>>{cache.plan.extents, cache.memory, step, cache.scale, first, count});
  }
  /// Leaves out the steps whose given chunks have a fault.
  template <Executor Exec, class T>
  static void admit(Exec const& exec, cache_type<T> const& cache, chunk_lists const& given, offload_step<T>& step,
                    workspace const& space) {
    constexpr char const* here = "offloaded_cache.decode";
    array_view<std::int32_t> const listed(space[cache.plan.step_parts.listed].data, step.steps());
    run(exec, admit_lists<T, element_of<T>>{cache.plan.extents, cache.memory, step, given, listed,
                                            status_of(exec, {here, "list of chunks"}),
                                            status_of(exec, {here, "given chunk"})});
    step.sequences = listed;
  }
  /// Selects chunks, or takes those that are given, assigns slots to them, and lists those that have to be fetched.
  template <Executor Exec, class T>
  static void choose(Exec const& exec, cache_type<T> const& cache, offload_step<T> const& part,
                     chunk_lists const& given) {
    offload_extents const& n = cache.plan.extents;
    if constexpr (takes_given_chunks<S>) {
      run(exec, take_lists<T, element_of<T>>{n, cache.memory, part, given.part(part.first, part.steps())});
    } else {
      run(exec, score_chunks<T, S>{n, cache.memory, part, cache.selector, cache.scale});
      run(exec, select_chunks<T, S>{n, cache.memory, part, cache.selector});
    }
    run(exec, assign_slots<T, element_of<T>>{n, cache.memory, part, cache.plan.options.keeps_slots});
  }

  /// Attention with values on the host: the values of one part cross the bus while chunks of the next part are scored
  /// and selected.
  template <Executor Exec, class Side, class T>
  static void attend_across_bus(Exec const& exec, Side const& side, cache_type<T> const& cache,
                                offload_step<T> const& step, chunk_lists const& given) {
    offload_extents const& n = cache.plan.extents;
    int const parts = cache.plan.parts_of(step.steps());
    for (int i = 0; i < parts; ++i) {
      offload_step<T> const part = cache.plan.part_of(step, i);
      choose(exec, cache, part, given);
      side.follow();
      run(side.executor(), fetch_values<T, element_of<T>, Codec>{n, cache.memory, part, true});
      side.mark(i);
    }
    cache.plan.keys.load(exec, cache, step);
    attend(exec, cache, step, 0, resident_splits(n));
    for (int i = 0; i < parts; ++i) {
      side.join(i);
      attend(exec, cache, cache.plan.part_of(step, i), resident_splits(n), selected_splits(n));
    }
  }

  /// Attention with values on the device. Resident chunks wait for no selection: attention over them runs at the same
  /// time as the scores. Values are fetched while keys are rebuilt.
  template <Executor Exec, class Side, class T>
  static void attend_on_device(Exec const& exec, Side const& side, cache_type<T> const& cache,
                               offload_step<T> const& step, chunk_lists const& given) {
    offload_extents const& n = cache.plan.extents;
    attend(side.executor(), cache, step, 0, resident_splits(n));
    choose(exec, cache, step, given);
    side.follow();
    run(side.executor(), fetch_values<T, element_of<T>, Codec>{n, cache.memory, step, false});
    side.mark(0);
    cache.plan.keys.load(exec, cache, step);
    side.join(0);
    attend(exec, cache, step, resident_splits(n), selected_splits(n));
  }

  template <class T>
  static matrix_view<float> cosines_of(cache_type<T> const& cache, workspace const& space) {
    return {space[cache.plan.cosines].data, {cache.plan.extents.key_heads, cache.plan.extents.longest}};
  }
  static void check_shape(char const* here, offload_shape const& s) {
    check<shape_error>(s.key_heads >= 1 && s.query_heads >= 1 && s.query_heads % s.key_heads == 0, here, ": there are ",
                       s.query_heads, " query heads, which are no whole number for each of ", s.key_heads,
                       " key heads");
    check<shape_error>(s.query_heads / s.key_heads <= most_group, here, ": ", s.query_heads / s.key_heads,
                       " query heads share a key head but at most ", most_group, " can");
    check<shape_error>(s.channels >= 16 && s.channels <= most_channels && s.channels % 16 == 0, here, ": heads have ",
                       s.channels, " channels but must have a multiple of 16 up to ", most_channels);
    check<shape_error>(s.key_heads <= 0x7fffffff / s.channels, here, ": there are ", s.key_heads, " key heads of ",
                       s.channels, " channels but numbers of channels have 31 bits");
    check<shape_error>(S::chunk * s.channels <= most_chunk_elements, here, ": a chunk of ", S::chunk, " tokens of ",
                       s.channels, " channels has more than ", most_chunk_elements, " elements");
  }
  template <class T>
  static void check_prompt_room(char const* here, plan_type<T> const& plan, workspace const& space) {
    space.check_room(here, plan.prompt.bytes(), "prompts of up to ", plan.extents.longest, " chunks");
  }
  template <class T>
  static void check_room(char const* here, cache_type<T> const& cache, std::int64_t sequence, std::int64_t tokens) {
    offload_extents const& n = cache.plan.extents;
    check<shape_error>(n.archived(tokens) <= cache.plan.capacity(sequence), here, ": the prompt has ", tokens,
                       " tokens but sequence ", sequence, " has room for ",
                       cache.plan.capacity(sequence) * n.chunk + n.ring - 1);
  }
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/algorithm/offloaded_cache/offloaded_cache.cuh>
#endif
