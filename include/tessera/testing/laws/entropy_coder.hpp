// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The laws of an EntropyCoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tessera/concepts/entropy_coder.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/testing/laws/law_report.hpp>

namespace tessera {
inline namespace v0 {
namespace testing {

namespace detail {

/// Pushes `message` from its end, pops it again, and checks the popped symbols.
template <EntropyCoder C>
void check_message(law_report& report, typename C::encode_table const& encode, typename C::decode_table const& decode,
                   std::vector<typename C::symbol_type> const& message) {
  std::string const name = "in a message of " + std::to_string(message.size()) + " symbols";
  std::vector<std::uint16_t> words;
  auto state = C::start();
  for (std::size_t i = message.size(); i-- > 0;) {
    auto const spilled = C::push(state, message[i], encode);
    if (spilled.occurred) {
      words.push_back(spilled.word);
    }
  }
  typename C::decode_state reader(state);
  std::size_t left = words.size();
  for (std::size_t i = 0; i < message.size(); ++i) {
    bool const equal = C::pop(reader, decode) == message[i];
    report.expect(equal, "pop inverts push in reverse order", name + ", symbol " + std::to_string(i));
    while (C::wants_word(reader)) {
      if (left == 0) {
        report.expect(false, "a reader wants no more words than were spilled", name + ", symbol " + std::to_string(i));
        return;
      }
      C::feed(reader, words[--left]);
    }
    if (!equal) {
      return;
    }
  }
  report.expect(left == 0, "every spilled word is fed", name + ", " + std::to_string(left) + " words are left");
  report.expect(C::finished(reader), "finished() holds after the whole message", name);
}

}  // namespace detail

/// Checks C with `model` on messages of `symbols`, all of which the model must be able to code: the empty message, runs
/// of each symbol, and mixtures of many lengths. Mixtures prefer the first of the `symbols`.
template <EntropyCoder C>
law_report check_laws(typename C::model_type const& model, std::vector<typename C::symbol_type> const& symbols) {
  law_report report;
  auto const encode = std::make_unique<typename C::encode_table>(C::make_encode_table(model));
  auto const decode = std::make_unique<typename C::decode_table>();
  C::make_decode_table(model, *decode);
  using message_type = std::vector<typename C::symbol_type>;
  detail::check_message<C>(report, *encode, *decode, {});
  for (auto symbol : symbols) {
    detail::check_message<C>(report, *encode, *decode, message_type(100, symbol));
  }
  if (symbols.empty()) {
    return report;
  }
  for (std::size_t length : {1U, 2U, 3U, 7U, 31U, 32U, 33U, 500U, 5000U}) {
    message_type mixture;
    for (std::size_t i = 0; i < length; ++i) {
      std::uint64_t const any = hash(length, 2 * i) % symbols.size();
      std::uint64_t const lower = hash(length, 2 * i + 1) % (any + 1);
      mixture.push_back(symbols[i % 2 == 0 ? any : lower]);
    }
    detail::check_message<C>(report, *encode, *decode, mixture);
  }
  return report;
}

}  // namespace testing
}  // namespace v0
}  // namespace tessera
