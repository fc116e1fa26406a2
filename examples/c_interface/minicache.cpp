// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <new>

#include <tessera/minicache.hpp>

#include "attention.hpp"
#include "errors.hpp"
#include "executors.hpp"
#include "tensors.hpp"
#include "tessera_c.h"

using tessera::bfloat16;

struct tessera_minicache {
  static constexpr std::uint64_t mark = 0x65686361632d696e;
  static constexpr char const* functions = "tessera_minicache";

  tessera_c::object_head head;
  tessera::minicache cache;
};

namespace tessera_c {
namespace {

tessera::cache_extents extents_of(tessera_minicache_shape const& from) {
  return {.slots = from.slots,
          .tokens = from.tokens,
          .blocks = from.blocks,
          .heads = from.heads,
          .channels = from.channels,
          .window = from.window};
}

tessera::minicache::options_type options_of(tessera_minicache_shape const& from) {
  tessera::minicache::options_type options;
  if (from.parts == nullptr) {
    require(from.part_count == 0 || from.part_count == 1, TESSERA_NULL_POINTER, "the layers of parts are null but of ",
            from.part_count, " parts");
    return options;
  }
  constexpr std::int64_t most = 1 << 16;
  require(from.part_count >= 1 && from.part_count <= most, TESSERA_SHAPE_ERROR, "there are ", from.part_count,
          " parts but must be 1 to ", most);
  options.parts.clear();
  for (std::int64_t i = 0; i < from.part_count; ++i) {
    std::int32_t const layers = from.parts[i];
    require(layers == 1 || layers == 2, TESSERA_VALUE_ERROR, "part ", i, " has ", layers,
            " layers but must have 1 or 2");
    options.parts.push_back(layers == 1 ? tessera::minicache::single() : tessera::minicache::pair());
  }
  return options;
}

/// Calls use(exec, cache) with a cache that was opened for the executor's device.
template <class Use>
void with_cache(tessera_executor const* executor, tessera_minicache const* cache, Use const& use) {
  with_executor_of(cache, executor, [&](auto const& exec) { use(exec, cache->cache); });
}

tessera::cache_sequences sequences_of(tessera_minicache_sequences const* given) {
  tessera_minicache_sequences const from = known_part(given, "sequences");
  return {.blocks = view_of<std::int32_t const, 2>("blocks of pages", from.blocks),
          .slots = view_if_given<std::int32_t const, 1>("slots", from.slots),
          .lengths = view_of<std::int32_t const, 1>("lengths", from.lengths),
          .pages = view_if_given<std::int32_t const, 1>("counts of sealed pages", from.pages)};
}

/// The new tokens of a call, of which keys have `tokens` for each sequence.
tessera::cache_tokens tokens_of(std::int64_t tokens, tessera_tensor const* new_tokens) {
  return {.tokens = tokens,
          .new_tokens = view_if_given<std::int32_t const, 1>("counts of new tokens", tensor_or_none(new_tokens))};
}

}  // namespace
}  // namespace tessera_c

using namespace tessera_c;

tessera_status tessera_minicache_bytes(tessera_executor const* executor, tessera_minicache_shape const* shape,
                                       std::size_t* object_bytes, std::size_t* bytes) {
  return guarded("tessera_minicache_bytes", [&] {
    auto const given = known_part(shape, "shape");
    require_given(object_bytes, "object_bytes");
    with_executor(executor, [&](auto const& exec) {
      set_bytes(bytes, tessera::minicache::plan(exec, extents_of(given), options_of(given)).bytes());
      set_bytes(object_bytes, bytes_of_object<tessera_minicache>);
    });
  });
}

tessera_status tessera_minicache_open(tessera_executor const* executor, tessera_minicache_shape const* shape,
                                      tessera_memory object, tessera_memory memory, tessera_minicache** cache) {
  return guarded("tessera_minicache_open", [&] {
    require_given(cache, "cache");
    *cache = nullptr;
    auto const given = known_part(shape, "shape");
    std::int32_t const device = open_executor(executor).device;
    void* const place = place_in<tessera_minicache>(object, "object's memory");
    with_executor(executor, [&](auto const& exec) {
      tessera::cache_extents const extents = extents_of(given);
      auto const plan = tessera::minicache::plan(exec, extents, options_of(given));
      *cache = new (place)
          tessera_minicache{{tessera_minicache::mark, device},
                            tessera::minicache(exec, extents, options_of(given), workspace_in(plan, memory))};
    });
  });
}

tessera_status tessera_minicache_close(tessera_minicache* cache) {
  return guarded("tessera_minicache_close", [&] {
    if (cache != nullptr) {
      check_open(cache);
      cache->head.mark = 0;
      cache->~tessera_minicache();
    }
  });
}

tessera_status tessera_minicache_part_of(tessera_minicache const* cache, std::int32_t layer, std::int32_t* part) {
  return guarded("tessera_minicache_part_of", [&] {
    require_given(part, "part");
    check_open(cache);
    *part = cache->cache.part_of(layer);
  });
}

tessera_status tessera_minicache_append_workspace(tessera_executor const* executor, tessera_minicache const* cache,
                                                  std::int64_t sequences, std::int64_t tokens, std::size_t* bytes) {
  return guarded("tessera_minicache_append_workspace", [&] {
    with_cache(executor, cache, [&](auto const& exec, tessera::minicache const& of) {
      auto const plan = tokens == 0 ? of.plan_seal(exec, sequences) : of.plan_append(exec, {sequences, tokens});
      set_bytes(bytes, plan.bytes());
    });
  });
}

tessera_status tessera_minicache_append(tessera_executor const* executor, tessera_minicache const* cache,
                                        std::int32_t part, tessera_tensor const* keys, tessera_tensor const* values,
                                        tessera_minicache_sequences const* sequences, tessera_tensor const* new_tokens,
                                        tessera_memory workspace) {
  return guarded("tessera_minicache_append", [&] {
    require_given(keys, "keys");
    require_given(values, "values");
    with_cache(executor, cache, [&](auto const& exec, tessera::minicache const& of) {
      tessera::cache_inputs<bfloat16> inputs;
      for (int layer = 0; layer < of.layers_of(part).layers; ++layer) {
        inputs.keys[layer] = view_of<bfloat16 const, 4>("keys", keys[layer]);
        inputs.values[layer] = view_of<bfloat16 const, 4>("values", values[layer]);
      }
      auto const listed = sequences_of(sequences);
      auto const added = tokens_of(inputs.keys[0].extent(2), new_tokens);
      auto const plan = of.plan_append(exec, {listed.size(), added.tokens});
      of.append(exec, part, inputs, listed, added, workspace_in(plan, workspace));
    });
  });
}

tessera_status tessera_minicache_write(tessera_executor const* executor, tessera_minicache const* cache,
                                       std::int32_t layer, tessera_tensor const* keys, tessera_tensor const* values,
                                       tessera_minicache_sequences const* sequences, tessera_tensor const* new_tokens) {
  return guarded("tessera_minicache_write", [&] {
    require_given(keys, "keys");
    require_given(values, "values");
    with_cache(executor, cache, [&](auto const& exec, tessera::minicache const& of) {
      auto const new_keys = view_of<bfloat16 const, 4>("keys", *keys);
      of.write(exec, layer, new_keys, view_of<bfloat16 const, 4>("values", *values), sequences_of(sequences),
               tokens_of(new_keys.extent(2), new_tokens));
    });
  });
}

tessera_status tessera_minicache_seal(tessera_executor const* executor, tessera_minicache const* cache,
                                      std::int32_t part, tessera_minicache_sequences const* sequences,
                                      tessera_memory workspace) {
  return guarded("tessera_minicache_seal", [&] {
    with_cache(executor, cache, [&](auto const& exec, tessera::minicache const& of) {
      auto const listed = sequences_of(sequences);
      of.seal(exec, part, listed, workspace_in(of.plan_seal(exec, listed.size()), workspace));
    });
  });
}

tessera_status tessera_minicache_advance(tessera_executor const* executor, tessera_minicache const* cache,
                                         tessera_minicache_sequences const* sequences, tessera_tensor const* pages,
                                         std::int64_t tokens) {
  return guarded("tessera_minicache_advance", [&] {
    require_given(pages, "pages");
    require(tokens >= 1, TESSERA_VALUE_ERROR, "there are ", tokens, " new tokens but must be at least ", 1);
    with_cache(executor, cache, [&](auto const& exec, tessera::minicache const& of) {
      of.advance(exec, sequences_of(sequences), view_of<std::int32_t, 1>("counts of pages", *pages), tokens);
    });
  });
}

tessera_status tessera_minicache_attend_workspace(tessera_executor const* executor, tessera_minicache const* cache,
                                                  tessera_tensor const* queries,
                                                  tessera_minicache_sequences const* sequences, std::size_t* bytes) {
  return guarded("tessera_minicache_attend_workspace", [&] {
    require_given(queries, "queries");
    with_cache(executor, cache, [&](auto const& exec, tessera::minicache const& of) {
      auto const asked = planned_view<bfloat16 const, 4>("queries", *queries);
      set_bytes(bytes, of.plan_attend(exec, of.shape_of(asked, sequences_of(sequences))).bytes());
    });
  });
}

tessera_status tessera_minicache_attend(tessera_executor const* executor, tessera_minicache const* cache,
                                        std::int32_t layer, tessera_tensor const* queries,
                                        tessera_minicache_sequences const* sequences,
                                        tessera_attention_options const* options,
                                        tessera_attention_outputs const* outputs, tessera_memory workspace) {
  return guarded("tessera_minicache_attend", [&] {
    require_given(queries, "queries");
    auto const out = known_part(outputs, "outputs");
    auto const chosen = attention_options_of(options);
    require(chosen.window_left == -1 && chosen.window_right == -1, TESSERA_VALUE_ERROR, "the windows are ",
            chosen.window_left, " and ", chosen.window_right, " but must be -1: attention over pages has none");
    with_cache(executor, cache, [&](auto const& exec, tessera::minicache const& of) {
      auto const asked = view_of<bfloat16 const, 4>("queries", *queries);
      auto const listed = sequences_of(sequences);
      auto const plan = of.plan_attend(exec, of.shape_of(asked, listed));
      of.attend(exec, layer, asked, listed, chosen, attention_outputs_of<bfloat16>(out), workspace_in(plan, workspace));
    });
  });
}

tessera_status tessera_minicache_reset(tessera_executor const* executor, tessera_minicache const* cache,
                                       tessera_tensor const* slots) {
  return guarded("tessera_minicache_reset", [&] {
    require_given(slots, "slots");
    with_cache(executor, cache, [&](auto const& exec, tessera::minicache const& of) {
      of.reset(exec, view_of<std::int32_t const, 1>("slots", *slots));
    });
  });
}

tessera_status tessera_minicache_count(tessera_executor const* executor, tessera_minicache const* cache,
                                       tessera_minicache_sequences const* sequences, tessera_minicache_usage* usage) {
  return guarded("tessera_minicache_count", [&] {
    tessera_minicache_usage made = known_part(usage, "usage");
    with_cache(executor, cache, [&](auto const& exec, tessera::minicache const& of) {
      refuse_capture(exec);
      auto const found = of.wait_for_statistics(exec, sequences_of(sequences));
      made.used = found.used();
      made.uncompressed = found.uncompressed;
      made.reserved = found.reserved;
      made.tokens = found.tokens;
      made.retained_tokens = found.retained_tokens;
    });
    *usage = made;
  });
}
