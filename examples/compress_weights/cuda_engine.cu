// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Which GPU there is, and how it decodes.
#include <cuda_runtime_api.h>

#include "cuda_engine.cuh"

namespace tessera_examples {

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
