// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../../examples/support/printable.hpp"

#include <string>

#include "../../examples/support/failure.hpp"
#include "support/catch.hpp"

using namespace tessera_examples;

TEST_CASE("text without anything that a terminal obeys is shown as it is", "[host]") {
  for (char const* text : {"", "model.layers.0.self_attn.q_proj.weight", "\xc3\xa9t\xc3\xa9", "\xe5\xb1\x82 \"0\"",
                           "\xf0\x9f\x98\x80", "\xc2\xa0", "\xf4\x8f\xbf\xbd"}) {
    CHECK(printable(text) == text);
  }
}

TEST_CASE("what a terminal obeys is shown as a number", "[host]") {
  CHECK(printable(std::string_view("\0\x1b[2J\r\n\t\x7f", 9)) == "\\u0000\\u001b[2J\\u000d\\u000a\\u0009\\u007f");
  CHECK(printable("\xc2\x80\xc2\x9b"
                  "31m\xc2\x9f") == "\\u0080\\u009b31m\\u009f");  // C1 controls
  CHECK(printable("a\xe2\x80\xae"
                  "b\xe2\x80\xa8"
                  "c") == "a\\u202eb\\u2028c");  // direction, line
  CHECK(printable("\xef\xbb\xbf"
                  "x\xf3\xa0\x81\x81") == "\\ufeffx\\ue0041");  // no width
  CHECK(printable("\\u001b") == "\\\\u001b");                   // as if it were one
}

TEST_CASE("bytes that are no UTF-8 are shown one by one", "[host]") {
  CHECK(printable("a\x9b"
                  "b\xff") == "a\\x9bb\\xff");
  CHECK(printable("\xc3") == "\\xc3");           // cut off after one byte of two
  CHECK(printable("\xe2\x82") == "\\xe2\\x82");  // cut off after two bytes of three
  CHECK(printable("\xe2\x82"
                  "a") ==
        "\\xe2\\x82"
        "a");
  CHECK(printable("\xc0\x9b") == "\\xc0\\x9b");  // longer than needed
  CHECK(printable("\xe0\x82\x9b") == "\\xe0\\x82\\x9b");
  CHECK(printable("\xf0\x80\x82\x9b") == "\\xf0\\x80\\x82\\x9b");
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // a surrogate
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // above U+10FFFF
  CHECK(printable("\xf8\x88\x80\x80\x80") == "\\xf8\\x88\\x80\\x80\\x80");
}

TEST_CASE("long text is cut between characters", "[host]") {
  CHECK(printable(std::string(100, 'x')) == std::string(100, 'x'));
  CHECK(printable(std::string(101, 'x')) == std::string(100, 'x').append("..."));
  CHECK(printable("\xc3\xa9\xc3\xa9\xc3\xa9", 2) == "\xc3\xa9\xc3\xa9...");
  CHECK(printable("abc\x1b"
                  "d",
                  8) == "abc...");
  CHECK(printable(std::string(1'000'000, '\x1b')).size() == 16 * 6 + 3);
  CHECK(shown(std::string(1000, 'x')) == "\"" + std::string(100, 'x') + "...\"");
}
