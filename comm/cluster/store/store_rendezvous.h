// Initialization through a key-value store: over TCP or in a shared file.
#pragma once

#include <memory>

#include "convoy/comm/bootstrap/rendezvous.h"

namespace convoy::dist {

/// Initializes the rank of the plan through a TcpStore at plan.endpoint or a FileStore at plan.path. For
/// RendezvousOptions::by_store. Throws the errors of Rendezvous::init().
std::unique_ptr<Rendezvous> rendezvous_by_store(const RendezvousPlan& plan, const RendezvousOptions& options);

}  // namespace convoy::dist
