#include "tests/testing/support/two_hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <stdexcept>
#include <vector>

#include "tests/testing/support/process.h"

namespace convoy::testing {
namespace {

/// Returns the path of a program of iproute2, or "".
std::string tool(const std::string& name) {
  for (const char* directory : {"/usr/sbin/", "/sbin/", "/usr/bin/"})
    if (access((directory + name).c_str(), X_OK) == 0) return directory + name;
  return "";
}

/// Runs a program of iproute2 without a shell. Throws std::runtime_error with its output if it fails.
void run_tool(const std::string& name, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), tool(name));
  const ProcessResult result = run_program(arguments);
  if (result.exit_code == 0) return;
  std::string command;
  for (const std::string& argument : arguments) command += argument + " ";
  throw std::runtime_error(command + "failed: " + result.err + result.out);
}

void ip(const std::vector<std::string>& arguments) { run_tool("ip", arguments); }

/// Returns whether a command of the shell succeeds in a network namespace of its own.
bool succeeds_in_a_namespace(const std::string& command) {
  return run_program({"/usr/bin/unshare", "--net", "--mount", "/bin/sh", "-c", command}).exit_code == 0;
}
const char* const kAddLink = "PATH=$PATH:/usr/sbin:/sbin; ip link add cable type veth peer name other";

std::string find_missing() {
  if (tool("ip").empty()) return "needs the program ip (Debian: iproute2)";
  if (!succeeds_in_a_namespace("true")) return "needs the permission to create network namespaces";
  if (!succeeds_in_a_namespace(kAddLink)) return "needs virtual network links (ip link add type veth)";
  return "";
}

}  // namespace

TwoHosts::TwoHosts() {
  if (!missing().empty()) return;
  const std::string id = std::to_string(getpid());
  names_ = {"convoy-a-" + id, "convoy-b-" + id};
  for (const std::string& name : names_) ip({"netns", "add", name});
  // Both ends are created inside the namespaces, so the network of this machine does not change.
  ip({"-n", names_[0], "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", names_[1]});
  for (int host = 0; host < 2; ++host) {
    ip({"-n", name(host), "addr", "add", address(host) + "/24", "dev", "cable"});
    ip({"-n", name(host), "link", "set", "cable", "up"});
    ip({"-n", name(host), "link", "set", "lo", "up"});
  }
}

TwoHosts::~TwoHosts() {
  for (const std::string& name : names_)
    if (!name.empty()) run_program({tool("ip"), "netns", "del", name});
}

const std::string& TwoHosts::missing() {
  static const std::string missing = find_missing();
  return missing;
}

std::string TwoHosts::missing_for_rates() {
  if (!missing().empty()) return missing();
  if (tool("tc").empty()) return "needs the program tc (Debian: iproute2)";
  return succeeds_in_a_namespace(std::string(kAddLink) +
                                 " && tc qdisc add dev cable root tbf rate 10mbit burst 32kbit latency 400ms")
             ? ""
             : "needs a limit of the rate of network links (tc qdisc add … tbf)";
}

void TwoHosts::enter(int host) const {
  const int file = open(("/var/run/netns/" + name(host)).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 || setns(file, CLONE_NEWNET) != 0) throw std::runtime_error("cannot enter " + name(host));
  close(file);
}

void TwoHosts::disconnect() const { ip({"-n", name(0), "link", "set", "cable", "down"}); }

void TwoHosts::connect() const { ip({"-n", name(0), "link", "set", "cable", "up"}); }

void TwoHosts::limit_rate(const std::string& rate) const {
  for (const std::string& name : names_)
    run_tool("tc", {"-n", name, "qdisc", "replace", "dev", "cable", "root", "tbf", "rate", rate, "burst",
                    "32kbit", "latency", "400ms"});
}

}  // namespace convoy::testing
