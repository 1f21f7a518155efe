// What a kernel launch accesses: requests, bytes, sectors and bank conflicts; and what other operations move.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace convoy::emulator {

inline constexpr unsigned kSectorBytes = 32;  // the unit in which device memory is read and written

/// Loads, or stores, of device memory. A request is one instruction of a warp, for all its active lanes.
/// The names are those of Nsight Compute, for op = ld and st.
struct GlobalAccesses {
  std::uint64_t requests = 0;  // l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum
  std::uint64_t sectors = 0;   // l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum
  std::uint64_t lanes = 0;     // active lanes, summed over the requests
  std::uint64_t bytes = 0;     // distinct bytes of each request, summed over the requests

  GlobalAccesses& operator+=(const GlobalAccesses& other);
  /// Returns the share of the transferred bytes that the lanes have asked for, in [0, 1]; 1 without requests.
  double efficiency() const;
};

/// Loads, or stores, of shared memory. A wavefront accesses at most one word of 4 bytes in each of 32 banks.
struct SharedAccesses {
  std::uint64_t requests = 0;
  std::uint64_t wavefronts = 0;  // l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum
  std::uint64_t minimum = 0;     // wavefronts if no two words were in one bank
  std::uint64_t lanes = 0;

  SharedAccesses& operator+=(const SharedAccesses& other);
  /// Returns wavefronts / minimum, at least 1. Above 1, there are bank conflicts.
  double conflicts() const;
};

struct Accesses {
  GlobalAccesses loads, stores;
  SharedAccesses shared_loads, shared_stores;
  SharedAccesses tensor_loads;  // of shared memory by tensor cores (wgmma)
  std::uint64_t atomics = 0;    // of threads

  /// Returns the accesses of shared memory by all pipes, whose wavefronts take turns.
  SharedAccesses shared() const;

  Accesses& operator+=(const Accesses& other);
};

/// The accesses of one instruction.
struct SiteCounts {
  const void* site;  // an address in the instrumented code; source_lines() finds its line
  Accesses accesses;
};

/// The distinct bytes of one array of device or pinned memory that a launch reads and writes.
struct ArrayCounts {
  std::size_t array_bytes;  // the size of the array
  std::uint64_t bytes_read, bytes_written;
};

/// One operation of a stream, or one replay of it in a graph. It is a kernel launch; or a copy, a fill or a
/// call of a library, of which only `operation`, the bytes, `flops` and `element_bytes` are set.
struct LaunchCounts {
  const void* kernel = nullptr;
  std::string name{};       // of the kernel as its launch writes it, "" if only its address is known
  std::string operation{};  // "" for a kernel, otherwise as "conv2d forward"
  dim3 grid{}, block{};
  std::size_t shared_bytes = 0;
  Accesses accesses{};           // of all sites
  std::uint64_t barriers = 0;    // __syncthreads(), once per block
  std::uint64_t bytes_read = 0;  // distinct bytes over the launch: what remains with a perfect cache
  std::uint64_t bytes_written = 0;
  std::uint64_t flops = 0;        // of a library or of tensor cores; a multiply-add counts 2
  std::size_t element_bytes = 0;  // of a library's operands
  /// The address in the code of a load that reads what another block has stored, although nothing orders the
  /// two (block_order.h); null if there is none.
  const void* unordered_load = nullptr;
  std::vector<SiteCounts> sites{};    // in the order of their first access
  std::vector<ArrayCounts> arrays{};  // those that were accessed, in the order of their addresses
};

}  // namespace convoy::emulator
