// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// compress_weights: makes .safetensors files smaller and gives them back bit for bit. See command_line.hpp for its
/// usage and container.hpp for the format.
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <unistd.h>
#include <vector>

#include "../support/atomic_file.hpp"
#include "../support/input_file.hpp"
#include "../support/printable.hpp"
#include "../support/progress_bar.hpp"
#include "../support/safetensors.hpp"
#include "../support/text_table.hpp"
#include "command_line.hpp"
#include "container.hpp"

namespace tessera_examples {
namespace {

/// The engines that do the work.
struct engines {
  explicit engines(command_line const& line) : cpu(line.threads) {
    if (line.device == device_kind::cpu) {
      return;
    }
    std::string why_not;
    cuda = make_cuda_engine(why_not);
    bool const can_do_without = line.device == device_kind::automatic;
    require(exit_code::usage, cuda != nullptr || can_do_without, "--device is cuda but there is none: ", why_not);
  }
  weight_engine& best() { return cuda ? *cuda : static_cast<weight_engine&>(cpu); }
  weight_engine& for_tensor(container_tensor const& tensor, std::string const& file) {
    bool supported = cuda != nullptr;
    if (supported && tensor.is_compressed) {
      for_each_stream(file, tensor, [&](tessera::weight_stream_spec const& spec, byte_range) {
        supported = supported && cuda->supports(choice_of(spec));
      });
    }
    return supported ? *cuda : static_cast<weight_engine&>(cpu);
  }

  cpu_engine cpu;
  std::unique_ptr<weight_engine> cuda;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::int64_t size_of(std::span<std::byte const> bytes) {
  return static_cast<std::int64_t>(bytes.size());
}

/// Decodes all tensors. Hands the index, the offset in the tensor and the bytes of each piece to consume.
template <class Consume>
void decode_all(container_reader const& container, engines& work, progress_bar& progress, Consume consume) {
  for (std::size_t i = 0; i < container.tensors().size(); ++i) {
    container_tensor const& tensor = container.tensors()[i];
    std::int64_t offset = 0;
    weight_engine& engine = [&]() -> weight_engine& {
      try {
        return work.for_tensor(tensor, container.name());
      } catch (tessera::error const&) {
        return work.cpu;  // it finds the same mistake again and says where
      }
    }();
    decode_tensor(engine, container.name(), tensor, [&](std::span<std::byte const> bytes) {
      consume(i, offset, bytes);
      offset += size_of(bytes);
      progress.add(size_of(bytes));
    });
  }
}

/// Reads the new file back and compares every tensor with its original.
void compare_with_original(std::string const& path, std::string const& output, safetensors_reader const& model,
                           bool is_lossy, engines& work) {
  try {
    input_file const written(path);
    container_reader const container(written, output);
    tessera::buffer<std::byte> room;
    progress_bar progress("verifying", model.header().data_bytes());
    decode_all(container, work, progress, [&](std::size_t i, std::int64_t offset, std::span<std::byte const> bytes) {
      tensor_entry const& tensor = model.tensors()[i];
      if (is_lossy && weight_type_of_dtype(tensor.dtype)) {
        return;  // decode_tensor has compared the checksum of the bytes that were decoded when the stream was made
      }
      std::span<std::byte> const original = room_in(room, size_of(bytes));
      model.data(tensor).read(offset, original);
      bool const is_same = std::memcmp(original.data(), bytes.data(), bytes.size()) == 0;
      require(exit_code::unwritable, is_same, output, ": tensor ", shown(tensor.name),
              " does not come back as it was; nothing was written");
    });
  } catch (failure const& problem) {
    if (problem.code() == exit_code::unreadable) {
      throw;
    }
    throw failure(exit_code::unwritable, std::string("what was written cannot be read back: ") + problem.what());
  }
}

std::string ratio_text(std::int64_t before, std::int64_t after) {
  return fixed(static_cast<double>(before) / static_cast<double>(std::max<std::int64_t>(after, 1)), 3);
}

void compress(command_line const& line) {
  auto const start = std::chrono::steady_clock::now();
  input_file const input(line.input);
  safetensors_reader const model(input, line.input);
  require(exit_code::unsound, !is_container(model.header()), line.input, ": is compressed already");
  engines work(line);
  atomic_file output(line.output, line.force);
  {
    progress_bar progress("compressing", model.header().data_bytes());
    auto const add = [&](std::int64_t bytes) { progress.add(bytes); };
    container_writer writer(model, line.options, work.best(), work.cpu, output, add);
    writer.write();
  }
  compare_with_original(output.temporary_path(), line.output, model, line.options.is_lossy, work);
  output.commit();
  std::int64_t const before = input.size();
  std::printf("%s: %s -> %s, ratio %s, %zu tensors, %s, %.2f s\n", line.output.c_str(), readable_bytes(before).c_str(),
              readable_bytes(output.size()).c_str(), ratio_text(before, output.size()).c_str(), model.tensors().size(),
              line.options.is_lossy ? "with losses" : "lossless", seconds_since(start));
}

void decompress(command_line const& line) {
  auto const start = std::chrono::steady_clock::now();
  input_file const input(line.input);
  container_reader const container(input, line.input);
  engines work(line);
  atomic_file output(line.output, line.force);
  {
    progress_bar progress("decompressing", container.original().data_bytes());
    std::string const prefix = container.original_prefix();
    output.append(std::as_bytes(std::span(prefix)));
    decode_all(container, work, progress,
               [&](std::size_t, std::int64_t, std::span<std::byte const> bytes) { output.append(bytes); });
  }
  output.commit();
  std::printf("%s: %s -> %s, %zu tensors, %.2f s\n", line.output.c_str(), readable_bytes(input.size()).c_str(),
              readable_bytes(output.size()).c_str(), container.tensors().size(), seconds_since(start));
}

void verify(command_line const& line) {
  auto const start = std::chrono::steady_clock::now();
  input_file const input(line.input);
  container_reader const container(input, line.input);
  engines work(line);
  {
    progress_bar progress("verifying", container.original().data_bytes());
    decode_all(container, work, progress, [](std::size_t, std::int64_t, std::span<std::byte const>) {});
  }
  std::printf("%s: sound, %zu tensors, %s when decompressed, %.2f s\n", line.input.c_str(), container.tensors().size(),
              readable_bytes(container.original().data_bytes()).c_str(), seconds_since(start));
}

std::string shape_text(tensor_entry const& tensor) {
  std::string text;
  for (std::int64_t extent : tensor.shape) {
    text += (text.empty() ? "" : " x ") + std::to_string(extent);
  }
  return text.empty() ? "scalar" : text;
}

/// How the streams of a tensor were made; all of them are alike but for tiny ones.
std::string method_text(container_tensor const& tensor, std::string const& file) {
  if (!tensor.is_compressed) {
    return "kept";
  }
  std::string text;
  for_each_stream(file, tensor, [&](tessera::weight_stream_spec const& spec, byte_range) {
    codec_choice const choice = choice_of(spec);
    if (text.empty()) {
      text = choice.is_lossless()
                 ? "lossless"
                 : "lossy " + std::to_string(choice.mantissa_kept) + "/" + std::to_string(choice.normalizer_block);
    }
  });
  return text;
}

void print_metadata(std::map<std::string, std::string> const& metadata) {
  for (auto const& [key, value] : metadata) {
    std::printf("metadata %s: %s\n", shown(key).c_str(), shown(value).c_str());
  }
}

void inspect_container(input_file const& input) {
  container_reader const container(input, input.path());
  text_table table({"tensor", "dtype", "shape", "how", "bytes", "compressed", "ratio", "bits/element"}, 4);
  for (container_tensor const& tensor : container.tensors()) {
    tensor_entry const& original = tensor.original;
    std::int64_t const now = tensor.stored.size;
    double const elements = static_cast<double>(std::max<std::int64_t>(original.elements(), 1));
    std::string const how = [&] {
      try {
        return method_text(tensor, input.path());
      } catch (tessera::error const& problem) {
        throw failure(exit_code::unsound,
                      input.path() + ": tensor " + shown(original.name) + " is corrupt: " + problem.what());
      }
    }();
    table.add({printable(original.name), original.dtype, printable(shape_text(original)), how,
               std::to_string(original.bytes()), std::to_string(now), ratio_text(original.bytes(), now),
               fixed(8.0 * static_cast<double>(now) / elements, 3)});
  }
  table.print(stdout);
  print_metadata(container.original().metadata);
  std::int64_t const before =
      static_cast<std::int64_t>(container.original_prefix().size()) + container.original().data_bytes();
  std::printf("%s: compressed, version %s, %zu tensors, %s instead of %s, ratio %s\n", input.path().c_str(),
              container_version, container.tensors().size(), readable_bytes(input.size()).c_str(),
              readable_bytes(before).c_str(), ratio_text(before, input.size()).c_str());
}

void inspect(command_line const& line) {
  input_file const input(line.input);
  safetensors_reader const model(input, line.input);
  if (is_container(model.header())) {
    return inspect_container(input);
  }
  text_table table({"tensor", "dtype", "shape", "bytes"}, 3);
  for (tensor_entry const& tensor : model.tensors()) {
    table.add({printable(tensor.name), tensor.dtype, printable(shape_text(tensor)), std::to_string(tensor.bytes())});
  }
  table.print(stdout);
  print_metadata(model.metadata());
  std::printf("%s: not compressed, %zu tensors, %s\n", line.input.c_str(), model.tensors().size(),
              readable_bytes(input.size()).c_str());
}

void run(command_line const& line) {
  switch (line.command) {
    case command_kind::help:
      std::fputs(help_text, stdout);
      break;
    case command_kind::compress:
      compress(line);
      break;
    case command_kind::decompress:
      decompress(line);
      break;
    case command_kind::inspect:
      inspect(line);
      break;
    case command_kind::verify:
      verify(line);
      break;
  }
  bool const printed = std::fflush(stdout) == 0;
  require(exit_code::unwritable, printed, "standard output: cannot write: ", std::strerror(errno));
}

int report(exit_code code, char const* message) {
  std::fprintf(stderr, "compress_weights: %s\n", message);
  return static_cast<int>(code);
}

int run_and_report(int count, char** words) {
  try {
    run(parse_command_line(std::vector<std::string>(words + 1, words + count)));
    return 0;
  } catch (failure const& problem) {
    return report(problem.code(), problem.what());
  } catch (std::bad_alloc const&) {
    return report(exit_code::unwritable, "out of memory");
  } catch (tessera::device_error const& problem) {
    return report(exit_code::unwritable, problem.what());
  } catch (std::exception const& problem) {
    return report(exit_code::unsound, problem.what());
  }
}

}  // namespace
}  // namespace tessera_examples

int main(int count, char** words) {
  tessera_examples::remove_temporary_file_on_signals();
  return tessera_examples::run_and_report(count, words);
}
