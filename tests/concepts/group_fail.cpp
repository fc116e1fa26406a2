// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a Group has sync\(\): void sync\(\) const
#include <tessera/concepts/group.hpp>
#include <tessera/tile/serial/group.hpp>

template <tessera::Group G>
struct needs_a_group {
  G group;
};

struct without_sync {
  static constexpr int size = 1;
  int const* begin() const;
  int const* end() const;
};

#if defined(TESSERA_FAIL)
needs_a_group<without_sync> refused;
#else
needs_a_group<tessera::serial_group<32>> accepted;
#endif
