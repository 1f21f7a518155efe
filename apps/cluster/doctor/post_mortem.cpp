// --post-mortem: what the flight recorders of all ranks tell about a job that has failed.
#include <fmt/chrono.h>

#include <algorithm>
#include <chrono>
#include <map>

#include <nlohmann/json.hpp>

#include "convoy/apps/cluster/doctor/doctor.h"
#include "convoy/comm/cluster/control/flight_recorder.h"
#include "convoy/comm/core/collective.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_text.h"

namespace convoy::doctor {
namespace {

using dist::FlightFile;
using dist::RecordedEvent;
using Json = nlohmann::ordered_json;

constexpr std::size_t kLastEvents = 5;  // per rank in the report
constexpr double kMicroseconds = 1e-3;  // per nanosecond

std::string format_event(const RecordedEvent& event) {
  if (event.kind == "phase") return fmt::format("begins phase {}", event.phase);
  const std::string where = event.communicator.empty() ? "" : fmt::format(" ({})", event.communicator);
  return fmt::format("{} {}{}", event.kind, event.text, where);
}

/// Returns the ranks without a file.
std::vector<int> missing_ranks(const std::vector<FlightFile>& files) {
  std::vector<int> missing;
  for (int rank = 0; rank < files.front().world_size; ++rank)
    if (std::ranges::none_of(files, [&](const FlightFile& f) { return f.status.rank == rank; }))
      missing.push_back(rank);
  return missing;
}

Json slice(int rank, int row, const std::string& name, std::int64_t begin, std::int64_t end,
           std::int64_t step) {
  return {{"ph", "X"},
          {"pid", rank},
          {"tid", row},
          {"name", name},
          {"ts", static_cast<double>(begin) * kMicroseconds},
          {"dur", static_cast<double>(std::max<std::int64_t>(end - begin, 0)) * kMicroseconds},
          {"args", {{"step", step}}}};
}

/// Appends the events of one rank. `origin` is time 0.
void add_rank(Json& events, const FlightFile& file, std::int64_t origin) {
  const int rank = file.status.rank;
  const auto name_row = [&](const char* kind, int row, const std::string& name) {
    events.push_back({{"ph", "M"}, {"pid", rank}, {"tid", row}, {"name", kind}, {"args", {{"name", name}}}});
  };
  name_row("process_name", 0, fmt::format("rank {} on {}", rank, file.status.host));
  name_row("thread_name", 0, "phases");
  const RecordedEvent* phase = nullptr;
  std::map<std::string, int> rows;                      // by communicator
  std::map<std::string, const RecordedEvent*> started;  // the collective in progress, by communicator
  const auto end_phase = [&](std::int64_t end) {
    if (phase != nullptr)
      events.push_back(slice(rank, 0, phase->phase, phase->time - origin, end - origin, phase->step));
  };
  const auto end_collective = [&](const std::string& communicator, std::int64_t end, const char* note) {
    const RecordedEvent*& begin = started[communicator];
    if (begin != nullptr)
      events.push_back(slice(rank, rows[communicator], begin->text + note, begin->time - origin, end - origin,
                             begin->step));
    begin = nullptr;
  };
  for (const RecordedEvent& event : file.events) {
    if (!event.communicator.empty() &&
        rows.emplace(event.communicator, static_cast<int>(rows.size()) + 1).second)
      name_row("thread_name", rows[event.communicator], event.communicator);
    if (event.kind == "phase") {
      end_phase(event.time);
      phase = &event;
    } else if (event.kind == "started") {
      started[event.communicator] = &event;
    } else if (event.kind == "completed") {
      end_collective(event.communicator, event.time, "");
    } else if (event.kind != "launched") {
      events.push_back({{"ph", "i"},
                        {"s", "p"},
                        {"pid", rank},
                        {"tid", 0},
                        {"name", format_event(event)},
                        {"ts", static_cast<double>(event.time - origin) * kMicroseconds}});
    }
  }
  end_phase(file.time);
  for (const auto& [communicator, row] : rows) end_collective(communicator, file.time, " (not completed)");
}

/// Returns the report: why the job has ended, what each rank was doing, and its last events. `files` are
/// those of all ranks that have one, in rank order; `ignored` is the number of files of earlier jobs.
std::string format_post_mortem(const std::vector<FlightFile>& files, int ignored) {
  using namespace std::chrono;
  const FlightFile& first = files.front();
  const auto end = time_point_cast<seconds>(system_clock::time_point(nanoseconds(first.time)));
  std::string text = fmt::format("flight recorders of {} of {} ranks, written at {:%Y-%m-%d %H:%M:%S} UTC\n",
                                 files.size(), first.world_size, fmt::gmtime(system_clock::to_time_t(end)));
  if (const std::vector<int> missing = missing_ranks(files); !missing.empty())
    text += fmt::format("there is no file of {}: copy those of all hosts into one directory\n",
                        dist::format_ranks(missing));
  if (ignored > 0)
    text += fmt::format("{} {} of earlier jobs left out\n", ignored, ignored == 1 ? "file" : "files");
  const auto verdict = std::ranges::find_if(files, [](const auto& f) { return !f.verdict.empty(); });
  text += fmt::format("\nverdict: {}\n", verdict == files.end() ? "none was reached" : verdict->verdict);
  for (const FlightFile& file : files) {
    text += fmt::format("\n{}\n", dist::describe(file.status));
    if (!file.status.failure.empty()) text += fmt::format("  error: {}\n", file.status.failure);
    const std::size_t begin = file.events.size() - std::min(file.events.size(), kLastEvents);
    for (std::size_t i = begin; i < file.events.size(); ++i) {
      const RecordedEvent& event = file.events[i];
      text += fmt::format("  {:9.3f} s  step {:<6}  {}\n", static_cast<double>(event.time - file.time) * 1e-9,
                          event.step, format_event(event));
    }
  }
  return text;
}

/// Returns a timeline for Perfetto (https://ui.perfetto.dev): one process per rank, with a row for its phases
/// and one for the collectives of each communicator. A collective that has not completed ends where the
/// recording ends.
std::string timeline_of(const std::vector<FlightFile>& files) {
  std::int64_t origin = files.front().time;
  for (const FlightFile& file : files)
    if (!file.events.empty()) origin = std::min(origin, file.events.front().time);
  Json events = Json::array();
  for (const FlightFile& file : files) add_rank(events, file, origin);
  return json_text(Json{{"traceEvents", std::move(events)}});
}

}  // namespace

std::string examine_post_mortem(const std::filesystem::path& directory) {
  const std::filesystem::path inner = directory / "post-mortem";
  const std::filesystem::path place = std::filesystem::is_directory(inner) ? inner : directory;
  int ignored = 0;
  const std::vector<FlightFile> files = dist::read_flight_files(place, ignored);
  const std::filesystem::path timeline = place / "timeline.json";
  io::write_file_atomically(timeline, timeline_of(files));
  return format_post_mortem(files, ignored) +
         fmt::format("\ntimeline: {}, for https://ui.perfetto.dev\n", timeline.string());
}

}  // namespace convoy::doctor
