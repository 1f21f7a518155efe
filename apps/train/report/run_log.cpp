#include "convoy/apps/train/report/run_log.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"

namespace convoy {
namespace {

using Json = nlohmann::ordered_json;

/// Calls f(line, object) for every event of a log. Skips incomplete lines and lines that are not events.
template <class F>
void for_each_event(const std::filesystem::path& path, F&& f) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  while (std::getline(file, line)) {
    const Json event = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (event.is_object() && event.contains("event") && event["event"].is_string()) f(line, event);
  }
}

void write_whole(int descriptor, std::string_view bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      fail<OutputError>("{}: {}; the last checkpoint is intact", path.string(), std::strerror(errno));
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

/// Returns the time as ISO 8601 with milliseconds: "2026-01-31T23:59:59.123Z".
std::string utc_now() {
  const auto now = std::chrono::system_clock::now();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now);
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now - seconds);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)), milliseconds.count());
}

}  // namespace

RunLog::RunLog(std::filesystem::path path, std::optional<std::int64_t> resume_step, double elapsed_before)
    : path_(std::move(path)), elapsed_before_(elapsed_before) {
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail<OutputError>("{}: {}", path_.string(), std::strerror(errno));
  try {
    const io::LockResult lock = io::try_lock(descriptor_);
    check(lock != io::LockResult::held, "--out {}: another process is using this directory",
          path_.parent_path().string());
    is_locked_ = lock == io::LockResult::acquired;
    truncate_to(resume_step.value_or(-1));
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

RunLog::~RunLog() { ::close(descriptor_); }

void RunLog::truncate_to(std::int64_t step) {
  std::string kept;
  if (step >= 0)
    for_each_event(path_, [&](const std::string& line, const Json& event) {
      if (event["event"] == "result") return;
      const bool later = event.contains("step") && event["step"].is_number() && event["step"] > step;
      if (later) return;
      kept += line + "\n";
      if (const auto found = event.find("elapsed"); found != event.end() && found->is_number())
        elapsed_before_ = std::max(elapsed_before_, found->get<double>());
    });
  // In place, because the lock belongs to this file. A kill between the two calls loses log lines but no
  // checkpoint.
  if (::ftruncate(descriptor_, 0) != 0) fail<OutputError>("{}: {}", path_.string(), std::strerror(errno));
  write_whole(descriptor_, kept, path_);
}

void RunLog::write(std::string_view event, const nlohmann::ordered_json& fields) {
  const std::chrono::duration<double> since_opening = std::chrono::steady_clock::now() - opened_;
  const double elapsed = elapsed_before_ + since_opening.count();
  Json line{{"event", event}, {"time", utc_now()}, {"elapsed", std::round(elapsed * 1e3) / 1e3}};
  line.update(fields);
  write_whole(descriptor_, line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n", path_);
}

std::optional<nlohmann::ordered_json> read_result(const std::filesystem::path& log) {
  std::optional<Json> result;
  for_each_event(log, [&](const std::string&, const Json& event) {
    if (event["event"] == "result") result = event;
  });
  return result;
}

}  // namespace convoy
