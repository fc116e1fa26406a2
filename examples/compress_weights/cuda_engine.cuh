// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The GPU as a weight_engine: copies weights there, runs the same codec, and copies the result back. Encoders and
/// decoders of all precisions are compiled apart, side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <tessera/exec/cuda.cuh>

#include "../support/weight_engine.hpp"

namespace tessera_examples {

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

}  // namespace tessera_examples
