// Continuing a training in the memory of the remaining ranks after one of them has failed.
#pragma once

#include <memory>

#include "convoy/apps/train/train_context.h"

namespace convoy {

/// Makes the continuation of a training whose group may lose ranks (convoy-launch --min-ranks). The training
/// continues from a complete step. On the CPU without --zero this is the last one, and what an incomplete
/// step has changed, running statistics, is undone. Otherwise it is a multiple of --snapshot-every.
std::unique_ptr<Continuation> make_continuation();

}  // namespace convoy
