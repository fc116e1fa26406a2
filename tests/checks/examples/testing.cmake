# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
tessera_check_pieces(ON_HOST primitives "${pieces}\n#include \"checks/examples/concepts.hpp\""
  testing/adversary.hpp "struct program const& program, std::int64_t tiles"
  testing/broken_weight_streams.hpp "tessera::buffer<std::byte> const& valid"
  testing/generators.hpp "std::uint64_t seed"
  testing/laws.hpp ""
  testing/reference.hpp "std::vector<float> const& scores")
