# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
tessera_check_pieces(ON_HOST primitives "#include <cstddef>\n#include <vector>\n#include <tessera/core/bfloat16.hpp>"
  entropy/byte_blocks.hpp "std::vector<std::byte>& bytes"
  entropy/exponent_split.hpp ""
  entropy/fit_frequencies.hpp "std::uint64_t const* counts"
  entropy/fixed_coder.hpp ""
  entropy/rans_coder.hpp "std::uint64_t const* counts"
  entropy/tans_coder.hpp "std::uint64_t const* counts")
