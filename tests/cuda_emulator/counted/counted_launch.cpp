#include "tests/cuda_emulator/counted/counted_launch.h"

namespace convoy::bench {
namespace {

double ratio(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 1 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

GlobalTraffic& GlobalTraffic::operator+=(const GlobalTraffic& other) {
  requests += other.requests;
  sectors += other.sectors;
  bytes += other.bytes;
  lanes += other.lanes;
  return *this;
}

double CountedLaunch::sector_efficiency() const {
  constexpr std::int64_t kSectorBytes = 32;
  return ratio(loads.bytes + stores.bytes, kSectorBytes * (loads.sectors + stores.sectors));
}

double CountedLaunch::bank_conflicts() const { return ratio(shared_wavefronts, minimum_wavefronts); }

double CountedLaunch::active_lanes() const {
  const std::int64_t requests = loads.requests + stores.requests;
  return requests == 0 ? 0 : ratio(loads.lanes + stores.lanes, requests);
}

CountedLaunch& CountedLaunch::operator+=(const CountedLaunch& other) {
  flops += other.flops;
  bytes_read += other.bytes_read;
  bytes_written += other.bytes_written;
  loads += other.loads;
  stores += other.stores;
  shared_requests += other.shared_requests;
  shared_wavefronts += other.shared_wavefronts;
  minimum_wavefronts += other.minimum_wavefronts;
  barriers += other.barriers;
  atomics += other.atomics;
  return *this;
}

std::vector<CountedLaunch> counted_launches(const std::function<void()>& run) {
  start_counting_launches();
  run();
  return stop_counting_launches();
}

}  // namespace convoy::bench
