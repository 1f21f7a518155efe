#include "convoy/engine/io/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <system_error>
#include <utility>

#include "convoy/kernels/base/check.h"

namespace convoy::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step_";
constexpr std::string_view kOldPrefix = ".old-";
constexpr std::string_view kLatest = "LATEST";
constexpr std::string_view kBest = "BEST";
constexpr std::uint64_t kMaxPointerBytes = 100;

std::string step_name(std::int64_t step) { return fmt::format("{}{:06}", kStepPrefix, step); }

/// Returns the step of a name such as "step_000123"; nullopt for any other name.
std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  name.remove_prefix(kStepPrefix.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || step < 0) return std::nullopt;
  return step_name(step).substr(kStepPrefix.size()) == name ? std::optional(step) : std::nullopt;
}

std::string old(std::string_view name) { return std::string(kOldPrefix) + std::string(name); }

std::string temporary(std::string_view name) { return std::string(kTemporaryPrefix) + std::string(name); }

/// Returns the names of a directory's entries; none if it cannot be read.
std::vector<std::string> entries(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  return names;
}

/// Removes a path and ignores failures: the next save removes the rest.
void remove_quietly(const fs::path& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

/// Removes a checkpoint. Renames it first, so that an interrupted removal leaves no partial checkpoint under
/// its name.
void discard(const fs::path& root, const std::string& name) {
  const fs::path doomed = root / temporary("removed-" + name);
  std::error_code error;
  fs::rename(root / name, doomed, error);
  if (!error) remove_quietly(doomed);
}

/// Writes tensors to a file durably and returns its size and checksum.
FileRecord write_recorded(const fs::path& path, const std::vector<NamedTensor>& tensors) {
  // Python's loaders require "format": "pt" to load the file as PyTorch tensors.
  const SafetensorsLayout file = lay_out_safetensors(tensors, {{"format", "pt"}});
  const std::vector<std::string_view> pieces = file.pieces();
  write_file_durably(path, pieces);
  return {file.size(), hash_bytes(pieces)};
}

std::string dtype_of_parameters(const nn::Module& model) {
  const std::vector<nn::NamedParameter> parameters = model.parameters();
  return parameters.empty() ? "" : std::string(to_string(parameters.front().variable.dtype()));
}

/// Returns whether a checkpoint verifies. If not, appends the reason to `warnings` unless that is null.
bool verifies(const fs::path& checkpoint, std::vector<std::string>* warnings) {
  try {
    read_manifest(checkpoint);
    return true;
  } catch (const CheckpointError& error) {
    if (warnings != nullptr) warnings->push_back(fmt::format("checkpoint skipped: {}", error.what()));
    return false;
  }
}

}  // namespace

CheckpointDirectory::CheckpointDirectory(fs::path root) : root_(std::move(root)) {}

void CheckpointDirectory::set_keep_last(int count) {
  check(count >= 0, "checkpoints: number to keep is {}, expected at least 0", count);
  keep_last_ = count;
}

fs::path CheckpointDirectory::save(const nn::Module& model, const optim::OptimizerState& optimizer,
                                   const Manifest& manifest, bool best) {
  check(manifest.step >= 0, "checkpoint: step {}, expected at least 0", manifest.step);
  std::error_code error;
  const bool is_new = fs::create_directories(root_, error);
  if (error) fail<OutputError>("{}: cannot be created: {}", root_.string(), error.message());
  if (is_new && root_.has_parent_path()) sync_directory(root_.parent_path());
  for (const std::string& name : entries(root_))
    if (name.starts_with(kTemporaryPrefix)) remove_quietly(root_ / name);

  const std::string name = step_name(manifest.step);
  const fs::path temporary_directory = root_ / temporary(name);
  try {
    write_checkpoint(temporary_directory, model, optimizer, manifest);
    put_in_place(temporary_directory, name);
  } catch (const std::exception&) {
    remove_quietly(temporary_directory);
    throw;
  }
  write_file_atomically(root_ / kLatest, name + "\n");
  if (best && keep_best_) write_file_atomically(root_ / kBest, name + "\n");
  prune();
  return root_ / name;
}

void CheckpointDirectory::write_checkpoint(const fs::path& directory, const nn::Module& model,
                                           const optim::OptimizerState& optimizer,
                                           const Manifest& manifest) const {
  std::error_code error;
  fs::create_directory(directory, error);
  if (error) fail<OutputError>("{}: cannot be created: {}", directory.string(), error.message());

  Manifest filled = manifest;
  filled.optimizer = optimizer.name;
  filled.optimizer_steps = optimizer.steps;
  filled.dtype = dtype_of_parameters(model);
  std::map<std::string, FileRecord> files;
  {
    const std::vector<NamedTensor> tensors = state_dict(model);
    filled.parameters_hash = parameters_hash(tensors);
    files[std::string(kModelFile)] = write_recorded(directory / kModelFile, tensors);
  }
  files[std::string(kOptimizerFile)] =
      write_recorded(directory / kOptimizerFile, state_dict(optimizer.tensors));
  write_manifest(directory, filled, files);
  sync_directory(directory);
}

void CheckpointDirectory::put_in_place(const fs::path& temporary_directory, const std::string& name) const {
  // rename() does not replace a non-empty directory, so an earlier checkpoint of this step is renamed first.
  // Between the two renames it remains valid under its other name.
  const fs::path target = root_ / name;
  const fs::path aside = root_ / old(name);
  std::error_code ignored;
  const bool replaces = fs::exists(target, ignored);
  if (replaces) {
    discard(root_, old(name));
    rename_path(target, aside);
  }
  try {
    rename_path(temporary_directory, target);
  } catch (const OutputError&) {
    if (replaces) fs::rename(aside, target, ignored);
    throw;
  }
  sync_directory(root_);
}

std::optional<std::string> CheckpointDirectory::named_by(std::string_view pointer) const {
  std::error_code error;
  if (!fs::exists(root_ / pointer, error)) return std::nullopt;
  try {
    std::string name = read_text_file(root_ / pointer, kMaxPointerBytes);
    while (name.ends_with('\n')) name.pop_back();
    // Accept only the name of a step, since the text becomes part of a path.
    if (step_of(name)) return name;
  } catch (const CheckpointError&) {  // an unreadable pointer counts as missing
  }
  return std::nullopt;
}

std::vector<std::string> CheckpointDirectory::names() const {
  std::vector<std::pair<std::int64_t, std::string>> found;
  for (const std::string& name : entries(root_)) {
    const bool is_old = name.starts_with(kOldPrefix);
    if (const auto step = step_of(is_old ? std::string_view(name).substr(kOldPrefix.size()) : name))
      found.emplace_back(*step, name);
  }
  // Among equal steps, "step_…" sorts before ".old-step_…".
  std::sort(found.begin(), found.end(), std::greater<>());
  if (const auto latest = named_by(kLatest))
    std::stable_partition(found.begin(), found.end(), [last = *step_of(*latest)](const auto& checkpoint) {
      return checkpoint.first <= last;
    });
  std::vector<std::string> result;
  for (auto& [step, name] : found) result.push_back(std::move(name));
  return result;
}

std::optional<fs::path> CheckpointDirectory::latest(std::vector<std::string>* warnings) const {
  std::error_code error;
  const fs::directory_iterator readable(root_, error);
  if (error &&
      error != std::errc::no_such_file_or_directory)  // not nullopt, which would restart the training
    fail<CheckpointError>("{}: cannot be read: {}", root_.string(), error.message());
  for (const std::string& name : names())
    if (verifies(root_ / name, warnings)) return root_ / name;
  return std::nullopt;
}

std::optional<fs::path> CheckpointDirectory::best(std::vector<std::string>* warnings) const {
  const auto name = named_by(kBest);
  if (!name) return std::nullopt;
  std::error_code ignored;
  const std::string present = fs::exists(root_ / *name, ignored) ? *name : old(*name);
  if (verifies(root_ / present, warnings)) return root_ / present;
  return std::nullopt;
}

void CheckpointDirectory::prune() const {
  const auto latest_name = named_by(kLatest);
  const auto best_name = named_by(kBest);
  int newer = 0;
  for (const std::string& name : names()) {
    // The new checkpoint is in place, so the one that it replaced is not needed.
    const bool replaced = name.starts_with(kOldPrefix);
    if (!replaced && (keep_last_ == 0 || newer++ < keep_last_ || name == latest_name || name == best_name))
      continue;
    discard(root_, name);
  }
}

namespace {

/// Loads a checkpoint into a model, and into `state` unless that is null.
Manifest load(const fs::path& checkpoint, nn::Module& model, optim::OptimizerState* state) {
  Manifest manifest = read_manifest(checkpoint);
  const DeviceContext cpu = Device::cpu();
  std::vector<PreparedImport> imports;
  const fs::path model_file = checkpoint / kModelFile;
  imports.push_back(
      PreparedImport::of(model, read_safetensors(model_file, cpu).tensors, model_file.string()));
  if (state != nullptr) {
    if (manifest.optimizer != state->name)
      fail<CheckpointError>("{}: was saved with optimizer {}, expected {}", checkpoint.string(),
                            manifest.optimizer, state->name);
    const fs::path state_file = checkpoint / kOptimizerFile;
    imports.push_back(
        PreparedImport::of(state->tensors, read_safetensors(state_file, cpu).tensors, state_file.string()));
    state->steps = manifest.optimizer_steps;
  }
  for (const PreparedImport& import : imports) import.apply();
  model.refresh_low_precision_copies();
  return manifest;
}

}  // namespace

Manifest load_checkpoint(const fs::path& checkpoint, nn::Module& model, optim::OptimizerState& state) {
  return load(checkpoint, model, &state);
}

Manifest load_checkpoint(const fs::path& checkpoint, nn::Module& model, optim::Optimizer* optimizer) {
  if (optimizer == nullptr) return load(checkpoint, model, nullptr);
  optim::OptimizerState state = state_of(*optimizer);  // shares the optimizer's tensors
  Manifest manifest = load(checkpoint, model, &state);
  optimizer->set_steps(state.steps);
  return manifest;
}

}  // namespace convoy::io
