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

/// Calls use(policy) with the policy that a tuning has for the device at hand, as a compile-time constant. Only
/// policies for compiled architectures are instantiated.
template <Tuning Chosen, class Architectures, class Use>
void with_policy(basic_cuda<Architectures> const& exec, Use&& use) {
  constexpr bool has_new = may_have_architecture(Architectures{}, 900, 10000);
  constexpr bool has_old = may_have_architecture(Architectures{}, 0, 900);
  if constexpr (has_new) {
    if (exec.state->architecture() >= 900 || !has_old) {
      return use(std::integral_constant<typename Chosen::policy_type, policy_of<Chosen>(900)>{});
    }
  }
  if constexpr (has_old) {
    use(std::integral_constant<typename Chosen::policy_type, policy_of<Chosen>(800)>{});
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

/// Decodes up to 32 streams in one launch. Mantissa: how many bits of mantissas are kept, rounded in any way.
template <class Mantissa, class T, class Architectures, class Policy>
void decode_on_warps(basic_cuda<Architectures> const& exec, array_view<weight_decoding<T> const> list, Policy) {
  constexpr neuzip_decode_policy policy = Policy::value;
  using program_type = decode_weights_on_warps<T, policy, keep_mantissa<Mantissa::kept_bits>>;
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

/// The workspace in which CUDA devices compute the positions of blocks while they encode: a word for each tile.
template <class Architectures, class T, class Mantissa>
struct placement_needs<basic_cuda<Architectures>, T, Mantissa> {
  /// Words for the tiles' running sum, and one to count tiles.
  static std::int64_t tile_sums(weight_stream_spec const& spec) {
    // The policy with the smallest tiles needs the most words.
    return 1 + detail::tiles_of(spec, policy_of<neuzip_encode_tuning>(800));
  }
  /// No bytes: blocks are written where they stay.
  static std::int64_t slots(weight_stream_spec const&) { return 0; }
};

namespace detail {

/// What models for pairs of codes take.
struct exponent_pairs_model {
  template <Executor Exec, class Call>
  static constexpr refusal refuses_types() {
    return unless(codes_exponent_pairs<typename Call::coder_type>, "the coder codes whole exponents");
  }
  template <class Architectures, class Call>
  static refusal refuses(basic_cuda<Architectures> const&, Call const&) {
    return {};
  }
};

}  // namespace detail

/// Encoding of pairs of codes: all tensors of the list in a few launches.
struct encode_weights_model : detail::exponent_pairs_model {
  static constexpr char const* name = "encode_weights_on_warps";

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
