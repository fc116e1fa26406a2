// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../../examples/support/safetensors.hpp"

#include <ctime>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../../examples/support/input_file.hpp"
#include "support/catch.hpp"

using namespace tessera_examples;
using tessera_test::contains;

namespace {

/// A file with any header, sound or not.
std::string file_of(std::string const& header, std::string const& data = "") {
  std::string file(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) {
    file[i] = static_cast<char>((header.size() >> (8 * i)) & 0xff);
  }
  return file + header + data;
}

/// A file in memory and its reader.
class memory_model {
 public:
  explicit memory_model(std::string file) : file_(std::move(file)) {}
  memory_model(memory_model const&) = delete;
  memory_model& operator=(memory_model const&) = delete;
  safetensors_reader const* operator->() const { return &reader_; }
  /// The bytes of tensor number `i`.
  [[nodiscard]] std::string data(std::size_t i) const {
    auto const bytes = reader_.elements<char>(reader_.tensors()[i]);
    return {bytes.begin(), bytes.end()};
  }

 private:
  std::string file_;
  memory_source source_{std::as_bytes(std::span(file_))};
  safetensors_reader reader_{source_, "model"};
};

/// The message with which a file is refused.
std::string refusal(std::string const& file) {
  try {
    memory_model const model(file);
  } catch (failure const& problem) {
    CHECK(problem.code() == exit_code::unsound);
    return problem.what();
  }
  return "accepted";
}
std::string refusal(std::string const& header, std::string const& data) {
  return refusal(file_of(header, data));
}

/// As many names of 16 characters as asked for.
std::vector<std::string> other_names(std::size_t count) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) {
    std::string const digits = std::to_string(i * 48'271 % 10'000'019);
    names.push_back(std::string(16 - digits.size(), 'n') + digits);
  }
  return names;
}

/// Names of 16 ASCII characters for which MurmurHash64A, with libstdc++'s seed, gives one and the same number: the
/// second half of each makes up for the first.
std::vector<std::string> colliding_names(std::size_t count) {
  constexpr std::uint64_t multiplier = 0xc6a4a7935bd1e995U;
  std::uint64_t inverse = 1;  // of the multiplier, modulo 2^64
  for (int i = 0; i < 6; ++i) {
    inverse *= 2 - multiplier * inverse;
  }
  auto const mixed = [](std::uint64_t half) {
    half *= multiplier;
    return (half ^ half >> 47) * multiplier;
  };
  auto const unmixed = [&](std::uint64_t half) {
    half *= inverse;
    return (half ^ half >> 47) * inverse;
  };
  auto const is_ascii = [](std::uint64_t half) { return (half & 0x8080808080808080U) == 0; };
  std::uint64_t const start = 0xc70f6907U ^ 16 * multiplier;
  std::vector<std::string> names;
  for (std::uint64_t i = 0; names.size() < count; ++i) {
    std::uint64_t const first = (i * 0x9e3779b97f4a7c15U) & 0x7f7f7f7f7f7f7f7fU;
    std::uint64_t const second = unmixed((start ^ mixed(first)) * multiplier ^ 0x0123456789abcdefU);
    if (is_ascii(second)) {
      std::string name(16, '\0');
      tessera::store_little_endian(name.data(), first);
      tessera::store_little_endian(name.data() + 8, second);
      names.push_back(std::move(name));
    }
  }
  return names;
}

std::string header_with(std::vector<std::string> const& names) {
  std::string text = "{";
  for (std::string const& name : names) {
    text += (text.size() > 1 ? "," : "") + nlohmann::json(name).dump() +
            R"(:{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  return text + "}";
}
std::string metadata_with(std::vector<std::string> const& keys) {
  std::string text;
  for (std::string const& key : keys) {
    text += (text.empty() ? "" : ",") + nlohmann::json(key).dump() + R"(:"")";
  }
  return R"({"__metadata__":{)" + text + "}}";
}

/// Of this process, whatever else the machine does.
double seconds_to_read(std::string const& header) {
  std::clock_t const start = std::clock();
  CHECK(refusal(file_of(header)) == "accepted");
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

struct memory_file {
  std::string content;
  void append(std::span<std::byte const> bytes) {
    content.append(reinterpret_cast<char const*>(bytes.data()), bytes.size());
  }
  void write_at(std::int64_t offset, std::span<std::byte const> bytes) {
    content.replace(static_cast<std::size_t>(offset), bytes.size(), reinterpret_cast<char const*>(bytes.data()),
                    bytes.size());
  }
};

}  // namespace

TEST_CASE("a safetensors file gives its tensors in the order of their bytes", "[host]") {
  std::string const file =
      file_of(R"({"b":{"dtype":"BF16","shape":[2,1],"data_offsets":[3,7]},"__metadata__":{"k":"v"},)"
              R"("a":{"data_offsets":[0,3],"shape":[3],"dtype":"I8"},)"
              R"("none":{"dtype":"F32","shape":[0,9],"data_offsets":[7,7]}}  )",
              "abcdefg");
  memory_model const model(file);
  REQUIRE(model->tensors().size() == 3);
  CHECK(model->tensors()[0].name == "a");
  CHECK(model->tensors()[1].name == "b");
  CHECK(model->tensors()[1].shape == std::vector<std::int64_t>{2, 1});
  CHECK(model->tensors()[1].elements() == 2);
  CHECK(model.data(0) == "abc");
  CHECK(model.data(1) == "defg");
  CHECK(model.data(2).empty());
  CHECK(model->data(model->tensors()[1]).behind(3).size == 1);
  CHECK(model->metadata() == std::map<std::string, std::string>{{"k", "v"}});
  CHECK(model->text().substr(model->text().size() - 3) == "}  ");
}

TEST_CASE("a file without tensors and a scalar are safetensors, too", "[host]") {
  CHECK(memory_model(file_of("{}"))->tensors().empty());
  memory_model const scalar(file_of(R"({"a":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})", "01234567"));
  CHECK(scalar->tensors()[0].elements() == 1);
}

TEST_CASE("the real files of the tests are read", "[host]") {
  input_file const file(TESSERA_TEST_DATA "/minilm_bf16.safetensors");
  safetensors_reader const model(file, file.path());
  CHECK(model.tensors().size() == 11);
  for (tensor_entry const& tensor : model.tensors()) {
    CHECK(tensor.dtype == "BF16");
  }
}

TEST_CASE("a safetensors file is refused with a message that names the tensor and both values", "[host]") {
  auto const [header, data, message] = GENERATE(table<std::string, std::string, std::string>({
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,3]}})", "abc",
       "\"a\" takes 3 bytes but its shape and dtype U8 make 2"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}})", "ab", "\"a\" begins at byte 2 but ends at byte 0"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", "abc",
       "\"a\" begins at byte 1 but the one before ends at byte 0"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       "abc", "\"b\" begins at byte 1, inside of the one before, which ends at byte 2"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "a",
       "truncated: the tensors take 2 bytes but the file has 1"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "abc",
       "bytes follow the last tensor: the tensors take 2"},
      {R"({"a":{"dtype":"U4","shape":[2],"data_offsets":[0,1]}})", "a", "unknown dtype \"U4\""},
      {R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", "ab", "has 12 bits, which is not a multiple of 8"},
      {R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", "",
       "whose product is not a size"},
      {R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,0]}})", "",
       "the largest that makes sense"},
      {R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}})", "", "the negative number -1"},
      {R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", "a", "the number 1.0"},
      {R"({"a":{"dtype":"U8","shape":2,"data_offsets":[0,2]}})", "ab", "key \"shape\", has the number 2"},
      {R"({"a":{"dtype":"U8","shape":[[2]],"data_offsets":[0,2]}})", "ab", "has a list"},
      {R"({"a":{"dtype":8,"shape":[2],"data_offsets":[0,2]}})", "ab", "key \"dtype\", has the number 8"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,1,2]}})", "ab", "has 3 data_offsets but needs 2"},
      {R"({"a":{"dtype":"U8","shape":[2]}})", "", "\"a\" has no data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"x":1}})", "ab", "the unknown key \"x\""},
      {R"({"a":{"dtype":"U8","dtype":"I8","shape":[2],"data_offsets":[0,2]}})", "ab", "the key \"dtype\" twice"},
      {R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
       "", "two tensors are called \"a\""},
      {R"({"__metadata__":{},"__metadata__":{}})", "", "two objects are called __metadata__"},
      {R"({"__metadata__":{"k":1}})", "", "__metadata__, key \"k\", has the number 1"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", "", "__metadata__ has the key \"k\" twice"},
      {R"({"__metadata__":{"k":{}}})", "", "has an object"},
      {R"({"a":null})", "", "\"a\" has null"},
      {R"({"a":[]})", "", "\"a\" has a list"},
      {R"([])", "", "does not start with \"{\""},
      {R"( {})", "", "does not start with \"{\""},
      {R"({"a")", "", "the header is not JSON, at byte"},
      {R"({}{})", "", "the header is not JSON, at byte"},
      {"{\"\x80\":{}}", "", "the header is not JSON, at byte"},
  }));
  CAPTURE(header);
  CHECK_THAT(refusal(header, data), contains(message));
  CHECK_THAT(refusal(header, data), contains("model: "));
}

TEST_CASE("nothing hides behind a zero byte in the header", "[host]") {
  CHECK_THAT(refusal(std::string("{}\0garbage", 10), ""), contains("at byte 2: a zero byte"));
}

TEST_CASE("a file that is too short for its header is refused", "[host]") {
  CHECK_THAT(refusal(std::string("")), contains("it has 0 bytes"));
  CHECK_THAT(refusal(std::string("1234567")), contains("it has 7 bytes"));
  CHECK_THAT(refusal(std::string("\x03\0\0\0\0\0\0\0{}", 10)),
             contains("the header has 3 bytes but after the length there are only 2"));
  CHECK_THAT(refusal(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)), contains("may have 100000000"));
}

TEST_CASE("messages show no control characters of a file", "[host]") {
  std::string const message = refusal(R"({"\u001b[31m":{"dtype":"U8","shape":[1],"data_offsets":[0,2]}})", "ab");
  CHECK(message.find('\x1b') == std::string::npos);
  CHECK_THAT(message, contains("\"\\u001b[31m\""));
}

TEST_CASE("names that all have the same hash take no longer to read than others", "[host][long]") {
  std::size_t const count = 60'000;
  double const others = seconds_to_read(header_with(other_names(count)));
  CAPTURE(others);
  CHECK(seconds_to_read(header_with(colliding_names(count))) < 4 * others + 0.2);
  // Keys of the metadata are anybody's choice, too.
  CHECK(seconds_to_read(metadata_with(colliding_names(count))) < 4 * others + 0.2);
}

TEST_CASE("two tensors of one name are found among many", "[host][slow]") {
  auto names = other_names(10'000);
  names.push_back(names[17]);
  CHECK_THAT(refusal(file_of(header_with(names))), contains("two tensors are called \"" + names[17] + "\""));
  std::vector<std::string> large{std::string(1'000'000, 'x'), std::string(1'000'000, 'x')};
  CHECK_THAT(refusal(file_of(header_with(large))), contains("two tensors are called \"xxx"));
  large[1].back() = 'y';
  CHECK(refusal(file_of(header_with(large))) == "accepted");
}

TEST_CASE("what the writer writes, the reader reads", "[host]") {
  memory_file file;
  safetensors_header largest;
  largest.tensors = {{"first \"quoted\" \xc3\xa9", "BF16", {1000000, 1000000}, 0, 1000000},
                     {"second", "BF16", {1}, 0, 1000000}};
  largest.metadata = {{"key", "a long value"}};
  safetensors_writer writer(file, largest);
  std::string const data = "abcdefghi";
  auto const bytes = std::as_bytes(std::span(data));
  writer.begin(largest.tensors[0].name);
  writer.append(bytes.first(4));
  writer.append(bytes.subspan(4, 2));
  writer.end("BF16", {3});
  writer.begin("second");
  writer.append(bytes.subspan(6));
  writer.end("U8", {3, 1});
  writer.finish({{"key", "value"}});
  memory_model const model(file.content);
  REQUIRE(model->tensors().size() == 2);
  CHECK(model->tensors()[0].name == largest.tensors[0].name);
  CHECK(model->tensors()[0].bytes() == 6);
  CHECK(model->tensors()[1].shape == std::vector<std::int64_t>{3, 1});
  CHECK(model.data(1) == "ghi");
  CHECK(model->metadata().at("key") == "value");
  CHECK((8 + model->text().size()) % 64 == 0);
}

TEST_CASE("the writer refuses a header longer than the room that was left for it", "[host]") {
  memory_file file;
  safetensors_writer writer(file, safetensors_header{});
  writer.begin(std::string(200, 'n'));
  writer.end("U8", {0});
  CHECK_THROWS_AS(writer.finish({}), failure);
}
