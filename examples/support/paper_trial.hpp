// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// What the examples of examples/papers have in common: memory, times, errors, and `run_trial`, which runs one.
#pragma once

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/bits.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/view/array_view.hpp>

#include "run_example.hpp"
#if defined(__CUDACC__)
#include <tessera/exec/cuda.cuh>

#include "seconds_on_stream.hpp"
#include "trial_json.hpp"
#endif

namespace tessera_examples {

using namespace tessera;

/// What a run of an example found.
struct paper_finding {
  std::string of;  ///< what was run
  double seconds;  ///< of one call
  double error;    ///< the largest difference from a reference in double, relative to the largest expected value
  double bytes = 0, flops = 0;  ///< that a call has to move and to do, at least; 0: not told
  double bits = 0;              ///< of a value that is kept in fewer than 16; 0: not told
};

/// The largest difference between found and expected values. A NaN that was not expected makes it NaN.
class largest_error {
 public:
  void add(double found, double expected) {
    double const apart = found == expected ? 0.0 : std::fabs(found - expected);
    worst_ = std::isnan(worst_) || apart <= worst_ ? worst_ : apart;
    magnitude_ = std::fabs(expected) > magnitude_ ? std::fabs(expected) : magnitude_;
  }
  /// Relative to the largest expected magnitude; 0 if nothing was expected.
  [[nodiscard]] double relative() const { return magnitude_ > 0 ? worst_ / magnitude_ : worst_; }

 private:
  double worst_ = 0;
  double magnitude_ = 0;
};

/// Writes a generator's values, on any executor.
template <class T, class Generator>
struct fill_values {
  static constexpr int lanes = 128;
  struct scratch_type {};
  Generator generator;
  std::uint64_t seed;
  array_view<T> values;

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
    for (int lane : group) {
      if (std::int64_t const i = which * lanes + lane; i < values.size()) {
        values[i] = testing::sample<T>(generator, seed, static_cast<std::uint64_t>(i));
      }
    }
  }
};

/// Memory with `count` of a generator's values.
template <class T, class Executor, class Generator>
buffer<T> filled(Executor const& exec, Generator const& generator, std::uint64_t seed, std::int64_t count) {
  buffer<T> memory(exec, count);
  using fill = fill_values<T, Generator>;
  exec.run(fill{generator, seed, memory}, divide_up(count, std::int64_t{fill::lanes}));
  return memory;
}

/// Memory for results, with all bits set: floats are NaN there until they are written.
template <class T, class Executor>
buffer<T> poisoned(Executor const& exec, std::int64_t count) {
  buffer<T> memory(exec, count);
  std::vector<std::byte> const bits(memory.bytes(), std::byte{0xff});
  exec.copy(bits, array_view<std::byte>{reinterpret_cast<std::byte*>(memory.data()),
                                        static_cast<std::int64_t>(memory.bytes())});
  exec.wait();
  return memory;
}

/// A copy of some elements that the host can read: `count` of them from `first` on.
template <class T, class Executor>
std::vector<T> here(Executor const& exec, buffer<T> const& memory, std::int64_t first, std::int64_t count) {
  std::vector<T> list(static_cast<std::size_t>(count));
  exec.copy(array_view<T const>{memory.data() + first, count}, list);
  exec.wait();
  return list;
}

/// The seconds that a call takes on an executor whose run() returns when all is done.
template <class Executor, class Call>
double seconds_of(Executor const& exec, Call const& call) {
  auto const begin = std::chrono::steady_clock::now();
  call();
  exec.wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

#if defined(__CUDACC__)
/// The seconds that a call takes on a stream, without the time for launching it.
template <class Call>
double seconds_of(cuda const& exec, Call const& call) {
  double const seconds = seconds_on_stream(static_cast<cudaStream_t>(exec.stream), 2, 5, call);
  exec.wait();
  return seconds;
}
#endif

/// Prints what was found. Throws failure if the error is above the trial's `bound` or NaN.
template <class Trial>
void report(char const* device, paper_finding const& found) {
  std::printf("%s, %s, on the %s: error %.1e, at most %.0e is right; %.4f ms\n", Trial::name, found.of.c_str(), device,
              found.error, Trial::bound, found.seconds * 1e3);
  require(exit_code::unsound, found.error <= Trial::bound, "the error of ", Trial::name, " is ", found.error,
          " but may be ", Trial::bound);
}

/// Runs a trial on the CPU, with its `usual` extents.
template <class Trial>
void run_trial() {
  report<Trial>("CPU", Trial::run(cpu{}, Trial::usual));
}

#if defined(__CUDACC__)
/// Runs a trial on the GPU, with each of its `large` extents. `words` are those of the command line: none, or `--json`
/// and a file, to which the findings are added as benchmarks (trial_json.hpp).
template <class Trial>
void run_trial_on_gpu(std::vector<std::string> const& words) {
  require(exit_code::usage, words.empty() || (words.size() == 2 && words[0] == "--json"), "use it so: papers_",
          Trial::name, "_cuda [--json FILE]");
  for (auto const& extents : Trial::large) {
    paper_finding const found = Trial::run(cuda{}, extents);
    report<Trial>("GPU", found);
    std::string title = std::string("papers/") + Trial::name + '/';
    for (char const c : found.of) {
      bool const is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z');
      if (is_plain || title.back() != '_') {
        title += is_plain ? c : '_';
      }
    }
    if (!words.empty()) {
      add_to_json(words[1], {{title, found.seconds, found.error, found.bytes, found.flops, found.bits}});
    }
  }
}
#endif

}  // namespace tessera_examples
