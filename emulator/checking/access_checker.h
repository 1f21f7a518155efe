// Checks each memory access of a program that was compiled for counting.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "emulator/checking/arena.h"
#include "emulator/checking/findings.h"
#include "emulator/checking/races.h"
#include "emulator/checking/stream_order.h"
#include "emulator/counting/access_counter.h"

namespace convoy::emulator {

/// An array as a program declares it: "float tile[32][33]". Messages name its elements.
struct Declaration {
  std::string name;                    // "" if unknown
  std::size_t element_bytes = 0;       // 0: the size of the access
  std::vector<std::size_t> extents{};  // of a static array: {32, 33}
};

/// Finds accesses outside of arrays, to memory of the wrong side, to uninitialized memory, and races. Each
/// finding names the line. After an access that a GPU could not make, the kernel stops.
class AccessChecker {
 public:
  /// Returns the checker of this process; null unless enable() was called.
  static AccessChecker* current() { return current_; }
  static void enable();
  /// Called by a kernel's thread after a fatal finding. Does not return. Set by the runtime.
  static void (*stop_kernel)(const std::string& message);

  // Arrays of the CUDA runtime. `is_on_host`: the host may access it too.
  void* allocate(std::size_t bytes, bool is_on_host);
  void release(void* begin);
  /// Adds memory that was not allocated, such as variables of the device.
  void add(const void* begin, std::size_t bytes, const Declaration& declaration);
  void name(const void* begin, const std::string& name) {
    arrays_[static_cast<const char*>(begin)].declaration.name = name;
  }
  Arena& device_arena() { return device_; }

  // Operations of streams. Each returns what the operation accesses, for StreamOrder.
  using Accesses = std::vector<OrderedOperation::Accesses>;
  /// Without `from`: a fill. `operation` has the line, or is null.
  Accesses copy(void* to, const void* from, std::size_t bytes, const StreamOrder::Operation& operation);
  Accesses accesses_of(const AccessCounter& counter) const;
  /// A library has written to arrays that are not known.
  void compute();
  StreamOrder order;
  /// The operation has run. Adds a finding if nothing orders it and another one.
  void complete(const StreamOrder::Operation& operation, Accesses accesses);

  // A launch: its clusters, one after another, which are single blocks unless the launch says otherwise.
  /// `slots` is the shared memory of the blocks that do not run, `slot_bytes` for each.
  void begin_launch(AccessCounter::Range shared, AccessCounter::Range slots, std::size_t slot_bytes);
  /// A part of shared memory has this name for the rest of the launch.
  void declare_shared(AccessCounter::Range part, Declaration declaration);
  /// `blocks` are the indices of the cluster's blocks.
  void begin_block(unsigned threads, std::vector<uint3> blocks);
  void end_block();
  /// Another block of the cluster runs from now on, with its own shared memory.
  void switch_block() { check_pending(); }
  void barrier() { races_.barrier(running_rank); }
  void cluster_arrive() { races_.cluster_arrive(number()); }
  void cluster_wait() { races_.cluster_wait(number()); }
  void cluster_barrier() { races_.cluster_barrier(); }
  void warp_barrier(unsigned warp, unsigned mask) {
    races_.warp_barrier(running_rank * races_.stride() / 32 + warp, mask);
  }
  /// The stack of the thread that runs next.
  void set_stack(AccessCounter::Range stack) { stack_ = stack; }

  /// An access by the kernel's running thread, or by the host. `site` is an address in its code.
  void access(const void* address, std::size_t bytes, AccessKind kind, const void* site);
  /// Reports an access of a kernel whose address is not a multiple of its size.
  void check_aligned(const void* address, std::size_t bytes, AccessKind kind, const void* site);
  /// A library function has accessed memory that is closed to it. Returns false if it is not an array's.
  bool fault_on_host(const void* address);

 private:
  struct Array {
    std::size_t bytes = 0;
    Declaration declaration{};
    bool is_on_host = false, is_freed = false;
    ByteSet initialized{};
  };
  struct SharedPart {
    AccessCounter::Range range;
    Declaration declaration;
  };
  /// A store of a value to where another thread has stored. It is harmless if it is the same value.
  struct PendingRace {
    const char* begin;
    std::vector<char> before;
    Finding finding;
  };
  /// The access of a block's shared memory by another one before which the latest barrier of the cluster is.
  struct RemoteAccess {
    unsigned arrived = 0;
    const void* site = nullptr;
    std::string what{};
  };
  using Position = std::map<const char*, Array>::iterator;

  static void fill_all(Array& array);
  void access_shared(const char* begin, std::size_t bytes, AccessKind kind, const void* site);
  void access_array(Position at, const char* begin, std::size_t bytes, AccessKind kind, const void* site);
  void access_other(const char* begin, std::size_t bytes, AccessKind kind, const void* site);
  void access_on_host(const char* begin, std::size_t bytes, AccessKind kind, const void* site);
  /// `shared_place`: where the access is in the cluster's shared memory, or -1.
  void check_race(const char* begin, std::size_t bytes, AccessKind kind, const void* site,
                  const std::function<std::string()>& element, std::ptrdiff_t shared_place = -1);
  void check_remote(unsigned rank, AccessKind kind, const void* site, const std::string& element);
  /// Returns the number of the running thread in its cluster.
  unsigned number() const { return running_rank * races_.stride() + running_thread(); }
  std::string thread_text(unsigned number) const;
  void check_pending();
  static AccessCounter::Range range_of(Position at) { return {at->first, at->second.bytes}; }
  /// Returns the last array that begins at or before an address.
  Position array_before(const char* address);
  std::string element(Position at, const char* begin, std::size_t bytes) const;
  [[noreturn]] void stop(Finding finding);

  static AccessChecker* current_;
  static thread_local bool is_in_kernel_;

  const std::thread::id thread_ =
      std::this_thread::get_id();  // the one whose accesses as the host are checked
  Arena device_, host_;
  std::map<const char*, Array> arrays_;
  Position last_ = arrays_.end();
  AccessCounter::Range stack_{}, shared_{}, slots_{};
  std::size_t slot_bytes_ = 1;
  std::vector<uint3> blocks_;         // of the cluster
  std::vector<RemoteAccess> remote_;  // by the rank of the block whose memory it is
  std::vector<SharedPart> parts_;
  std::vector<ByteSet> shared_initialized_;  // by rank
  BlockRaces races_;
  std::optional<PendingRace> pending_;
  std::vector<AccessCounter::Range> constants_;  // of the program, which kernels may read
};

/// Passes an access of the running thread to the counter and to the checker, where they are active.
inline void observe(const void* address, std::size_t bytes, AccessKind kind, const void* site,
                    Pipe pipe = Pipe::load_store) {
  if (AccessChecker* const checker = AccessChecker::current()) checker->access(address, bytes, kind, site);
  if (AccessCounter* const counter = AccessCounter::current()) {
    if (kind == AccessKind::atomic)
      counter->atomic(address, bytes, site);
    else
      counter->access(address, bytes, kind == AccessKind::store, site, pipe);
  }
}

}  // namespace convoy::emulator
