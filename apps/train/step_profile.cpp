#include "convoy/apps/train/step_profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "convoy/apps/common/text.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_text.h"

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
  if (is_active_) add({{.module = "", .name = std::string(name)}, true, {}, DType::f32, {}});
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
  add({{.module = std::string(call.module), .name = std::string(call.name)},
       /*is_stage=*/false,
       call.result.shape(),
       call.result.dtype(),
       call.cost});
}

void StepProfile::backward_done(const Node& node, const Tensor& dy) {
  const auto found = modules_.find(&node);
  add({{found == modules_.end() ? "" : found->second, std::string(node.name), /*is_backward=*/true},
       /*is_stage=*/false,
       dy.shape(),
       dy.dtype(),
       node.cost.backward});
}

void StepProfile::add(ProfiledCall call) {
  const std::size_t mark = calls_.size() - first_call_ + 1;
  if (mark == marks_.size()) marks_.push_back(Event::timed(device_.stream()));
  marks_[mark].record();
  call.step = steps_done_;
  call.memory = device_.memory().stats().in_use;
  const std::lock_guard lock(mutex_);
  call.allocations = std::exchange(call_allocations_, 0);
  call.allocated_bytes = std::exchange(call_bytes_, 0);
  calls_.push_back(std::move(call));
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
  std::map<CallName, std::size_t> sums;
  for (const auto& [block, each] : living) {
    const ProfiledCall* const call = call_of(*each);
    sums[call == nullptr ? CallName() : CallName(*call)] += static_cast<std::size_t>(each->bytes);
  }
  const ProfiledCall* const last = end == 0 ? nullptr : call_of(allocations_[end - 1]);
  MemoryPeak peak{.bytes = static_cast<std::size_t>(most),
                  .before_step = static_cast<std::size_t>(before),
                  .call = last == nullptr ? CallName() : CallName(*last),
                  .living = {sums.begin(), sums.end()}};
  std::ranges::stable_sort(peak.living, [](const auto& a, const auto& b) { return a.second > b.second; });
  return peak;
}

namespace {

/// The calls of one operation of one module.
struct Row {
  CallName call;       // without its direction
  std::string result;  // of the first call
  double forward_ms = 0, backward_ms = 0;
  Cost cost;
  std::int64_t allocations = 0;
  std::size_t allocated_bytes = 0;

  double ms() const { return forward_ms + backward_ms; }
  /// Adds the times, the cost and the allocations of another row.
  void operator+=(const Row& other) {
    forward_ms += other.forward_ms;
    backward_ms += other.backward_ms;
    cost += other.cost;
    allocations += other.allocations;
    allocated_bytes += other.allocated_bytes;
  }
};

/// Returns a number of operations or bytes per second, in units of 1e9; "-" without any.
std::string rate(std::int64_t amount, double ms) {
  return amount == 0 || ms == 0 ? "-" : fmt::format("{:.1f}", static_cast<double>(amount) / ms * 1e-6);
}

std::vector<Row> rows_of(const StepProfile& profile) {
  std::map<CallName, Row> rows;
  for (const ProfiledCall& call : profile.calls()) {
    const CallName name{call.module, call.name};
    Row& row = rows[name];
    row.call = name;
    (call.is_backward ? row.backward_ms : row.forward_ms) += call.ms;
    row.cost += call.cost;
    row.allocations += call.allocations;
    row.allocated_bytes += call.allocated_bytes;
    if (row.result.empty() && !call.is_stage)
      row.result = fmt::format("{} {}", to_string(call.dtype), call.result.text());
  }
  std::vector<Row> sorted;
  for (auto& [key, row] : rows) sorted.push_back(std::move(row));
  std::ranges::stable_sort(sorted, [](const Row& a, const Row& b) { return a.ms() > b.ms(); });
  return sorted;
}

/// Returns "layer1.0.conv1 conv2d, backward", with `other` in place of an empty name.
std::string label_of(const CallName& call, const char* other = "") {
  return fmt::format("{}{}{}{}", call.module, call.module.empty() ? "" : " ",
                     call.name.empty() ? other : call.name, call.is_backward ? ", backward" : "");
}

}  // namespace

std::string format_profile(const StepProfile& profile, std::size_t rows) {
  const std::vector<Row> all = rows_of(profile);
  const auto steps = static_cast<double>(profile.steps());
  std::size_t width = 6, name_width = 9;
  for (std::size_t i = 0; i < std::min(rows, all.size()); ++i) {
    width = std::max(width, all[i].call.module.size());
    name_width = std::max(name_width, all[i].call.name.size());
  }
  std::string table = fmt::format("{:<{}}  {:<{}} {:>7} {:>7} {:>5} {:>7} {:>6} {:>6} {:>7}  {}\n", "module",
                                  width, "operation", name_width, "fwd ms", "bwd ms", "%", "GFLOP/s", "GB/s",
                                  "allocs", "MiB", "result");
  const auto line = [&](const std::string& module, const Row& row) {
    table += fmt::format("{:<{}}  {:<{}} {:>7.3f} {:>7.3f} {:>5.1f} {:>7} {:>6} {:>6.0f} {:>7.2f}", module,
                         width, row.call.name, name_width, row.forward_ms / steps, row.backward_ms / steps,
                         100 * row.ms() / profile.total_ms(), rate(row.cost.flops, row.ms()),
                         rate(row.cost.bytes, row.ms()), static_cast<double>(row.allocations) / steps,
                         static_cast<double>(row.allocated_bytes) / (1 << 20) / steps);
    table += row.result.empty() ? "\n" : "  " + row.result + "\n";
  };
  Row others, sum;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i < rows)
      line(all[i].call.module, all[i]);
    else
      others += all[i];
    sum += all[i];
  }
  if (all.size() > rows) line(fmt::format("{} more", all.size() - rows), others);
  line("step", sum);
  return table;
}

std::size_t bytes_of(const nn::Module& module) {
  std::size_t bytes = 0;
  for (const nn::NamedParameter& parameter : module.parameters()) {
    bytes += parameter.variable.value().bytes();
    if (const Tensor& copy = parameter.variable.low_precision_copy(); copy.defined()) bytes += copy.bytes();
  }
  for (const nn::NamedBuffer& buffer : module.buffers()) bytes += buffer.tensor.bytes();
  return bytes;
}

std::string format_memory(const MemoryPeak& peak,
                          const std::vector<std::pair<std::string, std::size_t>>& known, std::size_t rows) {
  std::string text = fmt::format("memory at the peak: {}, in {}\n", format_bytes(peak.bytes),
                                 label_of(peak.call, "the step"));
  const auto line = [&](std::size_t bytes, const std::string& what) {
    text += fmt::format("  {:>11}  {}\n", format_bytes(bytes), what);
  };
  std::size_t rest = peak.before_step;
  for (const auto& [what, bytes] : known) {
    if (bytes == 0) continue;
    line(bytes, what);
    rest -= std::min(rest, bytes);
  }
  line(rest, "other memory from before the step: data, temporary memory of kernels");
  std::size_t others = 0;
  for (std::size_t i = 0; i < peak.living.size(); ++i) {
    const auto& [call, bytes] = peak.living[i];
    if (i < rows)
      line(bytes, label_of(call, "other threads"));
    else
      others += bytes;
  }
  if (others > 0) line(others, fmt::format("{} more", peak.living.size() - rows));
  return text;
}

std::string profile_trace(const StepProfile& profile) {
  using Json = nlohmann::ordered_json;
  Json events = Json::array();
  events.push_back(
      {{"ph", "M"}, {"pid", 0}, {"name", "process_name"}, {"args", {{"name", "training step"}}}});
  double step_begin = 0, step_end = 0;
  std::int64_t step = 0;
  for (const ProfiledCall& call : profile.calls()) {
    if (call.step != step) {
      step = call.step;
      step_begin = step_end;
    }
    const double begin = step_begin + call.begin_ms;
    step_end = begin + call.ms;
    Json arguments = {
        {"step", call.step}, {"allocations", call.allocations}, {"allocated_bytes", call.allocated_bytes}};
    if (!call.is_stage) {
      arguments["module"] = call.module;
      arguments["result"] = fmt::format("{} {}", to_string(call.dtype), call.result.text());
      arguments["flops"] = call.cost.flops;
      arguments["bytes"] = call.cost.bytes;
    }
    constexpr const char* kCategories[] = {"forward", "backward", "stage"};
    const int row = call.is_stage ? 2 : call.is_backward ? 1 : 0;
    events.push_back({{"ph", "X"},
                      {"pid", 0},
                      {"tid", row},
                      {"name", label_of({call.module, call.name})},
                      {"cat", kCategories[row]},
                      {"ts", begin * 1e3},
                      {"dur", call.ms * 1e3},
                      {"args", arguments}});
    events.push_back({{"ph", "C"},
                      {"pid", 0},
                      {"name", "memory in use (MiB)"},
                      {"ts", step_end * 1e3},
                      {"args", {{"memory", static_cast<double>(call.memory) / (1 << 20)}}}});
  }
  for (const auto& [row, name] : {std::pair(0, "forward"), std::pair(1, "backward"), std::pair(2, "stages")})
    events.push_back(
        {{"ph", "M"}, {"pid", 0}, {"tid", row}, {"name", "thread_name"}, {"args", {{"name", name}}}});
  return json_text(Json{{"traceEvents", events}});
}

}  // namespace convoy
