#include "convoy/apps/train/profile/step_profile.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "convoy/apps/common/text.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/memory/memory.h"

namespace convoy {

StepProfile::StepProfile(const DeviceContext& device, std::int64_t steps, bool with_memory,
                         std::int64_t total_steps)
    : device_(device), steps_(steps), with_memory_(with_memory) {
  check(total_steps >= kWarmupSteps + steps, "{}: found a training of {}, expected at least {}", flag(),
        counted(total_steps, "step"), kWarmupSteps + steps);
}

std::string StepProfile::flag() const {
  return with_memory_ ? "--memory" : fmt::format("--profile {}", steps_);
}

std::optional<std::string> StepProfile::problem() const {
  if (steps_done_ == steps_) return std::nullopt;
  return fmt::format(
      "{}: no profile, because this run has made {}; expected at least {}, of which the first {} are "
      "not profiled",
      flag(), counted(steps_begun_, "step"), kWarmupSteps + steps_, kWarmupSteps);
}

StepProfile::~StepProfile() {
  if (!is_active_) return;
  OpObserver::activate(nullptr);
  MemoryListener::activate(nullptr);
}

void StepProfile::begin_step() {
  if (steps_begun_++ < kWarmupSteps || steps_done_ == steps_) return;
  first_call_ = calls_.size();
  modules_.clear();
  if (marks_.empty()) marks_.push_back(Event::timed(device_.stream()));
  marks_.front().record();
  {
    const std::lock_guard lock(mutex_);
    thread_ = std::this_thread::get_id();
    current_call_ = calls_.size();
    call_allocations_ = 0;
    call_bytes_ = 0;
    allocations_.clear();
    memory_at_begin_ = device_.memory().stats().in_use;
  }
  is_active_ = true;
  OpObserver::activate(this);
  MemoryListener::activate(this);
}

void StepProfile::stage_done(std::string_view name) {
  if (is_active_) add({.module = "", .name = std::string(name), .is_stage = true, .result = {}, .cost = {}});
}

bool StepProfile::end_step() {
  if (!is_active_) return false;
  OpObserver::activate(nullptr);
  MemoryListener::activate(nullptr);
  is_active_ = false;
  const std::size_t count = calls_.size() - first_call_;
  marks_[count].wait();
  for (std::size_t i = 0; i < count; ++i) {
    ProfiledCall& call = calls_[first_call_ + i];
    call.ms = elapsed_ms(marks_[i], marks_[i + 1]);
    call.begin_ms = elapsed_ms(marks_.front(), marks_[i]);
  }
  total_ms_ += elapsed_ms(marks_.front(), marks_[count]);
  return ++steps_done_ == steps_;
}

void StepProfile::forward_done(const OpCall& call, const Node* node) {
  if (node != nullptr) modules_[node] = call.module;
  add({.module = std::string(call.module),
       .name = std::string(call.name),
       .result = call.result.shape(),
       .dtype = call.result.dtype(),
       .cost = call.cost});
}

void StepProfile::backward_done(const Node& node, const Tensor& dy) {
  const auto found = modules_.find(&node);
  add({.module = found == modules_.end() ? "" : found->second,
       .name = std::string(node.name),
       .is_backward = true,
       .result = dy.shape(),
       .dtype = dy.dtype(),
       .cost = node.cost.backward});
}

void StepProfile::add(ProfiledCall call) {
  const std::size_t mark = calls_.size() - first_call_ + 1;
  if (mark == marks_.size()) marks_.push_back(Event::timed(device_.stream()));
  marks_[mark].record();
  call.step = steps_done_;
  call.memory = device_.memory().stats().in_use;
  {
    const std::lock_guard lock(mutex_);
    call.allocations = std::exchange(call_allocations_, 0);
    call.allocated_bytes = std::exchange(call_bytes_, 0);
  }
  calls_.push_back(std::move(call));
  const std::lock_guard lock(mutex_);
  current_call_ = calls_.size();
}

void StepProfile::allocated(const CachingAllocator& allocator, const void* block,
                            std::size_t bytes) noexcept {
  note(allocator, block, static_cast<std::int64_t>(bytes));
}

void StepProfile::released(const CachingAllocator& allocator, const void* block, std::size_t bytes) noexcept {
  note(allocator, block, -static_cast<std::int64_t>(bytes));
}

void StepProfile::note(const CachingAllocator& allocator, const void* block, std::int64_t bytes) noexcept {
  if (&allocator != &device_.memory()) return;
  const std::lock_guard lock(mutex_);
  const bool is_own_thread = std::this_thread::get_id() == thread_;
  if (is_own_thread && bytes > 0) {
    ++call_allocations_;
    call_bytes_ += static_cast<std::size_t>(bytes);
  }
  if (!with_memory_) return;
  try {
    allocations_.push_back({current_call_, block, bytes, is_own_thread});
  } catch (const std::bad_alloc&) {
    lost_allocations_ = true;
  }
}

std::optional<MemoryPeak> StepProfile::peak() const {
  if (allocations_.empty() || lost_allocations_) return std::nullopt;
  // The first pass finds the peak, and the second one what lives there.
  auto in_use = static_cast<std::int64_t>(memory_at_begin_), most = in_use;
  std::size_t end = 0;  // number of allocations and releases until the peak
  for (std::size_t i = 0; i < allocations_.size(); ++i) {
    in_use += allocations_[i].bytes;
    if (in_use > most) {
      most = in_use;
      end = i + 1;
    }
  }
  std::unordered_map<const void*, const Allocation*> living;
  auto before = static_cast<std::int64_t>(memory_at_begin_);
  for (std::size_t i = 0; i < end; ++i) {
    const Allocation& each = allocations_[i];
    if (each.bytes > 0)
      living[each.block] = &each;
    else if (living.erase(each.block) == 0)
      before += each.bytes;
  }
  const auto call_of = [&](const Allocation& each) -> const ProfiledCall* {
    return each.is_own_thread && each.call < calls_.size() ? &calls_[each.call] : nullptr;
  };
  std::map<std::tuple<std::string, std::string, bool>, std::size_t> sums;
  for (const auto& [block, each] : living) {
    std::tuple<std::string, std::string, bool> key;
    if (const ProfiledCall* const call = call_of(*each)) key = {call->module, call->name, call->is_backward};
    sums[key] += static_cast<std::size_t>(each->bytes);
  }
  MemoryPeak peak{.bytes = static_cast<std::size_t>(most),
                  .before_step = static_cast<std::size_t>(before),
                  .module = {},
                  .name = {},
                  .living = {}};
  if (const ProfiledCall* const call = end == 0 ? nullptr : call_of(allocations_[end - 1]))
    std::tie(peak.module, peak.name, peak.is_backward) =
        std::tie(call->module, call->name, call->is_backward);
  for (const auto& [key, bytes] : sums)
    peak.living.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), bytes});
  std::stable_sort(peak.living.begin(), peak.living.end(),
                   [](const LivingMemory& a, const LivingMemory& b) { return a.bytes > b.bytes; });
  return peak;
}

}  // namespace convoy
