#include "tests/apps/programs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "convoy/kernels/base/random.h"
#include "tests/apps/log_schema.h"

namespace convoy::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kSide = 28;

std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

std::string little_endian(std::uint32_t value) {
  return {static_cast<char>(value), static_cast<char>(value >> 8), static_cast<char>(value >> 16),
          static_cast<char>(value >> 24)};
}

void write_idx(const fs::path& directory, const std::string& split, int count, std::uint64_t seed) {
  const Random random{.seed = seed, .purpose = RandomPurpose::test};
  std::string images = big_endian(0x803) + big_endian(static_cast<std::uint32_t>(count)) + big_endian(kSide) +
                       big_endian(kSide);
  std::string labels = big_endian(0x801) + big_endian(static_cast<std::uint32_t>(count));
  for (int i = 0; i < count; ++i) {
    const int label = i % 10;
    const int top = 3 + 12 * (label / 5), left = 1 + 5 * (label % 5);
    for (int p = 0; p < kSide * kSide; ++p) {
      const int y = p / kSide - top, x = p % kSide - left;
      const bool inside = 0 <= y && y < 9 && 0 <= x && x < 6;
      const std::uint32_t noise =
          random.words(static_cast<std::uint64_t>(i), static_cast<std::uint32_t>(p))[0];
      images += static_cast<char>((inside ? 120 : 0) + noise % 136);
    }
    labels += static_cast<char>(label);
  }
  std::ofstream(directory / (split + "-images-idx3-ubyte"), std::ios::binary) << images;
  std::ofstream(directory / (split + "-labels-idx1-ubyte"), std::ios::binary) << labels;
}

}  // namespace

Arguments with(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

::testing::Matcher<const ProcessResult&> Succeeds() {
  return ::testing::Field("exit_code", &ProcessResult::exit_code, 0);
}

::testing::Matcher<const ProcessResult&> Prints(const ::testing::Matcher<const std::string&>& out) {
  return ::testing::AllOf(Succeeds(), ::testing::Field("out", &ProcessResult::out, out));
}

::testing::Matcher<const ProcessResult&> FailsWith(int code, const std::string& text) {
  return ::testing::AllOf(::testing::Field("exit_code", &ProcessResult::exit_code, code),
                          ::testing::Field("err", &ProcessResult::err, ::testing::HasSubstr(text)));
}

void PrintTo(const ProcessResult& result, std::ostream* out) { *out << result.out << result.err; }

std::string program(const std::string& name) {
  // Next to the test executable, because the build directory may have been copied to another machine.
  return fs::read_symlink("/proc/self/exe").parent_path() / name;
}

void write_digits(const fs::path& directory, int train, int test) {
  fs::create_directories(directory);
  write_idx(directory, "train", train, 1);
  write_idx(directory, "t10k", test, 2);
}

std::string solid_bmp(int width, int height, unsigned char red, unsigned char green, unsigned char blue) {
  const int row = (3 * width + 3) / 4 * 4;
  const auto pixels = static_cast<std::uint32_t>(row * height);
  std::string bytes = "BM" + little_endian(54 + pixels) + little_endian(0) + little_endian(54);
  bytes += little_endian(40) + little_endian(static_cast<std::uint32_t>(width)) +
           little_endian(static_cast<std::uint32_t>(height));
  bytes += std::string({1, 0, 24, 0}) + little_endian(0) + little_endian(pixels) + std::string(16, '\0');
  for (int y = 0; y < height; ++y) {
    std::string line;
    for (int x = 0; x < width; ++x)
      line += {static_cast<char>(blue), static_cast<char>(green), static_cast<char>(red)};
    line.resize(static_cast<std::size_t>(row));
    bytes += line;
  }
  return bytes;
}

void write_color_directories(const fs::path& directory, int size, int per_class) {
  const std::string names[] = {"blue", "green", "red"};
  for (const char* split : {"train", "test"})
    for (int c = 0; c < 3; ++c) {
      const fs::path place = directory / split / names[c];
      fs::create_directories(place);
      for (int i = 0; i < per_class; ++i) {
        const auto bright = static_cast<unsigned char>(120 + 130 * i / per_class);
        const unsigned char none = 20;
        std::ofstream(place / ("image" + std::to_string(100 + i) + ".bmp"), std::ios::binary)
            << solid_bmp(size, size, c == 2 ? bright : none, c == 1 ? bright : none, c == 0 ? bright : none);
      }
    }
}

Workshop::Workshop() { write_digits(path("digits")); }

Arguments Workshop::train_arguments(const std::string& out, const Arguments& more) const {
  Arguments arguments = {program("convoy-train"),
                         "--model",
                         "lenet",
                         "--dataset",
                         "mnist",
                         "--data",
                         path("digits"),
                         "--out",
                         path(out),
                         "--device",
                         "cpu",
                         "--threads",
                         "1",
                         "--workers",
                         "1"};
  const auto has = [&](const char* flag) { return std::find(more.begin(), more.end(), flag) != more.end(); };
  if (!has("--batch-size")) arguments.insert(arguments.end(), {"--batch-size", "32"});
  // The default of batches of 128, so that two epochs learn something.
  if (!has("--batch-size") && !has("--lr") && !has("--optimizer") && !has("--model") && !has("--config"))
    arguments.insert(arguments.end(), {"--lr", "0.05"});
  if (!has("--epochs") && !has("--max-steps")) arguments.insert(arguments.end(), {"--epochs", "2"});
  if (!has("--log-every")) arguments.insert(arguments.end(), {"--log-every", "1"});
  // Removes the flags above that `more` overrides.
  for (std::size_t i = 1; i + 1 < arguments.size(); i += 2)
    if (has(arguments[i].c_str())) {
      arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(i),
                      arguments.begin() + static_cast<std::ptrdiff_t>(i + 2));
      i -= 2;
    }
  return with(arguments, more);
}

ProcessResult Workshop::train(const std::string& out, const Arguments& more) const {
  return run_program(train_arguments(out, more));
}

ProcessResult Workshop::run(const std::string& name, const Arguments& arguments,
                            const ProcessOptions& options) const {
  return run_program(with({program(name)}, arguments), options);
}

std::vector<Json> Workshop::log(const std::string& out) const {
  std::vector<Json> events;
  std::istringstream lines(read_text(path(out) / "log.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    if (lines.eof()) break;  // a line without its end: it is being written, or its writer was killed
    const Json event = Json::parse(line, nullptr, false);
    EXPECT_TRUE(event.is_object()) << line;
    EXPECT_EQ(log_violation(event), "") << line;
    events.push_back(event);
  }
  return events;
}

std::vector<Json> Workshop::events(const std::string& out, const std::string& event) const {
  std::vector<Json> chosen;
  for (const Json& line : log(out))
    if (line.value("event", "") == event) chosen.push_back(line);
  return chosen;
}

Json Workshop::result(const std::string& out) const {
  const std::vector<Json> results = events(out, "result");
  EXPECT_EQ(results.size(), 1u) << out;
  return results.empty() ? Json::object() : results.back();
}

Json Workshop::trained(const std::string& out, const Arguments& more) const {
  EXPECT_THAT(train(out, more), Succeeds());
  return result(out);
}

std::string Workshop::trained_hash(const std::string& out, const Arguments& more) const {
  return trained(out, more).value("parameters_hash", "");
}

Json Workshop::evaluated(const std::string& checkpoint, const Arguments& more,
                         const ProcessOptions& options) const {
  const std::string json = path("evaluated.json");
  EXPECT_THAT(
      run("convoy-evaluate",
          with({"--checkpoint", checkpoint, "--json", json, "--threads", "1", "--device", "cpu"}, more),
          options),
      Succeeds());
  return Json::parse(read_text(json), nullptr, false);
}

std::vector<double> Workshop::numbers(const std::string& out, const std::string& event,
                                      const std::string& field) const {
  std::vector<double> values;
  for (const Json& each : events(out, event)) values.push_back(each[field].get<double>());
  return values;
}

std::string Workshop::checkpoint(const std::string& out, int step) const {
  return path(out) / "checkpoints" / fmt::format("step_{:06}", step);
}

std::string error_line(const ProcessResult& run) {
  std::string found;
  int count = 0;
  std::istringstream lines(run.err);
  for (std::string line; std::getline(lines, line);)
    if (line.find("error:") != std::string::npos) {
      found = line;
      ++count;
    }
  EXPECT_EQ(count, 1) << run.err;
  return found;
}

std::string read_text(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<fs::path> checkpoints_of(const fs::path& out) {
  std::vector<fs::path> found;
  if (fs::is_directory(out / "checkpoints"))
    for (const auto& entry : fs::directory_iterator(out / "checkpoints"))
      if (entry.path().filename().string().starts_with("step_")) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace convoy::testing
