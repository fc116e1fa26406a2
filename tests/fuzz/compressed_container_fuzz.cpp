// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// fuzz target: the files of compress_weights, valid ones that were changed.
//
// Any bytes are decompressed or refused, and after a small change the original comes back or nothing.
#include <span>
#include <string>
#include <vector>

#include <tessera/testing/generators.hpp>

#include "../../examples/compress_weights/container.hpp"
#include "fuzz/edits.hpp"

namespace {

using namespace tessera_examples;
using namespace tessera_fuzz;

struct memory_file {
  std::vector<std::uint8_t> content;
  void append(std::span<std::byte const> bytes) {
    auto const* first = reinterpret_cast<std::uint8_t const*>(bytes.data());
    content.insert(content.end(), first, first + bytes.size());
  }
  void write_at(std::int64_t offset, std::span<std::byte const> bytes) {
    std::memcpy(content.data() + offset, bytes.data(), bytes.size());
  }
  [[nodiscard]] std::span<std::byte const> bytes() const { return std::as_bytes(std::span(content)); }
};

weight_engine& engine() {
  static cpu_engine cpu(1);
  return cpu;
}

struct sample_file {
  std::vector<std::uint8_t> original;
  std::vector<std::uint8_t> container;
};

/// A model with one tensor of each of some dtypes, and its container.
sample_file make_sample(std::vector<std::pair<std::string, std::int64_t>> const& tensors,
                        compress_options const& options) {
  memory_file plain;
  safetensors_header largest;
  for (auto const& [dtype, count] : tensors) {
    largest.tensors.push_back({"tensor of " + dtype, dtype, {count, count, count}, 0, std::int64_t{1} << 30});
  }
  safetensors_writer writer(plain, largest);
  for (auto const& [dtype, count] : tensors) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(count * bits_of_dtype(dtype) / 8));
    std::size_t const step = bits_of_dtype(dtype) / 8;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      std::uint64_t const any = tessera::testing::hash(3, i);
      bool const is_top = i % step == step - 1;  // sign and most of the exponent: as if weights were small
      bytes[i] = static_cast<std::byte>(is_top ? 0x3c + any % 4 : any);
    }
    writer.begin("tensor of " + dtype);
    writer.append(bytes);
    writer.end(dtype, {count});
  }
  writer.finish({{"key", "value"}});
  memory_file packed;
  memory_source const source(plain.bytes());
  safetensors_reader const model(source, "sample");
  container_writer(model, options, engine(), engine(), packed, [](std::int64_t) {}).write();
  return {plain.content, packed.content};
}

std::vector<sample_file> const& samples() {
  static std::vector<sample_file> const all = {
      make_sample({{"BF16", 3000}, {"I8", 5}, {"F32", 1500}}, {}),
      make_sample({{"F8_E4M3", 5000}, {"F16", 2100}, {"BOOL", 1}, {"F8_E5M2", 6000}}, {}),
      make_sample({{"U8", 3}, {"BF16", 2500}, {"F16", 10}}, {true, 3, 64}),
      make_sample({}, {}),
  };
  return all;
}

/// The original file, or nothing if the container is refused.
bool decompress(std::vector<std::uint8_t> const& file, memory_file& original) {
  try {
    memory_source const source(std::as_bytes(std::span(file)));
    container_reader const container(source, "fuzz");
    std::string const prefix = container.original_prefix();
    original.append(std::as_bytes(std::span(prefix)));
    for (container_tensor const& tensor : container.tensors()) {
      decode_tensor(engine(), "fuzz", tensor, [&](std::span<std::byte const> bytes) { original.append(bytes); });
    }
    return true;
  } catch (failure const& problem) {
    must(problem.code() == exit_code::unsound);
    return false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  input from(data, size);
  int const which = from.below(5);
  memory_file original;
  if (which == 4) {
    decompress(from.rest(), original);
    return 0;
  }
  sample_file const& sample = samples()[static_cast<std::size_t>(which)];
  std::vector<std::uint8_t> changed = sample.container;
  edit_summary const summary = apply_edits(from, changed);
  bool const is_sound = decompress(changed, original);
  must(is_sound || summary.edits > 0);
  bool const is_lossy = which == 2;
  if (is_sound && !is_lossy && summary.edits <= 1 && summary.all_small) {
    must(original.content == sample.original);
  }
  return 0;
}
