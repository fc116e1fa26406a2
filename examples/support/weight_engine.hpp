// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The NeuZip codec for a piece of a tensor, and engines that run it: CPU threads or a GPU, with the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/neuzip.hpp>

#include "failure.hpp"

namespace tessera_examples {

/// The choices that decide a stream's bytes, apart from the weights.
struct codec_choice {
  tessera::weight_type type = tessera::weight_type::bf16;
  int mantissa_kept = 7;
  int normalizer_block = 0;

  [[nodiscard]] bool is_lossless() const {
    return mantissa_kept == tessera::weight_type_traits::of(type).mantissa_bits;
  }
};

/// The element type by which NeuZip codes a dtype of safetensors, if it codes it.
inline std::optional<tessera::weight_type> weight_type_of_dtype(std::string_view dtype) {
  using tessera::weight_type;
  if (dtype == "BF16") {
    return weight_type::bf16;
  }
  if (dtype == "F16") {
    return weight_type::fp16;
  }
  if (dtype == "F32") {
    return weight_type::fp32;
  }
  if (dtype == "F8_E4M3") {
    return weight_type::fp8_e4m3;
  }
  if (dtype == "F8_E5M2") {
    return weight_type::fp8_e5m2;
  }
  return std::nullopt;
}

inline codec_choice lossless_choice(tessera::weight_type type) {
  return {type, tessera::weight_type_traits::of(type).mantissa_bits, 0};
}

namespace detail {

template <class T, class Use>
void with_lossy_codec(int mantissa_kept, Use&& use) {
  switch (mantissa_kept) {
    case 0:
      return use(std::type_identity<tessera::neuzip_lossy<0, T>>{});
    case 1:
      return use(std::type_identity<tessera::neuzip_lossy<1, T>>{});
    case 3:
      return use(std::type_identity<tessera::neuzip_lossy<3, T>>{});
    default:
      throw failure(exit_code::unsound, tessera::join("this program has no codec that keeps ", mantissa_kept,
                                                      " mantissa bits of ", tessera::scalar_traits<T>::name()));
  }
}

}  // namespace detail

/// Calls use(std::type_identity<codec>) with the lossless codec of a type.
template <class Use>
void with_lossless_codec(tessera::weight_type type, Use&& use) {
  using tessera::weight_type;
  switch (type) {
    case weight_type::bf16:
      return use(std::type_identity<tessera::neuzip_of<tessera::bfloat16>>{});
    case weight_type::fp16:
      return use(std::type_identity<tessera::neuzip_of<tessera::float16>>{});
    case weight_type::fp32:
      return use(std::type_identity<tessera::neuzip_of<float>>{});
    case weight_type::fp8_e4m3:
      return use(std::type_identity<tessera::neuzip_of<tessera::float8_e4m3>>{});
    case weight_type::fp8_e5m2:
      return use(std::type_identity<tessera::neuzip_of<tessera::float8_e5m2>>{});
  }
}

/// Calls use(std::type_identity<codec>) with the codec of a choice, lossless or lossy. Throws for choices for which
/// this program has no codec.
template <class Use>
void with_codec(codec_choice const& choice, Use&& use) {
  using tessera::weight_type;
  if (choice.is_lossless()) {
    return with_lossless_codec(choice.type, use);
  }
  switch (choice.type) {
    case weight_type::bf16:
      return detail::with_lossy_codec<tessera::bfloat16>(choice.mantissa_kept, use);
    case weight_type::fp16:
      return detail::with_lossy_codec<tessera::float16>(choice.mantissa_kept, use);
    case weight_type::fp32:
      return detail::with_lossy_codec<float>(choice.mantissa_kept, use);
    default:
      throw failure(exit_code::unsound, tessera::join("this program has no codec that keeps ", choice.mantissa_kept,
                                                      " mantissa bits of fp8"));
  }
}

/// Bytes, aligned for T, as elements of T.
template <class T>
tessera::array_view<T const> as_weights(std::span<std::byte const> bytes) {
  return {reinterpret_cast<T const*>(bytes.data()), static_cast<std::int64_t>(bytes.size() / sizeof(T))};
}

class weight_engine {
 public:
  virtual ~weight_engine() = default;
  [[nodiscard]] virtual char const* name() const = 0;
  [[nodiscard]] virtual bool supports(codec_choice const& choice) const = 0;
  /// The stream of the weights, which lie in memory that is aligned for their type. It is valid until the next call.
  virtual std::span<std::byte const> encode(codec_choice const& choice, std::span<std::byte const> weights) = 0;
  /// Decodes a stream that starts at a multiple of 16 bytes into memory that is aligned for its type. `found` is the
  /// result of inspect_weight_stream for it. Throws corrupt_data.
  virtual void decode(tessera::inspected_weight_stream const& found, std::span<std::byte const> stream,
                      std::span<std::byte> weights) = 0;
};

inline codec_choice choice_of(tessera::weight_stream_spec const& spec) {
  return {spec.type, spec.mantissa_kept, spec.log2_normalizer_block == 0 ? 0 : 1 << spec.log2_normalizer_block};
}

/// An engine of `threads` CPU threads; 0 means all.
class cpu_engine final : public weight_engine {
 public:
  explicit cpu_engine(int threads) : exec_{.threads = threads} {}

  [[nodiscard]] char const* name() const override { return "cpu"; }
  [[nodiscard]] bool supports(codec_choice const&) const override { return true; }

  std::span<std::byte const> encode(codec_choice const& choice, std::span<std::byte const> weights) override {
    with_codec(choice, [&, this]<class Codec>(std::type_identity<Codec>) {
      using value_type = typename Codec::value_type;
      stream_ = {};  // frees the old memory first, so that both are never there at once
      stream_ = Codec::encode(exec_, as_weights<value_type>(weights),
                              {.checksums = true, .normalizer_block = choice.normalizer_block});
    });
    return {stream_.data(), stream_.bytes()};
  }

  void decode(tessera::inspected_weight_stream const& found, std::span<std::byte const> stream,
              std::span<std::byte> weights) override {
    with_codec(choice_of(found), [&, this]<class Codec>(std::type_identity<Codec>) {
      using value_type = typename Codec::value_type;
      Codec::decode(exec_,
                    tessera::array_view<std::byte const>(stream.data(), static_cast<std::int64_t>(stream.size())),
                    tessera::array_view<value_type>(reinterpret_cast<value_type*>(weights.data()),
                                                    static_cast<std::int64_t>(weights.size() / sizeof(value_type))));
    });
  }

 private:
  tessera::cpu exec_;
  tessera::buffer<std::byte> stream_;
};

/// The engine of a GPU, or null (with the reason in `why_not`) where there is none. It has lossless codecs only.
std::unique_ptr<weight_engine> make_cuda_engine(std::string& why_not);

}  // namespace tessera_examples
