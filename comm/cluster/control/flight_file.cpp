#include "convoy/comm/cluster/control/flight_file.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "convoy/comm/cluster/control/host_observer.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_integer.h"

namespace convoy::dist {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr const char* kKinds[] = {"phase",      "launched", "started", "completed",
                                  "allocation", "warning",  "failure"};

std::int64_t wall_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

OrderedJson json_of(const FlightEvent& event, const RankSlot& slot, std::int64_t clock_offset) {
  using Kind = FlightEvent::Kind;
  OrderedJson json = {{"time", event.time + clock_offset},
                      {"kind", kKinds[static_cast<std::size_t>(event.kind) % std::size(kKinds)]},
                      {"phase", phase_name(event.phase)},
                      {"step", event.step}};
  if (event.kind == Kind::launched || event.kind == Kind::started || event.kind == Kind::completed) {
    json["communicator"] = slot.communicators[event.communicator % RankSlot::kCommunicators].name.get();
    json["number"] = event.collective.number;
    json["text"] = to_string(event.collective);
  } else if (event.kind == Kind::allocation) {
    json["text"] = fmt::format("{} bytes", event.collective.count);
  } else if (event.kind != Kind::phase) {
    json["text"] = event.text.data();
  }
  return json;
}

FlightFile read_flight_file(const std::filesystem::path& path) {
  std::ifstream stream(path);
  const std::string text((std::istreambuf_iterator<char>(stream)), {});
  try {
    const OrderedJson json = OrderedJson::parse(text);
    if (json.at("format") != kFormat)
      fail<DataError>("found format {}, expected {}", json.at("format").get<int>(), kFormat);
    FlightFile file{.job = json.at("job"),
                    .world_size = JsonInteger(json.at("world_size")),
                    .verdict = json.at("verdict"),
                    .time = JsonInteger(json.at("time")),
                    .status = status_of(nlohmann::json(json.at("status"))),
                    .events = {}};
    for (const OrderedJson& event : json.at("events"))
      file.events.push_back(
          {.time = JsonInteger(event.at("time")),
           .kind = event.at("kind"),
           .phase = event.at("phase"),
           .step = JsonInteger(event.at("step")),
           .communicator = event.value("communicator", ""),
           .number = event.contains("number") ? JsonInteger(event.at("number")) : std::uint64_t{0},
           .text = event.value("text", "")});
    return file;
  } catch (const std::exception& error) {
    fail<DataError>("{}: {}", path.string(), error.what());
  }
}

}  // namespace

void write_flight_files(const HostMemory& memory, const std::vector<RankInfo>& all, const std::string& job,
                        const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) fail<DataError>("{}: {}", directory.string(), error.message());
  const std::int64_t now = wall_nanoseconds(), clock_offset = now - steady_nanoseconds();
  const std::vector<RankStatus> statuses = observe_host(memory, all);
  for (int index = 0; index < memory.ranks(); ++index) {
    const RankSlot& slot = memory.slot(index);
    OrderedJson json = {{"format", kFormat},
                        {"job", job},
                        {"world_size", all.size()},
                        {"verdict", memory.host().verdict.get()},
                        {"time", now},
                        {"status", nlohmann::json(statuses[static_cast<std::size_t>(index)])},
                        {"events", OrderedJson::array()}};
    for (const FlightEvent& event : slot.ring.events())
      json["events"].push_back(json_of(event, slot, clock_offset));
    const std::filesystem::path path = directory / fmt::format("rank-{}.json", memory.rank_at(index));
    std::ofstream stream(path);
    stream << json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) << "\n";
    stream.close();
    if (!stream) fail<DataError>("{}: cannot be written", path.string());
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
