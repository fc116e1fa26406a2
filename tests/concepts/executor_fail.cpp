// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: an Executor has a memory resource and a stream for it
#include <cstdint>

#include <tessera/concepts/executor.hpp>
#include <tessera/exec/cpu.hpp>

template <tessera::Executor E>
struct needs_an_executor {
  E executor;
};

struct without_memory {
  template <class Program>
  void run(Program const&, std::int64_t) const {}
  void wait() const {}
  tessera::status_word* status() const { return nullptr; }
};

#if defined(TESSERA_FAIL)
needs_an_executor<without_memory> refused;
#else
needs_an_executor<tessera::cpu> accepted;
#endif
