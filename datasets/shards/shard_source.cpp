// The reader of data sets of shards: the index, and threads that read blocks of samples ahead of their use.
#include <algorithm>
#include <bit>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "convoy/datasets/formats/image/pixels.h"
#include "convoy/datasets/formats/readers.h"
#include "convoy/datasets/shards/format.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/option_error.h"

namespace convoy::data {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{4} << 20;  // of a block, about
constexpr std::uint64_t kMaxBlock = 1024;                      // samples
constexpr std::int64_t kDefaultSide = 224;                     // pixels, if the caller gives no size
constexpr std::int64_t kMaxChecked = 512;                      // shards whose sizes are compared at the start
constexpr std::int64_t kIdleSteps = 8;  // without a use, for a block that workers may still need
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();
constexpr int kThreads = 4;
constexpr std::size_t kOpenFiles = 16;

/// The files of a data set, in a directory or on a web server. Thread-safe.
class ShardFiles {
 public:
  ShardFiles(std::string root, HttpOptions options) : place(std::move(root)), http(std::move(options)) {}

  const std::string place;  // the directory, or its URL
  const HttpOptions http;

  std::string path_of(const std::string& name) const { return place + "/" + name; }
  /// Returns `bytes` bytes from `begin` on. Throws DataError if the file is missing or has not `size` bytes, and
  /// StorageError if its device or server fails.
  std::string read(const std::string& name, std::uint64_t begin, std::uint64_t bytes,
                   std::uint64_t size) const {
    std::string text;
    if (const std::uint64_t found = open(name, begin, bytes, text); found != size)
      fail<DataError>("{}: {} bytes, expected {} by the index: the file is incomplete or another",
                      path_of(name), found, size);
    return text;
  }
  /// Returns the size of a file, and sets `text` to its bytes from `begin` on: `bytes` of them, or none if it ends before.
  std::uint64_t open(const std::string& name, std::uint64_t begin, std::uint64_t bytes,
                     std::string& text) const try {
    std::uint64_t size = 0;
    if (is_url(place)) {
      text = read_part(path_of(name), begin, bytes, http, size);
      return size;
    }
    std::unique_ptr<const io::InputFile> file = take(path_of(name));
    size = file->size();
    if (begin + bytes > size) return size;
    text.resize(bytes);
    file->read(begin, std::as_writable_bytes(std::span(text)));
    const std::lock_guard lock(mutex_);
    idle_.push_front(std::move(file));
    if (idle_.size() > kOpenFiles) idle_.pop_back();
    return size;
  } catch (const CheckpointError& error) {
    const bool is_index = name == kShardIndexName;
    throw DataError(
        fmt::format("{}{}", error.what(), is_index ? "; expected shards, made by convoy-shard" : ""));
  }

 private:
  /// Returns a file that no other thread has: one of those read last, or a newly opened one. The index is read for each
  /// block, and a shard for several.
  std::unique_ptr<const io::InputFile> take(const std::string& path) const {
    {
      const std::lock_guard lock(mutex_);
      const auto at = std::ranges::find_if(idle_, [&](const auto& file) { return file->path() == path; });
      if (at != idle_.end()) {
        std::unique_ptr<const io::InputFile> file = std::move(*at);
        idle_.erase(at);
        return file;
      }
    }
    return std::make_unique<const io::InputFile>(path);
  }

  mutable std::mutex mutex_;
  mutable std::deque<std::unique_ptr<const io::InputFile>> idle_;  // open; the one read last is the first
};

/// Consecutive samples with their members.
struct Block {
  std::vector<ShardSample> samples;
  std::vector<std::uint64_t> begins;  // of the samples in `bytes`
  std::string bytes;

  std::string_view sector(std::size_t i, std::uint64_t number) const {
    return std::string_view(bytes).substr(begins[i] + number * kSector, kSector);
  }
  /// Returns the path of an image in its shard.
  std::string path(std::size_t i) const {
    return std::string(sector(i, 2).substr(0, std::min<std::size_t>(sector(i, 2).find('\0'), 100)));
  }
  std::string_view image(std::size_t i) const {
    return std::string_view(bytes).substr(begins[i] + kSampleHeaderBytes, samples[i].bytes);
  }
};

/// The index of a split, without the shards that are left out.
class SplitIndex {
 public:
  SplitIndex(std::shared_ptr<const ShardFiles> files, ShardSplit split)
      : files_(std::move(files)), split_(std::move(split)), shards_(read_index<ShardFile>(0, split_.shards)) {
    std::uint64_t sectors = 0;
    for (const ShardFile& shard : shards_) sectors += shard.sectors;
    if (sectors * kSector != split_.bytes)
      fail<DataError>("{}: shards of {} bytes, expected {} by {}", files_->path_of(split_.index_name()),
                      sectors * kSector, split_.bytes, kShardIndexName);
    kept_ = {{0, split_.samples}};
  }

  /// Compares the sizes of all shards. Leaves out those that are missing or incomplete if `skips`, with a warning each.
  void check_shards(bool skips, std::vector<std::string>& warnings) {
    for (std::int64_t number = 0; number < split_.shards; ++number) try {
        const std::string name = split_.shard_name(number);
        std::error_code ignored;  // what is wrong is found by reading
        if (!skips && !is_url(files_->place) &&
            std::filesystem::file_size(files_->path_of(name), ignored) == shard_bytes(number))
          continue;
        files_->read(name, 0, 1, shard_bytes(number));
      } catch (const DataError& error) {
        if (!skips)
          throw ErrorWithRemedy<DataError>(error.what(), "set ReadOptions::skip_corrupt to leave them out");
        warnings.push_back(fmt::format("left out {} samples: {}", leave_out(number), error.what()));
      }
  }

  ImageSource::About about(std::int64_t side) const {
    const std::uint64_t typical = split_.bytes / static_cast<std::uint64_t>(split_.samples);
    std::int64_t count = 0;
    for (const Kept& range : kept_) count += range.count;
    return {.images = {count, side, side, 3},
            .block = static_cast<std::int64_t>(
                std::bit_floor(std::clamp<std::uint64_t>(kBlockBytes / typical, 1, kMaxBlock))),
            .class_counts = split_.class_counts,
            .statistics = {split_.mean, split_.std},
            .hash = split_.hash + left_out_};
  }

  /// Reads the samples [begin, begin + count) of those that are kept.
  Block read(std::int64_t begin, std::int64_t count) const {
    Block block;
    for (const Kept& range : kept_) {
      const std::int64_t taken = std::clamp<std::int64_t>(range.count - begin, 0, count);
      if (taken > 0) {
        const auto some = read_index<ShardSample>(split_.shards + range.begin + begin, taken);
        block.samples.insert(block.samples.end(), some.begin(), some.end());
      }
      begin = std::max<std::int64_t>(begin - range.count, 0);
      count -= taken;
    }
    for (std::size_t first = 0, last = 0; first < block.samples.size(); first = last) {
      const ShardSample& sample = block.samples[first];
      std::uint64_t end = sample.begin();
      for (; last < block.samples.size() && block.samples[last].shard == sample.shard; ++last) {
        block.begins.push_back(block.bytes.size() + end - sample.begin());
        check_sample(block.samples[last], end);
        end = block.samples[last].end();
      }
      block.bytes += files_->read(split_.shard_name(sample.shard), sample.begin(), end - sample.begin(),
                                  shard_bytes(sample.shard));
    }
    for (std::size_t i = 0; i < block.samples.size(); ++i) check_members(block, i);
    return block;
  }
  /// Returns the name of an image in messages.
  std::string message_name(const Block& block, std::size_t i) const {
    return fmt::format("{}: {}", files_->path_of(split_.shard_name(block.samples[i].shard)), block.path(i));
  }

 private:
  struct Kept {
    std::int64_t begin = 0, count = 0;  // samples of the index
  };

  std::uint64_t shard_bytes(std::int64_t number) const {
    return shards_[static_cast<std::size_t>(number)].sectors * kSector;
  }

  template <class T>
  std::vector<T> read_index(std::int64_t begin, std::int64_t count) const {
    const std::string text =
        files_->read(split_.index_name(), static_cast<std::uint64_t>(begin) * sizeof(T),
                     static_cast<std::uint64_t>(count) * sizeof(T), split_.index_bytes());
    std::vector<T> entries(static_cast<std::size_t>(count));  // no memory for what the file does not have
    std::memcpy(entries.data(), text.data(), text.size());
    return entries;
  }

  /// Leaves out the samples of a shard and returns their number.
  std::int64_t leave_out(std::int64_t number) {
    const auto first_of = [&](std::int64_t shard) {
      return shard < split_.shards
                 ? std::min<std::int64_t>(shards_[static_cast<std::size_t>(shard)].first, split_.samples)
                 : split_.samples;
    };
    const std::int64_t begin = first_of(number), end = std::max(begin, first_of(number + 1));
    if (begin == end) return 0;  // none of its images could be decoded
    for (const ShardSample& sample : read_index<ShardSample>(split_.shards + begin, end - begin)) {
      check_sample(sample, sample.begin());
      --split_.class_counts[sample.label];
    }
    const std::int64_t all = kept_.back().begin + kept_.back().count;
    kept_.back().count = begin - kept_.back().begin;
    kept_.push_back({end, all - end});
    left_out_ += fmt::format(" without {}", number);
    return end - begin;
  }

  /// Throws DataError unless the index can have a sample that begins at the byte `begin` of its shard.
  void check_sample(const ShardSample& sample, std::uint64_t begin) const {
    const bool is_valid = sample.label < split_.class_counts.size() && sample.shard < shards_.size() &&
                          sample.sector >= 3 && 1 <= sample.bytes && sample.bytes <= kMaxImageFileBytes &&
                          sample.begin() == begin && sample.end() <= shard_bytes(sample.shard);
    if (!is_valid)
      fail<DataError>(
          "{}: a sample of class {} with {} bytes at sector {} of shard {}, expected one of {} classes "
          "and {} shards, at sector {} and inside of the shard",
          files_->path_of(split_.index_name()), sample.label, sample.bytes, sample.sector, sample.shard,
          split_.class_counts.size(), shards_.size(), (begin + kSampleHeaderBytes) / kSector);
  }

  /// Compares the members of a sample with the index.
  void check_members(const Block& block, std::size_t i) const {
    const ShardSample& sample = block.samples[i];
    const std::string place =
        fmt::format("{}: byte {}", files_->path_of(split_.shard_name(sample.shard)), sample.begin());
    const std::string label = std::to_string(sample.label);
    parse_tar_header(block.sector(i, 2), sample.bytes, place);
    const std::string_view text = block.sector(i, 1),
                           found = text.substr(0, std::min<std::size_t>(text.find('\0'), 20));
    if (found != label) fail<DataError>("{}: class '{}', expected {} by the index", place, found, label);
    parse_tar_header(block.sector(i, 0), label.size(), place);
  }

  std::shared_ptr<const ShardFiles> files_;
  ShardSplit split_;
  std::vector<ShardFile> shards_;
  std::vector<Kept> kept_;
  std::string left_out_;
};

/// A split as the source of a set: blocks that threads read ahead, and that stay in memory while `max_bytes` suffice. A
/// block that is needed now is read even if they do not: each waiting thread may have one more.
class ShardSource final : public ImageSource {
 public:
  ShardSource(SplitIndex index, std::int64_t side, std::uint64_t max_bytes)
      : ImageSource(index.about(side)), index_(std::move(index)), max_bytes_(max_bytes) {
    for (int i = 0; i < kThreads; ++i)
      threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
  ~ShardSource() override {
    for (std::jthread& thread : threads_) thread.request_stop();  // request all stops before the first join
  }

  std::int32_t label(std::int64_t row) const override {
    return static_cast<std::int32_t>(get(row)->samples[in_block(row)].label);
  }
  std::string file(std::int64_t row) const override { return get(row)->path(in_block(row)); }
  OriginalImage decode(std::int64_t row, std::int64_t side) const override {
    const std::shared_ptr<const Block> block = get(row);
    Pixels pixels = decode_rgb(block->image(in_block(row)), index_.message_name(*block, in_block(row)), side);
    return {pixels.size.height, pixels.size.width, std::move(pixels.rgb)};
  }

  void read_ahead(const std::vector<std::int64_t>& rows, std::int64_t now,
                  std::int64_t later) const override {
    const std::lock_guard lock(mutex_);
    if (now + kIdleSteps < now_ - base_) base_ = now_ - now;  // the loader has gone back, or is another one
    now_ = std::max(now_, base_ + now);
    for (const std::int64_t row : rows) {
      const auto [at, is_new] = entries_.try_emplace(row / about().block);
      at->second.used = std::max(at->second.used, base_ + later);
      if (!is_new) continue;
      if (!make_room(kBlockBytes, now_ - kIdleSteps)) return void(entries_.erase(at));
      bytes_ += kBlockBytes;
      queue_.push_back(at->first);
      work_.notify_one();
    }
  }

 private:
  struct Entry {
    std::shared_ptr<const Block> block;
    std::exception_ptr failure;
    std::int64_t used = kNever;  // the step of the last use, or a later one for which it was requested
    int waiting = 0;             // threads in get()
  };

  std::size_t in_block(std::int64_t row) const { return static_cast<std::size_t>(row % about().block); }

  /// Returns the block of a sample. Blocks until it has been read, before all that are read ahead.
  std::shared_ptr<const Block> get(std::int64_t row) const {
    std::unique_lock lock(mutex_);
    const auto [at, is_new] = entries_.try_emplace(row / about().block);
    Entry& entry = at->second;  // stays: no entry with waiting threads is erased
    if (is_new) bytes_ += kBlockBytes;
    if (is_new || std::erase(queue_, at->first) > 0) {
      queue_.push_front(at->first);
      work_.notify_one();
    }
    ++entry.waiting;
    ready_.wait(lock, [&] { return entry.block || entry.failure; });
    --entry.waiting;
    entry.used = std::max(entry.used, now_);
    if (!entry.failure) return entry.block;
    const std::exception_ptr failure = entry.failure;
    if (entry.waiting == 0) entries_.erase(at);  // the next call tries again
    std::rethrow_exception(failure);
  }

  /// Erases the blocks that were used longest ago, before the step `before`, until there is room for more bytes. Returns
  /// whether there is. The caller holds the mutex.
  bool make_room(std::uint64_t bytes, std::int64_t before) const {
    while (bytes_ + bytes > max_bytes_) {
      auto oldest = entries_.end();
      for (auto at = entries_.begin(); at != entries_.end(); ++at)
        if (at->second.block && at->second.waiting == 0 && at->second.used < before &&
            (oldest == entries_.end() || at->second.used < oldest->second.used))
          oldest = at;
      if (oldest == entries_.end()) return false;
      bytes_ -= oldest->second.block->bytes.size();
      entries_.erase(oldest);
    }
    return true;
  }

  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (work_.wait(lock, stop, [&] { return !queue_.empty(); }) && !stop.stop_requested()) {
      const std::int64_t number = queue_.front(), begin = number * about().block;
      queue_.pop_front();
      lock.unlock();
      Entry read;
      try {
        read.block = std::make_shared<const Block>(
            index_.read(begin, std::min(about().block, about().images[0] - begin)));
      } catch (...) {
        read.failure = std::current_exception();
      }
      lock.lock();
      bytes_ -= kBlockBytes;
      if (read.block) {
        make_room(read.block->bytes.size(), std::numeric_limits<std::int64_t>::max());
        bytes_ += read.block->bytes.size();
      }
      Entry& entry = entries_[number];
      entry.block = std::move(read.block);
      entry.failure = read.failure;
      ready_.notify_all();
    }
  }

  SplitIndex index_;
  std::uint64_t max_bytes_;
  mutable std::mutex mutex_;  // guards what follows
  mutable std::condition_variable_any work_;
  mutable std::condition_variable ready_;
  mutable std::map<std::int64_t, Entry> entries_;
  mutable std::deque<std::int64_t> queue_;   // blocks that no thread has begun to read
  mutable std::uint64_t bytes_ = 0;          // of all blocks; one that has not been read counts kBlockBytes
  mutable std::int64_t now_ = 0, base_ = 0;  // the last step; what is added to those of the loader
  std::vector<std::jthread> threads_;  // last member, so that the threads end before the others are destroyed
};

}  // namespace

DataSet read_shards(const std::filesystem::path& place, const ReadOptions& options) {
  check_read_options(options);
  std::string root = place.string();
  if (root.ends_with(kShardIndexName)) root.resize(root.size() - std::strlen(kShardIndexName));
  while (root.size() > 1 && root.ends_with('/')) root.pop_back();
  const auto files = std::make_shared<const ShardFiles>(root.empty() ? "." : root, options.http);
  constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{64} << 20;
  const std::string path = files->path_of(kShardIndexName);
  std::string text;
  const std::uint64_t bytes = files->open(kShardIndexName, 0, 1, text);
  if (bytes > kMaxIndexBytes)
    fail<DataError>("{}: {} bytes, expected at most {}", path, bytes, kMaxIndexBytes);
  ShardIndex index = parse_shard_index(files->read(kShardIndexName, 0, bytes, bytes), path);
  const std::int64_t side = options.image_size > 0 ? options.image_size : kDefaultSide;
  DataSet data{.name = "shards", .classes = std::move(index.classes), .train = {}, .test = {}};
  if (options.image_size == 0) data.chosen_size = side;
  std::int64_t shards = 0;
  for (ShardSplit& split : index.splits) {
    shards += split.shards;
    SplitIndex found(files, split);
    if (options.skip_corrupt || (options.checks_files && split.shards <= kMaxChecked))
      found.check_shards(options.skip_corrupt, data.warnings);
    ImageSet& set = split.name == "train" ? data.train : split.name == "test" ? data.test : data.validation;
    set.source = std::make_shared<ShardSource>(std::move(found), side, options.cache_bytes);
  }
  if (data.train.size() == 0 || data.test.size() == 0)
    fail<DataError>("{}: {} samples of the split train and {} of test are left, expected some of both", path,
                    data.train.size(), data.test.size());
  data.note = fmt::format("{} ({} shards)", root, shards);
  return data;
}

}  // namespace convoy::data
