// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include <tessera/comm/loopback.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/laws/comm/communicator.hpp>

#include "support/catch.hpp"
#include "support/message_of.hpp"

using namespace tessera;
using tessera::testing::check_communicator_laws;
using tessera_test::message_of;

namespace loopback_test {

template <class T>
array_view<T> view_of(std::vector<T>& list) {
  return {list.data(), static_cast<std::int64_t>(list.size())};
}

}  // namespace loopback_test

using namespace loopback_test;

TEST_CASE("one rank keeps the laws of a Communicator", "[host]") {
  loopback ranks;
  CHECK(check_communicator_laws(cpu{.threads = 1}, ranks).text() == "");
  CHECK(check_communicator_laws(testing::adversary{}, ranks, 2).text() == "");
}

TEST_CASE("a NaN that one rank reduces keeps its bits", "[host]") {
  std::vector<float> list{bit_cast<float>(0xffc0'1234U)};
  std::vector<float> made(1);
  loopback ranks;
  ranks.all_reduce(cpu{.threads = 1}, view_of(list), rank_reduction::maximum, view_of(made));
  CHECK(bit_cast<std::uint32_t>(made[0]) == 0xffc0'1234U);
}

TEST_CASE("one rank sends to itself in groups alone, where sends and receives fit each other", "[host]") {
  loopback ranks;
  cpu const exec{.threads = 1};
  std::vector<float> list{1, 2, 3};
  std::vector<float> made(3);
  std::vector<float> shorter(2);
  std::vector<std::int32_t> integers(3);
  CHECK(message_of([&] { ranks.send(exec, view_of(list), 0); }) ==
        "loopback.send: rank 0 exchanges with rank 0, itself, which it can in grouped() only");
  CHECK(message_of([&] { ranks.receive(exec, 1, view_of(list)); }) ==
        "loopback.receive: the other rank is 1 but there are 1");
  CHECK(message_of([&] { ranks.grouped([&] { ranks.send(exec, view_of(list), 0); }); }) ==
        "loopback.grouped: rank 0 sends 1 lists to itself but receives 0");
  CHECK(message_of([&] {
          ranks.grouped([&] {
            ranks.send(exec, view_of(list), 0);
            ranks.send(exec, view_of(list), 0);
            ranks.receive(exec, 0, view_of(made));
            ranks.receive(exec, 0, view_of(shorter));
          });
        }) == "loopback.receive: rank 0 sends 3 elements of float (12 bytes) but receives 2 of float (8 bytes)");
  CHECK(message_of([&] {
          ranks.grouped([&] {
            ranks.receive(exec, 0, view_of(integers));
            ranks.send(exec, view_of(list), 0);
          });
        }) == "loopback.receive: rank 0 sends 3 elements of float (12 bytes) but receives 3 of int32 (12 bytes)");
  CHECK(made == std::vector<float>(3));  // where one does not fit nothing is copied
}

TEST_CASE("what a group of one rank that throws has sent is dropped", "[host]") {
  loopback ranks;
  cpu const exec{.threads = 1};
  std::vector<float> list{1, 2};
  std::vector<float> made(2);
  auto const throwing = [&] {
    ranks.grouped([&] {
      ranks.send(exec, view_of(list), 0);
      throw std::runtime_error("no");
    });
  };
  CHECK_THROWS_AS(throwing(), std::runtime_error);
  ranks.grouped([&] {
    ranks.grouped([&] { ranks.receive(exec, 0, view_of(made)); });
    CHECK(made[1] == 0);  // an inner group ends with the outer one
    ranks.send(exec, view_of(list), 0);
  });
  CHECK(made == list);
}

TEST_CASE("with a dry executor one rank copies nothing and asks for no memory", "[host]") {
  loopback ranks;
  cpu const dry{.options = {.is_dry = true}};
  std::vector<float> list{1, 2};
  std::vector<float> made(2);
  array_view<float> const planned(nullptr, 2);
  ranks.all_reduce(dry, view_of(list), rank_reduction::sum, view_of(made));
  ranks.all_gather(dry, planned, view_of(made));
  ranks.grouped([&] {
    ranks.send(dry, planned, 0);
    ranks.receive(dry, 0, view_of(made));
  });
  CHECK(made == std::vector<float>(2));
  CHECK_THROWS_AS(ranks.all_gather(dry, planned, array_view<float>(made.data(), 1)), shape_error);
}
