// Initialization of ranks through MPI.
#pragma once

#include <exception>
#include <memory>
#include <thread>

#include "convoy/comm/bootstrap/environment.h"
#include "convoy/comm/bootstrap/rendezvous.h"
#include "convoy/comm/core/message_links.h"

namespace convoy::dist {

class MpiLinks;
class MpiSession;

/// A Rendezvous of the ranks of MPI_COMM_WORLD. Owns MPI's lifetime in this process.
class MpiRendezvous final : public Rendezvous {
 public:
  MpiRendezvous(const RendezvousPlan& plan, const RendezvousOptions& options);
  /// Waits for all ranks to shut down, with a timeout, and finalizes MPI. Aborts the other ranks during stack
  /// unwinding.
  ~MpiRendezvous() override;

  std::vector<std::string> all_gather(const std::string& local) override;

  /// Returns new message links between all ranks, separate from all others. Collective call.
  std::unique_ptr<MessageLinks> new_links();
  std::shared_ptr<MpiSession> session() const { return session_; }

 private:
  const double timeout_;
  const Launch launch_;
  std::jthread finalize_limit_;  // destroyed after the session, which finalizes MPI
  const int exceptions_ = std::uncaught_exceptions();
  std::shared_ptr<MpiSession> session_;
  std::unique_ptr<MpiLinks> links_;
};

/// Initializes this process through MPI. Throws UsageError if the build has no MPI, or if MPI's world size
/// differs from that of the plan.
std::unique_ptr<Rendezvous> rendezvous_by_mpi(const RendezvousPlan& plan, const RendezvousOptions& options);

}  // namespace convoy::dist
