// The error of bytes that have changed on their way between ranks.
#pragma once

#include "convoy/kernels/base/error.h"

namespace convoy::dist {

/// Bytes that have changed on their way from one rank to another one, or sums that are not equal on all
/// ranks. Unlike other peer errors it is a cause: it follows from no failure of another rank.
struct CorruptionError : PeerError {
  using PeerError::PeerError;
};

}  // namespace convoy::dist
