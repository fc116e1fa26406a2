// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a Group has atomic_add\(\): T atomic_add\(T& target, T value\) const, which gives the value before
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/top_k.hpp>

/// Lanes that cannot count together.
struct without_counters {
  static constexpr int size = 1;
  int const* begin() const;
  int const* end() const;
  void sync() const;
};

#if defined(TESSERA_FAIL)
using lanes = without_counters;
#else
using lanes = tessera::serial_group<32>;
#endif

struct number {
  TESSERA_FN std::uint32_t operator()(std::int64_t index) const { return static_cast<std::uint32_t>(index); }
};
struct forget {
  TESSERA_FN void operator()(std::int64_t, std::int64_t) const {}
};

std::int64_t take(lanes const& group, tessera::top_k_scratch& scratch) {
  return tessera::top_k(group, number{}, 100, 10, scratch, forget{});
}
