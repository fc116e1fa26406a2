// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The program of attention over codes for GPUs without wgmma, for the types and masks that it is made for: with
/// products of e4m3 where tensor cores have them, else of fp16.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/attention/detail/call_programs.hpp>
#include <tessera/algorithm/attention/quantized_attention.cuh>
#include <tessera/concepts/executor.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/with_constant.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/policy_of.hpp>
#include <tessera/exec/refusal.hpp>
#include <tessera/map/linear_bias.hpp>
#include <tessera/map/listed_tiles.hpp>
#include <tessera/map/no_bias.hpp>
#include <tessera/program/attention/detail/byte_products.cuh>
#include <tessera/program/attention/detail/half_products.cuh>
#include <tessera/program/attention/detail/widen_to_halves.cuh>
#include <tessera/program/attention/forward_by_warps.cuh>
#include <tessera/program/attention/quantized_operands.hpp>
#include <tessera/quantize/granularity.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/reduce/piecewise_linear_softmax.hpp>
#include <tessera/tile/gemm_operand.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tuning/attention/byte_products.hpp>
#include <tessera/tuning/attention/forward_by_warps.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// What the models of forward_by_warps have in common: sm_80 and later, where the code is not that of sm_90a.
struct forward_by_warps_calls {
  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    using method = typename Call::method;
    using quantizer = typename method::score_quantizer;
    return first_of(
        unless(std::is_same_v<typename method::softmax, piecewise_linear_softmax>,
               "forward_by_warps has the softmax piecewise_linear_softmax"),
        unless(has_integer_codes<quantizer>, "forward_by_warps has integer codes of queries and keys"),
        unless(is_one_for_a_lane(typename quantizer::granularity_type{}, 8, 128), "a lane's keys have several scales"),
        unless(!is_listed<bias_type<Call>>, "queries see listed tiles"));
  }
  template <class Exec, class Call>
  static refusal refuses(Exec const& exec, Call const& call) {
    return first_of(
        unless(call.queries.data == nullptr, "queries have no codes yet"),
        unless(!exec.template has<specific_program>(),
               "the device runs code for sm_90a, which has programs with wgmma"),
        unless(call.block_list.counts.data == nullptr, "queries see listed tiles"),
        unless(channels_of(call) <= 128, "heads have more than 128 channels"),
        unless(call.shape.keys < most_keys, "keys exceed 31 bits"),
        unless(call.shape.queries >= fewest_queries, "sequences have fewer than 64 queries"),
        unless(has_chunks(call), "codes or scales do not lie as quantize() leaves them, in rows of whole 16 bytes"),
        unless(has_corrections(call), "scores of mean queries do not lie as quantize() leaves them"));
  }
  template <class Call>
  using bias_type = std::remove_const_t<decltype(Call::bias)>;
  template <class Call>
  static std::int64_t channels_of(Call const& call) {
    return max(call.shape.channels, call.shape.channels_of_values());
  }
  /// Enqueues the program that multiplies by such products. Values: codes of values, or their numbers.
  template <class Products, class Exec, class Call, class Values>
  static void run_program(Exec const& exec, Call const& call, Values const& values) {
    program_type<Products, Call> const program{task_of(call, values), call.bias};
    exec.run(program, program.groups());
  }
  /// The refusal of such products by the device.
  template <class Products, class Call, class Exec>
  static refusal lacks(Exec const& exec) {
    return exec.template lacks<program_type<Products, Call>>();
  }

  /// Of fewer queries attention_tiles has fewer rows that do not exist.
  static constexpr std::int64_t fewest_queries = 64;

 private:
  static constexpr std::int64_t most_keys = 0x7fffffff - 256;

  template <class Products, class Call>
  using program_type = forward_by_warps<Products, typename Call::value_type, bias_type<Call>>;

  template <class Q>
  static constexpr bool has_integer_codes = std::is_integral_v<typename gemm_operand<stored_code<Q>>::sum_type>;
  /// Whether all rows of codes have whole chunks, and codes of values and scales of keys are neighbours.
  template <class Call>
  static bool has_chunks(Call const& call) {
    using code = typename Call::method::score_code;
    auto const& heads = call.heads;
    return call.is_empty() ||
           (dense_chunks<code>::suits(heads.queries.codes[0][0]) && dense_chunks<code>::suits(heads.keys.codes[0][0]) &&
            dense_chunks<float8_e4m3>::suits(heads.values.codes[0][0][0]) &&
            heads.values.codes.stride(3) == attention_padding && heads.keys.scales.stride(2) == 1);
  }
  /// Whether scores of mean queries, if there are any, lie one behind the other in whole chunks.
  template <class Call>
  static bool has_corrections(Call const& call) {
    auto const& queries = call.heads.queries;
    return !is_smoothed_by<block_mean, typename Call::method::score_quantizer> || call.is_empty() ||
           (is_aligned(queries.corrections.data) && queries.corrections.is_contiguous() &&
            is_aligned(queries.correction_ranges.data) && queries.correction_ranges.is_contiguous());
  }
};

/// forward_by_warps with products of e4m3: sm_89, and sm_120 and later.
struct forward_in_e4m3_model : forward_by_warps_calls {
  static constexpr char const* name = "forward_by_warps in e4m3 (cp.async, mma.sync)";

  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return first_of(
        unless(may_be_for(static_cast<Exec const*>(nullptr)), "this source is compiled for neither sm_89 nor sm_120"),
        forward_by_warps_calls::refuses_types<Exec, Call>());
  }
  template <class Architectures, class Call>
  static refusal refuses(basic_cuda<Architectures> const& exec, Call const& call) {
    return first_of(forward_by_warps_calls::refuses(exec, call), lacks_program<Call>(exec, channels_of(call)));
  }
  /// The refusal of the program for so many channels by the device.
  template <class Call, class Exec>
  static refusal lacks_program(Exec const& exec, std::int64_t channels) {
    return with_products<Call>(exec, channels,
                               [&](auto products) { return lacks<typename decltype(products)::type, Call>(exec); });
  }
  template <class Architectures, class Call>
  static void run(basic_cuda<Architectures> const& exec, Call const& call) {
    with_products<Call>(exec, channels_of(call), [&](auto products) {
      run_program<typename decltype(products)::type>(exec, call, call.heads.values);
    });
    merge_splits(exec, call);
  }

 private:
  template <class Architectures>
  static constexpr bool may_be_for(basic_cuda<Architectures> const*) {
    return may_have_architecture(Architectures{}, 890, 900) || may_have_architecture(Architectures{}, 1200, 10000);
  }
  /// Gives what function(std::type_identity<products>) gives for the products of calls with so many channels.
  template <class Call, class Exec, class Function>
  static auto with_products(Exec const& exec, std::int64_t of_heads, Function const& function) {
    int const architecture = exec.state->architecture() < 1200 ? 890 : 1200;
    return with_constant<64, 128>(of_heads <= 64 ? 64 : 128, [&](auto channels) {
      return with_constant<890, 1200>(architecture, [&](auto of) {
        using method = typename Call::method;
        constexpr bool has_corrections =
            is_smoothed_by<block_mean, typename method::score_quantizer> && codes_in<typename method::score_code> == 1;
        constexpr auto policy = policy_of<byte_products_tuning<channels.value, has_corrections>>(of.value);
        return function(std::type_identity<byte_products<method, channels.value, policy>>{});
      });
    });
  }
};

/// forward_by_warps with products of fp16, where there is enough shared memory. Where a call has memory for values in
/// fp16 they are widened once, else by each thread block, which with 128 channels and one set takes 34 KiB more of
/// shared memory: more than the 99 KiB of sm_86. There INT4 codes in pairs fit as on sm_80 (90.6 KiB), and codes in
/// bytes, which would take 105.6, in swizzled rows (97.5, or 98.6 with smoothed queries). There thread blocks of 64
/// channels have eight warps in place of four, where no terms are added to scores and values are widened once.
struct forward_by_warps_model : forward_by_warps_calls {
  static constexpr char const* name = "forward_by_warps (cp.async, mma.sync)";

  template <class Architectures, class Call>
  static refusal refuses(basic_cuda<Architectures> const& exec, Call const& call) {
    std::int64_t const channels = channels_of(call);
    return first_of(forward_by_warps_calls::refuses(exec, call), lacks_program<Call, float16>(exec, channels),
                    unless(takes_halves(call) || !lacks_program<Call, float8_e4m3>(exec, channels),
                           "values have no memory in fp16, and thread blocks none to widen codes (halves_of_values)"));
  }
  /// Whether a device's calls with such a shape can use memory for values in fp16, if they have what this program
  /// takes: where thread blocks would widen each code several times, and where they have no shared memory to widen any.
  template <class Call, class Architectures>
  static bool uses_halves(basic_cuda<Architectures> const& exec, attention_shape const& shape) {
    std::int64_t const channels = max(shape.channels, shape.channels_of_values());
    if constexpr (!forward_in_e4m3_model::refuses_types<basic_cuda<Architectures>, Call>()) {
      if (!forward_in_e4m3_model::lacks_program<Call>(exec, channels)) {
        return false;
      }
    }
    if (channels > 128 || exec.template has<specific_program>() || lacks_program<Call, float16>(exec, channels)) {
      return false;
    }
    return shape.queries >= forward_by_warps_tuning::fewest_queries ||
           (shape.queries >= fewest_queries && lacks_program<Call, float8_e4m3>(exec, channels));
  }
  template <class Architectures, class Call>
  static void run(basic_cuda<Architectures> const& exec, Call const& call) {
    auto const& values = call.heads.values;
    if (takes_halves(call)) {
      std::int64_t const count = values.codes.size();
      widen_to_halves const program{reinterpret_cast<uint4 const*>(values.codes.data),
                                    reinterpret_cast<uint4*>(call.halves_of_values.data), count / 16};
      exec.run(program, program.groups());
      quantized_value_heads<float16> halves{};
      halves.codes = {call.halves_of_values.data,
                      {values.codes.extent(0), values.codes.extent(1), values.codes.extent(2), values.codes.extent(3),
                       values.codes.extent(4)}};
      halves.scales = values.scales;
      halves.mean = values.mean;
      run_with(exec, call, halves);
    } else {
      run_with(exec, call, values);
    }
    merge_splits(exec, call);
  }

 private:
  static constexpr forward_by_warps_policy one_set{1};
  static constexpr forward_by_warps_policy two_sets{2};
  static constexpr forward_by_warps_policy swizzled_set{1, true};
  static constexpr forward_by_warps_policy eight_warps{1, false, 8};

  template <class Call, int Channels, forward_by_warps_policy Policy, class StoredValue = float8_e4m3>
  using products = half_products<typename Call::method, Channels, Policy, StoredValue>;

  /// Whether 128 channels may be in swizzled rows: those of codes in bytes, where the source may be compiled for them.
  template <class Call, class StoredValue, class Architectures>
  static constexpr bool may_be_swizzled(basic_cuda<Architectures> const*) {
    return std::is_same_v<StoredValue, float16> && codes_in<typename Call::method::score_code> == 1 &&
           may_have_architecture(Architectures{}, 800, 890);
  }
  /// Whether 64 channels may have eight warps: without terms of scores, where the source may be compiled for them.
  template <class Call, class StoredValue, class Architectures>
  static constexpr bool may_have_eight_warps(basic_cuda<Architectures> const*) {
    return std::is_same_v<StoredValue, float16> && std::is_same_v<bias_type<Call>, no_bias> &&
           !is_smoothed_by<block_mean, typename Call::method::score_quantizer> &&
           may_have_architecture(Architectures{}, 800, 890);
  }
  /// The refusal of the program for so many channels, over values as they are stored, by the device.
  template <class Call, class StoredValue, class Exec>
  static refusal lacks_program(Exec const& exec, std::int64_t channels) {
    if (channels <= 64) {
      return lacks<products<Call, 64, one_set, StoredValue>, Call>(exec);
    }
    refusal const of_others = lacks<products<Call, 128, one_set, StoredValue>, Call>(exec);
    if constexpr (may_be_swizzled<Call, StoredValue>(static_cast<Exec const*>(nullptr))) {
      if (of_others && !lacks<products<Call, 128, swizzled_set, StoredValue>, Call>(exec)) {
        return {};
      }
    }
    return of_others;
  }
  /// Whether values are widened once, before the program: if there is memory and codes have no gaps.
  template <class Call>
  static bool takes_halves(Call const& call) {
    auto const& codes = call.heads.values.codes;
    return call.halves_of_values.data != nullptr && call.halves_of_values.size() >= codes.size() &&
           codes.is_contiguous() && is_aligned(codes.data) && is_aligned(call.halves_of_values.data);
  }
  /// Runs over values as they are stored.
  template <class Exec, class Call, class StoredValue>
  static void run_with(Exec const& exec, Call const& call, quantized_value_heads<StoredValue> const& values) {
    using stored = std::remove_const_t<StoredValue>;
    if (channels_of(call) <= 64) {
      if constexpr (may_have_eight_warps<Call, stored>(static_cast<Exec const*>(nullptr))) {
        if (warps_of_64(exec, call) == 8 && !lacks<products<Call, 64, eight_warps, stored>, Call>(exec)) {
          return run_program<products<Call, 64, eight_warps, stored>>(exec, call, values);
        }
      }
      return run_program<products<Call, 64, one_set, stored>>(exec, call, values);
    }
    if constexpr (may_have_two_sets<Call>) {
      if (sets_of(exec, call) == 2) {
        return run_program<products<Call, 128, two_sets, stored>>(exec, call, values);
      }
    }
    if constexpr (may_be_swizzled<Call, stored>(static_cast<Exec const*>(nullptr))) {
      if (lacks<products<Call, 128, one_set, stored>, Call>(exec)) {
        return run_program<products<Call, 128, swizzled_set, stored>>(exec, call, values);
      }
    }
    run_program<products<Call, 128, one_set, stored>>(exec, call, values);
  }

  template <class Exec, class Call>
  static int warps_of_64(Exec const& exec, Call const& call) {
    return forward_by_warps_tuning::warps_of_64(call.shape, call.options.window_left >= 0, exec.state->shared_bytes(),
                                                exec.state->multiprocessors());
  }

  /// A bias that is called for each score is compiled for one set of 16 rows a warp alone.
  template <class Call>
  static constexpr bool may_have_two_sets = std::is_same_v<bias_type<Call>, no_bias> || LinearBias<bias_type<Call>>;
  /// Two sets where the device has the shared memory for them and forward_by_warps_tuning chooses them.
  template <class Exec, class Call>
  static int sets_of(Exec const& exec, Call const& call) {
    bool const has_window = call.options.window_left >= 0 || call.options.keys_behind() >= 0;
    bool const has_room = !lacks<products<Call, 128, two_sets>, Call>(exec);
    return has_room ? forward_by_warps_tuning{}(call.shape, has_window, exec.state->multiprocessors()).sets : 1;
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace tessera
