// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Encoding and decoding of weights that keep few mantissa bits, beside lossless encoding and decoding of as many
/// weights: what it costs to exchange keep_mantissa. TBps counts the bytes of weights; `vs_lossless` is our rate over
/// the lossless one, call by call in turn. Decoded weights are checked on the device against keep_mantissa, weight by
/// weight.
#include <cstdint>
#include <string>

#include <tessera/entropy/block_normalizer.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/testing/generators.hpp>

#include "support/codecs.cuh"
#include "support/cuda.cuh"
#include "support/verify.cuh"

namespace {

using namespace tessera;

/// The weights as they are after encoding and decoding. A thread has the weights of a normalizer, or as many without.
template <class T, class Mantissa>
__global__ void keep_weights(T const* from, T* to, std::int64_t blocks, int block, bool is_normalized) {
  using bits_type = typename scalar_traits<T>::bits_type;
  using normalizers = block_normalizer<T>;
  std::int64_t const step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t which = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; which < blocks; which += step) {
    T const* const weights = from + which * block;
    auto largest = normalizers::identity();
    for (int i = 0; i < block; ++i) {
      largest = normalizers::push(largest, to_bits(weights[i]));
    }
    std::uint32_t const normalizer = normalizers::normalizer(largest);
    for (int i = 0; i < block; ++i) {
      std::uint32_t const bits = to_bits(weights[i]);
      std::uint32_t const kept = is_normalized
                                     ? Mantissa::template restore_normalized<T>(
                                           Mantissa::template quantize_normalized<T>(bits, normalizer), normalizer)
                                     : Mantissa::template restore<T>(Mantissa::template quantize<T>(bits));
      to[which * block + i] = from_bits<T>(static_cast<bits_type>(kept));
    }
  }
}

/// Weights, their stream, and room for what is decoded.
template <class Codec>
class decoding {
 public:
  using value_type = typename Codec::value_type;

  decoding(tessera::cuda const& exec, buffer<value_type> const& weights, weight_stream_options options)
      : exec_(exec), spec_(Codec::spec(weights.size(), options)), decoded_(exec, weights.size()) {
    stream_ = Codec::encode(exec, array_view<value_type const>(weights.data(), weights.size()), options);
    plan_ = Codec::plan_decode(exec, spec_);
    space_ = buffer<std::byte>(exec, plan_.bytes());
  }
  void operator()() { Codec::decode(exec_, spec_, stream_, decoded_, workspace(plan_, space_)); }

  [[nodiscard]] buffer<value_type> const& decoded() const { return decoded_; }
  [[nodiscard]] double stream_bytes() const { return static_cast<double>(stream_.bytes()); }

 private:
  tessera::cuda exec_;
  weight_stream_spec spec_;
  buffer<value_type> decoded_;
  buffer<std::byte> stream_;
  workspace_plan plan_{"neuzip.decode"};
  buffer<std::byte> space_;
};

/// Weights, and room for their stream.
template <class Codec>
class encoding {
 public:
  using value_type = typename Codec::value_type;

  encoding(tessera::cuda const& exec, buffer<value_type> const& weights, weight_stream_options options)
      : exec_(exec),
        spec_(Codec::spec(weights.size(), options)),
        weights_(weights.data(), weights.size()),
        stream_(exec, Codec::largest_bytes(spec_)),
        bytes_(exec, 1),
        plan_(Codec::plan_encode(exec, spec_)),
        space_(exec, plan_.bytes()) {}
  void operator()() { Codec::encode(exec_, spec_, weights_, stream_, bytes_, workspace(plan_, space_)); }

  /// The bytes of the stream. Waits.
  [[nodiscard]] double stream_bytes() const {
    std::int64_t found = 0;
    exec_.copy(bytes_, array_view<std::int64_t>(&found, 1));
    exec_.wait();
    return static_cast<double>(found);
  }
  /// Decodes the stream. Waits.
  void decode(buffer<value_type>& to) const {
    Codec::decode(exec_, stream_.view().slice(0, 0, static_cast<std::int64_t>(stream_bytes())), to.view());
  }

 private:
  tessera::cuda exec_;
  weight_stream_spec spec_;
  array_view<value_type const> weights_;
  buffer<std::byte> stream_;
  buffer<std::int64_t> bytes_;
  workspace_plan plan_;
  buffer<std::byte> space_;
};

template <class T>
constexpr std::int64_t measured_count = (std::int64_t{512} << 20) / std::int64_t{sizeof(T)};

/// The weights as a lossy codec must decode them.
template <class T, int Kept>
buffer<T> kept_weights(tessera::cuda const& exec, buffer<T> const& weights, int normalizer_block) {
  constexpr int unnormalized_block = 512;
  buffer<T> expected(exec, weights.size());
  int const block = normalizer_block > 0 ? normalizer_block : unnormalized_block;
  keep_weights<T, keep_mantissa<Kept>><<<1024, 256, 0, exec.stream>>>(
      weights.data(), expected.data(), weights.size() / block, block, normalizer_block > 0);
  bench::check(cudaGetLastError(), "keep_weights");
  return expected;
}

/// Counters of lossy coding in turns with lossless coding.
template <class T>
void report(benchmark::State& state, bench::race const& seconds, buffer<T> const& weights, double stream_bytes) {
  auto const bytes = static_cast<double>(weights.bytes());
  bench::report_cuda(state, seconds.ours, {.bytes = bytes, .traffic_bytes = bytes + stream_bytes});
  state.counters["bits_per_weight"] = 8 * stream_bytes / static_cast<double>(weights.size());
  state.counters["lossless_TBps"] = bytes / seconds.peer * 1e-12;
  state.counters["vs_lossless"] = seconds.peer / seconds.ours;
}

/// Times two calls in turns, the first of which is measured.
template <class Ours, class Peer>
bench::race race_of(benchmark::State& state, tessera::cuda const& exec, Ours const& ours, Peer const& peer) {
  bench::race seconds{};
  for (auto _ : state) {
    seconds = bench::alternate(exec.stream, ours, peer);
    state.SetIterationTime(seconds.ours);
  }
  exec.wait();
  return seconds;
}

template <class T, int Kept>
void measure_encoding(benchmark::State& state, int normalizer_block) {
  constexpr std::int64_t count = measured_count<T>;
  bench::device_memory memory;
  tessera::cuda const exec{.stream = memory.stream(), .memory = memory};
  buffer<T> weights(exec, count);
  bench::fill(weights.data(), static_cast<std::size_t>(count), testing::gauss{.sigma = 0.02}, 1, exec.stream);
  encoding<neuzip_lossy<Kept, T>> lossy(exec, weights, {.normalizer_block = normalizer_block});
  encoding<neuzip_of<T>> lossless(exec, weights, {});
  bench::race const seconds = race_of(
      state, exec, [&] { lossy(); }, [&] { lossless(); });
  buffer<T> decoded(exec, count);
  lossy.decode(decoded);
  buffer<T> const expected = kept_weights<T, Kept>(exec, weights, normalizer_block);
  bench::require_same_bytes(decoded.data(), expected.data(), expected.bytes(), memory, "decoded weights");
  report(state, seconds, weights, lossy.stream_bytes());
}

template <class T, int Kept>
void measure(benchmark::State& state, int normalizer_block) {
  constexpr std::int64_t count = measured_count<T>;
  bench::device_memory memory;
  tessera::cuda const exec{.stream = memory.stream(), .memory = memory};
  buffer<T> weights(exec, count);
  bench::fill(weights.data(), static_cast<std::size_t>(count), testing::gauss{.sigma = 0.02}, 1, exec.stream);
  decoding<neuzip_lossy<Kept, T>> lossy(exec, weights, {.normalizer_block = normalizer_block});
  decoding<neuzip_of<T>> lossless(exec, weights, {});
  bench::race const seconds = race_of(
      state, exec, [&] { lossy(); }, [&] { lossless(); });
  buffer<T> const expected = kept_weights<T, Kept>(exec, weights, normalizer_block);
  bench::require_same_bytes(lossy.decoded().data(), expected.data(), expected.bytes(), memory, "decoded weights");
  bench::require_same_bytes(lossless.decoded().data(), weights.data(), weights.bytes(), memory, "lossless weights");
  report(state, seconds, weights, lossy.stream_bytes());
}

template <class T, int Kept>
void add(int normalizer_block) {
  std::string const name = std::string(scalar_traits<T>::name()) + "/gauss/kept" + std::to_string(Kept) +
                           (normalizer_block > 0 ? "/normalized" + std::to_string(normalizer_block) : "");
  bench::add_cuda("neuzip/decode_lossy/" + name,
                  [=](benchmark::State& state) { measure<T, Kept>(state, normalizer_block); });
  bench::add_cuda("neuzip/encode_lossy/" + name,
                  [=](benchmark::State& state) { measure_encoding<T, Kept>(state, normalizer_block); });
}

bench::registration const registered([] {
  add<bfloat16, 3>(0);
  add<bfloat16, 3>(512);
  add<bfloat16, 0>(0);
  add<bfloat16, 0>(512);
  add<float16, 3>(0);
  add<float, 7>(0);
  add<float, 7>(512);
});

}  // namespace
