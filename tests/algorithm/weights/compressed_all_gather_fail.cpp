// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: ranks exchange weights bit for bit: take a codec that keeps all bits of mantissas
#include <cstdint>

#include <tessera/algorithm/weights/compressed_all_gather.hpp>
#include <tessera/neuzip.hpp>

namespace {

#if defined(TESSERA_FAIL)
using codec = tessera::neuzip_lossy<3>;
#else
using codec = tessera::neuzip;
#endif

}  // namespace

std::int64_t bytes_for(tessera::cpu const& exec, std::int64_t count) {
  return tessera::compressed_all_gather<codec>::plan(exec, 2, count).bytes();
}
