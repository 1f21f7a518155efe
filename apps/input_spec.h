// What a checkpoint says of its network's input, so that whoever evaluates or predicts prepares images as
// training did.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "datasets/transforms.h"
#include "engine/io/manifest.h"
#include "models/model.h"

namespace convoy {

struct InputSpec {
  std::string dataset;               // "cifar10"
  std::vector<std::string> classes;  // names in label order
  Shape image;                       // [H, W, C]
  TransformSpec transform;           // normalisation alone
};

/// Into Manifest::extra and back. CheckpointError that names what is missing.
void write_input_spec(const InputSpec& spec, std::map<std::string, std::string>& extra);
InputSpec read_input_spec(const Manifest& manifest, const std::filesystem::path& checkpoint);

/// A network as it was saved.
struct LoadedModel {
  Model model;
  Manifest manifest;
  InputSpec input;
  DType dtype;
  std::map<std::string, std::string> flags;  // of the training, as resolved
};

/// The checkpoint that a path means: a step's folder, or a run's, which stands for its best or else its
/// newest.
std::filesystem::path find_checkpoint(const std::filesystem::path& path);
LoadedModel load_model(const std::filesystem::path& checkpoint, const Device& device);

/// The network that --model and --stem name, for this input.
Model build_model(const std::string& name, const std::string& stem, const Shape& image, std::size_t classes,
                  std::uint64_t seed, const Device& device);

/// The flags of a training that Manifest::extra holds.
std::map<std::string, std::string> stored_flags(const Manifest& manifest);

}  // namespace convoy
