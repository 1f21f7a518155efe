#include "convoy/apps/common/plan_cache.h"

#include <array>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>

#include "convoy/datasets/download/download.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/checksum.h"
#include "convoy/kernels/base/json_text.h"

namespace convoy {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr std::uint64_t kMaxBytes = 256 << 20;  // compiled code has up to 0.25 MB for each of 1,024 entries

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

/// Returns a checksum of an entry and its code. Code for another problem would access memory out of bounds.
std::string checksum(const std::string& key, const std::string& value, const std::string& code) {
  Checksum sum;
  const std::string all = key + '\n' + value + '\n' + code;
  sum.add(all.data(), all.size());
  return fmt::format("{:016x}", sum.value());
}

Json file_of(const DeviceContext& device) {
  Json choices = Json::array();  // an array keeps the order of last use
  for (const auto& [key, value] : device.algorithm_cache().entries()) choices.push_back({key, value});
  return {{"format", kFormat}, {"hardware", device.hardware()}, {"choices", std::move(choices)}};
}

struct Loaded {
  std::optional<std::string> problem;  // nothing was inserted
  int damaged = 0;                     // entries whose code was left out
};

/// Inserts the entries of a file into the algorithm cache of `device`.
Loaded insert_entries(const std::string& text, const DeviceContext& device) {
  std::vector<std::pair<std::string, std::string>> choices;
  std::vector<std::array<std::string, 3>> compiled;
  try {
    const Json json = Json::parse(text);
    if (const int format = json.at("format"); format != kFormat)
      return {fmt::format("has format {}, expected {}", format, kFormat)};
    if (const std::string hardware = json.at("hardware"); hardware != device.hardware())
      return {fmt::format("is for {}, found {}", hardware, device.hardware())};
    choices = json.at("choices");
    if (json.contains("compiled")) compiled = json["compiled"];
  } catch (const nlohmann::json::exception& error) {
    return {fmt::format("is damaged: {}", error.what())};
  }
  std::map<std::string, std::array<std::string, 3>> by_key;
  for (auto& entry : compiled) by_key.emplace(entry[0], std::move(entry));
  Loaded loaded;
  for (auto& [key, value] : choices) {
    const auto found = by_key.find(key);
    const bool has_code = found != by_key.end();
    const bool is_whole = has_code && found->second[1] == checksum(key, value, found->second[2]);
    loaded.damaged += has_code && !is_whole;
    device.algorithm_cache().insert(key, value, is_whole ? std::move(found->second[2]) : "");
  }
  return loaded;
}

}  // namespace

std::string format_algorithm_cache(const DeviceContext& device) {
  return device.algorithm_cache().size() == 0 ? "" : json_text(file_of(device), 1);
}

std::optional<std::string> load_algorithm_cache(const std::string& text, const DeviceContext& device) {
  return insert_entries(text, device).problem;
}

PlanCache::PlanCache(const std::string& where, DeviceContext device)
    : file_(cache_file(where, device)), device_(std::move(device)) {}

std::optional<std::string> PlanCache::load() {
  if (file_.empty() || !fs::exists(file_)) return std::nullopt;
  std::optional<std::string> warning;
  try {
    const auto [problem, damaged] = insert_entries(io::read_text_file(file_, kMaxBytes), device_);
    if (problem)
      warning = fmt::format("--plan-cache: {} {}; autotuning starts over", file_.string(), *problem);
    else if (damaged > 0)
      warning = fmt::format("--plan-cache: {} has damaged code of {} algorithms; they are compiled again",
                            file_.string(), damaged);
  } catch (const Error& error) {
    warning = fmt::format("--plan-cache: {}; autotuning starts over", error.what());
  }
  stored_revision_ = device_.algorithm_cache().revision();
  return warning;
}

std::optional<std::string> PlanCache::store() {
  const std::uint64_t revision = device_.algorithm_cache().revision();
  if (file_.empty() || revision == stored_revision_) return std::nullopt;
  try {
    if (file_.has_parent_path()) fs::create_directories(file_.parent_path());
    Json file = file_of(device_);
    file["compiled"] = Json::array();
    for (const auto& [key, value] : device_.algorithm_cache().entries())
      if (const std::string code = device_.algorithm_cache().code(key); !code.empty())
        file["compiled"].push_back({key, checksum(key, value, code), code});
    io::write_file_atomically(file_, json_text(file, 1));
    stored_revision_ = revision;
    return std::nullopt;
  } catch (const std::exception& error) {
    return fmt::format("--plan-cache: the autotuned algorithms cannot be saved: {}", error.what());
  }
}

}  // namespace convoy
