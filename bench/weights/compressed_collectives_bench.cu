// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Measures collectives of compressed weights against NCCL's own, on two GPUs: all_gather, reduce_scatter, broadcast.
///
/// `ms` is the median of calls on the slower GPU, in turns with those of NCCL (`nccl_ms`), and `over_nccl` the second
/// over the first. `GBps` counts the bytes of the weights that a GPU gets from the other one. `sent` is the share of a
/// list's bytes that was sent, `needed` what bodies of the right size would have been. Names end with what the options
/// are: `default`, `for_copy_engines` and `for_slow_wires` of the library, or what is changed in them. What comes is
/// compared with what NCCL brings, bit for bit.
///
/// With for_copy_engines the workspace is registered at a communicator whose policy is to take no thread block. NCCL's
/// own collective is that of a communicator as it comes, of lists that are not registered. With for_peer_memory the
/// workspace is registered, too. `nccl_registered_ms` and
/// `over_nccl_registered` are of the communicator with this policy, and of lists that are registered.
///
/// With NCCL_P2P_DISABLE=1 in the environment names say `pcie`, else `nvlink`: the GPUs of one host then exchange
/// through its memory, at the rate of PCIe. With less than two GPUs there is nothing to measure.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <nccl.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/algorithm/weights/compressed_all_gather.hpp>
#include <tessera/algorithm/weights/compressed_broadcast.hpp>
#include <tessera/algorithm/weights/compressed_reduce_scatter.hpp>
#include <tessera/comm/nccl.cuh>
#include <tessera/comm/nccl_memory.cuh>
#include <tessera/exec/buffer.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/testing/generators.hpp>

#include "support/codecs.cuh"
#include "support/cuda.cuh"
#include "support/verify.cuh"

namespace {

using namespace tessera;

constexpr int gpus = 2;
constexpr std::int64_t mebibyte = std::int64_t{1} << 20;

/// What a GPU measures.
struct measurement {
  bench::race seconds{};
  double registered = 0;  ///< seconds of NCCL's own collective of registered lists, where that was measured
  compressed_traffic traffic;
  double extra_bytes = 0;
  std::string thrown;
};

/// The communicators of a rank: as NCCL makes them, and one that leaves the work to copy engines where it can.
struct rank_comms {
  ncclComm_t usual = nullptr;
  ncclComm_t of_engines = nullptr;  ///< null: not for this measurement
};

/// A rank's executor, lists and communicators.
struct rank_problem {
  bench::device_memory memory;
  cuda exec;
  rank_comms comms;
  nccl usual;
  nccl ranks;  ///< that of the compressed collective
  std::int64_t count;
  compressed_collective_options options;

  rank_problem(rank_comms const& given_comms, std::int64_t bytes, compressed_collective_options const& given)
      : exec{.stream = memory.stream()},
        comms(given_comms),
        usual(comms.usual),
        ranks(comms.of_engines != nullptr ? comms.of_engines : comms.usual),
        count(bytes / std::int64_t{sizeof(bfloat16)}),
        options(given) {}

  /// N(0, 0.02), others on each rank.
  void fill(buffer<bfloat16>& list, std::uint64_t seed) const {
    bench::fill(list.data(), static_cast<std::size_t>(list.size()), testing::gauss{.sigma = 0.02},
                seed + static_cast<std::uint64_t>(ranks.rank()), exec.stream);
  }
  [[nodiscard]] ncclComm_t ranks_comm() const { return comms.of_engines != nullptr ? comms.of_engines : comms.usual; }
  void check_same(buffer<bfloat16> const& found, buffer<bfloat16> const& wanted) {
    bench::require_same_bytes(found.data(), wanted.data(), static_cast<std::size_t>(found.size()) * sizeof(bfloat16),
                              memory, "what came and what NCCL sends");
  }
};

/// Runs a collective in turns with NCCL's: ours(wire, space), which says what it sent, and theirs().
template <class Collective, class Ours, class Theirs>
void race(rank_problem& problem, measurement& found, Ours const& ours, Theirs const& theirs) {
  side_queue<cuda> const wire(problem.exec, Collective::side_marks, true);
  workspace_plan const plan = Collective::plan(problem.exec, gpus, problem.count, problem.options);
  bool const is_registered = problem.comms.of_engines != nullptr || problem.options.stores_to_peers;
  buffer<std::byte> memory(problem.exec, is_registered ? 0 : plan.bytes());
  nccl_memory const registered(problem.ranks_comm(), is_registered ? plan.bytes() : 0);
  workspace const space(plan, is_registered ? registered.view() : memory.view());
  problem.ranks.use(registered);
  found.extra_bytes = static_cast<double>(plan.bytes());
  found.traffic = ours(wire, space);
  theirs();
  problem.exec.wait();
  found.seconds = bench::alternate(
      problem.exec.stream, [&] { static_cast<void>(ours(wire, space)); }, theirs);
  problem.exec.wait();
  problem.ranks.check_now();
}

/// Measures NCCL's own all_gather where both lists are registered and copy engines send.
void gather_registered(rank_problem& p, buffer<bfloat16> const& list, measurement& found) {
  std::int64_t const bytes = p.count * std::int64_t{sizeof(bfloat16)};
  nccl_memory const own(p.comms.of_engines, bytes);
  nccl_memory const all(p.comms.of_engines, gpus * bytes);
  p.exec.copy(array_view<std::byte const>(reinterpret_cast<std::byte const*>(list.data()), bytes), own.view());
  auto const once = [&] { p.ranks.all_gather(p.exec, array_view<std::byte const>(own.view()), all.view()); };
  found.registered = bench::alternate(p.exec.stream, once, once).peer;
  p.exec.wait();
}

void gather(rank_problem& p, measurement& found) {
  using collective = compressed_all_gather<neuzip>;
  buffer<bfloat16> own(p.exec, p.count);
  buffer<bfloat16> all(p.exec, gpus * p.count);
  buffer<bfloat16> of_nccl(p.exec, gpus * p.count);
  p.fill(own, 1);
  race<collective>(
      p, found,
      [&](auto const& wire, workspace const& space) {
        return collective::exchange(p.exec, wire, p.ranks, own.view(), all.view(), p.options, space);
      },
      [&] { p.usual.all_gather(p.exec, array_view<bfloat16 const>(own.view()), of_nccl.view()); });
  p.check_same(all, of_nccl);
  if (p.comms.of_engines != nullptr) {
    gather_registered(p, own, found);
  }
}

void reduce(rank_problem& p, measurement& found) {
  using collective = compressed_reduce_scatter<neuzip>;
  buffer<bfloat16> all(p.exec, gpus * p.count);
  buffer<bfloat16> part(p.exec, p.count);
  buffer<bfloat16> of_nccl(p.exec, p.count);
  p.fill(all, 1);
  race<collective>(
      p, found,
      [&](auto const& wire, workspace const& space) {
        return collective::exchange(p.exec, wire, p.ranks, all.view(), part.view(), p.options, space);
      },
      [&] {
        p.usual.reduce_scatter(p.exec, array_view<bfloat16 const>(all.view()), rank_reduction::sum, of_nccl.view());
      });
  p.check_same(part, of_nccl);  // with two ranks there is one order and one rounding
}

void broadcast(rank_problem& p, measurement& found) {
  using collective = compressed_broadcast<neuzip>;
  buffer<bfloat16> list(p.exec, p.count);
  buffer<bfloat16> of_nccl(p.exec, p.count);
  p.fill(list, 1);
  p.fill(of_nccl, 1);
  race<collective>(
      p, found,
      [&](auto const& wire, workspace const& space) {
        return collective::exchange(p.exec, wire, p.ranks, 0, list.view(), p.options, space);
      },
      [&] {  // with two ranks a broadcast is one message
        if (p.ranks.rank() == 0) {
          p.ranks.send(p.exec, array_view<bfloat16 const>(of_nccl.view()), 1);
        } else {
          p.ranks.receive(p.exec, 0, of_nccl.view());
        }
      });
  p.check_same(list, of_nccl);
}

using rank_run = void (*)(rank_problem&, measurement&);

/// Communicators of all GPUs with a policy for thread blocks.
std::vector<ncclComm_t> make_comms(int policy) {
  std::vector<ncclComm_t> comms(gpus);
  ncclUniqueId id{};
  bool is_made = ncclGetUniqueId(&id) == ncclSuccess && ncclGroupStart() == ncclSuccess;
  for (int rank = 0; rank < gpus && is_made; ++rank) {
    bench::check(cudaSetDevice(rank), "cudaSetDevice");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.CTAPolicy = policy;
    is_made = ncclCommInitRankConfig(&comms[static_cast<std::size_t>(rank)], gpus, id, rank, &config) == ncclSuccess;
  }
  bench::check(cudaSetDevice(0), "cudaSetDevice");
  if (!is_made || ncclGroupEnd() != ncclSuccess) {
    throw std::runtime_error("NCCL makes no communicators");
  }
  return comms;
}

/// Communicators of all GPUs with a policy for thread blocks. They are made once and stay, since making them takes
/// longer than a measurement.
std::vector<ncclComm_t> const& comms_of(int policy) {
  static std::map<int, std::vector<ncclComm_t>> made;
  if (made[policy].empty()) {
    made[policy] = make_comms(policy);
  }
  return made[policy];
}

void measure(benchmark::State& state, rank_run run, std::int64_t bytes, compressed_collective_options const& options,
             bool has_engines) {
  std::vector<ncclComm_t> const usual = comms_of(NCCL_CTA_POLICY_DEFAULT);
  std::vector<ncclComm_t> const of_engines = has_engines ? comms_of(NCCL_CTA_POLICY_ZERO) : std::vector<ncclComm_t>();
  std::vector<measurement> found(gpus);
  for (auto _ : state) {
    std::vector<std::thread> workers;
    for (std::size_t rank = 0; rank < gpus; ++rank) {
      workers.emplace_back([&, rank] {
        try {
          bench::check(cudaSetDevice(static_cast<int>(rank)), "cudaSetDevice");
          rank_problem problem({usual[rank], has_engines ? of_engines[rank] : nullptr}, bytes, options);
          run(problem, found[rank]);
        } catch (std::exception const& thrown) {
          found[rank].thrown = thrown.what();
        }
      });
    }
    for (std::thread& worker : workers) {
      worker.join();
    }
    state.SetIterationTime(std::max(found[0].seconds.ours, found[1].seconds.ours));
  }
  bench::check(cudaSetDevice(0), "cudaSetDevice");
  for (measurement const& of_rank : found) {
    if (!of_rank.thrown.empty()) {
      throw std::runtime_error(of_rank.thrown);
    }
  }
  double const ours = std::max(found[0].seconds.ours, found[1].seconds.ours);
  double const theirs = std::max(found[0].seconds.peer, found[1].seconds.peer);
  auto const share = [&](std::int64_t part) {
    return static_cast<double>(part) / static_cast<double>(found[0].traffic.weights);
  };
  state.counters["ms"] = 1e3 * ours;
  state.counters["nccl_ms"] = 1e3 * theirs;
  state.counters["over_nccl"] = theirs / ours;
  state.counters["GBps"] = static_cast<double>(bytes) / ours * 1e-9;
  state.counters["nccl_GBps"] = static_cast<double>(bytes) / theirs * 1e-9;
  if (double const registered = std::max(found[0].registered, found[1].registered); registered > 0) {
    state.counters["nccl_registered_ms"] = 1e3 * registered;
    state.counters["over_nccl_registered"] = registered / ours;
  }
  state.counters["sent"] = share(found[0].traffic.sent);
  state.counters["needed"] = share(found[0].traffic.needed);
  state.counters["extra_MiB"] = found[0].extra_bytes / static_cast<double>(mebibyte);
}

bench::registration const registered([] {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < gpus) {
    return;
  }
  char const* const without_peers = std::getenv("NCCL_P2P_DISABLE");
  std::string const wire = without_peers != nullptr && without_peers[0] == '1' ? "pcie" : "nvlink";
  using options_type = compressed_collective_options;
  auto const add = [&](std::string const& name, rank_run run, std::int64_t size, options_type const& options,
                       std::string const& end) {
    std::string const text = size < 1024 ? std::to_string(size) + "MiB" : std::to_string(size / 1024) + "GiB";
    bool const has_engines = end.starts_with("for_copy_engines") || end.starts_with("for_peer_memory");
    bench::add_cuda("compressed_collectives/" + name + "/bf16/gauss/" + wire + "/" + std::to_string(gpus) + "gpus/" +
                        text + "/" + end,
                    [=](benchmark::State& state) { measure(state, run, size * mebibyte, options, has_engines); });
  };
  for (std::int64_t const size : {64, 256, 1024}) {
    for (auto const& [name, run] : {std::pair<char const*, rank_run>{"all_gather", &gather},
                                    {"reduce_scatter", &reduce},
                                    {"broadcast", &broadcast}}) {
      add(name, run, size, {}, "default");
      if (wire == "pcie") {
        add(name, run, size, options_type::for_slow_wires(), "for_slow_wires");
      }
    }
    if (wire == "nvlink") {
      add("all_gather", &gather, size, options_type::for_copy_engines(), "for_copy_engines");
      add("all_gather", &gather, size, options_type::for_peer_memory(), "for_peer_memory");
      add("reduce_scatter", &reduce, size, options_type::for_peer_memory(), "for_peer_memory");
    }
  }
  if (wire == "pcie") {
    return;
  }
  for (std::int64_t const size : {16, 64, 256, 1024}) {
    for (std::int64_t const head : {0, 8, 16, 32, 64}) {
      for (std::int64_t const chunk : {32, 64, 128, 256, 1024}) {
        for (int const spared : {0, 32, 48, 64, 80}) {
          if (size * mebibyte >= 4 * head * mebibyte && (chunk == 32 || size > 2 * chunk || chunk == 1024)) {
            auto options = options_type::for_peer_memory();
            options.smallest_bytes = 0;
            options.head_bytes = head * mebibyte;
            options.chunk_bytes = chunk * mebibyte;
            options.spared_multiprocessors = spared;
            std::string const end = "for_peer_memory_head" + std::to_string(head) + "_chunk" + std::to_string(chunk) +
                                    "_spared" + std::to_string(spared);
            add("all_gather", &gather, size, options, end);
            add("reduce_scatter", &reduce, size, options, end);
          }
        }
      }
    }
  }
  for (std::int64_t const size : {32, 128}) {  // from where on it gains
    auto options = options_type::for_copy_engines();
    options.smallest_bytes = 0;
    add("all_gather", &gather, size, options, "for_copy_engines_of_any_size");
  }
  for (std::int64_t const size : {64, 256, 1024}) {  // what the defaults were chosen among
    for (std::int64_t const head : {8, 16, 32}) {
      for (std::int64_t const chunk : {16, 32, 64}) {
        auto options = options_type::for_copy_engines();
        options.head_bytes = head * mebibyte;
        options.chunk_bytes = chunk * mebibyte;
        add("all_gather", &gather, size, options,
            "for_copy_engines_head" + std::to_string(head) + "_chunk" + std::to_string(chunk));
      }
    }
    for (int const spared : {0, 32}) {
      for (bool const sends_to_each : {false, true}) {
        options_type options;
        options.smallest_bytes = 0;
        options.spared_multiprocessors = spared;
        options.sends_to_each = sends_to_each;
        add("all_gather", &gather, size, options,
            "default_spared" + std::to_string(spared) + (sends_to_each ? "" : "_by_all_gather"));
      }
    }
  }
});

}  // namespace
