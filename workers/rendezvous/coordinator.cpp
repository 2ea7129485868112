#include <shoal/internal/workers/rendezvous/coordinator.h>

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <tuple>

namespace shoal::rendezvous {

Coordinator::Coordinator(const CoordinatorSettings& settings, std::string own, double now)
    : settings_(settings), own_(std::move(own)), waiting_since_(now) {}

int Coordinator::count(State state) const {
  return int(std::ranges::count_if(members_, [&](const auto& each) { return each.second.state == state; }));
}

std::vector<std::string> Coordinator::members() const {
  std::vector<std::string> ids;
  ids.reserve(members_.size());
  for (const auto& [id, member] : members_) ids.push_back(id);
  return ids;
}

void Coordinator::receive(const std::string& id, const std::string& message, double now) {
  std::istringstream words(message);
  std::string what, rest;
  words >> what;
  int round = -1;
  if ((what == "success" || what == "failure") && !(words >> round)) return;
  std::getline(words >> std::ws, rest);
  if (over_) {
    // Too late, or it crossed with the answer that all have got.
    if (what == "join") answers_.emplace_back(id, "failed the run is over");
    return;
  }
  if (what == "join") return join(id, rest, now);
  const auto found = members_.find(id);
  if (found == members_.end()) return;
  found->second.seen = now;
  if (what == "leave") return remove(id, rest, now);
  if (!active_ || round != round_) return;  // of a round that is over: a restart is under way
  if (what == "success") {
    found->second.state = State::kSucceeded;
    if (count(State::kRunning) == 0) end("finished");
  } else if (what == "failure") {
    if (restarts_ == settings_.max_restarts) return end("failed " + rest);
    ++restarts_;
    begin_restart(rest, now);
  }
}

void Coordinator::join(const std::string& id, const std::string& rest, double now) {
  const bool is_new = !members_.contains(id);
  Member& member = members_[id];
  std::istringstream(rest) >> member.ranks >> member.wish >> member.port >> member.address;
  if (is_new) member.order = joined_++;
  member.state = State::kWaiting;
  member.seen = now;
  const int taking_part = count(State::kRunning) + count(State::kSucceeded);
  if (active_ && taking_part < settings_.most && count(State::kSucceeded) == 0) begin_restart("a host has joined", now);
  tick(now);
}

void Coordinator::note_alive(const std::string& id, double now) {
  if (const auto found = members_.find(id); found != members_.end()) found->second.seen = now;
}

void Coordinator::remove(const std::string& id, const std::string& why, double now) {
  const State state = members_.at(id).state;
  members_.erase(id);
  if (over_) return;
  if (id == own_) return end("failed the launcher at the rendezvous's endpoint has left: " + why);
  if (!active_ || state == State::kWaiting || state == State::kSucceeded) {
    if (active_ && count(State::kRunning) == 0 && count(State::kSucceeded) == 0) end("failed " + why);
    return;
  }
  const int left = count(State::kRunning) + count(State::kSucceeded);
  if (left >= settings_.least) return begin_restart("a host has left: " + why, now);
  if (restarts_ == settings_.max_restarts)
    return end(fmt::format("failed a host has left: {}. {} of at least {} {} here", why, left, settings_.least,
                           left == 1 ? "is" : "are"));
  ++restarts_;  // another may come in its place
  begin_restart("a host has left: " + why, now);
}

void Coordinator::begin_restart(const std::string& reason, double now) {
  active_ = false;
  waiting_since_ = now;
  enough_since_ = -1;
  for (auto& [id, member] : members_)
    if (member.state == State::kRunning || member.state == State::kSucceeded) {
      member.state = State::kRestarting;
      answers_.emplace_back(id, "restart " + reason);
    }
}

void Coordinator::tick(double now) {
  if (over_) return;
  std::vector<std::string> dead;
  for (const auto& [id, member] : members_)
    if (now - member.seen > settings_.dead_after && id != own_) dead.push_back(id);
  for (const std::string& id : dead)
    remove(id, fmt::format("nothing was heard of it for {} s", settings_.dead_after), now);
  if (over_ || active_) return;
  const bool some_restart = count(State::kRestarting) > 0;  // they come back, or leave, or are dead soon
  if (some_restart) waiting_since_ = now;                   // until then nobody is late
  const int waiting = count(State::kWaiting);
  if (waiting < settings_.least) {
    enough_since_ = -1;
    if (now - waiting_since_ > settings_.join_timeout)
      end(fmt::format("failed only {} of at least {} hosts came within {} s", waiting, settings_.least,
                      settings_.join_timeout));
    return;
  }
  if (enough_since_ < 0) enough_since_ = now;
  if (some_restart) return;
  // Those of an earlier round need not wait for others, who would be let in when they come.
  const bool patient = round_ < 0 && now - enough_since_ < settings_.last_call;
  if (waiting >= settings_.most || !patient) form_round();
}

void Coordinator::form_round() {
  std::vector<std::pair<std::string, Member*>> chosen;
  for (auto& [id, member] : members_)
    if (member.state == State::kWaiting) chosen.emplace_back(id, &member);
  // Wishes first; then those that were there before, in their order; then as they came.
  std::ranges::sort(chosen, [](const auto& a, const auto& b) {
    auto key = [](const Member& member) {
      return std::tuple(member.wish < 0, member.wish, member.node < 0, member.node, member.order);
    };
    return key(*a.second) < key(*b.second);
  });
  if (int(chosen.size()) > settings_.most) {
    // The store's own host has to be among them.
    const auto own = std::ranges::find_if(chosen, [&](const auto& each) { return each.first == own_; });
    if (own - chosen.begin() >= settings_.most) std::iter_swap(own, chosen.begin() + settings_.most - 1);
    chosen.resize(std::size_t(settings_.most));
  }
  int world = 0, node = 0, first = 0;
  for (const auto& [id, member] : chosen) world += member->ranks;
  ++round_;
  active_ = true;
  const Member& head = *chosen.front().second;
  for (const auto& [id, member] : chosen) {
    member->state = State::kRunning;
    member->node = node;
    answers_.emplace_back(id, fmt::format("round {} {} {} {} {} {} {} {}", round_, node, chosen.size(), first, world,
                                          restarts_, head.port, head.address));
    first += member->ranks;
    ++node;
  }
}

void Coordinator::end(const std::string& answer) {
  over_ = true;
  for (const auto& [id, member] : members_) answers_.emplace_back(id, answer);
}

}  // namespace shoal::rendezvous
