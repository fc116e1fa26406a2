// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: the scratch of this program needs more than 227 KiB of shared memory
#include <cstdint>

#include <tessera/concepts/program.hpp>

/// Fits the CPU, whose scratch is memory.
struct large {
  static constexpr int lanes = 64;
  struct scratch_type {
#if defined(TESSERA_FAIL)
    float values[58097];
#else
    float values[58096];
#endif
  };
  template <class Group>
  TESSERA_FN void operator()(Group const&, std::int64_t, scratch_type&) const {}
};

static_assert(tessera::DeviceProgram<large>);
