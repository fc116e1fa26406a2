// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include <tessera/algorithm/weights/parameter_store.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/neuzip.hpp>
#include <tessera/testing/generators.hpp>

#include "algorithm/weights/parameter_samples.hpp"
#include "support/catch.hpp"
#include "support/codecs.cuh"
#include "support/cuda.hpp"
#include "support/tiny_network.hpp"

using namespace tessera;
using tessera_test::cuda_ok;
using tessera_test::gaussian;
using tessera_test::incompressible;
using tessera_test::llama_3_8b;
using tessera_test::on;
using tessera_test::overhead_of;
using tessera_test::to_host;

namespace {

using store_type = parameter_store<neuzip, tessera::cuda>;

bool same_bits(std::vector<bfloat16> const& a, std::vector<bfloat16> const& b) {
  bool same = a.size() == b.size();
  for (std::size_t i = 0; same && i < a.size(); ++i) {
    same = a[i].bits == b[i].bits;
  }
  return same;
}

bool store_holds(tessera::cuda const& exec, store_type& store, parameter_id id, std::vector<bfloat16> const& expected) {
  auto const lease = store.acquire(id);
  return same_bits(to_host(exec, lease.weights()), expected);
}

void overwrite(tessera::cuda const& exec, store_type& store, parameter_id id, std::vector<bfloat16> const& values) {
  auto const lease = store.acquire(id);
  exec.copy(values, lease.weights());
  store.update(id, lease);
}

/// Memory of the device that ends after `left` more allocations.
struct scarce_memory {
  device_memory source;
  int left = std::numeric_limits<int>::max();

  void* allocate(std::size_t bytes, std::size_t alignment, stream_handle stream) {
    if (left-- <= 0) {
      throw std::bad_alloc();
    }
    return source.allocate(bytes, alignment, stream);
  }
  void deallocate(void* pointer, std::size_t bytes, std::size_t alignment, stream_handle stream) noexcept {
    source.deallocate(pointer, bytes, alignment, stream);
  }
};

template <class Codec>
void check_training() {
  using T = typename Codec::value_type;
  tessera::cuda const exec;
  tessera_test::plain_parameters<T, tessera::cuda> plain(exec);
  tessera_test::stored_parameters<Codec, tessera::cuda> stored(exec);
  auto const expected = tessera_test::train<T>(exec, plain, 24);
  auto const found = tessera_test::train<T>(exec, stored, 24);
  CHECK(found.weights == expected.weights);
  CHECK(found.last == expected.last);
  CHECK(found.loss == expected.loss);
  CHECK(expected.loss.back() < 0.5F * expected.loss.front());

  cpu const host{.threads = 2};
  tessera_test::plain_parameters<T, cpu> on_host(host);
  CHECK(tessera_test::train<T>(host, on_host, 24).weights == found.weights);
}

/// A stream that is destroyed at the end of the scope.
struct own_stream {
  cudaStream_t handle = nullptr;
  own_stream() { cuda_ok(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking)); }
  own_stream(own_stream const&) = delete;
  own_stream& operator=(own_stream const&) = delete;
  ~own_stream() { static_cast<void>(cudaStreamDestroy(handle)); }
};

/// Two updates of a training step without the network, the second parameter prefetched.
template <class Store>
void two_updates(Store& store, array_view<float const> gradient) {
  {
    auto const lease = store.acquire({0});
    store.prefetch({1});
    store.sgd_update({0}, lease, gradient, 0.05F);
  }
  auto const lease = store.acquire({1});
  store.sgd_update({1}, lease, gradient, 0.05F);
}

}  // namespace

TEST_CASE("a network trained on a GPU out of a store has the same bits as without one, and as on the CPU", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_training<neuzip>();
  check_training<neuzip_of<float>>();
  check_training<neuzip_of<float16>>();
  check_training<neuzip_fixed<bfloat16>>();
}

TEST_CASE("acquire, prefetch and update can be captured in a graph and replayed", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  constexpr std::int64_t count = 50'001;
  std::vector<float> gradient(count);
  testing::fill(testing::gauss{.sigma = 0.01}, 9, gradient.data(), gradient.size());
  own_stream const stream;
  tessera::cuda const exec{.stream = stream.handle};
  buffer<float> const device_gradient = on(exec, gradient);
  store_type store(exec, {.slack = 0.1});
  parameter_store<neuzip, cpu> host_store(cpu{.threads = 2}, {.slack = 0.1});
  for (std::uint64_t i = 0; i < 2; ++i) {
    store.add("w" + std::to_string(i), on(exec, gaussian(count, i)));
    host_store.add("w" + std::to_string(i), gaussian(count, i));
  }
  cuda_ok(cudaStreamBeginCapture(stream.handle, cudaStreamCaptureModeGlobal));
  two_updates(store, device_gradient.view());
  cudaGraph_t graph = nullptr;
  cuda_ok(cudaStreamEndCapture(stream.handle, &graph));
  cudaGraphExec_t replay = nullptr;
  cuda_ok(cudaGraphInstantiate(&replay, graph, 0));
  for (int step = 0; step < 5; ++step) {
    cuda_ok(cudaGraphLaunch(replay, stream.handle));
    two_updates(host_store, array_view<float const>(gradient));
  }
  store.wait();
  cuda_ok(cudaGraphExecDestroy(replay));
  cuda_ok(cudaGraphDestroy(graph));
  for (std::int64_t i = 0; i < 2; ++i) {
    auto const host_lease = host_store.acquire({i});
    auto const expected = to_host(cpu{}, host_lease.weights());
    CHECK_FALSE(same_bits(expected, gaussian(count, static_cast<std::uint64_t>(i))));
    CHECK(store_holds(exec, store, {i}, expected));
    CHECK(store.bytes_compressed({i}) == host_store.bytes_compressed({i}));
  }
}

TEST_CASE("a stream that outgrows its slot on a GPU is not lost", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  store_type store(exec, {.block = 1024});
  auto const a = store.add("a", on(exec, gaussian(200'000, 1)));
  auto const b = store.add("b", on(exec, gaussian(30'000, 2)));
  auto const before = store.bytes_compressed(a);
  overwrite(exec, store, a, incompressible(200'000, 4));
  overwrite(exec, store, b, incompressible(30'000, 5));
  CHECK(store_holds(exec, store, a, incompressible(200'000, 4)));
  CHECK(store.prefetch(b));
  CHECK(store_holds(exec, store, b, incompressible(30'000, 5)));
  overwrite(exec, store, b, gaussian(30'000, 7));
  CHECK(store.bytes_compressed(a) == before);
  CHECK(store.resolve() == 1);
  CHECK(store.bytes_compressed(a) > before);
  CHECK(store_holds(exec, store, a, incompressible(200'000, 4)));
  CHECK(store_holds(exec, store, b, gaussian(30'000, 7)));
  CHECK(store.resolve() == 0);
}

TEST_CASE("an update that nothing on the GPU has room for is refused and reported", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  store_type store(exec, {.overflow_tensors = 0, .block = 1024});
  auto const a = store.add("a", on(exec, gaussian(20'000, 1)));
  overwrite(exec, store, a, incompressible(20'000, 3));
  CHECK_THROWS_AS(store.wait(), shape_error);
  CHECK(store_holds(exec, store, a, gaussian(20'000, 1)));
}

TEST_CASE("a store on a GPU counts its memory to the byte, and allocates none while it is used", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  device_memory pool;
  tracking_memory counted{pool};
  tessera::cuda const exec{.memory = counted};
  auto const weights = gaussian(300'000, 1);
  {
    auto const plain = on(exec, weights);
    auto const others = static_cast<std::int64_t>(plain.bytes());
    counted.reset_peak();
    store_type store(exec);
    auto const a = store.add("a", plain);
    auto const b = store.add("b", plain);
    CHECK(store.bytes().total() + others == static_cast<std::int64_t>(counted.current_bytes()));
    CHECK(store.peak_bytes() + others == static_cast<std::int64_t>(counted.peak_bytes()));
    CHECK(store.peak_bytes() == store.bytes().total());
    CHECK(store.bytes_compressed(a) < 300'000 * 2 * 7 / 10);
    auto const allocations = counted.allocations();
    for (int step = 0; step < 3; ++step) {
      auto const lease = store.acquire(a);
      CHECK(store.prefetch(b));
      store.update(a, lease);
      auto const second = store.acquire(b);
      store.update(b, second);
    }
    CHECK(counted.allocations() == allocations);
    CHECK(store_holds(exec, store, a, weights));
    CHECK(store_holds(exec, store, b, weights));
  }
  exec.wait();
  CHECK(counted.current_bytes() == 0);
}

TEST_CASE("an add that finds no memory on a GPU changes nothing, whichever allocation fails", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  scarce_memory memory;
  tessera::cuda const exec{.memory = memory};
  auto const added = on(exec, gaussian(20'000, 4));
  bool was_added = false;
  for (int allocations = 0; !was_added; ++allocations) {
    CAPTURE(allocations);
    REQUIRE(allocations < 100);
    store_type store(exec, {.block = 1024});
    auto const a = store.add("a", on(exec, gaussian(3000, 1)));
    auto const b = store.add("b", on(exec, gaussian(5000, 2)));
    overwrite(exec, store, b, incompressible(5000, 3));  // goes to the overflow arena, so that add resolves first
    CHECK(store.prefetch(a));
    memory.left = allocations;
    try {
      static_cast<void>(store.add("new", added));
      was_added = true;
    } catch (std::bad_alloc const&) {
      CHECK(store.size() == 2);
    }
    memory.left = std::numeric_limits<int>::max();
    CHECK(store_holds(exec, store, a, gaussian(3000, 1)));
    CHECK(store_holds(exec, store, b, incompressible(5000, 3)));
    overwrite(exec, store, a, incompressible(3000, 5));
    CHECK(store_holds(exec, store, a, incompressible(3000, 5)));
    auto const c = was_added ? store.find("new") : store.add("new", added);
    CHECK(store_holds(exec, store, c, gaussian(20'000, 4)));
    CHECK(store_holds(exec, store, a, incompressible(3000, 5)));
    store.wait();
  }
}

TEST_CASE("parameters on a GPU that overflow after a resolve share no part of the arena", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  store_type store(exec, {.overflow_tensors = 2, .block = 1024});
  auto const a = store.add("a", on(exec, gaussian(20'000, 1)));
  auto const b = store.add("b", on(exec, gaussian(20'000, 2)));
  overwrite(exec, store, a, incompressible(20'000, 3));
  overwrite(exec, store, a, gaussian(20'000, 4));  // it fits again, so that resolve() leaves its slot as it is
  CHECK(store.resolve() == 0);
  overwrite(exec, store, b, incompressible(20'000, 5));
  overwrite(exec, store, a, incompressible(20'000, 6));
  CHECK(store_holds(exec, store, b, incompressible(20'000, 5)));
  CHECK(store_holds(exec, store, a, incompressible(20'000, 6)));
}

TEST_CASE("parameters of several parts are updated on a GPU as one", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  store_type store(exec, {.overflow_tensors = 0, .block = 1024, .part = 8192});
  auto const a = store.add("a", on(exec, gaussian(52'000, 1)));
  auto const b = store.add("b", on(exec, gaussian(9000, 2)));
  overwrite(exec, store, a, gaussian(52'000, 3));
  CHECK(store.prefetch(b));
  CHECK(store_holds(exec, store, a, gaussian(52'000, 3)));
  auto values = gaussian(52'000, 4);
  auto const last = incompressible(2800, 5);
  std::copy(last.begin(), last.end(), values.end() - 2800);  // there is no room for the last part
  overwrite(exec, store, a, values);
  CHECK_THROWS_AS(store.wait(), shape_error);
  CHECK(store_holds(exec, store, a, gaussian(52'000, 3)));
  CHECK(store_holds(exec, store, b, gaussian(9000, 2)));

  store_type roomy(exec, {.overflow_tensors = 4, .block = 1024, .part = 8192});
  auto const c = roomy.add("c", on(exec, gaussian(52'000, 1)));
  overwrite(exec, roomy, c, values);
  CHECK(store_holds(exec, roomy, c, values));
  CHECK(roomy.resolve() == 1);
  CHECK(store_holds(exec, roomy, c, values));
  roomy.wait();
}

TEST_CASE("parameters of different sizes share scratch on a GPU while others are prefetched", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  std::vector<std::vector<bfloat16>> const weights{gaussian(3'000'000, 1), gaussian(70'000, 2), gaussian(2'000'000, 3),
                                                   gaussian(2'999'999, 4), gaussian(11, 5)};
  store_type store(exec);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    store.add("w" + std::to_string(i), on(exec, weights[i]));
  }
  auto const count = static_cast<std::uint64_t>(weights.size());
  store_type::lease held;
  for (std::uint64_t step = 0; step < 200; ++step) {
    std::uint64_t const chosen = testing::hash(5, step);
    auto const i = static_cast<std::size_t>(chosen % count);
    parameter_id const id{static_cast<std::int64_t>(i)};
    if (held.is_held() && held.parameter() == id) {
      continue;
    }
    if (chosen / count % 2 == 0) {
      CHECK(store.prefetch(id));
      continue;
    }
    auto const next = store.acquire(id);
    store.prefetch({static_cast<std::int64_t>(chosen / count / 2 % count)});
    CAPTURE(step, i);
    CHECK(same_bits(to_host(exec, next.weights()), weights[i]));
    if (held.is_held()) {
      auto const former = static_cast<std::size_t>(held.parameter().number);
      CHECK(same_bits(to_host(exec, held.weights()), weights[former]));
      held.release();
    } else if (chosen / 64 % 2 == 0) {
      held = store.acquire({static_cast<std::int64_t>((i + 1) % weights.size())});
    }
  }
  store.wait();
}

TEST_CASE("a store's memory on a GPU beside the streams is what its documentation says", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  tessera::cuda const exec;
  auto const of_one = [&](std::int64_t count, parameter_store_options const& options) {
    return overhead_of(store_type::plan(exec, {count}, options), 2.0 * static_cast<double>(count));
  };
  CHECK(of_one(14336 * 4096, {}) == 3001);
  CHECK(of_one(14336 * 4096, {.overflow_tensors = 0}) == 2001);
  CHECK(of_one(14336 * 4096, {.updates = false}) == 1001);
  CHECK(of_one(128256 * 4096, {}) == 1256);
  CHECK(of_one(128256 * 4096, {.overflow_tensors = 0}) == 1128);
  CHECK(of_one(128256 * 4096, {.part = std::int64_t{1} << 30}) == 3001);
  auto const model = llama_3_8b();
  auto const of_llama = [&](parameter_store_options const& options) {
    return overhead_of(store_type::plan(exec, model.counts, options), model.raw_bytes);
  };
  CHECK(of_llama({}) == 148);
  CHECK(of_llama({.overflow_tensors = 0}) == 139);
  CHECK(of_llama({.scratch_slots = 1}) == 82);
  CHECK(of_llama({.updates = false}) == 131);
  CHECK(of_llama({.scratch_slots = 1, .updates = false}) == 65);
  CHECK(of_llama({.part = std::int64_t{1} << 30}) == 262);
}
