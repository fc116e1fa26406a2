// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: a source of a classifier has elements of the type that hidden states have
#include <cstdint>

#include <tessera/algorithm/loss/with_classifier.hpp>
#include <tessera/cut_cross_entropy.hpp>
#include <tessera/tile/source/converted.hpp>

using namespace tessera;

template <class Value>
using loss_of = with_classifier<cut_cross_entropy, converted<float, Value>>;

void make_inputs(loss_of<bfloat16>::inputs<std::int64_t> const&) {}
#if defined(TESSERA_FAIL)
void make_other_inputs(loss_of<float16>::inputs<std::int64_t> const&) {}
#endif
