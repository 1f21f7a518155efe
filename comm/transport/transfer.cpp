#include "convoy/comm/transport/transfer.h"

#include "convoy/comm/core/corruption_error.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {

void verify_transfer(const char* what, int from, int to, std::uint64_t sent, std::uint64_t received) {
  if (sent == received) return;
  fail<CorruptionError>(
      "rank {} sent {} with the checksum {:016x} to rank {}, which received {:016x}: memory, the network or a "
      "processor has changed the bytes",
      from, what, sent, to, received);
}

}  // namespace convoy::dist
