// What becomes of an exception that ends a command: a line on standard error, and an exit code.
#pragma once

#include <shoal/internal/runtime/command/subcommand.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <stdexcept>

namespace shoal::command {

/// For the one catch (...) of a program's main: prints what is thrown just now and returns the exit code for it. `name`
/// is how the user called the program, before what is wrong with his words: "shoal: beton".
inline int end_by_exception(const CLI::App& app, const char* name) {
  try {
    throw;
  } catch (const CLI::Success& success) {  // --help
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    const bool is_value =
        dynamic_cast<const CLI::ValidationError*>(&error) || dynamic_cast<const CLI::ConversionError*>(&error);
    return is_value ? ExitCode::kBadValue : ExitCode::kUsage;
  } catch (const RefusedCommand& error) {
    std::fprintf(stderr, "shoal: %s\n", error.what());
    return error.code();
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "shoal: %s\n", error.what());
    return ExitCode::kBadValue;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "shoal: %s\n", error.what());
    return ExitCode::kFailed;
  }
}

}  // namespace shoal::command
