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
/// projection. Their bounds: tensor cores 0.25 + 0.07 ms; in a search, the 10 factorizations, each by one thread block.
#pragma once

#include <cstdint>

#include <tessera/algorithm/subspace/factorize_keys.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/refusal.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/map/plain_sum.hpp>
#include <tessera/program/subspace/detail/key_product_epilogues.cuh>
#include <tessera/program/subspace/key_product_schedule.hpp>
#include <tessera/program/subspace/key_products.cuh>
#include <tessera/program/subspace/sum_gram_parts.hpp>
#include <tessera/tile/cuda/gemm_tile.cuh>

namespace tessera {
inline namespace v0 {
namespace detail {

template <class T>
using gram_products =
    head_products<T, gram_schedule, store_gram_part, head_products_policy{operand_order::across_depth, 256, 4}>;
template <class T>
using projection_products = head_products<T, projection_schedule, store_coefficients<T>,
                                          head_products_policy{operand_order::along_depth, 192, 4}>;

/// Why TMA cannot load keys in boxes of 64 channels within a head, or none.
template <class T>
refusal refuses_head_boxes(view<T const, 3> keys) {
  constexpr std::int64_t most = 0x7fffffff - 4096;
  return first_of(unless(keys.extent(2) % head_box == 0, "head_dim", keys.extent(2), "a multiple of 64"),
                  unless(keys.extent(1) < most && keys.extent(0) * keys.extent(2) < most,
                         "tokens, or channels of all heads, do not fit into 31 bits"),
                  unless(can_map_heads(keys), "TMA cannot load keys of these strides"));
}

/// How many parts of sums there is room for at a time.
template <class T>
std::int64_t parts_at_a_time(gram_call<T> const& call) {
  std::int64_t const width = call.gram.extent(0);
  return min(gram_schedule::parts_at_a_time(width), call.room.size() / gram_schedule::part_elements(width));
}

/// Runs a program with as many clusters as the device runs at a time, or with one for each work item if there are
/// fewer.
template <class Architectures, class Kernel>
void run_clusters(basic_cuda<Architectures> const& exec, Kernel const& program) {
  std::int64_t const clusters = max(exec.state->multiprocessors() / 2, 1);
  exec.run(program, 2 * min(std::int64_t{program.schedule.count()}, clusters));
}

/// Enqueues products of keys with each other by tensor cores, which take the call.
template <class Architectures, class T>
void run_gram_products(basic_cuda<Architectures> const& exec, gram_call<T> const& call) {
  constexpr char const* where = gram_call<T>::function;
  using program_type = gram_products<T>;
  std::int64_t const tokens = call.keys.extent(1);
  std::int64_t const width = call.gram.extent(0);
  std::int64_t const parts = parts_at_a_time(call);
  tensor_map const a = make_head_map(where, call.keys, {head_box, head_box});
  tensor_map const b = make_head_map(where, call.keys, {head_box / 2, head_box});
  std::int64_t const span = parts * gram_schedule::part_tokens;
  for (std::int64_t first = 0; first < tokens; first += span) {
    gram_schedule const schedule{static_cast<std::int32_t>(call.keys.extent(2)), static_cast<std::int32_t>(width),
                                 static_cast<std::int32_t>(first),
                                 static_cast<std::int32_t>(min(span, tokens - first))};
    run_clusters(exec, program_type{a, b, schedule, {schedule, call.room.data}});
    add_gram_parts const add{schedule, call.room, call.gram};
    exec.run(add, add.groups());
  }
}

/// The directions of a projection as one head, for TMA.
template <class T>
view<T const, 3> head_of_directions(projection_call<T> const& call) {
  auto const& directions = call.directions;
  return {directions.data,
          {1, directions.extent(0), directions.extent(1)},
          {0, directions.stride(0), directions.stride(1)}};
}

/// Enqueues products of keys with directions by tensor cores, which take the call.
template <class Architectures, class T>
void run_projection(basic_cuda<Architectures> const& exec, projection_call<T> const& call) {
  constexpr char const* where = projection_call<T>::function;
  using program_type = projection_products<T>;
  using boxes = store_sums_by_boxes<T, plain_sum>;
  std::int64_t const rank = call.directions.extent(1);
  auto const tokens = static_cast<std::int32_t>(call.keys.extent(1));
  projection_schedule const schedule{static_cast<std::int32_t>(call.keys.extent(2)),
                                     static_cast<std::int32_t>(call.directions.extent(0)), tokens};
  tensor_map const target = make_tensor_map(where, call.coefficients, {boxes::box_rows, boxes::box_columns});
  boxes const epilogue{{target, tokens, static_cast<std::int32_t>(rank), {}}};
  run_clusters(exec, program_type{make_head_map(where, call.keys, {head_box, head_box}),
                                  make_head_map(where, head_of_directions(call), {head_box / 2, head_box}),
                                  schedule,
                                  {epilogue}});
}

}  // namespace detail

/// Products of keys with each other by tensor cores: keys of 16 bits on sm_90a whose layout TMA can load.
struct gram_products_model {
  static constexpr char const* name = "key_products (TMA, wgmma)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return first_of(unless(Exec::template is_compiled_for<900>, "this source is not compiled for sm_90a"),
                    unless(is_16_bit_float<typename Call::value_type>, "keys do not have 16 bits"));
  }
  template <class Architectures, class T>
  static refusal refuses(basic_cuda<Architectures> const& exec, gram_call<T> const& call) {
    bool const is_aligned = reinterpret_cast<std::uintptr_t>(call.room.data) % 16 == 0 && call.room.is_contiguous();
    return call.keys.extent(1) == 0
               ? refusal{}
               : first_of(unless(detail::parts_at_a_time(call) > 0, "there is no memory for sums of parts"),
                          unless(is_aligned, "memory for sums of parts does not begin at a multiple of 16 bytes"),
                          detail::refuses_head_boxes(call.keys), exec.template lacks<detail::gram_products<T>>());
  }
  template <class Architectures, class T>
  static void run(basic_cuda<Architectures> const& exec, gram_call<T> const& call) {
    if (call.keys.extent(1) > 0) {
      detail::run_gram_products(exec, call);
    }
  }
};

/// Products of keys with directions by tensor cores: keys of 16 bits on sm_90a whose layout TMA can load.
struct projection_model {
  static constexpr char const* name = "key_products (TMA, wgmma)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return gram_products_model::refuses_types<Exec, Call>();
  }
  template <class Architectures, class T>
  static refusal refuses(basic_cuda<Architectures> const& exec, projection_call<T> const& call) {
    constexpr std::int64_t in_16_bytes = 8;  // elements of 16 bits
    std::int64_t const rank = call.directions.extent(1);
    return call.keys.extent(1) == 0
               ? refusal{}
               : first_of(unless(rank <= 192, "the rank", rank, "at most 192"),
                          unless(rank % in_16_bytes == 0, "the rank", rank, "a multiple of 8"),
                          detail::refuses_head_boxes(call.keys),
                          unless(can_map_heads(detail::head_of_directions(call)), "TMA cannot load the directions"),
                          unless(can_map(call.coefficients), "TMA cannot store the coefficients"),
                          exec.template lacks<detail::projection_products<T>>());
  }
  template <class Architectures, class T>
  static void run(basic_cuda<Architectures> const& exec, projection_call<T> const& call) {
    if (call.keys.extent(1) > 0) {
      detail::run_projection(exec, call);
    }
  }
};

/// The programs that CUDA devices have for this call.
template <class Architectures, class T>
struct models_for<basic_cuda<Architectures>, gram_call<T>> {
  /// The list of models.
  using type = model_list<gram_products_model>;
};
/// The programs that CUDA devices have for this call.
template <class Architectures, class T>
struct models_for<basic_cuda<Architectures>, projection_call<T>> {
  /// The list of models.
  using type = model_list<projection_model>;
};

}  // namespace v0
}  // namespace tessera
