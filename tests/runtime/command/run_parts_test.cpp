// The parts of `shoal run` that need no process.
#include <fcntl.h>
#include <shoal/internal/runtime/command/job/one_host.h>
#include <shoal/internal/runtime/command/job/rank_environment.h>
#include <shoal/internal/runtime/command/job/run_options.h>
#include <shoal/internal/runtime/command/job/run_settings.h>
#include <shoal/internal/runtime/command/output/log_folder.h>
#include <shoal/internal/runtime/command/output/output_relay.h>
#include <shoal/internal/runtime/command/run/leftovers.h>
#include <shoal/internal/runtime/environment/nearest_name.h>
#include <shoal/runtime/configure.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "tests/runtime/command/shoal_program.h"
#include "tests/support/catch.h"

namespace shoal::command {
namespace {

using Kind = RendezvousEvent::Kind;

TEST_CASE("run options: numbers of hosts and ranks") {
  CHECK(parse_nodes("3").least == 3);
  CHECK(parse_nodes("3").most == 3);
  CHECK(parse_nodes("1:4").least == 1);
  CHECK(parse_nodes("1:4").most == 4);
  for (const char* bad : {"", "0", "-1", "2:1", "1:", ":2", "1:2:3", "x", "1000000000000"})
    CHECK_THROWS_AS(parse_nodes(bad), std::invalid_argument);
  CHECK(parse_ranks("12") == 12);
  CHECK(parse_ranks("cpu") >= 1);
  CHECK(parse_ranks("auto") >= 1);
  for (const char* bad : {"", "0", "-1", "1.5", "tpu", "1001"})
    CHECK_THROWS_AS(parse_ranks(bad), std::invalid_argument);
}

TEST_CASE("run options: what the rendezvous is told is checked") {
  const auto conf = [](const std::string& text) {
    return options_of(read_config<RunSettings>({"rdzv_conf={" + text + "}"})).rendezvous_conf;
  };
  CHECK(conf("join_timeout=5,keep_alive_interval=0.5").at("keep_alive_interval") == "0.5");
  CHECK(conf("last_call_timeout=0").at("last_call_timeout") == "0");
  CHECK(conf("").empty());
  for (const char* bad :
       {"join_timout=5", "join_timeout", "=5", "join_timeout=", "join_timeout=soon", "join_timeout=5s",
        "join_timeout=0", "join_timeout=-1", "last_call_timeout=nan", "last_call_timeout=inf"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(conf(bad), ConfigError);
  }
  CHECK_THROWS_WITH(conf("join_timout=5"), ContainsSubstring("did you mean 'join_timeout'?"));
}

TEST_CASE("run options: signals by name") {
  CHECK(options_of(read_config<RunSettings>({"signals_to_handle=SIGTERM,USR1"})).signals ==
        std::vector<int>{SIGTERM, SIGUSR1});
  for (const char* bad : {"SIGKILL", "STOP", "SIGNAL", "15", "", "SIGCHLD"})
    CHECK_THROWS_WITH(parse_signal(bad), ContainsSubstring(bad) && ContainsSubstring("give names"));
}

TEST_CASE("run options: a file, variables and words are the same options, one over the other") {
  const std::string file = R"(
    nproc_per_node = 4
    nnodes = "1:3"
    signals_to_handle = ["SIGTERM", "SIGUSR1"]
    tee = 3
    local_ranks_filter = [0, 2]
    program = ["./train", "--lr", "0.1"]
    [rdzv_conf]
    join_timeout = 20
  )";
  const auto settings = parse_config<RunSettings>(file, "job.toml");
  const RunOptions options = options_of(parse_config<RunSettings>("standalone = true\nnproc_per_node = 4"));
  CHECK(options.ranks == 4);
  CHECK(options.is_one_host());
  CHECK(settings.program == std::vector<std::string>{"./train", "--lr", "0.1"});
  CHECK(settings.rdzv_conf.join_timeout == 20.0);
  // What is printed reads back equal.
  const std::string text = config_text(settings);
  CHECK(config_text(parse_config<RunSettings>(text)) == text);
  CHECK_THROWS_WITH(parse_config<RunSettings>("nproc_per_nod = 4", "job.toml"),
                    ContainsSubstring("job.toml:1:1: no option 'nproc_per_nod': did you mean 'nproc_per_node'?"));
  CHECK_THROWS_WITH(parse_config<RunSettings>("\nnnodes = \"4:1\"", "job.toml"),
                    ContainsSubstring("job.toml:2:10: nnodes = \"4:1\": give the number of hosts"));
  CHECK_THROWS_WITH(read_config<RunSettings>({"--standalone", "--nnodes=2"}),
                    ContainsSubstring("--standalone is for one host"));
}

TEST_CASE("nearest name: at most two slips away, and not another word") {
  const std::vector<std::string> names{"run", "top", "trace"};
  for (const char* written : {"rnu", "rn", "ru", "runn", "rum"}) CHECK(nearest_name(written, names) == "run");
  CHECK(nearest_name("trcae", names) == "trace");
  CHECK(nearest_name("traces", names) == "trace");
  CHECK(nearest_name("tpo", names) == "top");
  for (const char* written : {"walk", "x", "", "list"}) CHECK(nearest_name(written, names).empty());
}

TEST_CASE("run options: GPUs are counted by device files, and by what is made visible of them") {
  test::TemporaryFolder root;
  CHECK(count_gpus(root.path()) == 0);
  std::filesystem::create_directories(root.file("dev"));
  for (const char* name : {"nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"})
    std::ofstream(root.file("dev/") + name) << "";
  CHECK(count_gpus(root.path()) == 3);
  CHECK(count_gpus(root.path(), "0,2") == 2);
  CHECK(count_gpus(root.path(), "GPU-4af1") == 1);
  CHECK(count_gpus(root.path(), "") == 0);
  CHECK(count_gpus(root.path(), "0,-1,1") == 1);
  CHECK(count_gpus(root.path(), "0,1,2,3,4") == 3);
}

TEST_CASE("run options: which streams go where, for all ranks or by rank") {
  const StreamChoice all("3");
  CHECK(all.of(0).output);
  CHECK(all.of(99).error);
  CHECK_FALSE(StreamChoice().of(0).any());
  const StreamChoice some("0:1,2:2");
  CHECK(some.of(0).output);
  CHECK_FALSE(some.of(0).error);
  CHECK_FALSE(some.of(1).any());
  CHECK(some.of(2).error);
  for (const char* bad : {"", "4", "-1", "x", "0:4", "x:1", "0:", "-1:1", "0:1,2"})
    CHECK_THROWS_AS(StreamChoice(bad), std::invalid_argument);
  CHECK(read_config<RunSettings>({"--local-ranks-filter", "0,2"}).local_ranks_filter == std::vector<int>{0, 2});
  CHECK_THROWS_AS(read_config<RunSettings>({"--local-ranks-filter", "0,x"}), ConfigError);
  CHECK_THROWS_AS(read_config<RunSettings>({"--local-ranks-filter", "0,-1"}), ConfigError);
}

TEST_CASE("one host: a round, its restarts, and the end are answered at once") {
  OneHost host(RunOptions{.ranks = 4, .max_restarts = 1});
  CHECK_FALSE(host.next_event());
  host.join();
  auto event = host.next_event();
  REQUIRE(event);
  CHECK(event->kind == Kind::kRound);
  CHECK(event->round.world_size == 4);
  CHECK(event->round.number == 0);
  CHECK(event->round.master_addr == "127.0.0.1");
  CHECK(event->round.master_port >= 20000);
  host.report_failure("first");
  event = host.next_event();
  CHECK(event->kind == Kind::kRestart);
  CHECK(event->reason == "first");
  host.join();
  event = host.next_event();
  CHECK(event->round.number == 1);
  CHECK(event->round.restart_count == 1);
  host.report_failure("second");
  CHECK(host.next_event()->kind == Kind::kFailed);
  host.report_success();
  CHECK(host.next_event()->kind == Kind::kFinished);
}

TEST_CASE("one host: a free port is one that the kernel's tables do not show") {
  test::TemporaryFolder root;
  std::filesystem::create_directories(root.file("proc/net"));
  std::ofstream tcp(root.file("proc/net/tcp")), tcp6(root.file("proc/net/tcp6"));
  tcp << "  sl  local_address rem_address   st\n";
  // All but one are in use: half of them by version 4.
  constexpr int kFree = 27531;
  for (int port = 20000; port < 32000; ++port) {
    char line[100];
    std::snprintf(line, sizeof line, "   0: %s:%04X 00000000:0000 0A\n",
                  port % 2 ? "0100007F" : "00000000000000000000000001000000", unsigned(port));
    if (port != kFree) (port % 2 ? tcp : tcp6) << line;
  }
  tcp.close();
  tcp6.close();
  CHECK(find_free_port(root.path()) == kFree);
  std::ofstream(root.file("proc/net/tcp"), std::ios::app) << "   0: 0100007F:6B8B 00000000:0000 0A\n";
  CHECK_THROWS_WITH(find_free_port(root.path()), ContainsSubstring("give --master-port"));
}

TEST_CASE("rank environment: torchrun's variables, with this host's place in the run") {
  const RunOptions options{.ranks = 2, .run_id = "job", .max_restarts = 3};
  Round round;
  round.number = 5;
  round.node_rank = 1;
  round.node_count = 3;
  round.first_rank = 4;
  round.world_size = 8;
  round.master_addr = "far";
  round.master_port = 77;
  round.restart_count = 2;
  std::map<std::string, std::string> seen;
  for (const auto& [name, value] : rank_environment(options, round, 1, 6)) seen[name] = value;
  CHECK(seen["RANK"] == "5");
  CHECK(seen["LOCAL_RANK"] == "1");
  CHECK(seen["WORLD_SIZE"] == "8");
  CHECK(seen["LOCAL_WORLD_SIZE"] == "2");
  CHECK(seen["GROUP_RANK"] == "1");
  CHECK(seen["GROUP_WORLD_SIZE"] == "3");
  CHECK(seen["MASTER_ADDR"] == "far");
  CHECK(seen["MASTER_PORT"] == "77");
  CHECK(seen["TORCHELASTIC_RESTART_COUNT"] == "2");
  CHECK(seen["TORCHELASTIC_MAX_RESTARTS"] == "3");
  CHECK(seen["TORCHELASTIC_RUN_ID"] == "job");
  CHECK(seen["SHOAL_ROUND"] == "5");
  CHECK(seen["OMP_NUM_THREADS"] == "6");
  seen.clear();
  for (const auto& [name, value] : rank_environment(options, round, 1, 0)) seen[name] = value;
  CHECK_FALSE(seen.contains("OMP_NUM_THREADS"));
}

struct Pipe {
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    reading = Fd(ends[0]);
    writing = Fd(ends[1]);
  }
  Fd reading, writing;
};

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("output relay: bytes go to the file as they are, and the end is kept") {
  test::TemporaryFolder folder;
  const std::string path = folder.file("out");
  const std::string text = std::string(3 * OutputTail::kBytes, 'x') + "\nlast line\nno end";
  Pipe pipe;
  auto tail = std::make_shared<OutputTail>();
  {
    OutputRelay relay;
    relay.add({std::move(pipe.reading), -1, "", Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)), tail});
    REQUIRE(::write(pipe.writing.get(), text.data(), text.size()) == ssize_t(text.size()));
    pipe.writing.reset();
  }
  CHECK(contents(path) == text);
  CHECK(tail->text() == "last line\nno end");
}

TEST_CASE("output relay: lines get their prefix once, however they arrive") {
  Pipe source, console;
  {
    OutputRelay relay;
    relay.add({std::move(source.reading), console.writing.get(), "[rank7]: ", Fd(), nullptr});
    for (const char* piece : {"on", "e\ntwo\n", "\nfo", "ur"})
      REQUIRE(::write(source.writing.get(), piece, std::strlen(piece)) > 0);
    source.writing.reset();
  }
  console.writing.reset();
  char bytes[200];
  const ssize_t got = ::read(console.reading.get(), bytes, sizeof bytes);
  CHECK(std::string(bytes, std::size_t(got)) == "[rank7]: one\n[rank7]: two\n[rank7]: \n[rank7]: four\n");
}

TEST_CASE("output relay: a progress bar comes out when it ends in a carriage return, before any line ends") {
  Pipe source, console;
  OutputRelay relay;
  relay.add({std::move(source.reading), console.writing.get(), "[rank7]: ", Fd(), nullptr});
  auto write = [&](const std::string& text) {
    REQUIRE(::write(source.writing.get(), text.data(), text.size()) == ssize_t(text.size()));
  };
  auto expect = [&](const std::string& text) {  // waits for ever where it does not come
    std::string got(text.size(), ' ');
    for (std::size_t at = 0; at < text.size();) {
      const ssize_t part = ::read(console.reading.get(), got.data() + at, text.size() - at);
      REQUIRE(part > 0);
      at += std::size_t(part);
    }
    CHECK(got == text);
  };
  write("10 %\r");
  expect("[rank7]: 10 %\r");
  write("20 %\r30 %\r\nnext\r");
  expect("[rank7]: 20 %\r[rank7]: 30 %\r\n[rank7]: next\r");
  write("\nlast\n");  // the line feed belongs to what came before
  expect("\n[rank7]: last\n");
}

TEST_CASE("output relay: its end comes after what was written, also where somebody still has a pipe's other end") {
  Pipe source, console;
  {
    OutputRelay relay;
    relay.add({std::move(source.reading), console.writing.get(), "", Fd(), nullptr});
    const std::string text = std::string(50'000, 'x') + "\nno end";
    REQUIRE(::write(source.writing.get(), text.data(), text.size()) == ssize_t(text.size()));
  }
  console.writing.reset();
  std::string got;
  char bytes[4096];
  for (ssize_t part; (part = ::read(console.reading.get(), bytes, sizeof bytes)) > 0;)
    got.append(bytes, std::size_t(part));
  CHECK(got == std::string(50'000, 'x') + "\nno end\n");
}

TEST_CASE("leftovers: those with the mark are found and killed, and nobody else") {
  const RunMark mark, other;
  CHECK(mark.value() != other.value());
  auto sleeper = [](const RunMark& its) {
    return std::make_unique<test::RunningProgram>(std::vector<std::string>{"/bin/sleep", "1000"},
                                                  [&] { ::setenv(RunMark::kVariable, its.value().c_str(), 1); });
  };
  auto marked = sleeper(mark), unmarked = sleeper(other);
  while (!mark.kill_all()) continue;  // until it has executed
  CHECK(marked->finish().code == -SIGKILL);
  CHECK(::kill(unmarked->pid(), 0) == 0);
  CHECK_FALSE(mark.kill_all());
}

TEST_CASE("leftovers: what one of them forks while it is looked for is killed, too") {
  const RunMark mark;
  // Each in a session of its own, so nobody's process group has them.
  const std::string script = "i=0; while [ $i -lt 300 ]; do setsid sleep 1000 & i=$((i+1)); done; wait";
  test::RunningProgram forker({"/bin/sh", "-c", script},
                              [&] { ::setenv(RunMark::kVariable, mark.value().c_str(), 1); });
  while (!mark.kill_all()) continue;
  CHECK(forker.finish().code == -SIGKILL);
  CHECK_FALSE(mark.kill_all());
}

TEST_CASE("log folder: one for a run, with a folder an attempt and a rank") {
  test::TemporaryFolder folder;
  LogFolder logs(folder.file("logs"), "a/b");
  CHECK(logs.path().empty());
  const std::string first = logs.open(0, 1, "stdout.log").path, second = logs.open(1, 0, "stderr.log").path;
  CHECK(first == logs.path() + "/attempt_0/1/stdout.log");
  CHECK(second == logs.path() + "/attempt_1/0/stderr.log");
  CHECK_THAT(logs.path(), StartsWith(folder.file("logs/a_b_")));
  CHECK_THROWS_WITH(LogFolder("/proc/nowhere", "x").open(0, 0, "f"), ContainsSubstring("give another --log-dir"));
}

}  // namespace
}  // namespace shoal::command
