// The group of one rank: every collective is a copy at most.
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace convoy {

/// On a stream with a thread of its own, as between several ranks, so that a program takes the same way.
std::unique_ptr<Communicator> make_self_communicator(const CommOptions& options = {});

}  // namespace convoy
