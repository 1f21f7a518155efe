// Initialization through a key-value store: over TCP or in a shared file.
#pragma once

#include <memory>

#include "convoy/comm/bootstrap/rendezvous.h"
#include "convoy/comm/bootstrap/rendezvous_plan.h"

namespace convoy::dist {

/// Initializes the rank of the plan through a TcpStore at plan.endpoint. Throws the errors of
/// Rendezvous::init().
std::unique_ptr<Rendezvous> rendezvous_by_tcp(const RendezvousPlan& plan, const RendezvousOptions& options);
/// Initializes the rank of the plan through a FileStore at plan.path. Throws the errors of
/// Rendezvous::init().
std::unique_ptr<Rendezvous> rendezvous_by_file(const RendezvousPlan& plan, const RendezvousOptions& options);

}  // namespace convoy::dist
