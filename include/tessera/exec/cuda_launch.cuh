// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How programs become CUDA kernels: the shape of a launch, the architectures that a program is compiled for, and
/// whether a device can run it. `tessera::cuda` (exec/cuda.cuh) launches them.
#pragma once

#if !defined(__CUDACC__)
#error "tessera/exec/cuda_launch.cuh needs a CUDA compiler; code for plain C++ uses tessera/exec/cpu.hpp"
#endif

#include <cuda_runtime.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/concepts/program.hpp>
#include <tessera/core/check.hpp>
#include <tessera/exec/cuda_memory.cuh>
#include <tessera/exec/program_name.hpp>
#include <tessera/tile/cuda/group.cuh>
#include <tessera/tile/cuda/sm_90/dependent_launch.cuh>

namespace tessera {
inline namespace v0 {

/// The architectures that a translation unit is compiled for, as a type. It is part of the name of every function that
/// leads to a launch, so that objects for different architectures can be linked into one program.
template <int... Architectures>
struct arch_list {};

/// The same for executors of devices that are only described: nothing that leads to a launch is compiled for it.
template <int... Architectures>
struct described_arch_list : arch_list<Architectures...> {};

namespace detail {

/// The list of architectures of a described device.
template <int... Architectures>
[[nodiscard]] constexpr described_arch_list<Architectures...> described(arch_list<Architectures...>) {
  return {};
}
template <class Architectures>
inline constexpr bool is_described_list = std::is_same_v<Architectures, decltype(described(Architectures{}))>;

/// The group of so many lanes: a warp where a warp is enough, else a block.
template <int Lanes>
using device_group = std::conditional_t<(Lanes <= lanes_in_a_warp), cuda_warp, cuda_block<Lanes>>;

/// The shared memory that a thread block has without asking for more.
inline constexpr int shared_bytes_without_asking = 48 * 1024;

/// The shape in which a program is launched on the device.
template <DeviceProgram P>
struct launch_shape {
  using scratch_type = typename P::scratch_type;
  static constexpr int scratch_alignment = alignof(scratch_type) > 16 ? alignof(scratch_type) : 16;
  static constexpr int scratch_bytes =
      std::is_empty_v<scratch_type>
          ? 0
          : static_cast<int>((sizeof(scratch_type) + scratch_alignment - 1) / scratch_alignment * scratch_alignment);
  static constexpr bool is_warp = P::lanes == lanes_in_a_warp;

  static constexpr int count_groups() {
    if constexpr (!is_warp) {
      return 1;
    } else if constexpr (requires { P::groups_per_block; }) {
      return P::groups_per_block;
    } else {
      constexpr int most = 8;
      constexpr int fitting = scratch_bytes == 0 ? most : shared_bytes_without_asking / scratch_bytes;
      return fitting < 1 ? 1 : fitting > most ? most : fitting;
    }
  }
  static constexpr int ask_for_blocks() {
    if constexpr (requires { P::blocks_per_multiprocessor; }) {
      return P::blocks_per_multiprocessor;
    } else {
      return 1;
    }
  }
  static constexpr int cluster_blocks() {
    if constexpr (requires { P::blocks_per_cluster; }) {
      return P::blocks_per_cluster;
    } else {
      return 1;
    }
  }
  static constexpr bool persistent() {
    if constexpr (requires { P::is_persistent; }) {
      return P::is_persistent;
    } else {
      return false;
    }
  }
  static constexpr bool waiting() {
    if constexpr (requires { P::waits_for_stream; }) {
      return P::waits_for_stream;
    } else {
      return false;
    }
  }
  static constexpr bool early() {
    if constexpr (requires { P::starts_early; }) {
      return P::starts_early;
    } else {
      return true;
    }
  }
  static constexpr bool is_persistent = persistent();
  static constexpr bool starts_early = early();
  static constexpr bool waits_for_stream = waiting();
  static constexpr int groups = count_groups();
  static constexpr int blocks_per_multiprocessor = ask_for_blocks();
  static constexpr int blocks_per_cluster = cluster_blocks();
  static constexpr int threads = P::lanes * groups;
  static constexpr int exchange_bytes = is_warp ? 0 : threads;  // 32 bytes a warp, see cuda_block
  static constexpr int shared_bytes = scratch_bytes * groups + exchange_bytes;

  static_assert(threads <= device_limits::lanes && shared_bytes <= device_limits::shared_bytes,
                "tessera: groups_per_block of this program have more than 1024 lanes or 227 KiB of shared memory");
  static_assert(!is_persistent || !is_warp, "tessera: a persistent program has whole thread blocks: 64 lanes or more");
};

template <class P>
inline constexpr bool says_architectures = requires {
  P::from_architecture;
  P::before_architecture;
};
template <class P>
inline constexpr bool says_specific_architecture = requires {
  P::needs_specific_architecture;
};

/// Whether a program is meant for an architecture. It may say `from_architecture` and `before_architecture` as static
/// ints, and is then compiled for those alone. A program that says `needs_specific_architecture` is compiled for sm_90a
/// but not for sm_90.
template <class P>
TESSERA_FN constexpr bool is_for_architecture(int architecture, bool specific) {
  bool compiled = true;
  if constexpr (says_architectures<P>) {
    compiled = architecture >= P::from_architecture && architecture < P::before_architecture;
  }
  if constexpr (says_specific_architecture<P>) {
    compiled = compiled && (specific || !P::needs_specific_architecture);
  }
  return compiled;
}

/// Whether a list of architectures has one.
template <int Architecture, int... Architectures>
[[nodiscard]] constexpr bool has_architecture(arch_list<Architectures...>) {
  return ((Architectures == Architecture) || ...);
}

/// Whether a list has an architecture from `first` to below `last`, or is not known.
template <int... Architectures>
[[nodiscard]] constexpr bool may_have_architecture(arch_list<Architectures...>, int first, int last) {
  return sizeof...(Architectures) == 0 || ((Architectures >= first && Architectures < last) || ...);
}

/// Whether code for a list of architectures has a program for one of them, as far as a description of a device tells:
/// sm_90 counts as sm_90a. Code for an older architecture of the same generation runs, too.
template <class P, int... Architectures>
[[nodiscard]] constexpr bool is_compiled_for(arch_list<Architectures...>, int architecture) {
  int best = 0;
  ((best = Architectures <= architecture && Architectures / 100 == architecture / 100 && Architectures > best
               ? Architectures
               : best),
   ...);
  return best > 0 && is_for_architecture<P>(best, true);
}

template <class P>
__device__ __forceinline__ void run_groups(P const& program, std::int64_t const count) {
  using shape = launch_shape<P>;
  using scratch_type = typename P::scratch_type;
  extern __shared__ __align__(1024) unsigned char shared[];
  if constexpr (shape::is_persistent) {
    // There is no loop around the call: ptxas gives warps of one block different numbers of registers only where it
    // sees a single call.
    program(cuda_block<P::lanes>{shared + shape::scratch_bytes}, blockIdx.x, *reinterpret_cast<scratch_type*>(shared));
  } else if constexpr (shape::is_warp) {
    int const warp = __shfl_sync(whole_warp, static_cast<int>(threadIdx.x) / lanes_in_a_warp, 0);
    auto* const scratch = reinterpret_cast<scratch_type*>(shared + warp * shape::scratch_bytes);
    std::int64_t const step = static_cast<std::int64_t>(gridDim.x) * shape::groups;
    std::int64_t which = static_cast<std::int64_t>(blockIdx.x) * shape::groups + warp;
    for (; which < count; which += step) {
      program(cuda_warp{}, which, *scratch);
      __syncwarp();  // the next tile overwrites the scratch
    }
  } else {
    auto* const scratch = reinterpret_cast<scratch_type*>(shared);
    cuda_block<P::lanes> const group{shared + shape::scratch_bytes};
    for (std::int64_t which = blockIdx.x; which < count; which += gridDim.x) {
      program(group, which, *scratch);
      __syncthreads();
    }
  }
}

#pragma GCC visibility push(hidden)  // kernels of two libraries in one process stay apart

/// The only kernel of the library: it runs a program.
template <class Architectures, class P>
__global__ void __launch_bounds__(launch_shape<P>::threads, launch_shape<P>::blocks_per_multiprocessor)
    run_groups_kernel(__grid_constant__ P const program, std::int64_t const count) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__CUDA_ARCH_SPECIFIC__)
  constexpr bool specific = true;
#else
  constexpr bool specific = false;
#endif
#if defined(__CUDA_ARCH__)
  constexpr bool compiled = is_for_architecture<P>(__CUDA_ARCH__, specific);
#else
  constexpr bool compiled = true;
#endif
  if constexpr (!compiled || !launch_shape<P>::waits_for_stream) {
    let_next_kernel_start();
    wait_for_stream();
  }
  if constexpr (compiled) {
    run_groups(program, count);
  } else {
    __shared__ char volatile absent;  // basic_cuda::has() finds its size
    absent = 0;
  }
}

/// For each executor's architectures and program: bit i is set if device i, of the first 64, is known to have the
/// program.
template <class Architectures, class P>
inline std::atomic<std::uint64_t> devices_with_program{0};
/// As devices_with_program, for devices on which the program is allowed the shared memory that it needs beyond 48 KiB.
template <class Architectures, class P>
inline std::atomic<std::uint64_t> devices_with_shared_memory{0};

#pragma GCC visibility pop

/// The bit of a device in such a word; 0 beyond the first 64.
[[nodiscard]] inline std::uint64_t device_bit(int device) {
  return device < 64 ? std::uint64_t{1} << device : 0;
}

/// Whether this device can run a program, because the program was compiled for the device's architecture.
template <class Architectures, class P>
[[nodiscard]] bool has_program() {
  cudaFuncAttributes attributes{};
  auto* const kernel = &run_groups_kernel<Architectures, P>;
  cudaError_t const result = cudaFuncGetAttributes(&attributes, reinterpret_cast<void const*>(kernel));
  if (result == cudaErrorNoKernelImageForDevice || result == cudaErrorInvalidDeviceFunction) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  check_cuda(result, "cuda.has", "cudaFuncGetAttributes");
  return attributes.sharedSizeBytes == 0;
}

/// The name of a program with its template arguments, for messages: "name" of "… [with P = name; ...]".
[[nodiscard]] inline std::string name_in(std::string_view text) {
  std::size_t const first = start_of_name;
  return std::string(text.substr(first, text.find_first_of(";]", first) - first));
}

/// A program and its tiles, as what launches it needs to know them. One type for all programs, so that a program costs
/// few functions of the host.
struct cuda_program {
  void const* kernel;
  void const* program;
  std::int64_t tiles;  ///< as the kernel takes them
  unsigned blocks;
  unsigned threads;  ///< of a block
  unsigned blocks_per_cluster;
  int shared_bytes;
  bool starts_early;
  std::atomic<std::uint64_t>* devices_asked;  ///< devices_with_shared_memory of the program
  std::string_view text_with_name;            ///< for name_in()

  [[nodiscard]] bool asks_for_shared_memory() const { return shared_bytes > shared_bytes_without_asking; }

  void ask_for_shared_memory() const {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "cuda.run",
               "cudaFuncSetAttribute");
  }

  /// Enqueues the program, and says what the runtime says.
  [[nodiscard]] cudaError_t enqueue(cudaStream_t stream, bool overlaps_launches) const {
    std::int64_t count = tiles;
    void* arguments[]{const_cast<void*>(program), &count};
    cudaLaunchAttribute attributes[2]{};
    unsigned used = 0;
    if (blocks_per_cluster > 1) {
      attributes[used].id = cudaLaunchAttributeClusterDimension;
      attributes[used++].val.clusterDim = {blocks_per_cluster, 1, 1};
    }
    if (starts_early && overlaps_launches) {
      attributes[used].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attributes[used++].val.programmaticStreamSerializationAllowed = 1;
    }
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = used;
    return cudaLaunchKernelExC(&config, kernel, arguments);
  }
};

/// A program on `count` tiles, one or more.
template <class Architectures, class P>
[[nodiscard]] cuda_program cuda_program_of(P const& program, std::int64_t count) {
  using shape = launch_shape<P>;
  constexpr std::string_view name = text_with_name<P>();
  std::int64_t const needed = (count - 1) / shape::groups + 1;
  constexpr std::int64_t cluster = shape::blocks_per_cluster;
  constexpr std::int64_t most_blocks = 0x7fffffff / cluster * cluster;
  std::int64_t const whole = (needed - 1) / cluster * cluster + cluster;
  return {reinterpret_cast<void const*>(&run_groups_kernel<Architectures, P>),
          &program,
          cluster > 1 ? whole : count,  // all blocks of a cluster call the program, or none
          static_cast<unsigned>(whole < most_blocks ? whole : most_blocks),
          static_cast<unsigned>(shape::threads),
          static_cast<unsigned>(cluster),
          shape::shared_bytes,
          shape::starts_early,
          &devices_with_shared_memory<Architectures, P>,
          name};
}

/// The sentence that says why a program does not run on a device.
template <class P, int... Architectures>
[[nodiscard]] std::string refusal_of(arch_list<Architectures...>, int device, int architecture) {
  std::string text = "cuda.run: " + name_in(text_with_name<P>()) + " is for";
  if constexpr (says_architectures<P>) {
    text += join(" architectures from ", P::from_architecture, " to below ", P::before_architecture);
    text += says_specific_architecture<P> ? " and" : "";
  }
  if constexpr (says_specific_architecture<P>) {
    text += P::needs_specific_architecture ? " code with features of one architecture alone (sm_90a)" : "";
  }
  std::string list;
  ((list += (list.empty() ? "" : ", ") + std::to_string(Architectures)), ...);
  return join(text, " but device ", device, " has architecture ", architecture, " and the code was compiled for ",
              list);
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
