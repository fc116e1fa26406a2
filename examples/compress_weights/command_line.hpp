// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The command line of compress_weights.
#pragma once

#include <charconv>
#include <string>
#include <system_error>
#include <vector>

#include "../support/failure.hpp"
#include "container.hpp"

namespace tessera_examples {

inline constexpr char const* help_text =
    R"(Makes .safetensors files of model weights smaller, and gives them back bit for bit.

  compress_weights compress   [options] IN.safetensors OUT.tsra
  compress_weights decompress [options] IN.tsra OUT.safetensors
  compress_weights verify     [options] FILE.tsra     decodes everything and compares checksums
  compress_weights inspect    FILE                    lists the tensors of either kind of file

  --threads N          CPU threads; all of them by default
  --device cpu|cuda|auto   auto, the default, takes the GPU when there is one; the bytes are the same
  --force              replaces an output file that exists
  --lossy 0|1|3        keeps only so many mantissa bits of BF16, F16 and F32 (on the CPU)
  --block N            with --lossy: weights that share a normalizer, 32 to 1024, a power of two; 512 by default
  --help

BF16, F16, F32, F8_E4M3 and F8_E5M2 tensors are compressed, others kept as they are. The output of compress is itself a
safetensors file (compressed tensors are U8 there) and is read back and compared before it gets its name. Without
--lossy the output of decompress is the very file that compress read.

Files are read and worked on in pieces of 64 MiB: at most 320 MiB of memory are used for data (on a GPU as
much again there), however large a file or tensor is, and as much as the files' headers take.

Exit codes: 0 success; 1 wrong usage; 2 a file is missing or cannot be read; 3 a file is truncated, corrupt or not of
the kind expected; 4 a file cannot be written (it exists, the disk is full, memory is short, the GPU fails).
)";

enum class command_kind { help, compress, decompress, inspect, verify };
enum class device_kind { automatic, cpu, cuda };

struct command_line {
  command_kind command = command_kind::help;
  std::string input;
  std::string output;
  int threads = 0;
  device_kind device = device_kind::automatic;
  bool force = false;
  compress_options options{.normalizer_block = 512};
};

namespace detail {

class command_line_parser {
 public:
  explicit command_line_parser(std::vector<std::string> words) : words_(std::move(words)) {}

  command_line parse() {
    if (words_.empty()) {
      throw failure(exit_code::usage, help_text);
    }
    for (std::string const& word : words_) {
      if (word == "--help" || word == "-h") {
        return {};
      }
    }
    for (next_ = 0; next_ < words_.size(); ++next_) {
      take(words_[next_]);
    }
    finish();
    return result_;
  }

 private:
  [[noreturn]] static void refuse(std::string const& message) {
    throw failure(exit_code::usage, message + " (compress_weights --help explains)");
  }

  void take(std::string const& word) {
    if (word.size() < 2 || word[0] != '-') {
      positional_.push_back(word);
    } else if (word == "--threads") {
      result_.threads = number(word, 1, 4096);
    } else if (word == "--lossy") {
      result_.options.is_lossy = true;
      result_.options.mantissa_kept = number(word, 0, 3);
      if (result_.options.mantissa_kept == 2) {
        refuse("--lossy is 2 but must be 0, 1 or 3");
      }
    } else if (word == "--block") {
      has_block_ = true;
      int const block = result_.options.normalizer_block = number(word, 32, 1024);
      if ((block & (block - 1)) != 0) {
        refuse("--block is " + std::to_string(block) + " but must be a power of two");
      }
    } else if (word == "--device") {
      result_.device = device(value(word));
    } else if (word == "--force") {
      result_.force = true;
    } else {
      refuse("unknown option " + shown(word));
    }
  }

  std::string const& value(std::string const& option) {
    if (next_ + 1 >= words_.size()) {
      refuse(option + " needs a value");
    }
    return words_[++next_];
  }
  int number(std::string const& option, int least, int most) {
    std::string const& text = value(option);
    int result = 0;
    auto const [end, code] = std::from_chars(text.data(), text.data() + text.size(), result);
    if (code != std::errc{} || end != text.data() + text.size() || result < least || result > most) {
      refuse(option + " is " + shown(text) + " but must be a number from " + std::to_string(least) + " to " +
             std::to_string(most));
    }
    return result;
  }
  static device_kind device(std::string const& text) {
    if (text == "auto") {
      return device_kind::automatic;
    }
    if (text == "cpu") {
      return device_kind::cpu;
    }
    if (text == "cuda") {
      return device_kind::cuda;
    }
    refuse("--device is " + shown(text) + " but must be cpu, cuda or auto");
  }

  void finish() {
    if (positional_.empty()) {
      refuse("there is no command");
    }
    std::string const& command = positional_[0];
    std::size_t files = 1;
    if (command == "compress" || command == "decompress") {
      result_.command = command == "compress" ? command_kind::compress : command_kind::decompress;
      files = 2;
    } else if (command == "inspect" || command == "verify") {
      result_.command = command == "inspect" ? command_kind::inspect : command_kind::verify;
    } else {
      refuse("unknown command " + shown(command));
    }
    if (positional_.size() != files + 1) {
      refuse(command + " takes " + std::to_string(files) + " file names but got " +
             std::to_string(positional_.size() - 1));
    }
    if (result_.options.is_lossy && result_.command != command_kind::compress) {
      refuse("--lossy is for compress only");
    }
    if (has_block_ && !result_.options.is_lossy) {
      refuse("--block makes sense with --lossy only");
    }
    if (result_.options.is_lossy && result_.device == device_kind::cuda) {
      refuse("--lossy works on the CPU only");
    }
    result_.input = positional_[1];
    result_.output = files == 2 ? positional_[2] : "";
  }

  std::vector<std::string> words_;
  std::vector<std::string> positional_;
  std::size_t next_ = 0;
  bool has_block_ = false;
  command_line result_;
};

}  // namespace detail

inline command_line parse_command_line(std::vector<std::string> words) {
  return detail::command_line_parser(std::move(words)).parse();
}

}  // namespace tessera_examples
