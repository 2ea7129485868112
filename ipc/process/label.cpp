#include <shoal/ipc/label.h>

#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/process/session_core.h>
#include <shoal/internal/ipc/text/utf8_fit.h>

#include <cstring>

namespace shoal {

// Whoever reads this record does so from outside, by copies of the bytes. The orders below are for the sake of such a
// copy: on the way to memory no store overtakes the one that says that it is valid.

void set_label(std::string_view text) {
  SessionCore& session = SessionCore::current();
  ActivityRecord& record = session.activity(session.self().slot());
  std::uint64_t words[ActivityRecord::kLabelBytes / 8] = {};
  const std::string_view label = fit_bytes(text, ActivityRecord::kLabelBytes - 1);
  std::memcpy(words, label.data(), label.size());
  std::uint32_t changes = record.label_changes.load(std::memory_order_relaxed);  // relaxed: the CAS decides
  // Odd: another thread is at it, and this one's label counts as the earlier one.
  if ((changes & 1) != 0 || !record.label_changes.compare_exchange_strong(changes, changes + 1)) return;
  // release: after the odd count, and before the even one.
  for (std::size_t i = 0; i < std::size(words); ++i) record.label[i].store(words[i], std::memory_order_release);
  record.label_changes.store(changes + 2, std::memory_order_release);  // release: after the label
}

}  // namespace shoal
