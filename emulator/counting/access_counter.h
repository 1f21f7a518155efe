// Counts the memory accesses of a kernel launch.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "emulator/counting/block_order.h"
#include "emulator/counting/byte_set.h"
#include "emulator/counting/launch_counts.h"

namespace convoy::emulator {

/// What accesses shared memory: a load or store, or a tensor core that reads its operands.
enum class Pipe : std::uint8_t { load_store, tensor_core };

/// Returns the number of the running CUDA thread in its block.
inline unsigned running_thread() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

/// Collects the accesses of the threads of a block, one thread after another, and groups them to the requests
/// of its warps: the n-th execution of an instruction by each lane is one request. On a GPU the lanes execute
/// an instruction together, unless a loop or a branch has let them diverge and they have not converged again.
class AccessCounter {
 public:
  /// A part of memory that is counted.
  struct Range {
    const char* begin;
    std::size_t bytes;
    bool contains(const char* address) const { return address >= begin && address < begin + bytes; }
  };

  /// An array in device or pinned memory, and the bytes of it that the launch accesses.
  struct Array {
    Range range;
    ByteSet read{}, written{};
    std::vector<BlockOrder::Tag> stores{};  // of each byte, empty without stores

    /// Adds the `bytes` at an address of the array to one of the sets.
    void add(ByteSet& set, const char* begin, std::size_t bytes) const {
      const auto offset = static_cast<std::size_t>(begin - range.begin);
      set.reserve(range.bytes);
      set.add(offset, std::min(bytes, range.bytes - offset));
    }
  };

  /// Returns the counter of the running launch, or null if nothing is counted.
  static AccessCounter* current() { return current_; }
  /// Whether kernels of this program were compiled for counting. (hooks.cpp sets it.)
  static bool is_available;

  /// Starts to count a launch. `arrays` are those in device and pinned memory, in the order of their
  /// addresses.
  /// `of_others` is the shared memory of the blocks of a cluster that do not run.
  AccessCounter(const void* kernel, dim3 grid, dim3 block, Range shared, Range of_others,
                std::vector<Range> arrays);
  ~AccessCounter() { current_ = nullptr; }
  AccessCounter(const AccessCounter&) = delete;
  AccessCounter& operator=(const AccessCounter&) = delete;

  // Called by the thread that is running. `site` is an address in the code of the access.
  void access(const void* address, std::size_t bytes, bool is_store, const void* site,
              Pipe pipe = Pipe::load_store);
  void atomic(const void* address, std::size_t bytes, const void* site);

  void fence();
  void barrier();
  void cluster_barrier() { order_.cluster_barrier(); }
  void multiply(std::uint64_t flops) { counts_.flops += flops; }
  /// Counts the requests of a cluster's blocks, after their last thread.
  void end_block();
  /// Returns the result, after the last block.
  LaunchCounts take();
  const std::vector<Array>& arrays() const { return arrays_; }

 private:
  static constexpr unsigned kLanes = 32;

  using Request = std::array<const char*, kLanes>;  // the address of each lane, null if it is inactive
  /// The accesses of one warp by one instruction.
  struct WarpAccesses {
    std::array<std::uint32_t, kLanes> executions{};
    std::vector<Request> requests;
  };
  /// An instruction. One that accesses both kinds of memory has two.
  struct Site {
    const void* address;
    bool is_store, is_shared;
    Pipe pipe;
    std::size_t bytes;
    Accesses accesses{};
    std::vector<WarpAccesses> warps{};
  };

  bool is_shared(const char* address) const {
    return shared_.contains(address) || of_others_.contains(address);
  }
  Site& site_of(const void* address, bool is_store, bool is_shared, std::size_t bytes, Pipe pipe);
  Array* array_of(const char* address);
  void check_order(Array& array, const char* begin, std::size_t bytes, bool is_store, const void* site);
  void count_global(const Site& site, const Request& request, GlobalAccesses& counts);
  void count_shared(const Site& site, const Request& request, SharedAccesses& counts);

  static AccessCounter* current_;

  LaunchCounts counts_;
  BlockOrder order_;
  Range shared_, of_others_;
  std::vector<Array> arrays_;
  Array* last_array_ = nullptr;
  std::vector<Site> sites_;
  std::unordered_map<std::uint64_t, std::size_t> site_index_;
};

}  // namespace convoy::emulator
