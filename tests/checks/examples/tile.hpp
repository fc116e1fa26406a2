// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What examples of tile call by these names: tile.cmake and tile_source.cmake.
#pragma once

#include <cstdint>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/shape.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/cpu.hpp>
#include <tessera/map/plain_sum.hpp>
#include <tessera/program/gemm/detail/lane_operand.hpp>
#include <tessera/program/gemm/store_sums.hpp>
#include <tessera/program/weights/reader.hpp>
#include <tessera/quantize/keep_mantissa.hpp>
#include <tessera/quantize/symmetric.hpp>
#include <tessera/quantize/two_to_a_byte.hpp>
#include <tessera/tile/gemm_tile.hpp>
#include <tessera/tile/row_tile.hpp>
#include <tessera/tile/serial/group.hpp>
#include <tessera/tile/source/decoded.hpp>
#include <tessera/tile/source/dense.hpp>
#include <tessera/tile/source/scaled_codes.hpp>
#include <tessera/tile/staged_tile.hpp>
#include <tessera/tile/top_k.hpp>

namespace pieces {

using Executor = tessera::cpu;
using Group = tessera::serial_group<32>;
using Tile = tessera::staged_tile<tessera::bfloat16, 64, 128>;
using Epilogue = tessera::store_sums<float, tessera::plain_sum>;

/// A source of any kind that an example shows.
using S = tessera::scaled_codes<tessera::two_to_a_byte<tessera::symmetric_quantizer<4, 128>>, tessera::bfloat16>;

/// A product, and two that follow each other.
using product = tessera::gemm_tile<tessera::bfloat16, tessera::shape<64, 64, 16>, Group>;
using scores = tessera::row_tile<tessera::bfloat16, tessera::shape<64, 128, 16>, Group>;
using results = tessera::row_tile<tessera::bfloat16, tessera::shape<64, 64, 16>, Group>;

/// The blocks of a stream.
using reader = tessera::weight_reader<tessera::bfloat16, tessera::keep_mantissa<7>>;

/// Scratch of programs.
struct operand_scratch {
  tessera::staged_tile<tessera::bfloat16, 64, 32> a;
  tessera::staged_tile<tessera::bfloat16, 64, 32> b;
};
using tile_on_the_way = tessera::staged_tile<tessera::bfloat16, 64, 32>;
using fetched_tile = tessera::dense_chunks<tessera::bfloat16>::fetched<Group, tile_on_the_way>;
struct pipeline_scratch {
  tessera::staged_tile<tessera::bfloat16, 64, 32> a[4];
  tessera::staged_tile<tessera::bfloat16, 64, 32> b[4];
};
struct value_scratch {
  tessera::staged_tile<tessera::bfloat16, 128, 64> values;
};
struct code_scratch {
  tessera::staged_tile<tessera::float8_e4m3, 128, 64> codes;
  tessera::staged_tile<tessera::float16, 64, 64> values[2];
};
struct top_k_digits {
  tessera::top_k_scratch digits;
};
struct stream_scratch {
  tessera::decoded<reader>::scratch_type weights;
};

}  // namespace pieces
