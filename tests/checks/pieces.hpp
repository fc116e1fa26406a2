// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What examples of headers call by these names: readme.cmake.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <vector>

#include <tessera/algorithm/weights/parameter_store.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/exec/side_queue.hpp>
#include <tessera/map/scaled_sum.hpp>
#include <tessera/minicache.hpp>
#include <tessera/neuzip.hpp>
#include <tessera/sage_attention2.hpp>
#include <tessera/shadow_kv.hpp>

namespace pieces {

using Executor = tessera::cpu;

/// Does nothing, with whatever an example gives it.
struct program {
  static constexpr int lanes = 32;
  struct scratch_type {};
  tessera::array_view<tessera::bfloat16> weights = {};
  tessera::array_view<std::uint32_t> counts = {};
  tessera::array_view<std::uint64_t> lengths = {};
  tessera::array_view<float> losses = {};
  tessera::status_word* status = nullptr;

  template <class Group>
  TESSERA_FN void operator()(Group const&, std::int64_t, scratch_type&) const {}
};

/// Does nothing with a parameter and its gradient.
struct backward {
  static constexpr int lanes = 32;
  struct scratch_type {};
  tessera::array_view<tessera::bfloat16> weights;
  tessera::array_view<float const> gradient;

  template <class Group>
  TESSERA_FN void operator()(Group const&, std::int64_t, scratch_type&) const {}
};

}  // namespace pieces
