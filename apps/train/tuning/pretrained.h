// Pre-trained weights by name: --init-from resnet18-imagenet.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace convoy {

/// Returns the file with the weights `name`, models/NAME.safetensors in the cache of downloads
/// (data::cache_directory()), whether it exists or not. nullopt if no weights have this name, or if a file or a directory
/// in the working directory has it.
std::optional<std::filesystem::path> pretrained_file(const std::string& name);

/// Throws CheckpointError unless the file of the weights `name` is a conversion of torchvision's file: its metadata
/// `source_sha256` begins with the eight digits in the name of that file, and `content_sha256` is the SHA-256 of its
/// floating-point tensors, in the order of their names. If there is no file, downloads it from $CONVOY_MODELS_URL, if that
/// is set, and else throws a CheckpointError that says where torchvision's file is and which command converts it. Does
/// nothing for another name.
void check_pretrained(const std::string& name);

}  // namespace convoy
