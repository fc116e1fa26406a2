// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The program of attention over 16-bit operands for GPUs without wgmma.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/attention/quantized_attention.cuh>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/policy_of.hpp>
#include <tessera/exec/refusal.hpp>
#include <tessera/map/no_bias.hpp>
#include <tessera/program/attention/detail/dense_by_warps.cuh>
#include <tessera/program/attention/detail/dense_tiles.hpp>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/tuning/attention/dense.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// dense_by_warps: sm_80 and later, for calls that no program for one architecture takes.
struct dense_by_warps_model {
  static constexpr char const* name = "dense_by_warps (cp.async, mma.sync)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return first_of(unless(is_16_bit_float<typename Call::result_type>, "results do not have 16 bits"),
                    unless(std::is_same_v<std::remove_const_t<decltype(Call::bias)>, no_bias>, "there is a bias"));
  }
  template <class Architectures, class Call>
  static refusal refuses(basic_cuda<Architectures> const& exec, Call const& call) {
    constexpr std::int64_t most = std::int64_t{1} << 29;  // so that sums of two numbers of tokens fit into 31 bits
    constexpr dense_warps_choice choice = policy_of<dense_warps_choice_tuning>(800);
    auto const& s = call.shape;
    return first_of(
        unless(call.block_list.counts.data == nullptr, "there is a list of tiles"),
        unless(s.queries < most && s.keys < most, "rows of queries or keys do not fit into 29 bits"),
        unless(s.queries >= choice.fewest_queries, "sequences have few queries"),
        unless(s.channels % 8 == 0, "the remainder of head_dim by 8", s.channels % 8, "0"),
        unless(call.out.result.stride(3) == 1, "the stride of results along head_dim", call.out.result.stride(3), "1"),
        unless(has_whole_vectors(call.queries), "queries do not lie in rows that begin at multiples of 16 bytes"),
        unless(has_whole_vectors(call.keys), "keys do not lie in rows that begin at multiples of 16 bytes"),
        unless(has_whole_vectors(call.values), "values do not lie in rows that begin at multiples of 16 bytes"),
        with_program<Call>(call,
                           [&](auto program) { return exec.template lacks<typename decltype(program)::type>(); }));
  }
  template <class Architectures, class Call>
  static void run(basic_cuda<Architectures> const& exec, Call const& call) {
    with_program<Call>(call, [&](auto which) {
      using program_type = typename decltype(which)::type;
      program_type const program{call.shape,
                                 {call.queries, call.query_lengths, call.query_starts},
                                 {call.keys, call.key_lengths, call.key_starts},
                                 {call.values, call.key_lengths, call.key_starts},
                                 call.softmax_scale * program_type::log2_e,
                                 call.options.window_left,
                                 call.options.keys_behind(),
                                 {call.shape,
                                  {},
                                  {},
                                  {},
                                  call.query_lengths,
                                  call.sinks,
                                  call.query_starts,
                                  call.out.result,
                                  call.out.log_sum_exp},
                                 has_whole_vectors(call.out.result)};
      exec.run(program, program.groups());
    });
  }

 private:
  /// Gives what function(std::type_identity<program>) gives for the smallest program that has the call's channels.
  template <class Call, class Function>
  static auto with_program(Call const& call, Function const& function) {
    std::int64_t const own = call.shape.channels;
    return with_constant<64, 128, 256>(
        own > 128  ? 256
        : own > 64 ? 128
                   : 64,
        [&](auto channels) {
          constexpr dense_warps_policy policy = policy_of<dense_warps_tuning<channels.value>>(800);
          using program_type =
              dense_by_warps<channels.value, typename Call::value_type, typename Call::result_type, policy>;
          return function(std::type_identity<program_type>{});
        });
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
