#include <fstream>

#include "tests/runtime/configure/settings.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using namespace shoal;
using test::layered;
using test::Settings;

namespace {

std::string written(const test::TemporaryFolder& folder, const std::string& text, const std::string& name = "c.toml") {
  std::ofstream(folder.file(name)) << text;
  return folder.file(name);
}

}  // namespace

TEST_CASE("configure: of each two layers the upper one is what counts") {
  const test::TemporaryFolder folder;
  const std::string file = written(folder, "lr = 1\n");
  const config::Environment environment = {"TRAIN_LR=2"};
  const std::vector<std::string> arguments = {"lr=3"};
  CHECK(layered("", {}, {}).lr == 0.05);
  CHECK(layered(file, {}, {}).lr == 1);
  CHECK(layered("", environment, {}).lr == 2);
  CHECK(layered("", {}, arguments).lr == 3);
  CHECK(layered(file, environment, {}).lr == 2);
  CHECK(layered(file, {}, arguments).lr == 3);
  CHECK(layered("", environment, arguments).lr == 3);
  CHECK(layered(file, environment, arguments).lr == 3);
  // What no layer names is as it was, in a struct's other members, too.
  const Settings settings =
      layered(written(folder, "[loader]\nbatch_size = 8\n"), {"TRAIN_LOADER_SHUFFLE=no"}, {"loader.cache=1MiB"});
  CHECK(settings.loader == test::Loader{.batch_size = 8, .shuffle = false, .cache = 1 << 20});
}

TEST_CASE("configure: a later file and a later argument go over earlier ones, wherever --config stands") {
  const test::TemporaryFolder folder;
  const std::string first = written(folder, "lr = 1\ntitle = 'one'\n", "1.toml"),
                    second = written(folder, "lr = 2\n", "2.toml");
  const Settings settings = layered("", {}, {"title=two", "title=three", "--config", first, "--config=" + second});
  CHECK(settings.lr == 2);
  CHECK(settings.title == "three");
}

TEST_CASE("configure: all ways to write an argument mean the same") {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{{"loader.batch_size=3"},
                                                                                         {"--loader.batch_size=3"},
                                                                                         {"--loader.batch_size", "3"},
                                                                                         {"--loader.batch-size", "3"},
                                                                                         {"--loader.batch-size=3"},
                                                                                         {"loader={batch_size=3}"}})
    CHECK(read_config<Settings>(arguments).loader.batch_size == 3);
  CHECK(read_config<Settings>({"--lr", "1e-3"}).lr == 1e-3);
  CHECK(read_config<Settings>({"title=a=b, c"}).title == "a=b, c");
  CHECK(read_config<Settings>({"title=\"x\""}).title == "\"x\"");
  CHECK(read_config<Settings>({"title="}).title.empty());
  CHECK(read_config<Settings>({"data=/a b"}).data.string() == "/a b");
  CHECK(read_config<Settings>({"mode=hogwild"}).mode == test::Mode::hogwild);
}

TEST_CASE("configure: flags are set by their name, and unset by no-") {
  for (const char* off : {"--no-loader.shuffle", "--loader.no-shuffle", "--loader.shuffle=false", "loader.shuffle=off"})
    CHECK_FALSE(read_config<Settings>({off}).loader.shuffle);
  CHECK_FALSE(read_config<Settings>({"--loader.shuffle", "false"}).loader.shuffle);
  const Settings settings = read_config<Settings>({"loader.shuffle=0", "--loader.shuffle", "lr=2"});
  CHECK(settings.loader.shuffle);
  CHECK(settings.lr == 2);
}

TEST_CASE("configure: lists are set, added to, and changed in one place") {
  using Ints = std::vector<int>;
  for (const char* list : {"loader.shape=1,2,3", "loader.shape=[1,2,3]", "loader.shape=[ 1, 2, 3 ]"})
    CHECK(read_config<Settings>({list}).loader.shape == Ints{1, 2, 3});
  CHECK(read_config<Settings>({"loader.shape="}).loader.shape.empty());
  CHECK(read_config<Settings>({"loader.shape=[]"}).loader.shape.empty());
  CHECK(read_config<Settings>({"loader.shape+=5", "loader.shape+=6,7"}).loader.shape == Ints{3, 4, 5, 6, 7});
  CHECK(read_config<Settings>({"loader.shape.1=9"}).loader.shape == Ints{3, 9});
  CHECK(read_config<Settings>({"tags=a b,'c, d',\"e\\\"\",it's"}).tags ==
        std::vector<std::string>{"a b", "c, d", "e\"", "it's"});
  const Settings settings =
      read_config<Settings>({"loaders={batch_size=1},{batch_size=2,shape=[7,8]}", "loaders.0.cache=2"});
  REQUIRE(settings.loaders.size() == 2);
  CHECK(settings.loaders[0] == test::Loader{.batch_size = 1, .cache = 2});
  CHECK(settings.loaders[1] == test::Loader{.batch_size = 2, .shape = {7, 8}});
}

TEST_CASE("configure: optionals are none, or a value, or the text none in quotes") {
  const Settings has{.limit = 3, .comment = "c"};
  CHECK_FALSE(layered("", {}, {"limit=none"}, has).limit);
  CHECK_FALSE(layered("", {}, {"limit=null"}, has).limit);
  CHECK(read_config<Settings>({"limit=7"}).limit == 7);
  CHECK_FALSE(layered("", {}, {"comment=none"}, has).comment);
  CHECK(read_config<Settings>({"comment='none'"}).comment == "none");
}

TEST_CASE("configure: maps are replaced as a whole, and changed by one key") {
  using Map = std::map<std::string, int>;
  CHECK(read_config<Settings>({"weights={b=2}"}).weights == Map{{"b", 2}});
  CHECK(read_config<Settings>({"weights=b=2,c=3"}).weights == Map{{"b", 2}, {"c", 3}});
  CHECK(read_config<Settings>({"weights.b=2"}).weights == Map{{"a", 1}, {"b", 2}});
  CHECK(read_config<Settings>({"weights.'x.y'=2"}).weights == Map{{"a", 1}, {"x.y", 2}});
  CHECK(parse_config<Settings>("[weights]\nb = 2\n").weights == Map{{"b", 2}});
}

TEST_CASE("configure: a variant is chosen by its type's name, and then has the options of that type") {
  CHECK(read_config<Settings>({"optim=Adam", "optim.lr=0.5"}).optim ==
        std::variant<test::Sgd, test::Adam>(test::Adam{.lr = 0.5}));
  CHECK(read_config<Settings>({"optim.momentum=0.9"}).optim ==
        std::variant<test::Sgd, test::Adam>(test::Sgd{.momentum = 0.9}));
  CHECK(read_config<Settings>({"optim={type=Adam,lr=2}"}).optim ==
        std::variant<test::Sgd, test::Adam>(test::Adam{.lr = 2}));
  CHECK(parse_config<Settings>("[optim]\nlr = 3\ntype = 'Adam'\n").optim ==
        std::variant<test::Sgd, test::Adam>(test::Adam{.lr = 3}));
  // Variables, too, from the outside in.
  const Settings settings = layered("", {"TRAIN_OPTIM_LR=4", "TRAIN_OPTIM=Adam"}, {});
  CHECK(settings.optim == std::variant<test::Sgd, test::Adam>(test::Adam{.lr = 4}));
}

TEST_CASE("configure: durations and sizes have units") {
  using namespace std::chrono_literals;
  for (const auto& [text, time] : std::vector<std::pair<std::string, std::chrono::milliseconds>>{
           {"10ms", 10ms}, {"2s", 2000ms}, {"1.5s", 1500ms}, {"1h30m", 5'400'000ms}, {"-1min", -60'000ms}, {"0", 0ms}})
    CHECK(read_config<Settings>({"loader.timeout=" + text}).loader.timeout == time);
  for (const auto& [text, bytes] : std::vector<std::pair<std::string, std::size_t>>{
           {"512", 512UL}, {"64MiB", 64UL << 20}, {"1.5kB", 1500UL}, {"2GB", 2'000'000'000UL}})
    CHECK(read_config<Settings>({"loader.cache=" + text}).loader.cache == bytes);
}

TEST_CASE("configure: what is saved beside a run reads back equal") {
  const test::TemporaryFolder folder;
  Settings settings{.mode = test::Mode::ddp,
                    .comment = "none",
                    .optim = test::Adam{.lr = 7},
                    .weights = {{"x y", 2}},
                    .tags = {"q\"'", ""}};
  settings.loaders.resize(2);
  save_config(settings, folder.file("saved.toml"));
  CHECK(layered(folder.file("saved.toml"), {}, {}) == settings);
  CHECK(parse_config<Settings>(config_text(settings), "text", Settings{.limit = 5, .tags = {"z"}}) == settings);
}

TEST_CASE("configure: a variable that is nearly an option's is warned of, others are not") {
  Settings settings;
  config::Request request{
      {.name = "train-it"}, {}, {"TRAIN_IT_LOADER_BATCHSIZE=3", "TRAIN_IT_OTHER_THING=1", "PATH=/bin"}};
  const config::Answer answer = config::apply(config::kind_of<Settings>(), &settings, request);
  CHECK(answer.warnings ==
        std::vector<std::string>{
            "the variable TRAIN_IT_LOADER_BATCHSIZE stands for no option; TRAIN_IT_LOADER_BATCH_SIZE does"});
}

TEST_CASE("configure: options of shoal's own structs are options by their names") {
  const auto options = read_config<SpawnOptions>(
      {"nprocs=4", "start_method=fork", "grace_period=2s", "binding=core", "environment=[[A,1]]"});
  CHECK(options.nprocs == 4);
  CHECK(options.start_method == StartMethod::fork);
  CHECK(options.grace_period == std::chrono::seconds(2));
  CHECK(options.binding == Binding::core);
  CHECK(options.environment == std::vector<std::pair<std::string, std::string>>{{"A", "1"}});
}
