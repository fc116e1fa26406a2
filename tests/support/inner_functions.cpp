// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The small functions in which tests spend most of their time: where tests are not optimised, a program takes them
/// from here, where they are. (Of all definitions of an inline function a linker keeps the first one, and these come
/// first.)
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include <tessera/core/math.hpp>
#include <tessera/core/precision.hpp>
#include <tessera/testing/adversary.hpp>
#include <tessera/testing/generators.hpp>
#include <tessera/tile/gemm_tile.hpp>
#include <tessera/tile/per_lane.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/view/view.hpp>

#include "support/double_rows.hpp"

/// Reads and writes numbers of a format.
#define TESSERA_TEST_SCALAR(type)           \
  template float tessera::load<type>(type); \
  template type tessera::store<type>(float)

/// Finds elements of views of a rank by indices of these types.
#define TESSERA_TEST_INDEXING(type, rank, ...)                                                   \
  template std::int64_t tessera::view<type, rank>::offset<__VA_ARGS__>(__VA_ARGS__) const;       \
  template std::int64_t tessera::view<type const, rank>::offset<__VA_ARGS__>(__VA_ARGS__) const; \
  template type& tessera::view<type, rank>::operator()<__VA_ARGS__>(__VA_ARGS__) const;          \
  template type const& tessera::view<type const, rank>::operator()<__VA_ARGS__>(__VA_ARGS__) const

#define TESSERA_TEST_VIEWS(type)                                                 \
  TESSERA_TEST_INDEXING(type, 2, int, int);                                      \
  TESSERA_TEST_INDEXING(type, 2, int, std::int64_t);                             \
  TESSERA_TEST_INDEXING(type, 2, std::int64_t, std::int64_t);                    \
  TESSERA_TEST_INDEXING(type, 3, std::int64_t, std::int64_t, std::int64_t);      \
  TESSERA_TEST_INDEXING(type, 4, std::int64_t, std::int64_t, std::int64_t, int); \
  TESSERA_TEST_INDEXING(type, 4, std::int64_t, std::int64_t, std::int64_t, std::int64_t)

TESSERA_TEST_SCALAR(float);
TESSERA_TEST_SCALAR(tessera::bfloat16);
TESSERA_TEST_SCALAR(tessera::float16);
TESSERA_TEST_SCALAR(tessera::float8_e4m3);
TESSERA_TEST_SCALAR(tessera::float8_e5m2);
TESSERA_TEST_VIEWS(float);
TESSERA_TEST_VIEWS(double);
TESSERA_TEST_VIEWS(tessera::bfloat16);
TESSERA_TEST_VIEWS(std::int8_t);

// Products of attention by its usual tiles, and what the lanes of its groups have.
template struct tessera::gemm_tile<std::int8_t, tessera::shape<64, 128, 32>, tessera::serial_group<128>>;
template struct tessera::gemm_tile<tessera::float8_e4m3, tessera::shape<64, 64, 32>, tessera::serial_group<128>>;
template struct tessera::gemm_tile<tessera::float16, tessera::shape<64, 64, 16>, tessera::serial_group<128>>;
template struct tessera::per_lane<float, tessera::serial_group<128>>;
template struct tessera::per_lane<float, tessera::serial_group<256>>;
template struct tessera::per_lane<std::uint32_t, tessera::serial_group<256>>;

template float tessera::bit_cast<float>(std::uint32_t const&);
template std::uint32_t tessera::bit_cast<std::uint32_t>(float const&);

namespace tessera_test {
namespace {

/// How an element of a list is found, which half of the time of some tests goes into where assertions check it.
template <class T>
constexpr auto element_of =
    std::tuple(static_cast<T& (std::vector<T>::*)(std::size_t)>(&std::vector<T>::operator[]),
               static_cast<T const& (std::vector<T>::*)(std::size_t) const>(&std::vector<T>::operator[]));

}  // namespace

/// Functions that are no templates are in an object only where something points to them.
extern std::tuple const inner_functions_of_tests{
    &tessera::scalar_traits<tessera::bfloat16>::load,
    &tessera::scalar_traits<tessera::bfloat16>::store,
    &tessera::scalar_traits<tessera::float16>::load,
    &tessera::scalar_traits<tessera::float16>::store,
    &row_product,
    &add_row,
    &tessera::lane_iterator::operator*,
    &tessera::lane_iterator::operator++,
    &tessera::lane_iterator::operator!=,
    &tessera::testing::gauss::value,
    &tessera::testing::hash,
    &tessera::testing::detail::isolated_scratch::enter,
    &tessera::testing::detail::isolated_scratch::leave,
    &tessera::testing::detail::isolated_scratch::sync,
    element_of<float>,
    element_of<double>,
    element_of<tessera::bfloat16>,
};

}  // namespace tessera_test
