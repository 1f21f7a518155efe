// Code that the emulated libraries share: settings, errors, object registries and the launch of their work.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "emulator/runtime/driver.h"
#include "tests/cuda_emulator/vendor/vendor.h"

namespace convoy::emulator {

/// Settings and counters, protected by the driver's lock.
struct VendorState {
  VendorSettings settings;
  VendorCounts counts;
  std::int64_t executions = 0;              // calls of cudnnBackendExecute()
  int compiled_plans = 0;                   // of this process
  std::set<const void*> busy_handles = {};  // of cuDNN, with which threads are finalizing plans
};
VendorState& vendor_state();

/// An exception that ends a library call with a status and a reason.
template <class Status>
struct Refusal {
  Status status;
  std::string why;
};

/// The live objects behind a library's handles. An invalid handle is detected, not dereferenced.
template <class T>
class ObjectRegistry {
 public:
  T* add(T object) {
    T* const created = new T(std::move(object));
    alive_.insert(created);
    return created;
  }
  T* find(const void* object) const {
    const auto found = alive_.find(static_cast<T*>(const_cast<void*>(object)));
    return found != alive_.end() ? *found : nullptr;
  }
  std::size_t size() const { return alive_.size(); }
  bool remove(const void* object) {
    T* const found = find(object);
    alive_.erase(found);
    delete found;
    return found != nullptr;
  }

 private:
  std::set<T*> alive_;
};

/// A range of bytes that an operation accesses.
struct Span {
  const void* begin = nullptr;
  std::size_t bytes = 0;

  bool overlaps(const Span& other) const;
  bool is_aligned(std::size_t alignment) const;
};

/// What a library enqueues.
struct LibraryCall {
  std::function<void()> work;
  Span output;
  LaunchCounts moved;
};

/// Enqueues or captures work that may access the memory of the stream's GPU. Events measure `ms` for it, or
/// the actual time if `ms` is negative. The caller must hold the driver's lock.
void compute(Driver& driver, EmulatedStream& stream, double ms, LibraryCall call);

}  // namespace convoy::emulator
