// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Reads and writes safetensors files: named tensors, one after the other, after a header in JSON.
///
///     tessera_examples::input_file file("model.safetensors");
///     tessera_examples::safetensors_reader model(file, file.path());
///     for (auto const& tensor : model.tensors()) { use(tensor.name, tensor.shape, model.data(tensor)); }
///
/// A file is 8 bytes with the header's length N, little-endian; N bytes of JSON; the tensors' bytes. The reader takes
/// any bytes and refuses those that break a rule of the format. It never reads outside of them, and its results can be
/// relied on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/little_endian.hpp>

#include "byte_source.hpp"
#include "failure.hpp"
#include "printable.hpp"

namespace tessera_examples {

/// Bits of an element, or 0 if there is no such type.
inline int bits_of_dtype(std::string_view dtype) {
  constexpr std::pair<std::string_view, int> types[] = {
      {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},   {"I8", 8},    {"F8_E5M2", 8},
      {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16}, {"BF16", 16}, {"I32", 32},
      {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},    {"I64", 64}, {"U64", 64}};
  for (auto const& [name, bits] : types) {
    if (name == dtype) {
      return bits;
    }
  }
  return 0;
}

struct tensor_entry {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;  ///< beginning of its bytes, counted from the end of the header
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t bytes() const { return end - begin; }
  [[nodiscard]] std::int64_t elements() const {
    std::int64_t product = 1;
    for (std::int64_t extent : shape) {
      product *= extent;
    }
    return product;
  }
};

struct safetensors_header {
  std::vector<tensor_entry> tensors;  ///< in the order of their bytes
  std::map<std::string, std::string> metadata;

  [[nodiscard]] std::int64_t data_bytes() const { return tensors.empty() ? 0 : tensors.back().end; }
};

inline constexpr std::int64_t largest_safetensors_header = 100'000'000;

namespace detail {

/// Takes the parser's events one by one, so that a header of 100 MB needs no tree in memory and keys cannot hide each
/// other. Names are compared and never hashed: whoever writes the file could choose names with equal hashes.
class header_events : public nlohmann::json_sax<nlohmann::json> {
 public:
  header_events(std::string const& file, safetensors_header& header) : file_(file), header_(header) {}

  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("a truth value"); }
  bool number_integer(std::int64_t value) override { return refuse("the negative number " + std::to_string(value)); }
  bool number_float(double, std::string const& text) override { return refuse("the number " + text); }
  bool binary(nlohmann::json::binary_t&) override { return refuse("binary data"); }

  bool number_unsigned(std::uint64_t value) override {
    if (list_ == nullptr) {
      return refuse("the number " + std::to_string(value));
    }
    require(exit_code::unsound, value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()), where(),
            " has the number ", value, " but the largest that makes sense is ",
            std::numeric_limits<std::int64_t>::max());
    list_->push_back(static_cast<std::int64_t>(value));
    return true;
  }
  bool string(std::string& value) override {
    if (depth_ == 2 && in_metadata_ && list_ == nullptr) {
      header_.metadata[key_] = std::move(value);
      return true;
    }
    if (depth_ != 2 || list_ != nullptr || key_ != "dtype") {
      return refuse("the text " + shown(value));
    }
    require(exit_code::unsound, bits_of_dtype(value) > 0, where(), " has the unknown dtype ", shown(value));
    tensor_.dtype = std::move(value);
    return true;
  }
  bool start_object(std::size_t) override {
    if (depth_ >= 2 || list_ != nullptr) {
      return refuse("an object");
    }
    if (++depth_ == 2) {
      in_metadata_ = name_ == "__metadata__";
      require(exit_code::unsound, !in_metadata_ || !has_metadata_, file_, ": two objects are called __metadata__");
      has_metadata_ = has_metadata_ || in_metadata_;
      tensor_ = {};
      tensor_.name = name_;
      offsets_.clear();
      std::fill(std::begin(is_there_), std::end(is_there_), false);
    }
    return true;
  }
  bool key(std::string& value) override {
    if (depth_ == 1) {
      name_ = std::move(value);
      return true;
    }
    auto const known = std::find(std::begin(keys_of_tensor), std::end(keys_of_tensor), value);
    require(exit_code::unsound, in_metadata_ || known != std::end(keys_of_tensor), where(), " has the unknown key ",
            shown(value));
    bool const is_second = in_metadata_ ? header_.metadata.count(value) == 1
                                        : std::exchange(is_there_[known - std::begin(keys_of_tensor)], true);
    require(exit_code::unsound, !is_second, where(), " has the key ", shown(value), " twice");
    key_ = std::move(value);
    return true;
  }
  bool end_object() override {
    if (depth_-- == 2 && !in_metadata_) {
      for (std::size_t i = 0; i < std::size(keys_of_tensor); ++i) {
        require(exit_code::unsound, is_there_[i], where(), " has no ", keys_of_tensor[i]);
      }
      require(exit_code::unsound, offsets_.size() == 2, where(), " has ", offsets_.size(), " data_offsets but needs ",
              2);
      tensor_.begin = offsets_[0];
      tensor_.end = offsets_[1];
      header_.tensors.push_back(std::move(tensor_));
    }
    return true;
  }
  bool start_array(std::size_t) override {
    bool const expected =
        depth_ == 2 && !in_metadata_ && list_ == nullptr && (key_ == "shape" || key_ == "data_offsets");
    if (!expected) {
      return refuse("a list");
    }
    list_ = key_ == "shape" ? &tensor_.shape : &offsets_;
    return true;
  }
  bool end_array() override {
    list_ = nullptr;
    return true;
  }
  bool parse_error(std::size_t position, std::string const&, nlohmann::json::exception const& reason) override {
    throw failure(exit_code::unsound,
                  tessera::join(file_, ": the header is not JSON, at byte ", position, ": ", printable(reason.what())));
  }

 private:
  static constexpr char const* keys_of_tensor[] = {"dtype", "shape", "data_offsets"};

  [[nodiscard]] std::string where() const {
    return in_metadata_ ? file_ + ": __metadata__" : file_ + ": tensor " + shown(name_);
  }
  bool refuse(std::string const& what) const {
    std::string const subject = depth_ == 0   ? file_ + ": the header"
                                : depth_ == 1 ? file_ + ": " + shown(name_)
                                              : where();
    std::string const key = depth_ == 2 ? ", key " + shown(key_) + "," : "";
    throw failure(exit_code::unsound, subject + key + " has " + what + " where the format allows none");
  }

  std::string const& file_;
  safetensors_header& header_;
  int depth_ = 0;
  bool in_metadata_ = false;
  std::string name_;
  std::string key_;
  tensor_entry tensor_;
  std::vector<std::int64_t> offsets_;
  std::vector<std::int64_t>* list_ = nullptr;
  bool has_metadata_ = false;
  bool is_there_[std::size(keys_of_tensor)] = {};
};

inline void check_names(std::string const& file, safetensors_header const& header) {
  std::vector<std::string_view> names;
  for (tensor_entry const& tensor : header.tensors) {
    names.push_back(tensor.name);
  }
  std::sort(names.begin(), names.end());
  auto const twice = std::adjacent_find(names.begin(), names.end());
  require(exit_code::unsound, twice == names.end(), file, ": two tensors are called ",
          twice == names.end() ? "" : shown(std::string(*twice)));
}

/// The number of bytes that follows from a tensor's shape and dtype.
inline std::int64_t bytes_by_shape(std::string const& file, tensor_entry const& tensor) {
  std::int64_t product = 1;
  bool overflows = false;
  for (std::int64_t extent : tensor.shape) {
    overflows |= __builtin_mul_overflow(product, extent, &product);
  }
  int const bits = bits_of_dtype(tensor.dtype);
  std::int64_t all_bits = 0;
  overflows |= __builtin_mul_overflow(product, std::int64_t{bits}, &all_bits);
  require(exit_code::unsound, !overflows, file, ": tensor ", shown(tensor.name), " has a shape of ",
          tensor.shape.size(), " extents whose product is not a size");
  require(exit_code::unsound, all_bits % 8 == 0, file, ": tensor ", shown(tensor.name), " has ", all_bits,
          " bits, which is not a multiple of ", 8);
  return all_bits / 8;
}

inline void check_layout(std::string const& file, safetensors_header& header) {
  for (tensor_entry const& tensor : header.tensors) {
    std::int64_t const bytes = bytes_by_shape(file, tensor);
    require(exit_code::unsound, tensor.begin <= tensor.end, file, ": tensor ", shown(tensor.name), " begins at byte ",
            tensor.begin, " but ends at byte ", tensor.end);
    require(exit_code::unsound, tensor.bytes() == bytes, file, ": tensor ", shown(tensor.name), " takes ",
            tensor.bytes(), " bytes but its shape and dtype ", tensor.dtype, " make ", bytes);
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](tensor_entry const& a, tensor_entry const& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::int64_t end = 0;
  for (tensor_entry const& tensor : header.tensors) {
    require(
        exit_code::unsound, tensor.begin == end, file, ": tensor ", shown(tensor.name), " begins at byte ",
        tensor.begin,
        tensor.begin < end ? ", inside of the one before, which ends at byte " : " but the one before ends at byte ",
        end);
    end = tensor.end;
  }
}

}  // namespace detail

/// Reads the JSON of a header. Messages name `file`.
inline safetensors_header parse_safetensors_header(std::string_view text, std::string const& file) {
  require(exit_code::unsound, !text.empty() && text.front() == '{', file, ": the header does not start with \"{\"");
  // The parser would take a zero byte for the end and ignore the rest.
  std::size_t const zero = text.find('\0');
  require(exit_code::unsound, zero == std::string_view::npos, file, ": the header is not JSON, at byte ", zero,
          ": a zero byte");
  safetensors_header header;
  detail::header_events events(file, header);
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  detail::check_names(file, header);
  detail::check_layout(file, header);
  return header;
}

class safetensors_reader {
 public:
  /// `file` must outlive the reader; messages name `name`.
  safetensors_reader(byte_source const& file, std::string const& name) {
    std::int64_t const size = file.size();
    require(exit_code::unsound, size >= 8, name, ": not a safetensors file: it has ", size,
            " bytes but the length alone has ", 8);
    std::byte first[8];
    file.read(0, first);
    std::uint64_t const length = tessera::load_little_endian<std::uint64_t>(first);
    require(exit_code::unsound, length <= static_cast<std::uint64_t>(largest_safetensors_header), name,
            ": not a safetensors file: its header would have ", length, " bytes but may have ",
            largest_safetensors_header);
    require(exit_code::unsound, static_cast<std::int64_t>(length) <= size - 8, name, ": truncated: the header has ",
            length, " bytes but after the length there are only ", size - 8);
    text_.resize(static_cast<std::size_t>(length));
    file.read(8, std::as_writable_bytes(std::span(text_)));
    header_ = parse_safetensors_header(text_, name);
    data_ = byte_range{&file, 0, size}.behind(8 + static_cast<std::int64_t>(length));
    require(exit_code::unsound, header_.data_bytes() == data_.size, name,
            header_.data_bytes() > data_.size ? ": truncated: the tensors take "
                                              : ": bytes follow the last tensor: the tensors take ",
            header_.data_bytes(), " bytes but the file has ", data_.size);
  }

  /// The tensors in the order of their bytes.
  [[nodiscard]] std::vector<tensor_entry> const& tensors() const { return header_.tensors; }
  [[nodiscard]] std::map<std::string, std::string> const& metadata() const { return header_.metadata; }
  [[nodiscard]] safetensors_header const& header() const { return header_; }
  /// The header's JSON, unchanged.
  [[nodiscard]] std::string_view text() const { return text_; }
  [[nodiscard]] byte_range data(tensor_entry const& tensor) const {
    return data_.behind(tensor.begin).first(tensor.bytes());
  }
  /// A tensor's bytes as elements of T.
  template <class T>
  [[nodiscard]] std::vector<T> elements(tensor_entry const& tensor) const {
    std::vector<T> elements(static_cast<std::size_t>(tensor.bytes()) / sizeof(T));
    data(tensor).read(0, std::as_writable_bytes(std::span(elements)));
    return elements;
  }

 private:
  std::string text_;
  safetensors_header header_;
  byte_range data_;
};

/// The bytes of a file before its tensors: length and header, padded with spaces to a multiple of 64 and to `smallest`
/// bytes.
inline std::string safetensors_prefix(safetensors_header const& header, std::size_t smallest = 0) {
  using nlohmann::json;
  std::string text = "{";
  auto const separate = [&text] { text += text.size() > 1 ? "," : ""; };
  if (!header.metadata.empty()) {
    text += "\"__metadata__\":" + json(header.metadata).dump();
  }
  for (tensor_entry const& tensor : header.tensors) {
    separate();
    text += json(tensor.name).dump() + ":{\"dtype\":" + json(tensor.dtype).dump() +
            ",\"shape\":" + json(tensor.shape).dump() + ",\"data_offsets\":[" + std::to_string(tensor.begin) + "," +
            std::to_string(tensor.end) + "]}";
  }
  text += "}";
  constexpr std::size_t alignment = 64;
  std::size_t const bytes = (std::max(8 + text.size(), smallest) + alignment - 1) / alignment * alignment;
  text.resize(bytes - 8, ' ');
  require(exit_code::unwritable, static_cast<std::int64_t>(text.size()) <= largest_safetensors_header,
          "the header would have ", text.size(), " bytes but the format allows ", largest_safetensors_header);
  std::string prefix(8, '\0');
  tessera::store_little_endian(prefix.data(), std::uint64_t{text.size()});
  return prefix + text;
}

/// Writes tensors one by one, so that only a piece of one need be in memory. The header comes first in a file but its
/// numbers are known last: the writer leaves room for it, and unused room becomes spaces.
///
/// File has append(bytes) and write_at(offset, bytes), as atomic_file does.
template <class File>
class safetensors_writer {
 public:
  /// `largest`: a header at least as long as the one that `finish` will write.
  safetensors_writer(File& file, safetensors_header const& largest) : file_(file) {
    std::string const prefix = safetensors_prefix(largest);
    room_ = prefix.size();
    file_.append(std::as_bytes(std::span(prefix)));
  }

  void begin(std::string name) {
    tensor_entry tensor;
    tensor.name = std::move(name);
    tensor.begin = header_.data_bytes();
    tensor.end = tensor.begin;
    header_.tensors.push_back(std::move(tensor));
  }
  void append(std::span<std::byte const> bytes) {
    file_.append(bytes);
    header_.tensors.back().end += static_cast<std::int64_t>(bytes.size());
  }
  void end(std::string dtype, std::vector<std::int64_t> shape) {
    header_.tensors.back().dtype = std::move(dtype);
    header_.tensors.back().shape = std::move(shape);
  }

  void finish(std::map<std::string, std::string> metadata) {
    header_.metadata = std::move(metadata);
    std::string const prefix = safetensors_prefix(header_, room_);
    require(exit_code::unwritable, prefix.size() == room_, "the header takes ", prefix.size(), " bytes but ", room_,
            " were set aside");
    file_.write_at(0, std::as_bytes(std::span(prefix)));
  }

 private:
  File& file_;
  safetensors_header header_;
  std::size_t room_ = 0;
};

}  // namespace tessera_examples
