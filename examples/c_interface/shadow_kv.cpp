// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include <tessera/exec/side_queue.hpp>
#include <tessera/project/rotary_tables.hpp>
#include <tessera/shadow_kv.hpp>

#include "errors.hpp"
#include "executors.hpp"
#include "tensors.hpp"
#include "tessera_c.h"

using tessera::bfloat16;

struct tessera_shadow_kv {
  static constexpr std::uint64_t mark = 0x766b2d776f646168;
  static constexpr char const* functions = "tessera_shadow_kv";

  tessera_c::object_head head;
};

namespace tessera_c {
namespace {

using method = tessera::shadow_kv;
using plan_type = method::plan_type<bfloat16>;

/// A cache and what belongs to its executor.
template <class Exec>
struct cache_object : tessera_shadow_kv {
  tessera::side_queue<Exec> side;
  void* stream;
  method::cache_type<bfloat16> cache;

  template <class... SideArguments>
  cache_object(object_head const& of, void* main_stream, method::cache_type<bfloat16> const& opened,
               SideArguments const&... side_of)
      : tessera_shadow_kv{of}, side(side_of...), stream(main_stream), cache(opened) {}
};

template <class Exec>
plan_type plan_of(Exec const& exec, tessera_shadow_kv_shape const& from) {
  constexpr std::int64_t most = 1 << 20;
  require(from.sequences >= 1 && from.sequences <= most, TESSERA_SHAPE_ERROR, "there are ", from.sequences,
          " sequences but must be 1 to ", most);
  require_given(from.tokens, "tokens");
  require(from.chunks >= 0, TESSERA_VALUE_ERROR, "a head selects ", from.chunks, " chunks but must select 0 or more");
  require(from.slots >= 0, TESSERA_VALUE_ERROR, "a head has ", from.slots, " slots but must have 0 or more");
  require(from.values_on_device == 0 || from.values_on_device == 1, TESSERA_VALUE_ERROR, "values_on_device is ",
          from.values_on_device, " but must be 0 or 1");
  tessera::offload_options options;
  options.slots = from.slots;
  options.softmax_scale = from.softmax_scale;
  options.values = from.values_on_device == 1 ? tessera::value_store::device : tessera::value_store::host;
  method::selector_type selector;
  selector.chunks = from.chunks;
  std::vector<std::int64_t> const tokens(from.tokens, from.tokens + from.sequences);
  return method::plan<bfloat16>(exec, {from.query_heads, from.key_heads, from.channels, tokens}, options, selector);
}

/// Rows of rotations, which are pairs of floats.
tessera::matrix_view<tessera::rotation const> rotations_in(char const* name, tessera_tensor const& tensor) {
  if (!is_given(tensor)) {
    return {};
  }
  auto const floats = view_of<float const, 3>(name, tensor);
  require(floats.extent(2) == 2 && floats.stride(2) == 1 && floats.stride(0) % 2 == 0 && floats.stride(1) % 2 == 0,
          TESSERA_SHAPE_ERROR, "the ", name, " have ", floats.extent(2), " numbers, with strides ", floats.stride(0),
          ", ", floats.stride(1), " and ", floats.stride(2), ", but must have 2, with strides even, even and 1");
  return {reinterpret_cast<tessera::rotation const*>(floats.data),
          {floats.extent(0), floats.extent(1)},
          {floats.stride(0) / 2, floats.stride(1) / 2}};
}

tessera::rotary_embedding rotary_of(tessera_shadow_kv_memory const& from) {
  require(from.rotary_pairs == TESSERA_ROTARY_HALVES || from.rotary_pairs == TESSERA_ROTARY_NEIGHBOURS,
          TESSERA_VALUE_ERROR, "rotary_pairs is ", from.rotary_pairs, " but must be ", TESSERA_ROTARY_HALVES, " or ",
          TESSERA_ROTARY_NEIGHBOURS);
  tessera::rotary_embedding made;
  made.within = rotations_in("rotations", from.rotations);
  made.blocks = rotations_in("rotations of blocks", from.block_rotations);
  made.pairs =
      from.rotary_pairs == TESSERA_ROTARY_HALVES ? tessera::rotary_pairs::halves : tessera::rotary_pairs::neighbours;
  bool const has_blocks = made.blocks.data != nullptr;
  require(!has_blocks || (made.within.extent(0) == tessera::rotary_embedding::block &&
                          made.within.extent(1) == made.blocks.extent(1)),
          TESSERA_SHAPE_ERROR, "there are rotations of ", made.within.extent(0), " positions of ",
          made.within.extent(1), " pairs but with those of blocks there must be ", tessera::rotary_embedding::block,
          " of ", made.blocks.extent(1));
  return made;
}

void open_cache(void* place, object_head const& head, tessera::cpu const& exec, tessera_shadow_kv_memory const&,
                method::cache_type<bfloat16> const& opened) {
  new (place) cache_object<tessera::cpu>(head, nullptr, opened, exec, method::side_marks, true);
}
#if defined(TESSERA_COMPILES_CUDA)
void open_cache(void* place, object_head const& head, tessera::cuda const& exec, tessera_shadow_kv_memory const& memory,
                method::cache_type<bfloat16> const& opened) {
  require(memory.side_stream != exec.stream, TESSERA_VALUE_ERROR,
          "the side stream and the executor's stream are the same but must be two");
  new (place) cache_object<tessera::cuda>(head, exec.stream, opened, exec,
                                          static_cast<cudaStream_t>(memory.side_stream), method::side_marks);
}
#endif

/// Calls use(exec, object) with a cache that was opened for the executor's device and stream.
template <class Use>
void with_cache(tessera_executor const* executor, tessera_shadow_kv const* cache, Use const& use) {
  with_executor_of(cache, executor, [&]<class Exec>(Exec const& exec) {
    auto const& object = *static_cast<cache_object<Exec> const*>(cache);
    require(object.stream == static_cast<void*>(exec.stream), TESSERA_VALUE_ERROR,
            "the executor's stream is another one than the cache was opened with");
    use(exec, object);
  });
}

template <class Exec>
void close_cache(tessera_shadow_kv* cache) {
  auto* const object = static_cast<cache_object<Exec>*>(cache);
  object->head.mark = 0;
  object->~cache_object<Exec>();
}

}  // namespace
}  // namespace tessera_c

using namespace tessera_c;

tessera_status tessera_rotations(double base, std::int64_t step, tessera_tensor const* rotations) {
  return guarded("tessera_rotations", [&] {
    require_given(rotations, "rotations");
    require(step >= 1, TESSERA_VALUE_ERROR, "the step is ", step, " but must be at least ", 1);
    auto const table = view_of<float, 3>("rotations", *rotations);
    require(table.extent(2) == 2, TESSERA_SHAPE_ERROR, "a rotation has ", table.extent(2), " numbers but must have ",
            2);
    std::int64_t const pairs = table.extent(1);
    require(pairs <= 1 << 16, TESSERA_SHAPE_ERROR, "there are ", pairs, " pairs but at most ", 1 << 16, " can be");
    std::vector<double> const frequencies = tessera::rotary_frequencies(base, static_cast<int>(2 * pairs));
    for (std::int64_t row = 0; row < table.extent(0); ++row) {
      for (std::int64_t pair = 0; pair < pairs; ++pair) {
        double const position = static_cast<double>(row) * static_cast<double>(step);
        double const angle = position * frequencies[static_cast<std::size_t>(pair)];
        table(row, pair, 0) = static_cast<float>(std::cos(angle));
        table(row, pair, 1) = static_cast<float>(std::sin(angle));
      }
    }
  });
}

tessera_status tessera_shadow_kv_bytes(tessera_executor const* executor, tessera_shadow_kv_shape const* shape,
                                       tessera_shadow_kv_sizes* sizes) {
  return guarded("tessera_shadow_kv_bytes", [&] {
    auto const given = known_part(shape, "shape");
    tessera_shadow_kv_sizes made = known_part(sizes, "sizes");
    with_executor(executor, [&]<class Exec>(Exec const& exec) {
      plan_type const plan = plan_of(exec, given);
      set_bytes(&made.object, bytes_of_object<cache_object<Exec>>);
      set_bytes(&made.device, plan.device.bytes());
      set_bytes(&made.host, plan.host.bytes());
      set_bytes(&made.prefill, plan.prompt.bytes());
      set_bytes(&made.decode, plan.step.bytes());
    });
    *sizes = made;
  });
}

tessera_status tessera_shadow_kv_open(tessera_executor const* executor, tessera_shadow_kv_shape const* shape,
                                      tessera_shadow_kv_memory const* memory, tessera_shadow_kv** cache) {
  return guarded("tessera_shadow_kv_open", [&] {
    require_given(cache, "cache");
    *cache = nullptr;
    auto const given = known_part(shape, "shape");
    auto const room = known_part(memory, "memory");
    std::int32_t const device = open_executor(executor).device;
    with_executor(executor, [&]<class Exec>(Exec const& exec) {
      auto const opened = method::open(exec, plan_of(exec, given), bytes_of("device's memory", room.device),
                                       bytes_of("host's memory", room.host), rotary_of(room));
      void* const place = place_in<cache_object<Exec>>(room.object, "object's memory");
      open_cache(place, {tessera_shadow_kv::mark, device}, exec, room, opened);
      *cache = static_cast<cache_object<Exec>*>(place);
    });
  });
}

tessera_status tessera_shadow_kv_close(tessera_shadow_kv* cache) {
  return guarded("tessera_shadow_kv_close", [&] {
    if (cache == nullptr) {
      return;
    }
    check_open(cache);
    if (cache->head.device == TESSERA_CPU) {
      return close_cache<tessera::cpu>(cache);
    }
#if defined(TESSERA_COMPILES_CUDA)
    close_cache<tessera::cuda>(cache);
#endif
  });
}

tessera_status tessera_shadow_kv_prefill(tessera_executor const* executor, tessera_shadow_kv const* cache,
                                         std::int64_t sequence, tessera_tensor const* keys,
                                         tessera_tensor const* values, tessera_memory workspace) {
  return guarded("tessera_shadow_kv_prefill", [&] {
    require_given(keys, "keys");
    require_given(values, "values");
    with_cache(executor, cache, [&](auto const& exec, auto const& object) {
      method::prefill(exec, object.side, object.cache, sequence, view_of<bfloat16 const, 3>("keys", *keys),
                      view_of<bfloat16 const, 3>("values", *values),
                      workspace_in(method::plan_prefill(exec, object.cache.plan), workspace));
    });
  });
}

tessera_status tessera_shadow_kv_decode(tessera_executor const* executor, tessera_shadow_kv const* cache,
                                        tessera_tensor const* queries, tessera_tensor const* keys,
                                        tessera_tensor const* values, tessera_tensor const* sequences,
                                        tessera_attention_outputs const* outputs, tessera_memory workspace) {
  return guarded("tessera_shadow_kv_decode", [&] {
    require_given(queries, "queries");
    require_given(keys, "keys");
    require_given(values, "values");
    auto const out = known_part(outputs, "outputs");
    with_cache(executor, cache, [&](auto const& exec, auto const& object) {
      tessera::offload_tokens<bfloat16> const tokens{
          view_of<bfloat16 const, 3>("queries", *queries), view_of<bfloat16 const, 3>("keys", *keys),
          view_of<bfloat16 const, 3>("values", *values),
          view_if_given<std::int32_t const, 1>("sequences", tensor_or_none(sequences))};
      tessera::offload_outputs<bfloat16> const to{view_of<bfloat16, 3>("results", out.result),
                                                  view_if_given<float, 2>("log-sum-exps", out.log_sum_exp)};
      method::decode(exec, object.side, object.cache, tokens, to,
                     workspace_in(method::plan_decode(exec, object.cache.plan), workspace));
    });
  });
}

tessera_status tessera_shadow_kv_hit_rate(tessera_executor const* executor, tessera_shadow_kv const* cache,
                                          double* hit_rate) {
  return guarded("tessera_shadow_kv_hit_rate", [&] {
    require_given(hit_rate, "hit_rate");
    with_cache(executor, cache, [&](auto const& exec, auto const& object) {
      refuse_capture(exec);
      *hit_rate = method::wait_for_statistics(exec, object.cache).hit_rate();
    });
  });
}
