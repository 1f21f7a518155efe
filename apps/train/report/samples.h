// samples.png: the first training images as the network sees them.
#pragma once

#include <filesystem>

#include "convoy/datasets/loader/loader.h"

namespace convoy {

/// Writes the first training images of epoch 0 as a PNG grid of 8x8 images, with augmentation and without
/// normalization. Throws OutputError if the file cannot be written.
void write_samples(const std::filesystem::path& path, const data::ImageSet& train,
                   data::LoaderOptions options);

}  // namespace convoy
