# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
tessera_check_pieces(ON_HOST primitives "#include <vector>\n#include <tessera/core/float16.hpp>\n\
#include <tessera/merge/slerp.hpp>"
  merge/direction_merger.hpp ""
  merge/magnitude.hpp ""
  merge/aligned_merger.hpp "tessera::matrix_view<float> first, tessera::matrix_view<float> second,
    tessera::matrix_view<float> aligned, tessera::matrix_view<float> restored, tessera::matrix_view<float> as_before"
  merge/no_merger.hpp ""
  merge/retain_most_different.hpp "tessera::interval<float> angles, float angle"
  merge/slerp.hpp "std::vector<float> const& a, std::vector<float> const& b, std::vector<float>& merged, int n"
  merge/two_lengths.hpp "")
