// An optimizer's options in words, to be compared between ranks.
#pragma once

#include <string>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace shoal {

/// A line for each option of each group: "lr of group 0 = 0.001". For options that libtorch cannot write, their type's
/// name alone.
std::vector<std::string> option_lines(torch::optim::Optimizer& optimizer);

}  // namespace shoal
