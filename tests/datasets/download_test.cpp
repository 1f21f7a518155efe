#include "convoy/datasets/download/download.h"
#include "convoy/datasets/formats/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "convoy/kernels/base/error.h"
#include "convoy/kernels/base/random.h"
#include "tests/testing/support/flock_fault.h"
#include "tests/testing/support/http_server.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::HttpReply;
using testing::HttpRequest;
using testing::HttpServer;
using ::testing::Not;
using testing::serve;
using testing::TempDirectory;

constexpr std::int64_t kSize = 1'000'003;  // odd, and larger than the buffers of a socket

const std::string& random_bytes() {
  static const std::string made = [] {
    const Random random{7, RandomPurpose::test};
    std::string bytes(static_cast<std::size_t>(kSize), '\0');
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(random.words(i)[0]);
    return bytes;
  }();
  return made;
}

class Download : public ::testing::Test {
 protected:
  Download() {
    for (const char* name : {"http_proxy", "all_proxy", "ALL_PROXY"})
      unsetenv(name);  // no proxy for the loopback address
    md5 = data::md5_of_file(directory.write("expected", body));
    options.backoff_ms = 1;
  }

  data::RemoteFile at(const HttpServer& server, const std::string& path = "/data.bin") const {
    return {.url = server.url(path), .name = "data.bin", .md5 = md5};
  }
  fs::path target() const { return data / "data.bin"; }
  fs::path part() const { return data / "data.bin.part"; }

  /// Returns the message of the DataError that a download from `server` throws.
  std::string refusal(const std::vector<data::RemoteFile>& mirrors) const {
    try {
      data::download(mirrors, data, options);
    } catch (const DataError& error) {
      return error.what();
    }
    return "no DataError";
  }

  TempDirectory directory;
  const fs::path data = directory.path() / "cache" / "data";
  const std::string& body = random_bytes();
  std::string md5;
  data::DownloadOptions options;
};

TEST_F(Download, ComputesTheChecksumsOfTheStandard) {
  // RFC 1321, appendix A.5.
  EXPECT_EQ(data::md5_of_file(directory.write("empty", "")), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(data::md5_of_file(directory.write("abc", "abc")), "900150983cd24fb0d6963f7d28e17f72");
  // FIPS 180-2, appendix B.1.
  const std::vector<std::string_view> parts = {"a", "", "bc"};
  EXPECT_EQ(data::sha256_of(parts), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_THROW(data::md5_of_file(directory.path() / "missing"), DataError);
}

TEST_F(Download, DownloadsTheFileOnceAndLeavesNoOtherFiles) {
  HttpServer server([&](const HttpRequest& request) { return serve(request, body); });
  server.start();
  EXPECT_EQ(data::download({at(server)}, data, options), target());
  EXPECT_EQ(testing::contents_of(target()), body);
  data::download({at(server)}, data, options);  // the file exists: no request
  EXPECT_EQ(server.requests().size(), 1u);
  EXPECT_EQ(std::distance(fs::directory_iterator(data), fs::directory_iterator()), 1);
}

TEST_F(Download, ResumesAfterABrokenConnection) {
  HttpServer server([&](const HttpRequest& request) {
    HttpReply reply = serve(request, body);
    if (request.number < 4) reply.hang_up_after = 150'000 + request.number;
    return reply;
  });
  server.start();
  data::download({at(server)}, data, options);
  EXPECT_EQ(testing::contents_of(target()), body);
  EXPECT_EQ(server.requests().size(), 5u);
  EXPECT_EQ(server.requests()[1].range_begin, 150'000);
  EXPECT_EQ(server.body_bytes(), kSize);  // no byte is sent twice
}

TEST_F(Download, DownloadsEverythingFromAServerWithoutRanges) {
  HttpServer server([&](const HttpRequest& request) {
    return HttpReply{.body = body, .hang_up_after = request.number == 0 ? kSize / 2 : -1};
  });
  server.start();
  data::download({at(server)}, data, options);
  EXPECT_EQ(testing::contents_of(target()), body);
  EXPECT_EQ(server.requests()[1].range_begin, kSize / 2);
  EXPECT_EQ(server.body_bytes(), kSize / 2 + kSize);
}

TEST_F(Download, RestartsAfterAWrongRange) {
  HttpServer server([&](const HttpRequest& request) {
    if (request.number == 0) return HttpReply{.body = body, .hang_up_after = 1000};
    HttpReply reply = serve(request, body);
    if (request.number == 1) reply.headers = "Content-Range: bytes 7-1000002/1000003\r\n";
    return reply;
  });
  server.start();
  data::download({at(server)}, data, options);
  EXPECT_EQ(testing::contents_of(target()), body);
  EXPECT_EQ(server.requests().size(), 3u);
  EXPECT_EQ(server.requests()[2].range_begin, -1);
}

TEST_F(Download, FollowsARedirect) {
  HttpServer server([&](const HttpRequest& request) {
    if (request.path == "/data.bin") return HttpReply{.status = 302, .headers = "Location: /elsewhere\r\n"};
    return serve(request, body);
  });
  server.start();
  data::download({at(server)}, data, options);
  EXPECT_EQ(testing::contents_of(target()), body);
}

TEST_F(Download, ReplacesAStalePartialFile) {
  directory.write("cache/data/data.bin.part", std::string(1000, 'x'));
  HttpServer server([&](const HttpRequest& request) { return serve(request, body); });
  server.start();
  data::download({at(server)}, data, options);
  EXPECT_EQ(testing::contents_of(target()), body);
  EXPECT_EQ(server.requests().size(), 2u);
}

TEST_F(Download, ACompletePartialFileNeedsNoTransfer) {
  directory.write("cache/data/data.bin.part", body);  // killed between the last byte and the rename
  HttpServer server([&](const HttpRequest& request) { return serve(request, body); });
  server.start();
  data::download({at(server)}, data, options);
  EXPECT_EQ(testing::contents_of(target()), body);
  EXPECT_EQ(server.body_bytes(), 0);
}

TEST_F(Download, RetriesWrongContentAndThenFails) {
  HttpServer server([&](const HttpRequest& request) { return serve(request, "<html>log in first</html>"); });
  server.start();
  const std::string message = refusal({at(server)});
  EXPECT_EQ(server.requests().size(), 5u);
  EXPECT_THAT(message, HasSubstr("data.bin could not be downloaded: " + server.url("/data.bin") + ": MD5 "));
  EXPECT_THAT(message, HasSubstr(" of 25 bytes, expected " + md5 + " (5 attempts)"));
  EXPECT_THAT(message, HasSubstr(data.string()));
  EXPECT_FALSE(fs::exists(part()));
  EXPECT_FALSE(fs::exists(target()));
}

TEST_F(Download, ReplacesAWrongFileOnlyByTheRightOne) {
  directory.write("cache/data/data.bin", "mine");
  HttpServer server([&](const HttpRequest& request) {
    return request.number == 0 ? HttpReply{.status = 404} : serve(request, body);
  });
  server.start();
  refusal({at(server)});
  EXPECT_EQ(testing::contents_of(target()), "mine");
  data::download({at(server)}, data, options);
  EXPECT_EQ(testing::contents_of(target()), body);
}

TEST_F(Download, ContinuesAtTheNextMirrorWithThePartialFile) {
  HttpServer server([&](const HttpRequest& request) {
    if (request.path == "/gone") return HttpReply{.status = 404};
    HttpReply reply = serve(request, body);
    if (request.path == "/breaks") reply.hang_up_after = 1000;
    return reply;
  });
  server.start();
  options.attempts = 2;
  data::download({at(server, "/gone"), at(server, "/breaks"), at(server, "/good")}, data, options);
  EXPECT_EQ(testing::contents_of(target()), body);
  std::vector<std::string> paths;
  for (const HttpRequest& request : server.requests()) paths.push_back(request.path);
  EXPECT_EQ(paths, (std::vector<std::string>{"/gone", "/breaks", "/breaks", "/good"}));
  EXPECT_EQ(server.requests().back().range_begin, 2000);
}

TEST_F(Download, ReportsWhyEachMirrorFailed) {
  HttpServer server([&](const HttpRequest& request) {
    if (request.path == "/gone") return HttpReply{.status = 404};
    if (request.path == "/busy") return HttpReply{.status = 503};
    HttpReply reply = serve(request, body);
    reply.hang_up_after = 1000;
    return reply;
  });
  server.start();
  options.attempts = 2;
  const std::string message = refusal({at(server, "/gone"),
                                       at(server, "/busy"),
                                       at(server, "/breaks"),
                                       {.url = "ftp://127.0.0.1/x", .name = "data.bin", .md5 = md5},
                                       {.url = "http://host.invalid/x", .name = "data.bin", .md5 = md5}});
  EXPECT_THAT(message, HasSubstr("/gone: HTTP 404; "));  // not retried
  EXPECT_THAT(message, HasSubstr("/busy: HTTP 503 (2 attempts); "));
  EXPECT_THAT(message, HasSubstr(" after 2000 of 1000003 bytes (2 attempts); "));  // 1000 in each
  EXPECT_THAT(message, HasSubstr("ftp://127.0.0.1/x: "));
  EXPECT_THAT(message, HasSubstr("http://host.invalid/x: "));  // RFC 2606: never resolves
  EXPECT_THAT(message, Not(HasSubstr("\n")));
  EXPECT_EQ(server.requests().size(), 5u);
  EXPECT_TRUE(fs::exists(part()));
}

TEST_F(Download, ReportsARefusedConnection) {
  std::string url;
  {
    const HttpServer server([](const HttpRequest&) { return HttpReply{}; });
    url = server.url("/data.bin");
  }
  EXPECT_THAT(refusal({{.url = url, .name = "data.bin", .md5 = md5}}), HasSubstr(url + ": "));
}

TEST_F(Download, AStalledTransferFails) {
  HttpServer server([&](const HttpRequest& request) {
    HttpReply reply = serve(request, body);
    if (request.number == 0) reply.stall_after = 5000;
    return reply;
  });
  server.start();
  options.stall_seconds = 1;
  const auto start = std::chrono::steady_clock::now();
  data::download({at(server)}, data, options);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
  EXPECT_EQ(testing::contents_of(target()), body);
  EXPECT_EQ(server.requests()[1].range_begin, 5000);
}

TEST_F(Download, ASlowServerIsNotAStalledOne) {
  HttpServer server([&](const HttpRequest& request) {
    HttpReply reply = serve(request, body);
    reply.bytes_per_ms = kSize / 2500;  // 2.5 s in total, 10 ms between chunks
    return reply;
  });
  server.start();
  options.stall_seconds = 2;
  std::vector<std::pair<std::int64_t, std::int64_t>> seen;
  options.progress = [&](std::int64_t received, std::int64_t total) { seen.emplace_back(received, total); };
  data::download({at(server)}, data, options);
  EXPECT_EQ(server.requests().size(), 1u);
  ASSERT_GE(seen.size(), 3u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.front().second, kSize);
  EXPECT_EQ(seen.back(), std::pair(kSize, kSize));
}

TEST_F(Download, TheProgressCallbackCanStopTheDownload) {
  HttpServer server([&](const HttpRequest& request) {
    HttpReply reply = serve(request, body);
    reply.bytes_per_ms = 500;
    return reply;
  });
  server.start();
  options.progress = [](std::int64_t, std::int64_t) { throw std::runtime_error("stopped"); };
  EXPECT_THROW(data::download({at(server)}, data, options), std::runtime_error);
  EXPECT_TRUE(fs::exists(part()));
  EXPECT_EQ(server.requests().size(), 1u);
}

TEST_F(Download, AnInvalidDirectoryIsAnOutputError) {
  directory.write("cache", "a file where the directory should be");
  EXPECT_THROW(
      data::download({{.url = "http://127.0.0.1:1/x", .name = "data.bin", .md5 = md5}}, data, options),
      OutputError);
  EXPECT_THROW(
      data::download({{.url = "http://127.0.0.1:1/x", .name = "../data.bin", .md5 = md5}}, data, options),
      UsageError);
}

TEST_F(Download, AFullDiskIsAnOutputErrorAtOnce) {
  HttpServer server([&](const HttpRequest& request) { return serve(request, body); });
  server.start();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limited{.rlim_cur = 100'000, .rlim_max = before.rlim_max};
  const auto previous =
      std::signal(SIGXFSZ, SIG_IGN);  // write() then fails with EFBIG, as it would with ENOSPC
  setrlimit(RLIMIT_FSIZE, &limited);
  std::string message;
  try {
    data::download({at(server)}, data, options);
  } catch (const OutputError& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, previous);
  EXPECT_THAT(message, HasSubstr("data.bin.part: cannot be written after 100000 bytes: "));
  EXPECT_EQ(server.requests().size(), 1u);
  data::download({at(server)}, data, options);  // resumes when there is space again
  EXPECT_EQ(server.requests()[1].range_begin, 100'000);
}

/// Forks a child process that downloads, and whose exit status is 0 on success. Must be called before the
/// server starts threads.
pid_t fork_download(const data::RemoteFile& file, const fs::path& data,
                    const data::DownloadOptions& options) {
  const pid_t child = fork();
  if (child != 0) return child;
  int status = 1;
  try {
    data::download({file}, data, options);
    status = 0;
  } catch (...) {
  }
  _exit(status);
}

TEST_F(Download, EightProcessesAtOnceDownloadOnce) {
  HttpServer server([&](const HttpRequest& request) {
    HttpReply reply = serve(request, body);
    reply.bytes_per_ms = 10'000;  // 100 ms: long enough for all downloads to overlap
    if (request.number < 2) reply.hang_up_after = kSize / 4;
    return reply;
  });
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) children.push_back(fork_download(at(server), data, options));
  server.start();
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(testing::contents_of(target()), body);
  EXPECT_EQ(server.requests().size(), 3u);
  EXPECT_EQ(server.body_bytes(), kSize);
  EXPECT_FALSE(fs::exists(target().string() + ".lock"));
}

TEST_F(Download, SaysForWhichProcessItWaits) {
  HttpServer server([&](const HttpRequest& request) {
    HttpReply reply = serve(request, body);
    reply.bytes_per_ms = 10'000;
    return reply;
  });
  server.start();
  const pid_t child = fork_download(at(server), data, options);
  while (server.requests().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::vector<std::int64_t> holders;
  options.waiting = [&](std::int64_t holder) { holders.push_back(holder); };
  data::download({at(server)}, data, options);
  EXPECT_THAT(holders, ::testing::ElementsAre(child));
  waitpid(child, nullptr, 0);
}

TEST_F(Download, WorksOnAFileSystemWithoutLocks) {
  const testing::WithoutLocks without;
  HttpServer server([&](const HttpRequest& request) { return serve(request, body); });
  server.start();
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i) threads.emplace_back([&] { data::download({at(server)}, data, options); });
  }
  EXPECT_EQ(testing::contents_of(target()), body);
  EXPECT_EQ(std::distance(fs::directory_iterator(target().parent_path()), fs::directory_iterator()), 1);
}

TEST_F(Download, EightThreadsAtOnceDownloadOnce) {
  HttpServer server([&](const HttpRequest& request) { return serve(request, body); });
  server.start();
  std::atomic<int> good{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back(
          [&] { good += testing::contents_of(data::download({at(server)}, data, options)) == body ? 1 : 0; });
  }
  EXPECT_EQ(good, 8);
  EXPECT_EQ(server.body_bytes(), kSize);
}

TEST_F(Download, ResumesAKilledDownload) {
  HttpServer server([&](const HttpRequest& request) {
    HttpReply reply = serve(request, body);
    if (request.number == 0) reply.stall_after = 200'000;
    return reply;
  });
  const pid_t child = fork_download(at(server), data, options);
  server.start();
  std::error_code error;
  for (int waited = 0; waited < 60'000 && fs::file_size(part(), error) != 200'000; ++waited)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs::exists(target().string() + ".lock"));  // the file is left behind, but not locked
  data::download({at(server)}, data, options);
  EXPECT_EQ(testing::contents_of(target()), body);
  EXPECT_EQ(server.body_bytes(), kSize);
}

TEST_F(Download, OfficialFilesAreWellFormed) {
  const auto check_file = [](const data::Mirrors& mirrors) {
    ASSERT_FALSE(mirrors.empty());
    for (const data::RemoteFile& file : mirrors) {
      EXPECT_TRUE(file.url.starts_with("https://"));
      EXPECT_TRUE(file.url.ends_with("/" + file.name));
      EXPECT_EQ(file.md5.size(), 32u);
      EXPECT_EQ(file.md5, mirrors.front().md5);
    }
  };
  ASSERT_EQ(data::kCifar10Files.official().size(), 1u);
  ASSERT_EQ(data::kMnistFiles.official().size(), 4u);
  for (const data::DatasetEntry& entry : data::all_datasets())
    if (entry.files != nullptr)
      for (const data::Mirrors& mirrors : entry.files->official()) check_file(mirrors);
}

TEST_F(Download, TheCacheDirectoryFollowsTheEnvironment) {
  setenv("HOME", "/home/someone", 1);
  setenv("XDG_CACHE_HOME", "/var/cache/someone", 1);
  EXPECT_EQ(data::cache_directory(), "/var/cache/someone/convoy");
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(data::cache_directory(), "/home/someone/.cache/convoy");
  unsetenv("XDG_CACHE_HOME");
  unsetenv("HOME");
  EXPECT_THROW(data::cache_directory(), UsageError);
}

}  // namespace
}  // namespace convoy
