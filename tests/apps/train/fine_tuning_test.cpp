// Fine-tuning with convoy-train: a new last layer, frozen layers, and learning rates of their own, also of biases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "convoy/datasets/download/download.h"
#include "convoy/engine/io/safetensors.h"
#include "tests/apps/programs.h"
#include "tests/testing/support/http_server.h"

namespace convoy::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using Values = std::map<std::string, std::vector<float>>;

/// Returns all tensors of a checkpoint's model.
std::vector<io::NamedTensor> tensors_of(const fs::path& checkpoint) {
  return io::read_safetensors(checkpoint / "model.safetensors", Device::cpu()).tensors;
}

Values values_of(const fs::path& checkpoint) {
  Values values;
  for (const io::NamedTensor& each : tensors_of(checkpoint))
    values[each.name] = each.tensor.to_vector<float>();
  return values;
}

fs::path last_checkpoint(const Workshop& workshop, const std::string& out) {
  return checkpoints_of(workshop.path(out)).back();
}

/// A ResNet-20 that was trained for two steps on images of three colors, and images of two colors to tune it on.
class FineTuning : public ::testing::Test {
 protected:
  void SetUp() override {
    write_color_directories(workshop_.path("three"), 16, 12);
    write_color_directories(workshop_.path("two"), 16, 12);
    for (const char* split : {"train", "test"}) fs::remove_all(workshop_.path("two") / split / "blue");
    ASSERT_THAT(train("base", "three", {"--max-steps", "2"}), Succeeds());
  }

  ProcessResult train(const std::string& out, const std::string& data, const Arguments& more) const {
    return workshop_.run("convoy-train", with({"--model",      "resnet20",
                                               "--dataset",    "folder",
                                               "--data",       workshop_.path(data).string(),
                                               "--out",        workshop_.path(out).string(),
                                               "--threads",    "1",
                                               "--device",     "cpu",
                                               "--workers",    "1",
                                               "--seed",       "3",
                                               "--batch-size", "8",
                                               "--eval-every", "0",
                                               "--warmup",     "0"},
                                              more));
  }
  ProcessResult tune(const std::string& out, const Arguments& more) const {
    return train(out, "two",
                 with({"--init-from", workshop_.path("base").string(), "--max-steps", "4"}, more));
  }
  std::string hash_of(const std::string& out) const {
    return workshop_.result(out)["parameters_hash"].get<std::string>();
  }

  Workshop workshop_;
};

TEST_F(FineTuning, ReplacesTheLastLayerAndKeepsTheOthers) {
  ASSERT_THAT(tune("kept", {"--lr", "0", "--weight-decay", "0", "--freeze", "conv1,bn1,layer1,layer2,layer3",
                            "--devices", "2", "--bn-buffers", "mean"}),
              Prints(HasSubstr("head       fc.weight, fc.bias: new, 2 classes (file has 3)\n")));
  const Values base = values_of(last_checkpoint(workshop_, "base")),
               kept = values_of(last_checkpoint(workshop_, "kept"));
  ASSERT_EQ(kept.size(), base.size());
  EXPECT_EQ(kept.at("fc.weight").size(), 2u * 64);
  for (const auto& [name, values] : kept) {
    if (name.starts_with("fc.")) continue;
    EXPECT_EQ(values, base.at(name)) << name << ": running statistics of frozen batch norms stay, too";
  }
  // The same seed without the file begins with the same last layer.
  ASSERT_EQ(train("scratch", "two", {"--lr", "0", "--weight-decay", "0", "--max-steps", "1"}).exit_code, 0);
  EXPECT_EQ(kept.at("fc.weight"), values_of(last_checkpoint(workshop_, "scratch")).at("fc.weight"));
}

TEST_F(FineTuning, LearnsFromARunACheckpointOrAFileWithoutAHead) {
  std::vector<io::NamedTensor> tensors = tensors_of(last_checkpoint(workshop_, "base"));
  std::erase_if(tensors, [](const io::NamedTensor& each) { return each.name.starts_with("fc."); });
  for (io::NamedTensor& each : tensors) each.name = "module._orig_mod." + each.name;
  const fs::path headless = workshop_.path("headless.safetensors");
  std::ofstream(headless, std::ios::binary) << io::encode_safetensors(tensors);

  ASSERT_EQ(tune("run", {}).exit_code, 0);
  ASSERT_EQ(tune("checkpoint", {"--init-from", last_checkpoint(workshop_, "base").string()}).exit_code, 0);
  EXPECT_EQ(hash_of("checkpoint"), hash_of("run"));
  const ProcessResult without = tune("without", {"--init-from", headless.string()});
  ASSERT_EQ(without.exit_code, 0) << without.err;
  EXPECT_THAT(without.out, HasSubstr("fc.weight, fc.bias: new, 2 classes (file has none)"));
  EXPECT_EQ(hash_of("without"), hash_of("run"));
  // With as many classes as in the file, the last layer is that of the file.
  const ProcessResult same = train(
      "same", "three", {"--init-from", workshop_.path("base").string(), "--max-steps", "1", "--lr", "0"});
  ASSERT_EQ(same.exit_code, 0) << same.err;
  EXPECT_THAT(same.out, Not(HasSubstr(": new, ")));
  EXPECT_EQ(values_of(last_checkpoint(workshop_, "same")).at("fc.weight"),
            values_of(last_checkpoint(workshop_, "base")).at("fc.weight"));
}

TEST_F(FineTuning, RefusesFilesThatDoNotFitElsewhere) {
  std::vector<io::NamedTensor> tensors = tensors_of(last_checkpoint(workshop_, "base"));
  const auto refusal = [&](const std::string& source) {
    const ProcessResult run = tune("refused", {"--init-from", source});
    EXPECT_EQ(run.exit_code, 5) << run.err;
    EXPECT_FALSE(fs::exists(workshop_.path("refused")));
    return run.err;
  };
  const auto file = [&](const char* name) {
    std::ofstream(workshop_.path(name), std::ios::binary) << io::encode_safetensors(tensors);
    return workshop_.path(name).string();
  };
  const Tensor narrow = Tensor::zeros({3, 32}, DType::f32, Device::cpu());
  for (io::NamedTensor& each : tensors)
    if (each.name == "fc.weight") each.tensor = narrow;
  EXPECT_THAT(refusal(file("narrow.safetensors")),
              HasSubstr("\"fc.weight\" is f32 [3, 32], expected f32 [2, 64]"));
  std::erase_if(tensors, [](const io::NamedTensor& each) {
    return each.name.starts_with("fc.") || each.name == "bn1.bias";
  });
  EXPECT_THAT(refusal(file("incomplete.safetensors")), HasSubstr("1 missing (\"bn1.bias\")"));
  EXPECT_THAT(refusal(workshop_.path("two").string()), HasSubstr("two: no checkpoint found"));
  std::ofstream(workshop_.path("base") / "checkpoints" / "BEST") << "step_000077\n";
  EXPECT_THAT(refusal(workshop_.path("base").string()), HasSubstr("; --init-from "));
}

TEST_F(FineTuning, IsTheSameOnRanksWithShardsAndAfterAResume) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    const Arguments flags = {
        "--optimizer", optimizer,  "--precision",      "fp64",     "--lr",
        "0.01",        "--freeze", "conv1,bn1,layer1", "--lr-for", "head=10x,layer2=0.002",
        "--clip-norm", "1",        "--bn-buffers",     "local"};
    const auto run = [&](const std::string& out, const Arguments& more) {
      EXPECT_THAT(tune(optimizer + out, with(flags, more)), Succeeds());
      return hash_of(optimizer + out);
    };
    const std::string whole = run("whole", {"--devices", "2", "--save-every", "2", "--keep-last", "0"});
    const std::string middle =
        (workshop_.path(optimizer + std::string("whole")) / "checkpoints" / "step_000002").string();
    EXPECT_EQ(run("rest", {"--devices", "2", "--init-from", "", "--resume", middle}), whole) << optimizer;
    // Norms of gradients are summed in another order.
    run("sharded", {"--devices", "2", "--zero", "1"});
    const auto loss = [&](const std::string& out) {
      return workshop_.events(optimizer + out, "eval").back()["loss"].get<double>();
    };
    EXPECT_NEAR(loss("sharded"), loss("whole"), 1e-9) << optimizer;
    EXPECT_NE(run("other", {"--devices", "2", "--lr-for", "head=5x,layer2=0.002"}), whole) << optimizer;
  }
}

TEST_F(FineTuning, MuonHasRatesByPrefixToo) {
  const auto values = [&](const std::string& out, const std::string& rules) {
    EXPECT_THAT(tune(out, {"--optimizer", "muon", "--lr-for", rules, "--max-steps", "1"}), Succeeds());
    return values_of(last_checkpoint(workshop_, out));
  };
  const Values base = values_of(last_checkpoint(workshop_, "base"));
  const Values still = values("still", "layer1=0x,head=0.5");
  EXPECT_EQ(still.at("layer1.0.conv1.weight"), base.at("layer1.0.conv1.weight"));
  EXPECT_EQ(still.at("layer1.0.bn1.bias"), base.at("layer1.0.bn1.bias"));
  EXPECT_NE(still.at("layer2.0.conv1.weight"), base.at("layer2.0.conv1.weight"));
  // --sgd-lr is 0.2 for the last layer of a ResNet and batches of 128, so for those of 8 0.5 is a factor of 40.
  EXPECT_EQ(values("factor", "layer1=0x,head=40x").at("fc.bias"), still.at("fc.bias"));
}

TEST_F(FineTuning, RefusesRulesWithoutParameters) {
  const ProcessResult freeze = tune("refused", {"--freeze", "backbone"});
  EXPECT_EQ(freeze.exit_code, 2);
  EXPECT_THAT(freeze.err, AllOf(HasSubstr("--freeze backbone: "), HasSubstr("bn1, conv1, fc, layer1")));
  EXPECT_THAT(tune("refused", {"--freeze", "layer1", "--lr-for", "layer1=2x"}),
              FailsWith(2, "--lr-for layer1=2x: no parameter"));
  EXPECT_EQ(tune("refused", {"--lr", "0", "--lr-for", "fc=0.1"}).exit_code, 2);
}

/// A short training of LeNet, whose rates the flags set.
class BiasRate : public ::testing::Test {
 protected:
  std::string hash_of(const std::string& out, const std::string& optimizer, const Arguments& more) {
    const ProcessResult run = workshop_.train(
        optimizer + out,
        with({"--optimizer", optimizer, "--lr", "0.0625", "--max-steps", "4", "--eval-every", "0"}, more));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    output_ = run.out;
    return workshop_.result(optimizer + out)["parameters_hash"].get<std::string>();
  }
  static std::string each_bias(const std::string& rate) {
    std::string rules;
    for (const char* layer : {"conv1", "conv2", "fc1", "fc2", "fc3"})
      rules += fmt::format("{}{}.bias={}", rules.empty() ? "" : ",", layer, rate);
    return rules;
  }
  Workshop workshop_;
  std::string output_;  // of the latest training
};

TEST_F(BiasRate, IsThatOfEachBiasWithEveryOptimizer) {
  for (const std::string optimizer : {"sgd", "adam", "adamw", "rmsprop"}) {
    const std::string hash = hash_of("own", optimizer, {"--bias-lr", "0.25"});
    EXPECT_THAT(output_, HasSubstr(", rate of biases and norms 0.25")) << optimizer;
    EXPECT_EQ(hash_of("rules", optimizer, {"--lr-for", each_bias("0.25")}), hash) << optimizer;
    if (optimizer != "sgd") continue;  // what follows is the same for all
    EXPECT_EQ(hash_of("factors", optimizer, {"--bias-lr", "0.25", "--lr-for", each_bias("1x")}), hash);
    const std::string plain = hash_of("plain", optimizer, {});
    EXPECT_EQ(hash_of("same", optimizer, {"--bias-lr", "0.0625"}), plain) << optimizer;
    EXPECT_NE(hash, plain) << optimizer;
  }
}

TEST_F(BiasRate, IsTheSameWithShardsAndAfterAResume) {
  for (const std::string optimizer : {"sgd", "adamw", "rmsprop"}) {
    const Arguments flags = {"--bias-lr", "0.25", "--decay-biases", "--devices", "2", "--save-every", "2"};
    const std::string whole = hash_of("whole", optimizer, with(flags, {"--zero", "0"}));
    EXPECT_EQ(hash_of("1", optimizer, with(flags, {"--zero", "1"})), whole) << optimizer;
    EXPECT_EQ(hash_of("2", optimizer, with(flags, {"--zero", "2"})), whole) << optimizer;
    for (const char* zero : {"0", "1"}) {
      const fs::path middle =
          workshop_.path(optimizer + (*zero == '0' ? "whole" : "1")) / "checkpoints" / "step_000002";
      const std::string out = std::string("rest") + zero;
      EXPECT_EQ(hash_of(out, optimizer, with(flags, {"--zero", zero, "--resume", middle.string()})), whole);
    }
  }
  // A resumed training may have another rate, also if it had none for biases.
  const fs::path middle = workshop_.path("sgdwhole") / "checkpoints" / "step_000002";
  hash_of("other", "sgd", {"--decay-biases", "--devices", "2", "--resume", middle.string()});
  EXPECT_THAT(output_, HasSubstr("--bias-lr changed from 0.25 to none"));
}

// The weight decay of biases is divided by the factor of their rate, so that rate times decay is the same.
TEST_F(BiasRate, KeepsRateTimesDecay) {
  const auto sum_of_bias = [&](const std::string& out, const Arguments& more) {
    hash_of(out, "sgd",
            with({"--max-steps", "1", "--schedule", "constant", "--momentum", "0", "--decay-biases"}, more));
    const Values values = values_of(last_checkpoint(workshop_, "sgd" + out));
    double sum = 0;
    for (const float value : values.at("fc3.bias")) sum += value;
    return sum;
  };
  // The gradients of the last bias add up to 0, so its sum changes by the decay only.
  const double start = sum_of_bias("start", {"--weight-decay", "0"});
  for (const char* rate : {"0.0625", "0.25"})
    EXPECT_NEAR(sum_of_bias(rate, {"--weight-decay", "2", "--bias-lr", rate}), start * (1 - 0.0625 * 2),
                1e-6);  // a sum of ten values below 0.2 in f32
}

TEST(FineTuningStem, IsThatOfTheFile) {
  const Workshop workshop;
  write_color_directories(workshop.path("colors"), 16, 2);
  const auto train = [&](const std::string& out, const Arguments& more) {
    return workshop.run(
        "convoy-train",
        with({"--model", "resnet18", "--dataset", "folder", "--data", workshop.path("colors").string(),
              "--out", workshop.path(out).string(), "--batch-size", "2", "--threads", "1", "--device", "cpu",
              "--eval-every", "0", "--max-steps", "1"},
             more));
  };
  ASSERT_EQ(train("base", {"--image-size", "66"}).exit_code, 0);
  ASSERT_THAT(train("tuned", {"--image-size", "32", "--init-from", workshop.path("base").string()}),
              Prints(HasSubstr("resnet18 with the imagenet stem")));
}

/// A server of pre-trained weights, and a cache of its own.
class PretrainedWeights : public ::testing::Test {
 protected:
  PretrainedWeights() {
    write_color_directories(workshop_.path("colors"), 16, 2);
    EXPECT_EQ(train("base", {}).exit_code, 0);
    tensors_ = tensors_of(last_checkpoint(workshop_, "base"));
  }
  ProcessResult train(const std::string& out, const Arguments& more, const std::string& server = "") const {
    return workshop_.run("convoy-train",
                         with({"--model",      "resnet18",
                               "--dataset",    "folder",
                               "--data",       workshop_.path("colors").string(),
                               "--out",        workshop_.path(out).string(),
                               "--batch-size", "2",
                               "--threads",    "1",
                               "--device",     "cpu",
                               "--eval-every", "0",
                               "--max-steps",  "1",
                               "--image-size", "32"},
                              more),
                         {.environment = {{"XDG_CACHE_HOME", workshop_.path("cache").string()},
                                          {"CONVOY_MODELS_URL", server},
                                          {"no_proxy", "*"}}});
  }
  /// Returns the weights as the documented command writes them.
  std::string converted(const std::string& source_sha256) const {
    std::vector<io::NamedTensor> sorted = tensors_;
    std::erase_if(sorted, [](const io::NamedTensor& each) { return !is_floating(each.tensor.dtype()); });
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    std::vector<std::string_view> bytes;
    for (const io::NamedTensor& each : sorted)
      bytes.emplace_back(each.tensor.view().as<char>(), each.tensor.bytes());
    return io::encode_safetensors(
        tensors_, {{"source_sha256", source_sha256}, {"content_sha256", data::sha256_of(bytes)}});
  }
  fs::path cached() const { return workshop_.path("cache/convoy/models/resnet18-imagenet.safetensors"); }

  const Workshop workshop_;
  std::vector<io::NamedTensor> tensors_;
  const std::string official_ = "f37072fd" + std::string(56, '0');
  const Arguments by_name_ = {"--init-from", "resnet18-imagenet", "--lr", "0"};
};

TEST_F(PretrainedWeights, AreFetchedOnceAndKeptInTheCache) {
  EXPECT_THAT(train("missing", by_name_),
              FailsWith(5, "found no " + cached().string() +
                               "; download https://download.pytorch.org/models/"
                               "resnet18-f37072fd.pth, and convert it once with: mkdir -p "));
  const std::string file = converted(official_);
  HttpServer server([&](const HttpRequest& request) { return serve(request, file); });
  server.start();
  ASSERT_THAT(train("fetched", by_name_, server.url("/weights")), Succeeds());
  ASSERT_EQ(server.requests().size(), 1u);
  EXPECT_EQ(server.requests()[0].path, "/weights/resnet18-imagenet.safetensors");
  EXPECT_EQ(read_text(cached()), file);
  ASSERT_THAT(train("cached", by_name_), Succeeds());
  workshop_.directory().write("given.safetensors", file);
  ASSERT_THAT(train("given", {"--init-from", workshop_.path("given.safetensors").string(), "--lr", "0"}),
              Succeeds());
  for (const char* out : {"fetched", "cached"})
    EXPECT_EQ(workshop_.result(out)["parameters_hash"], workshop_.result("given")["parameters_hash"]) << out;
}

TEST_F(PretrainedWeights, AreRefusedWithOtherChecksums) {
  const std::string other = converted("00000000" + std::string(56, '0'));
  HttpServer server([&](const HttpRequest& request) { return serve(request, other); });
  server.start();
  EXPECT_THAT(train("run", by_name_, server.url("")),
              FailsWith(5, "expected f37072fd…, that of resnet18-f37072fd.pth"));
  EXPECT_FALSE(fs::exists(cached())) << "a file that does not fit is not kept";

  std::string file = converted(official_);
  file.back() = static_cast<char>(file.back() ^ 1);
  workshop_.directory().write(cached().lexically_relative(workshop_.path("")), file);
  EXPECT_THAT(train("run", by_name_),
              FailsWith(5, "resnet18-imagenet.safetensors: found tensors of SHA-256 "));
  EXPECT_TRUE(fs::exists(cached())) << "a file of the user is kept";
  workshop_.directory().write(cached().lexically_relative(workshop_.path("")),
                              io::encode_safetensors(tensors_));
  EXPECT_THAT(train("run", by_name_), FailsWith(5, "found source_sha256 \"none\" in its metadata"));
}

// The same batch in each step, and a rate of 0, so that all steps have the same statistics.
TEST(RunningStatistics, AreThoseOfTheBatchesSoFarWhateverTheInitialValues) {
  const Workshop workshop;
  const auto statistics = [&](const std::string& out, const Arguments& more) {
    EXPECT_THAT(
        workshop.train(
            out, with({"--model", "resnet20", "--image-size", "8", "--overfit-batch", "--lr", "0"}, more)),
        Succeeds());
    Values values = values_of(last_checkpoint(workshop, out));
    std::erase_if(values, [](const auto& each) { return each.first.find("running_") == std::string::npos; });
    return values;
  };
  for (const auto& [name, more] :
       std::map<std::string, Arguments>{{"plain", {}},
                                        {"ema", {"--ema", "0.99"}},
                                        {"sync", {"--devices", "2", "--sync-bn"}},
                                        {"mean", {"--devices", "2", "--bn-buffers", "mean"}}}) {
    const Values one = statistics(name + "1", with(more, {"--max-steps", "1"})),
                 four = statistics(name + "4", with(more, {"--max-steps", "4"}));
    for (const auto& [tensor, values] : one)
      EXPECT_THAT(four.at(tensor), ::testing::Pointwise(::testing::FloatNear(1e-4F), values))
          << name << ": " << tensor;
  }
  // Those of a file count as statistics of many batches: momentum 0.1, as in PyTorch.
  std::vector<io::NamedTensor> tensors = tensors_of(last_checkpoint(workshop, "plain1"));
  float mean = 0;
  for (io::NamedTensor& each : tensors)
    if (each.name == "bn1.running_mean") {
      mean = each.tensor.to_vector<float>()[0];
      each.tensor = Tensor::full(each.tensor.shape(), 5, DType::f32, Device::cpu());
    }
  const fs::path file = workshop.path("five.safetensors");
  std::ofstream(file, std::ios::binary) << io::encode_safetensors(tensors);
  const Values tuned = statistics("tuned", {"--max-steps", "1", "--init-from", file.string()});
  EXPECT_NEAR(tuned.at("bn1.running_mean")[0], 0.9 * 5 + 0.1 * mean, 1e-4);
}

TEST(LargeLoss, IsWarnedOfOnceAndIsNeverTheBest) {
  const Workshop workshop;
  ASSERT_THAT(workshop.train("base", {"--max-steps", "1"}), Succeeds());
  std::vector<io::NamedTensor> tensors = tensors_of(last_checkpoint(workshop, "base"));
  for (io::NamedTensor& each : tensors) {  // the last layer
    std::vector<float> values = each.tensor.to_vector<float>();
    if (each.tensor.shape()[0] == 10)
      for (float& value : values) value *= 1e12F;
    each.tensor = Tensor::from(values, each.tensor.shape(), Device::cpu());
  }
  const fs::path file = workshop.path("large.safetensors");
  std::ofstream(file, std::ios::binary) << io::encode_safetensors(tensors);
  const ProcessResult run =
      workshop.train("run", {"--init-from", file.string(), "--lr", "0", "--epochs", "2"});
  ASSERT_THAT(run, Succeeds());
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("warning: the training loss of step 1 is "),
                    HasSubstr(", far above 2.30, that of equal probabilities; lower --lr (now 0)\n"),
                    ContainsRegex("test accuracy .*%, loss [1-9][.0-9]*e[+]1"), Not(HasSubstr("(best"))));
  EXPECT_EQ(workshop.events("run", "warning").size(), 1u);
  for (const Json& each : workshop.events("run", "eval")) EXPECT_EQ(each["best"], false);
  EXPECT_FALSE(workshop.result("run").contains("best_accuracy"));
  EXPECT_THAT(workshop.run("convoy-evaluate", {"--checkpoint", workshop.path("run").string()}),
              Prints(ContainsRegex("loss +[1-9][.0-9]*e[+]1")));
}

}  // namespace
}  // namespace convoy::testing
