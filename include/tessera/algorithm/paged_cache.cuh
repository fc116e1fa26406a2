// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Compressed caches on CUDA devices.
///
/// Include it and use a cache as on the CPU, with a tessera::cuda executor. Attention over pages of 4-bit codes of 64,
/// 96, 128 or 256 channels, of a cache of bfloat16 or float16, is by the copy engine and mma.sync on sm_90
/// (program/page_decode.cuh); eight rows of the query heads of a key head share a read of its pages. Else the portable
/// programs.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/decode_attention.cuh>
#include <tessera/algorithm/decode_shares.hpp>
#include <tessera/algorithm/paged_cache.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/program/page_columns.cuh>
#include <tessera/program/page_decode.cuh>
#include <tessera/tuning/decode.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Whether it did.
template <int Channels, int Groups, class Architectures, class T, class Result>
bool try_page_decode(basic_cuda<Architectures> const& exec, cached_attention_call<T, Result> const& call) {
  using program_type = page_decode<page_columns<Channels, Groups>, T, Result, page_decode_tuning<Channels>{}(900)>;
  const auto is_whole = [](void const* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; };
  const bool has_memory = is_whole(call.memory.pages) && is_whole(call.memory.tail) && is_whole(call.memory.rows);
  if (!has_memory || !has_whole_rows(call.queries) || call.sequences.blocks.stride(1) != 1 ||
      !has_places_for_decoding(call.shape, call.partials.shares()) || !exec.template has<program_type>()) {
    return false;
  }
  const std::int64_t most = std::int64_t{exec.state->multiprocessors()} * program_type::blocks_per_multiprocessor;
  const auto partials =
      decode_partials(call.shape, call.partials, program_type::page_tokens * program_type::warps, most);
  const program_type program{program_type::works_type::of(call.queries, call.is_causal, writer_of(call), partials),
                             call.memory, call.sequences, call.layer, call.softmax_scale * 1.4426950408889634F};
  exec.run(program, min(std::int64_t{program.works.count}, most));
  merge_decoded(exec, call, partials);
  return true;
}

/// Of so many channels.
template <int Channels, class Architectures, class T, class Result>
bool try_page_decode(basic_cuda<Architectures> const& exec, cached_attention_call<T, Result> const& call) {
  const int groups = call.memory.format.value_groups;
  if (groups == 1) {
    return try_page_decode<Channels, 1>(exec, call);
  }
  if constexpr (Channels >= 128) {
    if (groups == 2) {
      return try_page_decode<Channels, 2>(exec, call);
    }
  }
  if constexpr (Channels == 256) {
    if (groups == 4) {
      return try_page_decode<Channels, 4>(exec, call);
    }
  }
  return false;
}

}  // namespace detail

/// For CUDA devices: on sm_90 a program for pages of 4 bits that reads each page once for all query heads, else the
/// portable one.
template <int... Architectures, class T, class Result>
void run_cached_attention(basic_cuda<arch_list<Architectures...>> const& exec,
                          cached_attention_call<T, Result> const& call) {
  constexpr bool has_hopper = ((Architectures == 900) || ...);
  if constexpr (has_hopper && (std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>)) {
    cache_page_format const& format = call.memory.format;
    const bool has_codes = format.key_bits == 4 && format.value_bits == 4;
    if (has_codes && ((format.channels == 64 && detail::try_page_decode<64>(exec, call)) ||
                      (format.channels == 96 && detail::try_page_decode<96>(exec, call)) ||
                      (format.channels == 128 && detail::try_page_decode<128>(exec, call)) ||
                      (format.channels == 256 && detail::try_page_decode<256>(exec, call)))) {
      return;
    }
  }
  detail::attend_cache_portably(exec, call);
}

}  // namespace v0
}  // namespace tessera
