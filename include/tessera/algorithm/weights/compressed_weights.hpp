// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Compresses the weights of a tensor into a stream of bytes and decodes them again, on any executor.
///
///     using codec = tessera::compressed_weights<tessera::exponent_split<tessera::bfloat16>, tessera::rans_coder<12>,
///                                               tessera::keep_mantissa<7>>;
///     tessera::cpu exec;
///     auto stream = codec::encode(exec, weights);               // two thirds of the bytes
///     codec::decode(exec, stream, weights);                     // the same bits
///
/// On a GPU keep the spec. All sizes follow from it, whatever the weights are:
///
///     auto spec = codec::spec(count);
///     auto plan = codec::plan_encode(exec, spec);               // plan.bytes() of workspace; made once
///     codec::encode(exec, spec, weights, stream, stream_bytes, tessera::workspace(plan, memory));
///
/// For a stream that comes from elsewhere, such as a file, decode() takes the result of inspect_weight_stream instead
/// of the spec; inspect_weight_stream(stream).spec().count says how many weights there are. In both cases the codec
/// throws value_error for a spec of another codec: another type, coder or number of mantissa bits, or block sizes that
/// spec() never returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/algorithm/weights/detail/check_streams.hpp>
#include <tessera/algorithm/weights/inspect_weight_stream.hpp>
#include <tessera/algorithm/weights/list_of_weights.hpp>
#include <tessera/algorithm/weights/weight_codec_specs.hpp>
#include <tessera/algorithm/weights/weight_coder.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/config.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/cpu_features.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/run.hpp>
#include <tessera/exec/status_calls.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/program/weights/block_avx2.hpp>
#include <tessera/program/weights/block_avx512.hpp>
#include <tessera/program/weights/decode.hpp>
#include <tessera/program/weights/encode.hpp>
#include <tessera/program/weights/exponent_block.hpp>
#include <tessera/program/weights/exponent_codebook.hpp>
#include <tessera/program/weights/store_raw.hpp>

namespace tessera {
inline namespace v0 {

/// Calls use(steps) with the fastest block steps that an executor's programs can use.
template <class T, class Mantissa, Executor Exec, class Use>
void with_block_steps(Exec const&, Use&& use) {
  use(weight_block_steps<T, Mantissa>{});
}
/// The block steps of CPUs: AVX-512 or AVX2 where the machine has it, else the portable ones.
template <class T, class Mantissa, class Use>
void with_block_steps(cpu const&, Use&& use) {
  switch (best_simd_level()) {
    case simd_level::avx512:
      return use(weight_block_steps_avx512<T, Mantissa>{});
    case simd_level::avx2:
      return use(weight_block_steps_avx2<T, Mantissa>{});
    default:
      return use(weight_block_steps<T, Mantissa>{});
  }
}

/// Calls use(steps) with the block steps for a coder: those of pairs of 4-bit codes, or those of whole exponents.
template <class T, class Mantissa, class Coder, Executor Exec, class Use>
void with_steps_of(Exec const& exec, Use&& use) {
  if constexpr (codes_exponent_pairs<Coder>) {
    with_block_steps<T, Mantissa>(exec, std::forward<Use>(use));
  } else {
    use(exponent_block_steps<T, Mantissa, Coder>{});
  }
}

/// The workspace that an executor needs to put coded blocks next to each other: words for its tiles, or room for every
/// block. Coder is the table_coder of a codec.
template <Executor Exec, class T, class Mantissa, class Coder = pair_coder>
struct placement_needs {
  /// 64-bit words for a running sum over tiles.
  static std::int64_t tile_sums(Exec const&, weight_stream_spec const&) { return 0; }
  /// Bytes that hold all blocks before they are moved together.
  static std::int64_t slots(Exec const&, weight_stream_spec const& spec) {
    return spec.block_count() * spec.raw_payload_bytes(spec.block_weights());
  }
};

namespace detail {

/// Fits the coder's model to the counts, and writes header and codebook.
template <class T, class Coder, Executor Exec>
void run_write_codebook(Exec const& exec, weight_encoding<T, Coder> const& encoding) {
  if constexpr (codes_exponent_pairs<Coder>) {
    exec.run(write_codebook{codebook_writing::of(encoding)}, 1);
  } else {
    exec.run(write_exponent_codebook<T, Coder>{encoding}, 1);
  }
}

}  // namespace detail

/// The encoding of tensors, as run() takes it; the workspace's counters must be zero. Coder is the table_coder of a
/// codec. An executor with other programs also specialises placement_needs.
template <class Mantissa, class T, class Coder = pair_coder>
struct encode_weights_call {
  /// How many bits of mantissas are kept.
  using mantissa_type = Mantissa;
  using value_type = T;
  /// The coder of exponents.
  using coder_type = Coder;
  static constexpr char const* function = "compressed_weights.encode";

  array_view<weight_encoding<T, Coder> const> list;  ///< the tensors, on the host

  [[nodiscard]] bool is_empty() const { return list.size() == 0; }
};

/// The decoding of streams, as run() takes it. Coder is the table_coder of a codec.
template <class Mantissa, class T, class Coder = pair_coder>
struct decode_weights_call {
  /// How many bits of mantissas are kept.
  using mantissa_type = Mantissa;
  using value_type = T;
  /// The coder of exponents.
  using coder_type = Coder;
  static constexpr char const* function = "compressed_weights.decode";

  array_view<weight_decoding<T, Coder> const> list;  ///< the streams, on the host

  [[nodiscard]] bool is_empty() const { return list.size() == 0; }
};

/// Encodes tensors by the portable programs; run() (exec/run.hpp) may have faster ones.
template <Executor Exec, class Mantissa, class T, class Coder>
void run_portably(Exec const& exec, encode_weights_call<Mantissa, T, Coder> const& call) {
  auto const list = call.list;
  for (std::int64_t i = 0; i < list.size(); ++i) {
    weight_encoding<T, Coder> const& encoding = list[i];
    std::int64_t const blocks = encoding.spec.block_count();
    if (encoding.spec.log2_normalizer_block > 0) {
      std::int64_t const normalizers =
          divide_up(encoding.spec.count, std::int64_t{1} << encoding.spec.log2_normalizer_block);
      exec.run(normalize_weights<T, Coder>{encoding}, normalizers);
    }
    with_steps_of<T, Mantissa, Coder>(exec, [&](auto steps) {
      using count = count_exponents<T, Mantissa, decltype(steps)>;
      exec.run(count{encoding}, count::groups(encoding.spec));
      detail::run_write_codebook(exec, encoding);
      exec.run(encode_weights<T, Mantissa, decltype(steps)>{encoding}, blocks);
    });
    exec.run(locate_payloads<T, Coder>{encoding}, 1);
    exec.run(move_payloads<T, Coder>{encoding}, blocks);
    if (encoding.spec.block_checksums) {
      exec.run(checksum_blocks<T, Coder>{encoding}, blocks);
    }
  }
}

/// Decodes streams by the portable programs; run() (exec/run.hpp) may have faster ones.
template <Executor Exec, class Mantissa, class T, class Coder>
void run_portably(Exec const& exec, decode_weights_call<Mantissa, T, Coder> const& call) {
  auto const list = call.list;
  for (std::int64_t i = 0; i < list.size(); ++i) {
    weight_decoding<T, Coder> const& decoding = list[i];
    exec.run(read_codebook<T, Coder>{decoding}, 1);
    with_steps_of<T, Mantissa, Coder>(
        exec, [&](auto steps) { exec.run(decode_weights<T, Mantissa, decltype(steps)>{decoding}, decoding.blocks); });
  }
}

/// The codec of a split of the values, a coder for exponents, and a choice of the mantissa bits to keep.
///
/// Coder: rans_coder<12> and fixed_coder first turn each exponent into a 4-bit code, which suits weights whose
/// exponents are neighbours. tans_coder and every StreamCoder of a user code whole exponents, which suits wide
/// distributions; they run in the portable programs on every executor. The stream has the coder's number, and a codec
/// refuses other coders' streams.
///
/// It is lossless for every bit pattern if Mantissa keeps all bits. Determinism: the stream's bytes depend on the
/// weights, the spec and the seed alone, never on the executor or the number of threads. No function waits or
/// allocates, except those whose comments say so.
template <class Split, WeightCoder Coder, class Mantissa>
struct compressed_weights {
  using value_type = typename Split::value_type;
  /// How exponents are coded.
  using coder_type = Coder;
  /// How many bits of mantissas are kept, and how they are rounded.
  using mantissa_type = Mantissa;
  /// The coder whose tables the programs use.
  using table_coder_type = table_coder<Coder>;
  /// The layouts of the codec's streams.
  using specs = weight_codec_specs<value_type, Coder, Mantissa>;
  /// Whether every weight is decoded bit for bit.
  static constexpr bool is_lossless = specs::is_lossless;

  /// The layout of a tensor's stream. Throws shape_error for a count and value_error for options out of range.
  static weight_stream_spec spec(std::int64_t count, weight_stream_options options = {}) {
    return specs::make(count, options);
  }
  /// Throws value_error, or shape_error for the number of weights, if streams of this spec are not the codec's.
  static void check_spec(char const* where, weight_stream_spec const& spec) { specs::check_own(where, spec); }

  /// The most bytes of any stream of this spec.
  static std::int64_t largest_bytes(weight_stream_spec const& spec) { return spec.largest_bytes(); }

  /// A tensor to encode.
  struct source {
    weight_stream_spec spec;               ///< the layout of the stream, as spec() makes it
    array_view<value_type const> weights;  ///< spec.count weights, contiguous
    /// Room for the stream, 16-byte aligned; largest_bytes(spec) always suffice.
    array_view<std::byte> stream;
    array_view<std::int64_t> stream_bytes;  ///< one element: the size of the stream that was made
    std::uint64_t seed = 0;                 ///< for stochastic rounding
    /// Whether wait() reports a stream that does not fit. stream_bytes has the size that it would need in any case.
    bool reports_full = true;
  };

  /// A stream to decode, or a range of its blocks.
  struct target {
    static constexpr std::int64_t all_blocks = -1;  ///< the value of `blocks` for all from first_block to the last one
    expected_weight_stream spec;                    ///< the layout, made by spec() or found by inspect_weight_stream
    array_view<std::byte const> stream;             ///< the stream, 16-byte aligned
    array_view<value_type> weights;                 ///< the weights of the blocks, contiguous
    std::int64_t first_block = 0;                   ///< the first block to decode
    std::int64_t blocks = all_blocks;               ///< the number of blocks to decode
  };

  /// The workspace of encode() for many tensors.
  template <Executor Exec>
  static workspace_plan plan_encode(Exec const& exec, array_view<source const> sources) {
    return encode_regions(exec, sources).plan;
  }
  /// The workspace of encode() for one tensor.
  template <Executor Exec>
  static workspace_plan plan_encode(Exec const& exec, weight_stream_spec const& spec) {
    source const alone{spec, {}, {}, {}};
    return plan_encode(exec, array_view<source const>(&alone, 1));
  }
  /// The workspace of decode() for many streams.
  template <Executor Exec>
  static workspace_plan plan_decode(Exec const&, array_view<target const> targets) {
    return decode_regions(targets).plan;
  }
  /// The workspace of decode() for one stream or any blocks of it.
  template <Executor Exec>
  static workspace_plan plan_decode(Exec const& exec, expected_weight_stream const& spec) {
    target const alone{spec, {}, {}};
    return plan_decode(exec, array_view<target const>(&alone, 1));
  }

  /// Enqueues the encoding of many tensors, on a GPU in a few launches for all of them. exec.wait() reports a stream
  /// that does not fit into the memory given for it; the weights are only read, so that nothing is lost.
  template <Executor Exec>
  static void encode(Exec const& exec, array_view<source const> sources, workspace const& space) {
    auto const regions = encode_regions(exec, sources);
    space.check_room("compressed_weights.encode", regions.plan.bytes(), sources.size(), " tensors");
    check_reach(exec, "compressed_weights.encode", "bytes of the workspace", space);
    std::vector<encoding_type> coded;
    std::int64_t counters = 0;
    for (std::int64_t i = 0; i < sources.size(); ++i) {
      encoding_type encoding = encoding_of(exec, sources[i]);
      if (encoding.spec.coder == weight_coder::stored) {
        exec.run(store_weights<value_type, table_coder_type>{encoding}, 1);
        continue;
      }
      encoding.counts = space[regions.counters].data + counters;
      encoding.tile_sums = encoding.counts + histogram_counts;
      encoding.table = space[regions.tables].data + i;
      encoding.slots = space[regions.slots].data;
      counters += counters_of(exec, encoding.spec);
      coded.push_back(encoding);
    }
    if (!coded.empty()) {
      exec.clear(space[regions.counters]);
      run(exec, encode_weights_call<Mantissa, value_type, table_coder_type>{{coded.data(), std::ssize(coded)}});
    }
  }

  /// Writes the stream of `weights` to `stream` and its size to stream_bytes[0].
  template <Executor Exec>
  static void encode(Exec const& exec, weight_stream_spec const& spec, array_view<value_type const> weights,
                     array_view<std::byte> stream, array_view<std::int64_t> stream_bytes, workspace const& space,
                     std::uint64_t seed = 0) {
    source const alone{spec, weights, stream, stream_bytes, seed};
    encode(exec, array_view<source const>(&alone, 1), space);
  }

  /// Enqueues the decoding of many streams, on a GPU in a few launches for all of them. exec.wait() reports a corrupt
  /// stream with the number of the first corrupt block; the weights of corrupt blocks become zeros.
  template <Executor Exec>
  static void decode(Exec const& exec, array_view<target const> targets, workspace const& space) {
    auto const regions = decode_regions(targets);
    space.check_room("compressed_weights.decode", regions.plan.bytes(), targets.size(), " streams");
    check_reach(exec, "compressed_weights.decode", "bytes of the workspace", space);
    std::vector<decoding_type> coded;
    for (std::int64_t i = 0; i < targets.size(); ++i) {
      decoding_type decoding = decoding_of(exec, targets[i]);
      if (decoding.spec.coder == weight_coder::stored) {
        exec.run(load_stored_weights<value_type, table_coder_type>{decoding}, 1);
        continue;
      }
      decoding.table = space[regions.tables].data + i;
      if (decoding.blocks > 0) {
        coded.push_back(decoding);
      }
    }
    if (!coded.empty()) {
      run(exec, decode_weights_call<Mantissa, value_type, table_coder_type>{{coded.data(), std::ssize(coded)}});
    }
  }

  /// Writes the weights of one stream.
  template <Executor Exec>
  static void decode(Exec const& exec, expected_weight_stream const& spec, array_view<std::byte const> stream,
                     array_view<value_type> weights, workspace const& space) {
    target const alone{spec, stream, weights};
    decode(exec, array_view<target const>(&alone, 1), space);
  }

  /// Writes the weights of `blocks` blocks from `first_block` on; `weights` begins with the first block's. The
  /// workspace is that for the whole stream. A tensor that is stored raw is also counted in blocks.
  template <Executor Exec>
  static void decode(Exec const& exec, expected_weight_stream const& spec, array_view<std::byte const> stream,
                     std::int64_t first_block, std::int64_t blocks, array_view<value_type> weights,
                     workspace const& space) {
    target const alone{spec, stream, weights, first_block, blocks};
    decode(exec, array_view<target const>(&alone, 1), space);
  }

  /// The stream of `weights`, of exactly the size needed, in the executor's memory. Allocates and waits.
  template <Executor Exec, class Weights = array_view<value_type const>>
  static buffer<std::byte> encode(Exec const& exec, Weights const& weights, weight_stream_options options = {}) {
    auto const list = detail::list_of_weights<value_type const>(exec, "compressed_weights.encode", weights);
    weight_stream_spec const layout = spec(list.size(), options);
    workspace_plan const plan = plan_encode(exec, layout);
    buffer<std::byte> memory(exec, plan.bytes());
    buffer<std::byte> room(exec, largest_bytes(layout));
    buffer<std::int64_t> bytes(exec, 1);
    encode(exec, layout, list, room, bytes, workspace(plan, memory));
    std::int64_t size = 0;
    exec.copy(bytes, array_view<std::int64_t>(&size, 1));
    exec.wait();
    buffer<std::byte> stream(exec, size);
    exec.copy(room.view().slice(0, 0, size), stream);
    exec.wait();
    return stream;
  }

  /// Decodes a stream that was encoded with any options. Allocates and waits. Throws corrupt_data.
  template <Executor Exec, class Weights = array_view<value_type>>
  static void decode(Exec const& exec, array_view<std::byte const> stream, Weights&& weights) {
    constexpr char const* where = "compressed_weights.decode";
    auto const list = detail::list_of_weights<value_type>(exec, where, std::forward<Weights>(weights));
    detail::check_stream(where, stream, 0);
    check_reach(exec, where, "bytes of the stream", stream);
    inspected_weight_stream const found = wait_for_header(exec, stream);
    workspace_plan const plan = plan_decode(exec, found);
    buffer<std::byte> memory(exec, plan.bytes());
    decode(exec, found, stream, list, workspace(plan, memory));
    exec.wait();
  }

 private:
  using encoding_type = weight_encoding<value_type, table_coder_type>;
  using decoding_type = weight_decoding<value_type, table_coder_type>;
  template <Executor Exec>
  using placement = placement_needs<Exec, value_type, Mantissa, table_coder_type>;

  static constexpr std::int64_t histogram_counts = 256;

  /// Reads the header of a stream, which need not be in host memory. Waits.
  template <Executor Exec>
  static inspected_weight_stream wait_for_header(Exec const& exec, array_view<std::byte const> stream) {
    std::byte header[sizeof(weight_stream_header)] = {};
    std::int64_t const bytes = min(stream.size(), static_cast<std::int64_t>(sizeof(header)));
    exec.copy(stream.slice(0, 0, bytes), array_view<std::byte>(header, bytes));
    exec.wait();
    return inspect_weight_stream(header, stream.size());
  }

  template <Executor Exec>
  static std::int64_t counters_of(Exec const& exec, weight_stream_spec const& spec) {
    return spec.coder == weight_coder::stored ? 0 : histogram_counts + placement<Exec>::tile_sums(exec, spec);
  }

  struct encode_workspace {
    workspace_plan plan{"compressed_weights.encode"};
    region<std::uint64_t> counters;
    region<typename table_coder_type::encode_table> tables;
    region<std::uint8_t> slots;
  };
  template <Executor Exec>
  static encode_workspace encode_regions(Exec const& exec, array_view<source const> sources) {
    encode_workspace regions;
    std::int64_t counters = 0;
    std::int64_t slots = 0;
    for (std::int64_t i = 0; i < sources.size(); ++i) {
      weight_stream_spec const& spec = sources[i].spec;
      check_spec("compressed_weights.encode", spec);
      counters = checked_add("compressed_weights.encode", counters, counters_of(exec, spec));
      // Where slots are needed, tensors are coded one after the other and share them.
      slots = max(slots, placement<Exec>::slots(exec, spec));
    }
    regions.counters = regions.plan.template add<std::uint64_t>("histograms and sums of tiles", counters);
    regions.tables =
        regions.plan.template add<typename table_coder_type::encode_table>("encode tables", sources.size());
    regions.slots = regions.plan.template add<std::uint8_t>("coded blocks", slots);
    return regions;
  }

  struct decode_workspace {
    workspace_plan plan{"compressed_weights.decode"};
    region<coder_decode_table<table_coder_type>> tables;
  };
  static decode_workspace decode_regions(array_view<target const> targets) {
    decode_workspace regions;
    for (std::int64_t i = 0; i < targets.size(); ++i) {
      check_spec("compressed_weights.decode", targets[i].spec.spec());
    }
    regions.tables = regions.plan.template add<coder_decode_table<table_coder_type>>("decode tables", targets.size());
    return regions;
  }

  template <Executor Exec>
  static encoding_type encoding_of(Exec const& exec, source const& from) {
    detail::check_weights("compressed_weights.encode", from.spec.count, from.weights);
    detail::check_stream("compressed_weights.encode", from.stream, from.spec.smallest_bytes());
    check<shape_error>(from.stream_bytes.size() >= 1, "compressed_weights.encode: stream_bytes has ",
                       from.stream_bytes.size(), " elements but must have ", 1);
    check_memory("compressed_weights.encode", "sizes of streams", from.stream_bytes);
    check_reach(exec, "compressed_weights.encode", "weights", from.weights, "bytes of the stream", from.stream,
                "sizes of streams", from.stream_bytes);
    encoding_type encoding;
    encoding.spec = from.spec;
    encoding.weights = from.weights.data;
    encoding.stream = reinterpret_cast<std::uint8_t*>(from.stream.data);
    encoding.capacity = from.stream.size();
    encoding.stream_bytes = from.stream_bytes.data;
    encoding.seed = from.seed;
    encoding.reports_full = from.reports_full;
    encoding.status = status_of(exec, {"compressed_weights.encode", "byte"});
    return encoding;
  }

  template <Executor Exec>
  static decoding_type decoding_of(Exec const& exec, target const& to) {
    weight_stream_spec const& spec = to.spec.spec();
    std::int64_t const there = divide_up(spec.count, spec.block_weights());
    bool const is_all = to.blocks == target::all_blocks && to.first_block >= 0 && to.first_block <= there;
    std::int64_t const blocks = is_all ? there - to.first_block : to.blocks;
    check<shape_error>(to.first_block >= 0 && blocks >= 0 && to.first_block <= there - blocks,
                       "compressed_weights.decode: blocks ", to.first_block, " and on, ", blocks,
                       " of them, but there are ", there);
    std::int64_t const first = to.first_block * spec.block_weights();
    std::int64_t const last = min(spec.count, first + blocks * spec.block_weights());
    detail::check_weights("compressed_weights.decode", max(last - first, std::int64_t{0}), to.weights);
    detail::check_stream("compressed_weights.decode", to.stream, to.spec.smallest_bytes());
    check_reach(exec, "compressed_weights.decode", "bytes of the stream", to.stream, "weights", to.weights);
    decoding_type decoding;
    decoding.spec = spec;
    decoding.stream = reinterpret_cast<std::uint8_t const*>(to.stream.data);
    decoding.stream_bytes = to.stream.size();
    decoding.first_block = to.first_block;
    decoding.blocks = blocks;
    decoding.weights = to.weights.data;
    decoding.is_inspected = to.spec.is_inspected();
    decoding.header_checksum = to.spec.header_checksum();
    decoding.status = status_of(exec, {"compressed_weights.decode", "block"});
    return decoding;
  }
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_COMPILES_CUDA)
#include <tessera/algorithm/weights/compressed_weights.cuh>
#endif
