// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The file that compress_weights makes: a safetensors file with the tensors of another one, compressed.
///
/// Version 1. Every tensor keeps its name and its position in the order of bytes.
///
/// - BF16, F16, F32, F8_E4M3 and F8_E5M2 tensors become U8 tensors of one extent (of two, 1 and the number of bytes,
///   where the original has one extent: so the rank always differs, and a program which takes this file for the
///   original stops at the shape and never reads wrong values). Their bytes are one stream
///   (tessera/entropy/weight_stream.hpp) for each 64 MiB of the original, the last for the rest, each followed by zeros
///   up to a multiple of 16 bytes.
/// - Tensors of other dtypes, and those that compression does not make smaller, are stored unchanged.
/// - `__metadata__` has the keys
///       tessera.container   "1", the version
///       tessera.header      the header of the original, byte by byte: its dtypes, shapes, offsets and metadata
///       tessera.checksums   CRC32Cs in hexadecimal, separated by blanks: of the original header, then of each tensor's
///                           bytes as decompression gives them, in the order of bytes
///
/// All bytes of the original follow from this, if nothing was compressed with losses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/crc32c_host.hpp>
#include <tessera/core/little_endian.hpp>

#include "../support/safetensors.hpp"
#include "../support/weight_engine.hpp"

namespace tessera_examples {

inline constexpr char const* container_version = "1";
inline constexpr char const* key_version = "tessera.container";
inline constexpr char const* key_header = "tessera.header";
inline constexpr char const* key_checksums = "tessera.checksums";

/// Bytes of the original in one stream, which bound the memory that is needed.
inline constexpr std::int64_t segment_bytes = std::int64_t{64} << 20;
inline constexpr std::int64_t stream_alignment = 16;
/// A stream has less than twice the bytes of its weights, and this many more.
inline constexpr std::int64_t largest_tables = std::int64_t{1} << 16;

inline bool is_container(safetensors_header const& header) {
  return header.metadata.count(key_version) == 1;
}

inline std::string checksum_text(std::uint32_t checksum) {
  char text[16];
  std::snprintf(text, sizeof(text), "%08x", checksum);
  return text;
}

inline std::uint32_t checksum_of(std::span<std::byte const> bytes, std::uint32_t before = 0) {
  return tessera::crc32c_host(bytes.data(), bytes.size(), before);
}

/// The shape of the U8 tensor that stores `original`.
inline std::vector<std::int64_t> compressed_shape(tensor_entry const& original, std::int64_t bytes) {
  return original.shape.size() == 1 ? std::vector<std::int64_t>{1, bytes} : std::vector<std::int64_t>{bytes};
}

/// One tensor of a container.
struct container_tensor {
  tensor_entry original;
  byte_range stored;
  bool is_compressed = false;
  std::uint32_t checksum = 0;  ///< checksum of the bytes that decompression gives
};

/// A container whose structure is sound. `decode_tensor` finds out whether its tensors are.
class container_reader {
 public:
  /// `file` must outlive the reader.
  container_reader(byte_source const& file, std::string name) : name_(std::move(name)), file_(file, name_) {
    auto const& metadata = file_.metadata();
    require(exit_code::unsound, is_container(file_.header()), name_,
            ": a safetensors file, but not one that compress_weights made: its metadata has no ", key_version);
    std::string const& version = metadata.at(key_version);
    require(exit_code::unsound, version == container_version, name_, ": has version ", shown(version),
            " but this program reads version ", container_version);
    require(exit_code::unsound, metadata.count(key_header) == 1 && metadata.count(key_checksums) == 1, name_,
            ": corrupt: the metadata needs both ", key_header, " and ", key_checksums);
    header_text_ = metadata.at(key_header);
    original_ = parse_safetensors_header(header_text_, name_ + ": " + key_header);
    match_tensors(read_checksums(metadata.at(key_checksums)));
  }

  [[nodiscard]] std::string const& name() const { return name_; }
  [[nodiscard]] std::vector<container_tensor> const& tensors() const { return tensors_; }
  [[nodiscard]] safetensors_header const& original() const { return original_; }
  /// The length and header of the original file.
  [[nodiscard]] std::string original_prefix() const {
    std::string prefix(8, '\0');
    tessera::store_little_endian(prefix.data(), std::uint64_t{header_text_.size()});
    return prefix + header_text_;
  }

 private:
  std::vector<std::uint32_t> read_checksums(std::string const& text) const {
    std::vector<std::uint32_t> checksums;
    constexpr std::size_t digits = 8;
    for (std::size_t i = 0; i < text.size(); i += digits + 1) {
      std::string const word = text.substr(i, digits);
      bool const is_hexadecimal =
          word.size() == digits && word.find_first_not_of("0123456789abcdef") == std::string::npos;
      std::size_t const behind = text.size() - i - word.size();  // a blank and more, or nothing
      bool const ends = behind == 0 || (behind > 1 && text[i + word.size()] == ' ');
      require(exit_code::unsound, is_hexadecimal && ends, name_, ": corrupt: checksum ", checksums.size(),
              " is not 8 hexadecimal digits but ", shown(word));
      checksums.push_back(static_cast<std::uint32_t>(std::strtoul(word.c_str(), nullptr, 16)));
    }
    require(exit_code::unsound, checksums.size() == original_.tensors.size() + 1, name_, ": corrupt: there are ",
            checksums.size(), " checksums but should be ", original_.tensors.size() + 1);
    std::uint32_t const found = checksum_of(std::as_bytes(std::span(header_text_)));
    require(exit_code::unsound, found == checksums[0], name_, ": corrupt: the original header's checksum is ",
            checksum_text(found), " but should be ", checksum_text(checksums[0]));
    return checksums;
  }

  void match_tensors(std::vector<std::uint32_t> const& checksums) {
    std::vector<tensor_entry> const& stored = file_.tensors();
    require(exit_code::unsound, stored.size() == original_.tensors.size(), name_, ": corrupt: there are ",
            stored.size(), " tensors but the original has ", original_.tensors.size());
    for (std::size_t i = 0; i < stored.size(); ++i) {
      tensor_entry const& here = find_stored(i);
      tensor_entry const& original = original_.tensors[i];
      bool const is_plain = here.dtype == original.dtype && here.shape == original.shape;
      bool const is_compressed = here.dtype == "U8" && weight_type_of_dtype(original.dtype) &&
                                 here.shape == compressed_shape(original, here.bytes());
      require(exit_code::unsound, is_plain || is_compressed, name_, ": corrupt: tensor ", shown(original.name),
              " is neither as in the original, ", original.dtype, ", nor compressed, but ", here.dtype);
      tensors_.push_back({original, file_.data(here), !is_plain, checksums[i + 1]});
    }
  }

  /// The stored entry of tensor i. Both headers are sorted by offsets; tensors of no bytes may swap positions.
  [[nodiscard]] tensor_entry const& find_stored(std::size_t i) const {
    std::string const& wanted = original_.tensors[i].name;
    tensor_entry const& here = file_.tensors()[i];
    require(exit_code::unsound, here.name == wanted, name_, ": corrupt: tensor ", shown(here.name), " is where ",
            shown(wanted), " should be");
    return here;
  }

  std::string name_;
  safetensors_reader file_;
  std::string header_text_;
  safetensors_header original_;
  std::vector<container_tensor> tensors_;
};

/// `bytes` bytes of `room`, which is made larger if need be and then loses its contents.
inline std::span<std::byte> room_in(tessera::buffer<std::byte>& room, std::int64_t bytes) {
  if (room.size() < bytes) {
    room = {};  // frees the old memory first, so that both are never there at once
    room = tessera::buffer<std::byte>(bytes);
  }
  return {room.data(), static_cast<std::size_t>(bytes)};
}

/// Calls use(range) for one segment after the other.
template <class Use>
void for_each_segment(byte_range bytes, Use&& use) {
  while (bytes.size > 0) {
    byte_range const piece = bytes.first(std::min(bytes.size, segment_bytes));
    use(piece);
    bytes = bytes.behind(piece.size);
  }
}

/// Finds the streams of a compressed tensor, one for each segment, and calls use(spec, range of its bytes). It reads
/// only their headers.
template <class Use>
void for_each_stream(std::string const& where, container_tensor const& tensor, Use&& use) {
  auto const type = *weight_type_of_dtype(tensor.original.dtype);
  std::int64_t const element = tessera::weight_type_traits::of(type).bytes;
  byte_range rest = tensor.stored;
  for (std::int64_t left = tensor.original.elements(); left > 0;) {
    tessera::weight_stream_header header{};
    auto const head = std::as_writable_bytes(std::span(&header, 1));
    rest.read(0, head.first(std::min(head.size(), static_cast<std::size_t>(rest.size))));
    tessera::weight_stream_spec const spec = tessera::inspect_weight_stream(head.data(), rest.size).spec();
    std::int64_t const expected = std::min(left, segment_bytes / element);
    require(exit_code::unsound, spec.type == type && spec.count == expected, where, " is corrupt: a stream has ",
            spec.count, " weights of type ", static_cast<int>(spec.type), " but should have ", expected, " of type ",
            static_cast<int>(type));
    auto const size = static_cast<std::int64_t>(header.total_bytes);  // at most rest.size, as was checked before
    std::int64_t const most = 2 * expected * element + largest_tables;
    require(exit_code::unsound, size <= most, where, " is corrupt: a stream has ", size,
            " bytes but must have at most ", most);
    use(spec, rest.first(size));
    std::int64_t const padded = (size + stream_alignment - 1) / stream_alignment * stream_alignment;
    require(exit_code::unsound, padded <= rest.size, where, " is corrupt: a stream and its padding take ", padded,
            " bytes but there are ", rest.size);
    rest = rest.behind(padded);
    left -= expected;
  }
  require(exit_code::unsound, rest.size == 0, where, " is corrupt: after the last stream there are bytes: ", rest.size);
}

template <class Consume>
void decode_streams(weight_engine& engine, std::string const& where, container_tensor const& tensor,
                    Consume&& consume) {
  try {
    tessera::buffer<std::byte> weight_room;
    tessera::buffer<std::byte> stream_room;
    for_each_stream(where, tensor, [&](tessera::weight_stream_spec const& wanted, byte_range range) {
      std::span<std::byte> const stream = room_in(stream_room, range.size);
      range.read(0, stream);
      // The bytes in memory count: the file may have changed since its header was read.
      tessera::inspected_weight_stream const found = tessera::inspect_weight_stream(stream.data(), range.size);
      tessera::weight_stream_spec const& spec = found.spec();
      require(exit_code::unsound, spec.type == wanted.type && spec.count == wanted.count, where,
              " is corrupt: a stream has ", spec.count, " weights but had ", wanted.count, " a moment ago");
      std::span<std::byte> const weights = room_in(weight_room, spec.count * spec.traits().bytes);
      engine.decode(found, stream, weights);
      consume(std::span<std::byte const>(weights));
    });
  } catch (tessera::device_error const&) {
    throw;  // the file may be sound
  } catch (tessera::error const& error) {
    throw failure(exit_code::unsound, where + " is corrupt: " + error.what());
  }
}

/// Decodes a tensor and hands its original bytes, piece by piece, to consume(bytes). Throws if they are not the bytes
/// that were compressed.
template <class Consume>
void decode_tensor(weight_engine& engine, std::string const& file, container_tensor const& tensor, Consume&& consume) {
  std::string const where = file + ": tensor " + shown(tensor.original.name);
  std::uint32_t checksum = 0;
  auto const pass_on = [&](std::span<std::byte const> bytes) {
    checksum = checksum_of(bytes, checksum);
    consume(bytes);
  };
  if (tensor.is_compressed) {
    decode_streams(engine, where, tensor, pass_on);
  } else {
    tessera::buffer<std::byte> room;
    for_each_segment(tensor.stored, [&](byte_range range) {
      std::span<std::byte> const piece = room_in(room, range.size);
      range.read(0, piece);
      pass_on(piece);
    });
  }
  require(exit_code::unsound, checksum == tensor.checksum, where, " is corrupt: its checksum is ",
          checksum_text(checksum), " but should be ", checksum_text(tensor.checksum));
}

/// The options of compression.
struct compress_options {
  bool is_lossy = false;
  int mantissa_kept = 0;
  int normalizer_block = 0;

  [[nodiscard]] codec_choice choice(tessera::weight_type type) const {
    // Fp8 has no mantissa bits to spare.
    bool const applies = is_lossy && tessera::weight_type_traits::of(type).bytes > 1;
    return applies ? codec_choice{type, mantissa_kept, normalizer_block} : lossless_choice(type);
  }
};

/// Writes the container of `model` to `file` (append, write_at). Calls progress(bytes of the original done) now and
/// then. Engines that do not support a choice leave the work to `fallback`.
template <class File, class Progress>
class container_writer {
 public:
  container_writer(safetensors_reader const& model, compress_options const& options, weight_engine& engine,
                   weight_engine& fallback, File& file, Progress progress)
      : model_(model),
        options_(options),
        engine_(engine),
        fallback_(fallback),
        progress_(std::move(progress)),
        writer_(file, largest_header()) {}

  void write() {
    std::string checksums = checksum_text(checksum_of(std::as_bytes(std::span(model_.text()))));
    for (tensor_entry const& tensor : model_.tensors()) {
      checksums += " " + checksum_text(write_tensor(tensor));
    }
    writer_.finish(metadata(checksums));
  }

 private:
  [[nodiscard]] std::map<std::string, std::string> metadata(std::string const& checksums) const {
    return {{key_version, container_version}, {key_header, std::string(model_.text())}, {key_checksums, checksums}};
  }

  /// The longest header. Streams are less than twice as long as their weights and padding, so no number here has too
  /// few digits.
  [[nodiscard]] safetensors_header largest_header() const {
    safetensors_header largest{model_.tensors(), {}};
    std::int64_t end = 0;
    for (tensor_entry& tensor : largest.tensors) {
      std::int64_t const bytes = 2 * tensor.bytes() + stream_alignment;
      tensor.begin = end;
      tensor.end = end += bytes;
      tensor.shape.insert(tensor.shape.end(), {bytes, bytes});
    }
    largest.metadata = metadata(std::string(9 * (model_.tensors().size() + 1), '0'));
    return largest;
  }

  std::uint32_t write_tensor(tensor_entry const& tensor) {
    writer_.begin(tensor.name);
    auto const type = weight_type_of_dtype(tensor.dtype);
    if (!type || tensor.bytes() == 0) {
      return write_plain(tensor);
    }
    codec_choice const choice = options_.choice(*type);
    std::int64_t compressed = 0;
    std::uint32_t checksum = 0;
    bool gets_smaller = true;
    for_each_segment(model_.data(tensor), [&, this](byte_range range) {
      if (!gets_smaller) {
        return;
      }
      std::span<std::byte> const piece = read(range);
      weight_engine& engine = engine_.supports(choice) ? engine_ : fallback_;
      std::span<std::byte const> const stream = engine.encode(choice, piece);
      std::size_t const padding = (stream_alignment - stream.size() % stream_alignment) % stream_alignment;
      // The first segment decides; the others compress about as well.
      gets_smaller = compressed > 0 || stream.size() + padding < piece.size();
      if (!gets_smaller) {
        return;
      }
      checksum = choice.is_lossless() ? checksum_of(piece, checksum)
                                      : checksum_of(decoded(engine, stream, range.size), checksum);
      writer_.append(stream);
      writer_.append(std::span(zeros_).first(padding));
      compressed += static_cast<std::int64_t>(stream.size() + padding);
      progress_(range.size);
    });
    if (!gets_smaller) {
      return write_plain(tensor);
    }
    writer_.end("U8", compressed_shape(tensor, compressed));
    return checksum;
  }

  std::uint32_t write_plain(tensor_entry const& tensor) {
    std::uint32_t checksum = 0;
    for_each_segment(model_.data(tensor), [&, this](byte_range range) {
      std::span<std::byte const> const piece = read(range);
      writer_.append(piece);
      checksum = checksum_of(piece, checksum);
      progress_(range.size);
    });
    writer_.end(tensor.dtype, tensor.shape);
    return checksum;
  }

  /// The bytes of a range, valid until the next call.
  std::span<std::byte> read(byte_range range) {
    std::span<std::byte> const piece = room_in(piece_, range.size);
    range.read(0, piece);
    return piece;
  }

  /// The weights that a stream with losses decodes to.
  std::span<std::byte const> decoded(weight_engine& engine, std::span<std::byte const> stream, std::int64_t bytes) {
    std::span<std::byte> const room = room_in(decoded_, bytes);
    engine.decode(tessera::inspect_weight_stream(stream.data(), static_cast<std::int64_t>(stream.size())), stream,
                  room);
    return room;
  }

  safetensors_reader const& model_;
  compress_options options_;
  weight_engine& engine_;
  weight_engine& fallback_;
  Progress progress_;
  safetensors_writer<File> writer_;
  tessera::buffer<std::byte> piece_;
  tessera::buffer<std::byte> decoded_;
  std::byte zeros_[stream_alignment] = {};
};

}  // namespace tessera_examples
