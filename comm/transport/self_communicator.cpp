#include "convoy/comm/transport/self_communicator.h"

#include "convoy/comm/core/view_parts.h"
#include "convoy/comm/transport/cpu_communicator.h"

namespace convoy::dist {
namespace {

class SelfTransport final : public Transport {
 public:
  std::string name() const override { return "self"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }

  void all_reduce(const Call&, View) override {}
  void reduce_scatter(const Call&, ConstView in, View out) override { copy_view(in, out); }
  void broadcast(const Call&, View) override {}
  void all_gather(const Call&, ConstView in, View out) override { copy_view(in, out); }
  void barrier(const Call&) override {}
  std::vector<std::string> gather_object(const Call&, const std::string& local) override { return {local}; }
  std::unique_ptr<Transport> split(const Call&, int) override { return std::make_unique<SelfTransport>(); }
  bool poll_peers() override { return false; }
  void finish(const Call&) override {}
  void abort(const std::string&) noexcept override {}  // no call blocks
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator(const CommOptions& options) {
  return std::make_unique<CpuCommunicator>(std::make_unique<SelfTransport>(), options);
}

}  // namespace convoy::dist
