// The control plane: what the ranks of a job tell each other besides their collectives.
#pragma once

#include <memory>

#include "convoy/comm/bootstrap/rendezvous.h"
#include "convoy/comm/core/job_control.h"

namespace convoy::dist {

/// Joins the ranks of the job. Collective. `rendezvous` must outlive the result. Throws PeerError if the
/// hosts cannot connect to each other by TCP within the timeout.
///
/// A rank publishes its step, its phase and its collectives in memory that the ranks of a host share, which
/// costs no message. The agent of the host (host_agent.h) reads it. So the job knows who holds it up and why
/// it ends, and all ranks stop after the same step. The last events of a rank can be read after its process
/// was killed (flight_recorder.h).
///
/// One thread of the rank makes all calls, except where a function says otherwise. Throws UsageError if
/// CONVOY_HOST_TIMEOUT has no seconds.
std::unique_ptr<JobControl> connect_control_plane(Rendezvous& rendezvous, ControlOptions options);

}  // namespace convoy::dist
