// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cuda.cuh>

#include "support/catch.hpp"
#include "support/cuda.hpp"
#include "support/device_copies.cuh"
#include "tile/staged_product.hpp"

using namespace tessera;
using namespace tessera_test;

namespace {

template <template <class, class, int> class Product, class T, class Shape, int Lanes>
void check_product_on_gpu() {
  CAPTURE(sizeof(T), Shape::m, Shape::n, Lanes);
  cuda const exec;
  staged_product_problem<T, Shape> const problem;
  auto const a = to_device(exec, problem.a);
  auto const b = to_device(exec, problem.b);
  auto sums = to_device(exec, std::vector<float>(problem.sums.size(), 77.0F));
  Product<T, Shape, Lanes> const program{{a.data(), {Shape::m, problem.depth}},
                                         {b.data(), {Shape::n, problem.depth}},
                                         {sums.data(), {Shape::m, Shape::n}}};
  exec.run(program, 1);
  CHECK(to_host(exec, sums) == problem.sums);
}

}  // namespace

TEST_CASE("products of staged tiles on a GPU are those of the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_product_on_gpu<staged_product, bfloat16, shape<16, 128, 16>, 128>();
  check_product_on_gpu<staged_product, bfloat16, shape<64, 64, 16>, 128>();
  check_product_on_gpu<staged_product, float16, shape<32, 24, 16>, 32>();
  check_product_on_gpu<staged_product, float, shape<16, 8, 4>, 32>();
}

TEST_CASE("multiply_words on a GPU gives the products of the host", "[cuda]") {
  TESSERA_NEEDS_CUDA();
  check_product_on_gpu<product_of_words, bfloat16, shape<64, 64, 16>, 128>();
  check_product_on_gpu<product_of_words, float, shape<16, 8, 4>, 32>();
}
