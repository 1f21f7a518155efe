#include "convoy/apps/train/checkpoint_saver.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "convoy/comm/parallel/broadcast.h"
#include "convoy/kernels/base/check.h"

namespace convoy {
namespace {

namespace fs = std::filesystem;

/// What a rank tells the others about its shard.
struct ShardStatus {
  enum : std::uint64_t { writing, written, failed, none };  // none: another rank writes it
  std::uint64_t state = writing;
  std::uint64_t bytes = 0;  // of the file
  std::uint64_t hash = 0;   // FileRecord::xxhash64
};

template <class T>
bool is_ready(const std::future<T>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

fs::path CheckpointSaver::begin_for_all(std::int64_t step) {
  std::string path;
  if (is_first()) path = fs::absolute(checkpoints_.begin(step)).string();
  return control_ == nullptr ? path : dist::broadcast_text(*control_, path);
}

bool CheckpointSaver::can_write_shards() {
  if (can_write_shards_) return *can_write_shards_;
  // A directory with a random name, which no other file system has.
  const fs::path directory = begin_for_all(0);
  std::error_code ignored;
  std::int32_t unseen = !writes_shard_ || fs::is_directory(directory, ignored) ? 0 : 1;
  if (control_ != nullptr) dist::all_reduce_and_wait(*control_, View{&unseen, {1}, DType::i32});
  can_write_shards_ = unseen == 0;
  return *can_write_shards_;
}

void CheckpointSaver::start(const io::Snapshot& state, const io::Manifest& manifest, bool best) {
  const bool is_sharded = state.shard.count > 1;
  if (!is_sharded && !is_first()) return;
  begin_ = Clock::now();
  stall_ms_ = 0;
  directory_ = is_sharded ? begin_for_all(manifest.step) : checkpoints_.begin(manifest.step);
  io::Snapshot written = state;
  if (!is_first()) {  // rank 0 writes the model and the other weights
    written.model.clear();
    written.other_weights.clear();
  }
  if (!writes_shard_) written.shard = {};
  snapshot_.copy_from(written);
  manifest_ = manifest;
  best_ = best;
  polls_ = 0;
  shards_pending_ = is_sharded;
  record_.reset();
  if (!is_sharded)
    start_commit({});
  else if (writes_shard_)
    shard_ = std::async(std::launch::async,
                        [this] { return io::CheckpointDirectory::write_shard(directory_, snapshot_.shard); });
  stall_ms_ = ms_since(begin_);
}

void CheckpointSaver::start_commit(std::vector<io::FileRecord> shards) {
  checkpoint_ = std::async(std::launch::async, [this, shards = std::move(shards)] {
    const fs::path path = checkpoints_.commit(directory_, snapshot_, manifest_, shards, best_);
    return training::SavedCheckpoint{
        .step = manifest_.step, .path = path, .stall_ms = 0, .write_ms = ms_since(begin_)};
  });
}

/// Tells the other ranks whether this rank's shard is written. Once all are, rank 0 starts to complete the
/// checkpoint.
void CheckpointSaver::exchange_records() {
  ShardStatus local{.state = writes_shard_ ? ShardStatus::writing : ShardStatus::none};
  std::exception_ptr error;
  if (shard_.valid() && is_ready(shard_)) try {
      record_ = shard_.get();
    } catch (const std::exception&) {
      error = std::current_exception();
      local.state = ShardStatus::failed;
    }
  if (record_) local = {ShardStatus::written, record_->bytes, std::stoull(record_->xxhash64, nullptr, 16)};
  std::vector<ShardStatus> all(static_cast<std::size_t>(control_->size()));
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(ShardStatus));
  dist::all_gather_and_wait(*control_, ConstView(&local, {kBytes}, DType::u8),
                            View{all.data(), {kBytes * control_->size()}, DType::u8});
  if (error) std::rethrow_exception(error);
  // A rank whose write has failed ends the job with its error.
  std::erase_if(all, [](const ShardStatus& status) { return status.state == ShardStatus::none; });
  const auto is_written = [](const ShardStatus& status) { return status.state == ShardStatus::written; };
  if (!std::ranges::all_of(all, is_written)) return;
  shards_pending_ = false;
  if (!is_first()) return;
  std::vector<io::FileRecord> records;
  for (const ShardStatus& status : all)
    records.push_back({.bytes = status.bytes, .xxhash64 = fmt::format("{:016x}", status.hash)});
  start_commit(std::move(records));
}

training::SavedCheckpoint CheckpointSaver::take_report() {
  training::SavedCheckpoint report = checkpoint_.get();
  report.stall_ms = stall_ms_;
  return report;
}

std::optional<training::SavedCheckpoint> CheckpointSaver::poll() {
  // Rarely while it takes long, since the exchange waits for the slowest rank: after 1, 2, 4, 8 … steps.
  if (shards_pending_ && std::has_single_bit(static_cast<std::uint64_t>(++polls_))) exchange_records();
  if (!checkpoint_.valid() || !is_ready(checkpoint_)) return std::nullopt;
  return take_report();
}

std::optional<training::SavedCheckpoint> CheckpointSaver::finish() {
  const Clock::time_point begin = Clock::now();
  while (shards_pending_) {
    if (shard_.valid()) shard_.wait();
    exchange_records();
  }
  if (!checkpoint_.valid()) return std::nullopt;
  checkpoint_.wait();
  stall_ms_ += ms_since(begin);
  return take_report();
}

std::optional<training::SavedCheckpoint> CheckpointSaver::finish_alone() {
  if (shard_.valid()) shard_.wait();
  shards_pending_ = false;
  if (!checkpoint_.valid()) return std::nullopt;
  checkpoint_.wait();
  return take_report();
}

}  // namespace convoy
