// Tests of --deepspeed-config: which flags a file sets, and what it says of the other keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "convoy/apps/train/options.h"
#include "convoy/kernels/base/check.h"
#include "tests/apps/programs.h"

namespace convoy::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Flags = std::map<std::string, std::string>;

/// Sets the launcher's variables for a rank of a job, and removes them at the end.
class LaunchedRank {
 public:
  explicit LaunchedRank(int ranks) {
    ::setenv("RANK", "0", 1);
    ::setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
  }
  ~LaunchedRank() {
    ::unsetenv("RANK");
    ::unsetenv("WORLD_SIZE");
  }
};

class ForeignConfig : public ::testing::Test {
 protected:
  /// Translates files with these flags on the command line.
  void translate(const Arguments& more) {
    options = {};
    CommandLine line = train_command_line(options);
    const Arguments all = with({"convoy-train"}, more);
    std::vector<const char*> pointers;
    for (const std::string& each : all) pointers.push_back(each.c_str());
    ASSERT_TRUE(line.parse(static_cast<int>(pointers.size()), pointers.data()));
    const DeepSpeedReport report = apply_deepspeed_config(options, line);
    line.settle();
    taken = report.taken;
    ignored = report.ignored;
    flags.clear();
    for (const CommandLine::Flag& flag : line.flags())
      if (flag.given && flag.details.in_config) {
        const std::string config = line.config();
        const std::size_t at = ("\n" + config).find("\n" + flag.name + " = ") + flag.name.size() + 3;
        flags[flag.name] = config.substr(at, config.find('\n', at) - at);
      }
  }
  void deepspeed(const std::string& text, const Arguments& more = {}) {
    translate(with({"--deepspeed-config", directory.write("ds.json", text)}, more));
  }
  /// Returns the message of the UsageError for a file.
  template <class F>
  static std::string error_of(F&& translate_file) {
    try {
      translate_file();
    } catch (const UsageError& error) {
      return error.what();
    }
    ADD_FAILURE() << "expected a UsageError";
    return "";
  }
  std::string deepspeed_error(const std::string& text, const Arguments& more = {}) {
    return error_of([&] { deepspeed(text, more); });
  }

  TempDirectory directory;
  TrainOptions options;
  Flags flags;  // those that are given afterwards, as config.toml has them
  std::string taken, ignored;
};

TEST_F(ForeignConfig, DeepSpeedOfATutorial) {
  deepspeed(R"({
    "train_batch_size": 64,
    "gradient_accumulation_steps": 2,
    "steps_per_print": 100,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 3e-7}},
    "gradient_clipping": 1.0,
    "fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 16, "hysteresis": 2},
    "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 5e8},
    "wall_clock_breakdown": false
  })");
  EXPECT_EQ(flags, (Flags{{"batch-size", "64"},
                          {"micro-batch-size", "32"},
                          {"log-every", "100"},
                          {"optimizer", "'adamw'"},
                          {"lr", "0.0001"},
                          {"adam-betas", "'0.9,0.999'"},
                          {"adam-eps", "1e-08"},
                          {"weight-decay", "3e-07"},
                          {"decay-biases", "true"},
                          {"clip-norm", "1"},
                          {"precision", "'fp16'"},
                          {"loss-scale", "'dynamic'"},
                          {"zero", "2"}}));
  EXPECT_THAT(taken, AllOf(HasSubstr("train_batch_size as --batch-size 64, "),
                           HasSubstr("gradient_accumulation_steps 2 as --micro-batch-size 32"),
                           HasSubstr("optimizer.params.betas as --adam-betas 0.9, 0.999"),
                           Not(HasSubstr("overridden"))));
  EXPECT_THAT(ignored, HasSubstr("ds.json: ignored, Convoy has no such setting: fp16.hysteresis 2, "
                                 "zero_optimization.overlap_comm true, zero_optimization.reduce_bucket_size "
                                 "500000000, wall_clock_breakdown false"));
}

TEST_F(ForeignConfig, CommandLineWins) {
  deepspeed(R"({"train_batch_size": 64, "optimizer": {"type": "SGD", "params": {"lr": 0.5}}})",
            {"--lr", "0.25", "--batch-size", "8"});
  EXPECT_EQ(flags["lr"], "0.25");
  EXPECT_EQ(flags["batch-size"], "8");
  EXPECT_THAT(taken,
              HasSubstr("; overridden: optimizer.params.lr by --lr, train_batch_size by --batch-size"));
}

TEST_F(ForeignConfig, OptimizersHaveTheDefaultsOfDeepSpeed) {
  deepspeed(R"({"optimizer": {"type": "SGD", "params": {"lr": 0.1, "nesterov": "auto"}}})");
  EXPECT_EQ(flags, (Flags{{"optimizer", "'sgd'"}, {"lr", "0.1"}, {"momentum", "0"}, {"weight-decay", "0"}}));
  EXPECT_THAT(taken, HasSubstr("optimizer.params.momentum (absent) as --momentum 0"));
  deepspeed(R"({"optimizer": {"type": "Adam", "params": {"betas": [0.8, 0.999]}}})");
  EXPECT_EQ(flags, (Flags{{"optimizer", "'adamw'"},
                          {"lr", "0.001"},
                          {"adam-betas", "'0.8,0.999'"},
                          {"adam-eps", "1e-08"},
                          {"weight-decay", "0"}}));
  deepspeed(R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})");
  EXPECT_EQ(flags["optimizer"], "'adam'");
  // The rate of another optimizer than that of the file is not for this one.
  deepspeed(R"({"optimizer": {"type": "SGD", "params": {"lr": 0.1}}})", {"--optimizer", "adam"});
  EXPECT_EQ(flags, (Flags{{"optimizer", "'adam'"}}));
  EXPECT_THAT(ignored, HasSubstr("optimizer.params.lr 0.1"));
}

TEST_F(ForeignConfig, ParametersWithTheOnlyValueOfConvoyAreTaken) {
  deepspeed(R"({"dataloader_drop_last": false, "optimizer": {"type": "SGD", "params": {"dampening": 0.0,
                "maximize": false}}})");
  EXPECT_EQ(ignored, "");
  EXPECT_THAT(taken,
              AllOf(HasSubstr("optimizer.params.dampening 0"), HasSubstr("optimizer.params.maximize false")));
  deepspeed(R"({"optimizer": {"type": "Adam", "params": {"amsgrad": true}}})", {"--optimizer", "sgd"});
  EXPECT_THAT(ignored, HasSubstr("optimizer.params.amsgrad true"));
}

TEST_F(ForeignConfig, Lamb) {
  deepspeed(
      R"({"optimizer": {"type": "Lamb", "params": {"lr": 0.02, "betas": [0.9, 0.99], "weight_decay": 0.01,
                "bias_correction": true, "max_coeff": 10.0}}})");
  EXPECT_EQ(flags, (Flags{{"optimizer", "'lamb'"},
                          {"lr", "0.02"},
                          {"adam-betas", "'0.9,0.99'"},
                          {"adam-eps", "1e-08"},
                          {"weight-decay", "0.01"},
                          {"decay-biases", "true"}}));
  EXPECT_THAT(ignored, AllOf(HasSubstr("optimizer.params.max_coeff 10 (Convoy has no limit)"),
                             HasSubstr("optimizer.params.min_coeff 0.01 (Convoy has no limit)"),
                             HasSubstr("the trust ratios of biases and norms (Convoy has 1)")));
  deepspeed(R"({"optimizer": {"type": "Lamb", "params": {"max_coeff": 0.5}}})", {"--optimizer", "sgd"});
  EXPECT_EQ(flags, (Flags{{"optimizer", "'sgd'"}}));
}

TEST_F(ForeignConfig, AutoIsLeftToTheCommandLine) {
  deepspeed(R"({"train_batch_size": "auto", "gradient_clipping": "auto", "fp16": {"enabled": "auto"},
                "optimizer": {"type": "SGD", "params": {"lr": "auto", "momentum": "auto", "nesterov": "auto",
                                                         "weight_decay": "auto"}}, "extra": null})");
  EXPECT_EQ(flags, (Flags{{"optimizer", "'sgd'"}}));
  EXPECT_EQ(ignored, "");
}

TEST_F(ForeignConfig, BatchSizesAgreeWithTheRanks) {
  const LaunchedRank rank(2);
  deepspeed(R"({"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 4})");
  EXPECT_EQ(flags, (Flags{{"batch-size", "64"}, {"micro-batch-size", "8"}}));
  deepspeed(R"({"train_micro_batch_size_per_gpu": 8})");
  EXPECT_EQ(flags, (Flags{{"batch-size", "16"}}));
  deepspeed(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 8})");
  EXPECT_EQ(flags, (Flags{{"batch-size", "64"}, {"micro-batch-size", "8"}}));
  EXPECT_THAT(deepspeed_error(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 8,
                                  "gradient_accumulation_steps": 2})"),
              HasSubstr("train_batch_size: found 64, expected 32 (train_micro_batch_size_per_gpu 8 x "
                        "gradient_accumulation_steps 2 x 2 ranks)"));
  EXPECT_THAT(deepspeed_error(R"({"train_batch_size": 9})"),
              HasSubstr("found 9, expected a multiple of 2 (gradient_accumulation_steps 1 x 2 ranks)"));
}

TEST_F(ForeignConfig, Schedulers) {
  deepspeed(R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.5}}, "scheduler": {"type": "WarmupDecayLR",
    "params": {"warmup_num_steps": 100, "total_num_steps": 1000, "warmup_max_lr": 0.002, "warmup_type": "linear"}}})");
  EXPECT_EQ(flags["schedule"], "'linear'");
  EXPECT_EQ(flags["lr"], "0.002") << "the scheduler sets the rate";
  EXPECT_EQ(flags["max-steps"], "1000");
  EXPECT_EQ(flags["warmup"], "'100steps'");
  EXPECT_THAT(taken, HasSubstr("overridden: optimizer.params.lr by another key"));
  EXPECT_EQ(ignored, "");

  deepspeed(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 50}}})",
            {"--max-steps", "200"});
  EXPECT_EQ(
      flags,
      (Flags{{"max-steps", "200"}, {"schedule", "'constant'"}, {"lr", "0.001"}, {"warmup", "'50steps'"}}));
  EXPECT_THAT(ignored, HasSubstr("scheduler.params.warmup_type log, the default (Convoy has linear)"));

  deepspeed(R"({"scheduler": {"type": "WarmupCosineLR",
    "params": {"warmup_num_steps": 50, "total_num_steps": 1000, "cos_min_ratio": 0.01}}})",
            {"--epochs", "3"});
  EXPECT_EQ(flags, (Flags{{"epochs", "3"}, {"schedule", "'cosine'"}, {"warmup", "'50steps'"}}));
  EXPECT_THAT(ignored,
              AllOf(HasSubstr("scheduler.params.total_num_steps 1000"),
                    HasSubstr("cos_min_ratio 0.01 (expected --schedule cosine and optimizer.params.lr)")));

  deepspeed(
      R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.002}}, "scheduler": {"type": "WarmupCosineLR",
    "params": {"warmup_num_steps": 50, "total_num_steps": 1000, "cos_min_ratio": 0.01}}})");
  EXPECT_EQ(flags["lr"], "0.002");
  EXPECT_EQ(flags["min-lr"], "2e-05");
}

TEST_F(ForeignConfig, DisabledSectionsSetNothing) {
  deepspeed(R"({"fp16": {"enabled": false, "loss_scale": 128}, "bf16": {"enabled": false},
                "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "none"}}})");
  EXPECT_EQ(flags, (Flags{{"zero", "1"}}));
  EXPECT_THAT(taken, AllOf(HasSubstr("fp16.enabled false"), HasSubstr("bf16.enabled false")));
  deepspeed(R"({"fp16": {"enabled": true, "loss_scale": 128}})");
  EXPECT_EQ(flags["loss-scale"], "'128'");
  deepspeed(R"({"fp16": {"enabled": true, "loss_scale": 128}})", {"--precision", "fp32"});
  EXPECT_EQ(flags, (Flags{{"precision", "'fp32'"}}));
  EXPECT_THAT(ignored, HasSubstr("fp16.loss_scale 128"));
  deepspeed(R"({"bf16": {"enabled": true}})");
  EXPECT_EQ(flags, (Flags{{"precision", "'bf16'"}}));
}

TEST_F(ForeignConfig, DeepSpeedThatChangesTheResultIsAnError) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"zero_optimization": {"stage": 3}})", "zero_optimization.stage: found 3, expected 0, 1 or 2: "},
      {R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})",
       "zero_optimization.offload_optimizer.device: found cpu, expected none"},
      {R"({"optimizer": {"type": "Lion"}})", "optimizer.type: found Lion, expected Adam, AdamW, SGD or Lamb"},
      {R"({"optimizer": {"type": "OneBitLamb"}})",
       "optimizer.type: found OneBitLamb, expected Adam, AdamW, SGD or Lamb; gradients are not"},
      {R"({"optimizer": {"type": "Lamb", "params": {"max_coeff": 0.5}}})",
       "optimizer.params.max_coeff: found 0.5, expected 10 or no such key: "},
      {R"({"optimizer": {"type": "Lamb", "params": {"min_coeff": 0}}})",
       "optimizer.params.min_coeff: found 0, expected 0.01 or no such key: "},
      {R"({"optimizer": {"type": "Adam", "params": {"bias_correction": false}}})",
       "optimizer.params.bias_correction: found false, expected true, the only value that --optimizer adamw has"},
      {R"({"optimizer": {"type": "Lamb", "params": {"bias_correction": false}}})",
       "the only value that --optimizer lamb"},
      {R"({"optimizer": {"type": "AdamW", "params": {"amsgrad": true}}})",
       "optimizer.params.amsgrad: found true"},
      {R"({"optimizer": {"type": "SGD", "params": {"momentum": 0.9, "dampening": 0.5}}})",
       "optimizer.params.dampening: found 0.5, expected 0"},
      {R"({"optimizer": {"type": "SGD", "params": {"maximize": true}}})",
       "optimizer.params.maximize: found true"},
      {R"({"optimizer": {"type": "Lamb", "params": {"max_grad_norm": 1.0}}})",
       "found 1, expected 0, the only value that --optimizer lamb has; use gradient_clipping"},
      {R"({"dataloader_drop_last": true})", "dataloader_drop_last: found true, expected false"},
      {R"({"scheduler": {"type": "OneCycle"}})", "scheduler.type: found OneCycle, expected WarmupLR, "},
      {R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})", "expected one of the two"},
      {R"({"amp": {"enabled": true}})", "amp.enabled: found true, expected fp16.enabled or bf16.enabled"},
      {R"({"compression_training": {"layer_reduction": {"enabled": true}}})",
       "compression_training: found a section"},
      {R"({"gradient_clipping": -1})", "gradient_clipping: found -1, expected at least 0"},
      {R"({"train_batch_size": 0})", "train_batch_size: found 0, expected a whole number from 1 to 1048576"},
      {R"({"fp16": {"enabled": "yes"}})", "fp16.enabled: found yes, expected true or false"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(deepspeed_error(text), AllOf(HasSubstr("ds.json: "), HasSubstr(message))) << text;
  }
}

TEST_F(ForeignConfig, DamagedFilesAreErrors) {
  EXPECT_THAT(deepspeed_error("{"),
              HasSubstr("ds.json: expected a JSON file, found a parse error at line 1"));
  EXPECT_THAT(deepspeed_error("[1]"), HasSubstr("found a JSON array, expected an object"));
  EXPECT_THAT(error_of([&] {
                translate({"--deepspeed-config", "absent.json"});
              }),
              HasSubstr("absent.json: cannot be read"));
  EXPECT_THAT(error_of([&] {
                translate({"--deepspeed-config", directory.path()});
              }),
              HasSubstr("cannot be read, expected a JSON file"));
}

TEST(ForeignConfigProgram, TrainsWithTheFlagsOfAFile) {
  const Workshop workshop;
  const std::string file =
      workshop.directory().write("ds.json", R"({"train_batch_size": 64, "tensorboard": {},
    "optimizer": {"type": "SGD", "params": {"lr": 0.05, "momentum": 0.9}}})");
  const ProcessResult run =
      workshop.run("convoy-train", {"--model", "lenet", "--dataset", "mnist", "--data",
                                    workshop.path("digits"), "--out", workshop.path("run"), "--device", "cpu",
                                    "--threads", "1", "--max-steps", "1", "--deepspeed-config", file});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err,
              HasSubstr("convoy-train: " + file + ": taken: optimizer.type SGD as --optimizer sgd, "));
  EXPECT_THAT(run.err, HasSubstr("convoy-train: warning: " + file +
                                 ": ignored, Convoy has no such setting: tensorboard {}\n"));
  const std::string config = read_text(workshop.path("run") / "config.toml");
  EXPECT_THAT(config, AllOf(HasSubstr("batch-size = 64\n"), HasSubstr("nesterov = false\n"),
                            HasSubstr("lr = 0.05\n"), Not(HasSubstr("deepspeed"))));
  EXPECT_THAT(workshop.run("convoy-train",
                           {"--deepspeed-config",
                            workshop.directory().write("3.json", R"({"zero_optimization": {"stage": 3}})")}),
              FailsWith(2, "3.json: zero_optimization.stage: found 3, expected 0, 1 or 2"));
}

}  // namespace
}  // namespace convoy::testing
