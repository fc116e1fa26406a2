// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Attention on sm_90 and later over codes two to a byte: a model of a call widens its codes and gives them to a model
/// of the method in bytes (algorithm/attention/widened_codes.hpp).
#pragma once

#include <utility>

#include <tessera/algorithm/attention/quantized_attention.cuh>
#include <tessera/algorithm/attention/widened_codes.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/refusal.hpp>
#include <tessera/exec/run.hpp>

namespace tessera {
inline namespace v0 {

/// GPUs from sm_90 on have no product of 4-bit integers, but programs for those in bytes.
template <class Architectures, class Method>
inline constexpr bool may_widen<basic_cuda<Architectures>, Method> =
    has_pairs<Method>&& detail::may_have_architecture(Architectures{}, 900, 10000) &&
    !detail::refuses_codes<widened_method<Method>>();

/// Whether the executor's device multiplies bytes in place of pairs.
template <class Architectures>
bool widens(basic_cuda<Architectures> const& exec) {
  return exec.state->architecture() >= 900;
}

/// Model, after the codes of queries and keys were widened: 1.5 bytes of memory for each.
template <class Model>
struct over_widened_codes {
  static constexpr char const* name = Model::name;

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    using widened = decltype(widened_call(std::declval<Call const&>()));
    return Model::template refuses_types<Exec, widened>();
  }
  template <class Architectures, class Call>
  static refusal refuses(basic_cuda<Architectures> const& exec, Call const& call) {
    auto const& heads = call.heads;
    bool const is_whole = detail::is_aligned(heads.queries.codes.data) && detail::is_aligned(heads.keys.codes.data);
    refusal const why = first_of(unless(call.widened.data != nullptr, "there is no memory for codes in bytes"),
                                 unless(detail::is_aligned(call.widened.data),
                                        "memory for codes in bytes does not begin at a multiple of 16 bytes"),
                                 unless(call.widened.size() >= widened_codes<typename Call::method>{call.shape}.bytes(),
                                        "bytes of memory for codes in bytes", call.widened.size(), "more"),
                                 unless(is_whole, "codes of queries or keys do not begin at multiples of 16 bytes"));
    return why ? why : Model::refuses(exec, widened_call(call));
  }
  template <class Architectures, class Call>
  static void run(basic_cuda<Architectures> const& exec, Call const& call) {
    auto const widened = widened_call(call);
    widen_heads const program = widened_codes<typename Call::method>{call.shape}.program(call.heads, widened.heads);
    exec.run(program, program.groups());
    Model::run(exec, widened);
  }
};

}  // namespace v0
}  // namespace tessera
