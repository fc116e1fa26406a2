// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The main function of every benchmark program: our defaults, the run's description, then Google Benchmark.
#include <benchmark/benchmark.h>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "harness.hpp"

#ifndef TESSERA_COMMIT
#define TESSERA_COMMIT "unknown"
#endif

namespace {

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos) {
      return line.substr(line.find(": ") + 2);
    }
  }
  return "unknown";
}

std::string compiler() {
#if defined(__clang__)
  return std::string("clang ") + __clang_version__;
#else
  return std::string("gcc ") + __VERSION__;
#endif
}

/// The commit: TESSERA_COMMIT in the environment takes precedence over the commit known when this was compiled.
std::string commit() {
  char const* const given = std::getenv("TESSERA_COMMIT");
  return given != nullptr && *given != '\0' ? given : TESSERA_COMMIT;
}

bool only_lists(int count, char** arguments) {
  for (int i = 1; i < count; ++i) {
    if (std::strncmp(arguments[i], "--benchmark_list_tests", 22) == 0 || std::strcmp(arguments[i], "--help") == 0) {
      return true;
    }
  }
  return false;
}

/// Whether the last --benchmark_min_time, which is the one that counts for Google Benchmark, is too small to measure.
bool measures_nothing(int count, char** arguments) {
  constexpr char flag[] = "--benchmark_min_time=";
  constexpr double least_seconds = 0.01;
  bool result = false;
  for (int i = 1; i < count; ++i) {
    if (std::strncmp(arguments[i], flag, sizeof flag - 1) == 0) {
      result = std::strtod(arguments[i] + sizeof flag - 1, nullptr) < least_seconds;
    }
  }
  return result;
}

void describe() {
  benchmark::AddCustomContext("commit", commit());
  benchmark::AddCustomContext("cpu", cpu_model());
  benchmark::AddCustomContext("cpu_threads", std::to_string(std::thread::hardware_concurrency()));
  benchmark::AddCustomContext("compiler", compiler());
  for (auto* const add_more : bench::descriptions()) {
    add_more();
  }
}

}  // namespace

int main(int count, char** arguments) try {
  // Our flags come first, so that the same flag on the command line takes precedence.
  std::string repetitions = "--benchmark_repetitions=5";
  std::string quiet = "--benchmark_display_aggregates_only=true";
  std::vector<char*> all{arguments[0], repetitions.data(), quiet.data()};
  all.insert(all.end(), arguments + 1, arguments + count);
  int total = static_cast<int>(all.size());
  all.push_back(nullptr);
  bool const listing = only_lists(count, arguments);
  bench::only_starts() = measures_nothing(count, arguments);

  benchmark::Initialize(&total, all.data());
  if (benchmark::ReportUnrecognizedArguments(total, all.data())) {
    return 1;
  }
  for (auto* const add_benchmarks : bench::registrations()) {
    add_benchmarks();
  }
  if (!listing) {
    describe();
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return bench::any_failed() ? 1 : 0;
} catch (std::exception const& error) {
  std::cerr << arguments[0] << ": " << error.what() << '\n';
  return 1;
}
