#include "convoy/apps/common/plan_cache.h"

#include <cctype>
#include <nlohmann/json.hpp>

#include "convoy/datasets/download/download.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"

namespace convoy {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr std::uint64_t kMaxBytes = 8 << 20;  // a thousand entries take about 0.1 MB

/// "NVIDIA H200, sm_90, cuDNN 9.19.0" -> "nvidia-h200-sm-90-cudnn-9-19-0".
std::string file_name(const std::string& hardware) {
  std::string name;
  for (const char letter : hardware) {
    if (std::isalnum(static_cast<unsigned char>(letter)) != 0) {
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  return name;
}

fs::path cache_file(const std::string& where, const DeviceContext& device) {
  if (where == "none" || device.hardware().empty()) return {};
  if (where != "auto") return where;
  try {
    return data::cache_directory() / "plans" / (file_name(device.hardware()) + ".json");
  } catch (const UsageError&) {
    return {};  // the user has no cache directory
  }
}

}  // namespace

std::string format_algorithm_cache(const DeviceContext& device) {
  if (device.algorithm_cache().size() == 0) return "";
  Json choices = Json::array();  // an array keeps the order of last use
  for (const auto& [key, value] : device.algorithm_cache().entries()) choices.push_back({key, value});
  return Json{{"format", kFormat}, {"hardware", device.hardware()}, {"choices", std::move(choices)}}.dump(1);
}

std::optional<std::string> load_algorithm_cache(const std::string& text, const DeviceContext& device) {
  std::vector<std::pair<std::string, std::string>> choices;
  try {
    const Json json = Json::parse(text);
    if (const int format = json.at("format"); format != kFormat)
      return fmt::format("has format {}, expected {}", format, kFormat);
    if (const std::string hardware = json.at("hardware"); hardware != device.hardware())
      return fmt::format("is for {}, found {}", hardware, device.hardware());
    choices = json.at("choices");
  } catch (const nlohmann::json::exception& error) {
    return fmt::format("is damaged: {}", error.what());
  }
  for (auto& [key, value] : choices) device.algorithm_cache().insert(std::move(key), std::move(value));
  return std::nullopt;
}

PlanCache::PlanCache(const std::string& where, DeviceContext device)
    : file_(cache_file(where, device)), device_(std::move(device)) {}

std::optional<std::string> PlanCache::load() {
  if (file_.empty() || !fs::exists(file_)) return std::nullopt;
  std::optional<std::string> problem;
  try {
    problem = load_algorithm_cache(io::read_text_file(file_, kMaxBytes), device_);
    if (problem) problem = fmt::format("--plan-cache: {} {}", file_.string(), *problem);
  } catch (const Error& error) {
    problem = fmt::format("--plan-cache: {}", error.what());
  }
  stored_revision_ = device_.algorithm_cache().revision();
  if (problem) *problem += "; autotuning starts over";
  return problem;
}

std::optional<std::string> PlanCache::store() {
  const std::uint64_t revision = device_.algorithm_cache().revision();
  if (file_.empty() || revision == stored_revision_) return std::nullopt;
  try {
    if (file_.has_parent_path()) fs::create_directories(file_.parent_path());
    io::write_file_atomically(file_, format_algorithm_cache(device_));
    stored_revision_ = revision;
    return std::nullopt;
  } catch (const std::exception& error) {
    return fmt::format("--plan-cache: the autotuned algorithms cannot be saved: {}", error.what());
  }
}

}  // namespace convoy
