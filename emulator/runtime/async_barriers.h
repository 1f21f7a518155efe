// Barriers of a part of a block: mbarriers and named barriers of PTX; and setmaxnreg. include/ptx.h has the
// instructions.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "emulator/checking/thread_clocks.h"
#include "emulator/runtime/shared_chunks.h"

namespace convoy::emulator {

/// An asynchronous copy to shared memory that has not landed.
struct PendingCopy {
  void* to;
  const void* from;  // null for zeros
  void land(SharedChunks& chunks, unsigned thread, SharedChunks::Proxy proxy) const;
};

/// The mbarriers and named barriers of a block, and the registers of its warpgroups. A copy that completes an
/// mbarrier lands when a thread waits there, which is the latest time that PTX permits. All functions act for the
/// thread that is running.
class AsyncBarriers {
 public:
  void begin_block(unsigned threads, ThreadClocks& clocks, SharedChunks& chunks);
  /// Returns "" or a mistake that is known only now.
  std::string end_block() const;
  /// Returns what a thread waits for, such as "an mbarrier's phase of parity 1; …"; "" if it waits for none.
  std::string wait_of(unsigned thread) const;

  void initialize(const void* barrier, unsigned count, Where where);
  /// `bytes`: what bulk copies must have copied too before the phase ends.
  void arrive(const void* barrier, unsigned bytes, Where where);
  void wait(const void* barrier, unsigned parity, Where where);
  /// The running thread arrives when its copies so far have landed.
  void arrive_after(const void* barrier, std::vector<PendingCopy> copies, Where where);
  void copy_bulk(const void* barrier, std::vector<PendingCopy> copies, Where where);
  /// Lands the running thread's copies of arrive_after(), for a thread that waits for them.
  void land_copies();

  void named(unsigned id, unsigned threads, bool waits, Where where);
  void set_registers(unsigned count, bool grows, Where where);

 private:
  static constexpr unsigned kWarp = 32, kWarpgroup = 128, kNames = 16, kRegisters = 65536;

  /// Copies that complete an mbarrier: by an arrival, or as bytes of its transaction.
  struct Completion {
    unsigned thread;
    bool is_bulk;
    std::vector<PendingCopy> copies;
    ThreadClocks::Clock clock;  // what comes before the arrival
  };
  struct Mbarrier {
    unsigned count, missing;   // arrivals of a phase
    std::int64_t bytes = 0;    // missing in this phase
    unsigned phases = 0;       // completed
    unsigned initializer = 0;  // a thread
    ThreadClocks::Time initialized = 0;
    ThreadClocks::Clock arrived{}, completed{};
    std::vector<unsigned> waiting{};
    std::vector<Completion> completions{};
  };
  struct Named {
    unsigned expected = 0;  // threads; 0: none has arrived
    std::vector<unsigned> arrived{}, waiting{};
    ThreadClocks::Clock clock{};
  };

  Mbarrier& find(const void* barrier, const char* what, Where where);
  void complete(Mbarrier& barrier, const Completion& completion);
  void complete_all(Mbarrier& barrier);
  static void end_phase_if_complete(Mbarrier& barrier);
  std::string describe(const Mbarrier& barrier) const;

  unsigned threads_ = 0;
  ThreadClocks* clocks_ = nullptr;
  SharedChunks* chunks_ = nullptr;
  std::map<const void*, Mbarrier> mbarriers_;
  std::array<Named, kNames> named_;
  std::vector<unsigned> registers_;  // of each thread; empty: as the compiler has chosen
};

}  // namespace convoy::emulator
