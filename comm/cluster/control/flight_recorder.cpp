#include "convoy/comm/cluster/control/flight_recorder.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "convoy/comm/cluster/control/host_memory.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_integer.h"
#include "convoy/kernels/base/json_text.h"

namespace convoy::dist {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 1;
constexpr const char* kKinds[] = {"phase",      "launched", "started", "completed",
                                  "allocation", "warning",  "failure"};

template <class Clock>
std::int64_t nanoseconds_of() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

RecordedEvent record_of(const FlightEvent& event, const RankSlot& slot, std::int64_t clock_offset) {
  using Kind = FlightEvent::Kind;
  RecordedEvent record{.time = event.time + clock_offset,
                       .kind = kKinds[static_cast<std::size_t>(event.kind) % std::size(kKinds)],
                       .phase = std::string(phase_name(event.phase)),
                       .step = event.step};
  if (event.kind == Kind::launched || event.kind == Kind::started || event.kind == Kind::completed) {
    record.communicator = slot.communicators[event.communicator % RankSlot::kCommunicators].name.get();
    record.number = event.collective.number;
    record.text = to_string(event.collective);
  } else if (event.kind == Kind::allocation) {
    record.text = fmt::format("{} bytes", event.collective.count);
  } else if (event.kind != Kind::phase) {
    record.text = event.text.data();
  }
  return record;
}

}  // namespace

CONVOY_DEFINE_JSON(RecordedEvent, time, kind, phase, step, communicator, number, text)
CONVOY_DEFINE_JSON(FlightFile, format, job, world_size, verdict, time, status, events)

void FlightEvent::set_text(std::string_view value) {
  value = value.substr(0, text.size() - 1);
  text = {};
  std::copy(value.begin(), value.end(), text.begin());
}

void FlightRing::add(const FlightEvent& event) noexcept {
  const std::uint64_t number = count_.fetch_add(1, std::memory_order_relaxed);
  Entry& entry = entries_[number % kEvents];
  const auto words = std::bit_cast<std::array<std::uint64_t, kWords>>(event);
  entry.version.store(0);
  for (std::size_t i = 0; i < kWords; ++i) entry.words[i].store(words[i], std::memory_order_release);
  entry.version.store(number + 1);
}

std::vector<FlightEvent> FlightRing::events() const {
  const std::uint64_t end = count_.load();
  std::vector<FlightEvent> events;
  for (std::uint64_t number = end > kEvents ? end - kEvents : 0; number < end; ++number) {
    const Entry& entry = entries_[number % kEvents];
    if (entry.version.load() != number + 1) continue;  // incomplete, or already replaced
    std::array<std::uint64_t, kWords> words{};
    for (std::size_t i = 0; i < kWords; ++i) words[i] = entry.words[i].load(std::memory_order_acquire);
    if (entry.version.load() == number + 1) events.push_back(std::bit_cast<FlightEvent>(words));
  }
  return events;
}

std::int64_t steady_nanoseconds() { return nanoseconds_of<std::chrono::steady_clock>(); }

void write_flight_files(const HostMemory& memory, const std::vector<RankInfo>& all,
                        const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) fail<DataError>("{}: {}", directory.string(), error.message());
  const std::int64_t now = nanoseconds_of<std::chrono::system_clock>(),
                     clock_offset = now - steady_nanoseconds();
  FlightFile file{.format = kFormat,
                  .job = memory.job(),
                  .world_size = static_cast<int>(all.size()),
                  .verdict = memory.get(kVerdict),
                  .time = now};
  for (const RankStatus& status : memory.observe(all)) {
    const RankSlot& slot = memory.slot(all[static_cast<std::size_t>(status.rank)].local_rank);
    file.status = status;
    file.events.clear();
    for (const FlightEvent& event : slot.ring.events())
      file.events.push_back(record_of(event, slot, clock_offset));
    const std::filesystem::path path = directory / fmt::format("rank-{}.json", status.rank);
    std::ofstream stream(path);
    stream << json_text(Json(file)) << "\n";
    stream.close();
    if (!stream) fail<DataError>("{}: cannot be written", path.string());
  }
}

static FlightFile read_flight_file(const std::filesystem::path& path) {
  std::ifstream stream(path);
  try {
    const Json json = Json::parse(stream);
    if (json.at("format") != kFormat)
      fail<DataError>("found format {}, expected {}", json_text(json.at("format")), kFormat);
    return json.get<FlightFile>();
  } catch (const std::exception& error) {
    fail<DataError>("{}: {}", path.string(), error.what());
  }
}

std::vector<FlightFile> read_flight_files(const std::filesystem::path& directory, int& ignored) {
  std::vector<FlightFile> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("rank-") && name.ends_with(".json")) files.push_back(read_flight_file(entry.path()));
  }
  if (error) fail<DataError>("{}: {}", directory.string(), error.message());
  if (files.empty())
    fail<DataError>("{}: found no file rank-N.json of a flight recorder", directory.string());
  const auto newest = std::max_element(files.begin(), files.end(),
                                       [](const auto& a, const auto& b) { return a.time < b.time; });
  const std::string job = newest->job;
  ignored = static_cast<int>(std::erase_if(files, [&](const FlightFile& file) { return file.job != job; }));
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return a.status.rank < b.status.rank; });
  return files;
}

}  // namespace convoy::dist
