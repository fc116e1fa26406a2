// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The Python names of the backends: tessera_torch.py makes functions and modules of them.
#include <torch/extension.h>

#include "backend.hpp"

namespace tessera_torch {
namespace {

backend& backend_of(torch::Device device) {
#ifdef TESSERA_TORCH_WITH_CUDA
  if (device.is_cuda()) {
    return cuda_backend();
  }
#endif
  TORCH_CHECK(device.is_cpu(), "tessera_torch: ", device, " is asked for but the extension was built for CPUs",
#ifdef TESSERA_TORCH_WITH_CUDA
              " and CUDA",
#endif
              " alone");
  return cpu_backend();
}
backend& backend_of(torch::Tensor const& tensor) {
  return backend_of(tensor.device());
}

void bind_caches(pybind11::module& m) {
  pybind11::class_<kv_cache, std::shared_ptr<kv_cache>>(m, "KvCache")
      .def("append", &kv_cache::append)
      .def("begin_token", &kv_cache::begin_token)
      .def("write_and_attend", &kv_cache::write_and_attend)
      .def("end_token", &kv_cache::end_token)
      .def("bytes", &kv_cache::bytes);
  pybind11::class_<long_cache, std::shared_ptr<long_cache>>(m, "LongCache")
      .def("prefill", &long_cache::prefill)
      .def("decode", &long_cache::decode)
      .def("bytes", &long_cache::bytes)
      .def("hit_rate", &long_cache::hit_rate);
  m.def("make_kv_cache", [](std::int64_t sequences, std::int64_t tokens, std::int64_t heads, std::int64_t channels,
                            std::vector<std::int64_t> parts, std::string const& device) {
    torch::Device const where(device);
    return backend_of(where).caches.make_kv_cache({sequences, tokens, heads, channels, std::move(parts)}, where);
  });
  m.def("make_long_cache",
        [](std::int64_t query_heads, std::int64_t key_heads, std::int64_t channels, std::vector<std::int64_t> tokens,
           std::int64_t chunks, double rotary_base, std::string const& device) {
          torch::Device const where(device);
          return backend_of(where).caches.make_long_cache(
              {query_heads, key_heads, channels, std::move(tokens), chunks, rotary_base}, where);
        });
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using tensor = torch::Tensor const&;
  m.def("compress", [](tensor weights) { return backend_of(weights).weights.compress(weights); });
  m.def("decompress", [](tensor stream, tensor weights) { backend_of(weights).weights.decompress(stream, weights); });
  m.def("loss_forward",
        [](tensor hidden, tensor classifier, tensor labels, std::int64_t ignore_index, bool exact, bool for_backward) {
          return backend_of(hidden).loss.forward(hidden, classifier, labels, ignore_index, exact, for_backward);
        });
  m.def("loss_backward", [](tensor hidden, tensor classifier, tensor labels, std::int64_t ignore_index, bool exact,
                            tensor workspace, tensor upstream, bool wants_hidden, bool wants_classifier) {
    return backend_of(hidden).loss.backward(hidden, classifier, labels, ignore_index, exact, workspace, upstream,
                                            {wants_hidden, wants_classifier});
  });
  m.def("attention", [](tensor queries, tensor keys, tensor values, bool is_causal, double scale) {
    return backend_of(queries).attention.forward(queries, keys, values, is_causal, scale);
  });
  m.def("wait", [](std::string const& device) { backend_of(torch::Device(device)).wait(torch::Device(device)); });
  bind_caches(m);
}

}  // namespace tessera_torch
