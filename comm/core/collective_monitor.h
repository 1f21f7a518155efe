// The interface through which communicators report their collectives to an observer of the whole job.
#pragma once

#include "convoy/comm/core/collective_signature.h"

namespace convoy::dist {

/// Observes the collectives of one communicator on one rank. Several threads may call it at the same time.
/// The functions take well under a microsecond and do not throw: they are part of every collective.
class CollectiveMonitor {
 public:
  virtual ~CollectiveMonitor() = default;
  CollectiveMonitor() = default;
  CollectiveMonitor(const CollectiveMonitor&) = delete;
  CollectiveMonitor& operator=(const CollectiveMonitor&) = delete;

  /// The rank has launched the collective: it is enqueued on the communication stream.
  virtual void launched(const CollectiveSignature& collective) noexcept = 0;
  /// The communication stream has reached the collective: the rank waits for the other ranks.
  virtual void started(const CollectiveSignature& collective) noexcept = 0;
  /// The collective that this rank is in makes progress: messages have arrived, or were sent.
  virtual void progressed() noexcept = 0;
  /// The collective has completed on this rank.
  virtual void completed(const CollectiveSignature& collective) noexcept = 0;
};

}  // namespace convoy::dist
