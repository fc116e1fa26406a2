// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `tessera::cuda`: runs the programs that `tessera::cpu` runs, on a stream of a CUDA device.
///
///     tessera::cuda exec{.stream = s};                  // buffers come from a pool of its own, or {.memory = pool}
///     buffer<float> numbers(exec, 1 << 20);
///     exec.run(doubled{numbers}, numbers.size() / 32);  // returns at once
///     exec.wait();                                      // waits for the stream, throws what groups reported
///
/// A group of a program with 32 lanes is a warp, and a thread block has several of them. A group with more lanes is a
/// whole thread block. Its scratch lies in shared memory. `run`, `copy` and `clear` only enqueue and can be captured in
/// a CUDA graph (the executor must be made before the capture begins).
///
/// A program may have the static ints `groups_per_block` (of 32 lanes each), `blocks_per_multiprocessor` and
/// `blocks_per_cluster` (sm_90; `run` rounds the number of tiles up to whole clusters). If a thread block goes from
/// tile to tile itself, the program has the static bool `is_persistent`, and `count` is the number of thread blocks. If
/// the program calls the functions of tile/cuda/sm_90/dependent_launch.cuh itself, it has the static bool
/// `waits_for_stream`. From sm_90 on the thread blocks of a program start, and wait, while the stream's last program
/// still runs; with the static bool `starts_early` as false they start when it has ended.
///
/// A program that is not for every architecture has the static ints `from_architecture` and `before_architecture` (900
/// is sm_90; the second is the first architecture that is too new) and is compiled for those architectures alone. With
/// the static bool `needs_specific_architecture` it is compiled for sm_90a but not for sm_90. On other devices `run`
/// throws: ask `exec.has<P>()`, and run the portable program instead.
///
/// If the scratch of a program follows the group (concepts/program.hpp), a launch has the shared memory, and by it the
/// number of groups in a thread block, of the architecture whose code runs: where a source was compiled for sm_80 and
/// sm_90a, an H200 has sm_90a's, and sm_80's where it was compiled for sm_80 alone. `exec.architecture_of_code<P>()`
/// says which. Code for a device that it was not compiled for, as that of sm_80 on sm_86, may need more than there is.
///
/// The constructor chooses the current device, and allocates status words (exec/status_calls.hpp) on it and in pinned
/// memory, which copies of the executor share. It waits until these are ready, and for no stream of the caller's. `run`
/// throws shape_error for a negative count, and device_error where a program is for other architectures or needs more
/// shared memory than there is, or the launch fails; `wait` throws what groups report. The device must have compute
/// capability 8.0 or later.
///
/// The first executor on a device of compute capability 9.0 says on standard error if its source was not compiled for
/// sm_90a: without the "a" no program may use wgmma, and those of sm_80, or portable ones, run instead. (nvcc cannot
/// report this: with -arch=sm_90a it also compiles for sm_90, and sources cannot tell the two cases apart.) Define
/// TESSERA_ACCEPT_SM_90 if sm_90 is intended.
#pragma once

#if !defined(__CUDACC__)
#error "tessera/exec/cuda.cuh needs a CUDA compiler; code for plain C++ uses tessera/exec/cpu.hpp"
#endif

#include <cuda_runtime.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/concepts/program.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/check_reach.hpp>
#include <tessera/exec/cuda_launch.cuh>
#include <tessera/exec/cuda_memory.cuh>
#include <tessera/exec/execution_options.hpp>
#include <tessera/exec/memory.hpp>
#include <tessera/exec/refusal.hpp>
#include <tessera/exec/status_calls.hpp>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/dependent_launch.cuh>
#include <tessera/view/array_view.hpp>

namespace tessera {
inline namespace v0 {

/// What choices of programs depend on, of a device that need not be there: for explain() without a GPU.
struct cuda_device_description {
  int architecture = 900;     ///< 900 is sm_90a
  int multiprocessors = 132;  ///< multiprocessors of the device: 132 are an H200's; an A100 has 108, an L40S 142
  int shared_bytes = 0;       ///< the most shared memory of a thread block; 0: what its architecture has
};

namespace detail {

/// The state that copies of one executor share.
class cuda_state {
 public:
  /// A device that is only described: nothing runs on it.
  explicit cuda_state(cuda_device_description const& of)
      : architecture_(of.architecture),
        shared_bytes_(of.shared_bytes > 0 ? of.shared_bytes
                                          : device_limits::shared_bytes_on(architecture_numbered(of.architecture))),
        multiprocessors_(of.multiprocessors),
        reads_all_memory_(true) {}

  explicit cuda_state() {
    check_cuda(cudaGetDevice(&device_), "cuda", "cudaGetDevice");
    int const major = attribute(cudaDevAttrComputeCapabilityMajor);
    int const minor = attribute(cudaDevAttrComputeCapabilityMinor);
    if (major < 8) {
      throw device_error(join("cuda: device ", device_, " has compute capability ", major, ".", minor,
                              " but tessera needs 8.0 or higher"),
                         static_cast<int>(cudaErrorInvalidDevice));
    }
    architecture_ = 100 * major + 10 * minor;
    shared_bytes_ = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    multiprocessors_ = attribute(cudaDevAttrMultiProcessorCount);
    overlaps_launches_ = major >= 9;
    is_hopper_ = major == 9;
    reads_all_memory_ = attribute(cudaDevAttrPageableMemoryAccess) != 0;
    words_ = cuda_words(device_words(), &free_on_device);
    mirror_ = cuda_words(pinned_words(), &free_on_host);
    reset_before_use();
  }

  [[nodiscard]] int device() const { return device_; }
  /// The device's architecture; 900 is sm_90.
  [[nodiscard]] int architecture() const { return architecture_; }
  [[nodiscard]] int shared_bytes() const { return shared_bytes_; }
  [[nodiscard]] int multiprocessors() const { return multiprocessors_; }
  /// Whether a kernel may be launched while the one before it ends; see wait_for_stream().
  [[nodiscard]] bool overlaps_launches() const { return overlaps_launches_; }
  /// Whether programs read memory of the host that is neither pinned nor registered.
  [[nodiscard]] bool reads_all_memory() const { return reads_all_memory_; }
  /// Whether the device has wgmma.
  [[nodiscard]] bool is_hopper() const { return is_hopper_; }
  [[nodiscard]] status_word* status() const { return words_.get(); }
  [[nodiscard]] status_word* status(status_call const& call) { return words_.get() + calls_.number_of(call); }

  /// Waits for the stream, throws what groups have reported, and resets the words.
  void wait(cudaStream_t stream) {
    constexpr char const* function = "cuda.wait";
    std::lock_guard const lock(mutex_);
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    check_cuda(cudaStreamIsCapturing(stream, &capture), function, "cudaStreamIsCapturing");
    check<value_error>(capture == cudaStreamCaptureStatusNone,
                       "cuda.wait: the stream is being captured, and what is captured cannot be waited for");
    check_cuda(cudaMemcpyAsync(mirror_.get(), words_.get(), bytes, cudaMemcpyDeviceToHost, stream), function,
               "cudaMemcpyAsync");
    check_cuda(cudaMemsetAsync(words_.get(), 0xff, bytes, stream), function, "cudaMemsetAsync");
    check_cuda(cudaStreamSynchronize(stream), function, "cudaStreamSynchronize");
    calls_.throw_if_failed({mirror_.get(), mirror_.get() + status_calls::most}, function);
  }

 private:
  static constexpr std::size_t bytes = sizeof(status_word) * status_calls::most;
  using cuda_words = std::unique_ptr<status_word, void (*)(status_word*)>;
  static void free_on_device(status_word* word) { static_cast<void>(cudaFree(word)); }
  static void free_on_host(status_word* word) { static_cast<void>(cudaFreeHost(word)); }
  static status_word* device_words() {
    void* words = nullptr;
    check_cuda(cudaMalloc(&words, bytes), "cuda", "cudaMalloc");
    return static_cast<status_word*>(words);
  }
  static status_word* pinned_words() {
    void* words = nullptr;
    check_cuda(cudaMallocHost(&words, bytes), "cuda", "cudaMallocHost");
    return static_cast<status_word*>(words);
  }
  int attribute(cudaDeviceAttr which) const {
    int value = 0;
    check_cuda(cudaDeviceGetAttribute(&value, which, device_), "cuda", "cudaDeviceGetAttribute");
    return value;
  }
  /// Resets the words on a separate stream: it waits for nothing but this, and the words are ready for every stream.
  void reset_before_use() const {
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cuda", "cudaStreamCreateWithFlags");
    cudaError_t const set = cudaMemsetAsync(words_.get(), 0xff, bytes, stream);
    cudaError_t const done = cudaStreamSynchronize(stream);
    static_cast<void>(cudaStreamDestroy(stream));
    check_cuda(set, "cuda", "cudaMemsetAsync");
    check_cuda(done, "cuda", "cudaStreamSynchronize");
  }

  int device_ = 0;
  int architecture_ = 0;
  int shared_bytes_ = 0;
  int multiprocessors_ = 0;
  bool overlaps_launches_ = false;
  bool is_hopper_ = false;
  bool reads_all_memory_ = false;
  status_calls calls_;
  cuda_words words_{nullptr, &free_on_device};
  cuda_words mirror_{nullptr, &free_on_host};
  std::mutex mutex_;
};

/// Stands for all programs that use wgmma.
struct specific_program {
  static constexpr int lanes = lanes_in_a_warp;
  static constexpr int from_architecture = 900;
  static constexpr int before_architecture = 1000;
  static constexpr bool needs_specific_architecture = true;
  struct scratch_type {};
  template <Group G>
  TESSERA_FN void operator()(G const&, std::int64_t, scratch_type&) const {}
};

/// Says once what is lost where a source was compiled for a Hopper GPU without its specific instructions.
template <class Architectures>
std::shared_ptr<cuda_state> make_cuda_state() {
  auto state = std::make_shared<cuda_state>();
#if !defined(TESSERA_ACCEPT_SM_90)
  static std::once_flag checked;
  if (state->is_hopper()) {
    std::call_once(checked, [] {
      if (!has_program<Architectures, specific_program>()) {
        std::fputs(
            "tessera: this program was not compiled for sm_90a, so that nothing in it uses wgmma and much is "
            "slow: compile for sm_90a instead of sm_90, or define TESSERA_ACCEPT_SM_90\n",
            stderr);
      }
    });
  }
#endif
  return state;
}

}  // namespace detail

/// Runs programs on one CUDA device, in the order of one stream; `Architectures` are those that this translation unit
/// is compiled for. Copies share the device and the status word.
template <class Architectures>
struct basic_cuda {
  /// Whether the source is compiled for an architecture; 900 is sm_90, with or without its own instructions.
  template <int Architecture>
  static constexpr bool is_compiled_for = detail::has_architecture<Architecture>(Architectures{});

  /// The stream that work is enqueued on; the null stream by default.
  cudaStream_t stream = nullptr;
  /// The resource of buffers and workspaces; read it as `exec.memory()`.
  memory_handle memory = std::make_shared<device_memory>();
  /// The options of the executor: the observer of launches, and whether slower programs run
  /// (exec/execution_options.hpp).
  execution_options options = {};
  /// Not for users: the device (the one that is current here) and the status word, shared by copies of an executor.
  std::shared_ptr<detail::cuda_state> state = detail::make_cuda_state<Architectures>();

  /// Whether there is no device, only a description of one.
  static constexpr bool is_described = detail::is_described_list<Architectures>;
  /// An executor for explain() alone: it chooses programs as on such a device, which need not be there. It has no
  /// memory, and nothing runs on it; no program is compiled for it.
  [[nodiscard]] static auto described(cuda_device_description const& device) {
    execution_options dry;
    dry.is_dry = true;
    return basic_cuda<decltype(detail::described(Architectures{}))>{nullptr, memory_handle{}, dry,
                                                                    std::make_shared<detail::cuda_state>(device)};
  }

  /// Enqueues `program(group, which, scratch)` for each `which` from 0 to `count` - 1.
  template <class P>
  requires ProgramOn<P, typename detail::group_for<P, detail::device_group>::type>
  void run(P const& program, std::int64_t count) const {
    check<shape_error>(count >= 0, "cuda.run: the number of tiles is ", count, " but must not be negative");
    if (count == 0) {
      return;
    }
    detail::tell_launch(options, detail::launch_of<P>(count));
    if (options.is_dry) {
      return;
    }
    if constexpr (is_described) {
      throw device_error("cuda.run: " + detail::name_in(detail::text_with_name<P>()) +
                         " was given to an executor of a described device");
    } else {
      require<P>();
      if constexpr (detail::scratch_follows_group<P>) {
        architecture const code = architecture_of_code<P>();
        launch(detail::cuda_program_of<Architectures>(program, count, require_numbers<P>(code), code));
      } else {
        launch(detail::cuda_program_of<Architectures>(program, count, detail::numbers_of<detail::launch_shape<P>>,
                                                      architecture::host));
      }
    }
  }

  /// Whether the program can run on this device, because it was compiled for the device's architecture.
  template <class P>
  [[nodiscard]] bool has() const {
    if constexpr (is_described) {
      return detail::is_compiled_for<P>(Architectures{}, state->architecture());
    } else {
      return is_in_code<P>();
    }
  }

  /// The architecture for which the code of a program was compiled that runs on this device: sm_80 on a newer device if
  /// nothing newer was compiled; the host where there is no code for the device. A described device takes sm_90 for
  /// sm_90a. The runtime is asked once about a program and a device.
  template <class P>
  [[nodiscard]] architecture architecture_of_code() const {
    if constexpr (is_described) {
      return detail::described_code(Architectures{}, state->architecture());
    } else {
      return find_code<P>();
    }
  }

  /// The refusal of a program that is not compiled for this device, or needs more shared memory than it has, or none.
  template <class P>
  [[nodiscard]] refusal lacks() const {
    return first_of(unless(has<P>(), "the device's architecture", state->architecture(),
                           "one that the program is for and this source was compiled for (sm_90a is 900)"),
                    unless(shared_bytes_of<P>() <= state->shared_bytes(), "a thread block's shared memory in bytes",
                           state->shared_bytes(), "as many as the program needs"));
  }

  /// Waits for the stream. Throws what groups reported since the last call, or an error of the runtime.
  void wait() const {
    if (options.is_dry) {
      return;
    }
    detail::device_guard const guard(state->device());
    state->wait(stream);
  }

  /// The word that programs report to, for a program's member of type `status_word*`. It lies on the device.
  [[nodiscard]] status_word* status() const { return state->status(); }
  /// The word that the programs of a call report to; wait() names the call then.
  [[nodiscard]] status_word* status(status_call const& call) const {
    return is_described ? nullptr : state->status(call);
  }

  /// Enqueues the copy of a contiguous list to another of the same size, in any direction between host and device. Both
  /// must stay until the copy is done. Memory of the host that is not pinned makes the runtime wait.
  template <class Source, class Target>
  void copy(Source const& source, Target&& target) const {
    auto const from = as_array(source);
    auto const to = as_array(target);
    using element = typename decltype(to)::element_type;
    static_assert(std::is_same_v<typename decltype(from)::value_type, element> && std::is_trivially_copyable_v<element>,
                  "tessera: copy takes two lists of the same trivially copyable type");
    check<shape_error>(from.size() == to.size(), "cuda.copy: the source has ", from.size(),
                       " elements but the target has ", to.size());
    check<shape_error>(from.is_contiguous() && to.is_contiguous(), "cuda.copy: the strides are ", from.stride(0),
                       " and ", to.stride(0), " but must be 1");
    detail::tell_bytes(options, from.size() * static_cast<std::int64_t>(sizeof(element)));
    if (from.is_empty() || options.is_dry) {
      return;
    }
    detail::device_guard const guard(state->device());
    check_cuda(cudaMemcpyAsync(to.data, from.data, static_cast<std::size_t>(to.size()) * sizeof(element),
                               cudaMemcpyDefault, stream),
               "cuda.copy", "cudaMemcpyAsync");
  }

  /// Throws value_error where elements lie in memory of the host that the device does not read; see check_reach.hpp.
  /// The runtime is asked once about an address, also while the stream is captured.
  void check_reach(char const* function, char const* what, void const* first) const {
    if (is_described || options.is_dry || state->reads_all_memory()) {
      return;
    }
    detail::reached_addresses::ask_once(first, state->device(), [&] { ask_for_reach(function, what, first); });
  }

  /// Enqueues setting all bytes of a contiguous list to zero.
  template <class Target>
  void clear(Target&& target) const {
    detail::refuse_host_container<basic_cuda, Target>();
    auto const to = as_array(target);
    check<shape_error>(to.is_contiguous(), "cuda.clear: the target has a stride of ", to.stride(0),
                       " but must have a stride of 1");
    detail::tell_bytes(options, to.size() * static_cast<std::int64_t>(sizeof(*to.data)));
    if (to.is_empty() || options.is_dry) {
      return;
    }
    detail::device_guard const guard(state->device());
    check_cuda(cudaMemsetAsync(to.data, 0, static_cast<std::size_t>(to.size()) * sizeof(*to.data), stream),
               "cuda.clear", "cudaMemsetAsync");
  }

 private:
  /// Throws value_error where the runtime does not know the address. An earlier error stays what cudaGetLastError says.
  [[gnu::noinline]] void ask_for_reach(char const* function, char const* what, void const* first) const {
    detail::device_guard const guard(state->device());
    cudaPointerAttributes attributes{};
    cudaError_t const result = cudaPointerGetAttributes(&attributes, first);
    if (result != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // reported here, so that the next call does not report it again
      check_cuda(result, function, "cudaPointerGetAttributes");
    }
    check<value_error>(attributes.type != cudaMemoryTypeUnregistered, function, ": the ", what,
                       " lie in memory of the host, which device ", state->device(),
                       " does not read; copy them to a buffer of the executor");
  }

  /// Whether the device's architecture is one that a program is compiled for, as the runtime says.
  template <class P>
  bool is_in_code() const {
    auto& known = detail::devices_with_program<Architectures, P>;
    std::uint64_t const bit = detail::device_bit(state->device());
    if ((known.load(std::memory_order_relaxed) & bit) != 0) {
      return true;
    }
    detail::device_guard const guard(state->device());
    bool const is_there = detail::has_program<Architectures, P>();
    known.fetch_or(is_there ? bit : 0, std::memory_order_relaxed);
    return is_there;
  }

  /// The architecture of the code that the runtime takes for this device.
  template <class P>
  architecture find_code() const {
    int const device = state->device();
    if (device >= 64) {
      detail::device_guard const guard(device);
      return detail::find_code<Architectures, P>();
    }
    auto& known = detail::code_on_devices<Architectures, P>[device];
    architecture code = known.load(std::memory_order_relaxed);
    if (code == architecture::host) {
      detail::device_guard const guard(device);
      code = detail::find_code<Architectures, P>();
      known.store(code, std::memory_order_relaxed);
    }
    return code;
  }

  /// The numbers of a program's launch in code for an architecture. Throws device_error where there are none.
  template <class P>
  detail::launch_numbers require_numbers(architecture code) const {
    detail::launch_numbers const numbers = detail::numbers_on<P>(detail::known_list<Architectures>{}, code);
    if (numbers.threads == 0) {
      throw device_error(
          join("cuda.run: for ", detail::name_in(detail::text_with_name<P>()), " device ", state->device(),
               " of architecture ", state->architecture(), " takes code of ", detail::name_of(code),
               " but this source was compiled for ", detail::text_of(Architectures{})),
          static_cast<int>(cudaErrorNoKernelImageForDevice));
    }
    return numbers;
  }

  /// The shared memory of a thread block of a program in the code that runs here; 0 where there is no code.
  template <class P>
  int shared_bytes_of() const {
    if constexpr (detail::scratch_follows_group<P>) {
      return detail::numbers_on<P>(detail::known_list<Architectures>{}, architecture_of_code<P>()).shared_bytes;
    } else {
      return detail::launch_shape<P>::shared_bytes;
    }
  }

  /// Throws device_error where a program was not compiled for the device's architecture.
  template <class P>
  void require() const {
    if constexpr (detail::says_architectures<P> || detail::says_specific_architecture<P>) {
      if (!has<P>()) {
        throw device_error(detail::refusal_of<P>(Architectures{}, state->device(), state->architecture()),
                           static_cast<int>(cudaErrorNoKernelImageForDevice));
      }
    }
  }

  /// Enqueues a program on its tiles.
  void launch(detail::cuda_program const& program) const {
    if (program.shared_bytes > state->shared_bytes()) {
      std::string const on =
          program.compiled == architecture::host ? std::string() : " on " + detail::name_of(program.compiled);
      throw device_error(join("cuda.run: the scratch of ", detail::name_in(program.text_with_name), on, " needs ",
                              program.shared_bytes, " bytes of shared memory but device ", state->device(), " has ",
                              state->shared_bytes()));
    }
    detail::device_guard const guard(state->device());
    if (program.asks_for_shared_memory()) {
      std::uint64_t const bit = detail::device_bit(state->device());
      if ((program.devices_asked->load(std::memory_order_relaxed) & bit) == 0) {
        program.ask_for_shared_memory();
        program.devices_asked->fetch_or(bit, std::memory_order_relaxed);
      }
    }
    cudaError_t launched = program.enqueue(stream, state->overlaps_launches());
    if (launched == cudaErrorInvalidValue && program.asks_for_shared_memory()) {
      static_cast<void>(cudaGetLastError());  // cudaDeviceReset takes back what was asked for
      program.ask_for_shared_memory();
      launched = program.enqueue(stream, state->overlaps_launches());
    }
    if (launched != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // reported here, so that the next call does not report it again
      check_cuda(launched, ("cuda.run: " + detail::name_in(program.text_with_name)).c_str(), "cudaLaunchKernelEx");
    }
  }
};

#if defined(__CUDA_ARCH_LIST__)
using cuda = basic_cuda<arch_list<__CUDA_ARCH_LIST__>>;
#else
/// The executor of CUDA, tagged by the architectures of its translation unit.
using cuda = basic_cuda<arch_list<>>;
#endif

/// The executor of devices that are only described, made by `cuda::described()`.
using described_cuda = decltype(cuda::described({}));

}  // namespace v0
}  // namespace tessera
