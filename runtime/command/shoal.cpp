// main() of the program shoal.
#include <shoal/ipc/error.h>
#include <shoal/runtime/command/subcommand.h>
#include <shoal/runtime/init.h>

#include <cstdio>
#include <exception>
#include <stdexcept>

int main(int argc, char** argv) {
  using namespace shoal::command;
  shoal::init(argc, argv);
  CLI::App app("Processes that work together: starts them, and shows what they do.", "shoal");
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  Action action;
  add_run(app, action);
  try {
    app.parse(argc, argv);
    return action ? action() : 0;
  } catch (const CLI::Success& success) {  // --help
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "shoal: %s\n", error.what());
    return ExitCode::kUsage;
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "shoal: %s\n", error.what());
    return ExitCode::kUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "shoal: %s\n", error.what());
    return ExitCode::kFailed;
  }
}
