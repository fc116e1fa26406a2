// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `tessera::cpu`: runs programs on threads of the host.
///
///     struct doubled {                                   // a program: what one group does with one tile
///       static constexpr int lanes = 32;
///       struct scratch_type {};
///       array_view<float> values;
///
///       template <Group G>
///       TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type&) const {
///         for (int lane : group) { values[which * lanes + lane] *= 2.0f; }
///       }
///     };
///
///     tessera::cpu exec{.threads = 8};
///     exec.run(doubled{numbers}, numbers.size() / 32);
///     exec.wait();
///
/// Results do not depend on the number of threads. An exception that a program throws comes out of `run`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <type_traits>
#include <vector>

#include <tessera/concepts/program.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/execution_options.hpp>
#include <tessera/exec/memory.hpp>
#include <tessera/exec/observer.hpp>
#include <tessera/exec/status_calls.hpp>
#include <tessera/exec/worker_pool.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {
namespace detail {

/// The state that copies of one executor share.
struct cpu_state {
  status_word words[status_calls::most];
  status_calls calls;
  worker_pool pool;
};

/// Memory for a program's scratch, uninitialised as a GPU's shared memory is, and too large for some stacks.
class scratch_memory {
 public:
  scratch_memory(std::size_t bytes, std::size_t alignment)
      : alignment_{alignment}, data_(::operator new(bytes, alignment_)) {}
  scratch_memory(scratch_memory const&) = delete;
  scratch_memory& operator=(scratch_memory const&) = delete;
  ~scratch_memory() { ::operator delete(data_, alignment_); }

  [[nodiscard]] void* get() const { return data_; }

 private:
  std::align_val_t alignment_;
  void* data_;
};

/// What a thread needs to know of a program. One type for all programs, so that a program costs few functions here. A
/// virtual function and not a pointer to one: with a pointer nvcc refuses programs that call functions of the host.
struct host_program {
  std::size_t scratch_bytes;
  std::size_t scratch_alignment;

  /// Runs tiles from `which` to `last` - 1; `which` is the tile at hand, also when the program throws.
  virtual void run_tiles(void* scratch, std::int64_t& which, std::int64_t last) const = 0;

 protected:
  host_program(std::size_t bytes, std::size_t alignment) : scratch_bytes(bytes), scratch_alignment(alignment) {}
  ~host_program() = default;
};

template <class P>
struct host_program_of final : host_program {
  using scratch_type = scratch_for<P, serial_group<P::lanes>>;
  P const& program;

  explicit host_program_of(P const& p) : host_program(sizeof(scratch_type), alignof(scratch_type)), program(p) {}

  void run_tiles(void* scratch, std::int64_t& which, std::int64_t last) const override {
    for (; which < last; ++which) {
      program(serial_group<P::lanes>{}, which, *static_cast<scratch_type*>(scratch));
    }
  }
};

class program_job final : public parallel_job {
 public:
  program_job(host_program const& program, std::int64_t count, std::int64_t grain)
      : parallel_job(count, grain), program_(program) {}

  void participate() override {
    std::int64_t which = 0;
    std::int64_t last = 0;
    if (!take(which, last)) {
      return;
    }
    try {
      scratch_memory const scratch(program_.scratch_bytes, program_.scratch_alignment);
      do {
        program_.run_tiles(scratch.get(), which, last);
      } while (take(which, last));
    } catch (...) {
      keep_current_exception(which);
    }
  }

 private:
  host_program const& program_;
};

}  // namespace detail

struct cpu {
  /// How many threads work on a program, including the caller's; 0 means all that the machine has.
  int threads = 0;
  /// The resource of buffers and workspaces; read it as `exec.memory()`.
  memory_handle memory = {};
  /// The options of the executor, such as the observer of launches: exec/execution_options.hpp.
  execution_options options = {};
  /// Not for users: the threads and the status word, shared by copies of an executor.
  std::shared_ptr<detail::cpu_state> state = std::make_shared<detail::cpu_state>();

  static constexpr stream_handle stream = nullptr;  ///< no stream: work is done when run() returns

  /// Calls `program(group, which, scratch)` for each `which` from 0 to `count` - 1 and returns when all are done.
  template <class P>
  requires ProgramOn<P, typename detail::group_for<P, serial_group>::type>
  void run(P const& program, std::int64_t count) const {
    run_on_threads(detail::host_program_of<P>(program), detail::launch_of<P>(count));
  }

  /// Throws what groups reported since the last call. All work is done already when `run` returns.
  void wait() const {
    std::vector<status_word> taken;
    for (status_word& word : state->words) {
      taken.push_back(detail::take_on_host(&word));
    }
    state->calls.throw_if_failed(taken, "cpu.wait");
  }

  /// The word that programs report to, for a program's member of type `status_word*`.
  [[nodiscard]] status_word* status() const { return &state->words[0]; }
  /// The word that the programs of a call report to; wait() names the call then.
  [[nodiscard]] status_word* status(status_call const& call) const {
    return &state->words[state->calls.number_of(call)];
  }

  /// Copies a list to another of the same size; both may have strides.
  template <class Source, class Target>
  void copy(Source const& source, Target&& target) const {
    auto const from = as_array(source);
    auto const to = as_array(target);
    check<shape_error>(from.size() == to.size(), "cpu.copy: the source has ", from.size(),
                       " elements but the target has ", to.size());
    detail::tell_bytes(options, to.size() * static_cast<std::int64_t>(sizeof(*to.data)));
    if (options.is_dry) {
      return;
    }
    check_memory("cpu.copy", "elements of the source", from);
    check_memory("cpu.copy", "elements of the target", to);
    using element = typename decltype(to)::element_type;
    if constexpr (std::is_same_v<typename decltype(from)::value_type, element> &&
                  std::is_trivially_copyable_v<element>) {
      if (from.is_contiguous() && to.is_contiguous()) {
        if (!to.is_empty()) {
          std::memmove(to.data, from.data, static_cast<std::size_t>(to.size()) * sizeof(element));
        }
        return;
      }
    }
    for (std::int64_t i = 0; i < from.size(); ++i) {
      to[i] = from[i];
    }
  }

  /// Sets all bytes of a contiguous list to zero.
  template <class Target>
  void clear(Target&& target) const {
    auto const to = as_array(target);
    check<shape_error>(to.is_contiguous(), "cpu.clear: the target has a stride of ", to.stride(0),
                       " but must have a stride of 1");
    detail::tell_bytes(options, to.size() * static_cast<std::int64_t>(sizeof(*to.data)));
    if (!to.is_empty() && !options.is_dry) {
      check_memory("cpu.clear", "elements of the target", to);
      std::memset(to.data, 0, static_cast<std::size_t>(to.size()) * sizeof(*to.data));
    }
  }

 private:
  void run_on_threads(detail::host_program const& program, launch const& what) const {
    std::int64_t const count = what.groups;
    check<value_error>(threads >= 0, "cpu.run: the number of threads is ", threads, " but must not be negative");
    check<shape_error>(count >= 0, "cpu.run: the number of tiles is ", count, " but must not be negative");
    detail::tell_launch(options, what);
    if (options.is_dry) {
      return;
    }
    std::int64_t const most = threads > 0 ? threads : all_threads();
    std::int64_t const used = most < count ? most : count;
    constexpr std::int64_t ranges_a_thread = 8;  // evens out tiles that take longer than others
    std::int64_t const grain = used == 0 ? 1 : count / (used * ranges_a_thread);
    detail::program_job job(program, count, grain > 0 ? grain : 1);
    state->pool.run(job, static_cast<int>(used));
  }
  /// As many as there are processors, asked once: the answer comes from a file.
  static std::int64_t all_threads() {
    static unsigned const found = std::thread::hardware_concurrency();
    return found > 0 ? static_cast<std::int64_t>(found) : 1;
  }
};

}  // namespace v0
}  // namespace tessera
