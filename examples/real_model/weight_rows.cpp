// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// NeuZip's weights: bit for bit, and with fewer bits of each mantissa, in all matrices of the model.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tessera/algorithm/attention/dense_attention.hpp>
#include <tessera/neuzip.hpp>

#include "rows.hpp"

namespace tessera_examples {
namespace {

/// A model whose weights went through a codec, and the bytes of the streams.
struct decoded_model {
  language_model model;
  std::int64_t bytes = 0;
  std::int64_t exact_bytes = 0;
};

template <class Codec>
decoded_model through(tessera::cpu const& exec, language_model const& exact, progress_report& report) {
  decoded_model result{exact};
  result.model.each_matrix([&](weight_matrix& matrix) {
    report.step("a matrix of " + std::to_string(matrix.rows) + " x " + std::to_string(matrix.columns));
    auto const stream = Codec::encode(exec, matrix.values);
    Codec::decode(exec, stream, matrix.values);
    result.bytes += std::ssize(stream);
    result.exact_bytes += static_cast<std::int64_t>(matrix.values.size() * sizeof(bfloat16));
  });
  return result;
}

template <class Codec>
method_row weight_row(int bits) {
  std::string const number = std::to_string(bits);
  std::string const what = bits == 7 ? "weights, lossless" : "weights, mantissas of " + number;
  return {"weights" + number, what, "weights", [](exact_run const& exact, progress_report& report) {
            auto const changed =
                std::make_shared<decoded_model>(through<Codec>(exact.exec(), exact.net.model(), report));
            transformer const net(exact.exec(), changed->model);
            int const layers = net.extents().layers;
            auto const attend = attention_within<tessera::dense_attention>(exact.exec());
            hidden_states const all = net.forward(exact.text(), 0, with_progress(report, layers, attend));
            return method_result{.hidden = last_of(all, exact.hidden.rows),
                                 .bytes = changed->bytes,
                                 .exact_bytes = changed->exact_bytes,
                                 .changed = {changed, &changed->model}};
          }};
}

}  // namespace

std::vector<method_row> weight_rows() {
  return {weight_row<tessera::neuzip>(7), weight_row<tessera::neuzip_lossy<3>>(3),
          weight_row<tessera::neuzip_lossy<1>>(1), weight_row<tessera::neuzip_lossy<0>>(0)};
}

}  // namespace tessera_examples
