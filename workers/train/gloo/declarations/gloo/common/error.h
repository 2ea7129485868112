// Stands in for Gloo's header of this name, of which c10d's ProcessGroupGloo.hpp uses nothing: see gloo_group.h.
#pragma once
