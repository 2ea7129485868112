#include "tests/ipc/heap_campaign/judge.h"

#include <fmt/format.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <fstream>
#include <new>
#include <stdexcept>

namespace shoal::test {
namespace {

/// Shared with the processes that are forked later; its pages appear when they are used.
void* map(std::size_t bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::runtime_error("no memory for the judge");
  return at;
}

}  // namespace

Judge& Judge::create(const std::byte* data, std::uint64_t bytes, unsigned seed) {
  Judge& judge = *new (map(sizeof(Judge))) Judge;
  judge.seed = seed;
  judge.heap = data;
  judge.heap_bytes = bytes;
  judge.next_serial = 1;
  for (Seat& seat : judge.seats) seat.kill_label = seat.delay_label = -1;
  judge.pages = static_cast<std::atomic<std::uint32_t>*>(map(bytes / kPage * 4));
  judge.units = static_cast<std::atomic<std::uint32_t>*>(map(bytes / kUnit * 4));
  return judge;
}

bool Judge::lives(int seat) const {
  const std::int32_t pid = seats[seat].pid.load();
  if (pid == 0) return false;
  std::ifstream in(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(in, line)) return false;
  const auto name_end = line.rfind(')');
  const char state = name_end == std::string::npos || name_end + 2 >= line.size() ? 'X' : line[name_end + 2];
  return state != 'Z' && state != 'X';
}

Ident Judge::note_made(int seat, const std::byte* data, std::size_t size, std::uint64_t bait) {
  std::uint32_t serial;
  // A record of a block that somebody still has is not used again; nor do 0 and kSmallBlocks name a block.
  do serial = next_serial.fetch_add(1);
  while (serial == 0 || serial == kSmallBlocks || holders[serial % kRecords].load() != 0);
  Record& fresh = record(serial);
  fresh.serial = 0;
  fresh.given_to = 0;
  fresh.seat = std::uint32_t(seat);
  fresh.owner = std::uint32_t(::getpid());
  fresh.payload = offset(data);
  fresh.size = size;
  fresh.pattern = Pattern::of(serial, fresh.owner, fresh.payload, bait);
  fresh.serial = serial;
  holders[serial % kRecords].fetch_or(1ull << seat);
  if (fresh.payload >= heap_bytes || size > heap_bytes - fresh.payload)
    report(fmt::format("block {} lies outside of the heap's data", describe(serial)));
  else
    claim(seat, serial, fresh.payload, size);
  return {serial, fresh.owner, size, bait};
}

void Judge::claim(int seat, std::uint32_t serial, std::uint64_t from, std::uint64_t size) {
  if (size >= kPage) {
    for (std::uint64_t at = from; at < from + size; at += kPage) {
      const std::uint32_t old = pages[at / kPage].exchange(serial);
      if (old != kSmallBlocks) {
        take_over(seat, old, serial, at);
        continue;
      }
      for (std::uint64_t unit = at / kUnit; unit < at / kUnit + kPage / kUnit; ++unit)
        if (units[unit].load() != 0) take_over(seat, units[unit].exchange(0), serial, unit * kUnit);
    }
    return;
  }
  for (std::uint64_t page = from / kPage; page * kPage < from + size; ++page)
    if (const std::uint32_t old = pages[page].exchange(kSmallBlocks); old != kSmallBlocks)
      take_over(seat, old, serial, page * kPage);
  for (std::uint64_t at = from; at < from + size; at += kUnit)
    take_over(seat, units[at / kUnit].exchange(serial), serial, at);
  // Who takes the page for a large block at this moment may have looked at its units before they named this one.
  for (std::uint64_t page = from / kPage; page * kPage < from + size; ++page)
    if (const std::uint32_t now = pages[page].load(); now != kSmallBlocks) take_over(seat, now, serial, page * kPage);
}

void Judge::take_over(int seat, std::uint32_t old, std::uint32_t serial, std::uint64_t at) {
  if (old == 0 || old == serial) return;
  Record& other = record(old);
  if (other.serial.load() != old || other.given_to.exchange(serial) == serial) return;
  for (std::uint64_t left = holders[old % kRecords].load(); left != 0; left &= left - 1) {
    const int holder = std::countr_zero(left);
    const std::uint32_t incarnation = seats[holder].incarnation.load();
    if (!lives(holder)) continue;  // the heap may know that already, and its bit is there still
    // It lives, and had its bit before and after: all the time it has had the block.
    if ((holders[old % kRecords].load() & 1ull << holder) == 0 || other.serial.load() != old ||
        seats[holder].incarnation.load() != incarnation)
      continue;
    ++figures.damaged;
    report(fmt::format(
        "OVERLAP at {:#x}: the process in seat {} was given block {}, while the one in seat {} has block {}", at, seat,
        describe(serial), holder, describe(old)));
    return;
  }
}

void Judge::note_held(int seat, const Ident& block) {
  if (record(block.serial).serial.load() == block.serial) holders[block.serial % kRecords].fetch_or(1ull << seat);
}

void Judge::note_dropped(int seat, const Ident& block) {
  if (record(block.serial).serial.load() == block.serial) holders[block.serial % kRecords].fetch_and(~(1ull << seat));
}

void Judge::bury(int seat) {
  for (auto& bits : holders)
    if ((bits.load() & 1ull << seat) != 0) bits.fetch_and(~(1ull << seat));
  // Its own mailbox is empty, unless somebody reads it at this moment: who has that may go on with what is there. And
  // those that it was reading are.
  for (std::uint32_t own : {1u, 2u}) mailboxes[seat].state.compare_exchange_strong(own, 0);
  for (Mailbox& box : mailboxes) {
    std::uint32_t read_by_it = Mailbox::kReading + std::uint32_t(seat);
    box.state.compare_exchange_strong(read_by_it, 0);
  }
  seats[seat].tag = 0;
  ++seats[seat].incarnation;
  seats[seat].pid = 0;
}

bool Judge::verify(int seat, const std::byte* data, const Ident& block, const char* when) {
  const Pattern pattern = Pattern::of(block.serial, block.owner, offset(data), block.bait);
  figures.verified.fetch_add(1);
  figures.bytes.fetch_add(block.sparse ? block.size / Pattern::kSparse * 8 : block.size);
  const auto damage =
      block.sparse ? pattern.find_sparse_damage(data, block.size) : pattern.find_damage(data, block.size);
  Record& mine = record(block.serial);
  const std::uint32_t given = mine.serial.load() == block.serial ? mine.given_to.load() : 0;
  if (!damage && given == 0) return true;
  ++figures.damaged;
  std::string text = fmt::format("DAMAGE seen by the process in seat {} (pid {}) {}: block {}", seat, ::getpid(), when,
                                 describe(block.serial));
  if (given != 0) text += fmt::format("; its memory was given to block {}", describe(given));
  if (damage) {
    std::uint64_t wrong = 0, last = *damage, found = 0, zero = 0;
    ::memcpy(&found, data + *damage * 8, std::min<std::size_t>(8, block.size - *damage * 8));
    const std::uint64_t step = block.sparse ? Pattern::kSparse / 8 : 1;
    for (std::uint64_t i = *damage; (i + 1) * 8 <= block.size; i += step) {
      std::uint64_t value;
      ::memcpy(&value, data + i * 8, 8);
      if (value == pattern.word(i)) continue;
      ++wrong, last = i, zero += value == 0;
    }
    const std::uint64_t at = offset(data) + *damage * 8;
    text += fmt::format(
        "; byte {:#x} of it: expected {:#018x}, found {:#018x} ({}); {} words wrong up to byte {:#x}, {} of "
        "them zero; who was given that place last: {}",
        *damage * 8, pattern.word(*damage), found, whose(found, at), wrong, last * 8, zero,
        at < heap_bytes && pages[at / kPage].load() == kSmallBlocks ? describe(units[at / kUnit].load())
        : at < heap_bytes                                           ? describe(pages[at / kPage].load())
                                                                    : "nobody");
  }
  report(text);
  return false;
}

std::string Judge::describe(std::uint32_t serial) {
  Record& known = record(serial);
  if (serial == 0 || known.serial.load() != serial) return fmt::format("{} (not on record)", serial);
  return fmt::format("{} ({} bytes at {:#x}, made by pid {} in seat {}, held by seats {:#x})", serial, known.size,
                     known.payload, known.owner, known.seat, holders[serial % kRecords].load());
}

std::string Judge::whose(std::uint64_t value, std::uint64_t at) {
  if (value == 0) return "zero";
  for (Record& known : records) {
    if (known.serial.load() == 0 || at < known.payload || at >= known.payload + known.size) continue;
    if (known.pattern.place_of(value) == (at - known.payload) / 8) return "word of block " + describe(known.serial);
    if (known.pattern.bait == value) return "bait as in block " + describe(known.serial);
  }
  for (int seat = 0; seat < kSeats; ++seat)
    if (seats[seat].tag.load() != 0 && std::uint32_t(value) == seats[seat].tag.load())
      return fmt::format("the tag of the process in seat {}", seat);
  return "no block's";
}

void Judge::report(const std::string& text) {
  const int index = reports.fetch_add(1);
  if (index >= kReports) return;
  text.copy(texts[index], sizeof texts[index] - 1);
}

}  // namespace shoal::test
