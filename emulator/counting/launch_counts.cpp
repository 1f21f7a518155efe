#include "emulator/counting/launch_counts.h"

namespace convoy::emulator {

GlobalAccesses& GlobalAccesses::operator+=(const GlobalAccesses& other) {
  requests += other.requests;
  sectors += other.sectors;
  lanes += other.lanes;
  bytes += other.bytes;
  return *this;
}

double GlobalAccesses::efficiency() const {
  return sectors == 0 ? 1 : static_cast<double>(bytes) / static_cast<double>(sectors * kSectorBytes);
}

SharedAccesses& SharedAccesses::operator+=(const SharedAccesses& other) {
  requests += other.requests;
  wavefronts += other.wavefronts;
  minimum += other.minimum;
  lanes += other.lanes;
  return *this;
}

double SharedAccesses::conflicts() const {
  return minimum == 0 ? 1 : static_cast<double>(wavefronts) / static_cast<double>(minimum);
}

Accesses& Accesses::operator+=(const Accesses& other) {
  loads += other.loads;
  stores += other.stores;
  shared_loads += other.shared_loads;
  shared_stores += other.shared_stores;
  tensor_loads += other.tensor_loads;
  atomics += other.atomics;
  return *this;
}

SharedAccesses Accesses::shared() const {
  SharedAccesses all = shared_loads;
  all += shared_stores;
  all += tensor_loads;
  return all;
}

}  // namespace convoy::emulator
