// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// EntropyCoder: writes likely symbols with few bits, one independent lane state at a time.
///
/// A lane is a stack. Symbols are pushed from the last one to the first; now and then a push spills a 16-bit word.
/// Popping gives the symbols from the first one to the last, and is fed the same words, the latest one first. Where the
/// words of many lanes go is settled by the stream format, not by the coder, so all executors write the same bytes.
///
///     auto const encode = C::make_encode_table(model);
///     auto state = C::start();
///     for (int i = n; i-- > 0;) {
///       if (auto const out = C::push(state, message[i], encode); out.occurred) { words.push_back(out.word); }
///     }
///     typename C::decode_table decode;
///     C::make_decode_table(model, decode);
///     typename C::decode_state reader(state);
///     for (int i = 0; i < n; ++i) {
///       message[i] = C::pop(reader, decode);
///       while (C::wants_word(reader)) { C::feed(reader, words.back()); words.pop_back(); }
///     }
///     // now C::finished(reader) and words.empty()
///
/// Laws, checked by `tessera::testing::check_laws<C>(model, symbols)`, for messages of symbols that the model can code:
///   1. pop inverts push, in reverse order.
///   2. finished() holds when the whole message has been popped, and for the empty message.
///   3. Every word that was spilled is fed exactly once: a reader never asks for more and never leaves one behind.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/core/because.hpp>

namespace tessera {
inline namespace v0 {

// clang-format off
template <class C>
concept EntropyCoder =
    (requires {
       requires std::unsigned_integral<typename C::symbol_type>;
       requires C::alphabet > 0;
       requires C::alphabet - 1 <= std::numeric_limits<typename C::symbol_type>::max();
     } || because<"an EntropyCoder names unsigned symbols and their number: "
                  "using symbol_type = ...; static constexpr int alphabet = ...;">) &&
    (requires(typename C::model_type const& model, typename C::decode_table& decode) {
       requires std::is_trivially_copyable_v<typename C::model_type>;
       requires std::is_same_v<decltype(C::make_encode_table(model)), typename C::encode_table>;
       C::make_decode_table(model, decode);
     } || because<"an EntropyCoder builds tables from a trivially copyable model_type: "
                  "static encode_table make_encode_table(model), void make_decode_table(model, decode_table&)">) &&
    (requires {
       requires std::is_trivially_copyable_v<typename C::encode_state>;
       requires std::is_trivially_copyable_v<typename C::decode_state>;
       requires std::is_same_v<decltype(C::start()), typename C::encode_state>;
       requires std::constructible_from<typename C::decode_state, typename C::encode_state>;
     } || because<"an EntropyCoder has static encode_state start(), "
                  "and a decode_state(encode_state), both trivially copyable">) &&
    (requires(typename C::encode_state& state, typename C::symbol_type symbol, typename C::encode_table const& encode) {
       requires std::is_same_v<decltype(C::push(state, symbol, encode).occurred), bool>;
       requires std::is_same_v<decltype(C::push(state, symbol, encode).word), std::uint16_t>;
     } || because<"an EntropyCoder has static push(encode_state&, symbol_type, encode_table const&), "
                  "which gives {bool occurred; std::uint16_t word;}, the word that was spilled if any">) &&
    (requires(typename C::decode_state& state, typename C::decode_table const& decode, std::uint16_t word) {
       requires std::is_same_v<decltype(C::pop(state, decode)), typename C::symbol_type>;
       requires std::is_same_v<decltype(C::wants_word(state)), bool>;
       C::feed(state, word);
       requires std::is_same_v<decltype(C::finished(state)), bool>;
     } || because<"an EntropyCoder has static symbol_type pop(decode_state&, decode_table const&), bool "
                  "wants_word(decode_state), void feed(decode_state&, std::uint16_t), bool finished(decode_state)">);
// clang-format on

}  // namespace v0
}  // namespace tessera
