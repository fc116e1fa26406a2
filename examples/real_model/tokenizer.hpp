// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The tokenizer of SmolLM2: byte-level byte pair encoding as in GPT-2, with every digit on its own.
///
///     tessera_examples::tokenizer const words(tokens, merges);          // texts of one entry a line
///     std::vector<std::int32_t> const ids = words.encode("In the beginning");
///     std::string const same = words.decode(ids);
///
/// A text is cut into words: contractions, letters, other signs, spaces and single digits. The bytes of a word are
/// joined pair by pair, always the pair that comes first in the list of merges, until no pair of the word is in it.
/// Which characters beyond ASCII are letters is told by ranges (`is_letter`), which are right for European scripts.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../support/failure.hpp"
#include "../support/printable.hpp"

namespace tessera_examples {

namespace detail {

/// The kinds of characters at which words are cut.
enum class character_kind : std::uint8_t { letter, digit, space, sign };

struct code_range {
  std::uint32_t first;
  std::uint32_t last;
};

template <std::size_t Count>
bool is_in(code_range const (&ranges)[Count], std::uint32_t code) {
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [code](code_range const& range) { return code >= range.first && code <= range.last; });
}

inline character_kind kind_of(std::uint32_t code) {
  constexpr code_range spaces[] = {{0x09, 0x0d},     {0x1c, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},
                                   {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f},
                                   {0x205f, 0x205f}, {0x3000, 0x3000}};
  constexpr code_range signs[] = {
      {0x00, 0x40},     {0x5b, 0x60},     {0x7b, 0xa9},     {0xab, 0xb1},     {0xb4, 0xb4},     {0xb6, 0xb8},
      {0xbb, 0xbb},     {0xbf, 0xbf},     {0xd7, 0xd7},     {0xf7, 0xf7},     {0x2000, 0x206f}, {0x20a0, 0x20cf},
      {0x2190, 0x2bff}, {0x3001, 0x3003}, {0x3008, 0x3020}, {0xd800, 0xf8ff}, {0xfe00, 0xfe1f}, {0x1f000, 0x1faff}};
  if (code >= '0' && code <= '9') {
    return character_kind::digit;
  }
  return is_in(spaces, code)  ? character_kind::space
         : is_in(signs, code) ? character_kind::sign
                              : character_kind::letter;
}

/// A character of the text: its kind and where its bytes begin.
struct text_character {
  character_kind kind;
  std::size_t begin;
};

/// The characters of a text in UTF-8, and one more for its end; bytes that are no UTF-8 are signs.
inline std::vector<text_character> characters_of(std::string_view text) {
  std::vector<text_character> found;
  for (std::size_t at = 0; at < text.size();) {
    utf8_character const next = first_character(text.substr(at));
    found.push_back({next.is_valid ? kind_of(next.code) : character_kind::sign, at});
    at += next.bytes;
  }
  found.push_back({character_kind::digit, text.size()});
  return found;
}

/// Cuts a text into words.
class word_cutter {
 public:
  explicit word_cutter(std::string_view text) : text_(text), characters_(characters_of(text)) {}

  /// The next word; an empty one at the end.
  std::string_view next() {
    if (at_ + 1 >= characters_.size()) {
      return {};
    }
    std::size_t const first = at_;
    at_ += length();
    return text_.substr(characters_[first].begin, characters_[at_].begin - characters_[first].begin);
  }

 private:
  [[nodiscard]] character_kind kind(std::size_t i) const { return characters_[i].kind; }
  /// How many characters of this kind there are from `from` on.
  [[nodiscard]] std::size_t run(std::size_t from, character_kind of) const {
    std::size_t end = from;
    while (end + 1 < characters_.size() && kind(end) == of) {
      ++end;
    }
    return end - from;
  }
  [[nodiscard]] std::size_t contraction() const {
    std::string_view const rest = text_.substr(characters_[at_].begin);
    for (std::string_view const form : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
      if (rest.substr(0, form.size()) == form) {
        return form.size();
      }
    }
    return 0;
  }
  /// The number of characters of the word that begins here.
  [[nodiscard]] std::size_t length() const {
    if (kind(at_) == character_kind::digit) {
      return 1;
    }
    if (std::size_t const found = contraction(); found > 0) {
      return found;
    }
    std::size_t const space = text_[characters_[at_].begin] == ' ' ? 1 : 0;
    for (character_kind const of : {character_kind::letter, character_kind::sign}) {
      if (std::size_t const found = run(at_ + space, of); found > 0) {
        return space + found;
      }
    }
    // Of several spaces the last one belongs to the word that follows. A digit has no space of its own.
    std::size_t const spaces = run(at_, character_kind::space);
    return spaces == 1 || kind(at_ + spaces) == character_kind::digit ? spaces : spaces - 1;
  }

  std::string_view text_;
  std::vector<text_character> characters_;
  std::size_t at_ = 0;
};

/// A code point below 2^11 in UTF-8.
inline std::string utf8_of(std::uint32_t code) {
  if (code < 0x80) {
    return {static_cast<char>(code)};
  }
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

/// The letter that stands for each byte in tokens: printable ones for themselves, others from U+0100 on.
inline std::array<std::string, 256> letters_of_bytes() {
  std::array<std::string, 256> letters;
  std::uint32_t other = 256;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    bool const is_printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    letters[byte] = utf8_of(is_printable ? byte : other++);
  }
  return letters;
}

/// The lines of a text.
inline std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    std::size_t const end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace detail

class tokenizer {
 public:
  /// `tokens`: one a line, in the order of their ids. `merges`: pairs of parts of words, "left right", one a line.
  tokenizer(std::string_view tokens, std::string_view merges)
      : tokens_(detail::lines_of(tokens)), letters_(detail::letters_of_bytes()) {
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      ids_.emplace(tokens_[id], static_cast<std::int32_t>(id));
    }
    for (std::string& pair : detail::lines_of(merges)) {
      ranks_.emplace(std::move(pair), ranks_.size());
    }
    for (std::size_t byte = 0; byte < letters_.size(); ++byte) {
      bytes_.emplace(letters_[byte], static_cast<char>(byte));
    }
  }

  [[nodiscard]] std::size_t size() const { return tokens_.size(); }

  /// The ids of a text's tokens, without special ones.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const {
    std::vector<std::int32_t> ids;
    std::unordered_map<std::string_view, std::vector<std::int32_t>> known;
    detail::word_cutter words(text);
    for (std::string_view word = words.next(); !word.empty(); word = words.next()) {
      auto const [at, is_new] = known.try_emplace(word);
      if (is_new) {
        at->second = tokens_of_word(word);
      }
      ids.insert(ids.end(), at->second.begin(), at->second.end());
    }
    return ids;
  }

  /// The bytes that tokens stand for. Ids that the vocabulary lacks, and letters that stand for no byte, are left out.
  [[nodiscard]] std::string decode(std::vector<std::int32_t> const& ids) const {
    std::string text;
    for (std::int32_t const id : ids) {
      if (id < 0 || static_cast<std::size_t>(id) >= tokens_.size()) {
        continue;
      }
      std::string_view rest = tokens_[static_cast<std::size_t>(id)];
      while (!rest.empty()) {
        std::size_t const length = detail::first_character(rest).bytes;
        auto const byte = bytes_.find(std::string(rest.substr(0, length)));
        if (byte != bytes_.end()) {
          text += byte->second;
        }
        rest.remove_prefix(length);
      }
    }
    return text;
  }

 private:
  /// Joins the pair of the lowest rank; false if no pair of the word can be joined.
  bool join_best(std::vector<std::string>& parts) const {
    std::size_t best = ranks_.size();
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      auto const found = ranks_.find(parts[i] + ' ' + parts[i + 1]);
      if (found != ranks_.end() && found->second < best) {
        best = found->second;
        at = i;
      }
    }
    if (best == ranks_.size()) {
      return false;
    }
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    return true;
  }

  [[nodiscard]] std::vector<std::int32_t> tokens_of_word(std::string_view word) const {
    std::vector<std::string> parts;
    for (char const byte : word) {
      parts.push_back(letters_[static_cast<unsigned char>(byte)]);
    }
    while (join_best(parts)) {
    }
    std::vector<std::int32_t> ids;
    for (std::string const& part : parts) {
      auto const found = ids_.find(part);
      require(exit_code::unsound, found != ids_.end(), "the vocabulary has no token ", shown(part), " for the word ",
              shown(std::string(word)));
      ids.push_back(found->second);
    }
    return ids;
  }

  std::vector<std::string> tokens_;
  std::array<std::string, 256> letters_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::unordered_map<std::string, std::size_t> ranks_;
  std::unordered_map<std::string, char> bytes_;
};

}  // namespace tessera_examples
