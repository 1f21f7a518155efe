// DataLoader: deterministic batches that worker threads prepare ahead of their use.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "convoy/datasets/loader/sampler.h"
#include "convoy/datasets/transforms/transforms.h"

namespace convoy::data {

/// One micro-batch of one rank.
struct Batch {
  /// [n, H, W, C]. n is 0 on a rank without samples. Undefined with LoaderOptions::defer_images.
  Tensor images;
  Tensor labels;  // i32 [n]
  Tensor ids;  // i32 [n]: the random keys of augmentation and dropout; modulo N the indices in the data set
  Tensor partner_labels;          // i32 [n], with TransformSpec::mixing: the labels of the partners
  Tensor partner_ids;             // i32 [n], with mixing and defer_images: the ids of the partners
  Mixing mixing = {};             // with TransformSpec::mixing: of the step
  std::int64_t epoch = 0;         // from 0
  std::int64_t step = 0;          // in the epoch
  std::int64_t index = 0;         // of the micro-batch in its step
  std::int64_t global_count = 0;  // samples of all ranks in this step; the divisor of the loss
  std::int64_t smallest = 0;      // samples of the smallest micro-batch of all ranks in this step
};

/// The options of a DataLoader.
struct LoaderOptions {
  std::int64_t global_batch = 128;  // samples per step on all ranks
  std::int64_t micro_batch = 0;     // maximum samples per batch on this rank; 0: its whole shard of the step
  int rank = 0;                     // this rank, from 0
  int world_size = 1;               // number of ranks
  std::uint64_t seed = 1;           // of the order and of the augmentation
  bool shuffle = true;  // whether every epoch has an order of its own; false: that of the data set
  /// Labels, i32 [N] on the CPU, of which each epoch has the same number of samples, by balanced_order(). Undefined:
  /// each epoch has each sample once.
  Tensor balance = {};
  TransformSpec transform = {};  // from stored images to batch images
  /// The type of batch images: f32, f64 or bf16; on a GPU also f16. Half-precision values are f32 values that
  /// are rounded once.
  DType dtype = DType::f32;
  /// Number of worker threads. 0: next_step() prepares the batches in the calling thread.
  int workers = 2;
  /// Number of batches that are prepared ahead, across epochs. For a GPU, one further step is uploaded ahead.
  int prefetch = 4;
  /// Number of epochs. Nothing is prefetched beyond it, and requesting more is a UsageError. -1: unlimited.
  std::int64_t max_epochs = -1;
  /// The device of the batches. nullopt: the device of the data set's images. For a GPU, batches are prepared
  /// in its pinned host memory and uploaded while it computes.
  std::optional<DeviceContext> device = {};
  /// Keeps all images in the memory of `device`, which must be a GPU. The GPU then makes the batches without
  /// workers.
  bool resident = false;
  /// With `resident`: the data set's images if they are on `device` already. Undefined: the loader copies
  /// them.
  Tensor resident_images = {};
  /// With `resident`: batches have no images, and the caller calls make_images().
  bool defer_images = false;
};

/// Iterates over the batches of a data set in order. The contents of a batch depend only on (options, epoch,
/// step), not on the number of workers. A step may consist of several micro-batches; every rank has the same
/// number of them. The last step of an epoch may be smaller; no sample is dropped. Errors, including those of
/// workers, are thrown by next_step(), on every call until seek(). Not thread-safe.
class DataLoader {
 public:
  /// `set` must outlive the loader. Throws UsageError if an option is invalid.
  DataLoader(const ImageSet& set, LoaderOptions options);
  /// Stops the workers.
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  /// Returns ceil(samples of an epoch / global_batch).
  std::int64_t steps_per_epoch() const;
  /// Returns the number of micro-batches on every rank in a step with a full global batch; at least 1.
  std::int64_t micro_batches_per_step() const;

  /// Moves to `step` of `epoch`, for example to resume a training. Discards prefetched batches unless the
  /// loader is at this position already.
  void seek(std::int64_t epoch, std::int64_t step = 0);
  /// Returns the micro-batches of the next step of the current epoch. Blocks until they are ready. At the end
  /// of the epoch, returns an empty vector and moves to the start of the next epoch.
  std::vector<Batch> next_step();

  /// Enqueues kernels that write the augmented images of `ids`, i32 [n], to `images`, [n, H, W, C] of
  /// LoaderOptions::dtype. Requires defer_images. The kernels read the epoch from `device_epoch`, i32 [1],
  /// when they run. All tensors must be on the loader's device. Does not allocate or block, so it can be
  /// captured in a CUDA graph.
  void make_images(const Tensor& ids, const Tensor& device_epoch, const Tensor& images) const;

  class EpochRange;
  /// Returns a range over the batches of one epoch, for a for loop. Throws UsageError unless there is one
  /// batch per step (micro_batch = 0). The loader can have only one such range at a time.
  EpochRange epoch(std::int64_t epoch);

  /// Returns the milliseconds that next_step() has waited for workers since the last call of take_wait_ms().
  /// Without workers, returns the time that it has spent on preparing batches.
  double take_wait_ms();

 private:
  struct Implementation;
  std::unique_ptr<Implementation> impl_;
};

/// The batches of one epoch. See DataLoader::epoch().
class DataLoader::EpochRange {
 public:
  /// Makes the range of the epoch to which `loader` has moved.
  explicit EpochRange(DataLoader& loader) : loader_(loader) {}
  struct Sentinel {};  // the end of an epoch
  /// A single-pass iterator.
  class Iterator {
   public:
    /// Prepares the first batch.
    explicit Iterator(DataLoader& loader) : loader_(loader) { ++*this; }
    /// Returns the current batch. It is valid until the next increment.
    const Batch& operator*() const { return batches_.front(); }
    /// Moves to the next batch, as DataLoader::next_step() does.
    Iterator& operator++() {
      batches_ = loader_.next_step();
      return *this;
    }
    /// Returns whether there is a current batch.
    bool operator!=(Sentinel) const { return !batches_.empty(); }

   private:
    DataLoader& loader_;
    std::vector<Batch> batches_;
  };
  /// Returns an iterator at the first batch. Blocks until it is ready.
  Iterator begin() { return Iterator(loader_); }
  /// Returns the end of the epoch.
  Sentinel end() const { return {}; }

 private:
  DataLoader& loader_;
};

}  // namespace convoy::data
