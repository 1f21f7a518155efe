#include "convoy/apps/train/sample_selection.h"

#include <charconv>
#include <cmath>
#include <map>

#include "convoy/apps/common/data_source.h"
#include "convoy/apps/common/text.h"
#include "convoy/engine/io/file.h"
#include "convoy/engine/io/safetensors.h"
#include "convoy/kernels/base/check.h"

namespace convoy {
namespace {

constexpr const char* kIds = "ids";

std::int64_t number_of(const io::SafetensorsFile& file, const std::string& key, const std::string& path) {
  const auto found = file.metadata.find(key);
  const std::string text = found == file.metadata.end() ? "" : found->second;
  std::int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value < 0)
    fail<CheckpointError>("{}: found {} '{}' in its metadata, expected a number", path, key, text);
  return value;
}

}  // namespace

std::int64_t hardest_count(double fraction, std::int64_t count) {
  return static_cast<std::int64_t>(std::ceil(fraction * static_cast<double>(count)));
}

Selection read_selection(const std::filesystem::path& run) {
  std::error_code ignored;
  const std::filesystem::path path = std::filesystem::is_directory(run, ignored) ? run / kSelectionFile : run;
  if (!std::filesystem::exists(path, ignored))
    fail<CheckpointError>("{}: not found, expected the directory of a run with --hardest", path.string());
  const io::SafetensorsFile file = io::read_safetensors(path, Device::cpu());
  const auto number = [&](const char* key) { return number_of(file, key, path.string()); };
  const auto data = file.metadata.find("data");
  Selection selection{.info = {.batch_size = number("batch_size"),
                               .epochs = number("epochs"),
                               .steps = number("steps"),
                               .seed = number("seed"),
                               .data = data == file.metadata.end() ? "" : data->second},
                      .ids = {}};
  if (selection.info.batch_size == 0)
    fail<CheckpointError>("{}: found batch_size 0 in its metadata, expected 1 or more", path.string());
  if (file.tensors.size() != 1 || file.tensors[0].name != kIds ||
      file.tensors[0].tensor.dtype() != DType::i32 || file.tensors[0].tensor.shape().rank() != 2 ||
      file.tensors[0].tensor.size(0) != selection.info.epochs)
    fail<CheckpointError>("{}: found {}, expected one tensor '{}', i32 [{}, samples]", path.string(),
                          counted(std::ssize(file.tensors), "tensor"), kIds, selection.info.epochs);
  selection.ids = file.tensors[0].tensor;
  return selection;
}

Tensor selected_order(const std::string& run, const data::ImageSet& train) {
  const Selection selection = read_selection(run);
  check(
      selection.info.data == hash_of(train),
      "--selection {}: samples of other training images (hash {}), expected those of this training (hash {})",
      run, selection.info.data, hash_of(train));
  return selection.ids;
}

SelectionRecorder::SelectionRecorder(const std::filesystem::path& directory, double fraction,
                                     std::int64_t batch_size, const data::ImageSet& train, std::int64_t seed,
                                     std::int64_t steps, const DeviceContext& device)
    : path_(directory / kSelectionFile) {
  const std::int64_t full = train.size() / batch_size, last = train.size() % batch_size;
  const std::int64_t steps_per_epoch = full + (last > 0 ? 1 : 0);
  info_ = {.batch_size = hardest_count(fraction, batch_size),
           .epochs = (steps + steps_per_epoch - 1) / steps_per_epoch,
           .steps = 0,
           .seed = seed,
           .data = hash_of(train)};
  const std::int64_t chosen = full * info_.batch_size + hardest_count(fraction, last);
  ids_ = Tensor::full({info_.epochs, chosen}, -1, DType::i32, device);
}

void SelectionRecorder::record(const data::Batch& batch, const Tensor& ids) {
  ids_.slice(batch.epoch * ids_.size(1) + batch.step * info_.batch_size, ids.shape()).copy_from(ids);
}

void SelectionRecorder::save(std::int64_t steps) const {
  const auto text = [](std::int64_t value) { return std::to_string(value); };
  io::write_file_atomically(path_,
                            io::encode_safetensors({{kIds, ids_}}, {{"batch_size", text(info_.batch_size)},
                                                                    {"epochs", text(info_.epochs)},
                                                                    {"steps", text(steps)},
                                                                    {"seed", text(info_.seed)},
                                                                    {"data", info_.data}}));
}

void SelectionRecorder::load(const std::filesystem::path& run, std::int64_t steps) {
  const Selection before = read_selection(run / kSelectionFile);
  if (before.info.steps < steps || before.ids.size(1) != ids_.size(1))
    fail<CheckpointError>("{}: found {} with {} samples in an epoch, expected {} or more with {}",
                          (run / kSelectionFile).string(), counted(before.info.steps, "step"),
                          before.ids.size(1), steps, ids_.size(1));
  const std::int64_t rows = std::min(before.ids.size(0), ids_.size(0));
  ids_.rows(0, rows).copy_from(before.ids.rows(0, rows).to(ids_.context()));
}

}  // namespace convoy
