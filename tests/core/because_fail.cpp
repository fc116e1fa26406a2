// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a Named has name\(\)
#include <tessera/core/because.hpp>

// clang-format off
template <class T>
concept Named = requires(T const& thing) { thing.name(); } || tessera::because<"a Named has name()">;
// clang-format on

struct with_name {
  char const* name() const { return "tile"; }
};

template <Named T>
void print(T const&) {}

void caller() {
#if defined(TESSERA_FAIL)
  print(1);
#else
  print(with_name());
#endif
}
