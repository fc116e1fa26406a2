// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How the GPU encodes.
#include "cuda_engine.cuh"

namespace tessera_examples {

template <class Codec>
void cuda_engine::encode_with(std::span<std::byte const> bytes) {
  using value_type = typename Codec::value_type;
  auto const count = static_cast<std::int64_t>(bytes.size() / sizeof(value_type));
  tessera::weight_stream_spec const spec = Codec::spec(count, {.checksums = true});
  tessera::workspace_plan const plan = Codec::plan_encode(exec_, spec);
  tessera::buffer<std::byte> memory(exec_, plan.bytes());
  tessera::buffer<value_type> weights(exec_, count);
  tessera::buffer<std::byte> stream(exec_, Codec::largest_bytes(spec));
  tessera::buffer<std::int64_t> size(exec_, 1);
  exec_.copy(bytes_of(bytes.data(), static_cast<std::int64_t>(bytes.size())),
             tessera::array_view<std::byte>(reinterpret_cast<std::byte*>(weights.data()),
                                            static_cast<std::int64_t>(weights.bytes())));
  Codec::encode(exec_, spec, weights.view(), stream.view(), size.view(), tessera::workspace(plan, memory));
  std::int64_t stream_bytes = 0;
  exec_.copy(size, tessera::array_view<std::int64_t>(&stream_bytes, 1));
  exec_.wait();
  stream_ = tessera::buffer<std::byte>(stream_bytes);
  exec_.copy(bytes_of(stream.data(), stream_bytes), stream_);
  exec_.wait();
}

std::span<std::byte const> cuda_engine::encode(codec_choice const& choice, std::span<std::byte const> weights) {
  with_lossless_codec(choice.type, [&]<class Codec>(std::type_identity<Codec>) { encode_with<Codec>(weights); });
  return {stream_.data(), stream_.bytes()};
}

}  // namespace tessera_examples
