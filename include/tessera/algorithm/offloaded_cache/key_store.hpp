// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// KeyStore: how an offloaded cache keeps the keys of archived chunks, and how a step loads the keys of selected
/// chunks. Models: low_rank<rank> and low_rank_keys<Projector> (algorithm/offloaded_cache/low_rank_keys.hpp),
/// exact_keys (algorithm/offloaded_cache/exact_keys.hpp).
///
///     struct my_keys {
///       template <Scalar T> struct parts_type {};                     // its regions in the workspaces of a plan
///       template <Scalar T> struct store_type {};                     // what it has in an opened cache
///       static constexpr bool has_directions = false;                 // offloaded_memory has directions
///       static constexpr bool renews = false;                         // steps may find directions anew
///       std::int64_t rank(std::int64_t width) const;                  // coefficients of a token in offloaded_memory
///       template <Scalar T>                                           // plans its memory
///       parts_type<T> add_to(offload_extents const& n, offload_options const& chosen, offload_workspaces& to) const;
///       template <Scalar T>
///       store_type<T> open(offload_extents const& n, offload_options const& chosen, parts_type<T> const& parts,
///                          workspace const& device, workspace const& host) const;
///
///       template <Executor Exec, class Cache>                         // forgets a sequence
///       void begin(Exec const& exec, Cache const& cache, std::int64_t sequence, workspace const& space) const;
///       template <Executor Exec, class Cache, class T>                // the next tokens, after prompt.tokens others
///       void take(Exec const& exec, Cache const& cache, offload_prompt const& prompt, view<T const, 3> keys,
///                 workspace const& space) const;
///       template <Executor Exec, class Cache, class T>                // all prompt.tokens tokens once more
///       array_view<subspace_measures const> finish(Exec const& exec, Cache const& cache, offload_prompt const& prompt,
///                                                  view<T const, 3> keys, workspace const& space) const;
///       template <Executor Exec, class Cache, class T>                // keeps the chunk that leaves the ring, if any,
///       void archive(Exec const& exec, Cache const& cache, offload_step<T> const& step) const;  // and its residual
///       template <Executor Exec, class Cache, class T>                // keys of step.missed, rotated, to slots
///       void load(Exec const& exec, Cache const& cache, offload_step<T> const& step) const;
///     };
///
/// `cache` is an open_cache<T, my_keys, S, Codec>: its plan.extents, plan.key_parts, memory, store and rotary. Keys are
/// key heads x tokens x channels, before their rotation. The functions that take it enqueue work and wait for nothing.
///
/// Laws: load() writes the keys of a chunk that take() or archive() were given, up to the store's error, with the same
/// bits in each call. finish() tells what part of the keys is lost, and archive() writes that part of a chunk to
/// step.residuals, or -1 where no chunk leaves the ring.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <tessera/algorithm/offloaded_cache/offloaded_cache_types.hpp>
#include <tessera/core/because.hpp>
#include <tessera/core/status.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>
#include <tessera/program/subspace/iterate.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// The plans of all memory that a cache takes.
struct offload_workspaces {
  workspace_plan device{"offloaded_cache, on the device"};  ///< device memory of the cache
  /// Pinned memory of the cache; empty if nothing is kept on the host.
  workspace_plan host{"offloaded_cache, pinned memory of the host"};
  /// The workspace of a prompt and of refit(), which plan_prefill() and plan_refit() of the cache return.
  workspace_plan prompt{"offloaded_cache.prefill"};
  /// The workspace of a step of decoding, which plan_decode() of the cache returns.
  workspace_plan step{"offloaded_cache.decode"};
};

namespace detail {

/// An Executor and an opened cache, with which the concept KeyStore checks a type.
struct key_store_archetypes {
  struct memory_type {
    void* allocate(std::size_t, std::size_t, void*) const;
  };
  struct executor {
    static constexpr void* stream = nullptr;
    template <class P>
    void run(P const&, std::int64_t) const;
    void wait() const;
    memory_type memory() const;
    status_word* status() const;
  };
  struct cache {};
};

}  // namespace detail

// clang-format off
/// How an offloaded cache keeps the keys of archived chunks, and gets those of selected chunks back.
template <class K>
concept KeyStore =
    (requires(K const& k, std::int64_t width) {
       requires std::same_as<decltype(k.rank(width)), std::int64_t>;
       requires std::same_as<decltype(K::has_directions), bool const>;
       requires std::same_as<decltype(K::renews), bool const>;
     } || because<"a KeyStore, such as low_rank<160> or exact_keys, says what it keeps: "
                  "std::int64_t rank(width) const, static constexpr bool has_directions and renews">) &&
    (requires { typename K::template parts_type<float>; typename K::template store_type<float>; }
        || because<"a KeyStore names its regions of a plan and what it has in a cache: "
                   "parts_type<T>, store_type<T>">) &&
    (requires(K const& k, offload_extents const& n, offload_options const& chosen, offload_workspaces& to,
              typename K::template parts_type<float> const& parts, workspace const& space) {
       { k.template add_to<float>(n, chosen, to) } -> std::same_as<typename K::template parts_type<float>>;
       { k.template open<float>(n, chosen, parts, space, space) }
           -> std::same_as<typename K::template store_type<float>>;
     } || because<"a KeyStore plans and opens its memory: add_to<T>(extents, options, workspaces) and "
                  "open<T>(extents, options, parts, device, host)">) &&
    (requires(K const& k, detail::key_store_archetypes::executor exec, detail::key_store_archetypes::cache cache,
              offload_prompt prompt, view<float const, 3> keys, workspace const& space) {
       k.begin(exec, cache, std::int64_t{}, space);
       k.take(exec, cache, prompt, keys, space);
       { k.finish(exec, cache, prompt, keys, space) } -> std::same_as<array_view<subspace_measures const>>;
     } || because<"a KeyStore takes prompts: begin(exec, cache, sequence, space), "
                  "take(exec, cache, prompt, keys, space) and finish(exec, cache, prompt, keys, space)">) &&
    (requires(K const& k, detail::key_store_archetypes::executor exec, detail::key_store_archetypes::cache cache,
              offload_step<float> step) {
       k.archive(exec, cache, step);
       k.load(exec, cache, step);
     } || because<"a KeyStore keeps and loads chunks in steps: "
                  "archive(exec, cache, step) and load(exec, cache, step)">);
// clang-format on

}  // namespace v0
}  // namespace tessera
