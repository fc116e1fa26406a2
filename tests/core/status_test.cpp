// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <tessera/core/status.hpp>

#include "support/catch.hpp"

using namespace tessera;

TEST_CASE("a fresh word says that nothing failed", "[host]") {
  status_word const word;
  CHECK(word.is_ok());
  CHECK(word.bits == 0xffffffffffffffffu);
}

TEST_CASE("the lowest position remains, and of two codes at one position the smaller", "[host]") {
  status_word word;
  detail::report_on_host(&word, status_code::bad_header, 50);
  detail::report_on_host(&word, status_code::out_of_range, 49);
  detail::report_on_host(&word, status_code::corrupt_stream, 51);
  CHECK(word.position() == 49);
  CHECK(word.code() == status_code::out_of_range);
  detail::report_on_host(&word, status_code::bad_checksum, 49);
  CHECK(word.code() == status_code::bad_checksum);
  detail::report_on_host(&word, status_code::out_of_range, 49);
  CHECK(word.code() == status_code::bad_checksum);
}

TEST_CASE("positions beyond 32 bits are kept", "[host]") {
  status_word word;
  std::int64_t const far = (std::int64_t{1} << 55) + 3;
  detail::report_on_host(&word, status_code::first_user_code, far);
  CHECK(word.position() == far);
  CHECK(word.code() == status_code::first_user_code);
}

TEST_CASE("taking the word sets it back", "[host]") {
  status_word word;
  detail::report_on_host(&word, status_code::bad_value, 1);
  CHECK(detail::take_on_host(&word).position() == 1);
  CHECK(word.is_ok());
  CHECK(detail::take_on_host(&word).is_ok());
}

TEST_CASE("reports from several threads leave the lowest position", "[host][threads]") {
  status_word word;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&word, t] {
      for (int i = 1000; i > 0; --i) {
        detail::report_on_host(&word, status_code::bad_value, i * 4 + t);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(word.position() == 4);
}

TEST_CASE("the detail of the lowest position remains, whatever comes before and after it", "[host]") {
  status_word word;
  detail::report_on_host(&word, status_code::bad_label, 50, {7, 5});
  detail::report_on_host(&word, status_code::bad_label, 20, {8, 5});
  detail::report_on_host(&word, status_code::bad_label, 30, {9, 5});
  CHECK(word.what().value == 8);
  CHECK(word.what().limit == 5);
  // One without a detail, which is earlier: the other one's is not told as its own.
  detail::report_on_host(&word, status_code::bad_value, 10);
  CHECK_FALSE(word.what().is_known());
  status_word const taken = detail::take_on_host(&word);
  CHECK(taken.position() == 10);
  CHECK_FALSE(taken.what().is_known());
  detail::report_on_host(&word, status_code::bad_label, 60, {-3, 4});
  CHECK(detail::take_on_host(&word).what().value == -3);
}

TEST_CASE("details from several threads belong to the position that remains", "[host][threads]") {
  for (int round = 0; round < 20; ++round) {
    status_word word;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&word, t] {
        for (int i = 300; i > 0; --i) {
          std::int64_t const position = i * 4 + t;
          detail::report_on_host(&word, status_code::bad_label, position, {position * 3, position * 5});
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    CHECK(word.position() == 4);
    CHECK(word.what().value == 12);
    CHECK(word.what().limit == 20);
  }
}

TEST_CASE("each code has words of its own", "[host]") {
  std::vector<std::string> seen;
  for (int const code : {1, 2, 3, 4, 5, 6, 7, 9, 16, 17, 24, 25, 26, 27, 28, 29, 30, 32, 33, 34, 35}) {
    std::string const words = describe(static_cast<status_code>(code));
    for (std::string const& other : seen) {
      CHECK(words != other);
    }
    CHECK(words != describe(status_code::first_user_code));
    CHECK((words.find('{') == std::string::npos || is_sentence(static_cast<status_code>(code))));
    seen.push_back(words);
  }
}

TEST_CASE("each part of a call that differs has a sentence, and what is no part that of a code's usual one", "[host]") {
  for (auto const& [code, parts, usual] :
       {std::tuple{status_code::other_forward, 9, 0}, {status_code::other_rank, 6, 3}}) {
    std::set<std::string> sentences;
    for (int part = 0; part < parts; ++part) {
      sentences.insert(describe(code, part));
    }
    CHECK(sentences.size() == static_cast<std::size_t>(parts));
    CHECK(describe(code, -1) == std::string(describe(code, usual)));
    CHECK(describe(code, parts) == std::string(describe(code, usual)));
  }
  CHECK(describe(status_code::other_forward, 8) == std::string("an earlier backward() has used up the softmaxes that "
                                                               "forward() kept; call forward() again"));
  CHECK(describe(status_code::other_rank, 4) ==
        std::string("the ranks have {value} entries in all but the vocabulary has {limit}"));
}
