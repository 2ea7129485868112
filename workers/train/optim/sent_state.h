// An optimizer's state on its way to another rank.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <cstddef>

namespace c10d {
class ProcessGroup;
}
namespace torch::optim {
class Optimizer;
}

namespace shoal {

/// Bytes of the state of an optimizer that optimizer_state() supports, with what it has not made yet. Makes nothing:
/// state that is made early is not what the first step would make (SGD's momentum begins with the gradient, not with
/// zeros).
std::size_t bytes_of_state(torch::optim::Optimizer& optimizer);

/// Sends what state there is to the rank `to`, which calls receive_state(). Makes nothing.
void send_state(c10d::ProcessGroup& process_group, torch::optim::Optimizer& optimizer, int to);
/// `into` has the same parameters and options, and no state: it gets what send_state() of the rank `from` sends.
void receive_state(c10d::ProcessGroup& process_group, torch::optim::Optimizer& into, int from);
/// The same between two optimizers of one process, of the same parameters: `into` gets copies.
void copy_state(torch::optim::Optimizer& optimizer, torch::optim::Optimizer& into);

}  // namespace shoal
