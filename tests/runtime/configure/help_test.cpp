#include <cstdio>
#include <fstream>

#include "tests/runtime/configure/settings.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using namespace shoal;
using test::Settings;

namespace {

config::Answer answer_to(std::vector<std::string> arguments, Settings settings = {}) {
  config::Request request{{.name = "train", .about = "Trains."}, std::move(arguments), {}};
  return config::apply(config::kind_of<Settings>(), &settings, request);
}

/// What bash offers behind this line.
std::vector<std::string> completed(const test::TemporaryFolder& folder, const std::string& line) {
  std::ofstream(folder.file("script.bash"))
      << answer_to({"--completion", "bash"}).text << "COMP_LINE='" << line << "' COMP_POINT=" << line.size()
      << "\n_train_complete\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
  std::vector<std::string> words;
  FILE* bash = ::popen(("bash " + folder.file("script.bash") + " 2>&1").c_str(), "r");
  REQUIRE(bash);
  char text[512];
  while (std::fgets(text, sizeof text, bash))
    if (text[0] != '\n') words.emplace_back(text).pop_back();
  CHECK(::pclose(bash) == 0);
  return words;
}

}  // namespace

TEST_CASE("configure help: it has names, types, defaults, texts, units and limits of all options") {
  const config::Answer answer = answer_to({"--no-such-option", "--help"});
  REQUIRE(answer.is_text);
  for (const char* row :
       {"usage: train [NAME=VALUE | --NAME VALUE]...\n\nTrains.\n",
        "  --mode single|ddp|hogwild         what is run [single]\n",
        "  --lr number                       learning rate at the start (above 0) [0.05]\n",
        "  --limit integer|none              [none]\n",
        "  --loader.shuffle, --loader.no-shuffle\n                                    [true]\n",
        "  --loader.batch-size integer       samples in a batch (at least 1) [64]\n",
        "  --loader.cache integer            memory for samples (bytes) [0]\n",
        "  --loader.timeout duration         [500ms]\n", "  --optim Sgd|Adam                  [Sgd]\n",
        "  --optim.momentum number           [0.0]\n", "TRAIN_MODE for mode"})
    CHECK_THAT(answer.text, ContainsSubstring(row));
  CHECK_THAT(answer.text, !ContainsSubstring("callback"));
  for (std::size_t begin = 0; begin < answer.text.size(); begin = answer.text.find('\n', begin) + 1)
    CHECK(answer.text.find('\n', begin) - begin <= 125);
}

TEST_CASE("configure help: --print-config is a file that says the same, with the texts beside it") {
  const config::Answer answer = answer_to({"lr=3", "--print-config", "optim=Adam", "weights={}"});
  REQUIRE(answer.is_text);
  CHECK_THAT(answer.text,
             ContainsSubstring("mode = \"single\"  # what is run\nlr = 3.0  # learning rate at the start\n"));
  CHECK_THAT(answer.text, ContainsSubstring("\n[optim]\ntype = \"Adam\"\nlr = 0.001\nbetas = [0.9, 0.999]\n"));
  CHECK(parse_config<Settings>(answer.text) == read_config<Settings>({"lr=3", "optim=Adam", "weights={}"}));
}

TEST_CASE("configure completion: bash offers names, and then values") {
  const test::TemporaryFolder folder;
  CHECK(completed(folder, "train loader.s") == std::vector<std::string>{"loader.shuffle=", "loader.shape="});
  CHECK(completed(folder, "train --loader.no") == std::vector<std::string>{"--loader.no-shuffle"});
  CHECK(completed(folder, "train mode=") == std::vector<std::string>{"single", "ddp", "hogwild"});
  CHECK(completed(folder, "train lr=3 mode=h") == std::vector<std::string>{"hogwild"});
  CHECK(completed(folder, "train --mode ") == std::vector<std::string>{"single", "ddp", "hogwild"});
  CHECK(completed(folder, "train --mode=d") == std::vector<std::string>{"ddp"});
  CHECK(completed(folder, "train --loader.shuffle f") == std::vector<std::string>{"false"});
  CHECK(completed(folder, "train loader.shape=").empty());
  std::ofstream(folder.file("settings.toml")) << "";
  CHECK(completed(folder, "train --config " + folder.file("set")) ==
        std::vector<std::string>{folder.file("settings.toml")});
}
