// An optimizer's options in words, to be compared between ranks, and in bytes, to be sent.
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

/// The options of all groups. Empty if libtorch cannot write them: a class of the user's without serialize(), which the
/// log then names, once.
std::string written_options(torch::optim::Optimizer& optimizer);
/// Takes what written_options() of an optimizer with as many groups of the same kind has returned.
void read_options(torch::optim::Optimizer& optimizer, const std::string& written);

}  // namespace shoal
