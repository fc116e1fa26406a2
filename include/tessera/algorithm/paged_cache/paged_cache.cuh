// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Compressed caches on CUDA devices: which kernels take the place of the portable programs.
///
/// paged_cache.hpp includes this header where nvcc compiles: use a cache as on the CPU, with a tessera::cuda executor.
/// For bfloat16 and float16 in pages of a direction_codec:
///
///   * pages of 64, 128 or 256 channels are made in one pass over keys and values
///     (program/paged_cache/write_pages.cuh), which TMA copies on sm_90 and cp.async on other GPUs, and once more where
///     retained tokens could not be known before: codes of 4 bits in groups of 64 or more; of 2 or of 3 bits, or of 4
///     bits for keys and 2 for values, in groups of 64. Those of 256 channels take about 150 KiB of shared memory,
///     which thread blocks of sm_86, sm_89 and sm_120 do not have;
///   * attention loads pages by TMA on sm_90 (program/paged_cache/attend_pages.cuh) and by cp.async on other GPUs
///     (program/paged_cache/attend_pages_by_warps.cuh), and multiplies by mma.sync: 4 bits with 64, 96 (in groups of 96
///     or 48), 128 or 256 channels; 2, 3 or 8 bits, or 4 bits for keys and 2 for values, with 64, 128 or 256 channels
///     in groups of 64. Eight rows of the query heads of a key head share a read of its pages.
///
/// Compiled are the programs for the bits and groups of the cache's codec, for each of these numbers of channels: seven
/// for minicache, which nvcc compiles in half a minute with all else. Parts with other bits or groups have them where
/// the codec is a direction_codecs that names theirs. Everything else runs in the portable programs; programs_of() of a
/// cross_layer_cache tells what runs where.
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
#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/policy_of.hpp>
#include <tessera/exec/refusal.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/program/paged_cache/attend_pages.cuh>
#include <tessera/program/paged_cache/attend_pages_by_warps.cuh>
#include <tessera/program/paged_cache/detail/page_fragments.cuh>
#include <tessera/program/paged_cache/write_pages.cuh>
#include <tessera/tuning/attention/decode.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// Whether there are programs for CUDA devices alone, for some formats: for 16 bits and the bytes of page_format.hpp.
template <class T, class C>
inline constexpr bool has_own_programs = is_16_bit_float<T>&& C::has_page_format;

/// The programs of attention to pages that copy them by TMA, for pages of the format that Columns has.
struct pages_by_bulk_copies {
  template <class Columns, class T, class Result>
  using program_type =
      page_decode<Columns, T, Result, policy_of<page_decode_tuning<Columns::channels, Columns::format.key_bits>>(900)>;
};
/// The programs of attention to pages whose warps copy them.
struct pages_by_warps {
  template <class Columns, class T, class Result>
  using program_type =
      page_decode_by_warps<Columns, T, Result,
                           policy_of<page_decode_tuning<Columns::channels, Columns::format.key_bits>>(800)>;
};
/// The program for a cached_attention_call.
template <class Programs, class Columns, class Call>
using page_program =
    typename Programs::template program_type<Columns, typename Call::value_type, typename Call::result_type>;

/// Why Programs do not take a call whose pages have the format of Columns, or none. Call: a cached_attention_call.
template <class Columns, class Programs = pages_by_bulk_copies, class Architectures, class Call>
refusal refuses_page_decode(basic_cuda<Architectures> const& exec, Call const& call) {
  auto const is_whole = [](void const* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; };
  bool const has_memory = is_whole(call.memory.pages) && is_whole(call.memory.tail) && is_whole(call.memory.rows);
  return first_of(
      unless(has_memory, "pages, tails or rows do not begin at multiples of 16 bytes"),
      unless(has_whole_rows(call.queries), "queries do not lie in rows that begin at multiples of 16 bytes"),
      unless(call.sequences.blocks.stride(1) == 1, "the stride of blocks of a sequence",
             call.sequences.blocks.stride(1), "1"),
      unless(has_room_for_decoding(call.shape, call.partials.splits()),
             "there are no queries, or rows and splits do not fit into 31 bits"),
      exec.template lacks<page_program<Programs, Columns, Call>>());
}

/// The thread blocks of a persistent program that run at a time. A multiprocessor has 1 KiB of shared memory more than
/// a thread block may have, and takes as much for each.
template <class P, class Architectures>
std::int64_t resident_blocks(basic_cuda<Architectures> const& exec) {
  constexpr int own = 1024;
  int const fitting = (exec.state->shared_bytes() + own) / (launch_shape<P>::shared_bytes + own);
  return std::int64_t{exec.state->multiprocessors()} * clamp(fitting, 1, P::blocks_per_multiprocessor);
}

/// Enqueues attention by a program of Programs, which takes the call. Columns: page_columns.
template <class Columns, class Programs = pages_by_bulk_copies, class Architectures, class Call>
void run_page_decode(basic_cuda<Architectures> const& exec, Call const& call) {
  using program_type = page_program<Programs, Columns, Call>;
  std::int64_t const most = resident_blocks<program_type>(exec);
  auto const partials =
      decode_partials(call.shape, call.partials, program_type::page_tokens * program_type::warps, most);
  program_type const program{{program_type::schedule_type::of(call.queries, call.is_causal, writer_of(call), partials),
                              call.memory, call.sequences, call.layer, call.softmax_scale * 1.4426950408889634F,
                              status_for(exec, call)}};
  exec.run(program, min(std::int64_t{program.schedule.count}, most));
  merge_decoded(exec, writer_of(call), partials);
}

/// Whether codes of values have the scales of 64, 128 or 256 channels: all of a head's, or a half or a quarter of them.
constexpr bool has_usual_groups(cache_page_format const& f) {
  return (f.channels == 64 || f.channels == 128 || f.channels == 256) && f.group_channels() % 64 == 0;
}
/// Whether a program makes such pages of two layers in one pass.
constexpr bool has_compress_pages(cache_page_format const& f) {
  bool const is_narrow = f.value_bits == 2 ? f.key_bits == 2 || f.key_bits == 4 : f.key_bits == 3 && f.value_bits == 3;
  bool const is_usual = f.key_bits == 4 && f.value_bits == 4;
  return has_usual_groups(f) && (is_usual || (is_narrow && f.group_channels() == 64));
}
/// Whether page_decode attends to such pages.
constexpr bool has_page_decode(cache_page_format const& f) {
  bool const is_usual = f.key_bits == 4 && f.value_bits == 4;
  return has_compress_pages(f) || (is_usual && f.channels == 96 && f.value_groups <= 2) ||
         (f.key_bits == 8 && f.value_bits == 8 && has_usual_groups(f) && f.group_channels() == 64);
}
/// Calls `use`, which returns a bool, with a std::integral_constant of the format of pages of two layers, for each
/// number of channels and each codec of C, until one call returns true. Returns whether one did.
template <class C, class Use>
bool use_formats(Use const& use) {
  return C::any_codec([&]<int Bits, int Group, int ValueBits>(direction_codec<Bits, Group, ValueBits>) {
    auto const use_channels = [&]<int Channels>(std::integral_constant<int, Channels>) {
      constexpr cache_page_format format{Channels, Bits, ValueBits, divide_up(Channels, Group), 2};
      return use(std::integral_constant<cache_page_format, format>{});
    };
    return use_channels(std::integral_constant<int, 64>{}) || use_channels(std::integral_constant<int, 96>{}) ||
           use_channels(std::integral_constant<int, 128>{}) || use_channels(std::integral_constant<int, 256>{});
  });
}
/// The format of the pages of a part, as it is with two layers.
constexpr cache_page_format of_two_layers(cache_page_format format) {
  format.layers = 2;
  return format;
}
/// Calls `use` with the page_columns for the pages of a cached_attention_call. Returns whether there are any.
template <class Call, class Use>
bool use_columns(Call const& call, Use const& use) {
  cache_page_format const found = of_two_layers(call.memory.format);
  return use_formats<typename Call::codec_type>([&]<cache_page_format F>(std::integral_constant<cache_page_format, F>) {
    if constexpr (has_page_decode(F)) {
      if (found == F) {
        use(std::type_identity<page_columns<F.channels, F.value_groups, F.key_bits, F.value_bits>>{});
        return true;
      }
    }
    return false;
  });
}
/// Why no program is compiled for pages of a format: another codec has one, or there is none, for the reason `without`.
constexpr refusal refuses_page_format(bool has_one, char const* without) {
  return has_one ? refusal{"pages have other bits or groups than the cache's codec: direction_codecs takes several"}
                 : refusal{without};
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

/// Calls `use` with the compress_pages for a cache_append_call. Returns whether there is one.
template <class Copies, class Call, class Use>
bool with_compression(Call const& call, Use const& use) {
  cache_page_format const found = of_two_layers(call.source.memory.format);
  return use_formats<typename Call::codec_type>([&]<cache_page_format F>(std::integral_constant<cache_page_format, F>) {
    if constexpr (has_compress_pages(F)) {
      if (found == F) {
        use(std::type_identity<compress_pages<F, typename Call::merger_type, typename Call::value_type, Copies>>{});
        return true;
      }
    }
    return false;
  });
}

/// Why CUDA has no programs for the types of a cache, or none. C: the codec of its pages.
template <class T, PageCodec C>
constexpr refusal refuses_cache_types() {
  return first_of(unless(is_16_bit_float<T>, "new tokens do not have 16 bits"),
                  unless(has_own_programs<T, C>, "pages are of another codec than direction_codec"));
}

/// What the models of compress_pages have in common.
template <class Copies>
struct compress_pages_models {
  template <class Architectures, Merger M, class T, PageCodec C>
  static refusal refuses(basic_cuda<Architectures> const& exec, cache_append_call<M, T, C> const& call) {
    if (call.marks.is_empty()) {  // no page is complete: only the tail is kept, by the same program as ever
      return {};
    }
    if (refusal const why =
            first_of(unless(!call.whole_tokens, "a vector is that of all heads of a token"),
                     unless(has_whole_elements(call), "keys, values or pages do not begin at multiples of 16 bytes"))) {
      return why;
    }
    refusal why = refuses_page_format(has_compress_pages(of_two_layers(call.source.memory.format)),
                                      "pages have other bits, channels or groups than the device's programs that make "
                                      "them");
    with_compression<Copies>(call, [&]<class P>(std::type_identity<P>) { why = exec.template lacks<P>(); });
    return why;
  }
  template <class Architectures, Merger M, class T, PageCodec C>
  static void run(basic_cuda<Architectures> const& exec, cache_append_call<M, T, C> const& given) {
    auto const call = reporting(exec, given);
    if (!call.marks.is_empty()) {
      with_compression<Copies>(
          call, [&]<class P>(std::type_identity<P>) { compress_in_one_pass<P>(exec, call, resident_blocks<P>(exec)); });
    }
    keep_new_tokens(exec, call);
  }
};

}  // namespace detail

/// compress_pages: pages of 2, 3 or 4 bits in one pass over keys and values.
struct compress_pages_model : detail::compress_pages_models<bulk_page_copies> {
  static constexpr char const* name = "compress_pages (TMA)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return first_of(unless(Exec::template is_compiled_for<900>, "this source is not compiled for sm_90a"),
                    detail::refuses_cache_types<typename Call::value_type, typename Call::codec_type>());
  }
};

/// compress_pages without TMA, from sm_80 on.
struct compress_pages_by_chunks_model : detail::compress_pages_models<chunk_page_copies> {
  static constexpr char const* name = "compress_pages (cp.async)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return detail::refuses_cache_types<typename Call::value_type, typename Call::codec_type>();
  }
};

namespace detail {

/// What the models of attention to pages have in common.
template <class Programs>
struct page_decode_models {
  template <class Architectures, class T, class Result, PageCodec C>
  static refusal refuses(basic_cuda<Architectures> const& exec, cached_attention_call<T, Result, C> const& call) {
    refusal why = refuses_page_format(has_page_decode(of_two_layers(call.memory.format)),
                                      "pages have other bits, channels or groups than the device's programs");
    use_columns(call, [&]<class Columns>(std::type_identity<Columns>) {
      why = refuses_page_decode<Columns, Programs>(exec, call);
    });
    return why;
  }
  template <class Architectures, class T, class Result, PageCodec C>
  static void run(basic_cuda<Architectures> const& exec, cached_attention_call<T, Result, C> const& call) {
    use_columns(call,
                [&]<class Columns>(std::type_identity<Columns>) { run_page_decode<Columns, Programs>(exec, call); });
  }
};

}  // namespace detail

/// page_decode: query heads of a key head share a read of its pages.
struct page_decode_model : detail::page_decode_models<detail::pages_by_bulk_copies> {
  static constexpr char const* name = "attend_pages (TMA, mma.sync)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return first_of(unless(Exec::template is_compiled_for<900>, "this source is not compiled for sm_90a"),
                    detail::refuses_cache_types<typename Call::value_type, typename Call::codec_type>());
  }
};

/// page_decode_by_warps: the same without TMA, from sm_80 on.
struct page_decode_by_warps_model : detail::page_decode_models<detail::pages_by_warps> {
  static constexpr char const* name = "attend_pages (cp.async, mma.sync)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return detail::refuses_cache_types<typename Call::value_type, typename Call::codec_type>();
  }
};

namespace detail {

/// Whether sources are compiled for GPUs that do not run the programs for sm_90.
template <class Architectures>
inline constexpr bool has_architectures_without_tma = may_have_architecture(Architectures{}, 0, 900) ||
                                                      may_have_architecture(Architectures{}, 1000, 10000);

}  // namespace detail

/// The programs that CUDA devices have for this call.
template <class Architectures, Merger M, class T, PageCodec C>
struct models_for<basic_cuda<Architectures>, cache_append_call<M, T, C>> {
  /// The list of models. Sources that are compiled for sm_90 alone do not name the other.
  using type = std::conditional_t<detail::has_architectures_without_tma<Architectures>,
                                  model_list<compress_pages_model, compress_pages_by_chunks_model>,
                                  model_list<compress_pages_model>>;
};
/// The programs that CUDA devices have for this call.
template <class Architectures, class T, class Result, PageCodec C>
struct models_for<basic_cuda<Architectures>, cached_attention_call<T, Result, C>> {
  /// The list of models. Sources that are compiled for sm_90 alone do not name the other.
  using type =
      std::conditional_t<detail::has_architectures_without_tma<Architectures>,
                         model_list<page_decode_model, page_decode_by_warps_model>, model_list<page_decode_model>>;
};

}  // namespace v0
}  // namespace tessera
