#include "convoy/datasets/shards/shard_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <set>
#include <utility>

#include "convoy/datasets/files.h"
#include "convoy/datasets/formats/class_directories.h"
#include "convoy/datasets/formats/image/pixels.h"
#include "convoy/datasets/loader/block_order.h"
#include "convoy/datasets/shards/format.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/option_error.h"
#include "convoy/kernels/runtime/parallel.h"

namespace convoy::data {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{4} << 30;

/// What a shard adds to the index. Its bytes are stored next to the shard until all are complete.
struct ShardPart {
  std::uint64_t source = 0, hash = 0;  // ShardIndex::source; ShardFile::hash
  std::uint64_t bytes = 0, samples = 0;
  ChannelSums sums;
};

template <class T>
std::string_view bytes_of(const T* entries, std::size_t count) {
  return {reinterpret_cast<const char*>(entries), count * sizeof(T)};
}

std::uint64_t number_of(const std::string& hash) { return std::stoull(hash, nullptr, 16); }

/// Returns io::hash_file(), and throws DataError if the file cannot be read.
std::uint64_t hash_of(const fs::path& path) try {
  return number_of(io::hash_file(path));
} catch (const CheckpointError& error) {
  throw DataError(error.what());
}

/// Calls `body` for each item on several threads, and then throws the first of its exceptions that is no DataError. Returns
/// the messages of the others. `stops`: the first DataError is thrown as well.
std::vector<std::string> for_each_shard(std::int64_t count, int workers, bool stops,
                                        const std::function<void(std::int64_t)>& body) {
  std::mutex mutex;  // guards the two below
  std::exception_ptr failure;
  std::vector<std::string> errors;
  const CpuStream stream({.threads = std::max(workers, 1)});
  parallel_for_each(stream, count, [&](int, std::int64_t i) {
    try {
      if (std::unique_lock lock(mutex); failure) return;
      body(i);
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      if (stops || dynamic_cast<const DataError*>(&error) == nullptr)
        failure = std::current_exception();
      else
        errors.emplace_back(error.what());
    }
  });
  if (failure) std::rethrow_exception(failure);
  std::ranges::sort(errors);
  return errors;
}

/// One call of write_shards().
class Writer {
 public:
  Writer(const fs::path& images, fs::path out, const ShardOptions& options)
      : out_(std::move(out)),
        options_(options),
        found_(scan_class_directories(images, options.read)),
        source_(io::hash_bytes(fmt::format("{} {} {} {}\n", options.shard_bytes, options.read.seed,
                                           found_.train_count, found_.test_count) +
                               list_files(found_.files, images))) {
    if (found_.classes.size() == 1)
      fail<DataError>("{}: 1 class ({}), with which a network learns nothing, expected at least 2",
                      images.string(), found_.classes.front());
    const std::size_t counts[] = {found_.train_count, found_.test_count,
                                  found_.files.size() - found_.train_count - found_.test_count};
    std::size_t begin = 0;
    for (const char* name : {"train", "test", "val"}) {
      const std::size_t count = counts[plans_.size()];
      if (count == 0) break;  // only the last one
      plan(name, begin, count);
      begin += count;
    }
    if (!found_.left_out.empty()) report_.warnings.push_back(found_.left_out.text());
  }

  ShardReport run() {
    const fs::path index = out_ / kShardIndexName;
    report_.shards = std::ssize(parts_);
    const auto check_source = [&](bool is_equal) {
      if (!is_equal)
        fail<DataError>("{}: has shards of other images or options, expected an empty directory",
                        out_.string());
    };
    if (!is_file(index)) {
      const std::uint64_t source = number_of(source_);  // ShardPart begins with it; a file may be torn
      for (const fs::directory_entry& entry : list_directory(out_))
        if (entry.path().extension() == ".part")
          check_source(
              bytes_of(&source, 1).starts_with(read_file(entry.path(), kMaxIndexBytes).substr(0, 8)));
      for_each_shard(report_.shards, options_.read.workers, /*stops=*/true, [&](std::int64_t i) { make(i); });
      write_indices(index);
    } else {
      report_.kept = report_.shards;
    }
    const ShardIndex made = parse_shard_index(read_file(index, kMaxIndexBytes), index.string());
    for (const ShardSplit& split : made.splits) report_.samples += split.samples;
    check_source(made.source == source_ &&
                 (options_.read.skip_corrupt || report_.samples == std::ssize(found_.files)));
    for (const Part& part : parts_) fs::remove(part_path(part));  // also of a call that ended after the index
    verify_shards(out_, options_.read.workers);
    return std::move(report_);
  }

 private:
  struct Plan {
    ShardSplit split;
    std::vector<std::size_t> order;  // of the files, in shards
  };
  struct Part {
    Plan* plan = nullptr;
    std::int64_t number = 0;
    std::size_t begin = 0, end = 0;  // of its files in Plan::order
    ShardPart result = {};
    std::vector<ShardSample> samples = {};
  };

  /// Assigns the files [begin, begin + count) to the shards of a split.
  void plan(const char* name, std::size_t begin, std::size_t count) {
    Plan& plan = plans_.emplace_back();
    plan.split.name = name;
    const Random random{options_.read.seed, RandomPurpose::split, static_cast<std::uint32_t>(begin)};
    std::set<std::string> keys;
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t number = begin + permuted(i, count, random, 0);
      const fs::path& file = found_.files[number];
      plan.order.push_back(number);
      std::error_code error;  // a file that cannot be accessed cannot be read either
      const std::uintmax_t size = fs::file_size(file, error);
      bytes += kSampleHeaderBytes + (error ? 0 : size);
      // The key of a sample in WebDataset is the name of a file before its first dot.
      std::string key = file.stem().string();
      std::ranges::replace(key, '.', '_');
      key = found_.classes[static_cast<std::size_t>(found_.labels[number])] + "/" + key;
      if (key.size() > 80 || !keys.insert(key).second) key = fmt::format("{:010}", number);
      keys_[number] = key;
    }
    const auto shard_bytes = static_cast<std::uint64_t>(options_.shard_bytes);
    const std::size_t shards = std::clamp<std::size_t>((bytes + shard_bytes - 1) / shard_bytes, 1, count);
    const std::size_t per_shard = (count + shards - 1) / shards;
    plan.split.shards = static_cast<std::int64_t>((count + per_shard - 1) / per_shard);
    for (std::size_t at = 0; at < count; at += per_shard)
      parts_.push_back(
          {&plan, static_cast<std::int64_t>(at / per_shard), at, std::min(at + per_shard, count)});
  }

  fs::path shard_path(const Part& part) const { return out_ / part.plan->split.shard_name(part.number); }
  fs::path part_path(const Part& part) const { return shard_path(part).string() + ".part"; }

  /// Makes a shard unless an earlier call has made it.
  void make(std::int64_t i) {
    Part& part = parts_[static_cast<std::size_t>(i)];
    std::vector<std::string> left_out;
    const bool is_kept = read_part(part);
    if (!is_kept) write(part, left_out);
    const std::lock_guard lock(mutex_);
    report_.kept += is_kept ? 1 : 0;
    for (const std::string& text : left_out) report_.warnings.push_back("left out: " + text);
    if (options_.progress) options_.progress(shard_path(part).filename().string(), ++done_, report_.shards);
  }

  bool read_part(Part& part) const {
    if (!is_file(part_path(part)) || !is_file(shard_path(part))) return false;
    const std::string text = read_file(part_path(part), kMaxIndexBytes);
    if (text.size() < sizeof part.result) return false;
    std::memcpy(&part.result, text.data(), sizeof part.result);
    const std::string_view samples = std::string_view(text).substr(sizeof part.result);
    if (samples.size() != part.result.samples * sizeof(ShardSample) ||
        (part.result.samples < part.end - part.begin && !options_.read.skip_corrupt) ||
        fs::file_size(shard_path(part)) != part.result.bytes)
      return false;
    part.samples.resize(part.result.samples);
    std::memcpy(part.samples.data(), samples.data(), samples.size());
    return true;
  }

  void write(Part& part, std::vector<std::string>& left_out) const {
    const fs::path shard = shard_path(part);
    const std::string temporary = shard.string() + ".tmp";
    part.result = {.source = number_of(source_)};
    {
      const io::FileDescriptor file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
      const auto put = [&](const std::string& bytes) {
        write_at(file, bytes, part.result.bytes, temporary);
        part.result.bytes += bytes.size();
      };
      for (std::size_t i = part.begin; i < part.end; ++i) try {
          add(part.plan->order[i], part, put);
        } catch (const DataError& error) {
          if (!options_.read.skip_corrupt)
            throw ErrorWithRemedy<DataError>(error.what(), "set ReadOptions::skip_corrupt to leave them out");
          left_out.emplace_back(error.what());
        }
      put(std::string(2 * kSector, '\0'));  // the end of a tar file
      if (::fsync(file.get()) != 0)
        fail<OutputError>("{}: cannot be written: {}", temporary, std::strerror(errno));
    }
    part.result.samples = part.samples.size();
    part.result.hash = hash_of(temporary);
    io::rename_path(temporary, shard);
    const std::string_view pieces[] = {bytes_of(&part.result, 1),
                                       bytes_of(part.samples.data(), part.samples.size())};
    io::write_file_durably(part_path(part), pieces);
  }

  /// Adds a file to its shard.
  template <class Put>
  void add(std::size_t number, Part& part, const Put& put) const {
    const fs::path& path = found_.files[number];
    std::string image = read_file(path, kMaxImageFileBytes);
    const auto bytes = static_cast<std::uint32_t>(image.size());
    const Pixels pixels = decode_rgb(image, path.string());
    part.result.sums.add(pixels.rgb.data(), pixels.size.width * pixels.size.height, 3);
    const auto label = static_cast<std::uint32_t>(found_.labels[number]);
    std::string text = std::to_string(label);
    const std::string& key = keys_.at(number);
    const std::string headers[] = {tar_header(key + ".cls", text.size()),
                                   tar_header(key + lower_case(path.extension().string()), bytes)};
    text.resize(kSector);
    put(headers[0] + text + headers[1]);
    if (part.result.bytes / kSector >= std::uint64_t{1} << 32)
      fail<OutputError>("{}: 2 TiB, expected smaller shards", shard_path(part).string());
    part.samples.push_back({.label = label,
                            .shard = static_cast<std::uint32_t>(part.number),
                            .sector = static_cast<std::uint32_t>(part.result.bytes / kSector),
                            .bytes = bytes});
    image.resize((image.size() + kSector - 1) / kSector * kSector);
    put(image);
  }

  /// Writes the indices.
  void write_indices(const fs::path& path) {
    ShardIndex index{.source = source_, .classes = found_.classes, .splits = {}};
    for (const Plan& plan : plans_) {
      ShardSplit& split = index.splits.emplace_back(plan.split);
      split.class_counts.resize(found_.classes.size());
      std::vector<ShardFile> shards;
      std::vector<ShardSample> samples;
      ChannelSums sums;
      for (const Part& part : parts_) {
        if (part.plan != &plan) continue;
        shards.push_back({.hash = part.result.hash,
                          .sectors = static_cast<std::uint32_t>(part.result.bytes / kSector),
                          .first = static_cast<std::uint32_t>(samples.size())});
        samples.insert(samples.end(), part.samples.begin(), part.samples.end());
        for (const ShardSample& sample : part.samples) ++split.class_counts[sample.label];
        split.bytes += part.result.bytes;
        sums.add(part.result.sums);
      }
      split.samples = std::ssize(samples);
      if (samples.empty())
        fail<DataError>("{}: no image of the split {} can be read", out_.string(), split.name);
      std::tie(split.mean, split.std) = std::pair(sums.statistics().mean, sums.statistics().std);
      const std::string_view pieces[] = {bytes_of(shards.data(), shards.size()),
                                         bytes_of(samples.data(), samples.size())};
      split.hash = io::hash_bytes(pieces);
      io::write_file_durably(out_ / split.index_name(), pieces);
    }
    io::write_file_atomically(path, to_text(index));
  }

  fs::path out_;
  const ShardOptions& options_;
  ClassDirectories found_;
  std::string source_;
  std::deque<Plan> plans_;
  std::vector<Part> parts_;                  // all shards
  std::map<std::size_t, std::string> keys_;  // of the samples, by the number of the file
  std::mutex mutex_;                         // guards the two below
  std::int64_t done_ = 0;
  ShardReport report_;
};

}  // namespace

ShardReport write_shards(const fs::path& images, const fs::path& out, const ShardOptions& options) {
  check_read_options(options.read);
  check_option(options.shard_bytes >= 1, "ShardOptions::shard_bytes", "found {}, expected 1 or more",
               options.shard_bytes);
  std::error_code error;
  const fs::path inner =
      fs::weakly_canonical(out, error).lexically_relative(fs::weakly_canonical(images, error));
  check(inner.empty() || *inner.begin() == "..",
        "{}: found in the directory of the images, expected another place", out.string());
  Writer writer(images, out, options);
  fs::create_directories(out, error);
  if (error) fail<OutputError>("{}: cannot be created: {}", out.string(), error.message());
  const io::FileLock lock(out / ".lock", options.read.waiting);
  return writer.run();
}

std::int64_t verify_shards(const fs::path& directory, int workers) {
  const fs::path path = directory / kShardIndexName;
  const ShardIndex index = parse_shard_index(read_file(path, kMaxIndexBytes), path.string());
  std::vector<std::string> errors;
  std::int64_t count = 0;
  for (const ShardSplit& split : index.splits) {
    const fs::path file = directory / split.index_name();
    const std::string text = read_file(file, kMaxIndexBytes);
    if (const std::string hash = io::hash_bytes(text);
        hash != split.hash || text.size() != split.index_bytes())
      fail<DataError>("{}: {} bytes with the hash {}, expected {} bytes with {}", file.string(), text.size(),
                      hash, split.index_bytes(), split.hash);
    std::vector<ShardFile> shards(static_cast<std::size_t>(split.shards));
    std::memcpy(shards.data(), text.data(), shards.size() * sizeof shards[0]);
    std::vector<std::int64_t> counts(index.classes.size());
    std::vector<ShardSample> samples(static_cast<std::size_t>(split.samples));
    std::memcpy(samples.data(), text.data() + shards.size() * sizeof shards[0],
                samples.size() * sizeof samples[0]);
    for (const ShardSample& sample : samples)
      if (sample.label < counts.size()) ++counts[sample.label];
    std::uint64_t bytes = 0;
    for (const ShardFile& shard : shards) bytes += shard.sectors * kSector;
    if (counts != split.class_counts || bytes != split.bytes)
      fail<DataError>("{}: split {}: {} bytes and class counts that are not the {} bytes and counts of {}",
                      path.string(), split.name, split.bytes, bytes, split.index_name());
    count += split.shards;
    const auto verify = [&](std::int64_t number) {
      const fs::path shard = directory / split.shard_name(number);
      const ShardFile& expected = shards[static_cast<std::size_t>(number)];
      if (const std::uint64_t hash = hash_of(shard); hash != expected.hash)
        fail<DataError>("{}: {} bytes with the hash {:016x}, expected {} bytes with {:016x}", shard.string(),
                        fs::file_size(shard), hash, expected.sectors * kSector, expected.hash);
    };
    std::ranges::move(for_each_shard(split.shards, workers, /*stops=*/false, verify),
                      std::back_inserter(errors));
  }
  if (errors.empty()) return count;
  fail<DataError>("{}: {} of {} shards are missing or damaged; {}", directory.string(), errors.size(), count,
                  listed(errors, 3, "; "));
}

}  // namespace convoy::data
