// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include <tessera/core/cpu_features.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// What Linux says of the first processor, with a blank before and after each name; empty elsewhere.
std::string flags_of_the_kernel() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("flags", 0) == 0) {
      return line.substr(line.find(':') + 1) + " ";
    }
  }
  return "";
}

/// Sets TESSERA_SIMD for as long as it lives.
class asked_level {
 public:
  explicit asked_level(char const* name) : before_(std::getenv("TESSERA_SIMD")) {
    saved_ = before_ != nullptr ? before_ : "";
    setenv("TESSERA_SIMD", name, 1);
  }
  asked_level(asked_level const&) = delete;
  asked_level& operator=(asked_level const&) = delete;
  ~asked_level() {
    if (before_ != nullptr) {
      setenv("TESSERA_SIMD", saved_.c_str(), 1);
    } else {
      unsetenv("TESSERA_SIMD");
    }
  }

 private:
  char const* before_;
  std::string saved_;
};

}  // namespace

TEST_CASE("the level of the processor is the one whose instructions the kernel lists", "[host]") {
  std::string const flags = flags_of_the_kernel();
  if (flags.empty()) {
    TESSERA_SKIP("/proc/cpuinfo lists no flags");
  }
  auto const has = [&](std::string const& names) {
    std::istringstream words(names);
    bool all = true;
    for (std::string name; words >> name;) {
      all = all && flags.find(" " + name + " ") != std::string::npos;
    }
    return all;
  };
  simd_level expected = simd_level::scalar;
  if (has("avx2 bmi1 bmi2 popcnt")) {
    expected = has("avx512f avx512bw avx512dq avx512vl") ? simd_level::avx512 : simd_level::avx2;
  }
  CHECK(supported_simd_level() == expected);
}

TEST_CASE("TESSERA_SIMD lowers the level and never raises it", "[host]") {
  CHECK(limit_simd_level(simd_level::avx512, nullptr) == simd_level::avx512);
  CHECK(limit_simd_level(simd_level::avx512, "avx2") == simd_level::avx2);
  CHECK(limit_simd_level(simd_level::avx512, "scalar") == simd_level::scalar);
  CHECK(limit_simd_level(simd_level::avx512, "avx512") == simd_level::avx512);
  CHECK(limit_simd_level(simd_level::avx512, "sse") == simd_level::avx512);
  CHECK(limit_simd_level(simd_level::avx2, "avx512") == simd_level::avx2);
  CHECK(limit_simd_level(simd_level::scalar, "avx2") == simd_level::scalar);
}

TEST_CASE("the environment is read at every call", "[host]") {
  {
    asked_level const asked("scalar");
    CHECK(best_simd_level() == simd_level::scalar);
  }
  {
    asked_level const asked("avx512");
    CHECK(best_simd_level() == supported_simd_level());
  }
}

TEST_CASE("levels have the names that TESSERA_SIMD takes", "[host]") {
  CHECK(std::string(simd_level_name(simd_level::scalar)) == "scalar");
  CHECK(std::string(simd_level_name(simd_level::avx2)) == "avx2");
  CHECK(std::string(simd_level_name(simd_level::avx512)) == "avx512");
}
