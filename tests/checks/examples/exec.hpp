// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What examples of executors call by these names: exec.cmake.
#pragma once

#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/program/attention/split_keys.hpp>
#include <tessera/sage_attention2.hpp>
#include <tessera/select/landmark.hpp>
#include <tessera/shadow_kv.hpp>

namespace pieces {

using T = tessera::bfloat16;
using S = tessera::landmark_selector<8>;
using M = tessera::sage_attention2::method;
using Method = M;

/// Names functions that are templates, so that these are compiled.
template <auto...>
struct compiled {};

/// Does nothing with views.
struct use_of_views {
  template <class View>
  void operator()(char const*, View const&) const {}
};

/// A call that a program may refuse.
struct my_call {
  std::int64_t rows;
  std::int64_t stride;
};

}  // namespace pieces
