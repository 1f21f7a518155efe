#include "tests/testing/support/two_hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <stdexcept>
#include <vector>

#include "tests/testing/support/process.h"

namespace convoy::testing {
namespace {

/// Runs a program of iproute2 without a shell. Returns "" on success, otherwise its output.
std::string run_tool(const std::string& name, std::vector<std::string> arguments) {
  for (const char* directory : {"/usr/sbin/", "/sbin/", "/usr/bin/"}) {
    const std::string program = directory + name;
    if (access(program.c_str(), X_OK) != 0) continue;
    arguments.insert(arguments.begin(), program);
    const ProcessResult result = run_program(arguments);
    return result.exit_code == 0 ? "" : result.err + result.out + " ";
  }
  return "the program " + name + " (iproute2) is not installed";
}

std::string ip(const std::vector<std::string>& arguments) { return run_tool("ip", arguments); }

}  // namespace

TwoHosts::TwoHosts() {
  const std::string id = std::to_string(getpid());
  names_ = {"convoy-a-" + id, "convoy-b-" + id};
  const auto run = [&](const std::vector<std::string>& arguments) {
    if (unavailable_reason_.empty()) unavailable_reason_ = ip(arguments);
  };
  for (const std::string& name : names_) run({"netns", "add", name});
  // Both ends are created inside the namespaces, so the network of this machine does not change.
  run({"-n", names_[0], "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", names_[1]});
  for (int host = 0; host < 2; ++host) {
    run({"-n", name(host), "addr", "add", address(host) + "/24", "dev", "cable"});
    run({"-n", name(host), "link", "set", "cable", "up"});
    run({"-n", name(host), "link", "set", "lo", "up"});
  }
}

TwoHosts::~TwoHosts() {
  for (const std::string& name : names_) ip({"netns", "del", name});
}

void TwoHosts::enter(int host) const {
  const int file = open(("/var/run/netns/" + name(host)).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 || setns(file, CLONE_NEWNET) != 0) throw std::runtime_error("cannot enter " + name(host));
  close(file);
}

void TwoHosts::disconnect() const { ip({"-n", name(0), "link", "set", "cable", "down"}); }

void TwoHosts::connect() const { ip({"-n", name(0), "link", "set", "cable", "up"}); }

std::string TwoHosts::limit_rate(const std::string& rate) const {
  std::string problem;
  for (const std::string& name : names_)
    problem += run_tool("tc", {"-n", name, "qdisc", "replace", "dev", "cable", "root", "tbf", "rate", rate,
                               "burst", "32kbit", "latency", "400ms"});
  return problem;
}

}  // namespace convoy::testing
