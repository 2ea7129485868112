// What c10d's ProcessGroupGloo.hpp uses of Gloo's header of this name: see gloo_group.h.
#pragma once

namespace gloo::transport {
class Device;
}
