// Reading a data set and making its batches, timed: what a training's loader does, without the training.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/data_source.h"

namespace convoy::bench {

struct LoaderBenchOptions {
  DataOptions data;
  std::int64_t batch_size = 128;
  std::string augment = "crop=4,flip";
  std::int64_t epochs = 3;
  std::int64_t seed = 1;
  std::string json;  // file
};

/// A number of images and what they took.
struct LoaderTime {
  std::int64_t images = 0;
  double seconds = 0;       // by the clock
  double core_seconds = 0;  // of all cores together: user and system time of the process
};

struct LoaderFigures {
  std::string note;                 // of the set
  std::vector<std::int64_t> image;  // [H, W, C]
  std::string transform;
  LoaderTime reading;  // of all files, training and test: opening, decoding, resizing; once in a training
  std::vector<LoaderTime> epochs;  // of the training images, from memory to batches

  /// What no later epoch costs: the training images' part of the reading, and then the first epoch.
  LoaderTime first_epoch() const;
};

/// Takes every batch of every epoch, and uses none. DataError for a set that cannot be read.
LoaderFigures measure_loader(const LoaderBenchOptions& options);

nlohmann::ordered_json to_json(const LoaderTime& time);
nlohmann::ordered_json to_json(const LoaderFigures& figures);

}  // namespace convoy::bench
