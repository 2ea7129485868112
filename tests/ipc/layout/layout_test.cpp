// The pictures of shared structures in docs/ are what the code says.
#include <shoal/internal/ipc/ring/layout.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/containers/layout.h>
#include <shoal/internal/ipc/heap/block.h>
#include <shoal/internal/ipc/layout/session_layout.h>
#include <shoal/internal/ipc/names/names.h>
#include <shoal/internal/ipc/pipe/end.h>
#include <shoal/internal/ipc/trace/buffer.h>
#include <shoal/ipc/array.h>
#include <shoal/ipc/barrier.h>
#include <shoal/ipc/condition.h>
#include <shoal/ipc/event.h>
#include <shoal/ipc/lock.h>
#include <shoal/ipc/rlock.h>
#include <shoal/ipc/semaphore.h>
#include <shoal/ipc/value.h>

#include "tests/support/documented_layout.h"

using namespace shoal;
using shoal::test::documented;
using shoal::test::Fields;

TEST_CASE("layout: docs/heap.md shows the heap's structures as they are") {
  CHECK(documented("heap.md", "SessionLayout") == Fields{FIELD(SessionLayout, magic),
                                                         FIELD(SessionLayout, version),
                                                         FIELD(SessionLayout, process_slots),
                                                         FIELD(SessionLayout, bytes),
                                                         FIELD(SessionLayout, processes),
                                                         FIELD(SessionLayout, extents),
                                                         FIELD(SessionLayout, hints),
                                                         FIELD(SessionLayout, headers),
                                                         FIELD(SessionLayout, data),
                                                         FIELD(SessionLayout, extent_count),
                                                         FIELD(SessionLayout, root_pid),
                                                         FIELD(SessionLayout, names),
                                                         FIELD(SessionLayout, activities),
                                                         FIELD(SessionLayout, tracing),
                                                         FIELD(SessionLayout, stacks),
                                                         FIELD(SessionLayout, extents_touched),
                                                         FIELD(SessionLayout, extents_committed),
                                                         FIELD(SessionLayout, extents_idle),
                                                         FIELD(SessionLayout, extents_peak),
                                                         FIELD(SessionLayout, header_bytes),
                                                         FIELD(SessionLayout, allowed_bytes),
                                                         FIELD(SessionLayout, allowed_by),
                                                         FIELD(SessionLayout, deaths),
                                                         FIELD(SessionLayout, names_lock),
                                                         FIELD(SessionLayout, names_changed),
                                                         FIELD(SessionLayout, slots_touched),
                                                         FIELD(SessionLayout, looks),
                                                         FIELD(SessionLayout, liveness_questions),
                                                         FIELD(SessionLayout, watches),
                                                         FIELD(SessionLayout, sentries)});
  CHECK(documented("heap.md", "ProcessRecord") ==
        Fields{FIELD(ProcessRecord, state), FIELD(ProcessRecord, generation), FIELD(ProcessRecord, pid),
               FIELD(ProcessRecord, taken_at), FIELD(ProcessRecord, left), FIELD(ProcessRecord, rank),
               FIELD(ProcessRecord, name), FIELD(ProcessRecord, remote_frees), FIELD(ProcessRecord, pid_space)});
  CHECK(documented("heap.md", "ActivityRecord") ==
        Fields{FIELD(ActivityRecord, owner), FIELD(ActivityRecord, label_changes), FIELD(ActivityRecord, trace),
               FIELD(ActivityRecord, label), FIELD(ActivityRecord, waits)});
  CHECK(documented("heap.md", "NameRecord") ==
        Fields{FIELD(NameRecord, owner), FIELD(NameRecord, publication), FIELD(NameRecord, key)});
  CHECK(documented("heap.md", "PublicationLayout") ==
        Fields{FIELD(PublicationLayout, magic), FIELD(PublicationLayout, schema), FIELD(PublicationLayout, size),
               FIELD(PublicationLayout, handles)});
  CHECK(documented("heap.md", "ExtentRecord") == Fields{FIELD(ExtentRecord, state), FIELD(ExtentRecord, hint_summary),
                                                        FIELD(ExtentRecord, used), FIELD(ExtentRecord, pinned_by)});
  CHECK(documented("heap.md", "BlockHeader") == Fields{FIELD(BlockHeader, state), FIELD(BlockHeader, size),
                                                       FIELD(BlockHeader, payload), FIELD(BlockHeader, overflow),
                                                       FIELD(BlockHeader, type), FIELD(BlockHeader, holds)});
  CHECK(documented("heap.md", "HoldRef") == Fields{FIELD(HoldRef, block), FIELD(HoldRef, word)});
}

TEST_CASE("layout: docs/ring.md shows the ring's structures as they are") {
  CHECK(documented("ring.md", "RingLayout") ==
        Fields{FIELD(RingLayout, magic), FIELD(RingLayout, version), FIELD(RingLayout, schema),
               FIELD(RingLayout, capacity), FIELD(RingLayout, closed), FIELD(RingLayout, crashes),
               FIELD(RingLayout, byte_capacity), FIELD(RingLayout, name), FIELD(RingLayout, tail),
               FIELD(RingLayout, head), FIELD(RingLayout, not_empty), FIELD(RingLayout, not_full)});
  CHECK(documented("ring.md", "RingCell") == Fields{FIELD(RingCell, state), FIELD(RingCell, size),
                                                    FIELD(RingCell, handles), FIELD(RingCell, flags),
                                                    FIELD(RingCell, sender), FIELD(RingCell, contents)});
}

TEST_CASE("layout: docs/ring.md shows the pipe's end as it is") {
  CHECK(documented("ring.md", "PipeEndLayout") == Fields{FIELD(PipeEndLayout, magic), FIELD(PipeEndLayout, version),
                                                         FIELD(PipeEndLayout, owner), FIELD(PipeEndLayout, in),
                                                         FIELD(PipeEndLayout, out)});
}

TEST_CASE("layout: docs/sync.md shows locks and their kin as they are") {
  using Value = ValueLayout<double>;
  using Waiter = ConditionLayout::Waiter;
  CHECK(documented("sync.md", "LockWord") ==
        Fields{FIELD(LockWord, word), FIELD(LockWord, hungry), FIELD(LockWord, deaths)});
  CHECK(documented("sync.md", "LockLayout") ==
        Fields{FIELD(LockLayout, magic), FIELD(LockLayout, version), FIELD(LockLayout, lock)});
  CHECK(documented("sync.md", "RLockLayout") == Fields{FIELD(RLockLayout, magic), FIELD(RLockLayout, version),
                                                       FIELD(RLockLayout, lock), FIELD(RLockLayout, depth),
                                                       FIELD(RLockLayout, owner)});
  CHECK(documented("sync.md", "SemaphoreLayout") ==
        Fields{FIELD(SemaphoreLayout, magic), FIELD(SemaphoreLayout, version), FIELD(SemaphoreLayout, bound),
               FIELD(SemaphoreLayout, crashes), FIELD(SemaphoreLayout, state), FIELD(SemaphoreLayout, used),
               FIELD(SemaphoreLayout, event), FIELD(SemaphoreLayout, ledger)});
  CHECK(documented("sync.md", "EventLayout") == Fields{FIELD(EventLayout, magic), FIELD(EventLayout, version),
                                                       FIELD(EventLayout, crashes), FIELD(EventLayout, changed),
                                                       FIELD(EventLayout, state)});
  CHECK(documented("sync.md", "ConditionLayout") ==
        Fields{FIELD(ConditionLayout, magic), FIELD(ConditionLayout, version), FIELD(ConditionLayout, crashes),
               FIELD(ConditionLayout, last_ticket), FIELD(ConditionLayout, used), FIELD(ConditionLayout, waiters)});
  CHECK(documented("sync.md", "Waiter") == Fields{FIELD(Waiter, word), FIELD(Waiter, ticket)});
  CHECK(documented("sync.md", "BarrierLayout") == Fields{FIELD(BarrierLayout, magic), FIELD(BarrierLayout, version),
                                                         FIELD(BarrierLayout, parties), FIELD(BarrierLayout, event),
                                                         FIELD(BarrierLayout, state), FIELD(BarrierLayout, shared),
                                                         FIELD(BarrierLayout, timeout)});
  CHECK(documented("sync.md", "ValueLayout") ==
        Fields{FIELD(Value, magic), FIELD(Value, version), FIELD(Value, current), FIELD(Value, copies)});
  CHECK(documented("sync.md", "ArrayLayout") == Fields{FIELD(ArrayLayout, magic), FIELD(ArrayLayout, version),
                                                       FIELD(ArrayLayout, type), FIELD(ArrayLayout, size)});
}

TEST_CASE("layout: docs/containers.md shows containers as they are") {
  CHECK(documented("containers.md", "ContainerLayout") ==
        Fields{FIELD(ContainerLayout, magic), FIELD(ContainerLayout, version), FIELD(ContainerLayout, schema),
               FIELD(ContainerLayout, kind), FIELD(ContainerLayout, shelves), FIELD(ContainerLayout, owner),
               FIELD(ContainerLayout, crashes), FIELD(ContainerLayout, epoch), FIELD(ContainerLayout, order)});
  CHECK(documented("containers.md", "ShelfLayout") ==
        Fields{FIELD(ShelfLayout, lock), FIELD(ShelfLayout, changed), FIELD(ShelfLayout, table),
               FIELD(ShelfLayout, used), FIELD(ShelfLayout, live), FIELD(ShelfLayout, mortal),
               FIELD(ShelfLayout, epoch), FIELD(ShelfLayout, deaths), FIELD(ShelfLayout, changing),
               FIELD(ShelfLayout, place), FIELD(ShelfLayout, came), FIELD(ShelfLayout, went), FIELD(ShelfLayout, kind),
               FIELD(ShelfLayout, serial)});
  CHECK(documented("containers.md", "ParcelLayout") ==
        Fields{FIELD(ParcelLayout, kept), FIELD(ParcelLayout, schema), FIELD(ParcelLayout, hash),
               FIELD(ParcelLayout, order), FIELD(ParcelLayout, mark), FIELD(ParcelLayout, value_bytes),
               FIELD(ParcelLayout, key_bytes), FIELD(ParcelLayout, handles), FIELD(ParcelLayout, spilled),
               FIELD(ParcelLayout, owner), FIELD(ParcelLayout, mortal)});
}

TEST_CASE("layout: docs/observing.md shows the events of a trace as they are") {
  CHECK(documented("observing.md", "TraceBuffer") == Fields{FIELD(TraceBuffer, magic), FIELD(TraceBuffer, version),
                                                            FIELD(TraceBuffer, owner), FIELD(TraceBuffer, tracer),
                                                            FIELD(TraceBuffer, pid), FIELD(TraceBuffer, name),
                                                            FIELD(TraceBuffer, written), FIELD(TraceBuffer, lost),
                                                            FIELD(TraceBuffer, drained), FIELD(TraceBuffer, records)});
  CHECK(documented("observing.md", "TraceRecord") == Fields{FIELD(TraceRecord, start), FIELD(TraceRecord, end),
                                                            FIELD(TraceRecord, subject), FIELD(TraceRecord, link),
                                                            FIELD(TraceRecord, value), FIELD(TraceRecord, kind),
                                                            FIELD(TraceRecord, thread), FIELD(TraceRecord, name)});
  CHECK(documented("observing.md", "StackRecord") == Fields{FIELD(StackRecord, state), FIELD(StackRecord, owner),
                                                            FIELD(StackRecord, thread), FIELD(StackRecord, count),
                                                            FIELD(StackRecord, frames)});
}

TEST_CASE("layout: the versions that docs/ names are the code's") {
  for (auto [page, heading] :
       {std::pair{"heap.md", fmt::format("SessionLayout (version {})", SessionLayout::kVersion)},
        {"containers.md", fmt::format("ContainerLayout (version {})", ContainerLayout::kVersion)},
        {"observing.md", fmt::format("TraceBuffer (version {})", TraceBuffer::kVersion)},
        {"ring.md", fmt::format("RingLayout (version {})", RingLayout::kVersion)},
        {"sync.md", fmt::format("LockLayout (version {})", LockLayout::kVersion)},
        {"sync.md", fmt::format("RLockLayout (version {})", RLockLayout::kVersion)},
        {"sync.md", fmt::format("SemaphoreLayout (version {})", SemaphoreLayout::kVersion)},
        {"sync.md", fmt::format("EventLayout (version {})", EventLayout::kVersion)},
        {"sync.md", fmt::format("ConditionLayout (version {})", ConditionLayout::kVersion)},
        {"sync.md", fmt::format("BarrierLayout (version {})", BarrierLayout::kVersion)},
        {"sync.md", fmt::format("ValueLayout (version {})", ValueLayout<int>::kVersion)},
        {"sync.md", fmt::format("ArrayLayout (version {})", ArrayLayout::kVersion)}})
    CHECK_FALSE(documented(page, heading).empty());
}
