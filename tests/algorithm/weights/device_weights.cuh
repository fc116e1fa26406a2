// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Memory of the device between guards, and codecs that run there, for tests of compressed weights on CUDA.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include <tessera/algorithm/weights/compressed_weights.cuh>
#include <tessera/exec/cuda.cuh>

#include "algorithm/weights/weight_samples.hpp"
#include "support/codecs.cuh"
#include "support/cuda.hpp"

namespace tessera_test {

/// Bytes on the device with a guard before and after them, which nothing may write to. Without guards the bytes are an
/// allocation of their own, so that compute-sanitizer finds the first byte too many.
class device_bytes {
 public:
  static constexpr std::int64_t usual_guard = 1024;

  explicit device_bytes(std::int64_t bytes, std::int64_t shift = 0, std::int64_t guard = usual_guard)
      : bytes_(bytes), begin_(guard + shift), all_(guard + shift + bytes + guard) {
    cuda_ok(cudaMalloc(&base_, static_cast<std::size_t>(all_ > 0 ? all_ : 1)));
    reset();
  }
  device_bytes(device_bytes&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_), begin_(other.begin_), all_(other.all_) {}
  device_bytes& operator=(device_bytes&&) = delete;
  ~device_bytes() { static_cast<void>(cudaFree(base_)); }

  void reset() { cuda_ok(cudaMemset(base_, filling, static_cast<std::size_t>(all_))); }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(base_) + begin_; }
  [[nodiscard]] std::int64_t size() const { return bytes_; }
  [[nodiscard]] tessera::array_view<std::byte> view() const { return {data(), bytes_}; }

  void upload(void const* from, std::int64_t bytes) {
    cuda_ok(cudaMemcpy(data(), from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice));
  }
  void download(void* to, std::int64_t bytes) const {
    cuda_ok(cudaMemcpy(to, data(), static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost));
  }
  [[nodiscard]] std::vector<std::byte> download(std::int64_t bytes) const {
    std::vector<std::byte> copy(static_cast<std::size_t>(bytes));
    download(copy.data(), bytes);
    return copy;
  }
  /// Whether all but the first `written` bytes are unchanged.
  [[nodiscard]] bool is_intact_after(std::int64_t written) const {
    std::vector<std::byte> all(static_cast<std::size_t>(all_));
    cuda_ok(cudaMemcpy(all.data(), base_, all.size(), cudaMemcpyDeviceToHost));
    auto const is_filling = [](std::byte byte) { return byte == std::byte{filling}; };
    return std::all_of(all.begin(), all.begin() + begin_, is_filling) &&
           std::all_of(all.begin() + begin_ + written, all.end(), is_filling);
  }

 private:
  static constexpr unsigned char filling = 0xa5;
  void* base_ = nullptr;
  std::int64_t bytes_;
  std::int64_t begin_;
  std::int64_t all_;
};

/// Weights on the device, `shift` elements past an aligned address.
template <class T>
class device_weights {
 public:
  explicit device_weights(std::int64_t count, int shift = 0, std::int64_t guard = device_bytes::usual_guard)
      : bytes_(count * std::int64_t{sizeof(T)}, shift * std::int64_t{sizeof(T)}, guard), count_(count) {}
  explicit device_weights(weight_array<T> const& from, int shift = 0, std::int64_t guard = device_bytes::usual_guard)
      : device_weights(from.count(), shift, guard) {
    upload(from);
  }
  void upload(weight_array<T> const& from) { bytes_.upload(from.data(), bytes_.size()); }
  [[nodiscard]] weight_array<T> download() const {
    weight_array<T> copy(count_);
    bytes_.download(copy.data(), bytes_.size());
    return copy;
  }
  [[nodiscard]] tessera::array_view<T> view() const { return {reinterpret_cast<T*>(bytes_.data()), count_}; }
  [[nodiscard]] device_bytes& bytes() { return bytes_; }
  [[nodiscard]] bool guards_are_intact() const { return bytes_.is_intact_after(bytes_.size()); }

 private:
  device_bytes bytes_;
  std::int64_t count_;
};

/// The workspace of a plan.
class device_space {
 public:
  explicit device_space(tessera::workspace_plan const& plan)
      : memory_(plan.bytes(), 0, 0), space_(plan, memory_.view()) {}
  operator tessera::workspace const&() const { return space_; }  // NOLINT: it is one

 private:
  device_bytes memory_;
  tessera::workspace space_;
};

template <class Codec>
std::vector<std::byte> encode_on_host(weight_array<typename Codec::value_type> const& weights,
                                      tessera::weight_stream_options options) {
  static tessera::cpu const exec;
  auto const stream = Codec::encode(exec, weights.view(), options);
  return {stream.begin(), stream.end()};
}

/// The stream that the device encodes from weights; empty if it wrote outside of its room.
template <class Codec>
std::vector<std::byte> encode_on_device(tessera::cuda const& exec,
                                        weight_array<typename Codec::value_type> const& weights,
                                        tessera::weight_stream_options options, int shift) {
  tessera::weight_stream_spec const spec = Codec::spec(weights.count(), options);
  device_weights<typename Codec::value_type> const source(weights, shift);
  device_bytes stream(Codec::largest_bytes(spec));
  device_bytes size(8);
  Codec::encode(exec, spec, source.view(), stream.view(), {reinterpret_cast<std::int64_t*>(size.data()), 1},
                device_space(Codec::plan_encode(exec, spec)));
  exec.wait();
  std::int64_t bytes = 0;
  size.download(&bytes, 8);
  bool const sound = bytes <= stream.size() && stream.is_intact_after(bytes) && size.is_intact_after(8);
  return sound ? stream.download(bytes) : std::vector<std::byte>();
}

/// Checks that the device writes the bytes of the host, and decodes them to the weights that the host does.
template <class Codec>
void check_same_as_host(weight_kind kind, std::int64_t count, tessera::weight_stream_options options) {
  using type = typename Codec::value_type;
  INFO(tessera::scalar_traits<type>::name()
       << " keeps " << Codec::mantissa_type::kept_bits << ", kind " << static_cast<int>(kind) << ", count " << count
       << ", blocks of " << options.block << ", normalizers " << options.normalizer_block);
  tessera::cuda const exec;
  weight_array<type> const weights(kind, 9, count);
  std::vector<std::byte> const expected = encode_on_host<Codec>(weights, options);
  REQUIRE((encode_on_device<Codec>(exec, weights, options, 1) == expected));
  tessera::buffer<std::byte> host_stream(std::ssize(expected));
  std::copy(expected.begin(), expected.end(), host_stream.begin());
  weight_array<type> on_host(count);
  Codec::decode(tessera::cpu{}, host_stream.view(), on_host.view());
  device_bytes stream(std::ssize(expected), 0, 0);
  stream.upload(expected.data(), stream.size());
  device_weights<type> decoded(count);
  tessera::weight_stream_spec const spec = Codec::spec(count, options);
  Codec::decode(exec, spec, stream.view(), decoded.view(), device_space(Codec::plan_decode(exec, spec)));
  exec.wait();
  REQUIRE((decoded.download() == on_host));
  REQUIRE(decoded.guards_are_intact());
}

}  // namespace tessera_test
