// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `add_to_json`: what trials found on a GPU, in the JSON of Google Benchmark that bench/report.py takes over.
#pragma once

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <tessera/exec/cuda.cuh>

#include "failure.hpp"

namespace tessera_examples {

/// A benchmark with one repetition.
struct trial_row {
  std::string name;
  double seconds;  ///< a median
  double error;
  double bytes, flops;  ///< of a call; 0: not told
  double bits;          ///< of a value; 0: not told
};

namespace detail {

/// The first line that a command prints, or "unknown".
inline std::string first_line_of(std::string const& command) {
  std::string line;
  if (std::FILE* const pipe = popen(command.c_str(), "r")) {
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
      line += static_cast<char>(c);
    }
    line = pclose(pipe) == 0 ? line.substr(0, line.find('\n')) : "";
  }
  return line.empty() ? "unknown" : line;
}

/// Text in quotes.
inline std::string quoted(std::string const& text) {
  std::string result = "\"";
  for (char const c : text) {
    result += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
  }
  return result + '"';
}

/// A number that a 64-bit float reads back.
inline std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

/// What describes a run: the time, the commit that TESSERA_COMMIT names in the environment, and the GPU.
inline std::string described_run() {
  auto const check = [](cudaError_t status, char const* what) { tessera::check_cuda(status, "add_to_json", what); };
  int device = 0, runtime = 0;
  cudaDeviceProp properties{};
  char bus[32] = {};
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  check(cudaDeviceGetPCIBusId(bus, sizeof bus, device), "cudaDeviceGetPCIBusId");
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  auto const driver = [&](char const* field) {
    return quoted(first_line_of(std::string("nvidia-smi -i ") + bus + " --query-gpu=" + field +
                                " --format=csv,noheader 2>/dev/null"));
  };
  std::time_t const now = std::time(nullptr);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S+00:00", std::gmtime(&now));
  char const* const commit = std::getenv("TESSERA_COMMIT");
  return "{\n  \"date\": " + quoted(date) + ",\n  \"executable\": \"papers\",\n  \"gpu\": " + quoted(properties.name) +
         ",\n  \"driver\": " + driver("driver_version") + ",\n  \"power_limit\": " + driver("power.limit") +
         ",\n  \"cuda_runtime\": " +
         quoted(std::to_string(runtime / 1000) + "." + std::to_string(runtime % 1000 / 10)) +
         ",\n  \"commit\": " + quoted(commit == nullptr || *commit == '\0' ? "unknown" : commit) + "\n }";
}

inline std::string text_of(trial_row const& row) {
  std::string const name = quoted(row.name), time = number(row.seconds * 1e6);
  auto const counter = [](char const* key, double value) { return std::string(", \"") + key + "\": " + number(value); };
  return "  {\"name\": " + name + ", \"run_name\": " + name +
         ", \"run_type\": \"iteration\", \"repetitions\": 1, \"repetition_index\": 0, \"iterations\": 1, "
         "\"real_time\": " +
         time + ", \"cpu_time\": " + time + ", \"time_unit\": \"us\"" + counter("ms", row.seconds * 1e3) +
         counter("error", row.error) + (row.bytes > 0 ? counter("TBps", row.bytes / row.seconds * 1e-12) : "") +
         (row.flops > 0 ? counter("TFLOPs", row.flops / row.seconds * 1e-12) : "") +
         (row.bits > 0 ? counter("bits", row.bits) : "") + "}";
}

}  // namespace detail

/// Writes a file with these rows, or adds them to one that this wrote before on the same machine.
inline void add_to_json(std::string const& path, std::vector<trial_row> const& rows) {
  static std::string const end = "\n ]\n}\n";
  std::string text;
  if (std::ifstream before(path, std::ios::binary); before) {
    text.assign(std::istreambuf_iterator<char>(before), {});
    require(exit_code::unsound,
            text.size() > end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0, shown(path),
            " is no file of this program");
    text.resize(text.size() - end.size());
  } else {
    text = "{\n \"context\": " + detail::described_run() + ",\n \"benchmarks\": [";
  }
  for (trial_row const& row : rows) {
    text += (text.back() == '[' ? "\n" : ",\n") + detail::text_of(row);
  }
  std::ofstream file(path, std::ios::binary);
  file << text << end;
  file.close();
  require(exit_code::unwritable, !file.fail(), "cannot write ", shown(path));
}

}  // namespace tessera_examples
