// Two hosts on one machine: network namespaces of the test's own, joined by a cable that it can pull out.
#pragma once

#include <array>
#include <string>

namespace convoy::testing {

class TwoHosts {
 public:
  /// Says by why_not() where this process may not make namespaces.
  TwoHosts();
  ~TwoHosts();
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  const std::string& why_not() const { return why_not_; }
  const std::string& name(int host) const { return names_[static_cast<std::size_t>(host)]; }
  std::string address(int host) const { return "10.213.77." + std::to_string(host + 1); }
  static constexpr const char* kNetwork = "10.213.77.0/24";

  /// This process (of one thread) is on that host from now on.
  void enter(int host) const;
  /// No packet passes any more.
  void pull_the_cable() const;

 private:
  std::array<std::string, 2> names_;
  std::string why_not_;
};

}  // namespace convoy::testing
