#include "convoy/apps/train/report/run_directory.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "convoy/apps/common/text.h"
#include "convoy/apps/data/input_spec.h"
#include "convoy/datasets/formats/class_directories.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_text.h"

namespace convoy {
namespace {

namespace fs = std::filesystem;

/// Throws OutputError if `out` or a path above it exists and is not a directory.
void check_is_directory(const fs::path& out) {
  for (fs::path path = out; !path.empty(); path = path.parent_path()) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (fs::is_directory(status)) return;
    if (fs::exists(status))
      fail<OutputError>("--out {}: {}not a directory", out.string(),
                        path == out ? "" : path.string() + " is ");
    if (status.type() != fs::file_type::not_found)
      fail<OutputError>("--out {}: cannot be accessed: {}", out.string(), error.message());
  }
}

}  // namespace

RunDirectory::RunDirectory(const TrainOptions& options) : out_(*options.out) {
  check_is_directory(out_);
  const io::CheckpointDirectory own(out_ / "checkpoints");
  if (options.resume == "auto") {
    checkpoint_ = own.latest(&warnings_);
  } else if (!options.resume.empty()) {
    const fs::path from = options.resume;
    check_checkpoint_directory(from, "--resume " + from.string());
    if (fs::exists(from / io::kManifestFile)) {
      checkpoint_ = io::open_checkpoint(from);
    } else {
      checkpoint_ = io::CheckpointDirectory(from / "checkpoints").latest(&warnings_);
      if (!checkpoint_)
        fail<CheckpointError>(
            "--resume {}: no checkpoint found, expected the directory of a checkpoint or of a run",
            from.string());
    }
  } else if (const auto found = own.latest()) {
    fail<UsageError>(
        "--out {}: contains a run already ({}); add --resume auto to continue it, or use another directory",
        out_.string(), found->path.filename().string());
  }
}

void RunDirectory::create() const {
  std::error_code error;
  fs::create_directories(out_, error);
  if (error) fail<OutputError>("--out {}: cannot be created: {}", out_.string(), error.message());
  if (!fs::is_directory(out_)) fail<OutputError>("--out {}: not a directory", out_.string());
  if (::access(out_.c_str(), W_OK | X_OK) != 0)
    fail<OutputError>("--out {}: cannot be written: {}", out_.string(), std::strerror(errno));
}

std::vector<std::string> compare_flags(const std::map<std::string, std::string>& stored,
                                       const std::map<std::string, std::string>& current,
                                       const fs::path& checkpoint) {
  TrainOptions options;
  const CommandLine line = train_command_line(options);
  std::vector<std::string> differences;
  for (const CommandLine::Flag& flag : line.flags()) {
    const std::string& name = flag.name;
    if (!flag.details.fixed && !flag.details.reschedules) continue;
    const std::string before = value_at(stored, name, "none"), after = value_at(current, name, "none");
    if (before == after) continue;
    if (flag.details.reschedules) {
      differences.push_back(
          fmt::format("--{} changed from {} to {}: the learning rate follows the new schedule from this step",
                      name, before, after));
      continue;
    }
    // The run of OUT/checkpoints/step_000123.
    const fs::path config =
        fs::absolute(checkpoint).lexically_normal().parent_path().parent_path() / "config.toml";
    std::error_code ignored;
    fail<CheckpointError>("{}: trained with --{} {}, found --{} {}; use the same value{} or another --out",
                          checkpoint.string(), name, before, name, after,
                          fs::exists(config, ignored)
                              ? fmt::format(", all flags of that run by --config {},", config.string())
                              : "");
  }
  return differences;
}

std::string image_counts(const data::DataSet& data) {
  return fmt::format("{} training, {} validation and {} test images", data.train.size(),
                     data.validation.size(), data.test.size());
}

void compare_data(const io::Checkpoint& checkpoint, const data::DataSet& data, const std::string& weights) {
  using Json = nlohmann::json;
  const std::string path = checkpoint.path.string();
  const auto stored = [&](const char* entry) { return value_at(checkpoint.manifest.extra, entry); };
  const std::vector<std::string> trained = read_input_spec(checkpoint.manifest, checkpoint.path).classes;
  // In the form in which a manifest stores names that are not UTF-8.
  const std::vector<std::string> found = Json::parse(json_text(Json(data.classes)));
  std::string difference;
  if (trained != found)
    difference =
        fmt::format("trained with {} classes, found {}, missing: {}, new: {}", trained.size(), found.size(),
                    data::names_missing(found, trained), data::names_missing(trained, found));
  else if (stored(kImageCounts) != image_counts(data))
    difference = fmt::format("trained with {}, found {}", stored(kImageCounts), image_counts(data));
  else if (const std::string before = stored(kClassWeights); !before.empty() && before != weights)
    difference = fmt::format("trained with the class weights {}, found {}", before, weights);
  if (!difference.empty())
    fail<CheckpointError>(
        "{}: {}; resume with the data of that training, or begin a new one from its parameters with --init-from {}",
        path, difference, path);
}

}  // namespace convoy
