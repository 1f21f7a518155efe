// convoy-shard: makes shards from a directory of images, and verifies shards.
#include <unistd.h>

#include "convoy/apps/common/text.h"
#include "convoy/apps/flags/command_line.h"
#include "convoy/apps/flags/run_main.h"
#include "convoy/apps/programs/programs.h"
#include "convoy/datasets/shards/shard_writer.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/printable.h"

namespace convoy {
namespace {

int run_shard(const std::string& name, int argc, char** argv) {
  std::string images, out, verified;
  std::int64_t shard_mib = 512, seed = 1, workers = 2;
  data::ShardOptions options;
  CommandLine line(name,
                   "Makes shards (tar files of images with an index) for convoy-train --dataset shards.");
  line.group("Data");
  line.add("data", &images, "Directory of images, as for --dataset folder", {.value = "DIR"});
  line.add("out", &out, "Directory for the shards; an interrupted call is continued", {.value = "DIR"});
  line.add("verify", &verified,
           "Directory of shards to compare with their index, in place of --data and --out", {.value = "DIR"});
  line.group("Shards");
  line.add("shard-size", &shard_mib, "Size of a shard, about (MiB)",
           {.value = "MIB", .minimum = 1, .maximum = 1 << 20});
  line.add("seed", &seed,
           "Seed of the order of the images, and of the test images of a directory without train/ and test/",
           {.value = "N", .minimum = 0});
  line.add("test-fraction", &options.read.test_fraction,
           "Fraction of each class that becomes test images, for a directory without train/ and test/",
           {.value = "FRACTION", .above = 0, .below = 1});
  line.add("skip-corrupt", &options.read.skip_corrupt,
           "Warning instead of an error for images that cannot be decoded");
  line.add("workers", &workers, "Threads", {.value = "N", .minimum = 1, .maximum = 256});
  if (!line.parse(argc, argv)) return 0;
  if (!verified.empty()) {
    for (const char* flag : {"data", "out", "shard-size", "seed", "test-fraction", "skip-corrupt"})
      check(!line.given(flag), "--verify: found --{}, expected no other flag but --workers", flag);
    const std::int64_t count = data::verify_shards(verified, static_cast<int>(workers));
    print_table({{"verified", counted(count, "shard")}});
    return 0;
  }
  check(!images.empty() && !out.empty(), "found no --{}, expected --data and --out, or --verify",
        images.empty() ? "data" : "out");
  const bool draws = isatty(STDERR_FILENO) != 0;
  options.shard_bytes = shard_mib << 20;
  options.read.seed = static_cast<std::uint64_t>(seed);
  options.read.workers = static_cast<int>(workers);
  options.read.waiting = [&](std::int64_t holder) {
    fmt::print(stderr, "waiting for process {}, which is writing shards into {}\n", holder, out);
  };
  if (draws)
    options.progress = [](const std::string& shard, std::int64_t done, std::int64_t count) {
      fmt::print(stderr, "\r{}: {} of {}\x1b[K", shard, done, count);
    };
  const data::ShardReport report = data::write_shards(images, out, options);
  if (draws) fmt::print(stderr, "\r\x1b[K");
  for (const std::string& warning : report.warnings)
    fmt::print(stderr, "{}: warning: {}\n", name, without_control_characters(warning));
  print_table({{"images", fmt::format("{}", report.samples)},
               {"shards", fmt::format("{} in {}, {} of an earlier call", report.shards, out, report.kept)},
               {"verified", counted(report.shards, "shard")}});
  return 0;
}

}  // namespace

int run_shard_program(const std::string& name, int argc, char** argv) {
  return run_main(name.c_str(), [&] { return run_shard(name, argc, argv); });
}

}  // namespace convoy
