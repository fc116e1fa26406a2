// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <string>
#include <thread>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/exec/status_calls.hpp>
#include <tessera/testing/adversary.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// Reports that group `which` is no entry of `limit`, if it is not.
struct entries {
  static constexpr int lanes = 32;
  struct scratch_type {};
  status_word* status;
  std::int64_t limit;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    for (int const lane : group) {
      if (which >= limit) {
        group.report(status, status_code::bad_label, which, {which * 100 + lane, limit});
      }
    }
  }
};

template <class Executor>
void check_names(Executor const& exec) {
  exec.run(entries{status_of(exec, {"second.call", "row"}), 50}, 10);
  exec.run(entries{status_of(exec, {"first.call", "row"}), 1000}, 10);
  CHECK_NOTHROW(exec.wait());
  exec.run(entries{status_of(exec, {"first.call", "row"}), 7}, 100);
  CHECK_THROWS_WITH(exec.wait(), tessera_test::contains("first.call: label 7") &&
                                     tessera_test::contains(" of token 7 is no entry of 7"));
  CHECK_NOTHROW(exec.wait());
  exec.run(entries{exec.status(), 3}, 4);
  CHECK_THROWS_WITH(exec.wait(), tessera_test::contains("cpu.wait: label 3"));
}

}  // namespace

TEST_CASE("wait names the call that reported", "[host][threads]") {
  check_names(cpu{.threads = 1});
  check_names(cpu{.threads = 4});
  check_names(testing::adversary{.seed = 3});
}

TEST_CASE("what several calls reported is all said, as the exception of the first", "[host]") {
  cpu const exec{.threads = 1};
  status_word* const decode = status_of(exec, {"decode", "block"});
  status_word* const forward = status_of(exec, {"forward", "token"});
  detail::report_on_host(forward, status_code::bad_label, 1, {9, 5});
  detail::report_on_host(decode, status_code::bad_checksum, 2);
  try {
    exec.wait();
    FAIL("nothing was thrown");
  } catch (corrupt_data const& problem) {
    CHECK(std::string(problem.what()) ==
          "decode: the checksum does not match (code 2) at block 2; forward: label 9 of token 1 is no entry of 5");
    CHECK(problem.position() == 2);
  }
  CHECK_NOTHROW(exec.wait());
}

TEST_CASE("a call has the same word for as long as the executor lives, and copies share it", "[host]") {
  cpu const exec{.threads = 1};
  cpu const copy = exec;
  status_word* const word = exec.status({"a", "row"});
  CHECK(word != exec.status());
  CHECK(exec.status({"a", "row"}) == word);
  CHECK(exec.status({"a", "column"}) != word);
  exec.wait();
  CHECK(copy.status({std::string("a").c_str(), "row"}) == word);
  CHECK(cpu{}.status({"a", "row"}) != word);
}

TEST_CASE("more calls than there are words share the first one", "[host]") {
  cpu const exec{.threads = 1};
  for (int i = 1; i < status_calls::most; ++i) {
    CHECK(exec.status({std::to_string(i).c_str()}) == exec.status() + i);
  }
  CHECK(exec.status({"another"}) == exec.status());
  detail::report_on_host(exec.status({"another"}), status_code::bad_value, 5);
  CHECK_THROWS_WITH(exec.wait(), "cpu.wait: a value is outside of what is accepted (code 6) at position 5");
}

TEST_CASE("calls from several threads have words of their own", "[host][threads]") {
  cpu const exec{.threads = 1};
  std::vector<std::thread> threads;
  std::vector<status_word*> found(4);
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        found[t] = exec.status({std::to_string(t).c_str()});
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (std::size_t t = 0; t < 4; ++t) {
    CHECK(exec.status({std::to_string(t).c_str()}) == found[t]);
    CHECK(found[t] != found[(t + 1) % 4]);
  }
}

TEST_CASE("an executor with one word only lends it to all calls", "[host]") {
  struct simple {
    status_word* word;
    [[nodiscard]] status_word* status() const { return word; }
  };
  status_word word;
  CHECK(status_of(simple{&word}, {"a"}) == &word);
}
