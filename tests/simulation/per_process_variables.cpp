// The sources of Convoy with variables that belong to a process, compiled again so that these variables are in a section
// of their own. Process::enter() swaps the section. The symbols of this program replace those of the shared library.
#include <mutex>

#include "convoy/comm/core/deadline.h"
#include "tests/simulation/plant.h"

#define static static __attribute__((section("per_process")))
#include CONVOY_DEADLINE_SOURCE
