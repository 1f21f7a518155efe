#include "tests/fuzz/fuzz_target.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "convoy/apps/flags/config_file.h"
#include "convoy/comm/cluster/control/rank_status.h"
#include "convoy/comm/cluster/net/handshake.h"
#include "convoy/comm/cluster/net/message.h"
#include "convoy/comm/cluster/store/store_frame.h"
#include "convoy/engine/io/file.h"
#include "convoy/engine/io/manifest.h"
#include "convoy/engine/io/safetensors.h"
#include "convoy/kernels/base/check.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {
namespace {

using Json = nlohmann::json;

void parse_safetensors(const std::string& bytes) {
  const int file = memfd_create("fuzz", MFD_CLOEXEC);
  [[maybe_unused]] const ssize_t written = write(file, bytes.data(), bytes.size());
  try {
    io::read_safetensors(fmt::format("/proc/self/fd/{}", file), Device::cpu());
  } catch (const CheckpointError&) {
  }
  close(file);
}

std::vector<std::string> valid_safetensors() {
  const Tensor matrix = Tensor::zeros({2, 3}, DType::f32, Device::cpu());
  const Tensor scalar = Tensor::zeros({}, DType::bf16, Device::cpu());
  return {io::encode_safetensors({}), io::encode_safetensors({{"weight", matrix}}),
          io::encode_safetensors({{"a", scalar}, {"b", matrix}}, {{"format", "pt"}})};
}

/// Reads the bytes as the manifest of a checkpoint: as they are, and with the checksum that they should have. The
/// files of the checkpoint are empty.
void parse_manifest(const std::string& bytes) {
  static const TempDirectory checkpoint{TempDirectory::in_memory()};
  const auto read = [&](const std::string& text) {
    std::ofstream(checkpoint.path() / io::kManifestFile, std::ios::binary | std::ios::trunc) << text;
    try {
      io::read_manifest(checkpoint.path());
    } catch (const CheckpointError&) {
    }
  };
  for (const std::string& name : {std::string(io::kModelFile), std::string(io::kOptimizerFile),
                                  io::shard_file(0, 2), io::shard_file(1, 2)})
    std::ofstream(checkpoint.path() / name);
  read(bytes);
  Json json = Json::parse(bytes, nullptr, false);
  if (!json.is_object()) return;
  json.erase("checksum");
  const auto dump = [&] { return json.dump(2, ' ', false, Json::error_handler_t::replace); };
  json["checksum"] = io::hash_bytes(dump());
  read(dump());
}

std::vector<std::string> valid_manifests() {
  const TempDirectory directory{TempDirectory::in_memory()};
  const std::string hash_of_nothing = io::hash_bytes("");
  const io::FileRecord nothing{.bytes = 0, .xxhash64 = hash_of_nothing};
  const std::string model(io::kModelFile);
  const std::map<std::string, io::FileRecord> files = {{model, nothing},
                                                       {std::string(io::kOptimizerFile), nothing}};
  const std::map<std::string, io::FileRecord> shards = {
      {model, nothing}, {io::shard_file(0, 2), nothing}, {io::shard_file(1, 2), nothing}};
  std::vector<std::string> texts;
  for (const io::Manifest& manifest :
       {io::Manifest{.files = files}, io::Manifest{.step = 3, .optimizer = "adam", .files = shards},
        io::Manifest{.step = 12,
        .epoch = 1,
        .samples = 384,
        .model = "lenet",
        .metrics = {{"test_accuracy", 0.5}, {"test_loss", std::nan("")}},
        .extra = {{"classes", "cat\ndog"}},
        .optimizer = "sgd",
        .files = files}}) {
    io::write_manifest(directory.path(), manifest);
    texts.push_back(contents_of(directory.path() / io::kManifestFile));
  }
  return texts;
}

void parse_configuration(const std::string& bytes) {
  try {
    for (const ConfigEntry& entry : parse_config(bytes, "fuzz")) quote_for_config(entry.value);
  } catch (const UsageError&) {
  }
}

std::vector<std::string> valid_configurations() {
  return {"", "model = \"resnet18\"\nepochs = 3  # short\n\nlr = 0.1\nsync-bn = true\n", "out = 'a\\b'\n",
          "name = \"\\u00e9\\n\\\"\"\r\n"};
}

/// As the server of a store and its clients do: frame by frame.
void parse_store_frames(const std::string& bytes) {
  for (const std::size_t limit : {std::size_t{256}, dist::StoreFrame::kMaxValueBytes}) {
    std::string left = bytes;
    try {
      while (const std::optional<dist::StoreFrame> frame = dist::take_frame(left, limit)) {
        std::string again = frame->bytes();
        const std::optional<dist::StoreFrame> same = dist::take_frame(again);
        check(same && same->key == frame->key && same->value == frame->value && again.empty(),
              "the frame has changed");
      }
    } catch (const DataError&) {
    }
  }
}

std::vector<std::string> valid_store_frames() {
  using Kind = dist::StoreFrame::Kind;
  const std::string hello = dist::StoreFrame{Kind::hello, "job", "1 2 token"}.bytes();
  return {hello, hello + dist::StoreFrame{Kind::set, "rank/1", std::string("a\0b", 3)}.bytes(),
          dist::StoreFrame{Kind::get, "rank/0", "250"}.bytes()};
}

/// Both sides of a handshake, and the states of ranks that agents send to each other.
void parse_control_messages(const std::string& bytes) {
  std::string as_acceptor = bytes, as_connector = bytes, out;
  auto acceptor = dist::Handshake::accept("secret", [](const std::string& claim) {
    return claim.starts_with("control") ? std::string() : "not " + claim;
  });
  auto connector = dist::Handshake::connect("secret", "control 1 0");
  for (const dist::Handshake::State state :
       {acceptor.advance(as_acceptor, out), connector.advance(as_connector, out)})
    check(state != dist::Handshake::State::done, "accepted without the secret");
  std::string left = bytes;
  try {
    while (const std::optional<std::string> text = dist::take_message(left, std::size_t{1} << 20))
      for (const Json& status : Json::parse(*text)) dist::describe(status.get<dist::RankStatus>());
  } catch (const DataError&) {
  } catch (const Json::exception&) {
  }
}

std::vector<std::string> valid_control_messages() {
  const auto message = [](const std::string& text) {
    std::string bytes;
    dist::append_message(bytes, text);
    return bytes;
  };
  dist::RankStatus rank{.rank = 1, .host = "b", .process = 7, .phase = dist::Phase::data, .step = 17};
  rank.collectives.push_back(
      {.communicator = "gradients", .number = 3, .text = "all-reduce 3", .seconds = 1.5});
  rank.progress.push_back({.communicator = "gradients", .launched = 4, .completed = 3});
  return {message(Json::array({rank}).dump()), message("convoy-1 0123456789abcdef control 1 0"),
          message("answer 0123456789abcdef 00ff"), message("refused because") + message("[]")};
}

constexpr FuzzTarget kTargets[] = {
    {"safetensors", parse_safetensors, valid_safetensors},
    {"manifest", parse_manifest, valid_manifests},
    {"configuration", parse_configuration, valid_configurations},
    {"store_frames", parse_store_frames, valid_store_frames},
    {"control_messages", parse_control_messages, valid_control_messages},
};

}  // namespace

std::span<const FuzzTarget> fuzz_targets() { return kTargets; }

}  // namespace convoy::testing
