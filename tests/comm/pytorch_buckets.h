// The rule to compare with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace convoy::testing {

/// Bytes of the buckets of PyTorch's DistributedDataParallel, as its first step makes them: parameters in
/// reverse order of registration; a bucket is closed once it holds 1 MiB (the first) or 25 MiB.
inline std::vector<std::size_t> pytorch_bucket_bytes(std::span<const std::int64_t> numels) {
  std::vector<std::size_t> buckets;
  std::size_t held = 0, limit = std::size_t{1} << 20;
  for (auto numel = numels.rbegin(); numel != numels.rend(); ++numel) {
    held += static_cast<std::size_t>(*numel) * sizeof(float);
    if (held < limit) continue;
    buckets.push_back(held);
    held = 0;
    limit = std::size_t{25} << 20;
  }
  if (held > 0) buckets.push_back(held);
  return buckets;
}

}  // namespace convoy::testing
