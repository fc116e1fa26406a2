// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How calls of attention over codes run by attention_row_tiles, on GPUs from sm_80 to sm_89.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/attention/detail/call_programs.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/refusal.hpp>
#include <tessera/map/listed_tiles.hpp>
#include <tessera/program/attention/detail/attention_row_tiles.hpp>
#include <tessera/tile/gemm_operand.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// attention_row_tiles: sm_80 to sm_89.
struct attention_row_tiles_model {
  static constexpr char const* name = "attention_row_tiles (cp.async, mma.sync)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return first_of(unless(is_multiplied_as_half<typename Call::method::value_code>(),
                           "codes of values are neither bytes, e4m3, e5m2 nor floats of 16 bits"),
                    unless(!std::is_same_v<typename gemm_operand<typename Call::method::score_code>::value_type, float>,
                           "codes of queries and keys are floats, which mma.sync does not multiply"));
  }
  template <class Architectures, class Call>
  static refusal refuses(basic_cuda<Architectures> const& exec, Call const& call) {
    return with_constant<64, 128, 256>(channels_of(call), [&](auto channels) {
      using program_type = program_for<channels.value, Call>;
      constexpr int scratch = launch_shape<program_type>::scratch_bytes;
      return first_of(unless(call.queries.data == nullptr, "queries have no codes yet"),
                      exec.template lacks<program_type>(),
                      unless(scratch <= exec.state->shared_bytes(), "its scratch in bytes", scratch,
                             "at most the shared memory that the device has for a thread block"));
    });
  }
  template <class Architectures, class Call>
  static void run(basic_cuda<Architectures> const& exec, Call const& call) {
    with_constant<64, 128, 256>(channels_of(call), [&](auto channels) {
      auto const program = tiles_of<program_for<channels.value, Call>>(call);
      exec.run(program, program.groups());
    });
    merge_splits(exec, call);
  }

 private:
  template <int Channels, class Call>
  using program_for = attention_row_tiles<typename Call::method, typename Call::value_type,
                                          bias_without_list<decltype(Call::bias)>, Channels>;

  template <class Code>
  static constexpr bool is_multiplied_as_half() {
    return std::is_same_v<Code, std::int8_t> || std::is_same_v<Code, float8_e4m3> ||
           std::is_same_v<Code, float8_e5m2> || is_16_bit_float<Code>;
  }
  template <class Call>
  static int channels_of(Call const& call) {
    return channels_of_tiles(max(call.shape.channels, call.shape.channels_of_values()));
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
