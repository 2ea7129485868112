// c10d's own backend "gloo".
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace c10d {
class Store;
}

namespace shoal {

/// All ranks as c10d's ProcessGroupGloo has them, host or no host: what torch.distributed does with "gloo". `address`: of
/// this host, as the others reach it. Throws what c10d throws.
c10::intrusive_ptr<c10d::Backend> make_gloo_backend(c10d::Store& store, int rank, int size, const std::string& address,
                                                    std::chrono::milliseconds timeout);

}  // namespace shoal
