#include <shoal/internal/workers/sweep/run_sweep.h>

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <shoal/internal/runtime/configure/toml_text.h>
#include <shoal/internal/runtime/sweep/board.h>
#include <shoal/internal/runtime/sweep/run_folder.h>
#include <shoal/ipc/error.h>
#include <shoal/workers/pool.h>
#include <shoal/workers/pool_failure.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>

namespace shoal::detail {
namespace {

namespace fs = std::filesystem;

void flush_output() {
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
}

/// Says it in the run's folder, where that can be written; the table says it in any case.
void note_failure(const fs::path& folder, const std::string& why) {
  try {
    config::write_file(folder / "error.txt", why + "\n");
  } catch (const SystemError&) {
  }
}

/// Takes a result that is there. The result's file comes last: it says that the run is done. Waiting: the pool stopped
/// before it.
SweepOutcome finish(const fs::path& folder, const SweepRun& run, AsyncResult<std::string>& result) {
  SweepOutcome outcome{SweepOutcome::State::failed};
  try {
    const std::string text = result.get();
    outcome = outcome_of(text, "result.toml", SweepOutcome::State::done);
    write_result(folder, run, text);
    return outcome;
  } catch (const PoolStopped& error) {
    outcome.state = SweepOutcome::State::waiting;
    outcome.error = describe(error);
  } catch (const std::exception& error) {
    note_failure(folder, describe(error));
    outcome = failed_by(error);
  }
  return outcome;
}

/// Runs these in a pool of their own. Returns those that it stopped before: a pool stops if its workers die again and
/// again, which runs out of memory do.
std::vector<std::size_t> run_in_pool(const std::vector<std::size_t>& to_run, const std::vector<SweepRun>& runs,
                                     const fs::path& folder, const PoolOptions& options, SweepTask task,
                                     SweepBoard& board) {
  std::vector<std::size_t> left;
  std::string why;
  Pool pool(options);
  std::vector<std::pair<std::size_t, AsyncResult<std::string>>> under_way;
  under_way.reserve(to_run.size());
  for (const std::size_t run : to_run)
    under_way.emplace_back(run,
                           pool.apply_async(task, runs[run].config, fs::absolute(folder / runs[run].name).string()));
  board.draw();
  while (!under_way.empty()) {
    under_way.front().second.wait(std::chrono::milliseconds(100));
    const std::size_t before = under_way.size();
    std::erase_if(under_way, [&](auto& one) {
      if (!one.second.ready()) return false;
      SweepOutcome outcome = finish(folder / runs[one.first].name, runs[one.first], one.second);
      if (outcome.state == SweepOutcome::State::waiting) {
        left.push_back(one.first);
        why = outcome.error;
      } else {
        board.set(one.first, std::move(outcome));
      }
      return true;
    });
    if (under_way.size() != before) board.draw();
  }
  if (left.size() < to_run.size()) return left;
  for (const std::size_t run : left) {  // no worker can start
    SweepOutcome outcome{SweepOutcome::State::failed};
    outcome.error = why;
    note_failure(folder / runs[run].name, why);
    board.set(run, std::move(outcome));
  }
  return {};
}

}  // namespace

RunOutput::RunOutput(const fs::path& folder) {
  const fs::path file = folder / "log.txt";
  const Fd log = lift(Fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644)));
  if (!log) throw SystemError(fmt::format("opening {}", file.native()), errno);
  flush_output();
  for (int i = 0; i < 2; ++i) {
    before_[std::size_t(i)] = Fd(::fcntl(STDOUT_FILENO + i, F_DUPFD_CLOEXEC, 3));
    ::dup2(log.get(), STDOUT_FILENO + i);
  }
}

RunOutput::~RunOutput() {
  flush_output();
  for (int i = 0; i < 2; ++i) {
    if (const Fd& before = before_[std::size_t(i)])
      ::dup2(before.get(), STDOUT_FILENO + i);
    else
      ::close(STDOUT_FILENO + i);  // it had none
  }
}

std::size_t run_sweep(const SweepRequest& request, const std::vector<SweepRun>& runs, const fs::path& folder,
                      const PoolOptions& options, SweepTask task) {
  const Fd taken = take_sweep_folder(folder);
  SweepBoard board(request.axes, runs, STDERR_FILENO);
  std::vector<std::size_t> to_run;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (SweepOutcome outcome; is_kept(folder / runs[i].name, runs[i], outcome))
      board.set(i, std::move(outcome));
    else
      to_run.push_back(i);
  }
  std::erase_if(to_run, [&](std::size_t run) {
    try {
      prepare_run_folder(folder / runs[run].name, runs[run]);
      return false;
    } catch (const SystemError& error) {
      board.set(run, failed_by(error));
      return true;
    }
  });
  while (!to_run.empty()) to_run = run_in_pool(to_run, runs, folder, options, task, board);
  board.print();
  return board.failures();
}

}  // namespace shoal::detail
