// Deaths at marked points: the call that was cut off has happened or it has not, nothing else has changed, and no byte
// is lost.
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/ipc/dict.h>
#include <shoal/ipc/list.h>
#include <shoal/ipc/session.h>

#include <set>

#include "tests/ipc/containers/sample.h"
#include "tests/ipc/sync/fixtures.h"

using namespace shoal;
using namespace shoal::test;

namespace {

/// How far the victims are in the one sequence of calls that they make; outlives them.
struct Progress {
  std::atomic<int> begun{0}, done{0};
};

/// A call by its number, the same for whoever makes it.
std::mt19937 draw(unsigned seed, int call) { return std::mt19937(seed * 1'000'003u + unsigned(call)); }

// A dictionary, and what it should be: numbers of samples by key, in the order in which the keys came.
struct Dicts {
  using Container = Dict<int, Sample>;
  using Model = std::vector<std::pair<int, int>>;

  static auto find(Model& model, int key) {
    return std::ranges::find(model, key, [](const auto& item) { return item.first; });
  }
  static void put(Model& model, int key, int number) {
    if (auto at = find(model, key); at != model.end())
      at->second = number;
    else
      model.emplace_back(key, number);
  }

  /// Makes the call on either; null: not on that.
  static void call(unsigned seed, int index, Container* dict, Model* model) {
    std::mt19937 random = draw(seed, index);
    const int kind = int(random() % 20), key = int(random() % 60), number = int(random() % 100'000);
    switch (kind) {
      case 0:
      case 1:
      case 2:
        if (dict) dict->erase(key);
        if (model) std::erase_if(*model, [&](const auto& item) { return item.first == key; });
        break;
      case 3:
        if (dict) dict->try_pop(key);
        if (model) std::erase_if(*model, [&](const auto& item) { return item.first == key; });
        break;
      case 4:
        if (dict) dict->setdefault(key, make_sample(number));
        if (model && find(*model, key) == model->end()) model->emplace_back(key, number);
        break;
      case 5:
      case 6: {
        const auto next = [](int now) { return (now + 1) % 100'000; };
        if (dict) dict->update(key, [&](const Sample& s) { return make_sample(next(s.number)); }, make_sample(number));
        if (model) put(*model, key, find(*model, key) == model->end() ? next(number) : next(find(*model, key)->second));
        break;
      }
      case 7:
        if (dict && random() % 4 == 0) dict->clear();
        if (model && draw_again(seed, index)) model->clear();
        break;
      case 8:
        if (dict) {
          try {
            dict->popitem();
          } catch (const std::out_of_range&) {
          }
        }
        if (model && !model->empty()) model->pop_back();
        break;
      case 9:
        if (dict)
          for (const auto& [k, sample] : dict->snapshot())
            if (!is_whole(sample)) throw Error("a value that is not whole");
        break;
      case 10:
        if (dict)
          if (auto sample = dict->try_get(key); sample && !is_whole(*sample)) throw Error("a value that is not whole");
        break;
      default:
        if (dict) dict->set(key, make_sample(number));
        if (model) put(*model, key, number);
    }
  }
  static bool draw_again(unsigned seed, int index) {
    std::mt19937 random = draw(seed, index);
    random.discard(3);
    return random() % 4 == 0;
  }

  static Model look(const Container& dict) {
    Model model;
    for (const auto& [key, sample] : dict.snapshot()) {
      if (!is_whole(sample)) throw Error("a value that is not whole");
      model.emplace_back(key, sample.number);
    }
    if (dict.size() != model.size()) throw Error("a size that is not that of a snapshot");
    for (const auto& [key, number] : model)
      if (dict.get(key).number != number) throw Error("a key that is not found");
    return model;
  }
};

struct Lists {
  using Container = List<Sample>;
  using Model = std::vector<int>;

  static void call(unsigned seed, int index, Container* list, Model* model) {
    std::mt19937 random = draw(seed, index);
    const int kind = int(random() % 16), number = int(random() % 100'000);
    const auto place = std::ptrdiff_t(random() % 20);
    const auto try_at = [&](auto&& there) {
      if (!list) return;
      try {
        there();
      } catch (const std::out_of_range&) {
      }
    };
    const bool is_there = model && std::size_t(place) < model->size();
    switch (kind) {
      case 0:
        try_at([&] { list->pop(place); });
        if (is_there) model->erase(model->begin() + place);
        break;
      case 1:
      case 2:
        try_at([&] { list->pop(); });
        if (model && !model->empty()) model->pop_back();
        break;
      case 3:
        try_at([&] { list->set(place, make_sample(number)); });
        if (is_there) (*model)[std::size_t(place)] = number;
        break;
      case 4:
        try_at([&] { list->update(place, [](const Sample& s) { return make_sample((s.number + 1) % 100'000); }); });
        if (is_there) (*model)[std::size_t(place)] = ((*model)[std::size_t(place)] + 1) % 100'000;
        break;
      case 5:
        if (list) list->insert(place, make_sample(number));
        if (model) model->insert(model->begin() + std::min(place, std::ptrdiff_t(model->size())), number);
        break;
      case 6:
        if (list) list->extend({make_sample(number), make_sample(number / 2), make_sample(number / 3)});
        if (model) model->insert(model->end(), {number, number / 2, number / 3});
        break;
      case 7:
        if (list) list->reverse();
        if (model) std::ranges::reverse(*model);
        break;
      case 8:
        if (list) list->sort([](const Sample& a, const Sample& b) { return a.number < b.number; });
        if (model) std::ranges::stable_sort(*model);
        break;
      case 9:
        if (list) list->replace(1, 4, {make_sample(number)});
        if (model) {
          const auto size = std::ptrdiff_t(model->size());
          model->erase(model->begin() + std::min<std::ptrdiff_t>(1, size),
                       model->begin() + std::min<std::ptrdiff_t>(4, size));
          model->insert(model->begin() + std::min<std::ptrdiff_t>(1, std::ptrdiff_t(model->size())), number);
        }
        break;
      case 10:
        if (number % 4 != 0) break;
        if (list) list->clear();
        if (model) model->clear();
        break;
      default:
        if (list) list->append(make_sample(number));
        if (model) model->push_back(number);
    }
  }

  static Model look(const Container& list) {
    Model model;
    for (const Sample& sample : list.items()) {
      if (!is_whole(sample)) throw Error("a value that is not whole");
      model.push_back(sample.number);
    }
    if (list.size() != model.size()) throw Error("a size that is not that of the values");
    return model;
  }
};

/// Victims make one sequence of calls, each from where the one before died. What is there at the end is what follows
/// from all calls that ended, with or without each one that did not.
template <class Kind>
void kill_in_turn(int rounds) {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const std::vector<std::string> labels = container_kill_points();
  REQUIRE(labels.size() > 20);
  const std::size_t before = heap_bytes_in_use();
  int kills = 0;
  std::set<std::string> passed;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    {
      InHeap<Progress> progress;
      auto container = std::make_unique<typename Kind::Container>();
      std::vector<typename Kind::Model> candidates(1);
      const unsigned calls = random();
      int start = 0;
      for (int victim = 0; victim < 4; ++victim) {
        const std::string label = labels[random() % labels.size()];
        const int skip = int(random() % 30), most = start + 120;
        Forked process([&] {
          kill_at(label.c_str(), skip);
          for (int call = start; call < most; ++call) {
            progress->begun = call + 1;
            Kind::call(calls, call, container.get(), nullptr);
            progress->done = call + 1;
          }
        });
        const int result = process.join();
        REQUIRE((result == 0 || result == -SIGKILL));
        if (result != 0) {
          ++kills;
          passed.insert(label);
        }
        if (random() % 2) Session::current().reclaim_all();  // else an heir is first
        for (; start < progress->done; ++start)
          for (auto& model : candidates) Kind::call(calls, start, nullptr, &model);
        if (progress->begun > start) {
          for (std::size_t i = 0, end = candidates.size(); i < end; ++i)
            Kind::call(calls, start, nullptr, &candidates.emplace_back(candidates[i]));
          ++start;
        }
      }
      const typename Kind::Model found = Kind::look(*container);
      REQUIRE(std::ranges::find(candidates, found) != candidates.end());
    }
    Session::current().reclaim_all();
    REQUIRE(heap_bytes_in_use() == before);
  }
  CHECK(kills > rounds);
  CHECK(passed.size() > labels.size() / 3);
}

}  // namespace

TEST_CASE("containers: one wrong byte of a sample is noticed, wherever it is") {
  Sample sample = make_sample(12);  // of 70,000 bytes
  REQUIRE(is_whole(sample));
  for (const std::size_t at : {std::size_t(0), std::size_t(1), sample.bytes.size() / 2, sample.bytes.size() - 1}) {
    std::byte& byte = sample.bytes.data()[at];
    const std::byte right = byte;
    byte ^= std::byte(1);
    CHECK_FALSE(is_whole(sample));
    byte = right;
  }
  CHECK(is_whole(sample));
  sample.number += 12;  // another's bytes, all of one value and as many
  CHECK_FALSE(is_whole(sample));
}

TEST_CASE("containers: killed at any marked point, a dictionary's call has happened or has not") {
  kill_in_turn<Dicts>(40 * test_scale());
}

TEST_CASE("containers: killed at any marked point, a list's call has happened or has not") {
  kill_in_turn<Lists>(40 * test_scale());
}

TEST_CASE(
    "containers: killed at any marked point with the last handle, survivors give all memory back, killed or not") {
  const unsigned seed = test_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const std::size_t before = heap_bytes_in_use();
  int kills = 0, reclaimers = 0;
  for (int round = 0; round < test_scale(); ++round) {
    for (const std::string& label : container_kill_points()) {
      CAPTURE(label);
      for (int skip : {0, 1, int(random() % 40)}) {
        Forked owner([&] {
          Dict<int, Sample> dict;
          List<Sample> list;
          for (int call = 0; call < 60; ++call) {
            Dicts::call(seed, call, &dict, nullptr);
            Lists::call(seed, call, &list, nullptr);
          }
          kill_at(label.c_str(), skip);
          for (int call = 60; call < 80; ++call) {
            Dicts::call(seed, call, &dict, nullptr);
            Lists::call(seed, call, &list, nullptr);
          }
        });
        kills += owner.join() != 0;
        for (const char* where : {"container.close.shelf", "parcel.close.hold", "container.settle.begun",
                                  "container.settle.dropped", "container.drop.parcel", "container.change.dropped"}) {
          if (random() % 4 != 0) continue;
          Forked reclaimer([&] {
            kill_at(where, int(random() % 3));
            Session::current().reclaim_all();
          });
          reclaimers += reclaimer.join() != 0;
        }
        Session::current().reclaim_all();
        REQUIRE(heap_bytes_in_use() == before);
      }
    }
  }
  CHECK(kills > 30);
  CHECK(reclaimers > 5);
}
