// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// StreamCoder: an EntropyCoder of exponents that streams of compressed weights can carry.
///
/// A stream has a codebook, from which decoders make their table, and blocks of 32 lanes that share one list of words.
/// Beyond pushing and popping, a StreamCoder says which number names it in streams, how its model is made from counts
/// of symbols, which bytes of the codebook hold the model, and which 32-bit numbers are states of a lane.
///
///     static constexpr std::uint8_t stream_id = 200;              // 128 to 255 are for the coders of users
///     static constexpr int codebook_bytes = 512;                  // up to 16,320
///     C::fit_model(counts, model);                                // counts: of 256 symbols, together below 2^47
///     C::store_model(model, bytes);                               // writes codebook_bytes bytes
///     bool const is_sound = C::load_model(bytes, model);          // false: no encoder wrote these bytes
///     C::make_encode_table(model, table);                         // in place, for devices with small stacks
///     if (C::can_code(table, symbol)) { C::push(state, symbol, table); }
///     if (C::is_state(number)) { typename C::decode_state reader(number); }
///
/// Decoders are given any bytes. pop and feed must therefore stay inside their table for every decode_state that was
/// made from any 32-bit number, with the table of every model that load_model accepts.
///
/// Laws, checked by `tessera::testing::check_stream_laws<C>(counts)`:
///   1. The laws of an EntropyCoder hold for all symbols that can be coded.
///   2. A reader wants a word after a pop exactly if the push of that symbol spilled one, and never two: lanes that
///      share a list of words find theirs by this.
///   3. The model that is fitted to counts can code the most frequent symbol. Symbols that it cannot code are listed in
///      the stream one by one, 32 bits each.
///   4. load_model reads what store_model wrote, and both models give the same codes. Equal counts make equal bytes
///      on every executor.
///   5. is_state holds for start() and for the state after every push.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <tessera/concepts/entropy_coder.hpp>
#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

// clang-format off
template <class C>
concept StreamCoder = EntropyCoder<C> &&
    (requires { requires std::is_same_v<decltype(C::stream_id), std::uint8_t const>; }
     || because<"a StreamCoder has the number that streams know it by: static constexpr std::uint8_t stream_id = ...; "
                "128 to 255 are for the coders of users">) &&
    (requires(std::uint32_t number) {
       requires std::is_same_v<typename C::encode_state, std::uint32_t>;
       requires std::is_same_v<decltype(C::is_state(number)), bool>;
     } || because<"a StreamCoder has 32-bit lanes: using encode_state = std::uint32_t; "
                "static bool is_state(std::uint32_t)">) &&
    (requires(std::uint64_t const* counts, typename C::model_type& model) {
       C::fit_model(counts, model);
     } || because<"a StreamCoder makes its model from 256 counts of symbols: "
                  "static void fit_model(std::uint64_t const* counts, model_type&)">) &&
    (requires(typename C::model_type& model, std::uint8_t* bytes, std::uint8_t const* stored) {
       requires C::codebook_bytes >= 0 && C::codebook_bytes <= 16320;
       C::store_model(model, bytes);
       requires std::is_same_v<decltype(C::load_model(stored, model)), bool>;
     } || because<"a StreamCoder stores its model in up to 16320 bytes: static constexpr int codebook_bytes = ...; "
                  "static void store_model(model, bytes), bool load_model(bytes, model_type&)">) &&
    (requires(typename C::model_type const& model, typename C::encode_table& table, typename C::symbol_type symbol) {
       C::make_encode_table(model, table);
       requires std::is_same_v<decltype(C::can_code(table, symbol)), bool>;
     } || because<"a StreamCoder has static void make_encode_table(model, encode_table&), "
                  "and bool can_code(encode_table const&, symbol)">);
// clang-format on

}  // namespace v0
}  // namespace tessera
