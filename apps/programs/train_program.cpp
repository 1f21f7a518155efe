// convoy-train: the program that trains a network.
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "convoy/apps/common/counted.h"
#include "convoy/apps/common/cpu_level/cpu_level.h"
#include "convoy/apps/common/input_spec.h"
#include "convoy/apps/common/plan_cache.h"
#include "convoy/apps/common/run_main.h"
#include "convoy/apps/common/signals.h"
#include "convoy/apps/programs/library_loading.h"
#include "convoy/apps/programs/programs.h"
#include "convoy/apps/programs/repetitions.h"
#include "convoy/apps/ranks/cluster.h"
#include "convoy/apps/ranks/job.h"
#include "convoy/apps/ranks/local_ranks.h"
#include "convoy/apps/train/deepspeed_config.h"
#include "convoy/apps/train/report/reporter.h"
#include "convoy/apps/train/report/run_directory.h"
#include "convoy/apps/train/report/samples.h"
#include "convoy/apps/train/trace.h"
#include "convoy/comm/core/corruption_error.h"
#include "convoy/comm/parallel/broadcast.h"
#include "convoy/datasets/loader/sampler.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/printable.h"
#include "convoy/kernels/runtime/library_versions.h"
#include "convoy/models/models.h"
#include "convoy/version.h"

namespace convoy {
namespace {

void write_start_files(const Setup& setup, const RunDirectory& directory) {
  io::write_file_atomically(directory.path("config.toml"), setup.config);
  if (directory.checkpoint()) return;
  write_samples(directory.path("samples.png"), setup.data.train,
                {.seed = static_cast<std::uint64_t>(setup.options.seed), .transform = setup.transform});
}

/// Returns the flags that must be the same on all ranks. Other flags describe this rank's device and file
/// paths.
std::vector<dist::ConsistencyEntry> consistency_entries_of(const TrainOptions& options,
                                                           const CommandLine& line) {
  constexpr const char* kMayDiffer[] = {"device",   "threads",    "workers", "data",
                                        "download", "plan-cache", "out"};
  std::vector<dist::ConsistencyEntry> entries;
  for (const auto& [name, value] : flags_by_name(line.config()))
    if (std::find(std::begin(kMayDiffer), std::end(kMayDiffer), name) == std::end(kMayDiffer))
      entries.push_back({"--" + name, value});
  entries.push_back({"--dry-run", options.dry_run ? "true" : "false"});
  entries.push_back({"--repeat", std::to_string(options.repeat)});
  return entries;
}

std::vector<dist::ConsistencyEntry> consistency_entries_of(const Setup& setup) {
  std::vector<dist::ConsistencyEntry> entries = dist::consistency_entries_of(setup.model.root());
  for (const auto& [split, set] :
       {std::pair("training", &setup.data.train), std::pair("test", &setup.data.test),
        std::pair("validation", &setup.data.validation)})
    if (set->size() > 0)
      entries.push_back(
          {fmt::format("{} data", split), fmt::format("{} images, hash {}", set->size(), hash_of(*set))});
  return entries;
}

/// Returns the flags of the training that wrote `checkpoint`, in the form in which this one stores them.
std::map<std::string, std::string> stored_flags_for(const Setup& setup, const io::Checkpoint& checkpoint) {
  std::map<std::string, std::string> flags = stored_flags(checkpoint.manifest);
  // An earlier version stored 0 for images of different sizes, which it resized.
  const bool is_resized = setup.data.chosen_size > 0 && flags["image-size"] == "0";
  if (is_resized && read_input_spec(checkpoint.manifest, checkpoint.path).image == setup.data.image_shape())
    flags["image-size"] = std::to_string(setup.data.chosen_size);
  return flags;
}

/// Returns whether rank 0 has a checkpoint to resume from. If so, replaces --stem auto and --activation auto by the
/// values of the checkpoint. `directory` is null on other ranks. Collective.
bool take_from_checkpoint(TrainOptions& options, const RunDirectory* directory, Job& job) {
  std::string stem, activation;  // empty without a checkpoint
  if (directory != nullptr && directory->checkpoint()) {
    const std::map<std::string, std::string> stored = stored_flags(directory->checkpoint()->manifest);
    const auto value = [&](const char* flag) {
      const auto found = stored.find(flag);
      return found == stored.end() ? "auto" : found->second;
    };
    stem = value("stem");
    activation = value("activation");
  }
  if (dist::Communicator* comm = job.control()) {
    stem = dist::broadcast_text(*comm, stem);
    activation = dist::broadcast_text(*comm, activation);
  }
  if (stem.empty()) return false;
  const models::Entry& entry = models::find(options.model);
  if (options.stem == "auto" && entry.has_stems) options.stem = stem;
  if (options.activation == "auto" && entry.has_activations) options.activation = activation;
  return true;
}

/// Returns a warning if the checkpoint was trained by CPU kernels for other processors than those of this process.
std::optional<std::string> cpu_level_warning(const Setup& setup, const io::Checkpoint& checkpoint) {
  const auto trained = checkpoint.manifest.extra.find("cpu_level");
  if (setup.device.kind() != DeviceKind::cpu || trained == checkpoint.manifest.extra.end() ||
      trained->second == cpu_level())
    return std::nullopt;
  return fmt::format(
      "{}: trained with CPU kernels for {}, found kernels for {}, which round differently from this step",
      checkpoint.path.string(), trained->second, cpu_level());
}

enum class StartMode { new_run, resumed, complete };

/// Loads the checkpoint to resume from on rank 0, or the training that it has `kept`, and broadcasts the state
/// to all ranks. `directory` is null on other ranks. Appends to `warnings`. Collective.
StartMode begin(Trainer& trainer, const Setup& setup, const RunDirectory* directory, Job& job,
                const std::optional<KeptTraining>& kept, std::vector<std::string>& warnings) {
  std::string mode = "new_run";
  if (kept) {
    trainer.adopt(*kept);
    mode = "resumed";
  } else if (directory != nullptr && directory->checkpoint()) {
    const auto add = [&](const std::vector<std::string>& more) {
      warnings.insert(warnings.end(), more.begin(), more.end());
    };
    const io::Checkpoint& checkpoint = *directory->checkpoint();
    add(compare_flags(stored_flags_for(setup, checkpoint), flags_by_name(setup.config), checkpoint.path));
    if (auto warning = trainer.resume(checkpoint)) warnings.push_back(std::move(*warning));
    if (auto warning = cpu_level_warning(setup, checkpoint)) warnings.push_back(std::move(*warning));
    mode = trainer.finished() && read_result(directory->path("log.jsonl")) ? "complete" : "resumed";
  }
  if (dist::Communicator* comm = job.control()) mode = dist::broadcast_text(*comm, mode);
  if (mode == "complete") return StartMode::complete;
  trainer.broadcast_state();
  return mode == "resumed" ? StartMode::resumed : StartMode::new_run;
}

/// Returns this rank's warnings and, on rank 0, also those that only other ranks have. Collective.
std::vector<std::string> with_other_ranks(std::vector<std::string> warnings, Job& job) {
  using Json = nlohmann::json;
  if (job.control() == nullptr) return warnings;
  const std::vector<std::string> all =
      job.control()->gather_object(Json(warnings).dump(-1, ' ', false, Json::error_handler_t::replace));
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    for (const std::string& warning : Json::parse(all[rank]).get<std::vector<std::string>>())
      if (std::find(warnings.begin(), warnings.end(), warning) == warnings.end())
        warnings.push_back(fmt::format("rank {}: {}", rank, warning));
  return warnings;
}

/// Returns a warning if the batch norms of a rank see few samples at a time.
std::optional<std::string> batch_norm_warning(const Setup& setup, int world_size) {
  constexpr std::int64_t kMinSamples = 16;
  const TrainOptions& options = setup.options;
  if (world_size == 1 || options.sync_bn || !models::find(options.model).has_batch_norm) return std::nullopt;
  const std::int64_t batch = std::min(*options.batch_size, setup.data.train.size());
  const data::BatchPlan plan{.samples = batch,
                             .global_batch = batch,
                             .micro_batch = options.micro_batch_size,
                             .rank = world_size - 1,
                             .world_size = world_size};
  const std::int64_t samples = plan.positions(0, plan.micro_batches(0) - 1).size();
  if (samples >= kMinSamples) return std::nullopt;
  return fmt::format(
      "each batch norm computes its statistics over {} samples, one rank's shard of --batch-size {}; "
      "--sync-bn uses the samples of all ranks",
      samples, *options.batch_size);
}

/// Returns a warning if a batch has more samples than the training set.
std::optional<std::string> batch_size_warning(const Setup& setup) {
  const std::int64_t images = setup.data.train.size();
  if (setup.options.overfit_batch || *setup.options.batch_size <= images) return std::nullopt;
  return fmt::format(
      "--batch-size {} is more than the {}, so each step is an epoch, which ends with an evaluation "
      "and a checkpoint; lower --batch-size",
      *setup.options.batch_size, counted(images, "training image"));
}

/// Runs the training. Returns 0, or 128 + the number of the signal that stopped it. `directory` is null on
/// ranks other than 0. `kept` is the training to continue, if there is one. If a peer fails and the training
/// can continue on the other ranks, stores it in `kept` and returns nullopt.
std::optional<int> train(const std::string& program, const Setup& setup, const RunDirectory* directory,
                         Job& job, const TrainerCallbacks& callbacks, std::optional<KeptTraining>& kept) {
  const TrainOptions& options = setup.options;
  const bool first = job.is_first();
  io::CheckpointDirectory checkpoints(std::filesystem::path(*options.out) / "checkpoints");
  checkpoints.set_keep_last(static_cast<int>(options.keep_last));
  checkpoints.set_keep_best(options.keep_best);
  Profiler profiler;
  profiler.enable(!options.trace.empty());
  TrainerParts parts{.model = setup.model,
                     .device = setup.device,
                     .data = setup.data,
                     .transform = setup.transform,
                     .checkpoints = checkpoints,
                     .extra = {{"config", setup.config}, {"version", kVersion}, {"cpu_level", cpu_level()}},
                     .profiler = &profiler,
                     .stop_signal = StopSignals::received,
                     .gradients = job.gradients(),
                     .control = job.control(),
                     .statistics = options.sync_bn ? job.statistics() : nullptr,
                     .plane = &job.control_plane(),
                     .may_regroup = job.can_regroup()};
  const bool may_regroup = parts.may_regroup;
  write_input_spec(
      {setup.data.name, setup.data.classes, setup.data.image_shape(), setup.transform.evaluation()},
      parts.extra);
  Trainer trainer(options, std::move(parts));

  PlanCache plans(options.compute.deterministic ? "none" : options.compute.plan_cache, setup.device);
  std::vector<std::string> warnings = setup.warnings;
  if (auto warning = plans.load()) warnings.push_back(std::move(*warning));
  if (auto warning = batch_size_warning(setup)) warnings.push_back(std::move(*warning));
  if (auto warning = batch_norm_warning(setup, job.info().world_size))
    warnings.push_back(std::move(*warning));
  if (auto warning = oversubscription_warning(job, setup.device)) warnings.push_back(std::move(*warning));

  if (first && !kept && !options.quiet) print_table(describe(setup, trainer.total_steps(), job));
  if (options.dry_run) {
    const double loss = trainer.try_batch();
    if (first) fmt::print("dry run: the loss of one batch is {:.4f}; nothing was written\n", loss);
    return 0;
  }
  if (directory != nullptr)
    warnings.insert(warnings.end(), directory->warnings().begin(), directory->warnings().end());
  const StartMode mode = begin(trainer, setup, directory, job, kept, warnings);
  warnings = with_other_ranks(std::move(warnings), job);
  if (mode == StartMode::complete) {
    if (!first) return 0;
    fmt::print("this training is complete, nothing to do\n");
    print_result(*read_result(directory->path("log.jsonl")), directory->out().string(), program);
    return 0;
  }
  if (first && !options.quiet && kept)
    fmt::print("continuing after step {} with {} {}\n", trainer.state().step, job.info().world_size,
               job.is_alone() ? "rank" : "ranks");
  else if (first && !options.quiet && mode == StartMode::resumed)
    fmt::print("resuming from {}\n", directory->checkpoint()->path.string());

  // Before the training, to fail early if the file cannot be written.
  write_trace(profiler, job.control(), options.trace);
  start_trace(profiler, job.control());
  std::optional<Reporter> reporter;
  if (first) {
    directory->create();
    const auto resume_step = mode == StartMode::resumed ? std::optional(trainer.state().step) : std::nullopt;
    reporter.emplace(directory->path("log.jsonl"), resume_step, setup, trainer, job);
    if (!kept) write_start_files(setup, *directory);
    reporter->start(setup, trainer, job);
    for (const std::string& warning : warnings) reporter->warn(warning, trainer.state().step);
  }

  if (first) {
    trainer.add(reporter->callbacks());
    trainer.add(callbacks);
  }
  job.control_plane().set_dump_directory(std::filesystem::path(*options.out) / "post-mortem");
  const StopSignals signals(/*announces=*/first);
  int signal = 0;
  std::optional<Evaluation> of_test, of_views;  // at the end, besides the evaluations of the training
  std::chrono::duration<double> views_time{};
  try {
    signal = trainer.run();
    if (signal == 0 && setup.data.validation.size() > 0) {
      of_test = trainer.evaluate_test(/*views=*/false);
      if (!of_test) signal = trainer.agree_on_stop();
    }
    if (signal == 0 && *options.tta) {
      const auto begin = std::chrono::steady_clock::now();
      of_views = trainer.evaluate_test(/*views=*/true);
      views_time = std::chrono::steady_clock::now() - begin;
      if (!of_views) signal = trainer.agree_on_stop();
    }
    job.control_plane().enter(dist::Phase::finish);
  } catch (const dist::CorruptionError&) {
    job.report_and_abort();  // it may be this rank's memory that changes bits, so the others continue without it
  } catch (const PeerError&) {
    if (!may_regroup || !trainer.can_continue()) job.report_and_abort();
    job.abandon_group();
    kept = trainer.abandon();
    return std::nullopt;
  } catch (const std::exception&) {
    job.report_and_abort();  // before the trainer is destroyed, possibly in the middle of a step
  }
  write_trace(profiler, job.control(), options.trace);
  if (!first) return signal == 0 ? 0 : 128 + signal;
  if (const auto warning = plans.store()) reporter->warn(*warning, trainer.state().step);
  if (signal != 0) {
    reporter->stopped(signal, trainer.state().step);
    return 128 + signal;
  }
  nlohmann::ordered_json result = result_of(setup, trainer, job);
  if (of_test) {
    result["test_accuracy"] = of_test->accuracy;
    result["test_loss"] = of_test->loss;
  }
  if (of_views) {
    result["tta_accuracy"] = of_views->accuracy;
    result["tta_loss"] = of_views->loss;
    result["tta_seconds"] = views_time.count();
  }
  reporter->result(result);
  print_result(result, directory->out().string(), program);
  return 0;
}

/// Runs one rank of a training on the data at `location`. `options` must be resolved, and the job connected.
int run_training(const std::string& program, TrainOptions& options, const CommandLine& line,
                 const DeviceContext& device, const DataLocation& location, Job& job,
                 const TrainerCallbacks& callbacks) {
  std::optional<RunDirectory> directory;
  job.control_plane().enter(dist::Phase::load);
  if (job.is_first()) directory.emplace(options);
  const bool resumes = take_from_checkpoint(options, directory ? &*directory : nullptr, job);
  std::optional<LibraryLoading> loading(std::in_place, device, parse_precision(options.precision));
  Setup setup = set_up(options, line, device, location, job, resumes);
  loading.reset();
  job.verify_consistency(consistency_entries_of(setup));
  if (directory && !directory->checkpoint()) initialize_from_data(setup);
  std::optional<KeptTraining> kept;
  while (true) {
    const RunDirectory* const own = directory ? &*directory : nullptr;
    if (const auto code = train(program, setup, own, job, callbacks, kept)) return *code;
    job.regroup(kept->points.front().state.step, setup.device);
    options.resume = "auto";
    directory.reset();
    if (job.is_first()) directory.emplace(options);
  }
}

/// Runs the trainings of --repeat one after the other. Returns 0, or the code of the training that a signal stopped.
int run_repetitions(const std::string& program, const TrainOptions& options, const DeviceContext& device,
                    const DataLocation& location, Job& job, const TrainerCallbacks& callbacks) {
  const std::vector<TrainOptions> repetitions = repetitions_of(options);
  if (job.is_first()) check_repetitions(options, repetitions);
  for (std::size_t i = 0; i < repetitions.size(); ++i) {
    TrainOptions own = repetitions[i];
    if (job.is_first() && !own.quiet)
      fmt::print("{}training {} of {}, --seed {}\n", i == 0 ? "" : "\n", i + 1, repetitions.size(), own.seed);
    const CommandLine line = train_command_line(own, program);
    if (const int code = run_training(program, own, line, device, location, job, callbacks)) return code;
  }
  if (job.is_first()) report_repetitions(options, repetitions);
  return 0;
}

/// Runs one rank of the program, after the rendezvous.
int run_rank(const std::string& program, TrainOptions& options, const CommandLine& line, Job& job,
             const TrainerCallbacks& callbacks) {
  // Rank 0 reads the checkpoint, so its --resume counts for ranks without the flag.
  if (dist::Communicator* comm = job.control()) {
    const std::string resume = dist::broadcast_text(*comm, options.resume);
    if (options.resume.empty()) options.resume = resume;
  }
  job.verify_consistency(consistency_entries_of(options, line));
  check(
      options.hardest == 1 || job.is_alone(),
      "--hardest {}: found {} ranks, expected 1, which compares the whole batch; train a small network alone, and give "
      "its run to --selection of this training",
      options.hardest, job.info().world_size);
  if (options.summary) {
    if (job.is_first()) fmt::print("{}", summarize(options));
    return 0;
  }
  const Precision precision = parse_precision(options.precision);
  const DeviceContext device = open_device(options.compute, precision, job.info(), job.ranks_on_my_cores());
  check_precision(precision, device);
  check_algorithm_flags(options.compute, device);
  job.connect(device);
  if (options.print_config) {
    resolve_recipe(options);
    if (job.is_first()) fmt::print("{}", line.config());
    return 0;
  }
  options.data.quiet = options.quiet || !job.is_first();
  DataLocation location;
  job.run_on_rank_zero_first([&] { location = locate_data(options.data); });
  options.data.dataset = location.dataset;
  resolve_recipe(options);
  if (options.repeat > 1) return run_repetitions(program, options, device, location, job, callbacks);
  return run_training(program, options, line, device, location, job, callbacks);
}

/// Sets the flags of --deepspeed-config. Prints on rank 0 what was taken, and what was not.
void take_deepspeed_config(const std::string& program, const TrainOptions& options, CommandLine& line) {
  const DeepSpeedReport report = apply_deepspeed_config(options, line);
  if (launched_rank().value_or(0) != 0) return;
  if (!options.quiet) fmt::print(stderr, "{}: {}\n", program, without_control_characters(report.taken));
  if (!report.ignored.empty())
    fmt::print(stderr, "{}: warning: {}\n", program, without_control_characters(report.ignored));
}

int run(const std::string& name, int argc, char** argv, const TrainerCallbacks& callbacks) {
  TrainOptions options;
  CommandLine line = train_command_line(options, name);
  if (!line.parse(argc, argv)) return 0;
  if (!options.config.empty()) line.apply_config(options.config);
  if (options.compute.cpu_level) use_cpu_level(*options.compute.cpu_level);
  if (!options.deepspeed_config.empty()) take_deepspeed_config(name, options, line);
  line.settle();
  if (options.resume.empty() && cluster().restarts_of_job() > 0) options.resume = "auto";
  take_from_selection(options);
  // Checks a copy, because --fallback-shapes may change the data set and its recipe later.
  TrainOptions requested = options;
  resolve_recipe(requested);
  check_consistency(requested, line);
  check_repeat(requested);
  parse_precision(options.precision);
  LocalRanks ranks(options.job, options.compute);
  return ranks.run(name.c_str(), [&](Job& job) {
    TrainOptions own = options;  // each rank resolves its device and data set in its own copy
    const CommandLine flags = train_command_line(own, name);
    return run_rank(name, own, flags, job, callbacks);
  });
}

}  // namespace

int run_train_program(const std::string& name, int argc, char** argv, const TrainerCallbacks& callbacks) {
  return run_main(name.c_str(), [&] { return run(name, argc, argv, callbacks); });
}

}  // namespace convoy
