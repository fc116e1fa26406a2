// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Times work that is enqueued on an executor.
#pragma once

#include <algorithm>
#include <chrono>

namespace tessera_examples {

/// Seconds that `work` takes when it is enqueued again and again: the fastest of three runs of about a twentieth of
/// a second, or of two where one takes longer than a fifth of one. With `once`, where the time need not be exact, how
/// long it takes once.
template <class Work, class Wait>
double seconds_of(Work work, Wait wait, bool once) {
  using clock = std::chrono::steady_clock;
  auto const time = [&](int repeats) {
    auto const start = clock::now();
    for (int i = 0; i < repeats; ++i) {
      work();
    }
    wait();
    return std::chrono::duration<double>(clock::now() - start).count() / repeats;
  };
  if (once) {
    return time(1);
  }
  constexpr double wanted = 0.05;
  constexpr int most_repeats = 1000;
  if (double const first = time(1); first > 0.2) {  // else it warms up
    return std::min(first, time(1));
  }
  int const repeats = static_cast<int>(std::clamp(wanted / time(1), 1.0, double{most_repeats}));
  return std::min({time(repeats), time(repeats), time(repeats)});
}

}  // namespace tessera_examples
