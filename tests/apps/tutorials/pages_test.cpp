// Tests that run the commands and the Python of the documentation, from its text, on small generated data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "tests/apps/find_python.h"
#include "tests/apps/tutorials/documented_project.h"
#include "tests/apps/tutorials/pages.h"
#include "tests/testing/source_tree/source_path.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

/// Pages whose commands other tests of this directory, launch_recipes_test.cpp and training_test.cpp run.
const std::vector<std::string> kOtherTests = {"docs/getting-started.md", "docs/launching.md",
                                              "docs/photographs.md"};

/// Returns whether a command only sets variables or defines a function, for the commands after it.
bool sets_variables(const std::string& command) {
  static const std::regex kVariables(
      "(?:export )?[A-Z_]+=(?:\"[^\"]*\"|\\S*)(?: [A-Z_]+=\\S*)*|\\w+\\(\\) \\{.*");
  return std::regex_match(command, kVariables);
}

/// Makes Python find the modules of python/, which record how they are called, before all others.
void use_recording_modules(DocumentedProject& project) {
  project.environment["PYTHONPATH"] = testing::source_path("tests/apps/tutorials/python");
  project.environment["PYTHONDONTWRITEBYTECODE"] = "1";
  project.environment["RECORDED_CALLS"] = project.path("calls.jsonl");
  project.environment["TORCHVISION_WEIGHTS"] = project.path("torchvision.safetensors");
}

class Pages : public ::testing::TestWithParam<Page> {};

TEST_P(Pages, CommandsSucceed) {
  DocumentedProject project;
  use_recording_modules(project);
  const ProcessResult prepared = project.run(GetParam().prepare);
  ASSERT_EQ(prepared.exit_code, 0) << GetParam().prepare << "\n" << prepared.out << prepared.err;
  const std::vector<PageCommand> commands = runnable_commands_of(GetParam().path);
  ASSERT_FALSE(commands.empty()) << "remove the row of this page";
  std::string variables, missing;
  for (const PageCommand& command : commands) {
    SCOPED_TRACE(std::string(GetParam().path) + ":" + std::to_string(command.line));
    if (!project.has_programs_of(command.text))
      missing += "\n" + command.text;
    else if (sets_variables(command.text))
      variables += command.text + "\n";
    else
      project.expect_success(variables + command.text);
  }
  if (!missing.empty()) GTEST_SKIP() << "this build does not have the programs of" << missing;
}

INSTANTIATE_TEST_SUITE_P(Documentation, Pages, ::testing::ValuesIn(pages().begin(), pages().end()),
                         [](const auto& page) {
                           std::string name = page.param.path;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

TEST(TorchLaunchers, StartTheRanksOfThePage) {
  const DocumentedProject project;
  std::vector<std::string> commands;
  for (const PageCommand& command : commands_of(testing::source_path("docs/from-pytorch.md")))
    if (command.text.starts_with("torchrun ") || command.text.starts_with("python3 -m torch."))
      commands.push_back(command.text);
  ASSERT_EQ(commands.size(), 4u);
  if (project
          .run("command -v torchrun && python3 -c 'import importlib.util as u, sys; "
               "sys.exit(u.find_spec(\"torch\") is None)'")
          .exit_code != 0)
    GTEST_SKIP() << "needs PyTorch: torchrun on the PATH, and a python3 that has torch";
  for (const std::string& command : commands) project.expect_success(command);
}

TEST(AllPages, HaveATest) {
  for (const std::string& page : all_pages()) {
    if (std::find(kOtherTests.begin(), kOtherTests.end(), page) != kOtherTests.end()) continue;
    const bool is_listed =
        std::any_of(pages().begin(), pages().end(), [&](const Page& row) { return page == row.path; });
    if (!is_listed)
      for (const PageCommand& command : runnable_commands_of(page))
        if (!sets_variables(command.text))
          ADD_FAILURE() << page << ":" << command.line << ": '" << command.text
                        << "' is run by no test; expected a row of the page in pages.cpp, or an exception";
  }
}

TEST(AllPages, HaveNoCommandOutsideOfBlocksWithALanguage) {
  // The languages of blocks whose lines are checked by a test, or are no commands. learn/book/record.py runs console.
  const std::vector<std::string> languages = {"sh",    "python", "gdb",     "cpp",
                                              "cmake", "json",   "console", "cuda"};
  static const std::regex kProgram(
      "convoy-[a-z-]+|scripts/\\S+|bench/\\S+|build/\\S+|python3?|c?make|ctest|cpack|export|mpirun|torchrun|srun|sbatch|"
      "git|gdb|docker|kubectl|apt-get|sudo|\\(gdb\\)");
  for (const std::string& page : all_pages())
    for (const Block& block : blocks_of(testing::source_path(page))) {
      if (block.language == "python") {  // PagesInPython, convoy_package_test.py
        EXPECT_THAT(page, ::testing::AnyOf("apps/python/README.md", "docs/files.md", "docs/from-pytorch.md",
                                           "docs/report.md"))
            << "no test runs this Python";
      }
      if (std::find(languages.begin(), languages.end(), block.language) != languages.end()) continue;
      EXPECT_THAT(block.language, ::testing::AnyOf("", "text")) << page << ":" << block.line;
      for (const std::string& line : block.lines)
        EXPECT_FALSE(std::regex_match(first_word(line), kProgram))
            << page << ":" << block.line << ": '" << line << "' is a command; expected a block of sh";
    }
}

// gdb finds a function by its name or by any end of its qualified name: "a::c" does not name a::b::c.
TEST(AllPages, SetBreakpointsAtFunctionsOfTheProject) {
  static const std::regex kBreak("\\(gdb\\) break ([\\w:]+).*");
  const ProcessResult symbols = run_program(
      {"/bin/sh", "-c",
       R"(nm -C --defined-only "$0" $(ldd "$0" | awk '/libconvoy/ {print $3}') | sed 's/^[0-9a-f]* [a-zA-Z] //')",
       program("convoy-train")});
  ASSERT_EQ(symbols.exit_code, 0) << symbols.err;
  int count = 0;
  for (const std::string& page : all_pages())
    for (const Block& block : blocks_of(testing::source_path(page)))
      for (const std::string& line : block.lines) {
        std::smatch match;
        if (block.language != "gdb" || !std::regex_match(line, match, kBreak)) continue;
        const auto is_defined = [&](const std::string& name) {
          for (std::size_t at = 0; (at = symbols.out.find(name, at)) != std::string::npos;
               at += name.size()) {
            const char before = at == 0 ? '\n' : symbols.out[at - 1], after = symbols.out[at + name.size()];
            if ((before == ' ' || before == ':' || before == '\n') && (after == '(' || after == '<'))
              return true;
          }
          return false;
        };
        EXPECT_TRUE(is_defined(match[1])) << page << ": " << line << ": the program has no such function";
        ++count;
      }
  EXPECT_GE(count, 3);
}

TEST(AllPages, NeedEachException) {
  std::string tests;  // the text of all tests
  for (const auto& entry : std::filesystem::recursive_directory_iterator(testing::source_path("tests")))
    if (const auto type = entry.path().extension(); type == ".cpp" || type == ".txt")
      tests += read_text(entry.path());
  std::set<const Exception*> needed;
  for (const std::string& page : all_pages()) {
    const auto file = testing::source_path(page);
    for (const PageCommand& command : commands_of(file)) needed.insert(exception_for(page, command.text));
    for (const PageCommand& span : spans_of(file)) needed.insert(exception_for(page, span.text));
  }
  // The name of a test is the first argument of TEST, convoy_python_test or package_test.
  for (const Exception& exception : exceptions()) {
    EXPECT_TRUE(needed.contains(&exception))
        << "no page has the command of the exception '" << exception.begins << "'";
    std::string name = exception.test;
    if (name.starts_with("package.")) name.erase(0, std::string("package.").size());
    EXPECT_TRUE(name.empty() || tests.find("(" + name) != std::string::npos)
        << exception.begins << ": there is no test " << name;
  }
}

class PagesInPython : public ::testing::Test {
 protected:
  PagesInPython() { use_recording_modules(project); }
  /// Runs a block of a page after other lines, and returns the recorded calls.
  std::vector<Json> run_block(const char* page, std::size_t index, const std::string& before = "",
                              std::size_t count = 3, const std::string& python = "python3") {
    std::vector<Block> blocks = blocks_of(testing::source_path(page));
    std::erase_if(blocks, [](const Block& block) { return block.language != "python"; });
    EXPECT_EQ(blocks.size(), count) << page << ": each block has a test here";
    std::string text = before;
    for (const std::string& line : blocks.at(index).lines) text += line + "\n";
    std::ofstream(project.path("block.py")) << text;
    const ProcessResult result = project.run(python + " block.py");
    EXPECT_EQ(result.exit_code, 0) << text << result.err;
    std::vector<Json> calls;
    std::ifstream lines(project.path("calls.jsonl"));
    for (std::string line; std::getline(lines, line);) calls.push_back(Json::parse(line));
    return calls;
  }
  void train(const std::string& flags) {
    ASSERT_THAT(project.run("convoy-train --max-steps 2 --log-every 1 " + flags), Succeeds());
  }
  static std::size_t count(const std::vector<Json>& calls, const char* name) {
    return static_cast<std::size_t>(
        std::count_if(calls.begin(), calls.end(), [&](const Json& call) { return call["call"] == name; }));
  }

  DocumentedProject project;
};

TEST_F(PagesInPython, TensorBoardWeightsAndBiasesAndMlflowGetEachEvent) {
  train("--model lenet --dataset mnist --out runs/a");
  std::size_t events = 0, numbers = 0;  // of steps, epochs and evaluations
  std::ifstream lines(project.path("runs/a/log.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json event = Json::parse(line);
    if (event["event"] != "step" && event["event"] != "epoch" && event["event"] != "eval") continue;
    ++events;
    for (const auto& [name, value] : event.items())
      numbers += name != "step" && (value.is_number() || value.is_boolean());
  }
  ASSERT_GE(events, 3u);
  const std::vector<Json> tensorboard = run_block("docs/report.md", 0);
  EXPECT_EQ(tensorboard.front()["log_dir"], "events/a");
  EXPECT_EQ(count(tensorboard, "add_scalar"), numbers);
  EXPECT_EQ(count(tensorboard, "close"), 1u);
  std::filesystem::remove(project.path("calls.jsonl"));
  const std::vector<Json> wandb = run_block("docs/report.md", 1);
  EXPECT_EQ(count(wandb, "wandb.init"), 1u);
  EXPECT_EQ(wandb.front()["config"]["model"], "lenet");
  EXPECT_EQ(count(wandb, "run.log"), events);
  EXPECT_EQ(wandb[1]["step"], 1);
  EXPECT_TRUE(wandb[1]["numbers"].contains("step/loss")) << wandb[1];
  std::filesystem::remove(project.path("calls.jsonl"));
  const std::vector<Json> mlflow = run_block("docs/report.md", 2);
  EXPECT_EQ(count(mlflow, "mlflow.start_run"), 1u);
  EXPECT_EQ(count(mlflow, "mlflow.log_params"), 1u);
  EXPECT_EQ(count(mlflow, "mlflow.log_metric"), numbers);
}

TEST_F(PagesInPython, PathsOfAnyBytesAreOpened) {
  for (const auto& [record, file] :
       {std::pair("{'path': 'M\\ufffdller', 'path_encoded': 'M%FCller'}", "M\xFCller"),
        std::pair("{'path': 'plain'}", "plain")}) {
    run_block("docs/files.md", 0,
              fmt::format("import atexit\nrecord = {}\natexit.register(lambda: open(path, 'w').close())\n",
                          record));
    EXPECT_TRUE(std::filesystem::exists(project.path(file))) << record;
  }
}

TEST_F(PagesInPython, TorchvisionGetsTheTensorsOfACheckpoint) {
  train("--model resnet18 --out OUT");
  std::filesystem::rename(project.path("OUT/checkpoints/step_000002"),
                          project.path("OUT/checkpoints/step_000391"));
  const std::vector<Json> calls = run_block("docs/files.md", 1, "import torch, torchvision\n");
  ASSERT_EQ(count(calls, "load_state_dict"), 1u);
  EXPECT_EQ(calls.back()["tensors"]["conv1.weight"], Json({64, 3, 3, 3}));
  EXPECT_EQ(calls.back()["tensors"]["fc.weight"], Json({10, 512}));
}

TEST_F(PagesInPython, CifarForPythonBecomesBinaryBatches) {
  const std::string python = find_python("numpy");
  if (python.empty()) GTEST_SKIP() << no_python("numpy");
  constexpr const char* kWrite = R"(
import os, pickle, numpy
os.makedirs("data/cifar-10-batches-py")
for n, name in enumerate([f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]):
    content = {b"labels": [n, 9], b"data": numpy.full((2, 3072), 10 + n, numpy.uint8)}
    content[b"data"][1, 7] = 77
    with open("data/cifar-10-batches-py/" + name, "wb") as file:
        pickle.dump(content, file, 2)
)";
  run_block("docs/from-pytorch.md", 0, kWrite, 1, python);
  const std::string batch = read_text(project.path("data/cifar-10-batches-bin/test_batch.bin"));
  std::string expected = '\5' + std::string(3072, '\17') + '\11' + std::string(3072, '\17');
  expected[3074 + 7] = 77;
  EXPECT_EQ(batch, expected);
  EXPECT_EQ(read_text(project.path("data/cifar-10-batches-bin/data_batch_1.bin")).size(), 2 * 3073u);
}

}  // namespace
}  // namespace convoy::testing
