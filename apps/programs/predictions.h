// Predictions as JSON and CSV, and logits in NumPy's format .npy.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "convoy/engine/tensor/tensor.h"

namespace convoy {

/// The most probable classes of one image.
struct Prediction {
  std::string path;  // as it was given; "-" for standard input
  /// Index of a class and its probability, in descending order of probability.
  std::vector<std::pair<std::size_t, double>> top;
};

/// What all predictions of one call have in common.
struct PredictionSource {
  std::string checkpoint;            // directory
  std::string model;                 // name
  std::vector<std::string> classes;  // names in label order
};

/// Returns a JSON array with one object per image, each in a line of its own: path, model, checkpoint, and
/// `predictions`, a list of objects with class, label and probability. Bytes of names that are not UTF-8
/// become U+FFFD; set_path() adds such paths in a form that can be opened. A probability that is not a number
/// becomes null.
std::string to_json(const std::vector<Prediction>& predictions, const PredictionSource& source);

/// Returns a table in CSV (RFC 4180) with a header and one record per image: path, model, checkpoint, and the
/// columns class_1, probability_1, class_2, … Fields are quoted where necessary. All predictions must have
/// the same number of classes.
std::string to_csv(const std::vector<Prediction>& predictions, const PredictionSource& source);

/// Returns the bytes of a .npy file, version 1.0, with this tensor. Throws UsageError unless it is f32 or f64.
std::string encode_npy(const Tensor& tensor);

}  // namespace convoy
