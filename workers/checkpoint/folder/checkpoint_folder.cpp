#include <shoal/internal/workers/checkpoint/folder/checkpoint_folder.h>

#include <fmt/format.h>
#include <shoal/internal/ipc/base/kill_point.h>
#include <shoal/internal/workers/checkpoint/folder/shard_name.h>
#include <shoal/internal/workers/checkpoint/format/checkpoint_file.h>
#include <shoal/ipc/error.h>
#include <shoal/ipc/log.h>
#include <shoal/workers/checkpoint/checkpoint_error.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <set>
#include <system_error>
#include <utility>

namespace shoal::detail {
namespace {

constexpr const char* kWhyApart =
    "its shards are of several runs, or ranks saved them at different states: a rank has left out a batch, or gone on "
    "after a pass that failed, and counts its steps otherwise than the others do (count those that all have done, or "
    "load a checkpoint on all ranks after an exception)";

struct Found {
  std::filesystem::path path;
  ShardName name;
};

/// The files of checkpoints in the folder, in any order.
std::vector<Found> list_files(const std::filesystem::path& folder) {
  std::vector<Found> all;
  std::error_code error;
  std::filesystem::directory_iterator at(folder, error), end;
  if (error == std::errc::no_such_file_or_directory) return all;
  while (!error && at != end) {
    if (const auto name = parse_shard_name(at->path().filename().native()); name) all.push_back({at->path(), *name});
    at.increment(error);
  }
  if (error) throw SystemError(fmt::format("reading the folder of checkpoints {}", folder.native()), error.value());
  return all;
}

std::vector<StepFiles> steps_of(const std::vector<Found>& files) {
  std::map<std::pair<std::int64_t, int>, StepFiles, std::greater<>> steps;
  for (const Found& file : files) {
    if (file.name.unfinished) continue;
    StepFiles& step = steps[{file.name.step, file.name.ranks}];
    step.step = file.name.step;
    step.ranks = file.name.ranks;
    step.shards.resize(std::size_t(step.ranks));
    step.shards[std::size_t(file.name.rank)] = file.path;
  }
  std::vector<StepFiles> result;
  result.reserve(steps.size());
  for (auto& [key, step] : steps) result.push_back(std::move(step));
  return result;
}

/// Whether all shards are there and say the same run. Looks at nothing else: this is done after every save.
bool is_of_one_run(const StepFiles& step) {
  if (!step.is_complete()) return false;
  const std::optional<std::uint64_t> run = run_of_checkpoint(step.shards.front());
  return run && std::ranges::all_of(step.shards, [&](const auto& path) { return run_of_checkpoint(path) == run; });
}

void remove(const Found& file) {
  SHOAL_KILL_POINT("checkpoint.remove");
  std::error_code error;
  std::filesystem::remove(file.path, error);  // another rank may have been faster: that is none
  if (error) log_warning("an old checkpoint stays: {}: {}", file.path.native(), error.message());
}

template <class Work>
void say_failures(Work&& work) noexcept {
  try {
    work();
  } catch (const std::exception& error) {
    log_warning("old checkpoints stay: {}", error.what());
  }
}

}  // namespace

bool StepFiles::is_complete() const {
  return std::ranges::none_of(shards, [](const std::filesystem::path& path) { return path.empty(); });
}

std::vector<StepFiles> list_steps(const std::filesystem::path& folder) { return steps_of(list_files(folder)); }

void verify_step(const StepFiles& step) {
  std::uint64_t run = 0;
  for (int rank = 0; rank < step.ranks; ++rank) {
    const std::filesystem::path& path = step.shards[std::size_t(rank)];
    const ShardName name{step.step, rank, step.ranks};
    if (path.empty())
      throw CheckpointError(shard_file_name(name), CheckpointError::kNoOffset, "file",
                            "the rank's shard is missing: its run ended before all ranks had written theirs");
    const CheckpointFile file(path);
    const CheckpointHeader& header = file.header();
    if (header.step != step.step || header.rank != std::uint32_t(rank) || header.ranks != std::uint32_t(step.ranks))
      throw CheckpointError(path, 0, "header",
                            fmt::format("it is the shard of step {}, rank {} of {}: it was given another name",
                                        header.step, header.rank, header.ranks));
    if (rank == 0)
      run = header.run;
    else if (header.run != run)
      throw CheckpointError(path, 0, "run", fmt::format("the step is not whole, since {}", kWhyApart));
    file.verify();
  }
}

std::optional<StepFiles> newest_whole_step(const std::filesystem::path& folder) {
  for (StepFiles& step : list_steps(folder)) try {
      verify_step(step);
      return std::move(step);
    } catch (const Error& error) {
      log_warning("the checkpoint of step {} by {} ranks is passed over: {}", step.step, step.ranks, error.what());
    }
  return std::nullopt;
}

void remove_old_steps(const std::filesystem::path& folder, int keep, const ShardName& written) noexcept {
  say_failures([&] {
    const std::vector<Found> files = list_files(folder);
    std::set<std::int64_t> counted, apart;
    for (const StepFiles& step : steps_of(files)) {  // from the highest on
      if (counted.size() == std::size_t(keep)) break;
      if (step.step > written.step || !step.is_complete()) continue;
      (is_of_one_run(step) ? counted : apart).insert(step.step);
    }
    // By now all ranks have written what came before.
    if (const auto before =
            std::ranges::find_if(apart.rbegin(), apart.rend(), [&](auto step) { return step < written.step; });
        written.rank == 0 && before != apart.rend() && (counted.empty() || *before > *counted.rbegin()))
      log_warning("the checkpoint of step {} in {} is not whole, since {}: no load() takes it", *before,
                  folder.native(), kWhyApart);
    while (apart.size() > std::size_t(keep)) {
      for (const Found& file : files)
        if (file.name.step == *apart.begin() && !counted.contains(file.name.step)) remove(file);
      apart.erase(apart.begin());
    }
    if (counted.size() < std::size_t(keep)) return;
    for (const Found& file : files)
      if (file.name.step < *counted.begin()) remove(file);
  });
}

void remove_abandoned_steps(const std::filesystem::path& folder, const ShardName& written) noexcept {
  say_failures([&] {
    for (const Found& file : list_files(folder)) {
      const bool own = file.name.ranks == written.ranks && file.name.rank == written.rank;
      if (own ? file.name.step > written.step : file.name.ranks != written.ranks && file.name.step >= written.step)
        remove(file);
    }
  });
}

}  // namespace shoal::detail
