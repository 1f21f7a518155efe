// Initialization through a key-value store, whose place is known or stands in a shared file.
#pragma once

#include <memory>
#include <string>

#include "convoy/comm/bootstrap/rendezvous.h"

namespace convoy::dist {

/// Initializes the rank of the plan through a TcpStore at plan.endpoint, or at the place in the file plan.path. For
/// RendezvousOptions::by_store. Throws the errors of Rendezvous::init().
std::unique_ptr<Rendezvous> rendezvous_by_store(const RendezvousPlan& plan, const RendezvousOptions& options);

/// Tells the ranks that wait for this one in an exchange of the rendezvous why it fails. Without it, they learn that it has
/// exited, and name it as the cause. Has no effect on a rendezvous of another kind.
void tell_failure(Rendezvous& rendezvous, const std::string& reason) noexcept;

}  // namespace convoy::dist
