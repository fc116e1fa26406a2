// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// WeightCoder: the entropy coders that compressed_weights takes, and the numbers by which streams name them.
///
///     static_assert(tessera::WeightCoder<tessera::tans_coder>);
///     tessera::weight_coder_of<tessera::tans_coder>;             // weight_coder::tans_exponents
///
/// Streams of rans_coder<12> and fixed_coder hold pairs of 4-bit codes, for which every executor has special programs.
/// Every other coder, including a user's, is a StreamCoder of whole exponents, and runs in the portable programs. A
/// user's coder has a number from 128 to 255.
#pragma once

#include <type_traits>

#include <tessera/concepts/entropy_coder.hpp>
#include <tessera/concepts/stream_coder.hpp>
#include <tessera/core/because.hpp>
#include <tessera/entropy/fixed_coder.hpp>
#include <tessera/entropy/rans_coder.hpp>
#include <tessera/entropy/tans_coder.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/program/weights/codebook.hpp>

namespace tessera {
inline namespace v0 {

/// Whether a coder's streams hold pairs of 4-bit codes; else they hold whole exponents.
template <class Coder>
inline constexpr bool codes_exponent_pairs = std::is_same_v<Coder, pair_coder> || std::is_same_v<Coder, fixed_coder>;

namespace detail {

/// The StreamCoder that a coder must be, or one of the library's in the place of a coder that need not be any. An "or"
/// in the concept would keep the compiler from saying what a user's coder lacks.
template <class Coder>
using needed_stream_coder = std::conditional_t<codes_exponent_pairs<Coder>, tans_coder, Coder>;

/// Whether the number of a StreamCoder is in the users' range, or in the library's and the coder is the library's.
template <class Coder>
inline constexpr bool has_own_number = Coder::stream_id >= first_user_coder || std::is_same_v<Coder, tans_coder>;

}  // namespace detail

// clang-format off
/// A coder of weights: an EntropyCoder that streams can name.
template <class Coder>
concept WeightCoder = EntropyCoder<Coder> &&
    StreamCoder<detail::needed_stream_coder<Coder>> &&
    (requires { requires detail::has_own_number<detail::needed_stream_coder<Coder>>; }
     || because<"the stream_id of a user's coder is from 128 to 255; lower numbers are those of the library's coders">);
// clang-format on

/// The number by which streams name a coder.
template <WeightCoder Coder>
inline constexpr weight_coder weight_coder_of = static_cast<weight_coder>(Coder::stream_id);
/// The number of rANS over pairs of codes.
template <>
inline constexpr weight_coder weight_coder_of<pair_coder> = weight_coder::rans_pairs;
/// The number of codes of four bits.
template <>
inline constexpr weight_coder weight_coder_of<fixed_coder> = weight_coder::fixed_codes;
static_assert(weight_coder_of<tans_coder> == weight_coder::tans_exponents);

/// The coder whose tables the programs for a coder's streams use.
template <WeightCoder Coder>
using table_coder = std::conditional_t<codes_exponent_pairs<Coder>, pair_coder, Coder>;

}  // namespace v0
}  // namespace tessera
