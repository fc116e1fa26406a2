// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// NeuZip on the CPU: lossless in three precisions, and bf16 with fewer mantissa bits.
#include <thread>

#include "neuzip_measurement.hpp"

namespace tessera_examples {
namespace {

constexpr std::int64_t bytes_for_speed = std::int64_t{32} << 20;

template <int MantissaBits>
report_row lossy_row(tessera::cpu const& exec, std::string const& setting, report_options const& options,
                     std::vector<named_weights<tessera::bfloat16>> const& weights) {
  std::string const mode = tessera::join("bf16 keeps ", MantissaBits, MantissaBits == 1 ? " bit" : " bits");
  report_row row = measure_neuzip<tessera::neuzip_lossy<MantissaBits>>(
      exec, mode, setting, weights, {.normalizer_block = 512}, bytes_for_speed, options);
  row.data = "MiniLM";
  return row;
}

}  // namespace

report_rows neuzip_rows(report_options const& options) {
  tessera::cpu const exec{.threads = options.threads};
  unsigned const found = std::max(1u, std::thread::hardware_concurrency());
  int const threads = options.threads > 0 ? options.threads : static_cast<int>(found);
  std::string const setting = tessera::join(threads, threads == 1 ? " thread, " : " threads, ",
                                            tessera::simd_level_name(tessera::best_simd_level()));
  report_rows rows = lossless_neuzip_rows(exec, setting, options, bytes_for_speed);
  auto const weights = read_weights<tessera::bfloat16>(options.data_folder + "/minilm_bf16.safetensors", "BF16");
  rows.push_back(lossy_row<3>(exec, setting, options, weights));
  rows.push_back(lossy_row<1>(exec, setting, options, weights));
  rows.push_back(lossy_row<0>(exec, setting, options, weights));
  return rows;
}

}  // namespace tessera_examples
