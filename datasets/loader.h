// DataLoader: deterministic batches, made ahead of time by worker threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "datasets/sampler.h"
#include "datasets/transforms.h"

namespace convoy {

struct Batch {
  Tensor images;  // [n, H, W, C]; n may be 0 on a rank without samples; undefined where they are deferred
  Tensor labels;  // i32 [n]
  Tensor ids;     // i32 [n]: positions in the set, which key augmentation and dropout
  std::int64_t epoch = 0;
  std::int64_t step = 0;          // the update in its epoch
  std::int64_t index = 0;         // the micro-batch in its update
  std::int64_t global_count = 0;  // samples of all ranks in this update: what a loss is divided by
};

struct LoaderOptions {
  std::int64_t global_batch = 128;
  std::int64_t micro_batch = 0;  // most samples a batch holds on this rank; 0: all of its share
  int rank = 0;
  int world = 1;
  std::uint64_t seed = 1;
  bool shuffle = true;
  TransformSpec transform;
  DType dtype = DType::f32;  // of images: f32, f64 or bf16; for a GPU also f16. Halves are f32, rounded once
  int workers = 2;           // threads that make batches; 0: made in the caller
  int prefetch = 4;          // batches ready ahead, across epochs; a GPU gets one update more
  std::int64_t max_epochs =
      -1;  // known end: nothing is prefetched past it, and asking for more is a UsageError
  // Where batches go; none: where the set's images are. On the CPU they are made in this device's memory,
  // since ops run on the stream of what they are given; for a GPU they are made in its staging() memory, and
  // copied ahead of their use, while it computes.
  std::optional<Device> device;
  // The images are kept in the memory of `device`, a GPU, which makes the batches itself; workers have
  // nothing to do.
  bool resident = false;
  // With `resident`: the set's images, where they are on `device` already; undefined: they are copied there.
  Tensor resident_images = {};
  // With `resident`: batches come without images; make_images() makes them.
  bool defer_images = false;
};

/// Batches of an epoch come in order; contents are a function of (options, epoch, step), whatever the number
/// of workers. An update's global batch may come as several micro-batches, in order, equally many on every
/// rank. The last update of an epoch may be short; no sample is dropped. What goes wrong, in a worker too, is
/// thrown by next_update(), again each time it is called, until seek(). One thread at a time may use a
/// loader.
class DataLoader {
 public:
  /// The set must outlive the loader. UsageError for options that cannot be.
  DataLoader(const ImageSet& set, LoaderOptions options);
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  std::int64_t steps_per_epoch() const;         // updates: ceil(size / global_batch)
  std::int64_t micro_batches_per_step() const;  // of a full global batch, on every rank (at least 1)

  /// Positions the loader before update `step` of `epoch`: the start, a resume. Discards what was prefetched,
  /// unless the loader stands there already.
  void seek(std::int64_t epoch, std::int64_t step = 0);
  /// The micro-batches of the next update of the current epoch; empty at the end of the epoch (the loader
  /// then stands at the start of the next).
  std::vector<Batch> next_update();

  /// Of a loader with defer_images: enqueues on the GPU what the images of these ids, i32 [n], are in the
  /// epoch that epoch_cell, i32 [1], holds when the GPU gets there. images: [n, H, W, C] of
  /// LoaderOptions::dtype. All are on the loader's device. Allocates nothing and waits for nothing, so it can
  /// be recorded for replay.
  void make_images(const Tensor& ids, const Tensor& epoch_cell, const Tensor& images) const;

  /// Iteration over one epoch for programs that take each update as one batch (micro_batch = 0).
  class EpochRange;
  EpochRange epoch(std::int64_t epoch);

  /// Milliseconds that next_update() has waited for workers (without any: has made batches), since the last
  /// call.
  double take_wait_ms();

 private:
  struct Implementation;
  std::unique_ptr<Implementation> impl_;
};

class DataLoader::EpochRange {
 public:
  explicit EpochRange(DataLoader& loader) : loader_(loader) {}
  struct Sentinel {};
  class Iterator {
   public:
    explicit Iterator(DataLoader& loader) : loader_(loader) { ++*this; }
    const Batch& operator*() const { return batches_.front(); }
    Iterator& operator++() {
      batches_ = loader_.next_update();
      return *this;
    }
    bool operator!=(Sentinel) const { return !batches_.empty(); }

   private:
    DataLoader& loader_;
    std::vector<Batch> batches_;
  };
  Iterator begin() { return Iterator(loader_); }
  Sentinel end() const { return {}; }

 private:
  DataLoader& loader_;
};

}  // namespace convoy
