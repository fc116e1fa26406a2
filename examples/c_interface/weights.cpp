// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>

#include <tessera/neuzip.hpp>

#include "errors.hpp"
#include "executors.hpp"
#include "tensors.hpp"
#include "tessera_c.h"

namespace tessera_c {
namespace {

constexpr tessera_weights_options default_options = TESSERA_WEIGHTS_OPTIONS_INIT;

/// Calls use(codec) with the codec that the options ask for.
template <class Use>
void with_codec(tessera_weights_options const& options, Use const& use) {
  with_float_type("weights", options.type, [&]<class T>(T) {
    constexpr int all = tessera::scalar_traits<T>::mantissa_bits;
    int const kept = options.mantissa_bits == -1 ? all : options.mantissa_bits;
    if (kept == all) {
      return use(tessera::neuzip_of<T>{});
    }
    if constexpr (type_of<T> == TESSERA_BF16) {
      if (kept == 3) {  // each codec takes seconds to compile: 0 and 1 would be neuzip_lossy<0> and neuzip_lossy<1>
        return use(tessera::neuzip_lossy<3>{});
      }
    }
    require(false, TESSERA_NOT_BUILT, "weights of type ", type_name(options.type), " keep ", options.mantissa_bits,
            " mantissa bits but this library has codecs for ", all, " (-1)",
            type_of<T> == TESSERA_BF16 ? " and 3" : "");
  });
}

/// Calls use(codec, spec) with the layout of a stream of so many weights, too.
template <class Use>
void with_spec(tessera_weights_options const* given, std::int64_t count, Use const& use) {
  tessera_weights_options const options = known_part(given, "options", default_options);
  require(options.checksums == 0 || options.checksums == 1, TESSERA_VALUE_ERROR, "checksums is ", options.checksums,
          " but must be 0 or 1");
  with_codec(options, [&]<class Codec>(Codec) {
    use(Codec{}, Codec::spec(count, {.block = options.block,
                                     .checksums = options.checksums == 1,
                                     .normalizer_block = options.normalizer_block}));
  });
}

/// The elements of weights, which lie one behind the other.
template <class T>
tessera::array_view<T> list_of(tessera_tensor const& weights) {
  require(weights.rank >= 1, TESSERA_WRONG_TYPE, "the weights have ", weights.rank,
          " dimensions but must have at least ", 1);
  tessera_tensor flat = weights;
  std::int64_t const count = count_of("weights", weights);
  std::int64_t expected = 1;
  for (int i = weights.rank - 1; i >= 0 && count > 0; --i) {
    require(weights.extents[i] < 2 || weights.strides[i] == expected, TESSERA_SHAPE_ERROR, "dimension ", i,
            " of the weights has a stride of ", weights.strides[i], " but must have ", expected);
    expected *= weights.extents[i];
  }
  flat.rank = 1;
  flat.extents[0] = count;
  flat.strides[0] = 1;
  return view_of<T, 1>("weights", flat);
}

}  // namespace
}  // namespace tessera_c

using namespace tessera_c;

tessera_status tessera_weights_largest_bytes(tessera_weights_options const* options, std::int64_t count,
                                             std::size_t* bytes) {
  return guarded("tessera_weights_largest_bytes", [&] {
    with_spec(options, count,
              [&]<class Codec>(Codec, auto const& spec) { set_bytes(bytes, Codec::largest_bytes(spec)); });
  });
}

tessera_status tessera_weights_encode_workspace(tessera_executor const* executor,
                                                tessera_weights_options const* options, std::int64_t count,
                                                std::size_t* bytes) {
  return guarded("tessera_weights_encode_workspace", [&] {
    with_executor(executor, [&](auto const& exec) {
      with_spec(options, count, [&]<class Codec>(Codec, auto const& spec) {
        set_bytes(bytes, Codec::plan_encode(exec, spec).bytes());
      });
    });
  });
}

tessera_status tessera_weights_encode(tessera_executor const* executor, tessera_weights_options const* options,
                                      tessera_tensor const* weights, tessera_memory stream, std::int64_t* stream_bytes,
                                      tessera_memory workspace) {
  return guarded("tessera_weights_encode", [&] {
    require_given(weights, "weights");
    require_given(stream_bytes, "stream_bytes");
    auto const beyond = reinterpret_cast<std::uintptr_t>(stream_bytes) % sizeof(*stream_bytes);
    require(beyond == 0, TESSERA_VALUE_ERROR, "stream_bytes is ", beyond, " bytes past a multiple of ",
            sizeof(*stream_bytes));
    with_executor(executor, [&](auto const& exec) {
      with_spec(options, count_of("weights", *weights), [&]<class Codec>(Codec, auto const& spec) {
        auto const list = list_of<typename Codec::value_type const>(*weights);
        Codec::encode(exec, spec, list, bytes_of("stream", stream), {stream_bytes, 1},
                      workspace_in(Codec::plan_encode(exec, spec), workspace));
      });
    });
  });
}

tessera_status tessera_weights_inspect(tessera_memory stream, tessera_weights_options* options, std::int64_t* count,
                                       std::int64_t* stream_bytes) {
  return guarded("tessera_weights_inspect", [&] {
    require_given(options, "options");
    require_given(count, "count");
    require_given(stream_bytes, "stream_bytes");
    auto const bytes = bytes_of("stream", stream);
    auto const found = tessera::inspect_weight_stream(bytes.data, bytes.size());
    tessera::weight_stream_spec const& spec = found.spec();
    static_cast<void>(known_part(options, "options"));
    tessera_weights_options made = default_options;
    made.type = spec.type == tessera::weight_type::bf16   ? TESSERA_BF16
                : spec.type == tessera::weight_type::fp16 ? TESSERA_F16
                                                          : TESSERA_F32;
    require(spec.type == tessera::weight_type::bf16 || spec.type == tessera::weight_type::fp16 ||
                spec.type == tessera::weight_type::fp32,
            TESSERA_NOT_BUILT, "the stream holds weights of type ", static_cast<int>(spec.type),
            " but this library has codecs for 0 (bf16), 1 (fp16) and 2 (fp32)");
    made.mantissa_bits = spec.mantissa_kept;
    made.block = 1 << spec.log2_block;
    made.checksums = spec.block_checksums ? 1 : 0;
    made.normalizer_block = spec.log2_normalizer_block == 0 ? 0 : 1 << spec.log2_normalizer_block;
    with_spec(&made, spec.count, [&]<class Codec>(Codec, auto const& own) {
      Codec::check_spec("weights", spec);
      require(own.coder == spec.coder, TESSERA_CORRUPT_DATA, "the stream has coder ", static_cast<int>(spec.coder),
              " but a stream of ", spec.count, " such weights has coder ", static_cast<int>(own.coder));
    });
    *options = made;
    *count = spec.count;
    *stream_bytes = found.bytes();
  });
}

tessera_status tessera_weights_decode_workspace(tessera_executor const* executor,
                                                tessera_weights_options const* options, std::int64_t count,
                                                std::size_t* bytes) {
  return guarded("tessera_weights_decode_workspace", [&] {
    with_executor(executor, [&](auto const& exec) {
      with_spec(options, count, [&]<class Codec>(Codec, auto const& spec) {
        set_bytes(bytes, Codec::plan_decode(exec, spec).bytes());
      });
    });
  });
}

tessera_status tessera_weights_decode(tessera_executor const* executor, tessera_weights_options const* options,
                                      tessera_memory stream, tessera_tensor const* weights, tessera_memory workspace) {
  return guarded("tessera_weights_decode", [&] {
    require_given(weights, "weights");
    with_executor(executor, [&](auto const& exec) {
      with_spec(options, count_of("weights", *weights), [&]<class Codec>(Codec, auto const& spec) {
        auto const list = list_of<typename Codec::value_type>(*weights);
        Codec::decode(exec, spec, bytes_of("stream", stream), list,
                      workspace_in(Codec::plan_decode(exec, spec), workspace));
      });
    });
  });
}
