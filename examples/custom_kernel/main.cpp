// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// custom_kernel: a user's own kernel, checked on the CPU and on the GPU, and timed there. See README.md.
///
///     custom_kernel [--cpu] [--columns N] [--depth N]
///
/// Exit codes: 0: all results are right; 1: wrong usage; 2: a file cannot be read; 3: a result is wrong.
#include <charconv>
#include <cstdio>
#include <string>
#include <vector>

#include <tessera/exec/cpu.hpp>
#include <tessera/testing/generators.hpp>

#include "../support/failure.hpp"
#include "../support/input_file.hpp"
#include "../support/run_example.hpp"
#include "../support/safetensors.hpp"
#include "gpu_part.hpp"

#ifndef CUSTOM_KERNEL_DATA
#define CUSTOM_KERNEL_DATA "../../tests/data"
#endif

namespace tessera_examples {
namespace {

struct options {
  bool cpu_only = false;
  timed_shape timed;
};

options parse(std::vector<std::string> const& words) {
  options result;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--cpu") {
      result.cpu_only = true;
      continue;
    }
    bool const is_columns = words[i] == "--columns";
    require(exit_code::usage, is_columns || words[i] == "--depth", "usage: [--cpu] [--columns N] [--depth N]");
    std::string const text = i + 1 < words.size() ? words[++i] : "";
    std::int64_t& number = is_columns ? result.timed.columns : result.timed.depth;
    auto const [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    bool const is_size = code == std::errc{} && end == text.data() + text.size() && number >= 8 && number <= 1 << 20;
    require(exit_code::usage, is_size && number % 8 == 0, words[i - 1], " is ", shown(text),
            " but must be a multiple of 8 up to 2^20");
  }
  return result;
}

/// A vector of the generator's values.
template <class Generator>
std::vector<bfloat16> made(Generator const& generator, std::uint64_t seed, std::int64_t count) {
  std::vector<bfloat16> values(static_cast<std::size_t>(count));
  testing::fill(generator, seed, values.data(), values.size());
  return values;
}

std::vector<bfloat16> read(safetensors_reader const& file, std::string const& name) {
  for (tensor_entry const& tensor : file.tensors()) {
    if (tensor.name == name) {
      require(exit_code::unsound, tensor.dtype == "BF16", name, " is ", tensor.dtype, " but must be BF16");
      return file.elements<bfloat16>(tensor);
    }
  }
  throw failure(exit_code::unsound, join("there is no tensor ", shown(name)));
}

/// The layers: two with real weights, one of them with real inputs, and one whose extents are multiples of nothing.
std::vector<layer_data> layers_to_check() {
  std::string const folder = CUSTOM_KERNEL_DATA;
  std::vector<layer_data> layers;
  {
    std::string const path = folder + "/minilm_bf16.safetensors";
    input_file const file(path);
    safetensors_reader const model(file, path);
    layers.push_back({"MiniLM query", 130, 384, 384, made(testing::gauss{}, 1, 130 * 384),
                      read(model, "encoder.layer.0.attention.self.query.weight")});
  }
  {
    std::string const path = folder + "/smollm2_classifier.safetensors";
    input_file const file(path);
    safetensors_reader const model(file, path);
    layers.push_back({"SmolLM2 classifier", 256, 512, 576, read(model, "hidden"), read(model, "classifier_rows")});
  }
  layers.push_back({"made: heavy tails", 17, 75, 4402, made(testing::gauss{}, 2, 17 * 4402),
                    made(testing::student_t{.freedom = 3, .scale = 0.02}, 3, 75 * 4402)});
  return layers;
}

bool run(options const& asked) {
  auto const layers = layers_to_check();
  text_table table({"layer", "device", "tokens", "columns", "depth", "codes / bound", "outputs / bound", ""}, 2);
  bool right = check_layers(cpu{}, "CPU", layers, table);
  bool const on_gpu = !asked.cpu_only && has_gpu();
  right = (!on_gpu || check_on_gpu(layers, table)) && right;
  table.print(stdout);
  if (on_gpu && right) {
    std::printf("\n");
    right = time_on_gpu(asked.timed);
  } else if (!on_gpu) {
    std::printf("\nOn the CPU alone: %s.\n", asked.cpu_only ? "as asked" : "no GPU, or built without CUDA and cuBLAS");
  }
  return right;
}

}  // namespace
}  // namespace tessera_examples

int main(int count, char** words) {
  using namespace tessera_examples;
  return run_example("custom_kernel", [&] {
    require(exit_code::unsound, run(parse(std::vector<std::string>(words + 1, words + count))),
            "a result is further from the truth than it may be");
  });
}
