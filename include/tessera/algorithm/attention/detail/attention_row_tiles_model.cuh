// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How calls of attention over codes run by attention_row_tiles, on GPUs from sm_80 to sm_89.
#pragma once

#include <cstdint>

#include <tessera/algorithm/attention/detail/call_programs.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/refusal.hpp>
#include <tessera/map/listed_tiles.hpp>
#include <tessera/program/attention/detail/attention_row_tiles.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// attention_row_tiles: sm_80 to sm_89.
struct attention_row_tiles_model {
  static constexpr char const* name = "attention_row_tiles (cp.async, mma.sync)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return unless(sizeof(typename Call::method::value_code) <= 2, "codes of values have more than 16 bits");
  }
  template <class Architectures, class Call>
  static refusal refuses(basic_cuda<Architectures> const& exec, Call const& call) {
    return with_constant<64, 128, 256>(channels_of(call), [&](auto channels) {
      return first_of(unless(call.queries.data == nullptr, "queries have no codes yet"),
                      exec.template lacks<program_for<channels.value, Call>>());
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

  template <class Call>
  static std::int64_t channels_of(Call const& call) {
    std::int64_t const most = max(call.shape.channels, call.shape.channels_of_values());
    return most <= 64 ? 64 : most <= 128 ? 128 : 256;
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
