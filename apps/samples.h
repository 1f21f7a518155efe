// OUT/samples.png: what the network is shown, before anyone wonders why it does not learn.
#pragma once

#include <filesystem>

#include "datasets/loader.h"

namespace convoy {

/// The first training images of epoch 0, augmented, normalisation undone, as a square grid.
void write_samples(const std::filesystem::path& path, const ImageSet& train, LoaderOptions options);

}  // namespace convoy
