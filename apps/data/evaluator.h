// Evaluation of a model on a data set: loss, accuracy and confusion matrix. One thread at a time uses a model
// and a communicator.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "convoy/comm/core/communicator.h"
#include "convoy/datasets/transforms/transforms.h"
#include "convoy/models/model.h"

namespace convoy {

/// An image whose predicted class is not its label.
struct Mistake {
  std::int64_t image = 0;       // index in the set
  std::int32_t label = 0;       // class of the image
  std::int32_t prediction = 0;  // class with the highest probability
  double probability = 0;       // of the prediction, 0 … 1
  std::string file = {};        // of the image; empty if it has none of its own
};

/// The result of an evaluation.
struct Evaluation {
  std::int64_t count = 0;               // number of images
  double loss = 0;                      // mean cross-entropy, without label smoothing
  double accuracy = 0;                  // 0 … 1
  int classes = 0;                      // number of classes
  std::vector<std::int64_t> images;     // [classes]: number of images by label
  std::vector<std::int64_t> correct;    // [classes]: of these, the correctly classified ones
  std::vector<std::int64_t> predicted;  // [classes]: number of images by predicted class
  /// Fraction of the images whose label is among the five classes with the highest logits, 0 … 1; of equal
  /// logits, those of the first classes count. nullopt unless EvaluationOptions::top5 is set.
  std::optional<double> top5_accuracy;
  /// [classes, classes]: rows are labels, columns predictions. Empty for more than kMaxConfusionClasses.
  std::vector<std::int64_t> confusion;
  /// The most confident mistakes, at most kMaxMistakes, in descending order of their probability. Of all
  /// ranks on rank 0; empty on the others.
  std::vector<Mistake> mistakes;
  Tensor mistake_images;  // u8 [mistakes, H, W, C] in host memory; undefined without mistakes
  /// [count, classes] in host memory, f64 or f32: the logits of each image, in the order of the set.
  /// Undefined unless EvaluationOptions::keep_logits is set.
  Tensor logits;
  /// With 21,000 classes the matrix would have 3.5 GB.
  static constexpr int kMaxConfusionClasses = 1000;
  /// A screen of images.
  static constexpr std::size_t kMaxMistakes = 24;

  /// Precision, recall and their harmonic mean F1, 0 … 1 each.
  struct Scores {
    double precision =
        0;  // of the images predicted as the class, the fraction that are of it; 0 if there are none
    double recall = 0;  // of the images of the class, the fraction predicted as it; 0 if there are none
    double f1 = 0;      // 2 precision recall / (precision + recall); 0 if both are 0
  };
  /// Returns the scores of each class.
  std::vector<Scores> scores_by_class() const;
  /// Returns the unweighted means over the classes that have images or predictions, as scikit-learn's macro
  /// averages.
  Scores macro_scores() const;
  /// Returns the rows of the confusion matrix; none if it is empty.
  std::vector<std::vector<std::int64_t>> confusion_rows() const;
};

/// Options of evaluate().
struct EvaluationOptions {
  /// Only its normalization is applied, not its random augmentation.
  data::TransformSpec transform;
  /// Classifies each image by the mean logits of six views of it (data::TransformSpec::views).
  bool views = false;
  /// Returns the logits of all images on every rank. With `views`, these are the means.
  bool keep_logits = false;
  /// Computes Evaluation::top5_accuracy, for which the logits are copied to host memory.
  bool top5 = false;
  /// Maximum number of images per batch on each rank.
  std::int64_t batch_size = 128;
  int workers = 2;           // number of threads that make batches
  DType dtype = DType::f32;  // of batch images, as LoaderOptions::dtype
  /// All images in GPU memory, for a GPU that makes the batches itself. Undefined: worker threads make them.
  Tensor resident_images = {};
  /// A CPU communicator of the ranks that shard the set. Null: this rank evaluates the whole set.
  dist::Communicator* comm = nullptr;
  /// Called before each batch; true stops the evaluation. Must return the same value on all ranks.
  std::function<bool()> stop;
  /// Called after each batch with the approximate number of images evaluated by all ranks and the set size.
  std::function<void(std::int64_t done, std::int64_t count)> progress;
};

/// Evaluates the model on every image of `set` exactly once and returns the result for the whole set on every
/// rank. Returns nullopt if `stop` stopped it. Does not change the model. Blocks until the device is done.
/// Throws DataError if the set is empty and PeerError if another rank fails.
std::optional<Evaluation> evaluate(const models::Model& model, const DeviceContext& device,
                                   const data::ImageSet& set, const EvaluationOptions& options);

}  // namespace convoy
