#include "tests/apps/job_traces.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

namespace convoy::testing {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();  // without an exception if the process exits meanwhile
  return text.str();
}

/// Returns the paths of the socket files of a process's network namespace, by what links in /proc/PID/fd show.
std::map<std::string, std::string> socket_files(const fs::path& process) {
  std::map<std::string, std::string> files;
  std::istringstream lines(read(process / "net/unix"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string number, count, protocol, flags, type, state, inode, path;
    fields >> number >> count >> protocol >> flags >> type >> state >> inode >> path;
    if (path.starts_with("/")) files["socket:[" + inode + "]"] = path;
  }
  return files;
}

}  // namespace

std::vector<pid_t> processes_with(const std::string& text) {
  std::vector<pid_t> found;
  std::error_code ignored;  // processes start and exit meanwhile
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (read(entry.path() / "cmdline").find(text) != std::string::npos)
      found.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return found;
}

void JobTraces::observe() {
  for (const pid_t id : processes_with(text_)) {
    const fs::path process = fs::path("/proc") / std::to_string(id);
    std::istringstream maps(read(process / "maps"));
    for (std::string line; std::getline(maps, line);)
      if (const std::size_t at = line.find("/dev/shm/"); at != std::string::npos)
        files_.insert(line.substr(at));
    const std::map<std::string, std::string> sockets = socket_files(process);
    std::error_code gone;
    for (const auto& entry : fs::directory_iterator(process / "fd", gone)) {
      const std::string target = fs::read_symlink(entry.path(), gone);
      if (target.starts_with("/dev/shm/")) files_.insert(target);
      if (const auto found = sockets.find(target); found != sockets.end()) files_.insert(found->second);
    }
  }
}

std::vector<std::string> JobTraces::remaining(std::chrono::seconds limit, const std::string& ignored) const {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (true) {
    std::vector<std::string> left;
    for (const pid_t id : processes_with(text_)) left.push_back("process " + std::to_string(id));
    for (const std::string& file : files_)
      if (!file.starts_with(ignored) && fs::exists(file)) left.push_back(file);
    if (left.empty() || std::chrono::steady_clock::now() > end) return left;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace convoy::testing
