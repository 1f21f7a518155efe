#include "convoy/comm/transport/transfer.h"

#include <vector>

#include "convoy/comm/core/corruption_error.h"
#include "convoy/comm/transport/cpu_sum.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {

void verify_transfer(const char* what, int from, int to, std::uint64_t sent, std::uint64_t received) {
  if (sent == received) return;
  fail<CorruptionError>(
      "rank {} sent {} with the checksum {:016x} to rank {}, which received {:016x}: memory, the network or a "
      "processor has changed the bytes",
      from, what, sent, to, received);
}

void sum_verified(std::span<const SentPart> parts, int to, const View& sum, Checksum* of_sum,
                  const View& copy) {
  std::vector<Checksum> checksums(parts.size());
  std::vector<SumPart> summands;
  for (std::size_t i = 0; i < parts.size(); ++i)
    summands.push_back({parts[i].view, parts[i].sent ? &checksums[i] : nullptr});
  sum_in_order(summands, sum, of_sum, copy);
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (parts[i].sent)
      verify_transfer(kContribution, parts[i].from, to, *parts[i].sent, checksums[i].value());
}

}  // namespace convoy::dist
