// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Measures the loss of a classifier that is spread over two GPUs by NCCL, each with half of the vocabulary.
///
/// `ms` is the median of calls on the slower GPU, in turns with those of the exact cross-entropy of half of the
/// vocabulary alone, `alone_ms`, which both GPUs run at the same time. `efficiency` is the second over the first.
/// `extra_MiB` is what a GPU's plan says. The gradient of hidden states is reduced in the end, or `beside` products, on
/// a side queue. With less than two GPUs there is nothing to measure.
#include <algorithm>
#include <cstdint>
#include <exception>
#include <nccl.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/algorithm/loss/vocabulary_parallel.hpp>
#include <tessera/comm/nccl.cuh>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/side_queue.hpp>

#include "support/cuda.cuh"
#include "support/loss_problem.cuh"
#include "support/loss_runs.cuh"

namespace {

using namespace tessera;

constexpr int gpus = 2;

/// What is measured.
enum class passes { forward, both, both_beside };

/// What a GPU measures.
struct measurement {
  bench::race seconds{};
  double loss = 0;
  double extra_bytes = 0;
  std::string thrown;
};

/// Runs on the thread of a rank, whose GPU has its number.
void measure_rank(ncclComm_t comm, int rank, linear_loss_shape const& shape, passes which, measurement& found) {
  bool const has_backward = which != passes::forward;
  using loss = vocabulary_parallel<exact_cross_entropy>;
  bench::check(cudaSetDevice(rank), "cudaSetDevice");
  linear_loss_shape const own{shape.tokens, shape.vocabulary / gpus, shape.channels};
  bench::loss_problem problem(bench::loss_data::spread, own);
  cuda const& exec = problem.exec();
  nccl ranks(comm);
  buffer<bfloat16> hidden(exec, problem.hidden().size());
  buffer<bfloat16> classifier(exec, problem.classifier().size());
  linear_loss_gradients<bfloat16> const out{{hidden.data(), {own.tokens, own.channels}},
                                            {classifier.data(), {own.vocabulary, own.channels}}};
  auto const plan = has_backward ? loss::plan_backward(exec, gpus, own, {}) : loss::plan_forward(exec, gpus, own, {});
  auto const alone = has_backward ? exact_cross_entropy::plan_backward(exec, own, {})
                                  : exact_cross_entropy::plan_forward(exec, own, {});
  buffer<std::byte> memory(exec, plan.bytes());
  buffer<std::byte> alone_memory(exec, alone.bytes());
  workspace const space(plan, memory);
  workspace const alone_space(alone, alone_memory);
  buffer<float> value(exec, 1);
  buffer<float> alone_value(exec, 1);
  vocabulary_part const part{rank * own.vocabulary, shape.vocabulary};
  side_queue<cuda> const side(exec, loss::side_marks, true);
  found.seconds = bench::alternate(
      problem.memory().stream(),
      [&] {
        loss::forward(exec, ranks, problem.inputs(), part, {}, {.loss = value.view()}, space);
        if (which == passes::both) {
          loss::backward(exec, ranks, problem.inputs(), part, {}, {}, out, space);
        } else if (which == passes::both_beside) {
          loss::backward(exec, side, ranks, problem.inputs(), part, {}, {}, out, space);
        }
      },
      [&] {
        bench::run_forward<exact_cross_entropy>(exec, problem.inputs(), {}, {.loss = alone_value.view()}, alone_space);
        if (has_backward) {
          bench::run_backward<exact_cross_entropy>(exec, problem.inputs(), {}, out, alone_space);
        }
      });
  float of_all = 0;
  bench::check(cudaMemcpy(&of_all, value.data(), sizeof of_all, cudaMemcpyDeviceToHost), "cudaMemcpy");
  exec.wait();
  ranks.check_now();
  found.loss = static_cast<double>(of_all);
  found.extra_bytes = static_cast<double>(plan.bytes());
}

void measure(benchmark::State& state, linear_loss_shape const& shape, passes which) {
  std::vector<ncclComm_t> comms(gpus);
  if (ncclCommInitAll(comms.data(), gpus, nullptr) != ncclSuccess) {
    throw std::runtime_error("ncclCommInitAll failed");
  }
  std::vector<measurement> found(gpus);
  for (auto _ : state) {
    std::vector<std::thread> workers;
    for (int rank = 0; rank < gpus; ++rank) {
      workers.emplace_back([&, rank] {
        try {
          measure_rank(comms[static_cast<std::size_t>(rank)], rank, shape, which,
                       found[static_cast<std::size_t>(rank)]);
        } catch (std::exception const& thrown) {
          found[static_cast<std::size_t>(rank)].thrown = thrown.what();
        }
      });
    }
    for (std::thread& worker : workers) {
      worker.join();
    }
    state.SetIterationTime(std::max(found[0].seconds.ours, found[1].seconds.ours));
  }
  for (ncclComm_t const comm : comms) {
    static_cast<void>(ncclCommDestroy(comm));
  }
  bench::check(cudaSetDevice(0), "cudaSetDevice");
  for (measurement const& of_rank : found) {
    if (!of_rank.thrown.empty()) {
      throw std::runtime_error(of_rank.thrown);
    }
  }
  if (found[0].loss != found[1].loss) {
    throw std::runtime_error("the ranks' losses are " + std::to_string(found[0].loss) + " and " +
                             std::to_string(found[1].loss));
  }
  double const ours = std::max(found[0].seconds.ours, found[1].seconds.ours);
  double const alone = std::max(found[0].seconds.peer, found[1].seconds.peer);
  constexpr double mebibyte = 1 << 20;
  state.counters["ms"] = 1e3 * ours;
  state.counters["alone_ms"] = 1e3 * alone;
  state.counters["efficiency"] = alone / ours;
  state.counters["extra_MiB"] = found[0].extra_bytes / mebibyte;
  state.counters["loss"] = found[0].loss;
  double const product = 2.0 * static_cast<double>(shape.tokens) * static_cast<double>(shape.vocabulary) *
                         static_cast<double>(shape.channels);
  bench::report_cuda(state, ours, {.operations = (which == passes::forward ? 1 : 4) * product});
}

bench::registration const registered([] {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < gpus) {
    return;
  }
  for (linear_loss_shape const& shape : {linear_loss_shape{8192, 256000, 2304}, {8192, 128256, 4096}}) {
    std::string const size =
        std::to_string(shape.tokens) + "x" + std::to_string(shape.vocabulary) + "x" + std::to_string(shape.channels);
    for (auto const& [which, name] : {std::pair{passes::forward, "forward_exact"},
                                      {passes::both, "forward_backward_exact"},
                                      {passes::both_beside, "forward_backward_exact_beside"}}) {
      bench::add_cuda(
          std::string("vocabulary_parallel/") + name + "/bf16/spread/" + std::to_string(gpus) + "gpus/" + size,
          [shape, which = which](benchmark::State& state) { measure(state, shape, which); });
    }
  }
});

}  // namespace
