#include "convoy/engine/io/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <system_error>
#include <utility>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_integer.h"
#include "convoy/kernels/base/json_text.h"

namespace convoy::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step_";
constexpr std::string_view kOldPrefix = ".old-";
constexpr std::string_view kLatest = "LATEST";
constexpr std::string_view kBest = "BEST";
constexpr std::uint64_t kMaxPointerBytes = 100;
// Key of the metadata of an optimizer's file or shard: OptimizerState::own_steps. Names of tensors have a
// slash.
constexpr const char* kOwnSteps = "own_steps";

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
FileRecord write_recorded(const fs::path& path, const SafetensorsLayout& file) {
  const std::vector<std::string_view> pieces = file.pieces();
  write_file_durably(path, pieces);
  return {file.size(), hash_bytes(pieces)};
}

SafetensorsLayout lay_out(const std::vector<NamedTensor>& tensors,
                          std::map<std::string, std::string> metadata = {}) {
  metadata["format"] = "pt";  // without which Python's loaders do not load the file as PyTorch tensors
  return lay_out_safetensors(tensors, metadata);
}

/// Returns the metadata of an optimizer's state. They are empty if no parameter has its own number of steps.
std::map<std::string, std::string> metadata_of(const optim::StepsByName& own_steps) {
  if (own_steps.empty()) return {};
  return {{kOwnSteps, optim::to_text(own_steps)}};
}

}  // namespace

CheckpointDirectory::CheckpointDirectory(fs::path root) : root_(std::move(root)) {}

void CheckpointDirectory::set_keep_last(int count) {
  check(count >= 0, "checkpoints: number to keep is {}, expected at least 0", count);
  keep_last_ = count;
}

fs::path CheckpointDirectory::save(const nn::Module& model, const optim::Optimizer& optimizer,
                                   const Manifest& manifest, bool best) {
  Snapshot snapshot = Snapshot::of(model);
  snapshot.optimizer = state_of(optimizer);
  return save(snapshot, manifest, best);
}

fs::path CheckpointDirectory::save(const Snapshot& snapshot, const Manifest& manifest, bool best) {
  return commit(begin(manifest.step), snapshot, manifest, {}, best);
}

fs::path CheckpointDirectory::begin(std::int64_t step) {
  check(step >= 0, "checkpoint: step {}, expected at least 0", step);
  std::error_code error;
  const bool is_new = fs::create_directories(root_, error);
  if (error) fail<OutputError>("{}: cannot be created: {}", root_.string(), error.message());
  if (is_new && root_.has_parent_path()) sync_directory(root_.parent_path());
  for (const std::string& name : entries(root_))
    if (name.starts_with(kTemporaryPrefix)) remove_quietly(root_ / name);
  const fs::path directory =
      root_ / fmt::format("{}.{:08x}", temporary(step_name(step)), std::random_device()());
  fs::create_directory(directory, error);
  if (error) fail<OutputError>("{}: cannot be created: {}", directory.string(), error.message());
  return directory;
}

FileRecord CheckpointDirectory::write_shard(const fs::path& directory, const optim::OptimizerShard& shard) {
  return write_recorded(directory / shard_file(shard.index, shard.count), lay_out_shard(shard));
}

fs::path CheckpointDirectory::commit(const fs::path& directory, const Snapshot& snapshot,
                                     const Manifest& manifest, const std::vector<FileRecord>& shards,
                                     bool best) {
  const std::string name = step_name(manifest.step);
  try {
    Manifest filled = manifest;
    for (std::size_t i = 0; i < shards.size(); ++i)
      filled.files[shard_file(static_cast<int>(i), static_cast<int>(shards.size()))] = shards[i];
    write_files(directory, snapshot, std::move(filled));
    put_in_place(directory, name);
  } catch (const std::exception&) {
    remove_quietly(directory);
    throw;
  }
  write_file_atomically(root_ / kLatest, name + "\n");
  if (best && keep_best_) write_file_atomically(root_ / kBest, name + "\n");
  prune();
  return root_ / name;
}

/// Writes all files of a checkpoint but shards that `manifest` has already.
void CheckpointDirectory::write_files(const fs::path& directory, const Snapshot& snapshot,
                                      Manifest manifest) const {
  const bool is_sharded = !manifest.files.empty();
  manifest.optimizer = is_sharded ? snapshot.shard.optimizer : snapshot.optimizer.name;
  manifest.optimizer_steps = is_sharded ? snapshot.shard.steps : snapshot.optimizer.steps;
  manifest.dtype = snapshot.model.empty() ? "" : std::string(to_string(snapshot.model[0].tensor.dtype()));
  {
    const std::vector<NamedTensor> tensors = state_dict(snapshot.model);
    manifest.parameters_hash = parameters_hash(tensors);
    manifest.files[std::string(kModelFile)] = write_recorded(directory / kModelFile, lay_out(tensors));
  }
  if (!is_sharded)
    manifest.files[std::string(kOptimizerFile)] = write_recorded(
        directory / kOptimizerFile,
        lay_out(state_dict(snapshot.optimizer.tensors), metadata_of(snapshot.optimizer.own_steps)));
  if (!snapshot.other_weights.empty())
    manifest.files[std::string(kOtherWeightsFile)] =
        write_recorded(directory / kOtherWeightsFile, lay_out(state_dict(snapshot.other_weights)));
  write_manifest(directory, manifest);
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
  std::ranges::sort(found, std::greater<>());
  if (const auto latest = named_by(kLatest))
    std::ranges::stable_partition(
        found, [last = *step_of(*latest)](const auto& checkpoint) { return checkpoint.first <= last; });
  std::vector<std::string> result;
  for (auto& [step, name] : found) result.push_back(std::move(name));
  return result;
}

fs::path CheckpointDirectory::path_of(const std::string& name) const {
  std::error_code ignored;
  // The name that users know, unless only the other one exists.
  const bool is_aside = !fs::exists(root_ / name, ignored) && fs::exists(root_ / old(name), ignored);
  return root_ / (is_aside ? old(name) : name);
}

/// Returns what is wrong with LATEST; nullopt if it does not exist, or names a directory that does.
std::optional<std::string> CheckpointDirectory::problem_of_latest() const {
  std::error_code ignored;
  if (!fs::exists(root_ / kLatest, ignored)) return std::nullopt;
  const auto name = named_by(kLatest);
  if (!name) return invalid_pointer(kLatest);
  if (fs::exists(path_of(*name), ignored)) return std::nullopt;
  return fmt::format("{}: no such directory, although {} names it", (root_ / *name).string(), kLatest);
}

std::string CheckpointDirectory::invalid_pointer(std::string_view pointer) const {
  return fmt::format("{}: found no name of a checkpoint, expected one like {}", (root_ / pointer).string(),
                     step_name(123));
}

std::optional<Checkpoint> CheckpointDirectory::latest(std::vector<std::string>* warnings) const {
  std::error_code error;
  const fs::directory_iterator readable(root_, error);
  if (error &&
      error != std::errc::no_such_file_or_directory)  // not nullopt, which would restart the training
    fail_read<CheckpointError>(error.value(), "{}: cannot be read", root_.string());
  if (const auto problem = problem_of_latest(); problem && warnings != nullptr)
    warnings->push_back(fmt::format("checkpoint skipped: {}", *problem));
  for (const std::string& name : names()) {
    try {
      return open_checkpoint(root_ / name);
    } catch (const CheckpointError& skipped) {
      if (warnings != nullptr) warnings->push_back(fmt::format("checkpoint skipped: {}", skipped.what()));
    }
  }
  return std::nullopt;
}

std::optional<Checkpoint> CheckpointDirectory::best() const {
  std::error_code ignored;
  if (!fs::exists(root_ / kBest, ignored)) return std::nullopt;
  while (true) {
    const auto name = named_by(kBest);
    if (!name) throw CheckpointError(invalid_pointer(kBest));
    try {
      const fs::path path = path_of(*name);
      if (!fs::exists(path, ignored))
        fail<CheckpointError>("{}: no such directory, although {} names it", path.string(), kBest);
      return open_checkpoint(path);
    } catch (const CheckpointError&) {
      if (named_by(kBest) == name) throw;  // else a training has replaced it in the meantime
    }
  }
}

bool CheckpointDirectory::contains(std::int64_t step) const {
  std::error_code ignored;
  return step >= 0 && fs::exists(root_ / step_name(step) / kManifestFile, ignored);
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

Checkpoint open_checkpoint(const fs::path& directory) { return {directory, read_manifest(directory)}; }

void load_checkpoint(const Checkpoint& checkpoint, nn::Module& model, optim::Optimizer* optimizer,
                     const std::vector<optim::NamedState>& other_weights) {
  const fs::path model_file = checkpoint.path / kModelFile;
  const PreparedImport import = PreparedImport::of(
      model_state(model), read_safetensors(model_file, Device::cpu()).tensors, model_file.string());
  std::optional<PreparedImport> others;
  if (!other_weights.empty()) {
    const fs::path file = checkpoint.path / kOtherWeightsFile;
    if (!checkpoint.manifest.has_other_weights())
      fail<CheckpointError>("{}: found no {}, expected one from a training with an average of weights",
                            checkpoint.path.string(), kOtherWeightsFile);
    others = PreparedImport::of(other_weights, read_safetensors(file, Device::cpu()).tensors, file.string());
  }
  if (optimizer != nullptr) {
    const SavedOptimizer saved(checkpoint);
    const optim::OptimizerState state = state_of(*optimizer);  // shares the optimizer's tensors
    saved.check_matches(state);
    std::vector<Tensor> values;  // all of them before the first change
    for (const optim::NamedState& each : state.tensors) values.push_back(saved.read(each));
    for (std::size_t i = 0; i < values.size(); ++i) state.tensors[i].tensor.copy_from(values[i]);
    optimizer->set_steps(saved.steps(), saved.own_steps());
  }
  import.apply();
  if (others) others->apply();
  model.refresh_low_precision_copies();
}

namespace {

using Json = nlohmann::json;

constexpr const char* kFilter = "filter";  // a parameter that checkpoints store as [O, I, kH, kW]
constexpr int kMaxMetadataDepth = 2;

/// Returns the metadata of a piece as JSON, or a discarded value if they are no JSON or too deep.
Json parse_metadata(const std::string& text) {
  return Json::parse(
      text, [](int depth, Json::parse_event_t, const Json&) { return depth <= kMaxMetadataDepth; }, false);
}

}  // namespace

SafetensorsLayout lay_out_shard(const optim::OptimizerShard& shard) {
  std::vector<NamedTensor> tensors;
  std::map<std::string, std::string> metadata = metadata_of(shard.own_steps);
  for (const optim::StatePiece& piece : shard.pieces) {
    tensors.push_back({piece.name, piece.values});
    metadata[piece.name] =
        json_text(Json{{"begin", piece.begin},
                       {"shape", piece.shape.sizes()},
                       {"kind", piece.kind == nn::ParameterKind::filter ? kFilter : "other"}});
  }
  return lay_out(tensors, std::move(metadata));
}

SavedOptimizer::SavedOptimizer(const Checkpoint& checkpoint)
    : source_(checkpoint.path.string()),
      optimizer_(checkpoint.manifest.optimizer),
      steps_(checkpoint.manifest.optimizer_steps),
      shards_(checkpoint.manifest.shards()) {
  if (shards_ == 0) {
    files_.emplace_back(checkpoint.path / kOptimizerFile);
    read_own_steps(0);
    for (std::size_t i = 0; i < files_[0].tensors().size(); ++i) {
      const auto& [name, tensor] = files_[0].tensors()[i];
      entries_[name] = {.shape = tensor.shape(),
                        .dtype = tensor.dtype(),
                        .pieces = {{.file = 0, .index = i, .begin = 0, .numel = tensor.numel()}}};
    }
    return;
  }
  for (int i = 0; i < shards_; ++i) {
    files_.emplace_back(checkpoint.path / shard_file(i, shards_));
    add_shard(files_.size() - 1);
    read_own_steps(files_.size() - 1);
  }
  for (auto& [name, entry] : entries_) check_cover(name, entry);
}

void SavedOptimizer::read_own_steps(std::size_t file) {
  const auto found = files_[file].metadata().find(kOwnSteps);
  if (found == files_[file].metadata().end()) return;
  try {
    for (const auto& [name, steps] : optim::parse_steps(found->second)) {
      if (steps < 0 || steps > steps_)
        fail<DataError>("found {} steps of {}, expected 0 to {}", steps, printable(name), steps_);
      own_steps_[name] = steps;
    }
  } catch (const DataError& error) {
    fail<CheckpointError>("{}: {} of the optimizer's metadata: {}", source_, kOwnSteps, error.what());
  }
}

void SavedOptimizer::add_shard(std::size_t file) {
  const SafetensorsReader& reader = files_[file];
  for (std::size_t i = 0; i < reader.tensors().size(); ++i) {
    const auto& [name, tensor] = reader.tensors()[i];
    try {
      const Json json = parse_metadata(reader.metadata().at(name));
      std::vector<std::int64_t> sizes;
      for (const Json& size : json.at("shape")) sizes.push_back(JsonInteger(size));
      const bool is_valid = sizes.size() <= Shape::kMaxRank && tensor.shape().rank() == 1 &&
                            std::ranges::all_of(sizes, [](std::int64_t size) { return size > 0; });
      const bool is_filter = json.at("kind") == kFilter;
      if (!is_valid || (is_filter && sizes.size() != 4)) throw std::out_of_range(name);
      const Entry entry{.shape = Shape(std::span<const std::int64_t>(sizes)),
                        .dtype = tensor.dtype(),
                        .kind = is_filter ? nn::ParameterKind::filter : nn::ParameterKind::weight,
                        .pieces = {}};
      Entry& known = entries_.try_emplace(name, entry).first->second;
      if (known.shape != entry.shape || known.dtype != entry.dtype || known.kind != entry.kind)
        throw std::out_of_range(name);
      known.pieces.push_back(
          {.file = file, .index = i, .begin = JsonInteger(json.at("begin")), .numel = tensor.numel()});
    } catch (const std::exception&) {  // a key is missing, or its value is of another type
      fail<CheckpointError>("{}: shard {} of {}: the metadata of {} are missing or damaged", source_,
                            file + 1, shards_, printable(name));
    }
  }
}

/// Throws CheckpointError unless the pieces contain each element once.
void SavedOptimizer::check_cover(const std::string& name, Entry& entry) const {
  std::ranges::sort(entry.pieces, {}, &Piece::begin);
  std::int64_t end = 0;
  for (const Piece& piece : entry.pieces) {
    if (piece.begin != end) break;
    end += piece.numel;
  }
  if (end != entry.shape.numel())
    fail<CheckpointError>("{}: the shards have {} elements of {} in a row, expected {}", source_, end,
                          printable(name), entry.shape.numel());
}

void SavedOptimizer::check_matches(const optim::OptimizerState& expected) const {
  if (optimizer_ != expected.name)
    fail<CheckpointError>("{}: was saved with optimizer {}, expected {}", source_, optimizer_, expected.name);
  std::vector<NamedTensor> saved;
  for (const auto& [name, entry] : entries_) {
    const Shape shape = shards_ > 0 ? shape_in_checkpoint(entry.shape, entry.kind) : entry.shape;
    saved.push_back({name, Tensor::empty(shape, entry.dtype, Device::meta())});
  }
  PreparedImport::of(expected.tensors, saved, source_ + " (optimizer)");
}

Tensor SavedOptimizer::read(const optim::NamedState& state) const {
  const Entry& entry = entries_.at(state.name);
  if (shards_ == 0)
    return from_checkpoint(files_[0].read(entry.pieces[0].index), state.tensor.shape(), state.kind)
        .to(state.tensor.dtype());
  const Tensor whole = Tensor::empty(entry.shape, entry.dtype, Device::cpu());
  for (const Piece& piece : entry.pieces)
    whole.slice(piece.begin, {piece.numel}).copy_from(files_[piece.file].read(piece.index));
  return whole.reshape(state.tensor.shape()).to(state.tensor.dtype());
}

}  // namespace convoy::io
