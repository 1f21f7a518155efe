#include "convoy/datasets/cache/image_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>
#include <utility>

#include "convoy/datasets/files.h"
#include "convoy/engine/io/safetensors.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_integer.h"
#include "convoy/kernels/base/json_text.h"

namespace convoy::data {

CONVOY_DEFINE_JSON(DecodedImages, errors, resized, chosen_size)

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kFormat = "convoy image cache 1";
constexpr std::size_t kHeaderBytes = 4096;  // the images begin at a page

std::string_view bytes_of(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.view().data), tensor.bytes()};
}

/// Returns the checksum of all that a cache stores.
std::string hash_of(const Tensor& images, const Tensor& about) {
  const std::string shape = images.shape().text();
  const std::array<std::string_view, 3> pieces = {shape, bytes_of(about), bytes_of(images)};
  return io::hash_bytes(pieces);
}

}  // namespace

std::int64_t drop_failed(const View& images, const std::map<std::int64_t, std::string>& errors) {
  auto* const rows = images.as<std::uint8_t>();
  const std::int64_t count = images.shape[0];
  if (errors.empty() || count == 0) return count;
  const std::int64_t row_bytes = images.numel() / count;
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < count; ++i)
    if (!errors.contains(i))
      std::memmove(rows + kept++ * row_bytes, rows + i * row_bytes, static_cast<std::size_t>(row_bytes));
  return kept;
}

ImageCache::ImageCache(fs::path path, std::string key, HostRanks host,
                       std::function<void(std::int64_t holder)> waiting)
    : path_(std::move(path)), key_(std::move(key)), host_(std::move(host)), waiting_(std::move(waiting)) {}

ImageCache::~ImageCache() {
  if (host_.rank == 0 && !temporary_.empty()) ::unlink(temporary_.c_str());
}

std::optional<DecodedImages> ImageCache::read(bool verifies) {
  problem_.clear();
  std::error_code ignored;
  if (!fs::exists(path_, ignored)) return std::nullopt;
  try {
    const io::SafetensorsReader reader(path_);
    std::map<std::string, std::string> metadata = reader.metadata();
    const std::vector<io::NamedTensor>& tensors = reader.tensors();
    if (metadata["format"] != kFormat || tensors.size() != 2 || tensors[0].tensor.dtype() != DType::u8 ||
        tensors[0].tensor.shape().rank() != 4)
      fail<CheckpointError>("{}: not an image cache of this version", path_.string());
    if (metadata["key"] != key_)
      fail<CheckpointError>("{}: made from other files, or by another decoder", path_.string());
    const Tensor images = reader.map(0), about = reader.read(1);
    const std::string& expected = metadata["hash"];
    if (const std::string hash = verifies ? hash_of(images, about) : expected; hash != expected)
      fail<CheckpointError>("{}: damaged: hash {}, expected {}", path_.string(), hash, expected);
    auto decoded = Json::parse(bytes_of(about)).get<DecodedImages>();
    decoded.images = images;
    return decoded;
  } catch (const std::exception& error) {  // of the file, or of its JSON text
    if (!verifies && dynamic_cast<const StorageError*>(&error) != nullptr) throw;  // else it is made again
    problem_ = error.what();
    return std::nullopt;
  }
}

std::optional<DecodedImages> ImageCache::open() {
  std::optional<DecodedImages> found;
  if (host_.rank == 0 && !(found = read(true))) {
    std::error_code error;
    fs::create_directories(path_.parent_path(), error);
    if (error) fail<OutputError>("{}: cannot be created: {}", path_.parent_path().string(), error.message());
    lock_.emplace(path_.string() + ".lock", waiting_);
    found = read(true);  // another process may have written it in the meantime
    if (found) lock_.reset();
  }
  const std::vector<std::string> all = host_.all_gather(path_.string() + key_ + (found ? "+" : "-"));
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank].compare(0, all[rank].size() - 1, all[0], 0, all[0].size() - 1) != 0)
      fail<DataError>("{}: local rank {} found other image files than local rank 0, expected the same",
                      path_.string(), rank);
  const bool exists = all[0].back() == '+';
  if (exists && host_.rank != 0 && !(found = read(false))) throw DataError(problem_);
  return found;
}

std::uint8_t* ImageCache::create(const Shape& shape) {
  const auto bytes = kHeaderBytes + static_cast<std::size_t>(shape.numel());
  memory_.reset();
  if (host_.rank == 0) {
    if (temporary_.empty())
      temporary_ = path_.string() +
                   (lock_->is_locked() ? ".part" : fmt::format(".part-{:08x}", std::random_device()()));
    const io::FileDescriptor file(temporary_, O_RDWR | O_CREAT | O_TRUNC);
    // A full disk must be found here: a write to mapped memory without a block kills the process.
    if (const int error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes)); error != 0)
      fail<OutputError>(
          "{}: {:.1f} GiB for {} images cannot be reserved: {}; free some space, or change the "
          "directory of the cache",
          temporary_, static_cast<double>(bytes) * 0x1p-30, shape.text(), std::strerror(error));
  }
  temporary_ = host_.all_gather(temporary_).front();
  const io::FileDescriptor file(temporary_, O_RDWR);
  memory_ = io::map_file(file.get(), 0, bytes, io::MapAccess::write, temporary_);
  shape_ = shape;
  host_.all_gather("");  // rank 0 removes the file if it fails, so all must have mapped it before
  return static_cast<std::uint8_t*>(memory_.get()) + kHeaderBytes;
}

std::optional<DecodedImages> ImageCache::gather(const std::optional<DecodedImages>& local) {
  DecodedImages sum;
  bool is_complete = true;
  for (const std::string& text : host_.all_gather(local ? json_text(Json(*local)) : "")) {
    is_complete = is_complete && !text.empty();
    if (!is_complete) continue;
    auto part = Json::parse(text).get<DecodedImages>();
    sum.errors.merge(part.errors);
    sum.resized += part.resized;
  }
  return is_complete ? std::optional(sum) : std::nullopt;
}

DecodedImages ImageCache::finish(const DecodedImages& decoded) {
  if (host_.rank == 0) {
    const std::shared_ptr<void> first(memory_, static_cast<std::byte*>(memory_.get()) + kHeaderBytes);
    const Tensor all = Tensor::from_memory(first, shape_, DType::u8, Device::cpu());
    const Tensor images = all.rows(0, drop_failed(all.view(), decoded.errors));
    const std::string text = json_text(Json(decoded));
    const Tensor about = Tensor::from(std::vector<std::uint8_t>(text.begin(), text.end()),
                                      {static_cast<std::int64_t>(text.size())}, Device::cpu());
    const std::string header =
        io::lay_out_safetensors({{"images", images}, {"about", about}},
                                {{"format", kFormat}, {"key", key_}, {"hash", hash_of(images, about)}},
                                kHeaderBytes)
            .header;
    const io::FileDescriptor file(temporary_, O_RDWR);
    const std::size_t end = kHeaderBytes + images.bytes();
    write_at(file, header, 0, temporary_);
    write_at(file, text, end, temporary_);
    if (::ftruncate(file.get(), static_cast<off_t>(end + text.size())) != 0)
      fail<OutputError>("{}: cannot be written: {}", temporary_, std::strerror(errno));
    // Not synced: after a power failure, the checksum finds what is missing.
    io::rename_path(temporary_, path_);
    temporary_.clear();
    lock_.reset();
  }
  memory_.reset();
  host_.all_gather("");
  std::optional<DecodedImages> found = read(false);
  if (!found) throw DataError(problem_);
  return *std::move(found);
}

}  // namespace convoy::data
