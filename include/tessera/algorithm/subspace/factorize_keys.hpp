// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Finds the directions that hold most of the keys of all heads, without a singular value decomposition: it adds up the
/// products of all pairs of channels as keys arrive, on tensor cores, and finds a subspace from the sums.
///
///     key_factorization const factorization(width, 160);          // {.iterations = 4, .oversampling = 32}
///     workspace_plan const plan = factorization.plan_find(exec);
///     buffer<std::byte> memory(exec, plan.bytes());
///     workspace const space(plan, memory);
///     exec.clear(array_view<float>(gram.data, gram.size()));
///     factorization.accumulate(exec, keys, gram, room);           // heads x tokens x channels, in parts
///     factorization.settle(exec, keys, gram, space);              // all of them
///     factorization.find(exec, matrix_view<float const>(gram), directions, space);               // width x rank
///     factorization.project(exec, keys, matrix_view<bfloat16 const>(directions), coefficients);  // tokens x rank
///
/// An algorithm with a workspace of its own takes the regions of a search into its plan (add_to()), and gives them to
/// settle() and find().
///
/// The products of 2048 tokens are summed in fp32 and then added to the others, so that keys in parts of multiples of
/// 2048 tokens give the same bits as all tokens in one call. For spectra as flat as those of keys, the part of the keys
/// outside of the found directions is at most 1.01 times the part outside of the best `rank` directions
/// (tests/algorithm/subspace/factorize_keys_test.cpp); with an eigenvalue decomposition of the same products the excess
/// is 1e-8. low_rank_projector (project/low_rank.hpp) is the reference in double.
///
/// factorize_keys.cuh and subspace_search.cuh list the faster programs of CUDA devices.
#pragma once

#include <cstdint>

#include <tessera/algorithm/subspace/subspace_search.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/scalar.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/map/add_matrix.hpp>
#include <tessera/map/plain_sum.hpp>
#include <tessera/program/gemm/gemm_tiles.hpp>
#include <tessera/program/gemm/store_sums.hpp>
#include <tessera/program/subspace/iterate.hpp>
#include <tessera/program/subspace/key_product_schedule.hpp>
#include <tessera/program/subspace/large_products.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/source/joined_heads.hpp>

namespace tessera {
inline namespace v0 {

/// A call that adds the products of all pairs of channels to `gram`.
template <Scalar T>
struct gram_call {
  using value_type = T;
  static constexpr char const* function = "key_factorization.accumulate";

  view<T const, 3> keys;    ///< heads x tokens x channels
  matrix_view<float> gram;  ///< width x width
  array_view<float> room;   ///< memory for sums of parts of the tokens, at a multiple of 16 bytes; or null
};

/// A call that computes coefficients = keys * directions.
template <Scalar T>
struct projection_call {
  using value_type = T;
  static constexpr char const* function = "key_factorization.project";

  view<T const, 3> keys;            ///< heads x tokens x channels
  matrix_view<T const> directions;  ///< width x rank
  matrix_view<T> coefficients;      ///< tokens x rank
};

/// Enqueues products of keys with each other by the portable program; run() (exec/run.hpp) may have a faster one.
template <Executor Exec, class T>
void run_portably(Exec const& exec, gram_call<T> const& call) {
  constexpr std::int64_t block_tokens = gram_schedule::part_tokens;
  for (std::int64_t first = 0; first < call.keys.extent(1); first += block_tokens) {
    std::int64_t const count = min(block_tokens, call.keys.extent(1) - first);
    turned_heads<T> const source{{call.keys.slice(1, first, count)}};
    using epilogue = store_sums<float, add_matrix<float>>;
    gemm_tiles<T, turned_heads<T>, turned_heads<T>, epilogue> const program{source, source, {call.gram, {call.gram}}};
    exec.run(program, program.tiles());
  }
}

/// Enqueues products of keys with directions by the portable program; run() (exec/run.hpp) may have a faster one.
template <Executor Exec, class T>
void run_portably(Exec const& exec, projection_call<T> const& call) {
  using epilogue = store_sums<T, plain_sum>;
  gemm_tiles<T, joined_heads<T>, dense<T>, epilogue> const program{
      {call.keys}, {call.directions.transposed()}, {call.coefficients, {}}};
  exec.run(program, program.tiles());
}

/// Finds the `rank` directions that hold most of the keys of all heads, and coefficients of keys in them.
class key_factorization {
 public:
  /// Tokens whose products are summed before they are added to the others.
  static constexpr std::int64_t block_tokens = gram_schedule::part_tokens;

  /// `width`: channels of all heads together. Throws value_error for impossible ranks and options.
  key_factorization(std::int64_t width, std::int64_t rank, subspace_options options = {})
      : width_(width),
        rank_(rank),
        columns_(min(rank + max(options.oversampling, 0), width)),
        iterations_(options.iterations) {
    check<value_error>(rank >= 1 && rank <= width, "key_factorization: the rank is ", rank,
                       " but keys of all heads have ", width, " channels");
    check<value_error>(columns_ <= key_directions, "key_factorization: ", columns_,
                       " directions are looked for but at most ", key_directions, " can be");
    check<value_error>(options.iterations >= 1, "key_factorization: there are ", options.iterations,
                       " iterations but at least 1 is needed");
  }

  /// The workspace that settle() and then find() share, and that measures() reads.
  template <Executor Exec>
  [[nodiscard]] workspace_plan plan_find(Exec const&) const {
    workspace_plan plan("key_factorization.find");
    static_cast<void>(add_to(plan));
    return plan;
  }

  /// Adds the regions of settle(), find() and measures() to the plan of another workspace.
  [[nodiscard]] subspace_regions add_to(workspace_plan& plan) const {
    std::int64_t const blocks =
        subspace_rounds::suits(rank_) ? align_up(rank_, std::int64_t{block_products::block}) : 0;
    return {plan.add<float>("directions that are tried", width_ * columns_),
            plan.add<float>("their images", width_ * columns_),
            plan.add<double>("products of directions", columns_ * columns_),
            plan.add<double>("their eigenvectors", columns_ * columns_),
            plan.add<double>("splits of products", product_splits::splits * blocks * blocks),
            plan.add<double>("factor of products", blocks * blocks),
            plan.add<double>("what channels hold", width_),
            plan.add<std::int32_t>("order of directions", rank_),
            plan.add<subspace_measures>("measures of keys", 1)};
  }

  /// The elements of `room` with which accumulate() is fastest on GPUs. With less room it sums fewer parts at a time,
  /// and with too little for the sums of one part it falls back to portable programs.
  [[nodiscard]] static std::int64_t room_elements(std::int64_t width) {
    return gram_schedule::parts_at_a_time(width) * gram_schedule::part_elements(width);
  }

  /// Adds the products of all pairs of channels, over the given tokens, to `gram`. Overwrites `room`. Throws
  /// shape_error for extents that do not fit together.
  template <Executor Exec, class T>
  void accumulate(Exec const& exec, view<T const, 3> keys, matrix_view<float> gram, array_view<float> room = {}) const {
    check_keys(gram_call<T>::function, keys);
    check_gram(gram_call<T>::function, gram);
    check_memory(gram_call<T>::function, "elements of the room", room);
    check_reach(exec, gram_call<T>::function, "keys", keys, "products of channels", gram, "elements of the room", room);
    run(exec, gram_call<T>{keys, gram, room});
  }

  /// If keys are so large that sums of their products in fp32 are infinite, replaces these sums by those of keys times
  /// a power of two (`scale` of the measures). It needs all keys once more. Replacing is slow: each of width^2 / 2 sums
  /// is in double. Call it before find(), for keys that may be as large as 1e15.
  template <Executor Exec, class T>
  void settle(Exec const& exec, view<T const, 3> keys, matrix_view<float> gram, subspace_regions const& at,
              workspace const& space) const {
    check_keys("key_factorization.settle", keys);
    check_gram("key_factorization.settle", gram);
    check_reach(exec, "key_factorization.settle", "keys", keys, "products of channels", gram, "bytes of the workspace",
                space);
    run(exec, weigh_channels<T>{keys, gram, space[at.held]});
    run(exec, scale_products<T>{keys, space[at.held], gram, space[at.measures]});
  }

  /// settle() in a workspace of plan_find(). Throws shape_error for extents that do not fit together.
  template <Executor Exec, class T>
  void settle(Exec const& exec, view<T const, 3> keys, matrix_view<float> gram, workspace const& space) const {
    settle(exec, keys, gram, regions_in("key_factorization.settle", space), space);
  }

  /// The measures that a search writes next to its directions, in a workspace of plan_find().
  [[nodiscard]] array_view<subspace_measures const> measures(workspace const& space) const {
    return space[regions_in("key_factorization.measures", space).measures];
  }
  /// The measures in regions of another workspace.
  [[nodiscard]] static array_view<subspace_measures const> measures(subspace_regions const& at,
                                                                    workspace const& space) {
    return space[at.measures];
  }

  /// Enqueues the search: from `gram`, the products of all pairs of channels, to `directions`, width x rank and
  /// orthonormal.
  template <Executor Exec, class T>
  void find(Exec const& exec, matrix_view<float const> gram, subspace_regions const& at, workspace const& space,
            matrix_view<T> directions) const {
    constexpr char const* where = subspace_search<T>::function;
    check_gram(where, gram);
    check<shape_error>(directions.extent(0) == width_ && directions.extent(1) == rank_, where, ": directions are ",
                       directions.extent(0), " x ", directions.extent(1), " but ", width_, " x ", rank_,
                       " were planned");
    check_memory(where, "directions", directions);
    check_reach(exec, where, "products of channels", gram, "directions", directions, "bytes of the workspace", space);
    run(exec, subspace_search<T>{gram, directions, columns_, iterations_, at, space});
  }

  /// find() in a workspace of plan_find(). Throws shape_error for extents that do not fit together.
  template <Executor Exec, class T>
  void find(Exec const& exec, matrix_view<float const> gram, matrix_view<T> directions, workspace const& space) const {
    find(exec, gram, regions_in(subspace_search<T>::function, space), space, directions);
  }

  /// Enqueues coefficients = keys * directions for each token. Throws shape_error for extents that do not fit together.
  template <Executor Exec, class T>
  static void project(Exec const& exec, view<T const, 3> keys, matrix_view<T const> directions,
                      matrix_view<T> coefficients) {
    constexpr char const* where = projection_call<T>::function;
    check<shape_error>(keys.extent(0) * keys.extent(2) == directions.extent(0), where, ": keys have ", keys.extent(0),
                       " heads of ", keys.extent(2), " channels but directions have ", directions.extent(0),
                       " channels");
    check<shape_error>(coefficients.extent(0) == keys.extent(1) && coefficients.extent(1) == directions.extent(1),
                       where, ": coefficients are ", coefficients.extent(0), " x ", coefficients.extent(1), " but ",
                       keys.extent(1), " tokens have ", directions.extent(1), " each");
    check_memory(where, "keys", keys);
    check_memory(where, "directions", directions);
    check_memory(where, "coefficients", coefficients);
    check_reach(exec, projection_call<T>::function, "keys", keys, "directions", directions, "coefficients",
                coefficients);
    run(exec, projection_call<T>{keys, directions, coefficients});
  }

 private:
  template <class T>
  void check_keys(char const* function, view<T const, 3> keys) const {
    check<shape_error>(keys.extent(0) * keys.extent(2) == width_, function, ": keys have ", keys.extent(0),
                       " heads of ", keys.extent(2), " channels but ", width_, " channels in all were planned");
    check_memory(function, "keys", keys);
  }
  void check_gram(char const* function, matrix_view<float const> gram) const {
    check<shape_error>(gram.extent(0) == width_ && gram.extent(1) == width_, function, ": products of channels are ",
                       gram.extent(0), " x ", gram.extent(1), " but ", width_, " x ", width_, " were planned");
    check_memory(function, "products of channels", gram);
  }
  subspace_regions regions_in(char const* function, workspace const& space) const {
    workspace_plan plan(function, workspace_plan::record::sizes);
    subspace_regions const regions = add_to(plan);
    space.check_room(function, plan.bytes(), rank_, " directions of ", width_, " channels");
    return regions;
  }

  std::int64_t width_;
  std::int64_t rank_;
  std::int64_t columns_;
  int iterations_;
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/algorithm/subspace/factorize_keys.cuh>
#endif
