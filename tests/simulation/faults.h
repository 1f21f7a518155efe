// Carries out the faults of a schedule.
#pragma once

#include "tests/simulation/world.h"

namespace simulation {

/// Schedules all faults.
void schedule_faults(World& world);

}  // namespace simulation
