// CheckpointSaver: writes checkpoints in the background, while the training goes on.
#pragma once

#include <chrono>
#include <filesystem>
#include <future>
#include <optional>

#include "convoy/comm/core/communicator.h"
#include "convoy/engine/io/checkpoint.h"
#include "convoy/engine/training/callback.h"

namespace convoy {

/// Saves the state of a training without stopping it for longer than a copy in memory takes: start() copies
/// the state, and a thread writes the copy. At most one checkpoint is being written.
///
/// If the optimizer's state is divided into shards (ZeRO), each rank writes its own; of ranks that hold the same
/// shard, one does. Then rank 0 writes the rest and puts the checkpoint in place. The ranks that write must see
/// the directory of rank 0, as on one host or a shared file system. The thread that trains calls all functions.
class CheckpointSaver {
 public:
  /// `control` is a communicator of all ranks for small data in host memory; null with one rank. `writes_shard`
  /// is false if another rank writes the shard that this rank holds; rank 0 writes its own. The references must
  /// outlive this object.
  CheckpointSaver(io::CheckpointDirectory& checkpoints, dist::Communicator* control, bool writes_shard = true)
      : checkpoints_(checkpoints), control_(control), writes_shard_(writes_shard) {}
  /// Waits until the file that is being written is complete. With shards, the checkpoint may remain
  /// incomplete, and the next one removes it.
  ~CheckpointSaver() = default;
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  /// Returns whether the shards can be written by their ranks, which then all see the directory of rank 0.
  /// Collective.
  bool can_write_shards();
  /// Copies the state and starts to write it. No save may be in progress. On ranks other than 0 it does
  /// nothing unless the snapshot has a shard. Collective if it has. Throws OutputError if the checkpoint
  /// cannot be begun.
  void start(const io::Snapshot& state, const io::Manifest& manifest, bool best);

  /// Returns the report of a checkpoint that has been completed since the last call, on rank 0. Does not wait
  /// for the disk. Throws the error of a write that has failed: OutputError. Collective while shards are
  /// written.
  std::optional<training::SavedCheckpoint> poll();
  /// Does the same, and waits until the save in progress is complete. Collective while shards are written.
  std::optional<training::SavedCheckpoint> finish();
  /// Returns whether a save is in progress whose shards are not all written.
  bool shards_pending() const { return shards_pending_; }
  /// Does the same after the other ranks have failed: a checkpoint with shards is given up.
  std::optional<training::SavedCheckpoint> finish_alone();

 private:
  using Clock = std::chrono::steady_clock;

  bool is_first() const { return control_ == nullptr || control_->rank() == 0; }
  std::filesystem::path begin_for_all(std::int64_t step);
  void start_commit(std::vector<io::FileRecord> shards);
  void exchange_records();
  training::SavedCheckpoint take_report();

  io::CheckpointDirectory& checkpoints_;
  dist::Communicator* control_;
  bool writes_shard_;
  std::optional<bool> can_write_shards_;

  // The save in progress. Its threads read these until their futures are ready.
  io::Snapshot snapshot_;
  io::Manifest manifest_;
  std::filesystem::path directory_;
  bool best_ = false;
  double stall_ms_ = 0;  // how long the training has waited
  Clock::time_point begin_;

  std::int64_t polls_ = 0;                // since start()
  bool shards_pending_ = false;           // not all ranks have written theirs, as of the last exchange
  std::optional<io::FileRecord> record_;  // of this rank's shard, once it is written
  std::future<io::FileRecord> shard_;     // this rank's shard
  std::future<training::SavedCheckpoint> checkpoint_;  // declared last: destroyed before what its thread uses
};

}  // namespace convoy
