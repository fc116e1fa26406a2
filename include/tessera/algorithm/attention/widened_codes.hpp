// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `widened_method`: the method in bytes that an executor's programs run in place of one whose codes lie two to a byte,
/// where they multiply bytes; and the memory that its codes take.
///
///     using pairs = attention_method<smoothed<two_to_a_byte<symmetric_quantizer<4, per_thread>>>, PV, Softmax>;
///     using bytes = widened_method<pairs>;     // smoothed<in_high_bits<symmetric_quantizer<4, per_thread>>>
///
/// sm_90 has no product of 4-bit integers. Results have the bits of the method in pairs in the portable programs
/// (quantize/in_high_bits.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/algorithm/attention/attention_types.hpp>
#include <tessera/algorithm/attention/quantized_regions.hpp>
#include <tessera/concepts/executor.hpp>
#include <tessera/config.hpp>
#include <tessera/program/attention/detail/widen_heads.hpp>
#include <tessera/program/attention/quantized_forward.hpp>
#include <tessera/quantize/in_high_bits.hpp>
#include <tessera/quantize/smoothed.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

template <class Q>
struct widened_quantizer_of {
  using type = Q;
};
template <class Q>
struct widened_quantizer_of<two_to_a_byte<Q>> {
  using type = in_high_bits<Q>;
};
template <class Q, class Mean>
struct widened_quantizer_of<smoothed<Q, Mean>> {
  using type = smoothed<typename widened_quantizer_of<Q>::type, Mean>;
};

}  // namespace detail

/// The quantizer that makes a byte of each code of a quantizer that stores two to a byte; other quantizers as they are.
template <class Q>
using widened_quantizer = typename detail::widened_quantizer_of<Q>::type;

/// A method with widened codes of queries and keys.
template <class Method>
using widened_method = attention_method<widened_quantizer<typename Method::score_quantizer>,
                                        typename Method::value_quantizer, typename Method::softmax>;

/// Whether a method's codes of queries and keys lie two to a byte.
template <class Method>
inline constexpr bool has_pairs = codes_in<typename Method::score_code> == 2;

/// Whether programs that an executor may have run a method after its codes were widened.
template <Executor Exec, class Method>
inline constexpr bool may_widen = false;

/// The memory of widened codes and their scales: those of queries, then those of keys. Bytes are those of
/// widened_codes::bytes().
template <class Method>
struct widened_codes {
  attention_shape shape;  ///< extents of the operands

  /// Padded queries of all heads.
  [[nodiscard]] std::int64_t query_rows() const {
    return shape.batch * shape.query_heads * padded_tokens(shape.queries);
  }
  /// Padded keys of all heads.
  [[nodiscard]] std::int64_t key_rows() const { return shape.batch * shape.key_heads * padded_tokens(shape.keys); }
  /// Scales of all query heads.
  [[nodiscard]] std::int64_t query_scales() const { return Method::query_groups::count(query_rows()); }
  /// Scales of all key heads.
  [[nodiscard]] std::int64_t key_scales() const { return Method::key_groups::count(key_rows()); }
  /// How many bytes there are; the extents are those of a plan, whose products do not overflow.
  [[nodiscard]] std::int64_t bytes() const {
    return (query_rows() + key_rows()) * shape.channels +
           (query_scales() + key_scales()) * static_cast<std::int64_t>(sizeof(float));
  }

  /// The operands with widened codes in `memory`, which begins at a multiple of 16 bytes.
  [[nodiscard]] quantized_heads<widened_method<Method>> operands(quantized_heads<Method> const& of,
                                                                 array_view<std::byte> memory) const {
    attention_shape const& s = shape;
    auto* const query_codes = reinterpret_cast<std::int8_t*>(memory.data);
    std::int8_t* const key_codes = query_codes + query_rows() * s.channels;
    auto* const scales = reinterpret_cast<float*>(key_codes + key_rows() * s.channels);
    quantized_heads<widened_method<Method>> to{};
    to.queries.codes = {query_codes, {s.batch, s.query_heads, padded_tokens(s.queries), s.channels}};
    to.queries.scales = {scales,
                         {of.queries.scales.extent(0), of.queries.scales.extent(1), of.queries.scales.extent(2)}};
    to.queries.mean_scores = of.queries.mean_scores;
    to.queries.corrections = of.queries.corrections;
    to.queries.correction_ranges = of.queries.correction_ranges;
    to.keys.codes = {key_codes, {s.batch, s.key_heads, padded_tokens(s.keys), s.channels}};
    to.keys.scales = {scales + query_scales(),
                      {of.keys.scales.extent(0), of.keys.scales.extent(1), of.keys.scales.extent(2)}};
    to.keys.mean = of.keys.mean;
    to.values = of.values;
    return to;
  }
  /// The program that widens codes into the operands that operands() gives.
  [[nodiscard]] widen_heads program(quantized_heads<Method> const& from,
                                    quantized_heads<widened_method<Method>> const& to) const {
    return {list_of(from.queries, to.queries, query_rows(), query_scales()),
            list_of(from.keys, to.keys, key_rows(), key_scales())};
  }

 private:
  template <class From, class To>
  widen_heads::list list_of(From const& from, To const& to, std::int64_t rows, std::int64_t scales) const {
    using piece = widen_heads::piece;
    constexpr auto pairs = static_cast<std::int64_t>(sizeof(piece));
    return {reinterpret_cast<piece const*>(from.codes.data),
            reinterpret_cast<piece*>(to.codes.data),
            rows * shape.channels / 2 / pairs,
            from.scales.data,
            to.scales.data,
            scales};
  }
};

}  // namespace v0
}  // namespace tessera
