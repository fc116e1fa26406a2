// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of a StreamCoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tessera/concepts/stream_coder.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/entropy_coder.hpp>
#include <tessera/testing/laws/law_report.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {

namespace detail {

/// A model, both of its tables, and the bytes that it has in a stream.
template <StreamCoder C>
struct fitted_coder {
  std::unique_ptr<typename C::model_type> model = std::make_unique<typename C::model_type>();
  std::unique_ptr<typename C::encode_table> encode = std::make_unique<typename C::encode_table>();
  std::unique_ptr<typename C::decode_table> decode = std::make_unique<typename C::decode_table>();
  std::vector<std::uint8_t> bytes = std::vector<std::uint8_t>(C::codebook_bytes);

  void make_tables() {
    C::make_encode_table(*model, *encode);
    C::make_decode_table(*model, *decode);
    C::store_model(*model, bytes.data());
  }
};

/// The last state and all words of a lane to which a message was pushed, and which pushes spilled.
struct pushed_message {
  std::uint32_t state = 0;
  std::vector<std::uint16_t> words;
  std::vector<bool> spilled;  ///< in the order of the message

  friend bool operator==(pushed_message const&, pushed_message const&) = default;
};

template <StreamCoder C>
pushed_message push_message(law_report& report, typename C::encode_table const& table,
                            std::vector<typename C::symbol_type> const& message) {
  pushed_message result;
  result.state = C::start();
  result.spilled.resize(message.size());
  report.expect(C::is_state(result.state), "is_state() holds for start()");
  for (std::size_t i = message.size(); i-- > 0;) {
    auto const spilled = C::push(result.state, message[i], table);
    result.spilled[i] = spilled.occurred;
    if (spilled.occurred) {
      result.words.push_back(spilled.word);
    }
    report.expect(C::is_state(result.state), "is_state() holds after every push", "symbol " + std::to_string(i));
  }
  return result;
}

/// Checks that the pop of a symbol wants a word exactly if its push spilled one.
template <StreamCoder C>
void check_words(law_report& report, fitted_coder<C> const& coder, pushed_message const& pushed) {
  constexpr char const* law = "a pop wants a word exactly if the push spilled one, and never two";
  typename C::decode_state reader(pushed.state);
  std::size_t left = pushed.words.size();
  for (std::size_t i = 0; i < pushed.spilled.size(); ++i) {
    static_cast<void>(C::pop(reader, *coder.decode));
    bool const wants = C::wants_word(reader);
    report.expect(wants == pushed.spilled[i], law, "symbol " + std::to_string(i));
    if (wants && left > 0) {
      C::feed(reader, pushed.words[--left]);
      report.expect(!C::wants_word(reader), law, "symbol " + std::to_string(i));
    }
  }
}

/// Pops from any states with the table of any model that is accepted. A sanitizer sees what leaves the table.
template <StreamCoder C>
void pop_rubbish(std::uint64_t seed) {
  fitted_coder<C> coder;
  for (std::size_t i = 0; i < coder.bytes.size(); ++i) {
    coder.bytes[i] = static_cast<std::uint8_t>(hash(seed, i));
  }
  if (!C::load_model(coder.bytes.data(), *coder.model)) {
    return;
  }
  C::make_decode_table(*coder.model, *coder.decode);
  typename C::decode_state reader(static_cast<std::uint32_t>(hash(seed, coder.bytes.size())));
  for (std::uint64_t i = 0; i < 100; ++i) {
    static_cast<void>(C::pop(reader, *coder.decode));
    if (C::wants_word(reader)) {
      C::feed(reader, static_cast<std::uint16_t>(hash(seed + 1, i)));
    }
  }
}

}  // namespace detail

/// Checks C on the model of `counts`, which are 256 numbers of occurrences of the symbols, at least one of which is not
/// 0: the laws of an EntropyCoder for all symbols that can be coded, and those of a StreamCoder.
template <StreamCoder C>
law_report check_stream_laws(std::vector<std::uint64_t> const& counts) {
  law_report report;
  detail::fitted_coder<C> fitted;
  C::fit_model(counts.data(), *fitted.model);
  fitted.make_tables();
  std::vector<typename C::symbol_type> symbols;
  std::size_t frequent = 0;
  for (std::size_t symbol = 0; symbol < counts.size() && symbol < static_cast<std::size_t>(C::alphabet); ++symbol) {
    frequent = counts[symbol] > counts[frequent] ? symbol : frequent;
    if (C::can_code(*fitted.encode, static_cast<typename C::symbol_type>(symbol))) {
      symbols.push_back(static_cast<typename C::symbol_type>(symbol));
    }
  }
  report.expect(C::can_code(*fitted.encode, static_cast<typename C::symbol_type>(frequent)),
                "the most frequent symbol can be coded", std::to_string(frequent));
  report.include("", check_laws<C>(*fitted.model, symbols));

  detail::fitted_coder<C> loaded;
  bool const is_loaded = C::load_model(fitted.bytes.data(), *loaded.model);
  report.expect(is_loaded, "load_model takes what store_model wrote");
  if (!is_loaded || symbols.empty()) {
    return report;
  }
  loaded.make_tables();
  report.expect(loaded.bytes == fitted.bytes, "a model that was loaded is stored as it was");
  for (std::size_t length : {0U, 1U, 2U, 31U, 1000U}) {
    std::vector<typename C::symbol_type> message;
    for (std::size_t i = 0; i < length; ++i) {
      message.push_back(symbols[hash(length, i) % symbols.size()]);
    }
    auto const pushed = detail::push_message<C>(report, *fitted.encode, message);
    report.expect(pushed == detail::push_message<C>(report, *loaded.encode, message),
                  "a model that was loaded codes alike");
    detail::check_words<C>(report, loaded, pushed);
  }
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    detail::pop_rubbish<C>(seed);
  }
  return report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
