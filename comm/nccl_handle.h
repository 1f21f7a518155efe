// The library's communicator, which one thread uses and another may end.
#pragma once

#include <nccl.h>

#include <functional>
#include <mutex>

#include "comm/deadline.h"

namespace convoy {

/// A non-blocking ncclComm_t. Its calls return before they are through; this polls until they are, so that an
/// event recorded after one comes after its work, and a recording holds it. Freed once, by destroy() or by
/// abort(), whichever comes first.
class NcclHandle {
 public:
  NcclHandle() = default;
  ~NcclHandle() { abort(); }
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  // Each waits until the call is through. PeerError where NCCL refuses or fails, where the deadline passes,
  // or where the communicator was aborted meanwhile, or before.

  /// On the calling thread's current GPU. All ranks come.
  void init(const ncclUniqueId& id, int rank, int size, const Deadline& deadline);
  void call(const std::function<ncclResult_t(ncclComm_t)>& f, const Deadline& deadline);
  /// All ranks come, after all that they have launched.
  void destroy(const Deadline& deadline);

  /// Throws where the library has met an error in what was launched. Does not wait.
  void check();
  /// Ends what is under way on the GPU, and the communicator, alone. From any thread.
  void abort() noexcept;

 private:
  /// f with the communicator, if it is still there.
  void locked(const std::function<void()>& f);
  void poll(const Deadline& deadline);

  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;
  bool is_over_ = false;
};

}  // namespace convoy
