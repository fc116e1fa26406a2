// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a MemoryResource has deallocate\(void\*, size_t bytes, size_t alignment, stream_handle stream\)
#include <cstddef>

#include <tessera/exec/memory.hpp>

/// Gives memory without being told its size when it comes back.
struct arena {
  void* allocate(std::size_t, std::size_t, tessera::stream_handle) { return nullptr; }
#if defined(TESSERA_FAIL)
  void deallocate(void*) {}
#else
  void deallocate(void*, std::size_t, std::size_t, tessera::stream_handle) {}
#endif
};

tessera::memory_handle handle_of(arena& memory) {
  return tessera::memory_handle(memory);
}
