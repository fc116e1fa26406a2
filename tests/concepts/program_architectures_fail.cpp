// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: scratch_for has more than 163 KiB on sm_80, or more than 99 KiB on sm_86, sm_89 or sm_120
#include <cstdint>

#include <tessera/concepts/program.hpp>

using tessera::architecture;

template <int Stages>
struct stages_of {
  float values[Stages][4096];
};

/// Stages of 16 KiB: thread blocks of sm_80 have room for ten of them, those of sm_86 for six.
constexpr int stages_on(architecture tag) {
#if defined(TESSERA_FAIL)
  return tag == architecture::host ? 1 : 8;
#else
  return tag == architecture::host ? 1 : tag == architecture::sm_80 || tag == architecture::sm_90a ? 8 : 6;
#endif
}

struct staged {
  static constexpr int lanes = 64;
  template <class Group>
  using scratch_for = stages_of<stages_on(tessera::architecture_of<Group>)>;
  template <class Group>
  TESSERA_FN void operator()(Group const&, std::int64_t, scratch_for<Group>&) const {}
};

static_assert(tessera::DeviceProgram<staged>);
