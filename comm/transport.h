// How the bytes of collectives on the CPU go from rank to rank. CpuCommunicator does the rest.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/collective.h"
#include "comm/deadline.h"
#include "kernels/runtime/stream.h"
#include "kernels/runtime/view.h"

namespace convoy {

/// Blocking collectives between processes or threads, called by one thread at a time (the communicator's), in
/// the same order on every rank. Each call compares its fingerprint with the others' (check_same) before
/// any data of theirs is used; waits no longer than the deadline, without burning a core; and throws a
/// PeerError that names the ranks at fault, without the collective, which the communicator puts in front.
/// After an error only abort() and the destructor are called.
class Transport {
 public:
  struct Call {
    Collective collective;
    Deadline deadline;
    CpuStream& stream;  // whose threads may compute
  };

  virtual ~Transport() = default;  // without finish() tells the others, where it can, that this rank left
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual std::string name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Once, on the thread of the calls, before the first of them; no collective.
  virtual void start() {}
  virtual void all_reduce(const Call& call, View data) = 0;
  virtual void reduce_scatter(const Call& call, ConstView in, View out) = 0;
  virtual void broadcast(const Call& call, View data) = 0;  // from call.collective.root
  virtual void all_gather(const Call& call, ConstView in, View out) = 0;
  virtual void barrier(const Call& call) = 0;
  virtual std::vector<std::string> gather(const Call& call, const std::string& mine) = 0;
  virtual std::unique_ptr<Transport> split(const Call& call, int color) = 0;
  /// All ranks have come; nothing follows.
  virtual void finish(const Call& call) = 0;
  /// From any thread, at any time, more than once: a call under way, here and if possible on the others, ends
  /// soon with a PeerError that gives the reason.
  virtual void abort(const std::string& reason) noexcept = 0;
};

}  // namespace convoy
