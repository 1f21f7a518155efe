// StepProfile: the time of each operation of a few training steps (--profile), and the memory that lives at the peak of
// one (--memory). An operation's time is the interval between the end of the previous operation and its own end, as the
// device reaches them: it includes what the host does in between, and on a GPU the time in which the device waits for
// the host. Steps that are profiled run operation by operation, also where steps are CUDA graphs otherwise.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "convoy/engine/autograd/op_observer.h"
#include "convoy/engine/nn/module.h"
#include "convoy/kernels/runtime/device_context.h"
#include "convoy/kernels/runtime/event.h"
#include "convoy/kernels/runtime/memory/memory.h"

namespace convoy {

/// What has been called.
struct CallName {
  std::string module;        // path, such as "layer1.0.conv1"; empty outside of modules
  std::string name;          // "conv2d"; empty for what is no call of the thread that trains
  bool is_backward = false;  // the call computed gradients

  auto operator<=>(const CallName&) const = default;
};

/// One call of an operation in a profiled step, or a stage of the step that is no operation, such as the
/// optimizer.
struct ProfiledCall : CallName {
  bool is_stage = false;            // not an operation
  Shape result;                     // the shape of the result, or of its gradient
  DType dtype = DType::f32;         // the type of the same
  Cost cost;                        // as stated by the operation
  std::int64_t step = 0;            // from 0
  double begin_ms = 0;              // since the begin of the step
  double ms = 0;                    // until the device had completed it
  std::size_t memory = 0;           // in use on the device after the call, as the host enqueued it
  std::int64_t allocations = 0;     // blocks that the thread took from the device's allocator
  std::size_t allocated_bytes = 0;  // of these, with the rounding of the allocator
};

/// The memory in use at the peak of the last profiled step.
struct MemoryPeak {
  std::size_t bytes = 0;        // in use
  std::size_t before_step = 0;  // of these, allocated before the step
  CallName call;                // at the peak
  /// What was allocated in the step, by the call that allocated it: bytes with the rounding of the allocator, the largest
  /// first.
  std::vector<std::pair<CallName, std::size_t>> living;
};

/// Observes training steps on one thread. Between begin_step() and end_step() all operations of the thread
/// and the number and bytes of their allocations are recorded; on request also each block, for the peak. Must
/// outlive all threads that allocate memory of the device.
class StepProfile final : private OpObserver, private MemoryListener {
 public:
  static constexpr std::int64_t kWarmupSteps = 3;  // steps before those that are profiled

  /// Prepares the profile of `steps` steps on `device`, after the first kWarmupSteps, in which algorithms are
  /// chosen. `with_memory`: also records each block, for peak(). Throws UsageError if a training of
  /// `total_steps` steps is too short.
  StepProfile(const DeviceContext& device, std::int64_t steps, bool with_memory, std::int64_t total_steps);
  /// Ends the observation.
  ~StepProfile() override;
  StepProfile(const StepProfile&) = delete;
  StepProfile& operator=(const StepProfile&) = delete;

  /// Returns whether a step is observed.
  bool active() const { return is_active_; }
  /// Begins a step of the calling thread. Observes it unless it is one of the first steps, or all are
  /// profiled.
  void begin_step();
  /// Ends a stage, such as "optimizer", which has lasted since the previous operation or stage. Does nothing
  /// between steps.
  void stage_done(std::string_view name);
  /// Ends the step. If it was observed, blocks until the device has completed it. Returns whether it was the
  /// last one.
  bool end_step();

  /// Returns why there is no profile, if the training ends now; nullopt if it is complete.
  std::optional<std::string> problem() const;

  /// Returns the calls of all profiled steps in their order.
  const std::vector<ProfiledCall>& calls() const { return calls_; }
  /// Returns the number of profiled steps.
  std::int64_t steps() const { return steps_done_; }
  /// Returns the duration of the profiled steps together, in milliseconds.
  double total_ms() const { return total_ms_; }
  /// Returns the peak of the last step; nullopt without blocks.
  std::optional<MemoryPeak> peak() const;

 private:
  struct Allocation {
    std::size_t call;  // index of the call in which it happened
    const void* block;
    std::int64_t bytes;  // negative: released
    bool is_own_thread;
  };

  void forward_done(const OpCall& call, const Node* node) override;
  void backward_done(const Node& node, const Tensor& dy) override;
  void allocated(const CachingAllocator& allocator, const void* block, std::size_t bytes) noexcept override;
  void released(const CachingAllocator& allocator, const void* block, std::size_t bytes) noexcept override;
  void note(const CachingAllocator& allocator, const void* block, std::int64_t bytes) noexcept;
  void add(ProfiledCall call);
  /// Returns the flag that asks for the profile.
  std::string flag() const;

  DeviceContext device_;
  std::int64_t steps_, steps_done_ = 0, steps_begun_ = 0;
  bool with_memory_, is_active_ = false;
  std::vector<ProfiledCall> calls_;
  std::size_t first_call_ = 0;                            // of the step
  std::vector<Event> marks_;                              // the begin of the step, and the end of each call
  std::unordered_map<const Node*, std::string> modules_;  // of recorded operations
  double total_ms_ = 0;

  std::mutex mutex_;  // of what follows: other threads allocate, too
  std::thread::id thread_;
  std::size_t current_call_ = 0;
  std::size_t memory_at_begin_ = 0;
  std::int64_t call_allocations_ = 0;    // of the current call
  std::size_t call_bytes_ = 0;           // of these
  std::vector<Allocation> allocations_;  // of the step, with_memory_
  bool lost_allocations_ = false;        // there was no memory to record them
};

/// Returns a table of the operations that take the most time, by module and operation, as mean per step: time
/// forward and backward, share, FLOP/s, bytes/s, and the shape of the result. Has at most `rows` rows and one
/// for all others.
std::string format_profile(const StepProfile& profile, std::size_t rows = 20);

/// Returns the size of all parameters and buffers of a module, with low-precision copies.
std::size_t bytes_of(const nn::Module& module);

/// Returns a table of what lives at the peak of the last step: `known` parts of the memory from before the
/// step, such as the parameters, and what the step itself allocated, at most `rows` rows of it.
std::string format_memory(const MemoryPeak& peak,
                          const std::vector<std::pair<std::string, std::size_t>>& known,
                          std::size_t rows = 15);

/// Returns the calls as a Chrome trace (JSON, for Perfetto): one event per call with shape, FLOPs and bytes,
/// and the memory in use as a counter. The steps follow one another.
std::string profile_trace(const StepProfile& profile);

}  // namespace convoy
