#include <shoal/internal/runtime/command/look/session_table.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/text/quantity_text.h>
#include <shoal/internal/ipc/text/utf8_fit.h>

#include <algorithm>
#include <functional>
#include <map>

namespace shoal::command {
namespace {

constexpr const char *kBold = "\033[1m", *kDim = "\033[2m", *kRed = "\033[31m", *kYellow = "\033[33m",
                     *kGreen = "\033[32m", *kPlain = "\033[0m";
constexpr int kNever = 1 << 30;  // no table is as wide
/// A wait of this many seconds is worth a look.
constexpr double kLongWait = 1;

int length_of(const std::string& text) { return int(column_count(text)); }

enum class Side { kLeft, kRight };

struct Cell {
  std::string text;
  const char* color = "";
};

struct Column {
  const char* title;
  Side side;
  int least_width;  // of the table's, for the column to be there
};

/// Rows of cells as lines; the last column gets what room is left.
class Table {
 public:
  Table(std::vector<Column> columns, const TableOptions& options) : columns_(std::move(columns)), options_(options) {}

  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  std::size_t rows() const { return rows_.size(); }

  /// At most `most` lines, the heading and a line that says what is missing included.
  void print(std::vector<std::string>& lines, int most) const {
    std::vector<int> widths(columns_.size(), 0);
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (options_.width < columns_[i].least_width) continue;
      widths[i] = length_of(columns_[i].title);
      for (auto& row : rows_) widths[i] = std::max(widths[i], length_of(row[i].text));
    }
    int left = options_.width;
    for (std::size_t i = 0; i + 1 < columns_.size(); ++i) {
      widths[i] = std::min(widths[i], std::max(0, left));
      left -= widths[i] == 0 ? 0 : widths[i] + 2;
    }
    widths.back() = std::max(0, left);
    std::vector<Cell> heading;
    heading.reserve(columns_.size());
    for (const Column& column : columns_) heading.push_back({column.title, kBold});
    lines.push_back(line(heading, widths));
    const int room = most <= 0 ? int(rows_.size()) : std::max(1, most - 1);
    const bool all = int(rows_.size()) <= room;
    const int shown = all ? int(rows_.size()) : room - 1;
    for (int i = 0; i < shown; ++i) lines.push_back(line(rows_[std::size_t(i)], widths));
    if (!all) lines.push_back(fmt::format("  ... and {} more", int(rows_.size()) - shown));
  }

 private:
  std::string line(const std::vector<Cell>& row, const std::vector<int>& widths) const {
    std::string text;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (widths[i] == 0) continue;
      const std::string cell = fit_columns(row[i].text, std::size_t(widths[i]));
      const std::string padding(std::size_t(widths[i] - length_of(cell)), ' ');
      const bool last = i + 1 == row.size();
      if (columns_[i].side == Side::kRight) text += padding;
      const bool colored = options_.colors && row[i].color[0] != '\0';
      text += colored ? row[i].color + cell + kPlain : cell;
      if (columns_[i].side == Side::kLeft && !last) text += padding;
      if (!last) text += "  ";
    }
    while (text.ends_with(' ')) text.pop_back();
    return text;
  }

  std::vector<Column> columns_;
  const TableOptions& options_;
  std::vector<std::vector<Cell>> rows_;
};

class SessionText {
 public:
  SessionText(const SessionView& view, const SessionRates& rates, const TableOptions& options)
      : view_(view), rates_(rates), options_(options) {
    for (const SeenQueue& queue : view.queues) queues_[queue.block] = &queue;
  }

  std::vector<std::string> lines() {
    heading();
    Table processes({{"PID", Side::kRight, 0},
                     {"PROCESS", Side::kLeft, 0},
                     {"STATE", Side::kLeft, 0},
                     {"CPU%", Side::kRight, 50},
                     {"HOLDS", Side::kRight, 60},
                     {"OWNS", Side::kRight, 90},
                     {"RSS", Side::kRight, 80},
                     {"PRIVATE", Side::kRight, options_.pss ? 60 : kNever},
                     {"PSS", Side::kRight, options_.pss ? 60 : kNever},
                     {"LABEL", Side::kLeft, 0}},
                    options_);
    for_each_in_tree([&](const SeenProcess& process, const std::string& branch) {
      if (!is_only_a_slot(process)) add(processes, process, branch);
    });
    if (options_.pss) add_sum(processes);
    Table queues({{"QUEUE", Side::kLeft, 0},
                  {"KIND", Side::kLeft, 90},
                  {"DEPTH", Side::kRight, 0},
                  {"FULL", Side::kLeft, 70},
                  {"BYTES", Side::kRight, 60},
                  {"IN/s", Side::kRight, 0},
                  {"OUT/s", Side::kRight, 0},
                  {"HELD BY", Side::kLeft, 110},
                  {"WAITING", Side::kLeft, 0}},
                 options_);
    for (const SeenQueue& queue : view_.queues)
      if (options_.channels || queue.kind != SeenQueue::Kind::kChannel) add(queues, queue);
    Table locks({{"LOCK", Side::kLeft, 0}, {"HELD BY", Side::kLeft, 0}, {"WAITING", Side::kLeft, 0}}, options_);
    for (const SeenLock& lock : view_.locks) add(locks, lock);

    // Of a low terminal each part gets what it needs, or its share.
    const bool bounded = options_.height > 0;
    int left = options_.height - int(lines_.size());
    auto part = [&](const Table& table, int parts) {
      if (table.rows() == 0) return;
      lines_.emplace_back();
      const int before = int(lines_.size());
      const int most = bounded ? std::max(2, std::min(int(table.rows()) + 1, left / parts - 1)) : 0;
      table.print(lines_, most);
      left -= int(lines_.size()) - before + 1;
    };
    part(processes, queues.rows() == 0 ? 1 : 2);
    part(queues, 1);
    if (!bounded || left > 3) part(locks, 1);
    if (bounded && int(lines_.size()) > options_.height) lines_.resize(std::size_t(options_.height));
    return std::move(lines_);
  }

 private:
  std::string colored(const char* color, const std::string& text) const {
    return options_.colors ? color + text + kPlain : text;
  }

  void heading() {
    const auto alive = std::count_if(view_.processes.begin(), view_.processes.end(),
                                     [](auto& process) { return process.state == SeenProcess::State::kAlive; });
    const std::string title =
        fit_columns(fmt::format("session of process {}   {} process{}, {} queue{}{}", view_.root, alive,
                                alive == 1 ? "" : "es", user_queues(), user_queues() == 1 ? "" : "s",
                                view_.complete ? "" : "   (not all of it could be read)"),
                    std::size_t(options_.width));
    lines_.push_back(colored(kBold, title));
    const SeenHeap& heap = view_.heap;
    std::string text =
        fmt::format("heap  {} in use, {} committed, {} idle, peak {}", short_bytes(heap.bytes),
                    short_bytes(heap.committed_bytes), short_bytes(heap.idle_bytes), short_bytes(heap.peak_bytes));
    if (heap.allowed_bytes != 0)
      text += fmt::format(", budget {} ({})", short_bytes(heap.allowed_bytes), heap.allowed_by);
    lines_.push_back(fit_columns(text, std::size_t(options_.width)));
    text = fmt::format("      {} blocks in {} extents, {} in messages", short_number(double(heap.blocks)), heap.extents,
                       short_bytes(heap.message_bytes));
    if (heap.orphan_bytes != 0) text += fmt::format(", {} left by the dead", short_bytes(heap.orphan_bytes));
    if (heap.deaths != 0) text += fmt::format(", {} ended so far", heap.deaths);
    lines_.push_back(fit_columns(text, std::size_t(options_.width)));
  }

  /// Of one that ended and left nothing behind: it stays until somebody wants the slot.
  static bool is_only_a_slot(const SeenProcess& process) {
    return process.state == SeenProcess::State::kEnded && process.held_bytes == 0 && process.owned_bytes == 0;
  }

  std::size_t user_queues() const {
    return std::size_t(
        std::ranges::count_if(view_.queues, [](auto& queue) { return queue.kind != SeenQueue::Kind::kChannel; }));
  }

  /// Parents before their children, with the lines of the tree. Whatever the table says, each process once.
  void for_each_in_tree(const std::function<void(const SeenProcess&, const std::string&)>& visit) const {
    std::map<std::uint32_t, std::vector<const SeenProcess*>> children;
    std::vector<const SeenProcess*> roots;
    for (const SeenProcess& process : view_.processes)
      if (process.parent && *process.parent != process.slot)
        children[*process.parent].push_back(&process);
      else
        roots.push_back(&process);
    std::vector<bool> seen(ProcessTag::kSlotCount);
    constexpr int kDeepest = 64;
    const std::function<void(const SeenProcess&, const std::string&, const std::string&, int)> descend =
        [&](const SeenProcess& process, const std::string& branch, const std::string& below, int depth) {
          if (seen[process.slot] || depth > kDeepest) return;
          seen[process.slot] = true;
          visit(process, branch);
          const auto found = children.find(process.slot);
          if (found == children.end()) return;
          for (const SeenProcess* child : found->second) {
            const bool last = child == found->second.back();
            descend(*child, below + (last ? "└─ " : "├─ "), below + (last ? "   " : "│  "), depth + 1);
          }
        };
    for (const SeenProcess* root : roots) descend(*root, "", "", 0);
    for (const SeenProcess& process : view_.processes)
      if (!seen[process.slot]) visit(process, "? ");
  }

  double seconds(const SeenWait& wait) const { return double(view_.time - wait.since) * 1e-9; }

  std::string wait_text(const SeenWait& wait) const {
    const auto queue = queues_.find(wait.block);
    const std::string name = queue == queues_.end() || queue->second->name.empty() ? "" : " " + queue->second->name;
    return fmt::format("{}{} {}", wait.what, name, short_seconds(seconds(wait)));
  }

  Cell state(const SeenProcess& process) const {
    if (process.state == SeenProcess::State::kEnded) return {"ended", kRed};
    if (process.state == SeenProcess::State::kBeingReclaimed) return {"reclaimed", kRed};
    if (process.usage.state == 'T' || process.usage.state == 't') return {"stopped", kRed};
    if (!process.waits.empty()) {
      const auto longest = std::ranges::min_element(process.waits, [](auto& a, auto& b) { return a.since < b.since; });
      std::string text = wait_text(*longest);
      if (process.waits.size() > 1) text += fmt::format(" +{}", process.waits.size() - 1);
      return {text, seconds(*longest) >= kLongWait ? kYellow : ""};
    }
    switch (process.usage.state) {
      case 'R':
        return {"running", kGreen};
      case 'D':
        return {"disk", ""};
      default:
        return {"sleeping", kDim};
    }
  }

  void add(Table& table, const SeenProcess& process, const std::string& branch) const {
    const auto cpu = rates_.cpu_percent(process);
    table.add({{std::to_string(process.pid)},
               {branch + (process.name.empty() ? "-" : process.name)},
               state(process),
               {cpu ? fmt::format("{:.0f}", *cpu) : "-"},
               {short_bytes(process.held_bytes)},
               {short_bytes(process.owned_bytes)},
               {process.usage.found ? short_bytes(process.usage.resident_bytes) : "-"},
               {process.usage.found ? short_bytes(process.usage.private_bytes) : "-"},
               {process.usage.pss_bytes != 0 ? short_bytes(process.usage.pss_bytes) : "-"},
               {process.label}});
  }

  /// PSS is what may be added up: what several share is in it once.
  void add_sum(Table& table) const {
    std::uint64_t owned = 0, own = 0, pss = 0;
    for (const SeenProcess& process : view_.processes) {
      owned += process.owned_bytes;
      own += process.usage.private_bytes;
      pss += process.usage.pss_bytes;
    }
    table.add({{""},
               {"together"},
               {""},
               {""},
               {""},
               {short_bytes(owned)},
               {""},
               {short_bytes(own)},
               {short_bytes(pss)},
               {""}});
  }

  std::string who(std::uint32_t slot) const {
    const SeenProcess* process = view_.process(slot);
    if (!process) return "?";
    return process->name.empty() ? std::to_string(process->pid) : process->name;
  }

  Cell waiters(const std::vector<SeenWait>& waits, bool say_what) const {
    Cell cell;
    for (const SeenWait& wait : waits) {
      if (!cell.text.empty()) cell.text += ", ";
      if (say_what) cell.text += fmt::format("{}: ", wait.what);
      cell.text += fmt::format("{} {}", who(wait.slot), short_seconds(seconds(wait)));
      if (seconds(wait) >= kLongWait) cell.color = kYellow;
    }
    return cell;
  }

  /// Whose it is: of several queues of one name that tells which.
  std::string holders(const SeenQueue& queue) const {
    constexpr std::size_t kMost = 3;
    std::string text;
    for (std::size_t i = 0; i < std::min(queue.holders.size(), kMost); ++i)
      text += (i == 0 ? "" : ", ") + who(queue.holders[i]);
    if (queue.holders.size() > kMost) text += fmt::format(" +{}", queue.holders.size() - kMost);
    return text;
  }

  void add(Table& table, const SeenQueue& queue) const {
    const auto messages = rates_.messages(queue);
    constexpr int kBar = 8;
    const int filled = int((std::uint64_t(queue.depth) * kBar + queue.capacity - 1) / queue.capacity);
    Cell waiting = waiters(queue.waits, true);
    if (queue.unfinished)
      waiting.text =
          fmt::format("{} tasks open{}{}", *queue.unfinished, waiting.text.empty() ? "" : ", ", waiting.text);
    if (queue.closed) waiting.text = "closed" + (waiting.text.empty() ? "" : ", " + waiting.text);
    table.add({{queue.name.empty() ? fmt::format("@{:x}", queue.block) : queue.name},
               {name_of(queue.kind)},
               {fmt::format("{}/{}", queue.depth, queue.capacity)},
               {std::string(std::size_t(filled), '#') + std::string(std::size_t(kBar - filled), '.'),
                queue.depth == queue.capacity ? kRed : ""},
               {queue.bytes ? short_bytes(*queue.bytes) : "-"},
               {messages ? short_number(messages->in) : "-"},
               {messages ? short_number(messages->out) : "-"},
               {holders(queue)},
               waiting});
  }

  void add(Table& table, const SeenLock& lock) const {
    table.add({{fmt::format("{}@{:x}", lock.recursive ? "r" : "", lock.block)},
               {lock.holder ? who(*lock.holder) : "-"},
               waiters(lock.waits, false)});
  }

  const SessionView& view_;
  const SessionRates& rates_;
  const TableOptions& options_;
  std::map<std::uint64_t, const SeenQueue*> queues_;
  std::vector<std::string> lines_;
};

}  // namespace

std::string short_seconds(double seconds) {
  if (seconds < 0.9995) return fmt::format("{:.0f}ms", seconds * 1e3);
  if (seconds < 60) return fmt::format("{:.1f}s", seconds);
  const auto whole = std::uint64_t(seconds);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

std::vector<std::string> to_table(const SessionView& view, const SessionRates& rates, const TableOptions& options) {
  return SessionText(view, rates, options).lines();
}

}  // namespace shoal::command
