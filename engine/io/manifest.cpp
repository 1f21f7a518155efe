#include "convoy/engine/io/manifest.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "convoy/engine/io/file.h"
#include "convoy/engine/io/safetensors.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_integer.h"
#include "convoy/kernels/base/json_text.h"

namespace convoy::io {

CONVOY_DEFINE_JSON(FileRecord, bytes, xxhash64)
CONVOY_DEFINE_JSON(Manifest, step, epoch, epoch_step, samples, model, optimizer, optimizer_steps, dtype,
                   parameters_hash, metrics, extra, files)

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;  // sorts keys, so equal manifests have equal bytes

constexpr int kManifestVersion = 1;  // the state of the optimizer is one file
constexpr int kShardedVersion = 2;   // it is one file per rank
constexpr std::string_view kManifestFormat = "convoy checkpoint";
constexpr int kMaxDepth = 3;
constexpr std::uint64_t kMaxManifestBytes = 64
                                            << 20;  // enough for a configuration and class names in `extra`

/// Returns the checksum of a manifest without its own checksum field.
std::string checksum(Json json) {
  json.erase("checksum");
  return hash_bytes(json_text(json, 2));
}

Json json_of(const Manifest& manifest) {
  Json json = manifest;
  json["format"] = kManifestFormat;
  json["version"] = manifest.shards() > 0 ? kShardedVersion : kManifestVersion;
  return json;
}

/// Returns the manifest as JSON after verifying its checksum. Throws Json::exception if a field is missing or
/// has another type.
Json parse(const fs::path& path) {
  const std::string text = read_text_file(path, kMaxManifestBytes);
  // Copies and dumps of a Json recurse, so the depth is limited while parsing.
  const auto limit_depth = [&](int depth, Json::parse_event_t, const Json&) {
    if (depth > kMaxDepth) fail<CheckpointError>("{}: JSON is nested deeper than a manifest", path.string());
    return true;
  };
  const Json json = Json::parse(text, limit_depth, false);
  if (!json.is_object()) fail<CheckpointError>("{}: not a JSON object", path.string());
  if (const auto format = json.at("format").get<std::string>(); format != kManifestFormat)
    fail<CheckpointError>("{}: format {}, expected \"{}\"", path.string(), printable(format),
                          kManifestFormat);
  if (const std::int64_t version = JsonInteger(json.at("version"));
      version != kManifestVersion && version != kShardedVersion)
    fail<CheckpointError>("{}: version {}, expected {} or {}", path.string(), version, kManifestVersion,
                          kShardedVersion);
  if (json.at("checksum").get<std::string>() != checksum(json))
    fail<CheckpointError>("{}: damaged (checksum mismatch)", path.string());
  return json;
}

/// Throws CheckpointError unless the files are those of a checkpoint: the model, the optimizer as a whole or in
/// shards, and other weights if there are any. So no name of a manifest leads out of its directory.
void check_names(const fs::path& path, const Manifest& manifest) {
  std::set<std::string> expected = {std::string(kModelFile)};
  if (manifest.shards() == 0) expected.emplace(kOptimizerFile);
  if (manifest.has_other_weights()) expected.emplace(kOtherWeightsFile);
  for (int i = 0; i < manifest.shards(); ++i) expected.insert(shard_file(i, manifest.shards()));
  for (const auto& [name, record] : manifest.files)
    if (expected.erase(name) == 0)
      fail<CheckpointError>("{}: names the file {}, expected {}", path.string(), printable(name),
                            expected.empty() ? "no other file" : *expected.begin());
  if (!expected.empty()) fail<CheckpointError>("{}: names no file {}", path.string(), *expected.begin());
}

void verify_file(const fs::path& path, const FileRecord& expected) {
  if (const std::uint64_t found = InputFile(path).size(); found != expected.bytes)
    fail<CheckpointError>("{}: {} bytes, expected {} from the manifest", path.string(), found,
                          expected.bytes);
  if (hash_file(path) != expected.xxhash64)
    fail<CheckpointError>("{}: damaged (checksum differs from the manifest)", path.string());
}

}  // namespace

std::string shard_file(int index, int count) {
  return fmt::format("optimizer-{:05}-of-{:05}.safetensors", index + 1, count);
}

void write_manifest(const fs::path& directory, const Manifest& manifest) {
  Json json = json_of(manifest);
  json = Json::parse(json_text(json, 2));  // as a reader will parse it, so that both hash the same text
  json["checksum"] = checksum(json);
  const std::string text = json_text(json, 2) + "\n";
  check(text.size() <= kMaxManifestBytes, "checkpoint manifest: {} bytes, expected at most {}", text.size(),
        kMaxManifestBytes);
  write_file_durably(directory / kManifestFile, text);
}

Manifest read_manifest(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kManifestFile;
  try {
    Json json = parse(path);
    for (Json& value : json.at("metrics"))
      if (value.is_null())
        value = std::numeric_limits<double>::quiet_NaN();  // JSON has no NaN and no infinity
    Manifest manifest = json.get<Manifest>();
    check_names(path, manifest);
    for (const auto& [name, record] : manifest.files) verify_file(checkpoint / name, record);
    return manifest;
  } catch (const DataError& error) {
    fail<CheckpointError>("{}: {}", path.string(), error.what());
  } catch (const Json::exception&) {
    fail<CheckpointError>("{}: a field is missing or has the wrong type", path.string());
  }
}

}  // namespace convoy::io
