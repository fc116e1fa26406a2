// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Many tensors at once, and graphs.
// compiled alone: in one source with the tests of single streams cudafe++ of CUDA 13.0 does not end with the headers of
// g++ 13.
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include <tessera/neuzip.hpp>

#include "algorithm/weights/device_weights.cuh"

using namespace tessera;
using tessera_test::cuda_ok;
using tessera_test::device_bytes;
using tessera_test::device_space;
using tessera_test::device_weights;
using tessera_test::encode_on_host;
using tessera_test::weight_array;
using tessera_test::weight_kind;

namespace {

using bf16_array = weight_array<bfloat16>;

/// The tensors of a batch, of very different sizes and kinds; every fifth is too small to be coded.
struct batch {
  std::vector<weight_stream_options> options;
  std::vector<bf16_array> weights;
  std::vector<device_weights<bfloat16>> sources;
  std::vector<device_bytes> streams;
  std::vector<device_weights<bfloat16>> decoded;
  device_bytes sizes;
  std::vector<neuzip::source> encoding;
  std::vector<neuzip::target> decoding;

  explicit batch(int tensors) : sizes(8 * tensors) {
    for (int i = 0; i < tensors; ++i) {
      std::int64_t const count = i % 5 == 4 ? 100 * i : 3000 + 7919 * ((i * 13) % 11) + i;
      options.push_back({.block = 1024 << (i % 4), .checksums = i % 3 == 0});
      weights.emplace_back(tessera_test::weight_kinds[i % 9], static_cast<std::uint64_t>(i), count);
      weight_stream_spec const spec = neuzip::spec(count, options.back());
      sources.emplace_back(weights.back(), i % 4 == 3 ? 1 : 0);
      streams.emplace_back(neuzip::largest_bytes(spec));
      decoded.emplace_back(count, i % 4 == 2 ? 3 : 0);
      encoding.push_back(
          {spec, sources.back().view(), streams.back().view(), {reinterpret_cast<std::int64_t*>(sizes.data()) + i, 1}});
      decoding.push_back({spec, streams.back().view(), decoded.back().view()});
    }
  }

  void run(cuda const& exec) {
    array_view<neuzip::source const> const from(encoding.data(), std::ssize(encoding));
    array_view<neuzip::target const> const to(decoding.data(), std::ssize(decoding));
    device_space const encode_space(neuzip::plan_encode(exec, from));
    device_space const decode_space(neuzip::plan_decode(exec, to));
    neuzip::encode(exec, from, encode_space);
    neuzip::decode(exec, to, decode_space);
    exec.wait();
  }

  void check() const {
    std::vector<std::int64_t> bytes(streams.size());
    sizes.download(bytes.data(), sizes.size());
    REQUIRE(sizes.is_intact_after(sizes.size()));
    for (std::size_t i = 0; i < streams.size(); ++i) {
      INFO("tensor " << i << " of " << streams.size());
      std::vector<std::byte> const expected = encode_on_host<neuzip>(weights[i], options[i]);
      REQUIRE(bytes[i] == std::ssize(expected));
      REQUIRE((streams[i].download(bytes[i]) == expected));
      REQUIRE(streams[i].is_intact_after(bytes[i]));
      REQUIRE((decoded[i].download() == weights[i]));
      REQUIRE(decoded[i].guards_are_intact());
      REQUIRE(sources[i].guards_are_intact());
    }
  }
};

/// A stream of the runtime and what was captured from it.
class captured_work {
 public:
  captured_work() { cuda_ok(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  captured_work(captured_work const&) = delete;
  captured_work& operator=(captured_work const&) = delete;
  ~captured_work() {
    if (graph_ != nullptr) {
      static_cast<void>(cudaGraphExecDestroy(graph_));
    }
    static_cast<void>(cudaStreamDestroy(stream_));
  }
  [[nodiscard]] cudaStream_t stream() const { return stream_; }

  template <class Work>
  void capture(Work&& work) {
    cudaGraph_t graph = nullptr;
    cuda_ok(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    work();
    cuda_ok(cudaStreamEndCapture(stream_, &graph));
    cuda_ok(cudaGraphInstantiate(&graph_, graph, 0));
    cuda_ok(cudaGraphDestroy(graph));
  }
  void replay() const { cuda_ok(cudaGraphLaunch(graph_, stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace

TEST_CASE("batches of any size have the streams and the weights of single tensors", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  for (int tensors : {1, 3, 24, 25, 32, 33, 70}) {
    batch all(tensors);
    all.run(exec);
    all.check();
  }
}

TEST_CASE("encoding twice into the same room gives the same bytes, whatever was there before", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  cuda const exec;
  batch all(7);
  all.run(exec);
  for (std::size_t i = 0; i < all.weights.size(); ++i) {
    all.weights[i] = bf16_array(weight_kind::gauss, 100 + i, all.weights[i].count());
    all.sources[i].upload(all.weights[i]);
    all.streams[i].reset();
  }
  all.run(exec);
  all.check();
}

TEST_CASE("encode and decode are captured in a graph, which then works on other weights", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  captured_work work;
  cuda const exec{.stream = work.stream()};
  batch all(5);
  array_view<neuzip::source const> const from(all.encoding.data(), std::ssize(all.encoding));
  array_view<neuzip::target const> const to(all.decoding.data(), std::ssize(all.decoding));
  device_space const encode_space(neuzip::plan_encode(exec, from));
  device_space const decode_space(neuzip::plan_decode(exec, to));
  cuda_ok(cudaDeviceSynchronize());
  work.capture([&] {
    neuzip::encode(exec, from, encode_space);
    neuzip::decode(exec, to, decode_space);
  });
  for (std::uint64_t replay = 0; replay < 3; ++replay) {
    for (std::size_t i = 0; i < all.weights.size(); ++i) {
      all.weights[i] = bf16_array(tessera_test::weight_kinds[(i + replay) % 9], replay, all.weights[i].count());
      all.sources[i].upload(all.weights[i]);
      all.streams[i].reset();
      all.decoded[i].bytes().reset();
    }
    cuda_ok(cudaDeviceSynchronize());
    work.replay();
    exec.wait();
    all.check();
  }
}
