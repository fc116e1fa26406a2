// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The GPU as a weight_engine: copies weights there, runs the same codec, and copies the result back.
#include <cuda_runtime_api.h>

#include <tessera/exec/cuda.cuh>

#include "../support/weight_engine.hpp"

namespace tessera_examples {
namespace {

class cuda_engine final : public weight_engine {
 public:
  [[nodiscard]] char const* name() const override { return "cuda"; }
  [[nodiscard]] bool supports(codec_choice const& choice) const override { return choice.is_lossless(); }

  std::span<std::byte const> encode(codec_choice const& choice, std::span<std::byte const> weights) override;
  void decode(tessera::inspected_weight_stream const& found, std::span<std::byte const> stream,
              std::span<std::byte> weights) override;

 private:
  template <class Codec>
  void encode_with(std::span<std::byte const> bytes);
  template <class Codec>
  void decode_with(tessera::inspected_weight_stream const& found, std::span<std::byte const> stream,
                   std::span<std::byte> weights);

  tessera::cuda exec_;
  tessera::buffer<std::byte> stream_;  // on the host
};

template <class T>
tessera::array_view<std::byte const> bytes_of(T const* first, std::int64_t bytes) {
  return {reinterpret_cast<std::byte const*>(first), bytes};
}

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

template <class Codec>
void cuda_engine::decode_with(tessera::inspected_weight_stream const& found, std::span<std::byte const> stream,
                              std::span<std::byte> out) {
  using value_type = typename Codec::value_type;
  tessera::workspace_plan const plan = Codec::plan_decode(exec_, found);
  tessera::buffer<std::byte> memory(exec_, plan.bytes());
  tessera::buffer<std::byte> there(exec_, static_cast<std::int64_t>(stream.size()));
  tessera::buffer<value_type> weights(exec_, found.spec().count);
  exec_.copy(bytes_of(stream.data(), there.size()), there);
  Codec::decode(exec_, found, tessera::array_view<std::byte const>(there.data(), there.size()), weights.view(),
                tessera::workspace(plan, memory));
  exec_.copy(bytes_of(weights.data(), static_cast<std::int64_t>(weights.bytes())),
             tessera::array_view<std::byte>(out.data(), static_cast<std::int64_t>(out.size())));
  exec_.wait();
}

std::span<std::byte const> cuda_engine::encode(codec_choice const& choice, std::span<std::byte const> weights) {
  with_lossless_codec(choice.type, [&]<class Codec>(std::type_identity<Codec>) { encode_with<Codec>(weights); });
  return {stream_.data(), stream_.bytes()};
}

void cuda_engine::decode(tessera::inspected_weight_stream const& found, std::span<std::byte const> stream,
                         std::span<std::byte> weights) {
  tessera::weight_stream_spec const& spec = found.spec();
  tessera::check<tessera::value_error>(spec.coder != tessera::weight_coder::fixed_codes,
                                       "compress_weights: the stream has coder ", static_cast<int>(spec.coder),
                                       " but this program reads coder ",
                                       static_cast<int>(tessera::weight_coder::rans_pairs));
  with_lossless_codec(spec.type,
                      [&]<class Codec>(std::type_identity<Codec>) { decode_with<Codec>(found, stream, weights); });
}

}  // namespace

std::unique_ptr<weight_engine> make_cuda_engine(std::string& why_not) {
  int count = 0;
  cudaError_t const found = cudaGetDeviceCount(&count);
  if (found != cudaSuccess || count == 0) {
    why_not = found != cudaSuccess ? cudaGetErrorString(found) : "the driver reports no device";
    return nullptr;
  }
  try {
    return std::make_unique<cuda_engine>();
  } catch (tessera::device_error const& error) {
    why_not = error.what();
    return nullptr;
  }
}

}  // namespace tessera_examples
