// What the fake libraries share: their settings, refusals, and how their work gets onto a stream.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "tests/cuda_emulator/driver.h"
#include "tests/cuda_emulator/vendor.h"

namespace convoy::emulator {

/// Read and changed under the driver's lock.
struct VendorState {
  VendorSettings settings;
  VendorCounts counts;
};
VendorState& vendor_state();

/// Ends a call of a library: the status that it returns, and why.
template <class Status>
struct Refusal {
  Status status;
  std::string why;
};

/// Objects that a library handed out and that were not destroyed; anything else given for one is refused
/// instead of followed.
template <class T>
class Handed {
 public:
  T* add(T object) {
    T* const made = new T(std::move(object));
    alive_.insert(made);
    return made;
  }
  T* find(const void* object) const {
    const auto found = alive_.find(static_cast<T*>(const_cast<void*>(object)));
    return found != alive_.end() ? *found : nullptr;
  }
  bool remove(const void* object) {
    T* const found = find(object);
    alive_.erase(found);
    delete found;
    return found != nullptr;
  }

 private:
  std::set<T*> alive_;
};

/// Queues (or records) work that may touch the memory of the stream's GPU, and that takes `ms` in the eyes of
/// events; negative: what it takes. Under the driver's lock.
void compute(Driver& driver, EmulatedStream& stream, double ms, std::function<void()> work);

/// Bytes that an operation touches.
struct Span {
  const void* begin = nullptr;
  std::size_t bytes = 0;

  bool overlaps(const Span& other) const;
  bool is_aligned(std::size_t alignment) const;
};

}  // namespace convoy::emulator
