// How fast are .beton files read, decoded and augmented, and what does it cost in memory? Beside FFCV on the same files, in
// turns, and torch.utils.data on the same pictures as a folder. SHOAL_FFCV_PYTHON names the Python that has FFCV 1.0.2.
#include <ATen/Parallel.h>
#include <ATen/ops/sum.h>
#include <fmt/format.h>
#include <shoal/ipc/barrier.h>
#include <shoal/ipc/queue.h>
#include <shoal/runtime/init.h>
#include <shoal/runtime/spawn.h>
#include <shoal/workers/beton/beton_loader.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/beton/files.h"
#include "bench/beton/peer.h"
#include "bench/beton/usage.h"
#include "bench/report/report.h"
#include "tests/support/temporary_folder.h"

namespace {

namespace fs = std::filesystem;
using namespace shoal;
using bench::BetonFileCase;

constexpr const char* kFfcv = "FFCV";
constexpr const char* kTorch = "torch.utils.data, a folder";
constexpr int kRanks = 4;
constexpr double kRoundSeconds = 1;  // an epoch of small pictures takes less: both sides run as many as fill it
constexpr std::uint64_t kLimit = 768U << 20U;  // of the process that reads a file of twice that

struct Settings {
  int rounds = 3;
  std::string only;
  bool peers = true, folder = true;
  double size = 1;
};

/// What is done with pictures: decode, floats, crop.
BetonPipelines pipelines(const std::string& what) {
  BetonPipeline image;
  if (what == "crop")
    image = {RandomResizedCropRGBImageDecoder{{224}}, ToTensor{}};
  else
    image = {SimpleRGBImageDecoder{}, ToTensor{}};
  if (what == "floats")
    image = {SimpleRGBImageDecoder{}, RandomHorizontalFlip{}, NormalizeImage{{123.7, 116.3, 103.5}, {58.4, 57.1, 57.4}},
             ToTensor{}, ToTorchImage{}};
  return {{"image", image}, {"label", {IntDecoder{}, ToTensor{}, Squeeze{}}}};
}

BetonLoader<> loader_of(const BetonFileCase& which, const fs::path& folder, const std::string& what, int workers,
                        bool is_large = false, bool distributed = false) {
  return BetonLoader<>(which.file(folder), {.batch_size = which.batch,
                                            .num_workers = workers,
                                            .order = is_large ? BetonOrder::quasi_random : BetonOrder::random,
                                            .distributed = distributed,
                                            .seed = 1,
                                            .pipelines = pipelines(what),
                                            .os_cache = !is_large});
}

double sum_of(BetonLoader<>& loader) {
  double sum = 0;
  for (auto& batch : loader)
    sum += batch.at("image").sum(at::kDouble).item<double>() + batch.at("label").sum().item<double>();
  return sum;
}

nlohmann::json question(const BetonFileCase& which, const fs::path& folder, const std::string& what, int workers) {
  return {{"file", which.file(folder).native()},
          {"folder", which.pictures(folder).native()},
          {"what", what},
          {"workers", workers},
          {"batch", which.batch},
          {"count", which.count}};
}

/// One implementation in one case: its rates, and CPU time for a picture.
struct Measured {
  std::vector<double> rates, cpu;
  void add(bench::Report& report, const char* impl, const std::string& name) const {
    if (rates.empty()) return;
    report.add(impl, name, "1/s", rates);
    report.add(impl, name + ", CPU", "us", cpu);
  }
};

/// Whole epochs, one after the other, that took kRoundSeconds or a little more.
struct Epochs {
  double seconds;
  std::int64_t pictures;
};

template <class Run>
void measure(Measured& measured, pid_t pid, Run&& run) {
  const double before = bench::cpu_seconds(pid);
  const std::optional<Epochs> epochs = run();
  if (!epochs) return;
  measured.rates.push_back(double(epochs->pictures) / epochs->seconds);
  measured.cpu.push_back(1e6 * (bench::cpu_seconds(pid) - before) / double(epochs->pictures));
}

Epochs run_epochs(BetonLoader<>& loader) {
  Epochs epochs{0, 0};
  while (epochs.seconds < kRoundSeconds)
    epochs.seconds += bench::seconds([&] {
      for (auto& batch : loader) epochs.pictures += batch.at("image").size(0);
    });
  return epochs;
}

struct Peers {
  std::unique_ptr<bench::Peer> ffcv, torch;
};

std::optional<double> seconds_in(const nlohmann::json& answer) {
  if (!answer.is_object() || !answer.contains("seconds")) return std::nullopt;
  return answer["seconds"].get<double>();
}

std::optional<Epochs> ask_epochs(bench::Peer& peer, nlohmann::json asked) {
  asked["least_seconds"] = kRoundSeconds;
  const nlohmann::json answer = peer.ask(asked);
  const std::optional<double> seconds = seconds_in(answer);
  if (!seconds) return std::nullopt;
  return Epochs{*seconds, answer["pictures"].get<std::int64_t>()};
}

void compare(bench::Report& report, const Settings& settings, const BetonFileCase& which, const fs::path& folder,
             const std::string& what, int workers, const Peers& peers) {
  const std::string name = fmt::format("{}, {}, {} worker{}", which.name, what, workers, workers == 1 ? "" : "s");
  if (!name.starts_with(settings.only)) return;
  auto loader = loader_of(which, folder, what, workers);
  const nlohmann::json asked = question(which, folder, what, workers);
  Measured ours, ffcv, torch;
  const double sum = sum_of(loader);  // warms up, and FFCV compiles meanwhile
  nlohmann::json summed = asked;
  summed["sum"] = true;
  const nlohmann::json theirs = peers.ffcv ? peers.ffcv->ask(summed) : nullptr;
  if (theirs.is_object() && what == "decode" && std::fabs(theirs["sum"].get<double>() - sum) > 0.5)
    fmt::print("# WARNING: {}: the numbers add up to {}, FFCV's to {}: not the same work\n", name, sum,
               theirs["sum"].get<double>());
  const bool with_torch = peers.torch && which.is_jpeg;
  if (with_torch) peers.torch->ask(asked);
  for (int round = 0; round < settings.rounds; ++round) {
    measure(ours, ::getpid(), [&]() -> std::optional<Epochs> { return run_epochs(loader); });
    if (theirs.is_object()) measure(ffcv, peers.ffcv->pid(), [&] { return ask_epochs(*peers.ffcv, asked); });
    if (with_torch) measure(torch, peers.torch->pid(), [&] { return ask_epochs(*peers.torch, asked); });
  }
  ours.add(report, "shoal", name);
  ffcv.add(report, kFfcv, name);
  torch.add(report, kTorch, name);
  const double times = what == "decode" ? 1.3 : what == "crop" ? 2 : which.is_jpeg ? 2.5 : 3;
  if (what != "crop" || which.is_jpeg) report.ask(name, "median", kFfcv, times);
}

/// In the middle of an epoch. In processes of their own: this one, which has done nothing before, and a fresh FFCV.
void compare_memory(bench::Report& report, const BetonFileCase& which, const fs::path& folder, int workers,
                    const std::vector<std::string>& ffcv) {
  const std::string name = fmt::format("memory, {}, crop, {} worker{}", which.name, workers, workers == 1 ? "" : "s");
  const auto show = [&](const char* impl, const bench::Memory& memory) {
    report.add(impl, name, "MiB", {memory.all});
    report.add(impl, name + ", without files' pages", "MiB", {memory.own});
  };
  {
    auto loader = loader_of(which, folder, "crop", workers);
    auto at = loader.begin();
    for (std::int64_t batch = 1; batch < which.count / which.batch / 2; ++batch) ++at;
    show("shoal", bench::memory_of(::getpid()));
  }
  if (ffcv.empty()) return;
  bench::Peer peer(ffcv);
  nlohmann::json half = question(which, folder, "crop", workers);
  half["half"] = true;
  if (!peer.ask(half).is_object()) return;
  show(kFfcv, bench::memory_of(peer.pid()));
  for (const char* part : {"", ", without files' pages"}) report.ask(name + part, "median", kFfcv, 1);
}

void read_as_rank(int rank, const BetonFileCase& which, const std::string& folder, int rounds, const Barrier& all,
                  const Queue<double>& rates) {
  Barrier barrier = all;
  Queue<double> results = rates;
  at::set_num_threads(1);
  auto loader = loader_of(which, folder, "crop", 1, false, true);
  for (int round = 0; round <= rounds; ++round) {
    barrier.wait();
    const double took = bench::seconds([&] {
      for (auto& batch : loader) (void)batch;
      barrier.wait();
    });
    if (rank == 0 && round > 0) results.put(double(which.count) / took);
  }
}

void compare_ranks(bench::Report& report, const Settings& settings, const BetonFileCase& which, const fs::path& folder,
                   const Peers& peers) {
  const std::string name = fmt::format("{}, crop, {} ranks with a worker each", which.name, kRanks);
  if (!name.starts_with(settings.only)) return;
  Barrier barrier(kRanks);
  Queue<double> results({.capacity = std::size_t(settings.rounds)});
  spawn({.nprocs = kRanks}, read_as_rank, which, folder.native(), settings.rounds, barrier, results);
  std::vector<double> rates;
  for (int round = 0; round < settings.rounds; ++round) rates.push_back(results.get());
  report.add("shoal", name, "1/s", rates);
  if (!peers.ffcv) return;
  nlohmann::json asked = question(which, folder, "crop", 1);
  asked["ranks"] = kRanks;
  asked["rounds"] = settings.rounds;
  const nlohmann::json answer = peers.ffcv->ask(asked);
  if (answer.is_object()) report.add(kFfcv, name, "1/s", answer["rates"].get<std::vector<double>>());
}

/// This program as a peer that reads one file again and again, for a cgroup of its own.
int serve(const BetonFileCase& which, const fs::path& folder) {
  auto loader = loader_of(which, folder, "decode", 1, /*is_large=*/true);
  char* line = nullptr;
  std::size_t size = 0;
  while (::getline(&line, &size, stdin) > 0) {
    const double took = bench::seconds([&] {
      for (auto& batch : loader) (void)batch;
    });
    fmt::print("{}\n", nlohmann::json{{"seconds", took}}.dump());
    std::fflush(stdout);
  }
  std::free(line);
  return 0;
}

void compare_large(bench::Report& report, const Settings& settings, const BetonFileCase& which, const fs::path& folder,
                   const char* program, const std::vector<std::string>& ffcv) {
  const std::string name = fmt::format("{} of twice the memory, decode, quasi-random", which.name);
  if (!name.starts_with(settings.only)) return;
  const bench::LimitedMemory limited(kLimit);
  if (!limited.is_there()) {
    fmt::print("# {}: no memory cgroup can be made here\n", name);
    return;
  }
  const double gigabytes = double(fs::file_size(which.file(folder))) / 1e9;
  bench::Peer ours(limited.command({program, "--serve", folder.native(), "--size", std::to_string(settings.size)}));
  std::unique_ptr<bench::Peer> theirs;
  if (!ffcv.empty()) theirs = std::make_unique<bench::Peer>(limited.command(ffcv));
  nlohmann::json asked = question(which, folder, "decode", 1);
  asked["quasi_random"] = true;
  std::vector<double> shoal_rates, ffcv_rates, dd_rates;
  for (int round = 0; round <= settings.rounds; ++round) {
    const auto from_disk = [&](std::vector<double>& rates, const std::optional<double>& seconds) {
      if (seconds && round > 0) rates.push_back(gigabytes / *seconds);  // the first one warms up, and FFCV compiles
      bench::forget_pages(which.file(folder));
    };
    bench::forget_pages(which.file(folder));
    from_disk(shoal_rates, seconds_in(ours.ask({{"epoch", round}})));
    if (theirs) from_disk(ffcv_rates, seconds_in(theirs->ask(asked)));
    std::string dd;
    for (const std::string& word :
         limited.command({"dd", "if=" + which.file(folder).native(), "of=/dev/null", "bs=8M", "status=none"}))
      dd += fmt::format("'{}' ", word);
    int status = 0;
    from_disk(dd_rates, bench::seconds([&] { status = std::system(dd.c_str()); }));
    if (status != 0) dd_rates.clear();
  }
  if (!shoal_rates.empty()) report.add("shoal", name, "GB/s", shoal_rates);
  if (!ffcv_rates.empty()) report.add(kFfcv, name, "GB/s", ffcv_rates);
  if (!dd_rates.empty()) report.add("dd", name, "GB/s", dd_rates);
}

}  // namespace

int main(int argc, char** argv) {
  init(argc, argv);
  CLI::App app("reading .beton files, beside FFCV and torch.utils.data");
  Settings settings;
  std::string served;
  app.add_flag("--peers,!--no-peers", settings.peers, "run the peers too");
  app.add_flag("--folder,!--no-folder", settings.folder, "torch.utils.data over a folder, too");
  app.add_option("--rounds", settings.rounds, "of each, in turns: whole epochs, for a second or more");
  app.add_option("--only", settings.only, "the cases whose names begin so");
  app.add_option("--size", settings.size, "of all files, by this factor");
  app.add_option("--serve", served, "of the program's own: reads the large file of this folder");
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(1);
  const auto sized = [&](std::int64_t count, std::int64_t batch) {
    return std::max<std::int64_t>(4, std::int64_t(double(count) * settings.size) / batch) * batch;
  };
  const std::vector<BetonFileCase> files = {{"raw 32 x 32", false, 32, sized(51200, 512), 512},
                                            {"raw 256 x 256", false, 256, sized(1536, 64), 64},
                                            {"JPEG 256 x 256", true, 256, sized(1536, 64), 64},
                                            {"JPEG 512 x 512", true, 512, sized(512, 64), 64}};
  const BetonFileCase large{"a file", false, 258, sized(std::int64_t(2 * kLimit) / (258 * 258 * 3), 64), 64};
  if (!served.empty()) return serve(large, served);

  bench::Report report("beton");
  const test::TemporaryFolder temporary;
  const fs::path folder = temporary.path();
  // In a process of its own: this one's memory is measured.
  for (const BetonFileCase& file : files)
    spawn(
        {.nprocs = 1},
        +[](int, const BetonFileCase& which, const std::string& where) { bench::make_beton(which, where, true); }, file,
        folder.native());

  const char* python = std::getenv("SHOAL_FFCV_PYTHON");
  const std::string script = std::string(SHOAL_BENCH_PEERS) + "/workers/beton.py";
  std::vector<std::string> ffcv;
  if (settings.peers && python != nullptr) ffcv = {python, script, "ffcv"};
  if (settings.peers && python == nullptr)
    fmt::print("# FFCV's rows are missing: SHOAL_FFCV_PYTHON names no Python that has it (docs/benchmarks.md)\n");
  for (const int workers : {1, 2})
    if (std::string("memory").starts_with(settings.only.substr(0, 6)))
      compare_memory(report, files[3], folder, workers, ffcv);
  Peers peers;
  if (!ffcv.empty()) peers.ffcv = std::make_unique<bench::Peer>(ffcv);
  if (settings.peers && settings.folder)
    peers.torch = std::make_unique<bench::Peer>(
        std::vector<std::string>{python != nullptr ? python : SHOAL_BENCH_PYTHON, script, "torch"});
  for (const int workers : {1, 2})
    for (const BetonFileCase& file : files)
      for (const char* what : {"decode", "floats", "crop"})
        if (file.side > 32 || std::string(what) != "crop")
          compare(report, settings, file, folder, what, workers, peers);
  compare_ranks(report, settings, files[3], folder, peers);
  if (std::string("a file").starts_with(settings.only.substr(0, 6))) {
    spawn(
        {.nprocs = 1},
        +[](int, const BetonFileCase& which, const std::string& where) { bench::make_beton(which, where, false); },
        large, folder.native());
    compare_large(report, settings, large, folder, argv[0], ffcv);
  }
}
