#include "tests/support/two_hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <stdexcept>
#include <vector>

#include "tests/support/process.h"

namespace convoy::testing {
namespace {

/// "" or what `ip` has to say; no shell in between.
std::string ip(std::vector<std::string> arguments) {
  for (const char* program : {"/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip"}) {
    if (access(program, X_OK) != 0) continue;
    arguments.insert(arguments.begin(), program);
    const ProcessResult result = run_program(arguments);
    return result.exit_code == 0 ? "" : result.err + result.out + " ";
  }
  return "no program ip (iproute2)";
}

}  // namespace

TwoHosts::TwoHosts() {
  const std::string id = std::to_string(getpid());
  names_ = {"convoy-a-" + id, "convoy-b-" + id};
  const auto run = [&](const std::vector<std::string>& arguments) {
    if (why_not_.empty()) why_not_ = ip(arguments);
  };
  for (const std::string& name : names_) run({"netns", "add", name});
  // The ends are made inside: on this machine's own network nothing changes.
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

void TwoHosts::pull_the_cable() const { ip({"-n", name(0), "link", "set", "cable", "down"}); }

}  // namespace convoy::testing
