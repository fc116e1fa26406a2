// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The program of attention over 16-bit operands for GPUs without wgmma.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/attention/quantized_attention.cuh>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/policy_of.hpp>
#include <tessera/exec/refusal.hpp>
#include <tessera/map/linear_bias.hpp>
#include <tessera/map/no_bias.hpp>
#include <tessera/program/attention/detail/dense_by_warps.cuh>
#include <tessera/program/attention/detail/dense_terms.cuh>
#include <tessera/program/attention/detail/dense_tiles.hpp>
#include <tessera/program/attention/detail/merge_rows.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/reduce/online_softmax.hpp>
#include <tessera/tuning/attention/dense.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/attention_shape.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// The channels of the smallest program that takes so many, one of 64, 128 and 256.
constexpr int dense_channels(std::int64_t channels) {
  return channels <= 64 ? 64 : channels <= 128 ? 128 : 256;
}

/// The splits of the keys in dense_by_warps: as many as make all thread blocks end the soonest, if all keys are seen.
struct dense_warps_splits {
  using state_type = online_softmax<float>::state_type;
  static constexpr std::int64_t floats_of_row = sizeof(attention_row<state_type>) / sizeof(float);

  /// The number of splits with the least cost, for which there is memory.
  static std::int64_t count(attention_shape const& s, int multiprocessors, std::int64_t most) {
    dense_warps_policy const policy = policy_for(s.channels);
    constexpr dense_warps_choice choice = policy_of<dense_warps_choice_tuning>(800);
    std::int64_t const at_a_time = std::int64_t{multiprocessors} * policy.blocks;
    std::int64_t const rows = s.batch * s.query_heads * s.queries;
    std::int64_t const work_items =
        s.batch * s.query_heads * divide_up(s.queries, std::int64_t{16} * policy.tiles * policy.warps);
    std::int64_t const tiles = divide_up(s.keys, std::int64_t{policy.keys});
    std::int64_t const merging = choice.merging + rows / choice.merged_rows;
    std::int64_t best = 1;
    std::int64_t least = 0;
    for (std::int64_t splits = 1; splits <= min(most, std::int64_t{most_attention_splits}); ++splits) {
      if (splits > 1 && (work_items >= at_a_time || tiles < splits * choice.least_tiles)) {
        break;
      }
      std::int64_t const cost = divide_up(work_items * splits, at_a_time) * (divide_up(tiles, splits) + choice.begin) +
                                (splits > 1 ? merging : 0);
      if (splits == 1 || cost < least) {
        best = splits;
        least = cost;
      }
    }
    return best;
  }
  /// The memory for so many splits, in floats.
  static std::int64_t floats(attention_shape const& s, std::int64_t splits) {
    return splits < 2 ? 0 : splits * s.batch * s.query_heads * s.queries * (s.channels + floats_of_row);
  }
  /// The number of splits of a call: as its plan counted it, or, where other programs' splits were planned, the best
  /// that this memory has room for.
  template <class Exec, class Call>
  static std::int64_t count_of(Exec const& exec, Call const& call) {
    if (call.key_splits > 0) {
      return call.key_splits;
    }
    std::int64_t const of_one = floats(call.shape, 2) / 2;
    return of_one > 0 ? count(call.shape, exec.state->multiprocessors(), call.work_splits.size() / of_one) : 1;
  }
  /// So many splits in a call's memory, or null for one.
  static attention_partials<state_type> of(attention_shape const& s, std::int64_t splits, array_view<float> memory) {
    if (splits < 2) {
      return {};
    }
    std::int64_t const totals = splits * s.batch * s.query_heads * s.queries * s.channels;
    return {{memory.data, {splits, s.batch, s.query_heads, s.queries, s.channels}},
            {reinterpret_cast<attention_row<state_type>*>(memory.data + totals),
             {splits, s.batch, s.query_heads, s.queries}}};
  }

 private:
  static dense_warps_policy policy_for(std::int64_t channels) {
    return with_constant<64, 128, 256>(dense_channels(channels),
                                       [](auto of) { return policy_of<dense_warps_tuning<of.value>>(800); });
  }
};

/// What the models without wgmma have in common.
struct dense_calls_without_wgmma {
  template <class Call>
  static refusal refuses_operands(Call const& call) {
    return first_of(
        unless(call.out.result.stride(3) == 1, "the stride of results along head_dim", call.out.result.stride(3), "1"),
        unless(has_whole_vectors(call.queries), "queries do not lie in rows that begin at multiples of 16 bytes"),
        unless(has_whole_vectors(call.keys), "keys do not lie in rows that begin at multiples of 16 bytes"),
        unless(has_whole_vectors(call.values), "values do not lie in rows that begin at multiples of 16 bytes"));
  }
  template <class Call>
  using bias_type = std::remove_const_t<decltype(Call::bias)>;
  /// Whether tiles of keys are listed.
  template <class Call>
  static bool has_list(Call const& call) {
    return call.block_list.counts.data != nullptr;
  }
  /// Whether a call without terms and lists has few queries, the keys of which are not split: blocks of 64 rows are
  /// faster then.
  template <class Exec, class Call>
  static bool has_few_queries(Exec const& exec, Call const& call) {
    return std::is_same_v<bias_type<Call>, no_bias> && !has_list(call) &&
           call.shape.queries <= policy_of<dense_warps_choice_tuning>(800).few_queries &&
           dense_warps_splits::count_of(exec, call) == 1;
  }
};

/// dense_by_warps: sm_80 and later, for calls that no program for one architecture takes.
struct dense_by_warps_model : dense_calls_without_wgmma {
  static constexpr char const* name = "dense_by_warps (cp.async, mma.sync)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return {};
  }
  template <class Architectures, class Call>
  static refusal refuses(basic_cuda<Architectures> const& exec, Call const& call) {
    constexpr std::int64_t most = std::int64_t{1} << 29;  // so that sums of two numbers of tokens fit into 31 bits
    return first_of(
        refuses_operands(call),
        unless(call.shape.queries < most && call.shape.keys < most, "rows of queries or keys do not fit into 29 bits"),
        with_program<Call>(call, [&](auto program) { return exec.template lacks<typename decltype(program)::type>(); }),
        unless(!has_few_queries(exec, call), "few queries, whose keys are not split, are faster by dense_tiles"));
  }
  template <class Architectures, class Call>
  static void run(basic_cuda<Architectures> const& exec, Call const& call) {
    using result_type = typename Call::result_type;
    auto const& s = call.shape;
    auto const partials = dense_warps_splits::of(s, dense_warps_splits::count_of(exec, call), call.work_splits);
    attention_writer<decode_method, result_type> const writer{
        s, {}, {}, {}, call.query_lengths, call.sinks, call.query_starts, call.out.result, call.out.log_sum_exp};
    with_program<Call>(call, [&](auto which) {
      using program_type = typename decltype(which)::type;
      program_type const program{bias_of(call),
                                 list_of<program_type>(call),
                                 s,
                                 {call.queries, call.query_lengths, call.query_starts},
                                 {call.keys, call.key_lengths, call.key_starts},
                                 {call.values, call.key_lengths, call.key_starts},
                                 program_type::factor_of(call.softmax_scale),
                                 call.options.window_left,
                                 call.options.keys_behind(),
                                 writer,
                                 has_whole_vectors(call.out.result),
                                 partials};
      exec.run(program, program.groups());
    });
    if (partials.rows.data != nullptr) {
      merge_rows<decode_method, result_type> const merge{partials, writer};
      exec.run(merge, merge.groups());
    }
  }

 private:
  /// What calls of a type have beside queries, keys and values.
  template <class Call>
  static constexpr dense_terms_kind kind_of =
      has_bias_chunks<bias_type<Call>>                    ? dense_terms_kind::loaded
      : LinearBias<bias_type<Call>>                       ? dense_terms_kind::line
      : !std::is_same_v<bias_type<Call>, no_bias>         ? dense_terms_kind::called
      : std::is_same_v<typename Call::result_type, float> ? dense_terms_kind::floats
                                                          : dense_terms_kind::none;
  /// The programs of calls of a type.
  template <class Call, int Channels, dense_warps_policy Policy>
  using program_of =
      dense_by_warps<Channels, dense_types<typename Call::value_type, typename Call::result_type, bias_type<Call>>,
                     Policy>;
  /// Gives what function(std::type_identity<program>) gives for the smallest program that has the call's channels.
  template <class Call, class Function>
  static auto with_program(Call const& call, Function const& function) {
    return with_constant<64, 128, 256>(dense_channels(call.shape.channels), [&](auto of) {
      constexpr int channels = of.value;
      if (has_list(call)) {
        constexpr dense_warps_policy policy = policy_of<dense_listed_tuning<channels>>(800);
        return function(std::type_identity<program_of<Call, channels, policy>>{});
      }
      constexpr dense_warps_policy policy = policy_of<dense_terms_tuning<channels, kind_of<Call>>>(800);
      return function(std::type_identity<program_of<Call, channels, policy>>{});
    });
  }
  template <class Call>
  static added_bias<bias_type<Call>> bias_of(Call const& call) {
    if constexpr (std::is_same_v<bias_type<Call>, no_bias>) {
      return {};
    } else {
      return {call.bias};
    }
  }
  template <class Chosen, class Call>
  static auto list_of(Call const& call) {
    if constexpr (Chosen::walks_lists) {
      return listed_keys<true>{call.block_list};
    } else {
      return listed_keys<false>{};
    }
  }
};

/// dense_tiles, the portable program, where its blocks of 64 queries are faster: for few queries, also of calls that
/// dense_forward leaves to sm_80's programs (results in fp32).
struct dense_tiles_model : dense_calls_without_wgmma {
  static constexpr char const* name = "dense_tiles (cp.async, mma.sync)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return unless(std::is_same_v<bias_type<Call>, no_bias>, "there is a bias");
  }
  template <class Architectures, class Call>
  static refusal refuses(basic_cuda<Architectures> const& exec, Call const& call) {
    return first_of(refuses_operands(call),
                    unless(has_few_queries(exec, call), "there are many queries, or their keys are split"));
  }
  template <class Architectures, class Call>
  static void run(basic_cuda<Architectures> const& exec, Call const& call) {
    run_portably(exec, call);
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
