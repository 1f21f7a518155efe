#include "tests/testing/support/two_hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <stdexcept>
#include <vector>

#include "tests/testing/support/process.h"

namespace convoy::testing {
namespace {

/// Runs `ip` without a shell. Returns "" on success, otherwise its output.
std::string ip(std::vector<std::string> arguments) {
  for (const char* program : {"/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip"}) {
    if (access(program, X_OK) != 0) continue;
    arguments.insert(arguments.begin(), program);
    const ProcessResult result = run_program(arguments);
    return result.exit_code == 0 ? "" : result.err + result.out + " ";
  }
  return "the program ip (iproute2) is not installed";
}

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

}  // namespace convoy::testing
