#include <ATen/Parallel.h>
#include <shoal/internal/ipc/descriptor/offers.h>
#include <shoal/internal/ipc/read_only/read_only.h>
#include <shoal/internal/runtime/fork_server/fork_server_client.h>
#include <shoal/internal/tensors/cuda/device_ipc.h>

#include "tests/support/guard.h"

// What stays for good: the fork server, the socket from which descriptors are fetched, the collector of device memory,
// the session's second mapping.
void shoal::test::warm_up() {
  allow_child(start_fork_server());
  DescriptorOffers::current();
  DeviceIpc::current();
  ReadOnlyView::base();
  at::set_num_threads(1);  // tests fork, and a child has not the threads of the pool that it would wait for
}
