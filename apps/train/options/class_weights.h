// The weights of classes in the loss of a training (--class-weights).
#pragma once

#include <map>
#include <string>

#include "convoy/datasets/dataset.h"

namespace convoy {

/// Reads a file with one line per class: its weight, a blank and its name. Empty lines and lines that begin with # are
/// left out. Throws UsageError, which names the line, for another text.
std::map<std::string, double> read_class_weights(const std::string& file);

/// Returns the weights of such a file as one text, in the order of the names; an empty one for "none" and "balanced".
std::string class_weights_text(const std::string& file);

/// Returns the weights [classes] of the text of --class-weights: "balanced", by which all classes have the same sum, or a
/// file of read_class_weights(). They are scaled such that their mean over the training images is 1. Undefined for
/// "none". Throws UsageError if the file does not have exactly the classes of the data set.
Tensor class_weights(const std::string& text, const data::DataSet& data, const DeviceContext& device,
                     DType dtype);

}  // namespace convoy
