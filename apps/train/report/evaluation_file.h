// evaluation.json and mistakes.png: the predictions of the best evaluation of a run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "convoy/apps/data/evaluator.h"
#include "convoy/datasets/loader/loader.h"

namespace convoy {

/// The images in a row of mistakes.png.
inline constexpr std::int64_t kMistakesPerRow = 6;

/// Writes `directory`/evaluation.json: accuracy, confusion matrix and most confident mistakes of the
/// evaluation after `step` steps. Writes the images of the mistakes as `directory`/mistakes.png, and removes
/// an earlier one if there are none. Creates the directory if it has vanished. `classes` are the names in
/// label order. Throws OutputError if a file cannot be written.
void write_evaluation(const std::filesystem::path& directory, std::int64_t step, const Evaluation& evaluation,
                      const std::vector<std::string>& classes);

/// Writes the first training images of epoch 0 as a PNG grid of 8x8 images, of fewer rows if images have many pixels,
/// with augmentation, without normalization, and with the names of their classes. Throws OutputError if the file cannot
/// be written.
void write_samples(const std::filesystem::path& path, const data::ImageSet& train,
                   const std::vector<std::string>& classes, data::LoaderOptions options);

}  // namespace convoy
