// convoy-train: from flags to a trained network.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/input_spec.h"
#include "apps/job.h"
#include "apps/local_ranks.h"
#include "apps/plan_cache.h"
#include "apps/reporter.h"
#include "apps/run_folder.h"
#include "apps/run_main.h"
#include "apps/samples.h"
#include "apps/signals.h"
#include "apps/trace.h"
#include "apps/version.h"
#include "comm/broadcast.h"
#include "datasets/sampler.h"
#include "kernels/runtime/check.h"
#include "models/models.h"

namespace convoy {
namespace {

void write_start_files(const Setup& setup, const RunFolder& folder) {
  write_file_atomically(folder.path("config.toml"), setup.config);
  if (folder.checkpoint()) return;
  write_samples(folder.path("samples.png"), setup.data.train,
                {.seed = static_cast<std::uint64_t>(setup.options.seed), .transform = setup.transform});
}

/// The flags that all ranks must have alike. The others say where this rank computes and finds its data.
std::vector<Claim> claims_of(const TrainOptions& options, const CommandLine& line) {
  constexpr const char* kOwn[] = {"device", "threads", "workers", "data", "download", "plan-cache", "out"};
  std::vector<Claim> claims;
  for (const auto& [name, value] : flags_by_name(line.config()))
    if (std::find(std::begin(kOwn), std::end(kOwn), name) == std::end(kOwn))
      claims.push_back({"--" + name, value});
  claims.push_back({"--dry-run", options.dry_run ? "true" : "false"});
  return claims;
}

std::vector<Claim> claims_of(const Setup& setup) {
  std::vector<Claim> claims = claims_of(setup.model.root());
  for (const auto& [split, set] :
       {std::pair("training", &setup.data.train), std::pair("test", &setup.data.test)})
    claims.push_back(
        {fmt::format("{} data", split), fmt::format("{} images, hash {}", set->size(), hash_of(*set))});
  return claims;
}

/// Where rank 0 goes on from, on all ranks: what a training is to do with its parameters. On the others
/// nothing is read.
enum class Beginning { fresh, resumed, finished };

Beginning begin(Trainer& trainer, const Setup& setup, const RunFolder* folder, Job& job,
                std::vector<std::string>& warnings) {
  std::string found = "fresh";
  if (folder != nullptr && folder->checkpoint()) {
    const auto add = [&](const std::vector<std::string>& more) {
      warnings.insert(warnings.end(), more.begin(), more.end());
    };
    const std::filesystem::path& checkpoint = *folder->checkpoint();
    add(compare_flags(stored_flags(read_manifest(checkpoint)), flags_by_name(setup.config), checkpoint));
    if (auto warning = trainer.resume(checkpoint)) warnings.push_back(std::move(*warning));
    found = trainer.finished() && read_result(folder->path("log.jsonl")) ? "finished" : "resumed";
  }
  if (Communicator* comm = job.control()) found = broadcast_text(*comm, found);
  if (found == "finished") return Beginning::finished;
  trainer.share_state();
  return found == "fresh" ? Beginning::fresh : Beginning::resumed;
}

/// Where a rank's batch norms see few samples at a time.
std::optional<std::string> batch_norm_warning(const Setup& setup, int world) {
  constexpr std::int64_t kFew = 16;
  const TrainOptions& options = setup.options;
  if (world == 1 || options.sync_bn || !models::has_batch_norm(options.model)) return std::nullopt;
  const std::int64_t batch = std::min(*options.batch_size, setup.data.train.size());
  const BatchPlan plan{.samples = batch,
                       .global_batch = batch,
                       .micro_batch = options.micro_batch_size,
                       .rank = world - 1,
                       .world = world};
  const std::int64_t samples = plan.positions(0, plan.micro_batches(0) - 1).size();
  if (samples >= kFew) return std::nullopt;
  return fmt::format(
      "batch norm takes its statistics from {} samples at a time, a rank's part of --batch-size {}; "
      "--sync-bn "
      "takes them from all ranks'",
      samples, *options.batch_size);
}

/// What rank 0 alone does of a training: files and what a person sees.
class FirstRank {
 public:
  FirstRank(const Setup& setup, const RunFolder& folder, const Trainer& trainer, Beginning beginning,
            const Job& job)
      : log_(folder.path("log.jsonl"),
             beginning == Beginning::resumed ? std::optional(trainer.state().step) : std::nullopt),
        progress_(trainer.total_steps(), trainer.steps_per_epoch(), !job.by_mpirun()),
        reporter_(log_, progress_) {
    write_start_files(setup, folder);
  }

  Reporter& reporter() { return reporter_; }
  Progress& progress() { return progress_; }

 private:
  RunLog log_;
  Progress progress_;
  Reporter reporter_;
};

/// The training itself: 0, or 128 + the signal that stopped it. folder: rank 0's, null on the others.
int train(const Setup& setup, const RunFolder* folder, Job& job) {
  const TrainOptions& options = setup.options;
  const bool first = job.is_first();
  CheckpointFolder checkpoints(std::filesystem::path(*options.out) / "checkpoints");
  checkpoints.set_keep_last(static_cast<int>(options.keep_last));
  checkpoints.set_keep_best(options.keep_best);
  Profiler profiler;
  profiler.enable(!options.trace.empty());
  TrainerParts parts{.model = setup.model,
                     .device = setup.device,
                     .data = setup.data,
                     .transform = setup.transform,
                     .checkpoints = checkpoints,
                     .extra = {{"config", setup.config}, {"version", kVersion}},
                     .profiler = &profiler,
                     .stop_signal = StopSignals::received,
                     .gradients = job.gradients(),
                     .control = job.control(),
                     .statistics = options.sync_bn ? job.statistics() : nullptr};
  write_input_spec(
      {setup.data.name, setup.data.classes, setup.data.image_shape(), setup.transform.evaluation()},
      parts.extra);
  Trainer trainer(options, std::move(parts));

  PlanCache plans(options.compute.deterministic ? "none" : options.compute.plan_cache, setup.device);
  std::vector<std::string> warnings = setup.warnings;
  if (auto warning = plans.load()) warnings.push_back(std::move(*warning));
  if (auto warning = batch_norm_warning(setup, job.info().world)) warnings.push_back(std::move(*warning));
  if (auto warning = warning_of_cores(job, setup.device)) warnings.push_back(std::move(*warning));

  if (first) print_table(describe(setup, trainer.total_steps(), job));
  if (options.dry_run) {
    const double loss = trainer.try_batch();
    if (first) fmt::print("dry run: one batch gives a loss of {:.4f}; nothing was written\n", loss);
    return 0;
  }
  if (folder != nullptr)
    warnings.insert(warnings.end(), folder->warnings().begin(), folder->warnings().end());
  const Beginning beginning = begin(trainer, setup, folder, job, warnings);
  if (beginning == Beginning::finished) {
    if (!first) return 0;
    fmt::print("this training is finished, there is nothing left to do\n");
    print_result(*read_result(folder->path("log.jsonl")), folder->out().string());
    return 0;
  }
  if (first && beginning == Beginning::resumed)
    fmt::print("going on from {}\n", folder->checkpoint()->string());

  // Now, so that a path that cannot be written is found before the training.
  write_trace(profiler, job.control(), options.trace);
  start_trace(profiler, job.control());
  std::optional<FirstRank> shown;
  if (first) {
    folder->create();
    Reporter& reporter = shown.emplace(setup, *folder, trainer, beginning, job).reporter();
    reporter.start(setup, trainer, job);
    for (const std::string& warning : warnings) reporter.warn(warning, trainer.state().step);
  }

  const StopSignals signals;
  int signal = 0;
  try {
    signal = trainer.run(first ? shown->reporter().callbacks() : TrainerCallbacks());
  } catch (const std::exception& error) {
    job.tell(error.what());  // before the trainer goes, in the middle of an update perhaps
    throw;
  }
  write_trace(profiler, job.control(), options.trace);
  if (!first) return signal == 0 ? 0 : 128 + signal;
  if (const auto warning = plans.store()) shown->reporter().warn(*warning, trainer.state().step);
  if (signal != 0) {
    shown->progress().line(
        fmt::format("stopped by signal {} after step {}, which is saved; --resume auto goes on from there",
                    signal, trainer.state().step));
    return 128 + signal;
  }
  const nlohmann::ordered_json result = result_of(setup, trainer, job);
  shown->reporter().result(result);
  print_result(result, folder->out().string());
  return 0;
}

/// One rank's part of a training, from the moment that it knows the others.
int run_rank(TrainOptions& options, const CommandLine& line, Job& job) {
  job.check_same(claims_of(options, line));
  if (options.summary) {
    if (job.is_first()) fmt::print("{}", summarize(options));
    return 0;
  }
  const Precision precision = parse_precision(options.precision);
  Device device = open_device(options.compute, precision, job.info(), job.ranks_on_my_cores());
  check_precision(precision, device);
  check_plan_cache(options.compute, device);
  job.connect(device);
  if (options.print_config) {
    resolve_recipe(options);
    if (job.is_first()) fmt::print("{}", line.config());
    return 0;
  }
  options.data.quiet = !job.is_first();
  DataLocation location;
  job.first_before_others([&] { location = locate_data(options.data); });
  options.data.dataset = location.dataset;
  resolve_recipe(options);
  std::optional<RunFolder> folder;
  if (job.is_first()) folder.emplace(options);
  const Setup setup = set_up(options, line, std::move(device), location, job);
  job.check_same(claims_of(setup));
  return train(setup, folder ? &*folder : nullptr, job);
}

int run(int argc, char** argv) {
  TrainOptions options;
  CommandLine line = train_command_line(options);
  std::optional<LocalRanks> ranks;
  in_turn([&] {
    if (!line.parse(argc, argv)) return;
    if (!options.config.empty()) line.apply_config(options.config);
    // On a copy, before any download: the data set may still turn into another, with another recipe.
    TrainOptions as_asked = options;
    resolve_recipe(as_asked);
    check_consistency(as_asked, line);
    parse_precision(options.precision);
    ranks.emplace(options.job, options.compute);
  });
  if (!ranks) return 0;
  return ranks->run("convoy-train", [&](Job& job) {
    TrainOptions own = options;  // a rank's, which its device and data complete
    const CommandLine flags = train_command_line(own);
    return run_rank(own, flags, job);
  });
}

}  // namespace
}  // namespace convoy

int main(int argc, char** argv) {
  return convoy::run_main("convoy-train", [&] { return convoy::run(argc, argv); });
}
