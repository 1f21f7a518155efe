// Evaluation: loss, accuracy and confusion over a whole set, each sample counted once.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "datasets/transforms.h"
#include "models/model.h"

namespace convoy {

struct Evaluation {
  std::int64_t count = 0;
  double loss = 0;      // mean cross-entropy, without label smoothing
  double accuracy = 0;  // 0 … 1
  int classes = 0;
  std::vector<std::int64_t> confusion;  // [classes, classes]: rows are labels, columns predictions
};

struct EvaluationOptions {
  TransformSpec transform;        // its random part is left out
  std::int64_t batch_size = 128;  // most images that a rank computes at once
  int workers = 2;
  DType dtype = DType::f32;
  Tensor resident_images = {};  // the set's, on a GPU that makes the batches itself; undefined: the CPU does
  /// Of the ranks that share the set, on the CPU; each gets the whole result. Null: this one has it all.
  Communicator* comm = nullptr;
  std::function<bool()> stop;  // asked between batches, by all ranks equally often, who must answer alike
  std::function<void(std::int64_t done, std::int64_t count)> progress;  // after each batch
};

/// Changes nothing of the model. Nothing where it was stopped.
std::optional<Evaluation> evaluate(const Model& model, const Device& device, const ImageSet& set,
                                   const EvaluationOptions& options);

}  // namespace convoy
