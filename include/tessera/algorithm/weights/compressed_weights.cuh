// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Compressed weights on CUDA devices: kernels of their own encode weights to streams of pairs of exponents and decode
/// such streams, however many bits of mantissas are kept. All else runs in the portable programs.
///
/// compressed_weights.hpp includes this header where nvcc compiles: call compressed_weights as on the CPU, with a
/// tessera::cuda executor. Encoding takes four launches for up to 32 tensors, and one more for each tensor with
/// normalizers; decoding takes one. Nothing waits,
/// allocates or looks at data on the host.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/algorithm/weights/compressed_weights.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/concepts/tuning.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/exec/policy_of.hpp>
#include <tessera/exec/refusal.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/program/weights/decode.cuh>
#include <tessera/program/weights/encode.cuh>
#include <tessera/tuning/weights/neuzip.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// The policy of a tuning for an architecture, as a type.
template <Tuning Chosen, int Architecture>
using policy_constant = std::integral_constant<typename Chosen::policy_type, policy_of<Chosen>(Architecture)>;

/// Whether code for a list of architectures may have the programs of a policy.
template <class Policy, class Architectures>
inline constexpr bool may_have_policy = may_have_architecture(Architectures{}, Policy::value.from,
                                                              Policy::value.before);

/// The number of the architecture of the code that the device takes; 0 where there is none. The kernels are not asked
/// about by name: they would be compiled wherever memory is planned.
template <class Architectures>
int number_of_code(basic_cuda<Architectures> const& exec) {
  return number_of(exec.template architecture_of_code<specific_program>());
}

/// Gives what use(policy) gives for the policy that a tuning has for the code that the device takes, which may be older
/// than the device: an sm_120 takes that for sm_80 where the source was compiled for sm_80 and sm_90a. Only policies
/// for compiled architectures are instantiated. Where there is no code for the device, it is any of these.
template <Tuning Chosen, class Architectures, class Use>
auto with_policy(basic_cuda<Architectures> const& exec, Use const& use) {
  using first = policy_constant<Chosen, 800>;
  using second = policy_constant<Chosen, 900>;
  using third = policy_constant<Chosen, 1200>;
  constexpr bool has_first = may_have_policy<first, Architectures>;
  constexpr bool has_second = may_have_policy<second, Architectures>;
  constexpr bool has_third = may_have_policy<third, Architectures>;
  int code = 0;
  if constexpr (has_first + has_second + has_third > 1) {
    code = number_of_code(exec);
  }
  if constexpr (has_third) {
    if constexpr (!has_first && !has_second) {
      return use(third{});
    } else if (code >= third::value.from) {
      return use(third{});
    }
  }
  if constexpr (has_second) {
    if constexpr (!has_first) {
      return use(second{});
    } else if (code >= second::value.from) {
      return use(second{});
    }
  }
  if constexpr (has_first) {
    return use(first{});
  }
}

/// The number of thread blocks that the device runs at a time, without multiprocessors that are left to others.
template <class Architectures>
std::int64_t resident_blocks(basic_cuda<Architectures> const& exec, int blocks_per_multiprocessor) {
  int const multiprocessors = max(exec.state->multiprocessors() - exec.options.spared_multiprocessors, 1);
  return std::int64_t{multiprocessors} * blocks_per_multiprocessor;
}

/// The number of tiles of a tensor: a thread block encodes as many blocks of weights at a time as it has warps.
inline std::int64_t tiles_of(weight_stream_spec const& spec, neuzip_encode_policy policy) {
  return divide_up(spec.block_count(), std::int64_t{policy.threads / 32});
}

/// The program that decodes streams in which so many bits of mantissas are kept, rounded in any way.
template <class Mantissa, class T, class Policy>
using decoding_on_warps = decode_weights_on_warps<T, Policy::value, keep_mantissa<Mantissa::kept_bits>>;

/// Why the device does not run a kernel for weights, or none; what exec.lacks() says.
template <class P, class Architectures>
refusal lacks_kernel(basic_cuda<Architectures> const& exec) {
  int const code = number_of_code(exec);
  return first_of(
      unless(code > 0 && code >= P::from_architecture && code < P::before_architecture, "the device's architecture",
             exec.state->architecture(),
             "one that the program is for and this source was compiled for (sm_90a is 900)"),
      unless(launch_shape<P>::shared_bytes <= exec.state->shared_bytes(), "a thread block's shared memory in bytes",
             exec.state->shared_bytes(), "as many as the program needs"));
}
/// The same of the kernel that encodes weights. (Those before it take at most 43 KiB.)
template <class T, class Mantissa, class Architectures>
refusal lacks_encoding(basic_cuda<Architectures> const& exec) {
  return with_policy<neuzip_encode_tuning>(exec, [&](auto policy) {
    return lacks_kernel<encode_weights_on_warps<T, decltype(policy)::value, Mantissa>>(exec);
  });
}
/// The same of the kernel that decodes weights.
template <class T, class Mantissa, class Architectures>
refusal lacks_decoding(basic_cuda<Architectures> const& exec) {
  return with_policy<neuzip_decode_tuning>(
      exec, [&](auto policy) { return lacks_kernel<decoding_on_warps<Mantissa, T, decltype(policy)>>(exec); });
}

/// Encodes up to 32 tensors: normalizers, histograms, codebooks, blocks.
template <class Mantissa, class T, class Architectures, class Policy>
void encode_on_warps(basic_cuda<Architectures> const& exec, array_view<weight_encoding<T> const> list, Policy) {
  constexpr neuzip_encode_policy policy = Policy::value;
  count_exponents_on_blocks<T, Mantissa> count{};
  write_codebooks_on_blocks codebooks{};
  encode_weights_on_warps<T, policy, Mantissa> encode{};
  std::int64_t sampled = 0;
  std::int64_t tiles = 0;
  for (std::int64_t i = 0; i < list.size(); ++i) {
    weight_encoding<T> const& encoding = list[i];
    // The first word counts the tiles taken; only the first tensor's counter is used.
    count.task[i] = encode_task<T>::of(encoding, encoding.tile_sums + 1, sampled);
    codebooks.writing[i] = codebook_writing::of(encoding);
    encode.task[i] = encode_task<T>::of(encoding, encoding.tile_sums + 1, tiles);
    sampled += divide_up(encoding.spec.block_count(), histogram_stride(encoding.spec.block_count()));
    tiles += tiles_of(encoding.spec, policy);
  }
  count.tasks = encode.tasks = static_cast<int>(list.size());
  encode.tiles = tiles;
  encode.next_tile = reinterpret_cast<std::uint32_t*>(list[0].tile_sums);
  encode.status = list[0].status;
  if constexpr (!Mantissa::template is_lossless<T>) {
    for (std::int64_t i = 0; i < list.size(); ++i) {
      if (int const log2_block = list[i].spec.log2_normalizer_block; log2_block > 0) {
        exec.run(normalize_weights<T>{list[i]}, divide_up(list[i].spec.count, std::int64_t{1} << log2_block));
      }
    }
  }
  exec.run(count, sampled);
  exec.run(codebooks, list.size());
  exec.run(encode, min(tiles, resident_blocks(exec, policy.blocks_per_multiprocessor)));
  for (std::int64_t i = 0; i < list.size(); ++i) {
    if (list[i].spec.block_checksums) {
      exec.run(checksum_blocks<T>{list[i]}, list[i].spec.block_count());
    }
  }
}

/// Decodes up to 32 streams in one launch.
template <class Mantissa, class T, class Architectures, class Policy>
void decode_on_warps(basic_cuda<Architectures> const& exec, array_view<weight_decoding<T> const> list, Policy) {
  constexpr neuzip_decode_policy policy = Policy::value;
  using program_type = decoding_on_warps<Mantissa, T, Policy>;
  program_type program{};
  for (std::int64_t i = 0; i < list.size(); ++i) {
    program.task[i] = program_type::task_type::of(list[i], program.blocks);
    program.blocks += list[i].blocks;
  }
  std::int64_t const splits = min(program.blocks, resident_blocks(exec, policy.blocks_per_multiprocessor));
  program.tasks = static_cast<int>(list.size());
  program.splits = static_cast<int>(splits);
  program.blocks_a_run = static_cast<int>(min(divide_up(program.blocks, splits), std::int64_t{program.warps}));
  program.blocks_a_split = program.blocks / splits;
  program.longer_splits = static_cast<int>(program.blocks % splits);
  program.status = list[0].status;
  exec.run(program, program.splits);
}

/// Calls run(part) for parts of the list, of at most `most` elements each.
template <class Element, class Run>
void in_parts(array_view<Element> list, std::int64_t most, Run&& run) {
  for (std::int64_t first = 0; first < list.size(); first += most) {
    run(array_view<Element>(list.data + first, min(most, list.size() - first)));
  }
}

}  // namespace detail

/// The workspace in which CUDA devices compute the positions of blocks while they encode: a word for each tile; where
/// the device does not run the kernels, that of the portable programs.
template <class Architectures, class T, class Mantissa>
struct placement_needs<basic_cuda<Architectures>, T, Mantissa> {
  /// The executor.
  using executor = basic_cuda<Architectures>;

  /// Words for the tiles' running sum, and one to count tiles.
  static std::int64_t tile_sums(executor const& exec, weight_stream_spec const& spec) {
    // The policy with the smallest tiles needs the most words.
    return is_fast(exec) ? 1 + detail::tiles_of(spec, policy_of<neuzip_encode_tuning>(800)) : 0;
  }
  /// No bytes: blocks are written where they stay.
  static std::int64_t slots(executor const& exec, weight_stream_spec const& spec) {
    return is_fast(exec) ? 0 : spec.block_count() * spec.raw_payload_bytes(spec.block_weights());
  }

 private:
  static bool is_fast(executor const& exec) { return !detail::lacks_encoding<T, Mantissa>(exec); }
};

namespace detail {

/// What models for pairs of codes take.
struct exponent_pairs_model {
  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return unless(codes_exponent_pairs<typename Call::coder_type>, "the coder codes whole exponents");
  }
};

}  // namespace detail

/// Encoding of pairs of codes: all tensors of the list in a few launches.
struct encode_weights_model : detail::exponent_pairs_model {
  static constexpr char const* name = "encode_weights_on_warps";

  template <class Architectures, class Call>
  static refusal refuses(basic_cuda<Architectures> const& exec, Call const&) {
    return detail::lacks_encoding<typename Call::value_type, typename Call::mantissa_type>(exec);
  }
  template <class Architectures, class Call>
  static void run(basic_cuda<Architectures> const& exec, Call const& call) {
    using value_type = typename Call::value_type;
    using mantissa = typename Call::mantissa_type;
    using part_type = array_view<weight_encoding<value_type> const>;
    detail::with_policy<neuzip_encode_tuning>(exec, [&](auto policy) {
      detail::in_parts(call.list, count_exponents_on_blocks<value_type>::most_tasks,
                       [&](part_type part) { detail::encode_on_warps<mantissa>(exec, part, policy); });
    });
  }
};

/// Decoding of pairs of codes: all streams of the list in a few launches.
struct decode_weights_model : detail::exponent_pairs_model {
  static constexpr char const* name = "decode_weights_on_warps";

  template <class Architectures, class Call>
  static refusal refuses(basic_cuda<Architectures> const& exec, Call const&) {
    return detail::lacks_decoding<typename Call::value_type, typename Call::mantissa_type>(exec);
  }
  template <class Architectures, class Call>
  static void run(basic_cuda<Architectures> const& exec, Call const& call) {
    using value_type = typename Call::value_type;
    using part_type = array_view<weight_decoding<value_type> const>;
    detail::with_policy<neuzip_decode_tuning>(exec, [&](auto policy) {
      detail::in_parts(
          call.list, decode_weights_on_warps<value_type, decltype(policy)::value>::most_tasks,
          [&](part_type part) { detail::decode_on_warps<typename Call::mantissa_type>(exec, part, policy); });
    });
    for (std::int64_t i = 0; i < call.list.size(); ++i) {
      if (call.list[i].spec.block_checksums && call.list[i].verify_checksums) {
        exec.run(verify_blocks<value_type>{call.list[i]}, call.list[i].blocks);
      }
    }
  }
};

/// The programs that CUDA devices have for this call.
template <class Architectures, class Mantissa, class T, class Coder>
struct models_for<basic_cuda<Architectures>, encode_weights_call<Mantissa, T, Coder>> {
  /// The list of models.
  using type = model_list<encode_weights_model>;
};
/// The programs that CUDA devices have for this call.
template <class Architectures, class Mantissa, class T, class Coder>
struct models_for<basic_cuda<Architectures>, decode_weights_call<Mantissa, T, Coder>> {
  /// The list of models.
  using type = model_list<decode_weights_model>;
};

}  // namespace v0
}  // namespace tessera
