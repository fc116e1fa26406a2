// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Finds directions of keys on CUDA devices: which kernels take the place of the portable programs.
///
/// factorize_keys.hpp includes this header where nvcc compiles: use key_factorization, or a cache made of it, as on the
/// CPU, with a tessera::cuda executor. On sm_90a tensor cores multiply keys of 16 bits with each other and with
/// directions (program/subspace/key_products.cuh), where heads have a multiple of 64 channels and rows begin at
/// multiples of 16 bytes; else the portable programs do. Searches: subspace_search.cuh. Nothing waits or allocates, and
/// all of it can be captured in a CUDA graph.
///
/// Launches for 131072 tokens, 1024 channels and 160 directions: 2 for each 26624 tokens, 50 for the search, 1 for the
/// projection. Their bounds: tensor cores 0.25 + 0.07 ms; in a search the factorizations, of which there are 10, by one
/// thread block each.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/subspace/factorize_keys.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/program/subspace/detail/key_product_epilogues.cuh>
#include <tessera/program/subspace/key_product_schedule.hpp>
#include <tessera/program/subspace/key_products.cuh>
#include <tessera/program/subspace/sum_gram_parts.hpp>
#include <tessera/tile/cuda/gemm_tile.cuh>

namespace tessera {
inline namespace v0 {
namespace detail {

template <class T>
inline constexpr bool is_of_16_bits = std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

template <class T>
using gram_products =
    head_products<T, gram_works, store_gram_part, head_products_policy{operand_order::across_depth, 256, 4}>;
template <class T>
using projection_products =
    head_products<T, projection_works, store_coefficients<T>, head_products_policy{operand_order::along_depth, 192, 4}>;

/// Whether boxes of 64 channels lie within a head, and 31 bits number the tokens and the channels of all heads.
template <class T>
bool suits_head_boxes(view<T const, 3> keys) {
  constexpr std::int64_t most = 0x7fffffff - 4096;
  return keys.extent(2) % head_box == 0 && keys.extent(1) < most && keys.extent(0) * keys.extent(2) < most &&
         can_map_heads(keys);
}

/// Runs a program with as many clusters as the device runs at a time, or with one for each work item if there are
/// fewer.
template <class Architectures, class Program>
void run_clusters(basic_cuda<Architectures> const& exec, Program const& program) {
  std::int64_t const clusters = max(exec.state->multiprocessors() / 2, 1);
  exec.run(program, 2 * min(std::int64_t{program.works.count()}, clusters));
}

/// Enqueues products of keys with each other by tensor cores, if they can take the call. Returns whether they can.
template <class Architectures, class T>
bool try_gram_products(basic_cuda<Architectures> const& exec, gram_call<T> const& call) {
  constexpr char const* where = "key_factorization.accumulate";
  using program_type = gram_products<T>;
  std::int64_t const tokens = call.keys.extent(1);
  if (tokens == 0) {
    return true;
  }
  std::int64_t const width = call.gram.extent(0);
  std::int64_t const fitting = call.room.size() / gram_works::part_elements(width);
  std::int64_t const parts = min(gram_works::parts_at_a_time(width), fitting);
  bool const has_place = reinterpret_cast<std::uintptr_t>(call.room.data) % 16 == 0 && call.room.is_contiguous();
  if (parts == 0 || !has_place || !suits_head_boxes(call.keys) || !exec.template has<program_type>()) {
    return false;
  }
  tensor_map const a = make_head_map(where, call.keys, {head_box, head_box});
  tensor_map const b = make_head_map(where, call.keys, {head_box / 2, head_box});
  std::int64_t const span = parts * gram_works::part_tokens;
  for (std::int64_t first = 0; first < tokens; first += span) {
    gram_works const works{static_cast<std::int32_t>(call.keys.extent(2)), static_cast<std::int32_t>(width),
                           static_cast<std::int32_t>(first), static_cast<std::int32_t>(min(span, tokens - first))};
    run_clusters(exec, program_type{a, b, works, {works, call.room.data}});
    run_program(exec, add_gram_parts{works, call.room, call.gram});
  }
  return true;
}

/// Enqueues products of keys with directions by tensor cores, if they can take the call. Returns whether they can.
template <class Architectures, class T>
bool try_projection(basic_cuda<Architectures> const& exec, projection_call<T> const& call) {
  constexpr char const* where = "key_factorization.project";
  using program_type = projection_products<T>;
  using boxes = store_sums_by_boxes<T, plain_sum>;
  std::int64_t const rank = call.directions.extent(1);
  if (call.keys.extent(1) == 0) {
    return true;
  }
  view<T const, 3> const directions(call.directions.data, {1, call.directions.extent(0), rank},
                                    {0, call.directions.stride(0), call.directions.stride(1)});
  constexpr std::int64_t in_16_bytes = 8;  // elements of 16 bits
  if (rank > 192 || rank % in_16_bytes != 0 || !suits_head_boxes(call.keys) || !can_map_heads(directions) ||
      !can_map(call.coefficients) || !exec.template has<program_type>()) {
    return false;
  }
  auto const tokens = static_cast<std::int32_t>(call.keys.extent(1));
  projection_works const works{static_cast<std::int32_t>(call.keys.extent(2)),
                               static_cast<std::int32_t>(call.directions.extent(0)), tokens};
  tensor_map const target = make_tensor_map(where, call.coefficients, {boxes::box_rows, boxes::box_columns});
  boxes const epilogue{{target, tokens, static_cast<std::int32_t>(rank), {}}};
  run_clusters(exec, program_type{make_head_map(where, call.keys, {head_box, head_box}),
                                  make_head_map(where, directions, {head_box / 2, head_box}),
                                  works,
                                  {epilogue}});
  return true;
}

}  // namespace detail

/// Enqueues products of keys with each other: by tensor cores for keys of 16 bits on sm_90a whose layout they can take,
/// else by the portable programs.
template <int... Architectures, class T>
void add_products(basic_cuda<arch_list<Architectures...>> const& exec, gram_call<T> const& call) {
  if constexpr (((Architectures == 900) || ...) && detail::is_of_16_bits<T>) {
    if (detail::try_gram_products(exec, call)) {
      return;
    }
  }
  detail::add_products_portably(exec, call);
}

/// Enqueues products of keys with directions: by tensor cores for keys of 16 bits on sm_90a whose layout they can take,
/// else by the portable programs.
template <int... Architectures, class T>
void project_keys(basic_cuda<arch_list<Architectures...>> const& exec, projection_call<T> const& call) {
  if constexpr (((Architectures == 900) || ...) && detail::is_of_16_bits<T>) {
    if (detail::try_projection(exec, call)) {
      return;
    }
  }
  detail::project_keys_portably(exec, call);
}

}  // namespace v0
}  // namespace tessera
