// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Compressed caches on CUDA devices: which kernels take the place of the portable programs.
///
/// paged_cache.hpp includes this header where nvcc compiles: use a cache as on the CPU, with a tessera::cuda executor.
/// For bfloat16 and float16 in pages of a direction_codec, on sm_90:
///
///   * pages of 64, 128 or 256 channels are made in one pass over keys and values
///     (program/paged_cache/write_pages.cuh), and once more where retained tokens could not be known before: codes of 4
///     bits in groups of 64 or more; of 2 or of 3 bits, or of 4 bits for keys and 2 for values, in groups of 64;
///   * attention loads pages by TMA and multiplies by mma.sync (program/paged_cache/attend_pages.cuh): 4 bits with 64,
///     96 (in groups of 96 or 48), 128 or 256 channels; 2, 3 or 8 bits, or 4 bits for keys and 2 for values, with 64,
///     128 or 256 channels in groups of 64. Eight rows of the query heads of a key head share a read of its pages.
///
/// Everything else runs in the portable programs; programs_of() of a cross_layer_cache tells what runs where.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/attention/decode_attention.cuh>
#include <tessera/algorithm/attention/decode_splits.hpp>
#include <tessera/algorithm/paged_cache/cache_compression.hpp>
#include <tessera/algorithm/paged_cache/direction_codec.hpp>
#include <tessera/algorithm/paged_cache/paged_cache.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/merger.hpp>
#include <tessera/concepts/page_codec.hpp>
#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/policy_of.hpp>
#include <tessera/exec/refusal.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/program/paged_cache/attend_pages.cuh>
#include <tessera/program/paged_cache/detail/page_fragments.cuh>
#include <tessera/program/paged_cache/write_pages.cuh>
#include <tessera/tuning/attention/decode.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Whether there are programs for CUDA devices alone, for some formats: for 16 bits and the bytes of page_format.hpp.
template <class T, class C>
inline constexpr bool has_own_programs = is_16_bit_float<T>&& C::has_page_format;

/// page_decode for pages of the format that Columns has.
template <class Columns, class T, class Result>
using page_decode_program =
    page_decode<Columns, T, Result, policy_of<page_decode_tuning<Columns::channels, Columns::format.key_bits>>(900)>;

/// Why page_decode does not take a call whose pages have the format of Columns, or none. Call: a cached_attention_call.
template <class Columns, class Architectures, class Call>
refusal refuses_page_decode(basic_cuda<Architectures> const& exec, Call const& call) {
  using program_type = page_decode_program<Columns, typename Call::value_type, typename Call::result_type>;
  auto const is_whole = [](void const* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; };
  bool const has_memory = is_whole(call.memory.pages) && is_whole(call.memory.tail) && is_whole(call.memory.rows);
  return first_of(
      unless(has_memory, "pages, tails or rows do not begin at multiples of 16 bytes"),
      unless(has_whole_rows(call.queries), "queries do not lie in rows that begin at multiples of 16 bytes"),
      unless(call.sequences.blocks.stride(1) == 1, "the stride of blocks of a sequence",
             call.sequences.blocks.stride(1), "1"),
      unless(has_room_for_decoding(call.shape, call.partials.splits()),
             "there are no queries, or rows and splits do not fit into 31 bits"),
      exec.template lacks<program_type>());
}

/// Enqueues attention by page_decode, which takes the call. Columns: page_columns.
template <class Columns, class Architectures, class Call>
void run_page_decode(basic_cuda<Architectures> const& exec, Call const& call) {
  using program_type = page_decode_program<Columns, typename Call::value_type, typename Call::result_type>;
  std::int64_t const most = std::int64_t{exec.state->multiprocessors()} * program_type::blocks_per_multiprocessor;
  auto const partials =
      decode_partials(call.shape, call.partials, program_type::page_tokens * program_type::warps, most);
  program_type const program{program_type::schedule_type::of(call.queries, call.is_causal, writer_of(call), partials),
                             call.memory,
                             call.sequences,
                             call.layer,
                             call.softmax_scale * 1.4426950408889634F,
                             status_for(exec, call)};
  exec.run(program, min(std::int64_t{program.schedule.count}, most));
  merge_decoded(exec, writer_of(call), partials);
}

/// Calls `use` with page_columns of these arguments, if the format has them, and returns its result; else false.
template <int Channels, int Groups, int KeyBits, int ValueBits = KeyBits, class Use>
bool use_columns(cache_page_format const& format, Use const& use) {
  return format.channels == Channels && format.value_groups == Groups && format.key_bits == KeyBits &&
         format.value_bits == ValueBits &&
         use(std::type_identity<page_columns<Channels, Groups, KeyBits, ValueBits>>{});
}
/// The same for heads of 64, 128 or 256 channels in groups of 64.
template <int KeyBits, int ValueBits = KeyBits, class Use>
bool use_usual_columns(cache_page_format const& format, Use const& use) {
  return use_columns<64, 1, KeyBits, ValueBits>(format, use) || use_columns<128, 2, KeyBits, ValueBits>(format, use) ||
         use_columns<256, 4, KeyBits, ValueBits>(format, use);
}
/// Calls `use` with the page_columns for pages of a format, and returns its result; false if there are none.
template <class Use>
bool use_columns(cache_page_format const& format, Use const& use) {
  return use_usual_columns<4>(format, use) || use_columns<96, 1, 4>(format, use) ||
         use_columns<96, 2, 4>(format, use) || use_columns<128, 1, 4>(format, use) ||
         use_columns<256, 1, 4>(format, use) || use_columns<256, 2, 4>(format, use) ||
         use_usual_columns<4, 2>(format, use) || use_usual_columns<2>(format, use) ||
         use_usual_columns<3>(format, use) || use_usual_columns<8>(format, use);
}

/// Whether all that compress_pages reads and writes by 16 bytes begins at multiples of 16 bytes, and there are fewer
/// than 2^30 marks. Call: a cache_append_call.
template <class Call>
bool has_whole_elements(Call const& call) {
  cache_memory<typename Call::value_type> const& memory = call.source.memory;
  bool are_whole = reinterpret_cast<std::uintptr_t>(memory.pages) % 16 == 0 &&
                   reinterpret_cast<std::uintptr_t>(memory.tail) % 16 == 0;
  for (int layer = 0; layer < memory.format.layers; ++layer) {
    are_whole = are_whole &&
                (call.source.inputs.keys[layer].data == nullptr ||
                 (has_whole_rows(call.source.inputs.keys[layer]) && has_whole_rows(call.source.inputs.values[layer])));
  }
  constexpr std::int64_t most = std::int64_t{1} << 30;
  return are_whole && call.marks.size() < most;
}

/// Calls `use` with the compress_pages of a format for a call, if its pages have that format. Call: a
/// cache_append_call.
template <cache_page_format Format, class Call, class Use>
bool use_compression(Call const& call, Use const& use) {
  cache_page_format of_two = call.source.memory.format;
  of_two.layers = 2;
  if (of_two != Format) {
    return false;
  }
  use(std::type_identity<compress_pages<Format, typename Call::merger_type, typename Call::value_type>>{});
  return true;
}
/// The same for heads of 64, 128 or 256 channels in groups of 64.
template <int KeyBits, int ValueBits, class Call, class Use>
bool use_usual_compression(Call const& call, Use const& use) {
  return use_compression<cache_page_format{64, KeyBits, ValueBits, 1, 2}>(call, use) ||
         use_compression<cache_page_format{128, KeyBits, ValueBits, 2, 2}>(call, use) ||
         use_compression<cache_page_format{256, KeyBits, ValueBits, 4, 2}>(call, use);
}
/// Calls `use` with the compress_pages for a call. Returns whether there is one.
template <class Call, class Use>
bool with_compression(Call const& call, Use const& use) {
  return use_usual_compression<4, 4>(call, use) || use_compression<cache_page_format{128, 4, 4, 1, 2}>(call, use) ||
         use_compression<cache_page_format{256, 4, 4, 1, 2}>(call, use) ||
         use_compression<cache_page_format{256, 4, 4, 2, 2}>(call, use) || use_usual_compression<4, 2>(call, use) ||
         use_usual_compression<3, 3>(call, use) || use_usual_compression<2, 2>(call, use);
}

/// Why CUDA has no programs for the types of a cache, or none. C: the codec of its pages.
template <Executor Exec, class T, PageCodec C>
constexpr refusal refuses_cache_types() {
  return first_of(unless(Exec::template is_compiled_for<900>, "this source is not compiled for sm_90a"),
                  unless(is_16_bit_float<T>, "new tokens do not have 16 bits"),
                  unless(has_own_programs<T, C>, "pages are of another codec than direction_codec"));
}

}  // namespace detail

/// compress_pages: pages of 2, 3 or 4 bits in one pass over keys and values.
struct compress_pages_model {
  static constexpr char const* name = "compress_pages";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return detail::refuses_cache_types<Exec, typename Call::value_type, typename Call::codec_type>();
  }
  template <class Architectures, Merger M, class T, PageCodec C>
  static refusal refuses(basic_cuda<Architectures> const& exec, cache_append_call<M, T, C> const& call) {
    if (call.marks.is_empty()) {  // no page is complete: only the tail is kept, by the same program as ever
      return {};
    }
    if (refusal const why = first_of(
            unless(!call.whole_tokens, "a vector is that of all heads of a token"),
            unless(detail::has_whole_elements(call), "keys, values or pages do not begin at multiples of 16 bytes"))) {
      return why;
    }
    refusal why{"pages have other bits, channels or groups than the device's programs that make them"};
    detail::with_compression(call, [&]<class P>(std::type_identity<P>) { why = exec.template lacks<P>(); });
    return why;
  }
  template <class Architectures, Merger M, class T, PageCodec C>
  static void run(basic_cuda<Architectures> const& exec, cache_append_call<M, T, C> const& given) {
    auto const call = detail::reporting(exec, given);
    if (!call.marks.is_empty()) {
      detail::with_compression(call, [&]<class P>(std::type_identity<P>) {
        detail::compress_in_one_pass<P>(exec, call, exec.state->multiprocessors());
      });
    }
    detail::keep_new_tokens(exec, call);
  }
};

/// page_decode: query heads of a key head share a read of its pages.
struct page_decode_model {
  static constexpr char const* name = "attend_pages (TMA, mma.sync)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return detail::refuses_cache_types<Exec, typename Call::value_type, typename Call::codec_type>();
  }
  template <class Architectures, class T, class Result, PageCodec C>
  static refusal refuses(basic_cuda<Architectures> const& exec, cached_attention_call<T, Result, C> const& call) {
    refusal why{"pages have other bits, channels or groups than the device's programs"};
    detail::use_columns(call.memory.format, [&]<class Columns>(std::type_identity<Columns>) {
      why = detail::refuses_page_decode<Columns>(exec, call);
      return true;
    });
    return why;
  }
  template <class Architectures, class T, class Result, PageCodec C>
  static void run(basic_cuda<Architectures> const& exec, cached_attention_call<T, Result, C> const& call) {
    detail::use_columns(call.memory.format, [&]<class Columns>(std::type_identity<Columns>) {
      detail::run_page_decode<Columns>(exec, call);
      return true;
    });
  }
};

/// The programs that CUDA devices have for this call.
template <class Architectures, Merger M, class T, PageCodec C>
struct models_for<basic_cuda<Architectures>, cache_append_call<M, T, C>> {
  /// The list of models.
  using type = model_list<compress_pages_model>;
};
/// The programs that CUDA devices have for this call.
template <class Architectures, class T, class Result, PageCodec C>
struct models_for<basic_cuda<Architectures>, cached_attention_call<T, Result, C>> {
  /// The list of models.
  using type = model_list<page_decode_model>;
};

}  // namespace v0
}  // namespace tessera
