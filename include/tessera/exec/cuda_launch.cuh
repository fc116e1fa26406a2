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
#include <initializer_list>
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

/// The group of so many lanes on an architecture: a warp where a warp is enough, else a block.
template <int Lanes, architecture Compiled>
using device_group_on =
    std::conditional_t<(Lanes <= lanes_in_a_warp), cuda_warp_on<Compiled>, cuda_block_on<Lanes, Compiled>>;
/// The same where this code is compiled.
template <int Lanes>
using device_group = device_group_on<Lanes, compiled_architecture>;

/// The shared memory that a thread block has without asking for more.
inline constexpr int shared_bytes_without_asking = 48 * 1024;

/// The shape in which a program is launched on the device. Compiled: of which architecture the code is that runs, where
/// the program's scratch follows the group; the host where it does not, and the shape is one for all.
template <DeviceProgram P, architecture Compiled = architecture::host>
struct launch_shape {
  static_assert(scratch_follows_group<P> == (Compiled != architecture::host),
                "tessera: the shape of this launch depends on the architecture, see shape_on");
  using scratch_type = scratch_for<P, device_group_on<P::lanes, Compiled>>;
  static_assert(std::is_trivially_default_constructible_v<scratch_type>,
                "tessera: a program's scratch is a trivial type on each architecture");
  static_assert(sizeof(scratch_type) == sizeof(scratch_for<P, group_archetype_on<P::lanes, Compiled>>),
                "tessera: a program's scratch_for depends on the size and the architecture of the group alone");
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

  static constexpr int most_shared_bytes =
      Compiled == architecture::host ? device_limits::shared_bytes : device_limits::shared_bytes_on(Compiled);

  static_assert(threads <= device_limits::lanes && shared_bytes <= most_shared_bytes,
                "tessera: groups_per_block of this program have more than 1024 lanes or more shared memory than a "
                "thread block has, which is 227 KiB at most");
  static_assert(!is_persistent || !is_warp, "tessera: a persistent program has whole thread blocks: 64 lanes or more");
};

/// The shape of a program in code for an architecture.
template <class P, architecture Compiled>
using shape_on = launch_shape<P, scratch_follows_group<P> ? Compiled : architecture::host>;

/// The architecture whose shape a kernel takes that is compiled for one: this one if the program is for it, else any
/// that it is for, since nothing runs there.
template <class P, architecture Compiled>
[[nodiscard]] TESSERA_FN constexpr architecture find_shape_architecture() {
  architecture found = architecture::host;
  for (architecture const tag :
       {architecture::sm_120, architecture::sm_100a, architecture::sm_100, architecture::sm_90a, architecture::sm_90,
        architecture::sm_89, architecture::sm_86, architecture::sm_80, Compiled}) {
    found = is_for_architecture<P>(tag) ? tag : found;
  }
  return found;
}
/// The shape of a program's kernel where this code is compiled.
template <class P>
using kernel_shape = shape_on<P, find_shape_architecture<P, compiled_architecture>()>;

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

/// The architecture of the code that a device would take which is only described, from a list that may have it; sm_90
/// counts as sm_90a. Code for an older architecture of the same generation runs, too. The host where there is none.
template <int... Architectures>
[[nodiscard]] constexpr architecture described_code(arch_list<Architectures...>, int of_device) {
  int best = 0;
  ((best = Architectures <= of_device && Architectures / 100 == of_device / 100 && Architectures > best ? Architectures
                                                                                                        : best),
   ...);
  return architecture_numbered(best, best == 900);
}
/// Whether code for a list of architectures has a program for the described device.
template <class P, class Architectures>
[[nodiscard]] constexpr bool is_compiled_for(Architectures architectures, int of_device) {
  architecture const code = described_code(architectures, of_device);
  return code != architecture::host && is_for_architecture<P>(code);
}

/// The argument Compiled keeps what is compiled for two architectures apart.
template <architecture Compiled, class P>
__device__ __forceinline__ void run_groups(P const& program, std::int64_t const count) {
  using shape = shape_on<P, Compiled>;
  using scratch_type = scratch_for<P, device_group<P::lanes>>;
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

/// Such a list where it is not known.
using named_architectures = arch_list<800, 860, 870, 890, 900, 1000, 1030, 1100, 1200, 1210>;
template <class Architectures>
using known_list = std::conditional_t<std::is_same_v<Architectures, arch_list<>>, named_architectures, Architectures>;

inline constexpr int absent_unit = 1024;  // kernels' shared memory is aligned so, to which ptxas may round it up

/// The static shared memory of the kernel of a program that is not compiled for an architecture of a list, which the
/// runtime tells. It is how the host learns for which architecture the code is that the runtime takes for a device.
/// (cudaFuncGetAttributes tells neither sm_90a from sm_90, nor for which architecture an sm_86 binary was written.)
template <int... Architectures>
[[nodiscard]] TESSERA_FN constexpr int absent_bytes(arch_list<Architectures...>, architecture tag) {
  static_assert(sizeof...(Architectures) <= 23, "tessera: sources are compiled for up to 23 architectures");
  int units = 0;
  int found = 0;
  ((units += 2, found = architecture_numbered(Architectures) == tag ? units - 1 : found,
    found = architecture_numbered(Architectures, true) == tag ? units : found),
   ...);
  return absent_unit * (found > 0 ? found : units + 1);
}
/// The architecture of a list of which a kernel has so much; the host where it is none of them.
template <int... Architectures>
[[nodiscard]] constexpr architecture architecture_of_absent(arch_list<Architectures...>, int bytes) {
  int units = bytes / absent_unit;
  architecture found = architecture::host;
  ((found = units == 1   ? architecture_numbered(Architectures)
            : units == 2 ? architecture_numbered(Architectures, true)
                         : found,
    units -= 2),
   ...);
  return found;
}
static_assert(architecture_of_absent(arch_list<800, 900>{}, absent_bytes(arch_list<800, 900>{}, architecture::sm_80)) ==
                  architecture::sm_80 &&
              architecture_of_absent(arch_list<800, 900>{},
                                     absent_bytes(arch_list<800, 900>{}, architecture::sm_90a)) ==
                  architecture::sm_90a &&
              architecture_of_absent(arch_list<800, 900>{}, absent_bytes(arch_list<800, 900>{}, architecture::sm_86)) ==
                  architecture::host);

#pragma GCC visibility push(hidden)  // kernels of two libraries in one process stay apart

/// The only kernel of the library: it runs a program.
template <class Architectures, class P>
__global__ void __launch_bounds__(kernel_shape<P>::threads, kernel_shape<P>::blocks_per_multiprocessor)
    run_groups_kernel(__grid_constant__ P const program, std::int64_t const count) {
#if defined(__CUDA_ARCH__)
  constexpr bool compiled = is_for_architecture<P>(compiled_architecture);
#else
  constexpr bool compiled = !scratch_follows_group<P> || is_for_architecture<P>(compiled_architecture);
#endif
  if constexpr (!compiled || !kernel_shape<P>::waits_for_stream) {
    let_next_kernel_start();
    wait_for_stream();
  }
  if constexpr (compiled) {
    run_groups<compiled_architecture>(program, count);
  } else {
    // basic_cuda::has() finds its size.
    __shared__ char volatile absent[absent_bytes(known_list<Architectures>{}, compiled_architecture)];
    absent[0] = 0;
  }
}

/// For each executor's architectures and program: bit i is set if device i, of the first 64, is known to have the
/// program.
template <class Architectures, class P>
inline std::atomic<std::uint64_t> devices_with_program{0};
/// As devices_with_program, for devices on which the program is allowed the shared memory that it needs beyond 48 KiB.
template <class Architectures, class P>
inline std::atomic<std::uint64_t> devices_with_shared_memory{0};
/// The architecture of the program's code on each of the first 64 devices; the host where it is not known yet.
template <class Architectures, class P>
inline std::atomic<architecture> code_on_devices[64]{};

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

/// Is compiled for no architecture, wherever P is: its kernel says which code the runtime takes.
template <class P>
struct code_probe {
  static constexpr int lanes = lanes_in_a_warp;
  static constexpr int from_architecture = 1;
  static constexpr int before_architecture = 2;
  struct scratch_type {};
  template <Group G>
  TESSERA_FN void operator()(G const&, std::int64_t, scratch_type&) const {}
};

/// The architecture for which the code of a program was compiled that the runtime takes for this device; the host where
/// there is none.
template <class Architectures, class P>
[[nodiscard]] architecture find_code() {
  cudaFuncAttributes attributes{};
  auto* const kernel = &run_groups_kernel<Architectures, code_probe<P>>;
  cudaError_t const result = cudaFuncGetAttributes(&attributes, reinterpret_cast<void const*>(kernel));
  if (result == cudaErrorNoKernelImageForDevice || result == cudaErrorInvalidDeviceFunction) {
    static_cast<void>(cudaGetLastError());
    return architecture::host;
  }
  check_cuda(result, "cuda.run", "cudaFuncGetAttributes");
  return architecture_of_absent(known_list<Architectures>{}, static_cast<int>(attributes.sharedSizeBytes));
}

/// The name of a program with its template arguments, for messages: "name" of "… [with P = name; ...]".
[[nodiscard]] inline std::string name_in(std::string_view text) {
  std::size_t const first = start_of_name;
  return std::string(text.substr(first, text.find_first_of(";]", first) - first));
}

/// What of a launch depends on the architecture of the code that runs. No threads: it is not known.
struct launch_numbers {
  int groups;   ///< of a thread block
  int threads;  ///< of a thread block
  int shared_bytes;
};
template <class Shape>
inline constexpr launch_numbers numbers_of{Shape::groups, Shape::threads, Shape::shared_bytes};

/// Takes the numbers of a program in code for `Compiled`, if that is the tag and the program is for it.
template <class P, architecture Compiled>
void take_numbers(architecture tag, launch_numbers& found) {
  if constexpr (is_for_architecture<P>(Compiled) && (number_of(Compiled) >= 900 || !is_specific(Compiled))) {
    found = tag == Compiled ? numbers_of<launch_shape<P, Compiled>> : found;
  }
}

/// The numbers of a program whose scratch follows the group, in code for one of a list of architectures.
template <class P, int... Architectures>
[[nodiscard]] launch_numbers numbers_on(arch_list<Architectures...>, architecture tag) {
  launch_numbers found{};
  (take_numbers<P, architecture_numbered(Architectures)>(tag, found), ...);
  (take_numbers<P, architecture_numbered(Architectures, true)>(tag, found), ...);
  return found;
}
/// Whether the name of a type has a group of CUDA in it, which another architecture names otherwise.
[[nodiscard]] constexpr bool names_group(std::string_view text) {
  return text.find("cuda_warp_on<") != text.npos || text.find("cuda_block_on<") != text.npos ||
         text.find("cuda_warpgroup_on<") != text.npos;
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
  architecture compiled;  ///< for which the code is, where the scratch follows the group; else the host
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

/// A program on `count` tiles, one or more. `numbers`: of the code for `compiled`.
template <class Architectures, class P>
[[nodiscard]] cuda_program cuda_program_of(P const& program, std::int64_t count, launch_numbers const& numbers,
                                           architecture compiled) {
  using shape = kernel_shape<P>;
  constexpr std::string_view name = text_with_name<P>();
  static_assert(!names_group(name),
                "tessera: the type of a program is the same on every architecture, and does not name cuda_warp, "
                "cuda_block or cuda_warpgroup");
  std::int64_t const needed = (count - 1) / numbers.groups + 1;
  constexpr std::int64_t cluster = shape::blocks_per_cluster;
  constexpr std::int64_t most_blocks = 0x7fffffff / cluster * cluster;
  std::int64_t const whole = (needed - 1) / cluster * cluster + cluster;
  return {reinterpret_cast<void const*>(&run_groups_kernel<Architectures, P>),
          &program,
          cluster > 1 ? whole : count,  // all blocks of a cluster call the program, or none
          static_cast<unsigned>(whole < most_blocks ? whole : most_blocks),
          static_cast<unsigned>(numbers.threads),
          static_cast<unsigned>(cluster),
          numbers.shared_bytes,
          compiled,
          shape::starts_early,
          &devices_with_shared_memory<Architectures, P>,
          name};
}

/// The name of an architecture, as nvcc spells it.
[[nodiscard]] inline std::string name_of(architecture tag) {
  return join("sm_", number_of(tag) / 10, is_specific(tag) ? "a" : "");
}

/// The architectures of a list, for messages.
template <int... Architectures>
[[nodiscard]] std::string text_of(arch_list<Architectures...>) {
  std::string list;
  ((list += (list.empty() ? "" : ", ") + std::to_string(Architectures)), ...);
  return list;
}

/// The sentence that says why a program does not run on a device.
template <class P, int... Architectures>
[[nodiscard]] std::string refusal_of(arch_list<Architectures...> architectures, int device, int of_device) {
  std::string text = "cuda.run: " + name_in(text_with_name<P>()) + " is for";
  if constexpr (says_architectures<P>) {
    text += join(" architectures from ", P::from_architecture, " to below ", P::before_architecture);
    text += says_specific_architecture<P> ? " and" : "";
  }
  if constexpr (says_specific_architecture<P>) {
    text += P::needs_specific_architecture ? " code with features of one architecture alone (sm_90a)" : "";
  }
  return join(text, " but device ", device, " has architecture ", of_device, " and the code was compiled for ",
              text_of(architectures));
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
