// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `low_rank<rank>` and `low_rank_keys<P>`: KeyStores with which an offloaded cache keeps the coefficients of keys that
/// a Projector finds, and rebuilds the keys of the chunks that a step selects.
///
///     using method = tessera::offloaded_cache<low_rank<160>, landmark_selector<8>, keep_outliers<48>>;
///     using own = tessera::offloaded_cache<low_rank_keys<my_projector>, landmark_selector<8>, keep_outliers<48>>;
///     auto const plan = own::plan<bfloat16>(exec, shape, options, {}, {.projector = my_projector{.seed = 7}});
///
/// A row of the Projector is the key of a token before its rotation, with all channels of all key heads.
///
/// low_rank<rank> is low_rank_keys<low_rank_projector<rank>>. It finds the directions of low_rank_projector up to the
/// error of a few rounds of subspace iteration, from sums of products as keys come (key_factorization), on any
/// executor. If keys have fewer channels than the rank, the rank is the number of channels. Steps may renew directions
/// (offload_options::renewal_until), and refit() finds new ones.
///
/// Any other Projector is called on the host, so that the executor must be one of the host: fit() once for each prompt,
/// with its rows, which are memory of the workspace; project() once for each archived token; reconstruct() once for
/// each token and head that a step misses. Coefficients are rounded to the type of the cache. The basis of a sequence
/// stays that of its prompt; if the prompt is empty, the basis is fitted to the ring's tokens when the first chunk
/// leaves the ring. The bases are in memory of the host, and copies of an opened cache share them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <tessera/algorithm/offloaded_cache/key_store.hpp>
#include <tessera/algorithm/offloaded_cache/offloaded_cache_types.hpp>
#include <tessera/algorithm/subspace/factorize_keys.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/projector.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/offloaded_cache/archive_chunks.hpp>
#include <tessera/program/offloaded_cache/cache_memory.hpp>
#include <tessera/program/offloaded_cache/detail/project_keys.hpp>
#include <tessera/program/offloaded_cache/rebuild_keys.hpp>
#include <tessera/program/offloaded_cache/refit_keys.hpp>
#include <tessera/project/low_rank.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/matrix_view.hpp>
#include <tessera/view/view.hpp>

namespace tessera {
inline namespace v0 {

/// Whether an executor's programs can call functions of the host; false for devices.
template <class Exec>
inline constexpr bool runs_host_functions = true;

/// A KeyStore of coefficients by any Projector, which is called through its concept.
template <Projector P>
struct low_rank_keys {
  /// Whether keys are coefficients in directions that offloaded_memory holds.
  static constexpr bool has_directions = false;
  /// Whether steps find new directions after short prompts.
  static constexpr bool renews = false;

  P projector = {};  ///< a Projector with state is called with its state

  /// The regions of the workspace of a prompt.
  template <Scalar T>
  struct parts_type {
    region<float> rows;                  ///< keys of the longest prompt
    region<row_loss> losses;             ///< the parts of the keys of its archived tokens that coefficients lose
    region<subspace_measures> measures;  ///< the sums of these parts
  };
  /// What an opened cache has beside offloaded_memory: the bases, which copies of the cache share.
  template <Scalar T>
  using store_type = std::shared_ptr<fitted_bases<P>>;

  /// The coefficients of a token.
  [[nodiscard]] std::int64_t rank(std::int64_t /*width*/) const { return P::rank; }

  /// Throws value_error where options ask for products of keys, or where the Projector has more coefficients than a row
  /// has channels.
  template <Scalar T>
  parts_type<T> add_to(offload_extents const& n, offload_options const& chosen, offload_workspaces& to) const {
    constexpr char const* here = "offloaded_cache.plan";
    check<value_error>(!chosen.keeps_products, here, ": keeps_products is ", chosen.keeps_products,
                       " but only low_rank<rank> finds directions from products; it must be 0");
    check<value_error>(P::rank <= n.width(), here, ": the Projector has ", P::rank, " coefficients but rows have ",
                       n.width(), " channels");
    std::int64_t const longest = n.longest * n.chunk;
    return {to.prompt.add<float>("rows of keys", checked_multiply(here, longest + n.ring, n.width())),
            to.prompt.add<row_loss>("what coefficients lose", longest),
            to.prompt.add<subspace_measures>("measures of keys", 1)};
  }
  /// The store in the memory that add_to() has planned.
  template <Scalar T>
  store_type<T> open(offload_extents const& n, offload_options const&, parts_type<T> const&, workspace const&,
                     workspace const&) const {
    auto bases = std::make_shared<fitted_bases<P>>(fitted_bases<P>{projector, {}});
    bases->each.resize(static_cast<std::size_t>(n.batch));
    return bases;
  }

  /// Begins a prompt of a sequence.
  template <Executor Exec, class Cache>
  void begin(Exec const& exec, Cache const& cache, std::int64_t sequence, workspace const&) const {
    static_assert(runs_host_functions<Exec>,
                  "tessera: low_rank_keys calls its Projector on the host; on a device keys are low_rank<rank>, whose "
                  "Projector is low_rank_projector, or exact_keys");
    run(exec, fit_rows<P>{cache.store.get(), sequence, {}});
  }
  /// Takes the keys of the next tokens of a prompt.
  template <Executor Exec, class Cache, class T>
  void take(Exec const&, Cache const&, offload_prompt const&, view<T const, 3>, workspace const&) const {}

  /// Ends a prompt. Returns how much of its keys is lost, on the executor.
  template <Executor Exec, class Cache, class T>
  array_view<subspace_measures const> finish(Exec const& exec, Cache const& cache, offload_prompt const& prompt,
                                             view<T const, 3> keys, workspace const& space) const {
    offload_extents const& n = cache.plan.extents;
    auto const& parts = cache.plan.key_parts;
    matrix_view<float> const rows(space[parts.rows].data, {prompt.tokens, n.width()});
    std::int64_t const tokens = n.archived(prompt.tokens) * n.chunk;
    std::int64_t const first = cache.plan.first_rows[static_cast<std::size_t>(prompt.sequence)] * n.chunk;
    array_view<row_loss> const losses(space[parts.losses].data, tokens);
    fitted_bases<P>* const bases = cache.store.get();
    run(exec, gather_rows<T>{keys, rows});
    run(exec, fit_rows<P>{bases, prompt.sequence, rows});
    run(exec,
        project_rows_of<T, P>{bases, prompt.sequence, rows, cache.memory.coefficients.slice(0, first, tokens), losses});
    auto const measures = space[parts.measures];
    run(exec, sum_lost{losses, measures, prompt.tokens});
    return measures;
  }
  /// Keeps the keys of the chunk that leaves the ring in a step, if one does.
  template <Executor Exec, class Cache, class T>
  void archive(Exec const& exec, Cache const& cache, offload_step<T> const& step) const {
    run(exec,
        project_leaving<T, typename Cache::element_type, P>{cache.plan.extents, cache.memory, step, cache.store.get()});
  }
  /// Puts the keys of selected chunks that are in no slot into slots.
  template <Executor Exec, class Cache, class T>
  void load(Exec const& exec, Cache const& cache, offload_step<T> const& step) const {
    run(exec, reconstruct_missed<T, typename Cache::element_type, P>{cache.plan.extents, cache.memory, step,
                                                                     cache.rotary, cache.store.get()});
  }
};

/// A KeyStore of coefficients in the directions of low_rank_projector, found by key_factorization on any executor.
template <int Rank>
struct low_rank_keys<low_rank_projector<Rank>> {
  /// Whether keys are coefficients in directions that offloaded_memory holds.
  static constexpr bool has_directions = true;
  /// Whether steps find new directions after short prompts.
  static constexpr bool renews = true;

  low_rank_projector<Rank> projector = {};  ///< has no state

  /// The regions of the workspace of a prompt.
  template <Scalar T>
  struct parts_type {
    key_factorization search;   ///< the search for directions of keys
    region<float> gram;         ///< products of channels, where the cache does not keep them
    region<T> directions;       ///< for refit(): the new directions
    region<float> relation;     ///< for refit(): products of the old directions with the new ones
    subspace_regions searched;  ///< the memory of the search
  };
  /// Coefficients, directions and products are in offloaded_memory.
  template <Scalar T>
  struct store_type {};

  /// The directions of keys of so many channels.
  [[nodiscard]] std::int64_t rank(std::int64_t width) const { return min(std::int64_t{Rank}, width); }

  /// Plans the memory of a cache of these extents, and throws value_error for options that do not fit: see KeyStore.
  template <Scalar T>
  parts_type<T> add_to(offload_extents const& n, offload_options const& chosen, offload_workspaces& to) const {
    constexpr char const* here = "offloaded_cache.plan";
    bool const keeps = chosen.keeps_products;
    std::int64_t const width = n.width();
    key_factorization const search(width, n.rank, chosen.search);
    auto const gram = to.prompt.add<float>("products of channels", keeps ? 0 : checked_multiply(here, width, width));
    auto const directions = to.prompt.add<T>("new directions", keeps ? checked_multiply(here, width, n.rank) : 0);
    auto const relation = to.prompt.add<float>("old directions in new ones", keeps ? n.rank * n.rank : 0);
    return {search, gram, directions, relation, search.add_to(to.prompt)};
  }
  /// The store in the memory that add_to() has planned.
  template <Scalar T>
  store_type<T> open(offload_extents const&, offload_options const&, parts_type<T> const&, workspace const&,
                     workspace const&) const {
    return {};
  }

  /// Begins a prompt of a sequence.
  template <Executor Exec, class Cache>
  void begin(Exec const& exec, Cache const& cache, std::int64_t sequence, workspace const& space) const {
    matrix_view<float> const gram = gram_of(cache, sequence, space);
    exec.clear(array_view<float>(gram.data, gram.size()));
  }
  /// Takes the keys of the next tokens of a prompt.
  template <Executor Exec, class Cache, class T>
  void take(Exec const& exec, Cache const& cache, offload_prompt const& prompt, view<T const, 3> keys,
            workspace const& space) const {
    cache.plan.key_parts.search.accumulate(exec, keys, gram_of(cache, prompt.sequence, space),
                                           room_of<T>(cache, prompt.sequence));
  }
  /// Ends a prompt. Returns how much of its keys is lost, on the executor.
  template <Executor Exec, class Cache, class T>
  array_view<subspace_measures const> finish(Exec const& exec, Cache const& cache, offload_prompt const& prompt,
                                             view<T const, 3> keys, workspace const& space) const {
    offload_extents const& n = cache.plan.extents;
    auto const& parts = cache.plan.key_parts;
    auto const& memory = cache.memory;
    std::int64_t const row = cache.plan.first_rows[static_cast<std::size_t>(prompt.sequence)];
    std::int64_t const tokens = n.archived(prompt.tokens) * n.chunk;
    parts.search.settle(exec, keys, gram_of(cache, prompt.sequence, space), parts.searched, space);
    find(exec, cache, prompt.sequence, space, memory.directions[prompt.sequence]);
    key_factorization::project(exec, keys.slice(1, 0, tokens), matrix_view<T const>(memory.directions[prompt.sequence]),
                               memory.coefficients.slice(0, row * n.chunk, tokens));
    return key_factorization::measures(parts.searched, space);
  }
  /// Computes coefficients of the chunk that leaves the ring, if one does, and adds to products, where the cache keeps
  /// them.
  template <Executor Exec, class Cache, class T>
  void archive(Exec const& exec, Cache const& cache, offload_step<T> const& step) const {
    using element = typename Cache::element_type;
    run(exec, project_archived<T, element>{cache.plan.extents, cache.memory, step});
    if (cache.memory.gram.data != nullptr) {
      run(exec, add_to_gram<T, element>{cache.plan.extents, cache.memory, step});
    }
  }
  /// Puts the keys of selected chunks that are in no slot into slots.
  template <Executor Exec, class Cache, class T>
  void load(Exec const& exec, Cache const& cache, offload_step<T> const& step) const {
    run(exec, rebuild_keys<T, typename Cache::element_type>{cache.plan.extents, cache.memory, step, cache.rotary});
  }

  /// Finds new directions from the products that the cache keeps, and writes the coefficients in these directions.
  template <Executor Exec, class Cache>
  void refit(Exec const& exec, Cache const& cache, std::int64_t sequence, workspace const& space) const {
    using T = typename Cache::value_type;
    using element = typename Cache::element_type;
    auto const& plan = cache.plan;
    offload_extents const& n = plan.extents;
    matrix_view<T> const directions(space[plan.key_parts.directions].data, {n.width(), n.rank});
    matrix_view<float> const relation(space[plan.key_parts.relation].data, {n.rank, n.rank});
    find(exec, cache, sequence, space, directions);
    run(exec, relate_directions<T>{cache.memory.directions[sequence], directions, relation});
    run(exec, turn_coefficients<T, element>{n, cache.memory, relation, sequence, plan.capacity(sequence)});
    run(exec, finish_refit<T, element>{n, cache.memory, directions, sequence,
                                       key_factorization::measures(plan.key_parts.searched, space)});
  }

 private:
  template <class Cache>
  static matrix_view<float> gram_of(Cache const& cache, std::int64_t sequence, workspace const& space) {
    std::int64_t const width = cache.plan.extents.width();
    float* const kept = cache.memory.gram.data;
    return {kept != nullptr ? kept + sequence * width * width : space[cache.plan.key_parts.gram].data, {width, width}};
  }
  /// Memory for sums over some of a prompt's tokens: that of its coefficients, which are written after the last of
  /// these sums.
  template <class T, class Cache>
  static array_view<float> room_of(Cache const& cache, std::int64_t sequence) {
    offload_extents const& n = cache.plan.extents;
    std::int64_t const row = n.chunk * n.rank * static_cast<std::int64_t>(sizeof(T));
    auto const first = cache.plan.first_rows[static_cast<std::size_t>(sequence)];
    auto* const bytes = reinterpret_cast<std::byte*>(cache.memory.coefficients.data) + first * row;
    return {reinterpret_cast<float*>(bytes), cache.plan.capacity(sequence) * row / std::int64_t{sizeof(float)}};
  }
  template <Executor Exec, class Cache, class T>
  static void find(Exec const& exec, Cache const& cache, std::int64_t sequence, workspace const& space,
                   matrix_view<T> directions) {
    cache.plan.key_parts.search.find(exec, matrix_view<float const>(gram_of(cache, sequence, space)),
                                     cache.plan.key_parts.searched, space, directions);
  }
};

/// Keys in the `Rank` directions that hold most of a sequence's keys.
template <int Rank>
using low_rank = low_rank_keys<low_rank_projector<Rank>>;

static_assert(KeyStore<low_rank<16>>);

}  // namespace v0
}  // namespace tessera
