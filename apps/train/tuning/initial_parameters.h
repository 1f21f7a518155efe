// The initial parameters of a training, from a file or a run (--init-from).
#pragma once

#include <string>

#include "convoy/models/model.h"

namespace convoy {

/// Returns the name of the last layer of a model, "fc" of a ResNet: of the layer with the last parameter.
std::string head_of(const models::Model& model);

/// Throws CheckpointError if `source` of load_initial_parameters() cannot be read. Reads its header only, unless it is a
/// name of pre-trained weights, such as resnet18-imagenet, whose file is downloaded if needed and whose checksums are
/// compared.
void check_initial_parameters(const std::string& source);

/// Loads the parameters and buffers of a model from `source`: a safetensors file, the directory of a
/// checkpoint, that of a run, whose best checkpoint is read, or a name of pre-trained weights. Removes the prefixes "module." and
/// "_orig_mod." of DistributedDataParallel and torch.compile if all names have them.
///
/// If the file has no last layer (head_of()), or one for another number of classes, the model keeps its own.
/// Returns then the names of these parameters and both numbers of classes in one line, else an empty string.
/// Throws CheckpointError if the file cannot be read, or if any other tensor does not fit; the model then is
/// unchanged.
std::string load_initial_parameters(const models::Model& model, const std::string& source);

/// Returns the stem of a ResNet's parameters in `source`, "cifar" or "imagenet", by the size of its first
/// filters; "auto" if there are no such filters. Throws CheckpointError if the file cannot be read.
std::string stem_of_initial_parameters(const std::string& source);

/// Returns the --activation of the training that wrote the checkpoint `source`, a directory or its file of
/// parameters; "auto" for a file without a manifest next to it, and for a model that has no choice. Throws
/// CheckpointError if there is no checkpoint, or if its manifest is damaged.
std::string activation_of_initial_parameters(const std::string& source);

}  // namespace convoy
