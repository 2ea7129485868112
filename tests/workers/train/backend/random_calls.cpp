#include "tests/workers/train/backend/random_calls.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <shoal/tensors/share.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/workers/train/backend/premul_sum.h"
#include "tests/workers/train/numbers.h"

namespace shoal::test {
namespace {

using Op = c10d::ReduceOp;
using Tensors = std::vector<at::Tensor>;

constexpr std::size_t kMostUnderWay = 6;
constexpr std::int64_t kCanary = 16;  // elements on each side
constexpr int kCanaryByte = 0x5a;
constexpr std::int64_t kFactor = 2;  // of PREMUL_SUM, on all ranks

bool is_canary(const at::Tensor& bytes) { return at::equal(bytes, at::full_like(bytes, kCanaryByte)); }

/// A tensor of a call, wherever it lies.
struct Place {
  at::Tensor tensor;
  at::Tensor before, after;  // canaries as bytes, where it has some

  void check(const at::Tensor& expected, bool rounds, const std::string& what) const {
    const bool right = rounds ? at::allclose(tensor.to(at::kComplexDouble), expected.to(at::kComplexDouble), 1e-2, 1e-2)
                              : at::equal(tensor, expected);
    if (!right) {
      const at::Tensor wrong = tensor.ne(expected).nonzero();
      const std::int64_t first = wrong.size(0) == 0 ? -1 : wrong[0][0].item<std::int64_t>();
      throw std::runtime_error(
          fmt::format("{}: {} of {} elements are wrong, from {} on", what, wrong.size(0), tensor.numel(), first));
    }
    if (before.defined() && !(is_canary(before) && is_canary(after)))
      throw std::runtime_error(what + ": something was written beside a tensor");
  }
};

class Calls {
 public:
  Calls(c10::intrusive_ptr<c10d::ProcessGroup> group, std::uint64_t seed, std::int64_t most)
      : group_(std::move(group)),
        me_(group_->getRank()),
        world_(group_->getSize()),
        most_(most),
        common_(seed),
        own_(seed * 1000 + std::uint64_t(me_)) {}

  void one() {
    ++number_;
    count_ = draw_count();
    type_ = kTypes[draw(kTypes.size())];
    root_ = int(draw(std::size_t(world_)));
    salt_ = int(draw(100));
    op_ = Op::SUM;
    const std::size_t kind = draw(kKinds.size());
    what_ =
        fmt::format("call {}, {} of {} {}, root {}", number_, kKinds[kind].first, count_, c10::toString(type_), root_);
    (this->*kKinds[kind].second)();
    if (draw_own(8) == 0) std::this_thread::sleep_for(std::chrono::microseconds(draw_own(3000)));
    while (under_way_.size() > kMostUnderWay || (!under_way_.empty() && draw_own(3) == 0)) end_one();
  }

  void end_all() {
    while (!under_way_.empty()) end_one();
  }

 private:
  struct UnderWay {
    c10::intrusive_ptr<c10d::Work> work;
    std::function<void()> check;
    std::string what;
  };

  std::size_t draw(std::size_t below) { return std::size_t(common_() % below); }
  std::size_t draw_own(std::size_t below) { return std::size_t(own_() % below); }

  std::int64_t draw_count() {
    const std::int64_t limits[] = {2, 1000, 70'000, most_};
    return std::int64_t(draw(std::size_t(std::min(limits[draw(4)], most_)) + 1));
  }

  at::Tensor numbers(int rank, int salt) const {
    return numbers_of(rank, kPeriod, type_, salt, op_ == Op::PRODUCT ? 2 : 5);
  }
  at::Tensor given(int rank, std::int64_t count, int salt = 0) const {
    return repeated(numbers(rank, salt_ + salt), count);
  }

  enum class Strides { any, none };

  /// A tensor of this content, somewhere.
  Place place(const at::Tensor& content, Strides strides = Strides::any) {
    Place made;
    const std::int64_t count = content.numel();
    const auto in_heap = [&](at::Tensor tensor) { return draw_own(2) == 0 ? share_memory_(tensor) : tensor; };
    std::size_t kind = draw_own(4);
    if (kind == 1 && strides == Strides::none) kind = 2;
    switch (kind) {
      case 0:
        made.tensor = in_heap(content.clone());
        break;
      case 1: {
        at::Tensor around = in_heap(at::empty({2 * count + 1}, content.scalar_type()));
        made.tensor = around.slice(0, 1, 2 * count + 1, 2);
        made.tensor.copy_(content);
        break;
      }
      default: {
        const std::int64_t bytes = (count + 2 * kCanary) * std::int64_t(content.element_size());
        const std::int64_t side = kCanary * std::int64_t(content.element_size());
        const at::Tensor around = in_heap(at::full({bytes}, kCanaryByte, at::kByte));
        made.before = around.narrow(0, 0, side);
        made.after = around.narrow(0, bytes - side, side);
        made.tensor = around.view(content.scalar_type()).narrow(0, kCanary, count);
        made.tensor.copy_(content);
      }
    }
    return made;
  }
  /// For a result; nothing of it may be left.
  Place room(std::int64_t count, Strides strides = Strides::any) { return place(given(world_ + 7, count), strides); }

  void start(c10::intrusive_ptr<c10d::Work> work, std::function<void()> check) {
    under_way_.push_back({std::move(work), std::move(check), what_});
  }

  void end_one() {
    const auto at = under_way_.begin() + std::ptrdiff_t(draw_own(under_way_.size()));
    const UnderWay ended = std::move(*at);
    under_way_.erase(at);
    ended.work->wait();
    ended.check();
  }

  void draw_op() {
    std::vector<Op::RedOpType> list = operations(type_);
    if (at::isFloatingType(type_) && type_ != at::kBFloat16) list.push_back(Op::PREMUL_SUM);
    op_ = list[draw(list.size())];
    what_ += fmt::format(", operation {}", int(op_));
  }
  c10d::ReduceOp op() const { return op_ == Op::PREMUL_SUM ? premul_sum(double(kFactor)) : c10d::ReduceOp(op_); }
  bool rounds() const { return op_ == Op::AVG; }

  at::Tensor result_of(std::int64_t count) const {
    Tensors all;
    for (int rank = 0; rank < world_; ++rank) all.push_back(numbers(rank, salt_));
    const bool multiplies = op_ == Op::PREMUL_SUM;
    const at::Tensor result = reduced(all, multiplies ? Op::SUM : op_);
    return repeated(multiplies ? result.mul(kFactor) : result, count);
  }

  void all_reduce() {
    draw_op();
    const Place data = place(given(me_, count_));
    Tensors list{data.tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = op();
    start(group_->allreduce(list, options), [data, expected = result_of(count_), rounds = rounds(), what = what_] {
      data.check(expected, rounds, what);
    });
  }
  void all_reduce_coalesced() {
    draw_op();
    std::vector<Place> data;
    std::vector<at::Tensor> expected;
    Tensors list;
    for (const std::int64_t count : {count_ / 3, std::int64_t(5), count_ / 2}) {
      data.push_back(place(given(me_, count)));
      list.push_back(data.back().tensor);
      expected.push_back(result_of(count));
    }
    c10d::AllreduceCoalescedOptions options;
    options.reduceOp = op();
    start(group_->allreduce_coalesced(list, options), [data, expected, rounds = rounds(), what = what_] {
      for (std::size_t i = 0; i < data.size(); ++i) data[i].check(expected[i], rounds, what);
    });
  }
  void reduce() {
    draw_op();
    const at::Tensor own = given(me_, count_);
    const Place data = place(own);
    Tensors list{data.tensor};
    c10d::ReduceOptions options;
    options.reduceOp = op();
    options.rootRank = root_;
    start(group_->reduce(list, options),
          [data, expected = me_ == root_ ? result_of(count_) : own, rounds = rounds() && me_ == root_, what = what_] {
            data.check(expected, rounds, what);
          });
  }
  void broadcast() {
    const Place data = place(given(me_, count_));
    Tensors list{data.tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root_;
    start(group_->broadcast(list, options),
          [data, expected = given(root_, count_), what = what_] { data.check(expected, false, what); });
  }
  void all_gather() {
    const at::Tensor own = given(me_, count_);
    const Place data = place(own);
    std::vector<Place> rooms;
    std::vector<Tensors> outputs(1);
    std::vector<at::Tensor> expected;
    for (int rank = 0; rank < world_; ++rank) {
      rooms.push_back(room(count_));
      outputs[0].push_back(rooms.back().tensor);
      expected.push_back(given(rank, count_));
    }
    Tensors list{data.tensor};
    start(group_->allgather(outputs, list), [data, own, rooms, expected, what = what_] {
      for (std::size_t i = 0; i < rooms.size(); ++i) rooms[i].check(expected[i], false, what);
      data.check(own, false, what + ", its input");
    });
  }
  void all_gather_base() {
    const at::Tensor own = given(me_, count_);
    const Place data = place(own, Strides::none), all = room(count_ * world_, Strides::none);
    Tensors parts;
    for (int rank = 0; rank < world_; ++rank) parts.push_back(given(rank, count_));
    at::Tensor output = all.tensor, input = data.tensor;
    start(group_->_allgather_base(output, input), [data, own, all, expected = at::cat(parts), what = what_] {
      all.check(expected, false, what);
      data.check(own, false, what + ", its input");
    });
  }
  void gather() {
    const at::Tensor own = given(me_, count_);
    const Place data = place(own);
    std::vector<Place> rooms;
    std::vector<Tensors> outputs;
    std::vector<at::Tensor> expected;
    if (me_ == root_) outputs.emplace_back();
    for (int rank = 0; rank < world_ && me_ == root_; ++rank) {
      rooms.push_back(room(count_));
      outputs[0].push_back(rooms.back().tensor);
      expected.push_back(given(rank, count_));
    }
    Tensors list{data.tensor};
    c10d::GatherOptions options;
    options.rootRank = root_;
    start(group_->gather(outputs, list, options), [data, own, rooms, expected, what = what_] {
      for (std::size_t i = 0; i < rooms.size(); ++i) rooms[i].check(expected[i], false, what);
      data.check(own, false, what + ", its input");
    });
  }
  void scatter() {
    std::vector<Place> data;
    std::vector<at::Tensor> sent;
    std::vector<Tensors> inputs;
    if (me_ == root_) inputs.emplace_back();
    for (int rank = 0; rank < world_ && me_ == root_; ++rank) {
      sent.push_back(given(root_, count_, rank));
      data.push_back(place(sent.back()));
      inputs[0].push_back(data.back().tensor);
    }
    const Place got = room(count_);
    Tensors list{got.tensor};
    c10d::ScatterOptions options;
    options.rootRank = root_;
    start(group_->scatter(list, inputs, options),
          [data, sent, got, expected = given(root_, count_, me_), what = what_] {
            got.check(expected, false, what);
            for (std::size_t i = 0; i < data.size(); ++i) data[i].check(sent[i], false, what + ", its input");
          });
  }
  void reduce_scatter() {
    draw_op();
    const at::Tensor all = given(me_, count_ * world_);
    std::vector<Place> parts;
    std::vector<Tensors> inputs(1);
    for (int rank = 0; rank < world_; ++rank) {
      parts.push_back(place(all.narrow(0, rank * count_, count_)));
      inputs[0].push_back(parts.back().tensor);
    }
    const Place got = room(count_);
    Tensors list{got.tensor};
    c10d::ReduceScatterOptions options;
    options.reduceOp = op();
    start(group_->reduce_scatter(list, inputs, options),
          [parts, got, expected = result_of(count_ * world_).narrow(0, me_ * count_, count_), rounds = rounds(),
           what = what_] { got.check(expected, rounds, what); });
  }
  void reduce_scatter_base() {
    draw_op();
    const at::Tensor all = given(me_, count_ * world_);
    const Place data = place(all, Strides::none), got = room(count_, Strides::none);
    at::Tensor output = got.tensor, input = data.tensor;
    c10d::ReduceScatterOptions options;
    options.reduceOp = op();
    start(group_->_reduce_scatter_base(output, input, options),
          [data, all, got, expected = result_of(count_ * world_).narrow(0, me_ * count_, count_), rounds = rounds(),
           what = what_] {
            got.check(expected, rounds, what);
            data.check(all, false, what + ", its input");
          });
  }
  /// Rank a sends so many parts of count_ elements to rank b.
  std::int64_t rows(int from, int to) const { return (from + 2 * to + salt_) % 3; }
  void all_to_all_base() {
    const bool equal = draw(2) == 0;
    std::vector<std::int64_t> in, out;
    Tensors sent, expected;
    for (int rank = 0; rank < world_; ++rank) {
      in.push_back(equal ? count_ : rows(me_, rank) * count_ / 2);
      out.push_back(equal ? count_ : rows(rank, me_) * count_ / 2);
      sent.push_back(given(me_, in.back(), rank));
      expected.push_back(given(rank, out.back(), me_));
    }
    const at::Tensor all = at::cat(sent);
    const Place data = place(all, Strides::none),
                got = room(std::accumulate(out.begin(), out.end(), std::int64_t(0)), Strides::none);
    at::Tensor output = got.tensor, input = data.tensor;
    if (equal) in.clear(), out.clear();
    start(group_->alltoall_base(output, input, out, in), [data, all, got, expected = at::cat(expected), what = what_] {
      got.check(expected, false, what);
      data.check(all, false, what + ", its input");
    });
  }
  void all_to_all() {
    std::vector<Place> data, rooms;
    Tensors inputs, outputs, sent, expected;
    for (int rank = 0; rank < world_; ++rank) {
      sent.push_back(given(me_, rows(me_, rank) * count_ / 2, rank));
      data.push_back(place(sent.back()));
      inputs.push_back(data.back().tensor);
      expected.push_back(given(rank, rows(rank, me_) * count_ / 2, me_));
      rooms.push_back(room(expected.back().numel()));
      outputs.push_back(rooms.back().tensor);
    }
    start(group_->alltoall(outputs, inputs), [data, sent, rooms, expected, what = what_] {
      for (std::size_t i = 0; i < rooms.size(); ++i) rooms[i].check(expected[i], false, what);
      for (std::size_t i = 0; i < data.size(); ++i) data[i].check(sent[i], false, what + ", its input");
    });
  }
  void barrier() {
    start(group_->barrier(c10d::BarrierOptions()), [] {});
  }
  /// From the root to another rank.
  void message() {
    if (world_ == 1) return;
    const int to = (root_ + 1 + int(draw(std::size_t(world_ - 1)))) % world_, tag = int(draw(3));
    what_ += fmt::format(" to {}, tag {}", to, tag);
    send(root_, to, tag);
  }
  /// Every rank to its neighbour, which waits for it at once: as a pipeline does.
  void ring() {
    if (world_ == 1) return;
    const int next = (me_ + 1) % world_, before = (me_ + world_ - 1) % world_;
    send(me_, next, 5);
    send(before, me_, 5);
    under_way_.back().work->wait();
    under_way_.back().check();
    under_way_.pop_back();
  }
  void send(int from, int to, int tag) {
    const at::Tensor sent = given(from, count_);
    if (me_ == from) {
      const Place data = place(sent);
      Tensors list{data.tensor};
      start(group_->send(list, to, tag), [data, sent, what = what_] { data.check(sent, false, what + ", its input"); });
    }
    if (me_ == to) {
      const Place got = room(count_);
      Tensors list{got.tensor};
      start(group_->recv(list, from, tag), [got, sent, what = what_] { got.check(sent, false, what); });
    }
  }

  using Call = void (Calls::*)();
  static const std::vector<std::pair<const char*, Call>> kKinds;
  static const std::vector<at::ScalarType> kTypes;

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  int me_, world_;
  std::int64_t most_;
  std::mt19937_64 common_, own_;
  std::vector<UnderWay> under_way_;
  // Of the call that is made:
  int number_ = 0, root_ = 0, salt_ = 0;
  std::int64_t count_ = 0;
  at::ScalarType type_ = at::kFloat;
  Op::RedOpType op_ = Op::SUM;
  std::string what_;
};

const std::vector<std::pair<const char*, Calls::Call>> Calls::kKinds{
    {"all_reduce", &Calls::all_reduce},
    {"all_reduce_coalesced", &Calls::all_reduce_coalesced},
    {"reduce", &Calls::reduce},
    {"broadcast", &Calls::broadcast},
    {"all_gather", &Calls::all_gather},
    {"all_gather_base", &Calls::all_gather_base},
    {"gather", &Calls::gather},
    {"scatter", &Calls::scatter},
    {"reduce_scatter", &Calls::reduce_scatter},
    {"reduce_scatter_base", &Calls::reduce_scatter_base},
    {"all_to_all_base", &Calls::all_to_all_base},
    {"all_to_all", &Calls::all_to_all},
    {"barrier", &Calls::barrier},
    {"message", &Calls::message},
    {"message", &Calls::message},
    {"ring", &Calls::ring},
};
const std::vector<at::ScalarType> Calls::kTypes{at::kFloat, at::kDouble, at::kHalf,         at::kBFloat16,
                                                at::kByte,  at::kChar,   at::kShort,        at::kInt,
                                                at::kLong,  at::kBool,   at::kComplexFloat, at::kComplexDouble};

}  // namespace

void random_calls(const c10::intrusive_ptr<c10d::ProcessGroup>& group, std::uint64_t seed, int calls,
                  std::int64_t most) {
  Calls random(group, seed, most);
  for (int i = 0; i < calls; ++i) random.one();
  random.end_all();
  group->barrier(c10d::BarrierOptions())->wait();
}

}  // namespace shoal::test
