#include "apps/run_folder.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine/io/checkpoint.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

namespace fs = std::filesystem;

// A training continued with another of these would be neither the old one nor the new one.
constexpr const char* kDecisive[] = {
    "model",     "stem",     "dataset",  "image-size", "augment",    "overfit-batch", "batch-size",
    "optimizer", "lr",       "momentum", "nesterov",   "precision",  "weight-decay",  "label-smoothing",
    "clip-norm", "schedule", "warmup",   "seed",       "grad-dtype", "sync-bn",       "bn-buffers"};
// A longer or shorter training is a reasonable wish; its schedule is then another one from here on.
constexpr const char* kLength[] = {"epochs", "max-steps"};

std::string value_of(const std::map<std::string, std::string>& flags, const std::string& name) {
  const auto found = flags.find(name);
  return found == flags.end() ? "none" : found->second;
}

}  // namespace

RunFolder::RunFolder(const TrainOptions& options) : out_(*options.out) {
  const CheckpointFolder here(out_ / "checkpoints");
  if (options.resume == "auto") {
    checkpoint_ = here.latest(&warnings_);
  } else if (!options.resume.empty()) {
    const fs::path from = options.resume;
    if (fs::exists(from / kManifestFile)) {
      checkpoint_ = from;
    } else {
      checkpoint_ = CheckpointFolder(from / "checkpoints").latest(&warnings_);
      if (!checkpoint_) fail<CheckpointError>("--resume {}: no checkpoint there", from.string());
    }
  } else if (const auto found = here.latest()) {
    fail<UsageError>(
        "--out {}: holds a run already ({}); add --resume auto to go on with it, or choose another folder",
        out_.string(), found->filename().string());
  }
}

void RunFolder::create() const {
  std::error_code error;
  fs::create_directories(out_, error);
  if (error) fail<OutputError>("--out {}: cannot be created: {}", out_.string(), error.message());
  if (!fs::is_directory(out_)) fail<OutputError>("--out {}: not a folder", out_.string());
  if (::access(out_.c_str(), W_OK | X_OK) != 0)
    fail<OutputError>("--out {}: cannot be written: {}", out_.string(), std::strerror(errno));
}

std::vector<std::string> compare_flags(const std::map<std::string, std::string>& stored,
                                       const std::map<std::string, std::string>& now,
                                       const fs::path& checkpoint) {
  for (const char* name : kDecisive) {
    const std::string before = value_of(stored, name), after = value_of(now, name);
    if (before != after)
      fail<CheckpointError>(
          "{}: was trained with --{} {}, found --{} {}; give the same, or choose another --out",
          checkpoint.string(), name, before, name, after);
  }
  std::vector<std::string> differences;
  for (const char* name : kLength) {
    const std::string before = value_of(stored, name), after = value_of(now, name);
    if (before != after)
      differences.push_back(
          fmt::format("--{} was {} and is {} now: the learning rate follows the new schedule from here", name,
                      before, after));
  }
  return differences;
}

}  // namespace convoy
