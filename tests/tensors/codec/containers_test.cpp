// Tensors in dictionaries, lists and name spaces.
#include <shoal/ipc/dict.h>
#include <shoal/ipc/list.h>
#include <shoal/ipc/namespace.h>
#include <shoal/ipc/session.h>
#include <shoal/tensors/codec.h>
#include <shoal/tensors/share.h>
#include <signal.h>
#include <torch/torch.h>

#include <map>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/forked.h"

using namespace shoal;
using shoal::test::Forked;

TEST_CASE("containers: tensors in them are one memory for all, and outlive the process that put them there") {
  Dict<std::string, at::Tensor> dict;
  List<at::Tensor> list;
  Namespace names;
  Forked writer([&] {
    dict.set("a", torch::arange(1000, torch::kFloat));
    list.append(torch::full({300, 300}, 7));
    names.set("state", std::map<std::string, at::Tensor>{{"w", torch::ones({4, 4})}, {"b", torch::zeros({4})}});
    ::raise(SIGKILL);
  });
  CHECK(writer.join() == -SIGKILL);
  Session::current().reclaim_all();
  const at::Tensor a = dict.get("a"), again = dict.get("a");
  CHECK(a.data_ptr() == again.data_ptr());
  CHECK(at::equal(a, torch::arange(1000, torch::kFloat)));
  CHECK(at::equal(list[0], torch::full({300, 300}, 7)));
  const auto state = names.get<std::map<std::string, at::Tensor>>("state");
  CHECK(state.at("w").sum().item<float>() == 16);
  Forked changer([&] { dict.get("a")[3] = -1; });
  CHECK(changer.join() == 0);
  CHECK(a[3].item<float>() == -1);
  CHECK(dict.erase("a"));
  CHECK(a.sum().item<float>() == 1000 * 999 / 2 - 4);  // whoever has it keeps it
}

TEST_CASE("containers: what setdefault and update return is the memory that all others get") {
  Dict<std::string, at::Tensor> dict;
  at::Tensor fresh = dict.setdefault("w", at::zeros({4}));
  CHECK(fresh.data_ptr() == dict.get("w").data_ptr());
  fresh.add_(1);
  CHECK(at::equal(dict.get("w"), at::ones({4})));
  CHECK(dict.setdefault("w", at::zeros({4})).data_ptr() == fresh.data_ptr());
  at::Tensor doubled = dict.update("w", [](const at::Tensor& w) { return w * 2; });
  CHECK(doubled.data_ptr() == dict.get("w").data_ptr());
  List<at::Tensor> list{at::zeros({2})};
  const at::Tensor second = list.update(0, [](const at::Tensor& t) { return t + 1; });  // before get(), not beside it
  CHECK(second.data_ptr() == list.get(0).data_ptr());
  Namespace names;
  names.set("t", at::zeros({2}));
  const at::Tensor third = names.update<at::Tensor>("t", [](const at::Tensor& t) { return t + 1; });
  CHECK(third.data_ptr() == names.get<at::Tensor>("t").data_ptr());
}

TEST_CASE("containers: a tensor in shared memory is put there without a copy, and a view keeps its place") {
  at::Tensor whole = torch::arange(10'000, torch::kLong);
  share_memory_(whole);
  Dict<int, at::Tensor> dict;
  dict.set(0, whole);
  dict.set(1, whole.slice(0, 100, 200));
  CHECK(dict.get(0).data_ptr() == whole.data_ptr());
  const at::Tensor view = dict.get(1);
  CHECK(view.data_ptr() == whole.data_ptr<std::int64_t>() + 100);
  CHECK(view.size(0) == 100);
  dict.update(1, [](at::Tensor t) { return t * 2; });  // private, and so copied to the heap
  CHECK(dict.get(1)[0].item<std::int64_t>() == 200);
  CHECK(whole[100].item<std::int64_t>() == 100);
}

TEST_CASE("containers: tensors come and go in processes that are killed, and no byte is lost") {
  const std::size_t before = heap_bytes_in_use();
  {
    Dict<int, std::vector<at::Tensor>> dict;
    for (int round = 0; round < 10; ++round) {
      Forked worker([&] {
        for (int i = 0;; ++i) {
          dict.set(i % 10, {torch::full({100 + i % 50}, i), torch::full({20'000}, i)});
          const auto tensors = dict.get(i % 10);
          if (tensors[0][0].item<float>() != tensors[1][19'999].item<float>()) ::_exit(1);
          if (i == 40 + round) ::raise(SIGKILL);
        }
      });
      CHECK(worker.join() == -SIGKILL);
      for (const auto& [key, tensors] : dict.snapshot())
        REQUIRE(at::equal(tensors[1], torch::full({20'000}, tensors[0][0].item<float>())));
    }
  }
  Session::current().reclaim_all();
  CHECK(heap_bytes_in_use() == before);
}
