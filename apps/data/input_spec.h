// The input specification of a checkpoint, with which evaluation and prediction prepare images as training
// did.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/datasets/transforms/transforms.h"
#include "convoy/engine/io/checkpoint.h"
#include "convoy/models/model.h"

namespace convoy {

struct InputSpec {
  std::string dataset;               // "cifar10"
  std::vector<std::string> classes;  // names in label order
  Shape image;                       // [H, W, C]
  data::TransformSpec transform;     // normalization only
};

/// Stores the specification in `extra`, which is to become Manifest::extra.
void write_input_spec(const InputSpec& spec, std::map<std::string, std::string>& extra);
/// Reads what write_input_spec() stored. Throws CheckpointError if it is missing or damaged; `checkpoint`
/// appears in the message.
InputSpec read_input_spec(const io::Manifest& manifest, const std::filesystem::path& checkpoint);

/// A model with the metadata of its checkpoint.
struct LoadedModel {
  models::Model model;
  io::Manifest manifest;
  InputSpec input;
  DType dtype;
  std::map<std::string, std::string> flags;  // resolved flags of the training run
};

/// Throws CheckpointError unless `path` is a directory; names the checkpoint if it is a file of one, or BEST or LATEST.
/// `shown` is the path in the message, such as "--resume DIR".
void check_checkpoint_directory(const std::filesystem::path& path, const std::string& shown);
/// Returns `path` if it is a checkpoint directory, else the best checkpoint of the run directory `path` or,
/// if the run has no file BEST, the latest. Throws CheckpointError if there is none, or if this one is
/// damaged or missing. The message then names an intact one, and `flag`, which selects it.
io::Checkpoint find_checkpoint(const std::filesystem::path& path, std::string_view flag = "--checkpoint");
/// Builds the model that the checkpoint describes and loads its parameters and buffers to `device`. Throws
/// CheckpointError if the checkpoint is incomplete or damaged.
LoadedModel load_model(const io::Checkpoint& checkpoint, const DeviceContext& device);

/// The flags that select a network.
struct NetworkFlags {
  std::string model;       // --model
  std::string stem;        // --stem
  std::string activation;  // --activation
};

/// Builds the network for images of shape `image`. Throws UsageError for an unknown model.
models::Model build_model(const NetworkFlags& flags, const Shape& image, std::size_t classes,
                          std::uint64_t seed, const DeviceContext& device);

/// Returns the value of --stem that `stem` stands for with images of shape `image`: `auto` becomes cifar or
/// imagenet, unless the model has only one stem. Throws UsageError for an unknown name.
std::string resolve_stem(const std::string& name, const std::string& stem, const Shape& image);

/// Returns the value of --activation that `activation` stands for: `auto` becomes gelu, unless the model has
/// only one activation. Throws UsageError for an unknown name.
std::string resolve_activation(const std::string& name, const std::string& activation);

/// Returns the flags of the training run from Manifest::extra; empty if it has none.
std::map<std::string, std::string> stored_flags(const io::Manifest& manifest);

}  // namespace convoy
