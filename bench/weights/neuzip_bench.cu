// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// NeuZip on the GPU. TBps counts the bytes of the weights; encoding includes the histogram and the codebook. Every
/// result is checked on the device: decoded weights against the original ones, a stream against that of another run.
#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tessera/neuzip.hpp>
#include <tessera/testing/generators.hpp>

#include "support/codecs.cuh"
#include "support/cuda.cuh"
#include "support/real_weights.hpp"
#include "support/verify.cuh"

namespace {

using tessera::array_view;
using tessera::bfloat16;
using tessera::buffer;

template <class T>
using tensors = std::vector<buffer<T>>;

constexpr std::int64_t mebibyte = std::int64_t{1} << 20;

/// How a benchmark passes its tensors to the codec.
struct calls {
  bool all_at_once = true;  ///< whether all tensors are in one call; else one call follows the other
  bool as_graph = false;    ///< whether many short calls are in a graph

  template <class T>
  int tensors_per_call(tensors<T> const& all) const {
    return all_at_once ? static_cast<int>(all.size()) : 1;
  }
};

/// `count` tensors of `size` random weights.
template <class T, class Generator>
struct random_tensors {
  Generator generator;
  int count;
  std::int64_t size;

  tensors<T> operator()(tessera::cuda const& exec) const {
    tensors<T> made;
    for (int i = 0; i < count; ++i) {
      made.emplace_back(exec, size);
      bench::fill(made.back().data(), static_cast<std::size_t>(size), generator, static_cast<std::uint64_t>(i) + 1,
                  exec.stream);
    }
    return made;
  }
};

struct minilm_tensors {
  tensors<bfloat16> operator()(tessera::cuda const& exec) const {
    tensors<bfloat16> made;
    for (std::vector<std::uint16_t> const& bits : bench::minilm_bf16()) {
      made.emplace_back(exec, std::ssize(bits));
      bench::check(
          cudaMemcpyAsync(made.back().data(), bits.data(), made.back().bytes(), cudaMemcpyHostToDevice, exec.stream),
          "cudaMemcpyAsync");
      exec.wait();  // before `bits` is freed
    }
    return made;
  }
};

/// One tensor of `size` weights, those of MiniLM repeated: no coder here looks for repetitions.
struct repeated_minilm {
  std::int64_t size;

  tensors<bfloat16> operator()(tessera::cuda const& exec) const {
    tensors<bfloat16> const once = minilm_tensors{}(exec);
    tensors<bfloat16> made;
    made.emplace_back(exec, size);
    std::int64_t filled = 0;
    for (std::size_t next = 0; filled < size; next = (next + 1) % once.size()) {
      std::int64_t const count = std::min(once[next].size(), size - filled);
      bench::check(
          cudaMemcpyAsync(made.back().data() + filled, once[next].data(),
                          static_cast<std::size_t>(count) * sizeof(bfloat16), cudaMemcpyDeviceToDevice, exec.stream),
          "cudaMemcpyAsync");
      filled += count;
    }
    exec.wait();  // before `once` is freed
    return made;
  }
};

template <class Elements>
double bytes_of(Elements const& buffers) {
  double total = 0;
  for (auto const& one : buffers) {
    total += static_cast<double>(one.bytes());
  }
  return total;
}

/// Two pools on one stream: one for memory of measured calls, which is counted, and one for set-up and checks.
struct bench_device {
  bench::device_memory memory;
  bench::device_memory aside;
  tessera::cuda exec{.stream = memory.stream(), .memory = memory};
  tessera::cuda exec_aside{.stream = memory.stream(), .memory = aside};
};

/// Encodes tensors, `tensors_per_call` in one call, to room of its own.
template <class Codec>
class encoder {
 public:
  using value_type = typename Codec::value_type;

  encoder(tessera::cuda const& exec, tensors<value_type> const& weights, int tensors_per_call)
      : exec_(exec), per_call_(tensors_per_call), sizes_(exec, std::ssize(weights)) {
    for (buffer<value_type> const& one : weights) {
      auto const spec = Codec::spec(one.size());
      streams_.emplace_back(exec, Codec::largest_bytes(spec));
      auto const index = static_cast<std::int64_t>(sources_.size());
      sources_.push_back({spec, one.view(), streams_.back().view(), {sizes_.data() + index, 1}});
    }
    plan_ = Codec::plan_encode(exec, call(0));
    space_ = buffer<std::byte>(exec, plan_.bytes());
  }

  void operator()(std::int64_t first) { Codec::encode(exec_, call(first), tessera::workspace(plan_, space_)); }

  void all() {
    for (std::int64_t first = 0; first < std::ssize(sources_); first += per_call_) {
      (*this)(first);
    }
  }
  tensors<std::byte> const& streams() const { return streams_; }

  /// Waits, and throws reported errors. Returns the sizes of the streams.
  std::vector<std::int64_t> sizes() {
    std::vector<std::int64_t> result(static_cast<std::size_t>(sizes_.size()));
    exec_.copy(sizes_, result);
    exec_.wait();
    return result;
  }

 private:
  array_view<typename Codec::source const> call(std::int64_t first) const {
    return {sources_.data() + first, per_call_};
  }

  tessera::cuda exec_;
  std::int64_t per_call_;
  buffer<std::int64_t> sizes_;
  tensors<std::byte> streams_;
  std::vector<typename Codec::source> sources_;
  tessera::workspace_plan plan_{"neuzip.encode"};
  buffer<std::byte> space_;
};

/// Decodes streams, `tensors_per_call` in one call, to room of its own.
template <class Codec>
class decoder {
 public:
  using value_type = typename Codec::value_type;

  decoder(tessera::cuda const& exec, tensors<std::byte> const& streams, std::vector<std::int64_t> const& sizes,
          tensors<value_type> const& like, int tensors_per_call)
      : exec_(exec), per_call_(tensors_per_call) {
    for (std::size_t i = 0; i < like.size(); ++i) {
      weights_.emplace_back(exec, like[i].size());
      exec.clear(weights_.back());
      array_view<std::byte const> const stream(streams[i].data(), sizes[i]);
      targets_.push_back({Codec::spec(like[i].size()), stream, weights_.back().view()});
    }
    plan_ = Codec::plan_decode(exec, call(0));
    space_ = buffer<std::byte>(exec, plan_.bytes());
  }

  void operator()(std::int64_t first) { Codec::decode(exec_, call(first), tessera::workspace(plan_, space_)); }

  void all() {
    for (std::int64_t first = 0; first < std::ssize(targets_); first += per_call_) {
      (*this)(first);
    }
  }
  /// Throws unless every tensor has the same bits as the given one.
  void require_result(tensors<value_type> const& expected, bench::device_memory& memory) const {
    exec_.wait();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      bench::require_same_bytes(weights_[i].data(), expected[i].data(), expected[i].bytes(), memory,
                                "decoded tensor " + std::to_string(i));
    }
  }

 private:
  array_view<typename Codec::target const> call(std::int64_t first) const {
    return {targets_.data() + first, per_call_};
  }

  tessera::cuda exec_;
  std::int64_t per_call_;
  tensors<value_type> weights_;
  std::vector<typename Codec::target> targets_;
  tessera::workspace_plan plan_{"neuzip.decode"};
  buffer<std::byte> space_;
};

/// The seconds of one call: `body(first)` codes the tensors from `first` on.
template <class Body>
double measure(benchmark::State& state, cudaStream_t stream, calls how, std::size_t tensor_count, Body& body) {
  if (!how.as_graph) {
    return bench::time_cold(state, stream, [&](cudaStream_t) { body(0); });
  }
  int const different = how.all_at_once ? 1 : static_cast<int>(tensor_count);
  return bench::time_graph(state, stream, std::max(64, different), [&](cudaStream_t, int i) { body(i % different); });
}

/// Reports what both operations have: rates of a call, sizes of all tensors.
template <class T>
void report(benchmark::State& state, bench_device& device, double seconds, calls how, tensors<T> const& weights,
            std::vector<std::int64_t> const& sizes) {
  double stored = 0;
  for (std::int64_t const size : sizes) {
    stored += static_cast<double>(size);
  }
  double const bytes = bytes_of(weights);
  double const share = how.tensors_per_call(weights) / static_cast<double>(weights.size());
  bench::report_cuda(state, seconds,
                     {.bytes = bytes * share,
                      .traffic_bytes = (bytes + stored) * share,
                      .peak_bytes = how.as_graph ? 0 : device.memory.peak_bytes()});
  bench::entropy_bound<T> bound(device.aside);
  for (buffer<T> const& one : weights) {
    bound.add(one.data(), static_cast<std::size_t>(one.size()));
  }
  state.counters["bits_per_weight"] = 8 * stored * sizeof(T) / bytes;
  state.counters["entropy_bits"] = bound.bits();
}

template <class Codec, class Make>
void encode(benchmark::State& state, Make const& make, calls how) {
  bench_device device;
  auto const weights = make(device.exec);
  encoder<Codec> measured(device.exec, weights, how.tensors_per_call(weights));
  device.exec.wait();
  double const seconds = measure(state, device.exec.stream, how, weights.size(), measured);
  auto const sizes = measured.sizes();

  encoder<Codec> again(device.exec_aside, weights, how.tensors_per_call(weights));
  again.all();
  if (again.sizes() != sizes) {
    throw std::runtime_error("two runs made streams of different sizes");
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    bench::require_same_bytes(measured.streams()[i].data(), again.streams()[i].data(),
                              static_cast<std::size_t>(sizes[i]), device.aside, "stream " + std::to_string(i));
  }
  decoder<Codec> back(device.exec_aside, measured.streams(), sizes, weights, how.tensors_per_call(weights));
  back.all();
  back.require_result(weights, device.aside);
  report(state, device, seconds, how, weights, sizes);
}

template <class Codec, class Make>
void decode(benchmark::State& state, Make const& make, calls how) {
  bench_device device;
  auto const weights = make(device.exec_aside);
  encoder<Codec> prepare(device.exec_aside, weights, how.tensors_per_call(weights));
  prepare.all();
  auto const sizes = prepare.sizes();
  tensors<std::byte> streams;  // streams without the spare room of encoding
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    streams.emplace_back(device.exec, sizes[i]);
    device.exec.copy(array_view<std::byte const>(prepare.streams()[i].data(), sizes[i]), streams.back());
  }
  decoder<Codec> measured(device.exec, streams, sizes, weights, how.tensors_per_call(weights));
  device.exec.wait();
  double const seconds = measure(state, device.exec.stream, how, weights.size(), measured);
  measured.require_result(weights, device.aside);
  report(state, device, seconds, how, weights, sizes);
}

/// Normal weights of which one in a hundred is an exact zero.
struct gauss_with_zeros {
  tessera::testing::gauss others;

  TESSERA_FN constexpr float value(std::uint64_t seed, std::uint64_t index) const {
    return tessera::testing::hash(seed + 1000, index) % 100 == 0 ? 0.0F : others.value(seed, index);
  }
};

/// Adds `<program>/encode.../<name>` and `.../decode.../<name>`.
template <class Codec, class Make>
void add_both(std::string const& suffix, std::string const& name, Make make, calls how) {
  bench::add_cuda("neuzip/decode" + suffix + "/" + name,
                  [=](benchmark::State& state) { decode<Codec>(state, make, how); });
  bench::add_cuda("neuzip/encode" + suffix + "/" + name,
                  [=](benchmark::State& state) { encode<Codec>(state, make, how); });
}

/// One tensor of 512 MiB.
template <class Codec, class Generator>
void add_large(std::string const& suffix, std::string const& data, Generator generator) {
  using value_type = typename Codec::value_type;
  std::string const format = tessera::scalar_traits<value_type>::name();
  constexpr std::int64_t size = 512 * mebibyte / static_cast<std::int64_t>(sizeof(value_type));
  add_both<Codec>(suffix, format + "/" + data + "/512MiB", random_tensors<value_type, Generator>{generator, 1, size},
                  {});
}

/// A tensor too small to be timed alone, in so many copies that the L2 cache holds few of them.
template <class Codec, class Generator>
void add_small(std::int64_t side, Generator generator) {
  using value_type = typename Codec::value_type;
  auto const bytes = side * side * static_cast<std::int64_t>(sizeof(value_type));
  auto const count = static_cast<int>(256 * mebibyte / bytes);
  std::string const extents = std::to_string(side) + "x" + std::to_string(side);
  add_both<Codec>("", std::string(tessera::scalar_traits<value_type>::name()) + "/gauss/" + extents,
                  random_tensors<value_type, Generator>{generator, count, side * side},
                  {.all_at_once = false, .as_graph = true});
}

bench::registration const registered([] {
  using tessera::neuzip;
  using tessera::neuzip_of;
  using tessera::testing::gauss;
  gauss const weights{.sigma = 0.02};
  gauss const scaled{.sigma = 1.0};  // weights in fp8 come with a scale
  add_large<neuzip>("", "gauss", weights);
  add_large<neuzip>("", "gauss_with_zeros", gauss_with_zeros{weights});  // next to those without zeros
  add_both<neuzip>("", "bf16/gauss/32x32MiB", random_tensors<bfloat16, gauss>{weights, 32, 16 * mebibyte}, {});
  add_small<neuzip>(4096, weights);
  add_small<neuzip>(1024, weights);
  add_large<neuzip_of<tessera::float16>>("", "gauss", weights);
  add_large<neuzip_of<float>>("", "gauss", weights);
  add_large<neuzip_of<tessera::float8_e4m3>>("", "gauss", scaled);
  add_large<neuzip_of<tessera::float8_e5m2>>("", "gauss", scaled);
  add_large<neuzip>("", "laplace", tessera::testing::laplace{.scale = 0.02});
  add_large<neuzip>("", "student_t", tessera::testing::student_t{.freedom = 4, .scale = 0.02});
  add_large<tessera::neuzip_fixed<bfloat16>>("_fixed", "gauss", weights);
  add_both<neuzip>("", "bf16/minilm/512MiB", repeated_minilm{256 * mebibyte}, {});
  add_both<neuzip>("", "bf16/minilm/all", minilm_tensors{}, {.as_graph = true});  // small tensors, all together
});

}  // namespace
