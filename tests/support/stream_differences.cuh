// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// How often a GPU treats a broken stream of weights in another way than the CPU: another message, other weights, or a
/// byte written where none belongs. Streams and weights lie at the edges of memory with nothing around it
/// (guarded_memory.cuh), so that reading or writing beyond them ends with an error of the device.
///
///     tessera_test::stream_tally const found = tessera_test::compare_broken_streams(exec, 100'000);
///     found.differences;                                        // 0
///
/// It needs no test framework, since the benchmarks count differences, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/exec/cuda.cuh>
#include <tessera/neuzip.hpp>
#include <tessera/testing/broken_weight_streams.hpp>
#include <tessera/testing/generators.hpp>

#include "guarded_memory.cuh"

namespace tessera_test {

/// The results of comparing streams.
struct stream_tally {
  std::int64_t streams = 0;      ///< streams that were compared
  std::int64_t refused = 0;      ///< streams that the CPU refused
  std::int64_t differences = 0;  ///< streams that CPU and GPU treated differently

  stream_tally& operator+=(stream_tally const& other) {
    streams += other.streams;
    refused += other.refused;
    differences += other.differences;
    return *this;
  }
};

/// The weights that streams are made of: normal, with every `any`-th of any pattern and every `zero`-th an exact zero
/// (0: none).
struct stream_recipe {
  std::int64_t count = 0;
  tessera::weight_stream_options options;
  int any = 0;
  int zero = 0;

  template <class T>
  [[nodiscard]] std::vector<T> weights() const {
    using bits_type = typename tessera::scalar_traits<T>::bits_type;
    std::vector<T> made(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      auto const index = static_cast<std::uint64_t>(i);
      std::uint64_t const random = tessera::testing::hash(11, index);
      T const usual = tessera::testing::sample<T>(tessera::testing::gauss{.sigma = 0.5}, 1, index);
      made[static_cast<std::size_t>(i)] = any != 0 && random % static_cast<std::uint64_t>(any) == 0
                                              ? tessera::from_bits<T>(static_cast<bits_type>(random >> 32))
                                          : zero != 0 && (random >> 20) % static_cast<std::uint64_t>(zero) == 0
                                              ? tessera::from_bits<T>(0)
                                              : usual;
    }
    return made;
  }
};

/// Compares one codec's streams of one recipe.
template <class Codec>
class stream_comparison {
 public:
  using value_type = typename Codec::value_type;

  stream_comparison(tessera::cuda const& exec, stream_recipe const& recipe)
      : exec_(exec),
        spec_(Codec::spec(recipe.count, recipe.options)),
        expected_(recipe.count),
        found_(expected_.size()) {
    std::vector<value_type> const weights = recipe.weights<value_type>();
    tessera::buffer<std::byte> const stream = Codec::encode(host_, weights, recipe.options);
    sound_.assign(stream.begin(), stream.end());
    tessera::workspace_plan const plan = Codec::plan_decode(host_, spec_);
    host_memory_ = tessera::buffer<std::byte>(plan.bytes());
    device_memory_ = tessera::buffer<std::byte>(exec, plan.bytes());
  }

  /// Whether CPU and GPU both accept the stream as the encoder wrote it.
  [[nodiscard]] bool takes_sound_stream() {
    return compare(sound_, 0).refused == 0 && compare(sound_, 0).differences == 0;
  }

  stream_tally run(std::uint64_t first_seed, std::int64_t number) {
    stream_tally tally;
    for (std::int64_t i = 0; i < number; ++i) {
      std::uint64_t const seed = first_seed + static_cast<std::uint64_t>(i);
      std::vector<std::byte> broken = sound_;
      tessera::testing::break_weight_stream(broken, seed);
      tally += compare(broken, seed);
    }
    return tally;
  }

 private:
  static constexpr std::int64_t margin = 64;  ///< bytes beside the weights that must stay as they were
  static constexpr int filling = 0xa5;
  static constexpr std::int64_t most_bytes = std::int64_t{1} << 20;

  /// Finds what the decoders are told of a stream: its layout or, for one in four, the result of inspecting it. False
  /// if inspecting refuses the stream or finds another number of weights.
  [[nodiscard]] bool find_expected(std::vector<std::byte> const& stream, std::uint64_t seed) {
    known_ = spec_;
    if (seed % 4 == 3) {
      try {
        known_ = tessera::inspect_weight_stream(stream.data(), static_cast<std::int64_t>(stream.size()));
        Codec::check_spec("stream_comparison", known_.spec());
      } catch (tessera::error const&) {
        return false;  // inspecting refused it, before any executor sees it
      }
    }
    return known_.spec().count == spec_.count;
  }

  stream_tally compare(std::vector<std::byte> const& stream, std::uint64_t seed) {
    if (!find_expected(stream, seed)) {
      return {1, 1, 0};
    }
    std::string const on_host = decode_on_host(stream);
    std::string const on_device = decode_on_device(stream, seed);
    bool const is_same = on_host == on_device && is_margin_intact_ &&
                         std::memcmp(found_.data(), expected_.data(), expected_.bytes()) == 0;
    if (!is_same && std::getenv("TESSERA_SHOW_DIFFERENCES") != nullptr) {
      std::printf("seed %llu: host '%s', device '%s', margin %d\n", static_cast<unsigned long long>(seed),
                  on_host.c_str(), on_device.c_str(), is_margin_intact_ ? 1 : 0);
    }
    return {1, on_host.empty() ? 0 : 1, is_same ? 0 : 1};
  }

  /// The message of the exception that `run` throws about a stream, without the name of the function that waited.
  /// Errors of the device are not caught.
  template <class Run>
  static std::string message_of(Run&& run) {
    try {
      run();
    } catch (tessera::corrupt_data const& problem) {
      std::string const message = problem.what();
      return message.substr(message.find(':'));
    } catch (tessera::shape_error const& problem) {
      return problem.what();
    }
    return "";
  }

  std::string decode_on_host(std::vector<std::byte> const& stream) {
    tessera::buffer<std::byte> aligned(static_cast<std::int64_t>(stream.size()));
    std::memcpy(aligned.data(), stream.data(), stream.size());
    std::memset(static_cast<void*>(expected_.data()), filling, expected_.bytes());
    return message_of([&] {
      tessera::workspace const space(Codec::plan_decode(host_, known_), host_memory_);
      Codec::decode(host_, known_, aligned.view(), expected_.view(), space);
      host_.wait();
    });
  }

  /// Decodes on the device. The seed decides at which edges stream and weights lie, and whether the weights begin at a
  /// multiple of 16 bytes.
  std::string decode_on_device(std::vector<std::byte> const& stream, std::uint64_t seed) {
    auto const stream_bytes = static_cast<std::int64_t>(stream.size());
    auto const weight_bytes = static_cast<std::int64_t>(expected_.bytes());
    constexpr auto element = static_cast<std::int64_t>(sizeof(value_type));
    std::byte* const from =
        (seed & 1) != 0 ? streams_.first(stream_bytes) : streams_.last(stream_bytes, std::int64_t{16});
    std::byte* const to = (seed & 2) == 0   ? weights_.last(weight_bytes, (seed & 4) == 0 ? 16 : element)
                          : (seed & 8) == 0 ? weights_.first(weight_bytes)
                                            : weights_.first(weight_bytes + element) + element;
    std::byte* const region = tessera::max(weights_.data(), to - margin);
    std::byte* const region_end = tessera::min(weights_.data() + weights_.size(), to + weight_bytes + margin);
    auto const region_bytes = static_cast<std::size_t>(region_end - region);
    tessera::check_cuda(cudaMemsetAsync(region, filling, region_bytes, exec_.stream), "compare", "cudaMemsetAsync");
    exec_.copy(stream, tessera::array_view<std::byte>(from, stream_bytes));
    std::string const message = message_of([&] {
      tessera::workspace const space(Codec::plan_decode(exec_, known_), device_memory_);
      tessera::array_view<value_type> const weights(reinterpret_cast<value_type*>(to), expected_.size());
      Codec::decode(exec_, known_, tessera::array_view<std::byte const>(from, stream_bytes), weights, space);
      exec_.wait();
    });
    copy_.resize(region_bytes);
    exec_.copy(tessera::array_view<std::byte const>(region, static_cast<std::int64_t>(region_bytes)), copy_);
    exec_.wait();
    take_result(static_cast<std::size_t>(to - region));
    return message;
  }
  void take_result(std::size_t before) {
    std::memcpy(static_cast<void*>(found_.data()), copy_.data() + before, found_.bytes());
    is_margin_intact_ = true;
    for (std::size_t i = 0; i < copy_.size(); ++i) {
      bool const is_beside = i < before || i >= before + found_.bytes();
      is_margin_intact_ = is_margin_intact_ && (!is_beside || copy_[i] == std::byte{filling});
    }
  }

  tessera::cuda exec_;
  tessera::cpu host_{.threads = 1};
  tessera::weight_stream_spec spec_;
  tessera::expected_weight_stream known_{spec_};
  std::vector<std::byte> sound_;
  tessera::buffer<value_type> expected_;
  tessera::buffer<value_type> found_;
  std::vector<std::byte> copy_;
  bool is_margin_intact_ = true;
  tessera::buffer<std::byte> host_memory_;
  tessera::buffer<std::byte> device_memory_;
  guarded_memory streams_{most_bytes};
  guarded_memory weights_{most_bytes};
};

/// Compares broken streams of one recipe. Throws where the valid stream is not accepted.
template <class Codec>
stream_tally compare_broken_streams_of(tessera::cuda const& exec, stream_recipe const& recipe, std::int64_t number) {
  stream_comparison<Codec> comparison(exec, recipe);
  tessera::check<tessera::value_error>(comparison.takes_sound_stream(), "compare_broken_streams: of ", recipe.count,
                                       " weights the stream that was not broken is refused or differs, with checksums ",
                                       recipe.options.checksums ? 1 : 0);
  return comparison.run(1, number);
}

/// Compares `number` broken streams of all formats, coders and kinds of blocks.
inline stream_tally compare_broken_streams(tessera::cuda const& exec, std::int64_t number) {
  using namespace tessera;
  constexpr int kinds = 20;
  std::int64_t const each = divide_up(number, std::int64_t{kinds});
  stream_tally tally;
  tally += compare_broken_streams_of<neuzip>(exec, {4300, {.block = 1024}, 200, 0}, each);
  tally += compare_broken_streams_of<neuzip>(exec, {8192, {.block = 2048}, 90, 0}, each);
  tally += compare_broken_streams_of<neuzip>(exec, {8192, {.block = 2048, .checksums = true}, 500, 0}, each);
  tally += compare_broken_streams_of<neuzip>(exec, {6000, {.block = 1024}, 0, 20}, each);
  tally += compare_broken_streams_of<neuzip>(exec, {20'000, {}, 100, 3}, each);
  tally += compare_broken_streams_of<neuzip>(exec, {1000, {}, 0, 0}, each);
  tally += compare_broken_streams_of<neuzip_of<float16>>(exec, {8200, {.block = 4096}, 100, 50}, each);
  tally += compare_broken_streams_of<neuzip_of<float16>>(exec, {4096, {.block = 1024, .checksums = true}, 0, 0}, each);
  tally += compare_broken_streams_of<neuzip_of<float>>(exec, {4100, {.block = 1024}, 100, 0}, each);
  tally += compare_broken_streams_of<neuzip_of<float>>(exec, {4096, {.block = 1024}, 0, 7}, each);
  tally += compare_broken_streams_of<neuzip_of<float8_e4m3>>(exec, {8192, {.block = 2048}, 100, 0}, each);
  tally += compare_broken_streams_of<neuzip_of<float8_e5m2>>(exec, {8300, {.block = 2048}, 100, 30}, each);
  tally += compare_broken_streams_of<neuzip_fixed<bfloat16>>(exec, {6000, {.block = 1024}, 200, 20}, each);
  tally +=
      compare_broken_streams_of<neuzip_fixed<float>>(exec, {4096, {.block = 1024, .checksums = true}, 200, 0}, each);
  tally +=
      compare_broken_streams_of<neuzip_lossy<0>>(exec, {4300, {.block = 1024, .normalizer_block = 64}, 60, 0}, each);
  tally += compare_broken_streams_of<neuzip_lossy<0>>(exec, {6000, {.block = 1024}, 0, 20}, each);
  tally += compare_broken_streams_of<neuzip_lossy<3>>(exec, {4300, {.block = 1024, .checksums = true}, 60, 0}, each);
  tally +=
      compare_broken_streams_of<neuzip_lossy<3>>(exec, {8192, {.block = 2048, .normalizer_block = 512}, 200, 0}, each);
  tally += compare_broken_streams_of<neuzip_lossy<3, float16>>(exec, {8200, {.block = 4096}, 100, 50}, each);
  tally += compare_broken_streams_of<neuzip_lossy<7, float>>(
      exec, {4100, {.block = 1024, .normalizer_block = 32}, 60, 0}, each);
  return tally;
}

}  // namespace tessera_test
