// Finds accesses of one array by two operations that no stream and no event orders.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emulator/checking/findings.h"
#include "emulator/counting/byte_set.h"

namespace convoy::emulator {

/// For each stream, the number of its operations that are known to have completed.
using StreamClock = std::map<const void*, std::uint64_t>;

/// An operation of a stream: what comes before it, and what it accesses.
struct OrderedOperation {
  struct Accesses {
    const void* array;
    ByteSet read, written;
  };
  const void* stream;
  std::uint64_t number;  // of the operations of the stream, from 1
  StreamClock before;    // at the time when it was queued
  std::string what;      // "kernel scale", "copy to the host"
  Callers callers;       // of the call that queued it
  std::vector<Accesses> accesses{};
};

/// The order of the operations of all streams and of the host, and the operations that the host has not
/// waited for.
class StreamOrder {
 public:
  using Operation = std::shared_ptr<OrderedOperation>;

  /// Queues an operation. The host has queued it, so what the host has waited for comes before.
  Operation queue(const void* stream, std::string what, Callers callers);
  /// An event: `stream` at this time.
  StreamClock record(const void* stream);
  /// What the event has seen comes before all further operations of the stream, or of the host.
  void wait(const void* stream, const StreamClock& event) { join(streams_[stream], event); }
  void wait_on_host(const StreamClock& event);
  /// The host has waited for all that is queued on a stream.
  void wait_on_host(const void* stream) { wait_on_host(record(stream)); }
  void wait_for_all_on_host();

  /// An access that conflicts with another one.
  struct Conflict {
    Operation other;
    const void* array;
    std::ptrdiff_t byte;
    bool is_store_of_other;
  };
  /// The operation has run. Returns one of its conflicts with the operations that have run before.
  std::optional<Conflict> complete(const Operation& operation);
  /// Returns an operation that accesses bytes of an array and that the host has not waited for, of which at
  /// least one is a store. `bytes` has the ones that the host accesses.
  std::optional<Conflict> host_access(const void* array, const ByteSet& bytes, bool is_store) const;

 private:
  static void join(StreamClock& to, const StreamClock& from);

  StreamClock host_;
  std::map<const void*, StreamClock> streams_;
  std::deque<Operation> completed_;
};

}  // namespace convoy::emulator
