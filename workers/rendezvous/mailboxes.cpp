#include <shoal/internal/workers/rendezvous/mailboxes.h>

#include <fmt/format.h>
#include <shoal/ipc/error.h>

#include <sstream>
#include <vector>

namespace shoal::rendezvous {

void Mailboxes::check_run(const std::string& run_id) {
  const std::string there = get("shoal/run");  // waits until the coordinator has set it
  if (there != run_id)
    throw Error(
        fmt::format("the rendezvous at this endpoint is of run '{}', not '{}': give the same --rdzv-id on all hosts, "
                    "or another port",
                    there, run_id));
}

void Mailboxes::post(const std::string& member, const std::string& message) {
  store_->set(fmt::format("{}post/{}/{}", prefix_, member, posted_ + 1), message);
  if (posted_++ > 0) return;
  const std::string name = member + " ";
  store_->append(prefix_ + "members", std::vector<std::uint8_t>(name.begin(), name.end()));
}

std::optional<std::pair<std::string, std::string>> Mailboxes::next_post() {
  if (!store_->check({prefix_ + "members"})) return std::nullopt;
  std::istringstream names(get(prefix_ + "members"));
  for (std::string member; names >> member;) {
    const std::string key = fmt::format("{}post/{}/{}", prefix_, member, posts_read_[member] + 1);
    if (!store_->check({key})) continue;
    std::string text = get(key);
    store_->deleteKey(key);
    ++posts_read_[member];
    return std::pair(member, std::move(text));
  }
  return std::nullopt;
}

void Mailboxes::answer(const std::string& member, const std::string& text) {
  store_->set(fmt::format("{}answer/{}/{}", prefix_, member, ++answers_sent_[member]), text);
}

std::optional<std::string> Mailboxes::next_answer(const std::string& member) {
  const std::string key = fmt::format("{}answer/{}/{}", prefix_, member, answers_read_ + 1);
  if (!store_->check({key})) return std::nullopt;
  std::string text = get(key);
  store_->deleteKey(key);
  ++answers_read_;
  return text;
}

bool Mailboxes::was_alive(const std::string& member) {
  const std::int64_t signs = store_->add(prefix_ + "alive/" + member, 0);
  return std::exchange(signs_seen_[member], signs) != signs;
}

bool Mailboxes::has_unread() {
  for (const auto& [member, sent] : answers_sent_)
    if (store_->check({fmt::format("{}answer/{}/{}", prefix_, member, sent)})) return true;
  return false;
}

}  // namespace shoal::rendezvous
