// What is said, word for word: place, option, what is there, what may be there, the nearest name.
#include <fstream>

#include "tests/runtime/configure/settings.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using namespace shoal;
using test::fault_in;
using test::fault_of;

TEST_CASE("configure errors: an argument is named as it was typed") {
  CHECK(fault_of({"loader.batchsize=3"}) ==
        "loader.batchsize=3: no option 'loader.batchsize': did you mean 'batch_size'? loader has batch_size, shuffle, "
        "shape, cache, timeout");
  CHECK(fault_of({"--loader.size", "3"}) ==
        "--loader.size 3: no option 'loader.size': loader has batch_size, shuffle, shape, cache, timeout");
  CHECK(fault_of({"--leader.x"}) ==
        "--leader.x: no option 'leader': did you mean 'loader'? there are mode, lr, title, data, limit, comment, "
        "loader, optim, weights, tags, loaders");
  CHECK(fault_of({"--lr", "fast"}) == "--lr fast: must be a number");
  CHECK(fault_of({"--lr"}) == "--lr: needs a value: number");
  CHECK(fault_of({"lr=0"}) == "lr=0: must be above 0");
  CHECK(fault_of({"--loader.batch-size", "0"}) == "--loader.batch-size 0: must be at least 1");
  CHECK(fault_of({"mode=dpd"}) == "mode=dpd: must be one of single, ddp, hogwild; did you mean 'ddp'?");
  CHECK(fault_of({"loader.shape=3,x"}) == "loader.shape=3,x: loader.shape.1 = x: must be an integer");
  CHECK(fault_of({"loader.shape=[3,4"}) == "loader.shape=[3,4: has no ] where something in it ends");
  CHECK(fault_of({"loader.shape.2=1"}) ==
        "loader.shape.2=1: no 'loader.shape.2': loader.shape has the elements 0 to 1");
  CHECK(fault_of({"lr+=1"}) == "lr+=1: += adds to a list, and this is none");
  CHECK(fault_of({"loader+={}"}) == "loader+={}: += adds to a list, and this is none");
  CHECK(fault_of({"loader.timeout=500"}) ==
        "loader.timeout=500: must be a duration with its unit, as 10ms, 2s, 1.5h (d, h, min, s, ms, us, ns)");
  CHECK(fault_of({"loader.timeout=1us"}) == "loader.timeout=1us: must be a whole number of ms");
  CHECK(fault_of({"loader.cache=-1"}) == "loader.cache=-1: must be an integer from 0 to 18446744073709551615");
  CHECK(fault_of({"limit=3000000000"}) == "limit=3000000000: must be an integer from -2147483648 to 2147483647");
  CHECK(fault_of({"optim=Adm"}) == "optim=Adm: must be one of Sgd, Adam; did you mean 'Adam'?");
  CHECK(fault_of({"optim.betas=1,2"}) == "optim.betas=1,2: no option 'optim.betas': optim has lr, momentum");
  CHECK(fault_of({"loader.shuffle=maybe"}) == "loader.shuffle=maybe: must be true or false");
  CHECK(fault_of({"train"}) == "train: this is no option: write NAME=VALUE or --NAME VALUE");
  CHECK(fault_of({"--config", "/nowhere.toml"}) == "/nowhere.toml: there is no such file");
  CHECK(fault_of({"--config", "/"}) == "/: this is a folder, not a file");
  CHECK(fault_of({"--config"}) == "--config: needs a value");
  CHECK(fault_of({"--completion", "fish"}) == "--completion fish: must be bash");
}

TEST_CASE("configure errors: a variable is named, too") {
  CHECK(fault_of({}, {"TRAIN_LR=x"}) == "TRAIN_LR=x in the environment: must be a number");
  CHECK(fault_of({}, {"TRAIN_LOADER_SHAPE=1,2,c"}) ==
        "TRAIN_LOADER_SHAPE=1,2,c in the environment: loader.shape.2 = c: must be an integer");
}

TEST_CASE("configure errors: a file's line and column are named") {
  CHECK(fault_in("lr = 0.1\n[loader]\n  batchsize = 3\n") ==
        "train.toml:3:3: no option 'loader.batchsize': did you mean 'batch_size'? loader has batch_size, shuffle, "
        "shape, cache, timeout");
  CHECK(fault_in("[loader]\nbatch_size = \"many\"\n") ==
        "train.toml:2:14: loader.batch_size = \"many\": must be an integer");
  CHECK(fault_in("[loader]\nbatch_size = \"3\"\n") == "train.toml:2:14: loader.batch_size = \"3\": must be an integer");
  CHECK(fault_in("[loader]\nbatch_size = 1.5\n") == "train.toml:2:14: loader.batch_size = 1.5: must be an integer");
  CHECK(fault_in("[loader]\nbatch-size = 1\n") ==
        "train.toml:2:1: no option 'loader.batch-size': did you mean 'batch_size'? loader has batch_size, shuffle, "
        "shape, cache, timeout");
  CHECK(fault_in("title = 3") == "train.toml:1:9: title = 3: must be a text, in quotes");
  CHECK(fault_in("title = 2020-01-01") == "train.toml:1:9: title = a date or time: is a date: put it into quotes");
  CHECK(fault_in("loader = 3") ==
        "train.toml:1:10: loader = 3: must be a table: {batch_size, shuffle, shape, cache, timeout}");
  CHECK(fault_in("tags = 'a'") == "train.toml:1:8: tags = \"a\": must be a list, as [text, ...]");
  CHECK(fault_in("weights = [1]") == "train.toml:1:11: weights = [1]: must be a table, as {NAME = integer, ...}");
  CHECK(fault_in("optim = {type = 'Sdg'}") ==
        "train.toml:1:17: optim.type = \"Sdg\": must be one of Sgd, Adam; did you mean 'Sgd'?");
  CHECK(fault_in("[optim]\ntype = 'Adam'\nbetas = [1]") == "train.toml:3:9: optim.betas = [1]: must be a list of 2");
  CHECK_THAT(fault_in("lr = 1\nlr = 2\n"), StartsWith("train.toml:2:") && ContainsSubstring("'lr'"));
  CHECK(fault_in("title = '" + std::string(100, 'x') + "'\nlr = '" + std::string(100, 'y') + "'") ==
        "train.toml:2:6: lr = \"" + std::string(59, 'y') + "...: must be a number");
}

TEST_CASE("configure errors: what a struct's own check says comes with its place") {
  CHECK(fault_of({"optim={type=Adam,betas=[2,0]}"}) == "optim: betas must be below 1");
}

namespace {
struct Twice {
  struct Inner {
    int b_c = 0;
  };
  Inner a;
  int a_b_c = 0;
};
struct Reserved {
  int print_config = 0;
};
}  // namespace

TEST_CASE(
    "configure errors: a variable that stands for two options is refused, and a member with a name of the program's "
    "own") {
  CHECK(fault_of<Twice>({}, {"TRAIN_A_B_C=1"}) == "TRAIN_A_B_C in the environment stands for 'a.b_c' and for 'a_b_c'");
  CHECK_THROWS_AS(read_config<Reserved>({}), std::logic_error);
}

TEST_CASE("configure errors: letters beyond z stand in quotes and comments alone, and elsewhere their place is told") {
  CHECK_THAT(fault_in("title = 'a'\n\u00e4 = 1"), StartsWith("train.toml:2:1: this is not TOML: outside of quotes"));
  CHECK_THAT(fault_in("title = t\nrue"), ContainsSubstring("saw 't\\n"));  // what stands there, in one line
  CHECK_THAT(fault_in("title = \"\"\"\n\u00e4 \\\"\"\"\"\"\n  \u00e4 = 1"), StartsWith("train.toml:3:3: this is"));
  // toml++ itself comes to what it calls unreachable.
  CHECK_THAT(fault_in(",\xEF\xBB\xBF"
                      "n]*a0f;0"),
             StartsWith("train.toml:1:2: this is"));
  CHECK_THAT(fault_in("\xEF\xBB\xBF# \u00e4\ntitle = 3  # \u00e4"), StartsWith("train.toml:2:9: title = 3"));
}

TEST_CASE("configure errors: a name has as many parts as anybody needs") {
  // A number's point is no part, and each value of a list begins anew.
  CHECK(fault_in("title = 'a'  # " + std::string(100, '.')) == "no fault");
  std::string list = "0.5";
  for (int i = 0; i < 100; ++i) list += ", 0.5";
  CHECK_THAT(fault_in("tags = [" + list + "]"), StartsWith("train.toml:1:9: tags.0"));
  std::string name = "a";
  for (int i = 1; i < 32; ++i) name += ".a";
  CHECK_THAT(fault_in(name + " = 1"), ContainsSubstring("no option 'a'"));
  CHECK_THAT(fault_in(name + ".a = 1"), StartsWith("train.toml:1:64: a name of more than 32 parts"));
}

TEST_CASE("configure errors: hostile files are refused by a line, or read, and nothing worse") {
  std::vector<std::string> hostile = {"",
                                      "\xEF\xBB\xBFlr = 1",
                                      "=",
                                      "lr",
                                      "lr =",
                                      "lr = ",
                                      "[",
                                      "[]",
                                      "[loader",
                                      "[[loader]]",
                                      "[loader]\n[loader]",
                                      "lr = 1 2",
                                      "lr = [",
                                      "lr = " + std::string(100000, '['),
                                      "tags = " + std::string(100000, '['),
                                      "tags = [" + std::string(1000, '{'),
                                      "lr.x = 1",
                                      "lr = 1e999",
                                      "lr = 99999999999999999999",
                                      "title = \"\\ud800\"",
                                      "title = \"\xff\"",
                                      "title = \"\\u0000\"",
                                      std::string("ti\0tle = 1", 10),
                                      "title = '''\n",
                                      "loader = {",
                                      "loader = {batch_size = 1,}",
                                      "[loader]\nbatch_size = 0x7fffffffffffffff",
                                      "weights = {a = 1, a = 2}",
                                      "[weights]\na = 1\n[weights.a]\nb = 1",
                                      "\"\" = 1",
                                      "[[loaders]]\n[[loaders.shape]]",
                                      std::string(5000, 'a') + " = 1",
                                      "optim = {type = {type = 1}}",
                                      "optim = {value = 1}",
                                      "comment = \"\\\"\"",
                                      "# " + std::string(100, '\x01')};
  // Names of many parts, which are tables in tables: alone, in a header, in inline tables that are nested besides.
  const auto repeated = [](const char* text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  hostile.push_back("a" + repeated(".a", 1'000'000) + " = 1");
  hostile.push_back("[a" + repeated(" . 'a'", 1'000'000) + "]");
  hostile.push_back("a = " + repeated(("{a" + repeated(".a", 2000) + " = ").c_str(), 200) + "1" + repeated("}", 200));
  int refused = 0;
  for (const std::string& text : hostile) {
    CAPTURE(text.substr(0, 100));
    const std::string fault = fault_in(text);
    CHECK(fault.size() < 600);
    CHECK(fault.find('\n') == std::string::npos);
    if (fault == "no fault") continue;
    CHECK_THAT(fault, StartsWith("train.toml:"));
    ++refused;
  }
  CHECK(refused >= 28);
}

TEST_CASE("configure errors: typed values that are nested without end are refused") {
  CHECK(fault_of({"loaders=" + std::string(100000, '[')}).size() < 300);
  CHECK(fault_of({"loaders=" + std::string(1000, '[') + std::string(1000, ']')}) != "no fault");
  CHECK(fault_of({"weights=" + std::string(1000, '{')}) != "no fault");
  CHECK(fault_of({"tags='a"}) == "tags='a: has no ' at the end of a quoted text");
  CHECK(fault_of({"weights=a"}) == "weights=a: must be NAME=VALUE,...: there is no = after 'a'");
}
