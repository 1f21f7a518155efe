// Measures the data loader without a training: reading a data set and making its batches.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "convoy/apps/common/data_source.h"
#include "convoy/apps/train/augmentation/augmentation_options.h"

namespace convoy::bench {

/// The flags of convoy-bench-loader.
struct LoaderBenchOptions {
  DataOptions data;
  std::int64_t batch_size = 128;
  std::string augment = "crop=4,flip";
  AugmentationOptions augmentation;
  std::int64_t epochs = 3;
  std::int64_t seed = 1;
  std::string json;  // file
};

/// A number of images and the time that they took.
struct LoaderTime {
  std::int64_t images = 0;
  double seconds = 0;       // wall time
  double core_seconds = 0;  // user and system time of the process, over all cores
};

/// The results of the benchmark.
struct LoaderFigures {
  std::string note;                 // description of the data set
  std::vector<std::int64_t> image;  // [H, W, C]
  std::string transform;
  /// Opening, decoding and resizing of all training and test files, which a training does once.
  LoaderTime reading;
  /// Making batches of the training images from memory, per epoch.
  std::vector<LoaderTime> epochs;

  /// Returns the cost of a first epoch: the share of `reading` that belongs to the training images, plus the
  /// first of `epochs`.
  LoaderTime first_epoch() const;
};

/// Requests every batch of every epoch and discards it. Throws DataError if the data set cannot be read.
LoaderFigures measure_loader(const LoaderBenchOptions& options);

/// Return the values as JSON.
nlohmann::ordered_json to_json(const LoaderTime& time);
nlohmann::ordered_json to_json(const LoaderFigures& figures);

}  // namespace convoy::bench
