#include "convoy/engine/profile/profiler.h"

#include <fmt/format.h>

#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "convoy/kernels/base/json_text.h"

namespace convoy {
namespace {

/// Returns a time in microseconds, the unit of traces, with fractional digits for short kernels.
double microseconds(Profiler::Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

}  // namespace

Profiler::Range::Range(Profiler* profiler, std::string_view name, std::string_view category)
    : named_(name), profiler_(profiler) {
  if (profiler_ == nullptr) return;
  if (!profiler_->enabled()) {
    profiler_ = nullptr;
    return;
  }
  name_ = name;
  category_ = category;
  begin_ = Clock::now();
}

Profiler::Range::~Range() {
  if (profiler_ == nullptr) return;
  try {
    profiler_->record(std::move(name_), std::move(category_), begin_, Clock::now());
  } catch (const std::bad_alloc&) {  // out of memory: drop the range, a destructor must not throw
  }
}

void Profiler::record(std::string name, std::string category, Clock::time_point begin,
                      Clock::time_point end) {
  const std::scoped_lock lock(mutex_);
  const int row = row_of_this_thread();
  keep({std::move(name), std::move(category), row, begin, end - begin});
}

void Profiler::add(std::string_view row, std::string name, std::string category, Clock::time_point begin,
                   Clock::duration duration) {
  const std::scoped_lock lock(mutex_);
  auto place = named_rows_.find(row);
  if (place == named_rows_.end()) {
    row_names_[next_row()] = row;
    place = named_rows_.emplace(row, next_row()).first;
  }
  keep({std::move(name), std::move(category), place->second, begin, duration});
}

void Profiler::keep(Event event) {
  if (events_.size() < max_events_) {
    events_.push_back(std::move(event));
  } else {
    ++dropped_;
  }
}

int Profiler::row_of_this_thread() {
  return rows_.try_emplace(std::this_thread::get_id(), next_row()).first->second;
}

void Profiler::start_clock() {
  const std::scoped_lock lock(mutex_);
  origin_ = Clock::now();
}

std::string Profiler::trace_events(int process, std::string_view label) const {
  using Json = nlohmann::ordered_json;
  const std::scoped_lock lock(mutex_);
  std::string text;
  const auto add = [&](const Json& event) {
    if (!text.empty()) text += ",\n";
    text += json_text(event);
  };
  const auto describe = [&](const char* name, const Json& value) {
    add({{"ph", "M"}, {"name", name}, {"pid", process}, {"args", value}});
  };
  describe("process_name", {{"name", label}});
  describe("process_sort_index", {{"sort_index", process}});
  if (dropped_ > 0) describe("process_labels", {{"labels", fmt::format("{} ranges are left out", dropped_)}});
  for (const auto& [row, name] : row_names_)
    add({{"ph", "M"}, {"name", "thread_name"}, {"pid", process}, {"tid", row}, {"args", {{"name", name}}}});
  for (const Event& event : events_)
    add({{"ph", "X"},  // a complete event: begin and duration
         {"name", event.name},
         {"cat", event.category},
         {"pid", process},
         {"tid", event.row},
         {"ts", microseconds(event.begin - origin_)},
         {"dur", microseconds(event.duration)}});
  return text;
}

std::string Profiler::chrome_trace(int process, std::string_view label) const {
  return chrome_trace_of({trace_events(process, label)});
}

std::string chrome_trace_of(std::vector<std::string> processes) {
  std::string trace = R"({"displayTimeUnit":"ms","traceEvents":[)";
  for (std::string& events : processes) {
    if (trace.back() != '[') trace += ',';
    trace += '\n';
    trace += std::exchange(events, {});  // freed at once, since the text of a long run is large
  }
  return trace + "\n]}\n";
}

}  // namespace convoy
