// The worker processes of a BetonWriter or a TarWriter: each encodes chunks of samples, in any order; the chunks come back
// in order.
#pragma once

#include <fmt/format.h>
#include <shoal/internal/workers/beton/make/sample_values.h>
#include <shoal/ipc/codec.h>
#include <shoal/ipc/raw_array.h>
#include <shoal/ipc/shared_bytes.h>
#include <shoal/workers/data/dataset.h>
#include <shoal/workers/data/sample_random.h>
#include <shoal/workers/pool.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <ranges>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace shoal::detail {

/// Samples of one task. `number`: of the chunk.
struct WriterChunk {
  std::int64_t number = 0;
  std::vector<std::int64_t> indices;
};

/// What a worker process has: one at a time, set by its pool's initializer. E: a value that crosses, whose
/// append(values, index, bytes) adds a sample's bytes.
template <class D, class E>
struct WriterWorker {
  D dataset;
  E encoder;
  RawArray<std::int64_t> at_work;  // the index that a chunk is at: read by the parent when its worker has failed

  static std::unique_ptr<WriterWorker>& mine() {
    static std::unique_ptr<WriterWorker> worker;
    return worker;
  }
  static void begin(D dataset, E encoder, RawArray<std::int64_t> at_work) {
    mine().reset(new WriterWorker{std::move(dataset), std::move(encoder), std::move(at_work)});
  }
  static SharedBytes encode(const WriterChunk& chunk) {
    WriterWorker& self = *mine();
    std::vector<std::uint8_t> bytes;
    // Relaxed: the parent reads it when the chunk has failed, and learns of that by a message or by the kernel.
    const std::atomic_ref<std::int64_t> at(self.at_work[std::size_t(chunk.number) % self.at_work.size()]);
    for (const std::int64_t index : chunk.indices) {
      at.store(index, std::memory_order_relaxed);  // see above
      auto sample = self.dataset.get(index);
      self.encoder.append(values_of(sample), index, bytes);
    }
    SharedBytes result(bytes.size());
    if (!bytes.empty()) std::memcpy(result.data(), bytes.data(), bytes.size());
    return result;
  }
};

/// The pool and its order of chunks. One thread.
template <class D, class E>
class WriterTeam {
 public:
  WriterTeam(const PoolOptions& options, D dataset, const E& encoder, std::span<const std::int64_t> indices,
             std::int64_t chunk)
      : left_(indices),
        chunk_(std::uint64_t(chunk)),
        ahead_(std::size_t(2 * options.processes)),
        at_work_(ahead_ + 2),
        pool_(options, &WriterWorker<D, E>::begin, std::move(dataset), encoder, at_work_) {}

  /// Calls add(bytes) for each chunk in order. Throws what a task threw, WorkerDied, or PoolStopped.
  template <class Add>
  void encode(Add&& add) {
    auto chunks = std::views::iota(std::int64_t(0)) |
                  std::views::take_while([this](std::int64_t) { return !left_.empty(); }) |
                  std::views::transform([this](std::int64_t) -> const WriterChunk& { return next_chunk(); });
    for (auto&& bytes : pool_.imap({.chunksize = 1, .prefetch = ahead_}, &WriterWorker<D, E>::encode, chunks)) {
      add(std::span(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()));
      bytes_ += bytes.size();
      samples_ += chunks_[next_].indices.size();
      ++next_;
    }
  }
  /// Of the sample at which the chunk that failed was; of its first, if its worker had not begun it.
  std::int64_t index_at_fault() const {
    std::int64_t& at = at_work_[next_ % at_work_.size()];
    const auto index = std::atomic_ref<std::int64_t>(at).load(std::memory_order_relaxed);  // see WriterWorker::encode
    const std::vector<std::int64_t>& indices = chunks_[next_].indices;
    return std::ranges::find(indices, index) != indices.end() ? index : indices.front();
  }

 private:
  /// About what a chunk's message has at most. More would be memory, for each chunk that is ahead, and no speed.
  static constexpr std::uint64_t kMessageBytes = 8U << 20U;

  /// Made when the pool asks for it, by what samples have had of bytes so far. The first ones, which tell, are of one
  /// sample.
  const WriterChunk& next_chunk() {
    const std::uint64_t fitting = samples_ * kMessageBytes / std::max<std::uint64_t>(1, bytes_);
    const std::uint64_t most = std::clamp<std::uint64_t>(fitting, 1, chunk_);
    const auto part = left_.first(std::size_t(std::min<std::uint64_t>(most, left_.size())));
    left_ = left_.subspan(part.size());
    chunks_.push_back({std::int64_t(chunks_.size()), {part.begin(), part.end()}});
    return chunks_.back();
  }

  std::span<const std::int64_t> left_;  // samples that are in no chunk yet
  std::uint64_t chunk_;
  std::uint64_t samples_ = 0, bytes_ = 0;  // that have come
  std::size_t ahead_;
  RawArray<std::int64_t> at_work_;
  std::vector<WriterChunk> chunks_;
  std::size_t next_ = 0;
  Pool pool_;
};

/// Encodes these samples in this order, by the pool's processes or, if these are 0, here, and calls add(bytes) with one
/// sample or with a chunk of them. fail(index) is called where an exception is being handled: of a sample that cannot be
/// read or encoded, or WorkerDied. What add throws passes, and so does PoolStopped: workers that cannot start are no
/// sample's fault.
template <class D, class E, class Add, class Fail>
void encode_samples(D dataset, const E& encoder, std::span<const std::int64_t> indices, const PoolOptions& pool,
                    std::int64_t chunk, Add&& add, Fail&& fail) {
  if (pool.processes == 0) {
    std::vector<std::uint8_t> bytes;
    for (const std::int64_t index : indices) {
      bytes.clear();
      try {
        auto sample = dataset.get(index);
        encoder.append(values_of(sample), index, bytes);
      } catch (...) {
        fail(index);
      }
      add(std::span<const std::uint8_t>(bytes));
    }
  } else if constexpr (Encodable<D>) {
    WriterTeam<D, E> team(pool, std::move(dataset), encoder, indices, chunk);
    bool is_adding = false;
    try {
      team.encode([&](std::span<const std::uint8_t> bytes) {
        is_adding = true;
        add(bytes);
        is_adding = false;
      });
    } catch (const PoolStopped&) {
      throw;
    } catch (...) {
      if (is_adding) throw;
      fail(team.index_at_fault());
    }
  } else {
    throw std::invalid_argument(
        fmt::format("{}: num_workers is {}, but this data set cannot go to workers: it needs a shoal::Codec", pool.name,
                    pool.processes));
  }
}

}  // namespace shoal::detail
