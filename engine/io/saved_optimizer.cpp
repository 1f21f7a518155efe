#include "convoy/engine/io/saved_optimizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "convoy/engine/io/safetensors_header.h"
#include "convoy/engine/io/state_dict.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_integer.h"

namespace convoy::io {
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
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  for (const optim::StatePiece& piece : shard.pieces) {
    tensors.push_back({piece.name, piece.values});
    metadata[piece.name] = Json{{"begin", piece.begin},
                                {"shape", piece.shape.sizes()},
                                {"kind", piece.kind == nn::ParameterKind::filter ? kFilter : "other"}}
                               .dump();
  }
  return lay_out_safetensors(tensors, metadata);
}

SavedOptimizer::SavedOptimizer(const Checkpoint& checkpoint)
    : source_(checkpoint.path.string()),
      optimizer_(checkpoint.manifest.optimizer),
      steps_(checkpoint.manifest.optimizer_steps),
      shards_(checkpoint.manifest.shards()) {
  if (shards_ == 0) {
    files_.emplace_back(checkpoint.path / kOptimizerFile);
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
  }
  for (auto& [name, entry] : entries_) check_cover(name, entry);
}

void SavedOptimizer::add_shard(std::size_t file) {
  const SafetensorsReader& reader = files_[file];
  for (std::size_t i = 0; i < reader.tensors().size(); ++i) {
    const auto& [name, tensor] = reader.tensors()[i];
    try {
      const Json json = parse_metadata(reader.metadata().at(name));
      std::vector<std::int64_t> sizes;
      for (const Json& size : json.at("shape")) sizes.push_back(JsonInteger(size));
      const bool is_valid =
          sizes.size() <= Shape::kMaxRank && tensor.shape().rank() == 1 &&
          std::all_of(sizes.begin(), sizes.end(), [](std::int64_t size) { return size > 0; });
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
  std::sort(entry.pieces.begin(), entry.pieces.end(),
            [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
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
