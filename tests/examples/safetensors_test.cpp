// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../../examples/support/safetensors.hpp"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../../examples/support/mapped_file.hpp"
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

safetensors_reader read(std::string const& file) {
  return {std::as_bytes(std::span(file)), "model"};
}

/// The message with which a file is refused.
std::string refusal(std::string const& file) {
  try {
    read(file);
  } catch (failure const& problem) {
    CHECK(problem.code() == exit_code::unsound);
    return problem.what();
  }
  return "accepted";
}
std::string refusal(std::string const& header, std::string const& data) {
  return refusal(file_of(header, data));
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
  safetensors_reader const model = read(file);
  REQUIRE(model.tensors().size() == 3);
  CHECK(model.tensors()[0].name == "a");
  CHECK(model.tensors()[1].name == "b");
  CHECK(model.tensors()[1].shape == std::vector<std::int64_t>{2, 1});
  CHECK(model.tensors()[1].elements() == 2);
  CHECK(model.data(model.tensors()[1]).size() == 4);
  CHECK(std::to_integer<char>(model.data(model.tensors()[1])[0]) == 'd');
  CHECK(model.data(model.tensors()[2]).empty());
  CHECK(model.metadata() == std::map<std::string, std::string>{{"k", "v"}});
  CHECK(model.text().substr(model.text().size() - 3) == "}  ");
}

TEST_CASE("a file without tensors and a scalar are safetensors, too", "[host]") {
  CHECK(read(file_of("{}")).tensors().empty());
  safetensors_reader const scalar =
      read(file_of(R"({"a":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})", "01234567"));
  CHECK(scalar.tensors()[0].elements() == 1);
}

TEST_CASE("the real files of the tests are read", "[host]") {
  mapped_file const file(TESSERA_TEST_DATA "/minilm_bf16.safetensors");
  safetensors_reader const model(file.bytes(), file.path());
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
  CHECK_THAT(message, contains("\"?[31m\""));
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
  safetensors_reader const model = read(file.content);
  REQUIRE(model.tensors().size() == 2);
  CHECK(model.tensors()[0].name == largest.tensors[0].name);
  CHECK(model.tensors()[0].bytes() == 6);
  CHECK(model.tensors()[1].shape == std::vector<std::int64_t>{3, 1});
  CHECK(std::to_integer<char>(model.data(model.tensors()[1])[2]) == 'i');
  CHECK(model.metadata().at("key") == "value");
  CHECK((8 + model.text().size()) % 64 == 0);
}

TEST_CASE("the writer refuses a header longer than the room that was left for it", "[host]") {
  memory_file file;
  safetensors_writer writer(file, safetensors_header{});
  writer.begin(std::string(200, 'n'));
  writer.end("U8", {0});
  CHECK_THROWS_AS(writer.finish({}), failure);
}
