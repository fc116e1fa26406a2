# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
tessera_check_pieces(ON_HOST comm "${pieces}\n#include \"checks/examples/comm.hpp\""
  comm/all_to_all.hpp "${given_executor}, tessera::loopback& ranks, tessera::array_view<float> by_receiver, \
    tessera::array_view<float> by_sender"
  comm/loopback.hpp "${given_executor}, tessera::array_view<float> losses"
  comm/threads.hpp "tessera::array_view<float> sums"
  concepts/comm/communicator.hpp "compiled<&add_up::forward<Executor, tessera::loopback>>"
  concepts/comm/peer_communicator.hpp "compiled<&tell_all::forward<Executor, tessera::loopback>>"
  testing/on_ranks.hpp "std::map<int, tessera::array_view<float>> const& parts"
  testing/laws/comm/communicator.hpp ""
  testing/laws/comm/peer_communicator.hpp "")
if(TARGET tessera_nccl OR NOT TESSERA_HAVE_CUDA)
  tessera_check_pieces(WITH_NVCC comm_nccl "#include <tessera/exec/buffer.hpp>"
    comm/nccl.cuh "ncclComm_t comm, tessera::cuda const& exec, tessera::buffer<float>& sums"
    comm/nccl_memory.cuh "ncclComm_t comm, tessera::workspace_plan const& plan")
else()  # their headers need nccl.h
  tessera_shows_no_code(comm/nccl.cuh)
  tessera_shows_no_code(comm/nccl_memory.cuh)
endif()
