// Ranks that meet at a store.
#pragma once

#include <memory>

#include "comm/meeting_plan.h"
#include "comm/rendezvous.h"

namespace convoy {

std::unique_ptr<Rendezvous> meet_by_tcp(const MeetingPlan& plan, const RendezvousOptions& options);
std::unique_ptr<Rendezvous> meet_by_file(const MeetingPlan& plan, const RendezvousOptions& options);

}  // namespace convoy
