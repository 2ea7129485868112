#include "training/autocast.h"

#include <ATen/autocast_mode.h>

Autocast::Autocast(Amp amp) : changed_(amp == Amp::bf16 && !at::autocast::is_autocast_enabled(at::kCPU)) {
  if (!changed_) return;
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!changed_) return;
  // The cache has the parameters' casts, each once a pass; an optimizer's step makes them old.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
}
