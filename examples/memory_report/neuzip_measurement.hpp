// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Measures a NeuZip codec on a file of real weights, with any executor.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include <tessera/neuzip.hpp>

#include "../support/input_file.hpp"
#include "../support/safetensors.hpp"
#include "../support/text_table.hpp"
#include "report.hpp"
#include "seconds_of.hpp"

namespace tessera_examples {

/// The zeroth-order entropy of exponents: no coder that codes each exponent by itself needs fewer bits.
template <class T>
class exponent_histogram {
 public:
  void add(std::vector<T> const& weights) {
    using traits = tessera::scalar_traits<T>;
    for (T weight : weights) {
      auto const bits = static_cast<std::uint32_t>(tessera::to_bits(weight));
      ++counts_[(bits >> traits::mantissa_bits) & ((1u << traits::exponent_bits) - 1)];
    }
    total_ += static_cast<double>(weights.size());
  }
  /// The bound in bits a weight, with sign and mantissa.
  [[nodiscard]] double bound() const {
    double entropy = 0;
    for (double count : counts_) {
      entropy -= count > 0 ? count / total_ * std::log2(count / total_) : 0;
    }
    return entropy + 1 + tessera::scalar_traits<T>::mantissa_bits;
  }

 private:
  std::array<double, 256> counts_{};
  double total_ = 0;
};

/// The largest |a - b| / |a|, or 0 if all bits are the same.
template <class T>
double largest_error(std::vector<T> const& before, std::vector<T> const& after) {
  double largest = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (tessera::to_bits(before[i]) == tessera::to_bits(after[i])) {
      continue;
    }
    double const a = tessera::load(before[i]);
    double const b = tessera::load(after[i]);
    double const error = a == 0 ? HUGE_VAL : std::abs(a - b) / std::abs(a);
    largest = std::max(largest, std::isnan(error) ? HUGE_VAL : error);
  }
  return largest;
}

template <class T>
struct named_weights {
  std::string name;
  std::vector<T> weights;
};

template <class T>
std::vector<named_weights<T>> read_weights(std::string const& path, std::string const& dtype) {
  input_file const file(path);
  safetensors_reader const model(file, path);
  std::vector<named_weights<T>> all;
  for (tensor_entry const& tensor : model.tensors()) {
    if (tensor.dtype != dtype) {
      continue;
    }
    all.push_back({tensor.name, model.elements<T>(tensor)});
  }
  require(exit_code::unsound, !all.empty(), path, ": has no tensors of dtype ", dtype);
  return all;
}

/// One tensor in the executor's memory, with the memory for encoding and decoding it.
template <class Codec, class Executor>
class codec_bench {
 public:
  using value_type = typename Codec::value_type;

  codec_bench(Executor const& exec, std::vector<value_type> const& weights, tessera::weight_stream_options options)
      : exec_(exec),
        spec_(Codec::spec(static_cast<std::int64_t>(weights.size()), options)),
        encode_plan_(Codec::plan_encode(exec, spec_)),
        decode_plan_(Codec::plan_decode(exec, spec_)),
        encode_space_(exec, encode_plan_.bytes()),
        decode_space_(exec, decode_plan_.bytes()),
        weights_(exec, spec_.count),
        decoded_(exec, spec_.count),
        stream_(exec, Codec::largest_bytes(spec_)),
        stream_bytes_(exec, 1) {
    exec_.copy(weights, weights_);
  }

  void encode() {
    Codec::encode(exec_, spec_, weights_.view(), stream_.view(), stream_bytes_.view(),
                  tessera::workspace(encode_plan_, encode_space_));
  }
  void decode() {
    Codec::decode(exec_, spec_, stream_.view(), decoded_.view(), tessera::workspace(decode_plan_, decode_space_));
  }
  void wait() { exec_.wait(); }

  [[nodiscard]] std::int64_t stream_bytes() {
    std::vector<std::int64_t> bytes(1);
    exec_.copy(stream_bytes_, bytes);
    exec_.wait();
    return bytes[0];
  }
  [[nodiscard]] std::vector<value_type> decoded() {
    std::vector<value_type> weights(static_cast<std::size_t>(spec_.count));
    exec_.copy(decoded_, weights);
    exec_.wait();
    return weights;
  }

 private:
  Executor const& exec_;
  tessera::weight_stream_spec spec_;
  tessera::workspace_plan encode_plan_;
  tessera::workspace_plan decode_plan_;
  tessera::buffer<std::byte> encode_space_;
  tessera::buffer<std::byte> decode_space_;
  tessera::buffer<value_type> weights_;
  tessera::buffer<value_type> decoded_;
  tessera::buffer<std::byte> stream_;
  tessera::buffer<std::int64_t> stream_bytes_;
};

/// Compresses all tensors of a file one by one. The speed is that with its weights repeated to `bytes_for_speed`.
template <class Codec, class Executor>
report_row measure_neuzip(Executor const& exec, std::string const& mode, std::string const& setting,
                          std::vector<named_weights<typename Codec::value_type>> const& tensors,
                          tessera::weight_stream_options options, std::int64_t bytes_for_speed,
                          report_options const& report) {
  using value_type = typename Codec::value_type;
  report_row row{.algorithm = "NeuZip", .data = "", .mode = mode, .setting = setting};
  row.largest_error = 0;
  exponent_histogram<value_type> histogram;
  std::vector<value_type> all;
  text_table table({mode + ", tensor", "weights", "bits/weight", "bound of its own", "over"});
  for (auto const& tensor : tensors) {
    codec_bench<Codec, Executor> bench(exec, tensor.weights, options);
    bench.encode();
    bench.decode();
    bench.wait();
    row.largest_error = std::max(row.largest_error, largest_error(tensor.weights, bench.decoded()));
    std::int64_t const bytes = bench.stream_bytes();
    row.bytes_after += bytes;
    row.elements += static_cast<std::int64_t>(tensor.weights.size());
    histogram.add(tensor.weights);
    all.insert(all.end(), tensor.weights.begin(), tensor.weights.end());
    exponent_histogram<value_type> own;
    own.add(tensor.weights);
    double const bits = 8.0 * static_cast<double>(bytes) / static_cast<double>(tensor.weights.size());
    table.add({printable(tensor.name), std::to_string(tensor.weights.size()), fixed(bits, 3), fixed(own.bound(), 3),
               fixed(100 * (bits / own.bound() - 1), 2) + " %"});
  }
  row.bytes_before = row.elements * std::int64_t{sizeof(value_type)};
  if (Codec::is_lossless) {
    row.bound_bits = histogram.bound();
  }
  if (report.by_tensor && Codec::is_lossless) {
    table.print(stdout);
    std::printf("\n");
  }
  std::size_t const once = all.size();
  auto const wanted = report.quick ? once : static_cast<std::size_t>(bytes_for_speed) / sizeof(value_type);
  all.reserve(wanted);
  while (all.size() < wanted) {
    all.push_back(all[all.size() - once]);
  }
  codec_bench<Codec, Executor> bench(exec, all, options);
  double const gigabytes = static_cast<double>(all.size() * sizeof(value_type)) / 1e9;
  row.encode_gbps = gigabytes / seconds_of([&] { bench.encode(); }, [&] { bench.wait(); }, report.quick);
  row.decode_gbps = gigabytes / seconds_of([&] { bench.decode(); }, [&] { bench.wait(); }, report.quick);
  return row;
}

/// Rows of lossless coding in the three precisions; names and dtypes as in tests/data.
template <class Executor>
report_rows lossless_neuzip_rows(Executor const& exec, std::string const& setting, report_options const& options,
                                 std::int64_t bytes_for_speed) {
  report_rows rows;
  auto const measure = [&]<class T>(std::string const& file, std::string const& dtype, T) {
    auto const weights = read_weights<T>(options.data_folder + "/" + file, dtype);
    rows.push_back(measure_neuzip<tessera::neuzip_of<T>>(exec,
                                                         tessera::scalar_traits<T>::name() + std::string(" lossless"),
                                                         setting, weights, {}, bytes_for_speed, options));
    rows.back().data = "MiniLM";
  };
  measure("minilm_fp32.safetensors", "F32", float{});
  measure("minilm_bf16.safetensors", "BF16", tessera::bfloat16{});
  measure("minilm_fp16.safetensors", "F16", tessera::float16{});
  return rows;
}

}  // namespace tessera_examples
