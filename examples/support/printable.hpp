// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Text from a file in a form that is safe for a terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace tessera_examples {
namespace detail {

/// A character of UTF-8, or one byte that begins no character.
struct utf8_character {
  std::uint32_t code = 0;
  std::size_t bytes = 1;
  bool is_valid = false;
};

/// The first character of `text`, which is not empty. As in RFC 3629: no form longer than needed, no surrogates,
/// nothing above U+10FFFF.
inline utf8_character first_character(std::string_view text) {
  auto const byte = [&](std::size_t i) { return std::uint32_t{static_cast<unsigned char>(text[i])}; };
  std::uint32_t const lead = byte(0);
  if (lead < 0x80) {
    return {lead, 1, true};
  }
  std::size_t const bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc0 || lead > 0xf7 || text.size() < bytes) {
    return {};
  }
  std::uint32_t code = lead & (0x7fU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) {
      return {};
    }
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr std::uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  bool const is_valid = code >= smallest[bytes] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
  return is_valid ? utf8_character{code, bytes, true} : utf8_character{};
}

/// Whether a terminal obeys the character rather than shows it: controls (C0, DEL, C1), separators of lines and
/// paragraphs, and characters that have no width or change the direction of the text around them.
inline bool is_obeyed(std::uint32_t code) {
  constexpr std::uint32_t ranges[][2] = {{0x00, 0x1f},     {0x7f, 0x9f},      {0xad, 0xad},     {0x61c, 0x61c},
                                         {0x200b, 0x200f}, {0x2028, 0x202e},  {0x2060, 0x206f}, {0xfeff, 0xfeff},
                                         {0xfff9, 0xfffb}, {0xe0000, 0xe0fff}};
  for (auto const& range : ranges) {
    if (code >= range[0] && code <= range[1]) {
      return true;
    }
  }
  return false;
}

}  // namespace detail

/// The text on one line, at most `most` characters and "...". Characters that a terminal obeys become \u001b, bytes
/// that are no UTF-8 \xff, and a backslash two, so that no text can look like another one.
inline std::string printable(std::string_view text, std::size_t most = 100) {
  std::string result;
  std::size_t width = 0;
  while (!text.empty()) {
    detail::utf8_character const next = detail::first_character(text);
    char escaped[16] = "";
    if (!next.is_valid) {
      std::snprintf(escaped, sizeof(escaped), "\\x%02x", unsigned{static_cast<unsigned char>(text[0])});
    } else if (next.code == '\\') {
      std::snprintf(escaped, sizeof(escaped), "\\\\");
    } else if (detail::is_obeyed(next.code)) {
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", unsigned{next.code});
    }
    std::string_view const shown = escaped[0] != '\0' ? escaped : text.substr(0, next.bytes);
    std::size_t const columns = escaped[0] != '\0' ? shown.size() : 1;
    if (width + columns > most) {
      return result + "...";
    }
    result += shown;
    width += columns;
    text.remove_prefix(next.bytes);
  }
  return result;
}

}  // namespace tessera_examples
