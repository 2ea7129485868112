#include <shoal/internal/ipc/read_only/read_only.h>
#include <shoal/ipc/session.h>

#include "tests/ipc/process/session_fresh.h"
#include "tests/support/guard.h"

// The session's two descriptors and its two mappings stay for good.
void shoal::test::warm_up() {
  if (fresh::is_one()) return;
  Session::current().self();
  ReadOnlyView::base();
}
