# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set(tile_cuda "#include \"checks/examples/tile_cuda.hpp\"")
tessera_check_pieces(ON_DEVICE device "${tile_cuda}"
  tile/cuda/async_copy.cuh "word_scratch& scratch, tessera::bfloat16 const* words, int lane, int units"
  tile/cuda/chosen_registers.cuh "float const (&sums)[96]"
  tile/cuda/largest_keys.cuh "tessera::cuda_block<1024> const& group, key_scratch& scratch, std::int32_t count, \
    std::uint32_t (*key_of)(int), void (*write)(std::uint32_t, std::int32_t)"
  tile/cuda/thread_index.cuh ""
  tile/cuda/warp.cuh "float value, float limit")
tessera_check_pieces(ON_DEVICE device "${tile_cuda}"
  tile/cuda/sm_80/refilled_ring.cuh "tessera::cuda_warp const& warp, ring_scratch& scratch, int first, int end, \
    int by, void (*copy_next)(unsigned char*), void (*multiply)(unsigned char const*)"
  tile/cuda/sm_80/refilled_ring.cuh:2 "template <class Ring> (Ring const& keys, Ring const& values, int index, \
    ring_scratch& scratch, void (*weigh)(unsigned char const*), void (*add)(unsigned char const*))"
  tile/cuda/sm_80/refilled_ring.cuh:3 "ring_scratch& scratch, tessera::pipeline_state<4>& ahead, \
    tessera::pipeline_state<4>& state, int lanes, int steps, void (*copy_next)(unsigned char*), \
    std::uint32_t (*multiply)(unsigned char const*)"
  tile/cuda/sm_80/stage_rows.cuh "${given_matrix} matrix, std::int64_t first_row, std::int32_t column, \
    unsigned char const* stage, int lane"
  tile/cuda/sm_80/swizzled_operands.cuh
    "tessera::cuda_block<128> const& group, unsigned char const* stage, std::uint32_t step, int tile")
set(given_copy "unsigned char* shared, tessera::shared_barrier& full")
tessera_check_pieces(ON_DEVICE device "${tile_cuda}"
  tile/cuda/sm_90/barrier.cuh "tessera::shared_barrier& full, int bytes, unsigned phase"
  tile/cuda/sm_90/bulk_tensor.cuh
    "${given_copy}, struct program const& program, int bytes, int lane, std::int32_t row, std::int32_t column"
  tile/cuda/sm_90/cuda_warpgroup.cuh "tessera::dense<tessera::bfloat16> const& source, \
    tessera::staged_tile<tessera::bfloat16, 64, 64>& tile, std::int64_t first_row, std::int64_t first_column"
  tile/cuda/sm_90/device_counter.cuh "std::int32_t* made, std::int32_t* next"
  tile/cuda/sm_90/head_boxes.cuh:2 "${given_copy}, tessera::tensor_map const& map"
  tile/cuda/sm_90/message_ring.cuh "tessera::pipeline_state<2>& state, std::int32_t next"
  tile/cuda/sm_90/message_ring.cuh:2 "tessera::message_ring<std::int32_t, 2>& work, tessera::pipeline_count<2>& state, \
    tessera::stage_ring<2>& queries, std::int32_t first, std::int32_t (*next)(std::int32_t), \
    void (*multiply)(int, int), void (*load)(int, int, tessera::shared_barrier&)"
  tile/cuda/sm_90/pipeline_state.cuh "tessera::shared_barrier (&full)[4]"
  tile/cuda/sm_90/pipelined_ring.cuh "ring_scratch& scratch, tessera::tensor_map const& map, int steps, int bytes, \
    tessera::box_coordinate (*place_of)(int), void (*multiply)(unsigned char const*)"
  tile/cuda/sm_90/pipelined_ring.cuh:2 "tessera::stage_ring<4>& ring, tessera::pipeline_state<4>& state, int steps, \
    float (&sums)[128], tessera::matrix_descriptor const (&a)[4], tessera::matrix_descriptor const (&b)[4]"
  tile/cuda/sm_90/pipelined_ring.cuh:3 "tessera::cuda_warpgroup const& group, \
    tessera::dense_chunks<tessera::bfloat16> const& source, fetched_scratch& scratch, tessera::stage_ring<4>& ring, \
    tessera::pipeline_state<4>& state, int turn, int steps, int warpgroups, std::int64_t first_row, int depth"
  tile/cuda/sm_90/pipelined_ring.cuh:4 "tessera::stage_ring<4>& keys, tessera::stage_ring<4>& values, \
    tessera::pair_state<4, 1>& state, int begin, int end, void (*score)(int), void (*weigh)(int)"
  tile/cuda/sm_90/register_budget.cuh "bool is_producer"
  tile/cuda/sm_90/stage_ring.cuh "tessera::pipeline_state<4>& state, ring_scratch& scratch, \
    tessera::tensor_map const& map, tessera::box_coordinate at, void (*multiply)(unsigned char const*)"
  tile/cuda/sm_90/token_boxes.cuh:2 "${given_copy}, tessera::token_map const& map, std::int32_t length"
  tile/cuda/sm_90/warpgroup_mma.cuh "tessera::matrix_descriptor a, tessera::matrix_descriptor b"
  tile/cuda/sm_90/warpgroup_rows.cuh "float (&sums)[64]"
  tile/cuda/sm_90/warpgroup_turns.cuh "tessera::stage_ring<4>& ring, tessera::pipeline_state<4>& state, int which, \
    int round, int steps, float (&sums)[128], void (*multiply_stage)(int, float (&)[128], bool), \
    void (*write)(float (&)[128])"
  tile/cuda/sm_90/warpgroup_turns.cuh:2 "int which, void (*start_products)()"
  tile/cuda/sm_90/worker_warps.cuh "tessera::cuda_block<160> const& group, ring_scratch& scratch, \
    void (*init_barriers)(ring_scratch&), void (*work)(ring_scratch&, int, int), void (*load)(ring_scratch&, int)")
tessera_check_pieces(WITH_NVCC device "${tile_cuda}"
  tile/cuda/sm_90/head_boxes.cuh "${given_tokens} keys"
  tile/cuda/sm_90/tensor_map.cuh "${given_executor}, ${given_matrix} matrix, std::int64_t tiles"
  tile/cuda/sm_90/token_boxes.cuh "${given_heads} values")
