// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <limits>

#include <tessera/core/check.hpp>
#include <tessera/view/array_view.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

status_word failed(status_code code, std::int64_t position) {
  return {status_word::pack(code, position)};
}

}  // namespace

TEST_CASE("a failed check throws the type it names with the joined message", "[host]") {
  CHECK_NOTHROW(check<shape_error>(true, "never"));
  CHECK_THROWS_AS(check<shape_error>(false, "f"), shape_error);
  CHECK_THROWS_AS(check<value_error>(false, "f"), value_error);
  CHECK_THROWS_WITH(check<shape_error>(false, "attention.forward: keys have ", 96, " channels but queries have ", 128u),
                    "attention.forward: keys have 96 channels but queries have 128");
}

TEST_CASE("sizes that do not fit are refused, those that just fit are not", "[host]") {
  CHECK(checked_multiply("f", 1 << 20, std::int64_t{1} << 42) == std::int64_t{1} << 62);
  CHECK(checked_multiply("f", most, 1) == most);
  CHECK(checked_multiply("f", 0, most) == 0);
  CHECK_THROWS_WITH(checked_multiply("plan", std::int64_t{1} << 32, std::int64_t{1} << 31),
                    "plan: 4294967296 times 2147483648 is not a size");
  CHECK_THROWS_AS(checked_multiply("f", -1, 3), shape_error);
  CHECK_THROWS_AS(checked_multiply("f", -1, -3), shape_error);
  CHECK(checked_multiply("f", 3, 5, 7, 11) == 1155);
  CHECK(checked_multiply("f", std::int64_t{1} << 31, std::int64_t{1} << 30, 1) == std::int64_t{1} << 61);
  CHECK_THROWS_WITH(checked_multiply("plan", std::int64_t{1} << 30, std::int64_t{1} << 30, 8),
                    "plan: 1152921504606846976 times 8 is not a size");
  CHECK_THROWS_AS(checked_multiply("f", std::int64_t{1} << 32, std::int64_t{1} << 32, 0), shape_error);
  CHECK_THROWS_AS(checked_multiply("f", 2, 3, -1), shape_error);
  CHECK(checked_add("f", most - 1, 1) == most);
  CHECK_THROWS_AS(checked_add("f", most, 1), shape_error);
  CHECK_THROWS_AS(checked_add("f", -1, 1), shape_error);
}

TEST_CASE("a status word becomes the exception of its code", "[host]") {
  CHECK_NOTHROW(throw_if_failed(status_word{}, "f"));
  CHECK_THROWS_AS(throw_if_failed(failed(status_code::corrupt_stream, 3), "f"), corrupt_data);
  CHECK_THROWS_AS(throw_if_failed(failed(status_code::bad_checksum, 3), "f"), corrupt_data);
  CHECK_THROWS_AS(throw_if_failed(failed(status_code::bad_header, 3), "f"), corrupt_data);
  CHECK_THROWS_AS(throw_if_failed(failed(status_code::unsupported_format, 3), "f"), corrupt_data);
  CHECK_THROWS_AS(throw_if_failed(failed(status_code::capacity_exceeded, 3), "f"), shape_error);
  CHECK_THROWS_AS(throw_if_failed(failed(status_code::bad_value, 3), "f"), value_error);
  CHECK_THROWS_AS(throw_if_failed(failed(status_code::out_of_range, 3), "f"), value_error);
  CHECK_THROWS_AS(throw_if_failed(failed(status_code::other_forward, 3), "f"), value_error);
  CHECK_THROWS_WITH(throw_if_failed(failed(static_cast<status_code>(200), 7), "cpu.wait"),
                    "cpu.wait: a program reported a code of its own (code 200) at position 7");
  CHECK_THROWS_WITH(throw_if_failed(failed(status_code::bad_checksum, 7), "decode", "block"),
                    "decode: the checksum does not match (code 2) at block 7");
}

TEST_CASE("a status word with a detail says what was found", "[host]") {
  status_word word;
  detail::report_on_host(&word, status_code::bad_label, 17, {12345, 100});
  CHECK_THROWS_AS(throw_if_failed(word, "f"), value_error);
  CHECK_THROWS_WITH(throw_if_failed(word, "linear_loss.forward", "token"),
                    "linear_loss.forward: label 12345 of token 17 is no entry of 100");
  status_word other;
  detail::report_on_host(&other, status_code::out_of_range, 3, {-1, 8});
  CHECK_THROWS_WITH(throw_if_failed(other, "f", "slot"),
                    "f: an index is out of range (code 7) at slot 3: it is -1, and there are 8");
}

TEST_CASE("views without memory are refused if they have elements", "[host]") {
  float value = 0;
  CHECK_NOTHROW(check_memory("f", "keys", array_view<float>(&value, 1)));
  CHECK_NOTHROW(check_memory("f", "keys", array_view<float>()));
  CHECK_NOTHROW(check_memory("f", "keys", array_view<float>(nullptr, 0)));
  CHECK_THROWS_AS(check_memory("f", "keys", array_view<float>(nullptr, 3)), value_error);
  CHECK_THROWS_WITH(check_memory("f", "keys", array_view<float>(nullptr, 3)),
                    "f: the keys have no memory but 3 elements");
}

TEST_CASE("messages show numbers near zero, and others with six places behind the point", "[host]") {
  CHECK(join("a ", 0.0F, ", ", -2.0F, ", ", 1.5, ", ", 0.25F) == "a 0.000000, -2.000000, 1.500000, 0.250000");
  CHECK(join(1e-39F) == "1e-39");
  CHECK(join(-1e-9) == "-1e-09");
  CHECK(join(0.000244140625F) == "0.000244141");
  CHECK(join(0.001F) == "0.001000");
}
