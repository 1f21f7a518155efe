// In place of what needs gloo, where the build has none.
#include "comm/gloo_communicator.h"
#include "kernels/runtime/check.h"

namespace convoy {

std::unique_ptr<MessageLinks> make_gloo_links(Rendezvous&, const CommOptions&) {
  fail<UsageError>("--comm gloo: this build has no gloo: install libgloo-dev and configure again");
}

std::unique_ptr<Communicator> make_gloo_communicator(Rendezvous& rendezvous, const CommOptions& options) {
  make_gloo_links(rendezvous, options);
  return nullptr;  // never: that throws
}

}  // namespace convoy
