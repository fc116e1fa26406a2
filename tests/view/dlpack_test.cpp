// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/view/array_view.hpp>
#include <tessera/view/dlpack.hpp>
#include <tessera/view/matrix_view.hpp>

#include "support/catch.hpp"

using namespace tessera;

namespace {

/// DLTensor by its members' names.
struct tensor {
  struct type {
    std::uint8_t code;
    std::uint8_t bits;
    std::uint16_t lanes;
  };
  void* data;
  std::int32_t ndim;
  type dtype;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

constexpr tensor::type float_type{2, 32, 1};

struct fixture {
  std::vector<float> numbers = std::vector<float>(24);
  std::vector<std::int64_t> shape{3, 4};
  std::vector<std::int64_t> strides{8, 2};
  tensor packed{numbers.data(), 2, float_type, shape.data(), nullptr, 0};
  tensor strided{numbers.data(), 2, float_type, shape.data(), strides.data(), 4};
};

template <class T>
bool accepts(std::uint8_t code, std::uint8_t bits) {
  std::vector<std::int64_t> shape{1};
  std::uint64_t storage = 0;
  tensor const one{&storage, 1, {code, bits, 1}, shape.data(), nullptr, 0};
  try {
    return array_view<T const>(one).size() == 1;
  } catch (value_error const&) {
    return false;
  }
}

}  // namespace

TEST_CASE("a tensor without strides is row-major", "[host]") {
  fixture f;
  matrix_view<float> const m = f.packed;
  CHECK(m.is_contiguous());
  CHECK(&m(2, 3) == &f.numbers[11]);
}

TEST_CASE("strides and the byte offset of a tensor are honoured", "[host]") {
  fixture f;
  matrix_view<float const> const m = f.strided;
  CHECK(&m(0, 0) == &f.numbers[1]);
  CHECK(&m(2, 3) == &f.numbers[1 + 16 + 6]);
}

TEST_CASE("the element type must be the view's", "[host]") {
  CHECK(accepts<float>(2, 32));
  CHECK(accepts<double>(2, 64));
  CHECK(accepts<float16>(2, 16));
  CHECK(accepts<bfloat16>(4, 16));
  CHECK(accepts<float8_e4m3>(10, 8));
  CHECK(accepts<float8_e5m2>(12, 8));
  CHECK(accepts<std::int32_t>(0, 32));
  CHECK(accepts<std::uint8_t>(1, 8));
  CHECK(accepts<bool>(6, 8));
  CHECK_FALSE(accepts<float>(2, 16));
  CHECK_FALSE(accepts<bfloat16>(2, 16));
  CHECK_FALSE(accepts<float16>(4, 16));
  CHECK_FALSE(accepts<float8_e4m3>(12, 8));
  CHECK_FALSE(accepts<std::int32_t>(1, 32));
  fixture f;
  CHECK_THROWS_WITH(
      array_view<bfloat16>(f.packed),
      "view: the tensor's elements have DLPack type code 2 and 32 bits but the view's have code 4 and 16 bits");
}

TEST_CASE("rank, extents and packing that do not fit are refused with both values", "[host]") {
  fixture f;
  CHECK_THROWS_WITH(array_view<float>(f.packed), "view: the tensor has 2 dimensions but the view has 1");
  f.packed.dtype.lanes = 4;
  CHECK_THROWS_AS(matrix_view<float>(f.packed), value_error);
  f.packed.dtype.lanes = 1;
  f.packed.byte_offset = 2;
  CHECK_THROWS_AS(matrix_view<float>(f.packed), value_error);
  f.packed.byte_offset = 0;
  f.shape[0] = -3;
  CHECK_THROWS_AS(matrix_view<float>(f.packed), shape_error);
  f.shape[0] = std::int64_t{1} << 62;
  CHECK_THROWS_AS(matrix_view<float>(f.packed), shape_error);
  f.shape[1] = 0;
  CHECK(matrix_view<float>(f.packed).is_empty());
}

TEST_CASE("an empty tensor may have no data, others may not", "[host]") {
  fixture f;
  f.packed.data = nullptr;
  CHECK_THROWS_AS(matrix_view<float>(f.packed), value_error);
  f.shape[0] = 0;
  CHECK(matrix_view<float>(f.packed).is_empty());
}
