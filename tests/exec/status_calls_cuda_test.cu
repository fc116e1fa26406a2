// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <string>

#include <tessera/exec/cuda.cuh>
#include <tessera/exec/status_calls.hpp>

#include "support/catch.hpp"
#include "support/cuda.hpp"

using namespace tessera;

namespace {

/// Every lane of every group from `first` on reports a value that follows from its position.
template <int Lanes>
struct reports_all {
  static constexpr int lanes = Lanes;
  struct scratch_type {};
  status_word* status;
  std::int64_t first;
  std::int64_t groups;

  template <class Group>
  TESSERA_FN void operator()(Group const& group, std::int64_t which, scratch_type&) const {
    std::int64_t const turned = groups - 1 - which;  // the lowest position comes last
    for (int const lane : group) {
      if (turned >= first) {
        std::int64_t const position = turned * lanes + lane;
        group.report(status, status_code::bad_label, position, {position * 3 + 1, 1000});
      }
    }
  }
};

template <int Lanes>
void check_reports(cuda const& exec) {
  for (int round = 0; round < 10; ++round) {
    constexpr std::int64_t groups = 50'000;
    std::int64_t const first = 17 + round;
    exec.run(reports_all<Lanes>{exec.status({"every.lane", "row"}), first, groups}, groups);
    std::int64_t const lowest = first * Lanes;
    CHECK_THROWS_WITH(exec.wait(), "every.lane: label " + std::to_string(lowest * 3 + 1) + " of token " +
                                       std::to_string(lowest) + " is no entry of 1000");
    CHECK_NOTHROW(exec.wait());
  }
}

}  // namespace

TEST_CASE("of millions of reports on a device the detail of the lowest position remains", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  check_reports<32>(exec);
  check_reports<128>(exec);
}

TEST_CASE("wait names the calls that reported on a device, and each has its word", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  cuda const copy = exec;
  status_word* const decode = exec.status({"decode", "block"});
  CHECK(decode != exec.status());
  CHECK(copy.status({"decode", "block"}) == decode);
  exec.run(reports_all<32>{exec.status({"forward", "token"}), 2, 4}, 4);
  exec.run(reports_all<32>{decode, 3, 4}, 4);
  CHECK_THROWS_WITH(exec.wait(),
                    "decode: label 289 of token 96 is no entry of 1000; "
                    "forward: label 193 of token 64 is no entry of 1000");
  CHECK_NOTHROW(exec.wait());
  exec.run(reports_all<32>{exec.status(), 1, 4}, 4);
  CHECK_THROWS_WITH(exec.wait(), "cuda.wait: label 97 of token 32 is no entry of 1000");
}
