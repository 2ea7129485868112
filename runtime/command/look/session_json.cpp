#include <shoal/internal/runtime/command/look/session_json.h>

#include <chrono>
#include <nlohmann/json.hpp>

namespace shoal::command {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json pid_of(const SessionView& view, std::optional<std::uint32_t> slot) {
  const SeenProcess* process = slot ? view.process(*slot) : nullptr;
  return process ? Json(process->pid) : Json(nullptr);
}

double seconds_since(const SessionView& view, std::uint64_t time) { return double(view.time - time) * 1e-9; }

Json waits_of(const SessionView& view, const std::vector<SeenWait>& waits) {
  Json list = Json::array();
  for (const SeenWait& wait : waits)
    list.push_back({{"pid", pid_of(view, wait.slot)},
                    {"thread", wait.thread},
                    {"for", wait.what},
                    {"block", wait.block},
                    {"seconds", seconds_since(view, wait.since)}});
  return list;
}

const char* state_name(SeenProcess::State state) {
  switch (state) {
    case SeenProcess::State::kAlive:
      return "alive";
    case SeenProcess::State::kEnded:
      return "ended";
    case SeenProcess::State::kBeingReclaimed:
      break;
  }
  return "being reclaimed";
}

Json to_object(const SessionView& view, const SessionRates& rates, const SeenProcess& process) {
  const bool found = process.usage.found;
  return {{"pid", process.pid},
          {"parent", pid_of(view, process.parent)},
          {"name", process.name},
          {"rank", process.rank >= 0 ? Json(process.rank) : Json(nullptr)},
          {"label", process.label},
          {"state", state_name(process.state)},
          {"kernel_state", found ? Json(std::string(1, process.usage.state)) : Json(nullptr)},
          {"threads", process.usage.threads},
          {"cpu_percent", or_null(rates.cpu_percent(process))},
          {"cpu_seconds", double(process.usage.cpu_ns) * 1e-9},
          {"held_bytes", process.held_bytes},
          {"held_blocks", process.held_blocks},
          {"owned_bytes", process.owned_bytes},
          {"owned_blocks", process.owned_blocks},
          {"owned_extents", process.extents},
          {"resident_bytes", process.usage.resident_bytes},
          {"private_bytes", process.usage.private_bytes},
          {"pss_bytes", process.usage.pss_bytes != 0 ? Json(process.usage.pss_bytes) : Json(nullptr)},
          {"waits", waits_of(view, process.waits)}};
}

Json to_object(const SessionView& view, const SessionRates& rates, const SeenQueue& queue) {
  const auto messages = rates.messages(queue);
  Json holders = Json::array();
  for (const std::uint32_t slot : queue.holders) holders.push_back(pid_of(view, slot));
  return {{"block", queue.block},
          {"kind", name_of(queue.kind)},
          {"name", queue.name},
          {"depth", queue.depth},
          {"capacity", queue.capacity},
          {"bytes", or_null(queue.bytes)},
          {"byte_capacity", queue.byte_capacity != 0 ? Json(queue.byte_capacity) : Json(nullptr)},
          {"put", queue.put},
          {"got", queue.got},
          {"put_per_second", messages ? Json(messages->in) : Json(nullptr)},
          {"got_per_second", messages ? Json(messages->out) : Json(nullptr)},
          {"closed", queue.closed},
          {"crashes", queue.crashes},
          {"unfinished", or_null(queue.unfinished)},
          {"holders", std::move(holders)},
          {"waits", waits_of(view, queue.waits)}};
}

}  // namespace

std::string to_json(const SessionView& view, const SessionRates& rates) {
  Json root;
  root["schema"] = 1;
  root["time"] = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  root["root"] = view.root;
  root["complete"] = view.complete;
  root["rates_over_seconds"] = rates.seconds();
  root["processes"] = Json::array();
  for (const SeenProcess& process : view.processes) root["processes"].push_back(to_object(view, rates, process));
  root["queues"] = Json::array();
  for (const SeenQueue& queue : view.queues) root["queues"].push_back(to_object(view, rates, queue));
  root["locks"] = Json::array();
  for (const SeenLock& lock : view.locks)
    root["locks"].push_back({{"block", lock.block},
                             {"kind", lock.recursive ? "recursive lock" : "lock"},
                             {"holder", pid_of(view, lock.holder)},
                             {"holders_died", lock.deaths},
                             {"waits", waits_of(view, lock.waits)}});
  root["other_waits"] = waits_of(view, view.other_waits);
  const SeenHeap& heap = view.heap;
  root["heap"] = {{"blocks", heap.blocks},
                  {"bytes", heap.bytes},
                  {"message_bytes", heap.message_bytes},
                  {"committed_bytes", heap.committed_bytes},
                  {"idle_bytes", heap.idle_bytes},
                  {"peak_bytes", heap.peak_bytes},
                  {"resident_bytes", heap.resident_bytes},
                  {"address_bytes", heap.address_bytes},
                  {"extents", heap.extents},
                  {"orphan_extents", heap.orphan_extents},
                  {"orphan_bytes", heap.orphan_bytes},
                  {"allowed_bytes", heap.allowed_bytes != 0 ? Json(heap.allowed_bytes) : Json(nullptr)},
                  {"allowed_by", heap.allowed_bytes != 0 ? Json(heap.allowed_by) : Json(nullptr)},
                  {"deaths", heap.deaths}};
  return root.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace shoal::command
