// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: an Executor has a memory resource and a stream for it
#include <cstdint>

#include <tessera/exec/cpu.hpp>
#include <tessera/exec/side_queue.hpp>

struct without_memory {
  template <class Program>
  void run(Program const&, std::int64_t) const {}
  void wait() const {}
  tessera::status_word* status() const { return nullptr; }
};

#if defined(TESSERA_FAIL)
using chosen = without_memory;
#else
using chosen = tessera::cpu;
#endif

void follow(chosen const& exec) {
  tessera::side_queue<chosen>(exec, 4).follow();
}
