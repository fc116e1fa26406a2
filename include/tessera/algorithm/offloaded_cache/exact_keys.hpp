// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `exact_keys`: the KeyStore with which an offloaded cache keeps the keys of archived chunks uncompressed, beside the
/// values: in pinned memory of the host, or on the device if offload_options::values says so. Nothing is rebuilt:
/// attention is exact over the chunks that are selected.
///
///     using method = tessera::offloaded_cache<exact_keys, quest_selector<16>, keep_outliers<0>>;
///
/// Keys are kept after their rotation, in the type of the cache, 2 * channels bytes for each token and head in
/// bfloat16. For each missed chunk, as many bytes of keys cross the bus as of values. There are no directions: no chunk
/// is a stray, energy and residuals of a sequence (cached_sequence) are 0, and there is nothing to refit.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/algorithm/offloaded_cache/key_store.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache_types.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>
#include <tessera/program/offloaded_cache/detail/store_keys.hpp>
#include <tessera/program/offloaded_cache/rebuild_keys.hpp>
#include <tessera/program/offloaded_cache/value_record.hpp>
#include <tessera/quantize/value_codec.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// A KeyStore that loses nothing.
struct exact_keys {
  /// Whether keys are coefficients in directions that offloaded_memory holds.
  static constexpr bool has_directions = false;
  /// Whether steps find new directions after short prompts.
  static constexpr bool renews = false;

  /// The regions of a plan.
  template <Scalar T>
  struct parts_type {
    region<std::byte> keys;              ///< of the device or of the host
    region<subspace_measures> measures;  ///< of the workspace of a prompt
    std::int64_t record_bytes;           ///< bytes of a chunk's keys of one head
  };
  /// What an opened cache has beside offloaded_memory.
  template <Scalar T>
  struct store_type {
    view<std::byte, 3> keys;  ///< rows x key heads x bytes of a record
    bool crosses_bus;         ///< whether they are in memory of the host
  };

  /// No coefficients are kept.
  [[nodiscard]] std::int64_t rank(std::int64_t /*width*/) const { return 0; }

  /// Throws value_error where options ask for products of keys.
  template <Scalar T>
  parts_type<T> add_to(offload_extents const& n, offload_options const& chosen, offload_workspaces& to) const {
    constexpr char const* here = "offloaded_cache.plan";
    check<value_error>(!chosen.keeps_products, here, ": keeps_products is ", chosen.keeps_products,
                       " but exact_keys have no directions to refit; it must be 0");
    std::int64_t const bytes = value_record<exact_values, T>::bytes(n.chunk, n.channels);
    auto& where = chosen.values == value_store::host ? to.host : to.device;
    return {where.template add<std::byte>("keys", checked_multiply(here, n.rows, n.key_heads, bytes)),
            to.prompt.add<subspace_measures>("measures of keys", 1), bytes};
  }
  /// The store in the memory that add_to() has planned.
  template <Scalar T>
  store_type<T> open(offload_extents const& n, offload_options const& chosen, parts_type<T> const& parts,
                     workspace const& device, workspace const& host) const {
    bool const is_offloaded = chosen.values == value_store::host;
    std::byte* const first = (is_offloaded ? host[parts.keys] : device[parts.keys]).data;
    return {{first, {n.rows, n.key_heads, parts.record_bytes}}, is_offloaded};
  }

  /// Begins a prompt of a sequence.
  template <Executor Exec, class Cache>
  void begin(Exec const&, Cache const&, std::int64_t, workspace const&) const {}

  /// Takes the keys of the next tokens of a prompt.
  template <Executor Exec, class Cache, class T>
  void take(Exec const& exec, Cache const& cache, offload_prompt const& prompt, view<T const, 3> keys,
            workspace const&) const {
    std::int64_t const chunk = cache.plan.extents.chunk;
    std::int64_t const before = prompt.tokens / chunk;
    std::int64_t const chunks =
        max(std::int64_t{0}, min(keys.extent(1) / chunk, cache.plan.capacity(prompt.sequence) - before));
    std::int64_t const row = cache.plan.first_rows[static_cast<std::size_t>(prompt.sequence)] + before;
    run(exec, put_keys<T>{keys, cache.rotary, prompt.tokens, chunk, row, chunks, cache.store.keys});
  }
  /// Ends a prompt. Returns how much of its keys is lost, on the executor.
  template <Executor Exec, class Cache, class T>
  array_view<subspace_measures const> finish(Exec const& exec, Cache const& cache, offload_prompt const&,
                                             view<T const, 3>, workspace const& space) const {
    auto const measures = space[cache.plan.key_parts.measures];
    run(exec, note_exact_keys{measures});
    return measures;
  }
  /// Keeps the keys of the chunk that leaves the ring in a step, if one does.
  template <Executor Exec, class Cache, class T>
  void archive(Exec const& exec, Cache const& cache, offload_step<T> const& step) const {
    run(exec, archive_keys<T, element_of<Cache>>{cache.plan.extents, cache.memory, step, cache.store.keys});
  }
  /// Copies keys in the same way as values: from records of the store to slots.
  template <Executor Exec, class Cache, class T>
  void load(Exec const& exec, Cache const& cache, offload_step<T> const& step) const {
    auto keys_as_values = cache.memory;
    keys_as_values.values = cache.store.keys;
    keys_as_values.slot_values = cache.memory.slot_keys;
    run(exec, fetch_values<T, element_of<Cache>, exact_values>{cache.plan.extents, keys_as_values, step,
                                                               cache.store.crosses_bus});
  }

 private:
  template <class Cache>
  using element_of = typename Cache::element_type;
};

static_assert(KeyStore<exact_keys>);

}  // namespace v0
}  // namespace tessera
