// The targets of the cross-entropy loss (kernels/softmax.h), row by row.
#pragma once

#include "convoy/kernels/softmax.h"

namespace convoy::kernels {

/// The targets of all rows, as CrossEntropyTarget states them. C is the type that they are computed in, and S
/// the type of probabilities and weights.
template <class C, class S = C>
struct CrossEntropyTargets {
  std::int64_t classes;
  C own_part, class_part;      // 1 - s and s / C
  const std::int32_t* labels;  // null if there are probabilities
  const S *probabilities, *weights;
  std::int32_t ignored;
  bool of_log_p;

  CrossEntropyTargets(const CrossEntropyTarget& target, std::int64_t class_count)
      : classes(class_count),
        own_part(static_cast<C>(1 - target.smoothing)),
        class_part(static_cast<C>(target.smoothing / static_cast<double>(class_count))),
        labels(target.of_rows.dtype == DType::i32 ? target.of_rows.as<std::int32_t>() : nullptr),
        probabilities(labels == nullptr ? target.of_rows.as<S>() : nullptr),
        weights(target.class_weights.as<S>()),
        ignored(target.ignore_index),
        of_log_p(target.of_log_p) {}

  /// Returns whether all targets are 1 - s + s / C for the label and s / C for every other class. Their sum
  /// is 1.
  CONVOY_HOST_DEVICE bool are_plain() const { return labels != nullptr && weights == nullptr; }
  CONVOY_HOST_DEVICE bool ignores(std::int64_t row) const {
    return labels != nullptr && labels[row] == ignored;
  }
  CONVOY_HOST_DEVICE C operator()(std::int64_t row, std::int64_t c) const {
    const C own = labels == nullptr ? C{probabilities[row * classes + c]} : c == labels[row] ? C{1} : C{0};
    return (weights != nullptr ? C{weights[c]} : C{1}) * (own_part * own + class_part);
  }
  /// Returns the weight of a row in a mean.
  CONVOY_HOST_DEVICE S weight(std::int64_t row) const {
    if (ignores(row)) return 0;
    return labels == nullptr || are_plain() ? S{1} : weights[labels[row]];
  }
};

}  // namespace convoy::kernels
