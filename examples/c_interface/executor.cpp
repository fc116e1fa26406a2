// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>

#include <tessera/exec/cpu.hpp>

#include "errors.hpp"
#include "executors.hpp"
#include "tessera_c.h"

namespace tessera_c {
namespace {

constexpr std::size_t most_text = 1024;
thread_local char last_error[most_text] = "";  // no error allocates

/// Gives a piece of memory of the caller's once, for an object that others share and its count of owners.
template <class T>
struct piece {
  using value_type = T;

  std::byte* first;
  std::size_t bytes;

  piece(std::byte* at, std::size_t size) : first(at), bytes(size) {}
  template <class Other>
  piece(piece<Other> const& other) : first(other.first), bytes(other.bytes) {}

  [[nodiscard]] T* allocate(std::size_t count) const {
    tessera::check<tessera::shape_error>(count * sizeof(T) <= bytes, "executor: its state takes ", count * sizeof(T),
                                         " bytes but there are ", bytes);
    return reinterpret_cast<T*>(first);
  }
  void deallocate(T*, std::size_t) const noexcept {}

  template <class Other>
  friend bool operator==(piece const& a, piece<Other> const& b) {
    return a.first == b.first;
  }
};

no_memory nothing;

/// An executor and the state that its copies share.
template <class Exec>
struct executor_memory {
  using state_type = typename decltype(Exec::state)::element_type;
  static constexpr std::size_t count_bytes = 64;  ///< more than std::shared_ptr's own numbers take

  executor_object<Exec> object;
  alignas(std::max_align_t) std::byte state[sizeof(state_type) + count_bytes];
};

template <class Exec>
void open_in(tessera_executor& to, tessera_memory memory) {
  using memory_type = executor_memory<Exec>;
  using state_type = typename memory_type::state_type;
  auto* const at = static_cast<memory_type*>(place_in<memory_type>(memory, "executor's memory"));
  piece<state_type> const room(at->state, sizeof(at->state));
  new (&at->object)
      executor_object<Exec>{{executor_mark, to.device},
                            Exec{.memory = nothing, .options = {}, .state = std::allocate_shared<state_type>(room)}};
  to.state = &at->object;
}

template <class Exec>
void close_in(tessera_executor& given) {
  auto* const object = static_cast<executor_object<Exec>*>(given.state);
  object->head.mark = 0;
  object->~executor_object<Exec>();
}

}  // namespace

tessera_status keep_error(tessera_status status, char const* function, char const* text) noexcept {
  std::size_t used = 0;
  for (char const* part : {function, ": ", text}) {
    std::size_t const room = most_text - 1 - used;
    std::size_t const length = std::strlen(part);
    std::size_t const taken = length < room ? length : room;
    std::memcpy(last_error + used, part, taken);
    used += taken;
  }
  last_error[used] = '\0';
  return status;
}

}  // namespace tessera_c

using namespace tessera_c;

std::int32_t tessera_c_version(void) {
  return TESSERA_C_VERSION;
}

std::int32_t tessera_has_device(std::int32_t device) {
#if defined(TESSERA_COMPILES_CUDA)
  return device == TESSERA_CPU || device == TESSERA_CUDA ? 1 : 0;
#else
  return device == TESSERA_CPU ? 1 : 0;
#endif
}

char const* tessera_last_error(void) {
  return last_error;
}

char const* tessera_status_name(std::int32_t status) {
  constexpr char const* names[] = {"TESSERA_SUCCESS",      "TESSERA_NULL_POINTER", "TESSERA_WRONG_TYPE",
                                   "TESSERA_SHAPE_ERROR",  "TESSERA_VALUE_ERROR",  "TESSERA_CORRUPT_DATA",
                                   "TESSERA_DEVICE_ERROR", "TESSERA_NOT_BUILT",    "TESSERA_OUT_OF_MEMORY",
                                   "TESSERA_OTHER_ERROR"};
  return status >= 0 && status < static_cast<std::int32_t>(std::size(names)) ? names[status] : "an unknown status";
}

tessera_status tessera_executor_bytes(tessera_executor const* executor, std::size_t* bytes) {
  return guarded("tessera_executor_bytes", [&] {
    tessera_executor const given = known_part(executor, "executor");
    check_executor(given);
    std::int64_t needed = bytes_of_object<executor_memory<tessera::cpu>>;
#if defined(TESSERA_COMPILES_CUDA)
    needed = given.device == TESSERA_CUDA ? bytes_of_object<executor_memory<tessera::cuda>> : needed;
#endif
    set_bytes(bytes, needed);
  });
}

tessera_status tessera_executor_open(tessera_executor* executor, tessera_memory memory) {
  return guarded("tessera_executor_open", [&] {
    check_executor(known_part(executor, "executor"));
    require(executor->state == nullptr, TESSERA_VALUE_ERROR,
            "the executor's state is not null but must be before it is opened; close it first");
    if (executor->device == TESSERA_CPU) {
      return open_in<tessera::cpu>(*executor, memory);
    }
#if defined(TESSERA_COMPILES_CUDA)
    open_in<tessera::cuda>(*executor, memory);
#endif
  });
}

tessera_status tessera_executor_close(tessera_executor* executor) {
  return guarded("tessera_executor_close", [&] {
    if (known_part(executor, "executor").state == nullptr) {
      return;
    }
    static_cast<void>(open_executor(executor));
    if (executor->device == TESSERA_CPU) {
      close_in<tessera::cpu>(*executor);
    }
#if defined(TESSERA_COMPILES_CUDA)
    if (executor->device == TESSERA_CUDA) {
      close_in<tessera::cuda>(*executor);
    }
#endif
    executor->state = nullptr;
  });
}

tessera_status tessera_wait(tessera_executor const* executor) {
  return guarded("tessera_wait", [&] { with_executor(executor, [](auto const& exec) { exec.wait(); }); });
}
