// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// PageCodec: how the keys and values of a page of a compressed cache are coded and read.
///
/// A page has 64 tokens of a key head. A codec says how many bytes it takes, makes the program that writes pages, and
/// makes the reader that attention and restoring use. Headers of pages, retained tokens, the uncompressed tail and
/// block tables belong to the cache (algorithm/paged_cache/cross_layer_cache.hpp).
///
///     tessera::quantized_codec<tessera::asymmetric_quantizer<2, 32>> const codec;
///     tessera::cache_page_format const format{128, 2, 2, 4, 1};            // 128 channels, groups of 32, one layer
///     codec.fault(format).is_none();                                       // whether it can make such pages
///     auto const page = codec.reader(format, bytes, 0);                    // bytes: std::byte const*, a page
///     float const near = page.key(5, 17);                                  // token 5 of the page, channel 17
///
/// Models: direction_codec, quantized_codec.
///
/// Laws:
///   1. page_bytes() is a positive multiple of 32 and the total of counts().
///   2. key() and value() read what the writer coded; score() is the product of a query and key(), and add() adds
///      a multiple of value(), both up to the rounding of sums.
///   3. The vector of a token with an element that is not finite is read as NaNs, unless the token is retained.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/concepts/program.hpp>
#include <tessera/core/because.hpp>
#include <tessera/core/bfloat16.hpp>

namespace tessera {
inline namespace v0 {

// Declared here, since concepts include no programs: program/paged_cache/page_format.hpp and
// program/paged_cache/measure_pages.hpp define them.
struct cache_page_format;
template <class T>
struct pages_to_write;

/// What reads the page of a head, for a layer, by a PageCodec.
template <class C>
using page_reader_t = std::remove_cvref_t<decltype(std::declval<C const&>().reader(
    std::declval<cache_page_format const&>(), std::declval<std::byte const*>(), 0))>;

/// The program by which a PageCodec writes pages of keys and values of type T and at most so many channels.
template <class C, class T, int Channels>
using page_writer_t = std::remove_cvref_t<decltype(std::declval<C const&>().template writer<Channels>(
    std::declval<pages_to_write<T> const&>()))>;

/// The codec whose portable programs a PageCodec uses: codecs that differ only in numbers that formats of pages hold
/// share one.
template <class C>
using shared_codec_t = std::remove_cvref_t<decltype(std::declval<C const&>().shared())>;

namespace detail {

/// A function of codecs that stands for those of an executor where PageCodec is checked.
struct takes_no_codec {
  template <class C>
  constexpr bool operator()(C const&) const {
    return false;
  }
};

}  // namespace detail

// clang-format off
template <class C>
concept PageCodec =
    (std::is_trivially_copyable_v<C>
        || because<"a PageCodec is trivially copyable: it travels with programs">) &&
    (requires { requires (C::most_layers == 1 || C::most_layers == 2); }
        || because<"a PageCodec says how many layers share a page: static constexpr int most_layers = 1, or 2">) &&
    (requires { requires (C::key_bits >= 1); requires (C::value_bits >= 1); requires (C::value_group >= 1); }
        || because<"a PageCodec has the numbers that layers are kept by: "
                   "static constexpr int key_bits, value_bits and value_group, the channels of a value in a group">) &&
    (requires { requires std::same_as<decltype(C::has_page_format), bool const>; }
        || because<"a PageCodec says whether its bytes are those of program/paged_cache/page_format.hpp: "
                   "static constexpr bool has_page_format">) &&
    ((!C::has_page_format) || (requires {
       requires std::same_as<decltype(C::any_codec(detail::takes_no_codec{})), bool>;
     }) || because<"a PageCodec with has_page_format names the direction_codecs whose kernels read its bytes: "
                   "template <class Use> static constexpr bool any_codec(Use const&)">) &&
    (requires(C const& c, cache_page_format const& f) { requires std::same_as<decltype(c.fault(f).is_none()), bool>; }
        || because<"a PageCodec has fault(): page_format_fault fault(cache_page_format const&) const">) &&
    (requires(C const& c, cache_page_format const& f) {
       requires std::same_as<decltype(c.page_bytes(f)), int>;
       requires std::same_as<decltype(c.counts(f).total()), std::int64_t>;
     } || because<"a PageCodec counts bytes: int page_bytes(cache_page_format const&) const "
                  "and page_byte_counts counts(cache_page_format const&) const">) &&
    (requires(page_reader_t<C> const& r, float const* query, float sum) {
       requires std::same_as<decltype(r.is_retained(0)), bool>;
       requires std::same_as<decltype(r.row_of(0)), std::int64_t>;
       requires std::same_as<decltype(r.key(0, 0)), float>;
       requires std::same_as<decltype(r.value(0, 0)), float>;
       requires std::same_as<decltype(r.key_scale(0)), float>;
       requires std::same_as<decltype(r.key_minimum(0)), float>;
       requires std::same_as<decltype(r.score(0, query, query, sum)), float>;
       requires std::same_as<decltype(r.add(sum, sum, 0, 0)), float>;
     } || because<"a PageCodec has reader(format, page, layer) const, with is_retained(token), row_of(token), "
                  "key(token, channel), value(token, channel), key_scale(channel), key_minimum(channel), "
                  "score(token, query, query times key scales, query times key minima) "
                  "and add(sum, weight, token, channel)">) &&
    (requires {
       requires ProgramOn<page_writer_t<C, bfloat16, 128>,
                          detail::group_archetype<page_writer_t<C, bfloat16, 128>::lanes>>;
     } || because<"a PageCodec has writer(): a Program, template <int Channels, class T> "
                  "auto writer(pages_to_write<T> const&) const">) &&
    (requires { requires std::is_trivially_copyable_v<shared_codec_t<C>>; }
        || because<"a PageCodec has shared() const: the codec whose programs it uses, usually *this">);
// clang-format on

}  // namespace v0
}  // namespace tessera
