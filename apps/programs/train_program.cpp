// convoy-train: the program that trains a network.
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "convoy/apps/common/output_queue.h"
#include "convoy/apps/common/plan_cache.h"
#include "convoy/apps/common/signals.h"
#include "convoy/apps/common/text.h"
#include "convoy/apps/data/input_spec.h"
#include "convoy/apps/flags/compute.h"
#include "convoy/apps/flags/config_file.h"
#include "convoy/apps/flags/flag_names.h"
#include "convoy/apps/flags/run_main.h"
#include "convoy/apps/programs/library_loading.h"
#include "convoy/apps/programs/programs.h"
#include "convoy/apps/programs/sweep.h"
#include "convoy/apps/ranks/cluster.h"
#include "convoy/apps/ranks/job.h"
#include "convoy/apps/ranks/local_ranks.h"
#include "convoy/apps/train/continuation/continuation.h"
#include "convoy/apps/train/options/class_weights.h"
#include "convoy/apps/train/rate_search.h"
#include "convoy/apps/train/report/evaluation_file.h"
#include "convoy/apps/train/report/reporter.h"
#include "convoy/apps/train/report/run_directory.h"
#include "convoy/apps/train/report/run_summary.h"
#include "convoy/apps/train/trace.h"
#include "convoy/apps/train/tuning/initial_parameters.h"
#include "convoy/comm/core/collective.h"
#include "convoy/comm/parallel/broadcast.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_text.h"
#include "convoy/kernels/base/printable.h"
#include "convoy/kernels/runtime/library_versions.h"
#include "convoy/models/models.h"
#include "convoy/version.h"

namespace convoy {
namespace {

/// Returns the flags that must be the same on all ranks. Other flags describe this rank's device and file
/// paths.
std::vector<dist::ConsistencyEntry> consistency_entries_of(const TrainOptions& options,
                                                           const CommandLine& line) {
  std::vector<dist::ConsistencyEntry> entries = consistency_entries_of(
      line, {"device", "threads", "workers", "data", "download", "plan-cache", "out", "shard-memory"});
  entries.push_back({"--dry-run", options.dry_run ? "true" : "false"});
  entries.push_back({"--repeat", std::to_string(options.repeat)});
  entries.push_back({"--sweep", options.sweep.value_or("")});
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

/// Returns "", or what prevents --zero-group host, for an error or a warning.
std::string uneven_hosts(const TrainOptions& options, const Job& job) {
  const std::string found = options.zero_group == "host" ? job.uneven_hosts() : "";
  return found.empty() ? "" : "--zero-group host: " + found;
}

/// Returns whether rank 0 has a checkpoint to resume from. If so, replaces --stem auto, --activation auto, --lr find and
/// --batch-size auto by the values of the checkpoint, and --init-from by what its training began with. `directory` is
/// null on other ranks.
/// Collective.
bool take_from_checkpoint(TrainOptions& options, const RunDirectory* directory, Job& job) {
  std::string config;  // of the checkpoint's training, with one line at least; empty without a checkpoint
  if (directory != nullptr && directory->checkpoint())
    config = value_at(directory->checkpoint()->manifest.extra, "config") + "\n";
  if (dist::Communicator* comm = job.control()) config = dist::broadcast_text(*comm, config);
  if (config.empty()) return false;
  const std::map<std::string, std::string> stored = parse_values(config, "the checkpoint's configuration");
  options.init_from = value_at(stored, "init-from");
  // With these, a launcher has started the training again.
  if (std::exchange(options.finds_lr, false)) options.lr = std::stod(value_at(stored, "lr"));
  if (std::exchange(options.finds_batch_size, false))
    options.batch_size = std::stoll(value_at(stored, "batch-size"));
  const models::Entry& entry = models::find(options.model);
  if (options.stem == "auto" && entry.has_stems) options.stem = value_at(stored, "stem", "auto");
  if (options.activation == "auto" && entry.has_activations)
    options.activation = value_at(stored, "activation", "auto");
  return true;
}

/// Returns a warning if the checkpoint was trained by CPU kernels for other processors than those of this process.
std::optional<std::string> cpu_level_warning(const Setup& setup, const io::Checkpoint& checkpoint) {
  const std::string trained = value_at(checkpoint.manifest.extra, "cpu_level", cpu_level());
  if (setup.device.kind() != DeviceKind::cpu || trained == cpu_level()) return std::nullopt;
  return fmt::format(
      "{}: trained with CPU kernels for {}, found kernels for {}, which round differently from this step",
      checkpoint.path.string(), trained, cpu_level());
}

/// Returns this rank's warnings and, on rank 0, also those that only other ranks have. Collective.
std::vector<std::string> with_other_ranks(std::vector<std::string> warnings, Job& job) {
  using Json = nlohmann::json;
  if (job.control() == nullptr) return warnings;
  const std::vector<std::string> all = job.control()->gather_object(json_text(Json(warnings)));
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    for (const std::string& warning : Json::parse(all[rank]).get<std::vector<std::string>>())
      if (std::ranges::find(warnings, warning) == warnings.end())
        warnings.push_back(fmt::format("rank {}: {}", rank, warning));
  return warnings;
}

/// Tells convoy-launch how far the training is.
class ProgressReport final : public training::Callback {
 public:
  void on_progress(std::int64_t step, double /*lr*/) override {
    cluster().report_progress(step_ = step, saved_step_);
  }
  void on_save(const training::SavedCheckpoint& checkpoint) override {
    cluster().report_progress(step_, saved_step_ = checkpoint.step);
  }

 private:
  std::int64_t step_ = -1, saved_step_ = -1;
};

/// One training of a rank in its present group.
class Training {
 public:
  /// `directory` is null on ranks other than 0, `continuation` if the training cannot continue in another group.
  /// Appends the warnings of the setup. All references must outlive this object. Collective.
  Training(const std::string& program, const Setup& setup, const RunDirectory* directory, Job& job,
           Continuation* continuation)
      : program_(program),
        setup_(setup),
        options_(setup.options),
        directory_(directory),
        job_(job),
        continuation_(continuation),
        checkpoints_(std::filesystem::path(*options_.out) / "checkpoints"),
        trainer_(make_context(continuation)),
        plans_(options_.compute.deterministic ? "none" : options_.compute.plan_cache, setup.device),
        warnings_(setup.warnings) {
    const auto add = [&](std::optional<std::string> warning) {
      if (warning) warnings_.push_back(std::move(*warning));
    };
    add(plans_.load());
    for (std::string& warning : batch_warnings(setup, job.info().world_size)) add(std::move(warning));
    add(oversubscription_warning(job, setup.device));
    if (const std::string found = uneven_hosts(options_, job); !found.empty())
      add(found + "; all ranks are one group, as with --zero-group world");
  }

  /// Loads the checkpoint to resume from on rank 0, or the state of `continuation` if the training `continues`, and
  /// prints what begins. Returns an exit code if there is nothing to train. Collective.
  std::optional<int> start(bool continues, const std::vector<training::Callback*>& callbacks) {
    const bool first = job_.is_first(), prints = first && !options_.quiet;
    if (prints && !continues) print_table(describe(setup_, trainer_.total_steps(), job_));
    if (options_.dry_run) {
      const double loss = trainer_.try_batch();
      if (first) fmt::print("dry run: the loss of one batch is {}; nothing was written\n", format_loss(loss));
      return 0;
    }
    if (directory_ != nullptr)
      warnings_.insert(warnings_.end(), directory_->warnings().begin(), directory_->warnings().end());
    const StartMode mode = load(continues);
    warnings_ = with_other_ranks(std::move(warnings_), job_);
    if (mode == StartMode::complete) {
      if (!first) return 0;
      fmt::print("this training is complete, nothing to do\n");
      print_result(*read_result(directory_->path("log.jsonl")), directory_->out().string(), program_);
      return 0;
    }
    const std::int64_t step = trainer_.step();
    if (prints && continues)
      fmt::print("continuing after step {} with {} {}\n", step, job_.info().world_size,
                 job_.is_alone() ? "rank" : "ranks");
    else if (prints && mode == StartMode::resumed)
      fmt::print("resuming from {}\n", directory_->checkpoint()->path.string());

    // Before the training, to fail early if the file cannot be written.
    write_trace(profiler_, job_.control(), trace_file(options_));
    start_trace(profiler_, job_.control());
    if (first) {
      directory_->create();
      reporter_.emplace(directory_->path("log.jsonl"),
                        mode == StartMode::resumed ? std::optional(step) : std::nullopt, setup_, trainer_,
                        job_);
      if (!continues) io::write_file_atomically(directory_->path("config.toml"), setup_.config);
      if (!continues && !directory_->checkpoint())
        write_samples(directory_->path("samples.png"), setup_.data.train, setup_.data.classes,
                      {.seed = static_cast<std::uint64_t>(options_.seed), .transform = setup_.transform});
      reporter_->log().write("start", start_event(setup_, trainer_, job_));
      if (!reporter_->log().is_locked())
        reporter_->on_warning(
            step,
            "the file system of --out has no locks: nothing prevents a second training into this directory");
      for (const std::string& warning : warnings_) reporter_->on_warning(step, warning);
      trainer_.add(*reporter_);
      for (training::Callback* callback : callbacks) trainer_.add(*callback);
    }
    progress_.on_progress(step, 0);
    trainer_.add(progress_);
    job_.control_plane().set_dump_directory(std::filesystem::path(*options_.out) / "post-mortem");
    return std::nullopt;
  }
  Trainer& trainer() { return trainer_; }
  /// Makes the evaluations at the end, unless a signal has stopped the training. Returns the signal, also if it comes
  /// now; 0: none. Collective.
  int evaluate(int signal) {
    if (signal == 0 && setup_.data.validation.size() > 0) {
      of_test_ = trainer_.evaluate_test(/*views=*/false);
      if (!of_test_) signal = trainer_.parallel().agree_on_stop();
    }
    if (signal == 0 && *options_.tta) {
      const auto begin = std::chrono::steady_clock::now();
      of_views_ = trainer_.evaluate_test(/*views=*/true);
      views_time_ = std::chrono::steady_clock::now() - begin;
      if (!of_views_) signal = trainer_.parallel().agree_on_stop();
    }
    job_.control_plane().enter(dist::Phase::finish);
    return signal;
  }
  /// Writes and prints the result. Returns the exit code: 0, or 128 + the number of the signal that stopped the training.
  int finish(int signal) {
    write_trace(profiler_, job_.control(), trace_file(options_));
    const int code = signal == 0 ? 0 : 128 + signal;
    if (!job_.is_first()) return code;
    if (const auto warning = plans_.store()) reporter_->on_warning(trainer_.step(), *warning);
    if (signal != 0) {
      reporter_->line(
          fmt::format("stopped by signal {} after step {}; checkpoint saved, continue with --resume auto",
                      signal, trainer_.step()));
      return code;
    }
    nlohmann::ordered_json result = result_event(setup_, trainer_, job_);
    if (of_test_) {
      result["test_accuracy"] = of_test_->accuracy;
      result["test_loss"] = of_test_->loss;
    }
    if (of_views_) {
      result["tta_accuracy"] = of_views_->accuracy;
      result["tta_loss"] = of_views_->loss;
      result["tta_seconds"] = views_time_.count();
    }
    reporter_->log().write("result", result);
    print_result(result, directory_->out().string(), program_);
    return code;
  }

 private:
  enum class StartMode { new_run, resumed, complete };

  TrainContext make_context(Continuation* continuation) {
    profiler_.enable(!options_.trace.empty());
    checkpoints_.set_keep_last(static_cast<int>(options_.keep_last));
    checkpoints_.set_keep_best(options_.keep_best);
    TrainContext context{
        .options = options_,
        .model = setup_.model,
        .device = setup_.device,
        .data = setup_.data,
        .transform = setup_.transform,
        .checkpoints = checkpoints_,
        .extra = {{"config", setup_.config}, {"version", kVersion}, {"cpu_level", cpu_level()}},
        .profiler = &profiler_,
        .stop_signal = StopSignals::received,
        .gradients = job_.gradients(),
        .control = job_.control(),
        .host_groups = options_.zero_group == "host" ? job_.host_groups() : HostGroups(),
        .statistics = options_.sync_bn ? job_.statistics() : nullptr,
        .observer = &job_.control_plane(),
        .continuation = continuation};
    write_input_spec(
        {setup_.data.name, setup_.data.classes, setup_.data.image_shape(), setup_.transform.evaluation()},
        context.extra);
    context.extra[kImageCounts] = image_counts(setup_.data);
    if (const std::string weights = class_weights_text(options_.class_weights); !weights.empty())
      context.extra[kClassWeights] = weights;
    return context;
  }

  StartMode load(bool continues) {
    std::string mode = "new_run";
    if (continues) {
      continuation_->adopt(trainer_);
      mode = "resumed";
    } else if (directory_ != nullptr && directory_->checkpoint()) {
      const auto add = [&](const std::vector<std::string>& more) {
        warnings_.insert(warnings_.end(), more.begin(), more.end());
      };
      const io::Checkpoint& checkpoint = *directory_->checkpoint();
      add(compare_flags(stored_flags(checkpoint.manifest), parse_values(setup_.config), checkpoint.path));
      compare_data(checkpoint, setup_.data, class_weights_text(options_.class_weights));
      if (auto warning = trainer_.resume(checkpoint)) warnings_.push_back(std::move(*warning));
      if (auto warning = cpu_level_warning(setup_, checkpoint)) warnings_.push_back(std::move(*warning));
      mode = trainer_.finished() && read_result(directory_->path("log.jsonl")) ? "complete" : "resumed";
    }
    if (dist::Communicator* comm = job_.control()) mode = dist::broadcast_text(*comm, mode);
    if (mode == "complete") return StartMode::complete;
    trainer_.broadcast_state();
    return mode == "resumed" ? StartMode::resumed : StartMode::new_run;
  }

  const std::string& program_;
  const Setup& setup_;
  const TrainOptions& options_;
  const RunDirectory* directory_;
  Job& job_;
  Continuation* continuation_;
  io::CheckpointDirectory checkpoints_;
  Profiler profiler_;
  ProgressReport progress_;
  Trainer trainer_;
  PlanCache plans_;
  std::vector<std::string> warnings_;
  std::optional<Reporter> reporter_;              // on rank 0
  std::optional<Evaluation> of_test_, of_views_;  // at the end, besides the evaluations of the training
  std::chrono::duration<double> views_time_{};
};

/// Runs one training of a rank on the data at `location`. `given`: the flags before resolve_recipe(). If a peer fails and
/// the training can continue on the other ranks, goes on in their group. Returns the exit code. `options` must be
/// resolved, and the job connected.
int run_training(const std::string& program, TrainOptions& options, const TrainOptions& given,
                 const CommandLine& line, const DeviceContext& device, const DataLocation& location, Job& job,
                 const std::vector<training::Callback*>& callbacks) {
  std::optional<RunDirectory> directory;  // on rank 0
  job.control_plane().enter(dist::Phase::load);
  if (job.is_first()) directory.emplace(options);
  const bool resumes = take_from_checkpoint(options, directory ? &*directory : nullptr, job);
  if (!options.init_from.empty() && !resumes) check_initial_parameters(options.init_from);
  std::jthread loading = load_libraries_in_background(device, parse_precision(options.precision));
  Setup setup = set_up(options, line, device, location, job, resumes);
  loading = {};
  job.verify_consistency(consistency_entries_of(setup));
  if (directory && !directory->checkpoint()) initialize_from_data(setup);
  if (options.finds_batch_size) {
    setup.batch_search = find_batch_size(options, setup, job);
    // Other defaults depend on it.
    TrainOptions chosen = given;
    chosen.batch_size = options.batch_size;
    chosen.finds_batch_size = false;
    for (std::string TrainOptions::*const text :
         {&TrainOptions::stem, &TrainOptions::activation, &TrainOptions::init_from})
      chosen.*text = options.*text;
    chosen.data = options.data;
    resolve_recipe(chosen);
    options = std::move(chosen);
    setup.config = line.config();
    for (auto& [row, text] : setup.start_rows) text = line.start_row(row);
  }
  if (options.finds_lr) {
    if (job.is_first() && !options.quiet) fmt::print("trying learning rates, from low to high ones\n");
    setup.rate_search = find_learning_rate(options, setup, job);
    setup.config = line.config();
  }
  const std::unique_ptr<Continuation> continuation = job.can_regroup() ? make_continuation() : nullptr;
  std::int64_t kept_step = 0;
  for (bool continues = false;; continues = true) {
    if (continues) {
      job.regroup(kept_step, setup.device);
      options.resume = "auto";
      directory.reset();
      if (job.is_first()) directory.emplace(options);
    }
    std::optional<Training> training;
    std::optional<StopSignals> signals;  // none: the training has not started
    int signal = 0;
    try {
      training.emplace(program, setup, directory ? &*directory : nullptr, job, continuation.get());
      if (const std::optional<int> code = training->start(continues, callbacks)) return *code;
      signals.emplace(/*announces=*/job.is_first());
      signal = training->evaluate(training->trainer().run());
    } catch (const dist::CorruptionError&) {
      job.report_and_abort();  // it may be this rank's memory that changes bits, so the others continue without it
    } catch (const PeerError&) {
      Trainer* const trainer = signals ? &training->trainer() : nullptr;
      if (!continuation || !continuation->is_possible(trainer)) job.report_and_abort();
      job.abandon_group();
      if (trainer != nullptr) kept_step = continuation->abandon(*trainer);
      continue;
    } catch (const std::exception&) {
      job.report_and_abort();  // before the trainer is destroyed, possibly in the middle of a step
    }
    return training->finish(signal);
  }
}

/// Runs the trainings of `sweep`, each with its --repeat, one after the other, and reports their results. One that diverges
/// is part of the results of a sweep; on several ranks it ends the job. Returns 0, or the code of the training that a
/// signal stopped. `options` must be resolved.
int run_several(const std::string& program, const TrainOptions& options, std::vector<SweptTraining> sweep,
                const DeviceContext& device, const DataLocation& location, Job& job,
                const std::vector<training::Callback*>& callbacks) {
  const std::size_t count = sweep.size() * static_cast<std::size_t>(options.repeat);
  std::size_t number = 0;
  for (auto& [values, own, diverged] : sweep) {
    own.compute = options.compute;
    own.data.dataset = options.data.dataset;
    own.data.quiet = options.data.quiet;
    own.resume = options.resume;
    own.out = values.empty() ? *options.out : *options.out + "/" + directory_of(values);
    resolve_recipe(own);
    if (job.is_first()) check_repetitions(own, repetitions_of(own));
  }
  if (options.sweep && job.is_first()) write_sweep(*options.out, sweep);
  std::vector<nlohmann::ordered_json> results;
  for (auto& [values, point, diverged] : sweep) {
    const std::vector<TrainOptions> repetitions = repetitions_of(point);
    for (TrainOptions own : repetitions) {
      if (job.is_first() && !own.quiet)
        fmt::print("{}training {} of {}, {}{}--seed {}\n", number == 0 ? "" : "\n", number + 1, count,
                   flags_of(values), values.empty() ? "" : " ", own.seed);
      ++number;
      const CommandLine flags = train_command_line(own, program);
      try {
        if (const int code =
                run_training(program, own, TrainOptions(own), flags, device, location, job, callbacks))
          return code;
      } catch (const NumericError& error) {
        if (!options.sweep || !job.is_alone()) throw;
        fmt::print(stderr, "{}: warning: {}\n", program,
                   without_control_characters(fmt::format("{}: {}", *own.out, error.what())));
        ++diverged;
      }
    }
    if (!job.is_first()) continue;
    results.emplace_back();
    if (diverged == 0) results.back() = report_repetitions(point, repetitions);
  }
  if (options.sweep && job.is_first()) write_sweep(*options.out, sweep, &results);
  return 0;
}

/// Runs one rank of the program, after the rendezvous: the training, or those of --sweep and --repeat. Returns 0, or the
/// code of the training that a signal stopped.
int run_rank(const std::string& program, TrainOptions& options, const CommandLine& line,
             std::vector<SweptTraining> sweep, Job& job, const std::vector<training::Callback*>& callbacks) {
  // Rank 0 reads the checkpoint, so its --resume counts for ranks without the flag.
  if (dist::Communicator* comm = job.control()) {
    const std::string resume = dist::broadcast_text(*comm, options.resume);
    if (options.resume.empty()) options.resume = resume;
  }
  job.verify_consistency(consistency_entries_of(options, line));
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
  job.run_consistent_check([&] {  // a job that has lost ranks goes on
    const std::string found = uneven_hosts(options, job);
    check(found.empty() || cluster().restarts_of_job() > 0, "{}", found);
  });
  options.data.quiet = options.quiet || !job.is_first();
  DataLocation location;
  job.run_on_rank_zero_first([&] { location = locate_data(options.data); });
  options.data.dataset = location.dataset;
  const TrainOptions given = options;
  resolve_recipe(options);
  if (options.repeat == 1 && !options.sweep)
    return run_training(program, options, given, line, device, location, job, callbacks);
  if (!options.sweep) sweep = {{.values = {}, .options = options}};
  return run_several(program, options, std::move(sweep), device, location, job, callbacks);
}

/// Reads the flags of a training from the arguments, followed by those of `values`, and checks what needs no data. With
/// --sweep and no values, only reads them. Returns false if --help or the like has been printed. Sets the flags of `line`,
/// which must be that of `options`.
bool read_flags(std::vector<const char*> arguments, const SweptValues& values, TrainOptions& options,
                CommandLine& line) {
  std::vector<std::string> more;
  for (const auto& [flag, value] : values) more.push_back(fmt::format("--{}={}", flag, value));
  for (const std::string& argument : more) arguments.push_back(argument.c_str());
  if (!line.parse(static_cast<int>(arguments.size()), arguments.data())) return false;
  if (!options.config.empty()) line.apply_config(options.config);
  set_default_model(options, line);
  if (options.compute.cpu_level) use_cpu_level(*options.compute.cpu_level);
  line.settle();
  if (options.resume.empty() && cluster().restarts_of_job() > 0) options.resume = "auto";
  parse_precision(options.precision);
  check_repeat(options);
  if (options.sweep && values.empty()) return true;
  // Checks a copy, because --fallback-shapes may change the data set and its recipe later.
  TrainOptions requested = options;
  resolve_recipe(requested);
  check_consistency(requested, line);
  check_before_data(requested, line);
  return true;
}

}  // namespace

int run_train_program(const std::string& name, int argc, char** argv,
                      const std::vector<training::Callback*>& callbacks) try {
  prepare_program();
  TrainOptions options;
  CommandLine line = train_command_line(options, name);
  const std::vector<const char*> arguments(argv, argv + argc);
  if (!read_flags(arguments, {}, options, line)) return 0;
  std::vector<SweptTraining> sweep;
  for (SweptValues& values : options.sweep ? combinations_of(*options.sweep) : std::vector<SweptValues>()) {
    TrainOptions own;
    CommandLine flags = train_command_line(own, name);
    try {
      read_flags(arguments, values, own, flags);
    } catch (const UsageError& error) {
      fail<UsageError>("--sweep with {}: {}", flags_of(values), message_with_flag(error));
    }
    sweep.push_back({std::move(values), std::move(own)});
  }
  QueuedStream output(stdout), error(stderr, &output);
  LocalRanks ranks(options.job, options.compute);
  return ranks.run(name.c_str(), [&](Job& job) {
    TrainOptions own = options;  // each rank resolves its device and data set in its own copy
    const CommandLine flags = train_command_line(own, name);
    return run_rank(name, own, flags, sweep, job, callbacks);
  });
} catch (const std::exception&) {
  return report_failure(name.c_str());
}

}  // namespace convoy
