// Replaces the gloo transport in a build without gloo.
#include "convoy/comm/transport/gloo/gloo_communicator.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {

std::unique_ptr<MessageLinks> make_gloo_links(Rendezvous&, const CommOptions&) {
  fail<UsageError>("gloo communicator: this build has no gloo; install libgloo-dev and reconfigure");
}

std::unique_ptr<Communicator> make_gloo_communicator(Rendezvous& rendezvous, const CommOptions& options) {
  make_gloo_links(rendezvous, options);
  return nullptr;  // unreachable: make_gloo_links() throws
}

}  // namespace convoy::dist
