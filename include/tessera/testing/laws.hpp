// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `check_laws`: tests whether a primitive, of the library or of a user, keeps the laws of its concept. It runs on the
/// host and needs no test framework.
///
///     auto const report = tessera::testing::check_laws<longest>({3, 1, 4, 1, 5});  // as in concepts/reducer.hpp
///     if (!report.is_empty()) { std::puts(report.text().c_str()); }       // one sentence for each law that is broken
///
/// There is one overload for each concept of primitives, tiles and tuning, in `testing/laws/`; each says which inputs
/// it wants. A ChunkSelector, which may be a Selector, too, has `check_chunk_laws` instead; a StreamCoder, which is an
/// EntropyCoder, too, has `check_stream_laws`; a ScaleQuantizer and a ScoreQuantizer, which are Quantizers, have
/// `check_scale_laws` and `check_score_laws`; a RowTile, which is a TileMma, `check_row_laws` and
/// `check_operand_law`; what works on memory has `check_program_laws`, `check_map_laws` and
/// `check_epilogue_laws`; an AttentionSoftmax has `check_softmax_laws`, a LogitMap `check_logit_map_laws`, a
/// Divergence `check_divergence_laws`. An empty report means that no counterexample was found among the inputs given,
/// so give unpleasant ones. The laws of a
/// Communicator, which runs on several ranks at once, are in testing/laws/comm/communicator.hpp, which this does not
/// include.
#pragma once

#include <tessera/testing/laws/attention_quantizer.hpp>
#include <tessera/testing/laws/attention_softmax.hpp>
#include <tessera/testing/laws/chunk_selector.hpp>
#include <tessera/testing/laws/entropy_coder.hpp>
#include <tessera/testing/laws/law_report.hpp>
#include <tessera/testing/laws/logit_map.hpp>
#include <tessera/testing/laws/map/divergence.hpp>
#include <tessera/testing/laws/merger.hpp>
#include <tessera/testing/laws/program.hpp>
#include <tessera/testing/laws/projector.hpp>
#include <tessera/testing/laws/quantizer.hpp>
#include <tessera/testing/laws/reducer.hpp>
#include <tessera/testing/laws/scalar.hpp>
#include <tessera/testing/laws/selector.hpp>
#include <tessera/testing/laws/stream_coder.hpp>
#include <tessera/testing/laws/sum_epilogue.hpp>
#include <tessera/testing/laws/sum_map.hpp>
#include <tessera/testing/laws/tile_mma.hpp>
#include <tessera/testing/laws/tile_source.hpp>
#include <tessera/testing/laws/tuning.hpp>
