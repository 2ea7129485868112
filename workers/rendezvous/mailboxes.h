// Messages between launchers, as keys of libtorch's TCPStore.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

namespace shoal::rendezvous {

/// Two boxes for each member: what it posts to the coordinator, and the coordinator's answers. A message is one key
/// with a number, written in one step, so a writer's death leaves whole messages and no gap. Who reads one deletes it.
/// All keys begin with shoal/RUN/. One thread. Throws what the store throws when it cannot be reached.
class Mailboxes {
 public:
  Mailboxes(c10::intrusive_ptr<c10d::Store> store, const std::string& run_id)
      : store_(std::move(store)), prefix_("shoal/" + run_id + "/") {}

  /// For members. Throws an error that names both runs if the store at this endpoint belongs to another run.
  void check_run(const std::string& run_id);
  void post(const std::string& member, const std::string& message);
  std::optional<std::string> next_answer(const std::string& member);
  void say_alive(const std::string& member) { store_->add(prefix_ + "alive/" + member, 1); }

  /// For the coordinator.
  void open(const std::string& run_id) { store_->set("shoal/run", run_id); }
  std::optional<std::pair<std::string, std::string>> next_post();
  void answer(const std::string& member, const std::string& text);
  /// Whether it has said so since the last call.
  bool was_alive(const std::string& member);
  /// Answers that have not been fetched yet.
  bool has_unread();

 private:
  std::string get(const std::string& key) const { return store_->get_to_str(key); }

  c10::intrusive_ptr<c10d::Store> store_;
  const std::string prefix_;
  std::int64_t posted_ = 0, answers_read_ = 0;                                  // of a member
  std::map<std::string, std::int64_t> posts_read_, answers_sent_, signs_seen_;  // of the coordinator
};

}  // namespace shoal::rendezvous
