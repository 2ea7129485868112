// What this process says about itself to those that look on.
#pragma once

#include <string_view>

namespace shoal {

/// Says what this process does at the moment ("epoch 3"), for `shoal top`: the first 55 bytes. Some 20 ns. Any thread;
/// of two that do it at once, one counts. A label goes with its process, and a forked child begins without.
void set_label(std::string_view text);

}  // namespace shoal
