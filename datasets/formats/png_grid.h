// A picture of several images side by side.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "convoy/engine/tensor/tensor.h"

namespace convoy::data {

inline constexpr std::int64_t kCaptionHeight = 12;  // pixels

/// Writes images, f32 [N, H, W, C] with values from 0 (black) to 1 and 1 to 4 channels, as a PNG file: rows
/// of `columns` images, separated by white lines of 2 pixels. Images below 64 pixels are enlarged by a whole
/// factor. Values outside are clamped. `captions` are texts below the images, one per image, or none: a strip of
/// kCaptionHeight pixels each, in which a text that is too long is cut and each character outside ASCII is a question
/// mark. Throws UsageError for other arguments, and OutputError if the file cannot be written. Called on the thread of
/// the compute stream.
void write_png_grid(const std::filesystem::path& path, const Tensor& images, std::int64_t columns,
                    const std::vector<std::string>& captions = {});

}  // namespace convoy::data
